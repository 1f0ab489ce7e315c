"""The demo's output as lines, and its result."""

from __future__ import annotations

import io
from dataclasses import replace

from consumer_membership.demo.records import CheckResult
from consumer_membership.demo.screen import LineScreen, Screen, result_lines
from tests.demo.builders import SNAPSHOT


def test_line_screen_prints_steps_events_and_members() -> None:
    """`LineScreen` prints one line for each event."""
    out = io.StringIO()
    screen: Screen
    with LineScreen(out) as screen:
        screen.begin_step(SNAPSHOT, 0)
        screen.add_event(1.5, "member-1  JOINING -> RECONCILE: because")
        screen.draw(SNAPSHOT)
        screen.end_step(SNAPSHOT, 0)
    assert out.getvalue().splitlines() == [
        "",
        "[ 12.30 s] STEP 1 of 3: two more members join",
        "[  1.50 s] member-1  JOINING -> RECONCILE: because",
        "[ 12.30 s] balanced after 0.4 s",
        "             member-1  STABLE        epoch 5   owns 0 1, processed 1,234, lag 12",
        "             member-2  killed        processed 99",
        "             member-3  starting      epoch -   owns none, processed 0, lag 0 (waits for the coordinator)",
        "             records: 2,000 produced, 1,333 consumed, 667 in flight, 7 consumed twice",
    ]


def test_result_lines_end_with_the_findings() -> None:
    """`result_lines` has the table first, then one line per finding."""
    finding = "records never consumed: 1 (4)"
    result = CheckResult(produced=10, seen=9, twice=1, committed=8, end=10, findings=(finding,))
    assert result_lines(result)[-2:] == ["CHECK FAILED:", f"  {finding}"]
    assert result_lines(replace(result, findings=()))[-1].startswith("CHECK PASSED")
