"""The lines between a member's process and the demo."""

from __future__ import annotations

import pytest

from consumer_membership.demo.application import Handled, Happened, Report, Standing, decode, encode
from consumer_membership.demo.records import Run

REPORTS: tuple[Report, ...] = (
    Handled(runs=(Run(3, 4), Run(1, 1)), strange=2),
    Standing(state="STABLE", epoch=7, owned=(0, 5), waits_for=None),
    Happened(at=12.5, text="two\nlines"),
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_report_survives_the_pipe(report: Report) -> None:
    """One line each, and the same value at the other end."""
    line = encode(report)
    assert line.count("\n") == 1
    assert decode(line) == report


@pytest.mark.parametrize(
    "line",
    ['{"kind":"Handled","ru', "", "7", "{}", '{"kind":"Nonsense"}', '{"kind":"Happened"}', '{"kind":"Happened","x":1}'],
)
def test_half_a_line_is_no_report(line: str) -> None:
    """A killed process may leave one behind."""
    with pytest.raises(ValueError, match=r"not a member's report|Expecting|Unterminated"):
        decode(line)
