"""What the demo prints: lines, the live table, the result."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from consumer_membership.demo.ledger import Verdict
from consumer_membership.demo.live import LiveScreen, picture
from consumer_membership.demo.scene import MemberLine, Progress, Scene, StepLine
from consumer_membership.demo.screen import PlainScreen, Screen, verdict_lines

ALIVE = MemberLine(
    name="member-1", pid=71, fate="", state="STABLE", epoch=5, owned=(0, 1), handled=1_234, lag=12, waits_for=""
)
DEAD = replace(ALIVE, name="member-2", pid=72, fate="killed", owned=(), handled=99, lag=0)
STARTING = replace(
    ALIVE,
    name="member-3",
    pid=73,
    state="starting",
    epoch=None,
    owned=(),
    handled=0,
    lag=0,
    waits_for="the coordinator",
)
SCENE = Scene(
    at=12.3,
    title="Apache Kafka 4.3.1 (jvm) at 127.0.0.1:9092",
    remarks=("It is a test.",),
    partitions=4,
    steps=(
        StepLine(title="two more members join", progress=Progress.DONE, outcome="balanced after 0.4 s"),
        StepLine(title="a kill", progress=Progress.RUNNING),
        StepLine(title="the end", progress=Progress.TO_COME),
    ),
    members=(ALIVE, DEAD, STARTING),
    produced=2_000,
    seen=1_333,
    twice=7,
)


def test_plain_screen_tells_step_events_and_members() -> None:
    """One line for everything that happens."""
    out = io.StringIO()
    screen: Screen
    with PlainScreen(out) as screen:
        screen.begin_step(SCENE, 0)
        screen.tell(1.5, "member-1  JOINING -> RECONCILE: because")
        screen.draw(SCENE)
        screen.end_step(SCENE, 0)
    assert out.getvalue().splitlines() == [
        "",
        "[ 12.30 s] STEP 1 of 3: two more members join",
        "[  1.50 s] member-1  JOINING -> RECONCILE: because",
        "[ 12.30 s] balanced after 0.4 s",
        "             member-1  STABLE        epoch 5   owns 0 1, handled 1,234 lag 12",
        "             member-2  killed        handled 99",
        "             member-3  starting      epoch -   owns nothing, handled 0 lag 0 (waits for the coordinator)",
        "             records: 2,000 produced, 1,333 seen, 667 on their way, 7 seen twice",
    ]


def test_live_picture_shows_who_owns_what_and_what_nobody_owns() -> None:
    """A strip per member, one cell per partition."""
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(picture(SCENE, []))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines == [
        "Apache Kafka 4.3.1 (jvm) at 127.0.0.1:9092   12 s",
        "It is a test.",
        "✓ two more members join: balanced after 0.4 s",
        "> a kill",
        "  the end",
        "member    pid  state          epoch  owns    handled    lag  waits for",
        "member-1   71  STABLE             5  ■■·· 2    1,234     12",
        "member-2   72  killed                ···· 0       99",
        "member-3   73  starting              ···· 0        0      0  the coordinator",
        "nobody                               ··■■ 2",
        "records: 2,000 produced, 1,333 seen, 667 on their way, 7 seen twice",
    ]


def test_live_picture_after_the_end_shows_no_owners() -> None:
    """When everybody has left, partitions without an owner are no news."""
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(picture(replace(SCENE, members=(replace(ALIVE, fate="left", owned=()), DEAD)), []))
    assert "nobody" not in console.export_text()


@pytest.mark.parametrize("columns", [40, 80])
def test_live_picture_fits_a_small_terminal(columns: int) -> None:
    """With many partitions a share is a number, and no line is wider than the terminal."""
    console = Console(file=io.StringIO(), width=columns, record=True)
    console.print(picture(replace(SCENE, partitions=200), []))
    text = console.export_text()
    assert "2 of 200" in text or columns < 80
    assert max(map(len, text.splitlines())) <= columns


def test_live_screen_leaves_the_last_picture_on_the_terminal() -> None:
    """Also what happened, newest last."""
    out = io.StringIO()
    with LiveScreen(Console(file=out, width=100, height=40, force_terminal=True)) as screen:
        for number in range(9):
            screen.tell(number, f"event {number}")
        screen.begin_step(SCENE, 0)
        screen.end_step(SCENE, 0)
    last = out.getvalue().rpartition("records:")[2]
    assert "event 8" in last
    assert "event 2" not in last


def test_result_names_what_is_wrong() -> None:
    """The table first, then one line per finding."""
    verdict = Verdict(produced=10, seen=9, twice=1, committed=8, end=10, findings=("1 records were never seen: 4",))
    assert verdict_lines(verdict)[-2:] == ["CHECK FAILED:", "  1 records were never seen: 4"]
    assert verdict_lines(replace(verdict, findings=()))[-1].startswith("CHECK PASSED")
