"""The lines that a member's process writes to the demo."""

from __future__ import annotations

import pytest

from consumer_membership.demo.application import Handled, MemberEvent, MemberStatus, Report, decode, encode
from consumer_membership.demo.records import Run

REPORTS: tuple[Report, ...] = (
    Handled(runs=(Run(3, 4), Run(1, 1)), foreign=2),
    MemberStatus(state="STABLE", epoch=7, owned=(0, 5), waits_for=None),
    MemberEvent(at=12.5, text="two\nlines"),
)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_report_round_trips_as_one_line(report: Report) -> None:
    """A report is one line and has the same value after it is read."""
    line = encode(report)
    assert line.count("\n") == 1
    assert decode(line) == report


@pytest.mark.parametrize(
    "line",
    [
        '{"kind":"Handled","ru',
        "",
        "7",
        "{}",
        '{"kind":"Nonsense"}',
        '{"kind":"MemberEvent"}',
        '{"kind":"MemberEvent","x":1}',
    ],
)
def test_incomplete_line_is_ignored(line: str) -> None:
    """A killed process may leave an incomplete line, which is not a report."""
    with pytest.raises(ValueError, match=r"not a member's report|Expecting|Unterminated"):
        decode(line)
