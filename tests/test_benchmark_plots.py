"""The charts of docs/compare/benchmarks.md have the values of its tables."""

from __future__ import annotations

from tests.support.benchmark_plots import DOCUMENT, drawn
from tests.support.documents import links


def test_charts_are_drawn_from_the_tables_of_the_document() -> None:
    """Each chart is up to date, and the document shows it; renew with `python -m tests.support.benchmark_plots`."""
    text = DOCUMENT.read_text()
    shown = {(DOCUMENT.parent / link).resolve() for link in links(text)}
    for path, picture in drawn(text).items():
        assert path.read_text() == picture
        assert path in shown
