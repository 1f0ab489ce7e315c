"""docs/metrics.md has the catalogue's names."""

from __future__ import annotations

from tests.support import metrics_table


def test_table_is_the_catalogues() -> None:
    """To renew it: python -m tests.support.metrics_table."""
    text = metrics_table.DOCUMENT.read_text()
    assert text == metrics_table.renewed(text)
