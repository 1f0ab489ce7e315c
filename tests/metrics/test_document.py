"""The table in docs/reference/metrics.md is generated from the catalog."""

from __future__ import annotations

from tests.support import metrics_table


def test_metrics_document_has_the_generated_table() -> None:
    """The document has the current table; renew it with `python -m tests.support.metrics_table`."""
    text = metrics_table.DOCUMENT.read_text()
    assert text == metrics_table.renewed(text)
