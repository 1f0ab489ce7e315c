"""The demo as a live table."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from consumer_membership.demo.table_screen import TableScreen, picture
from tests.demo.builders import ALIVE, DEAD, SNAPSHOT


def test_picture_shows_the_owner_of_each_partition() -> None:
    """Each member has a strip with one cell per partition; unowned partitions have their own strip."""
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(picture(SNAPSHOT, []))
    lines = [line.rstrip() for line in console.export_text().splitlines()]
    assert lines == [
        "Apache Kafka 4.3.1 (jvm) at 127.0.0.1:9092   12 s",
        "It is a test.",
        "✓ two more members join: balanced after 0.4 s",
        "> a kill",
        "  the end",
        "member    pid  state          epoch  owns    processed    lag  waits for",
        "member-1   71  STABLE             5  ■■·· 2      1,234     12",
        "member-2   72  killed                ···· 0         99",
        "member-3   73  starting              ···· 0          0      0  the coordinator",
        "no owner                             ··■■ 2",
        "records: 2,000 produced, 1,333 consumed, 667 in flight, 7 consumed twice",
    ]


def test_picture_after_the_end_omits_unowned_partitions() -> None:
    """After all members have left, partitions without an owner are expected."""
    console = Console(file=io.StringIO(), width=100, record=True)
    console.print(picture(replace(SNAPSHOT, members=(replace(ALIVE, has_ended=True), DEAD)), []))
    assert "no owner" not in console.export_text()


@pytest.mark.parametrize("columns", [40, 80])
def test_picture_fits_a_small_terminal(columns: int) -> None:
    """With many partitions a member's share is a number, and no line is wider than the terminal."""
    console = Console(file=io.StringIO(), width=columns, record=True)
    console.print(picture(replace(SNAPSHOT, partitions=200), []))
    text = console.export_text()
    assert "2 of 200" in text or columns < 80
    assert max(map(len, text.splitlines())) <= columns


def test_table_screen_leaves_its_last_picture_on_the_terminal() -> None:
    """The last picture includes the latest events, newest last."""
    out = io.StringIO()
    with TableScreen(Console(file=out, width=100, height=40, force_terminal=True)) as screen:
        for number in range(9):
            screen.add_event(number, f"event {number}")
        screen.begin_step(SNAPSHOT, 0)
        screen.end_step(SNAPSHOT, 0)
    last = out.getvalue().rpartition("records:")[2]
    assert "event 8" in last
    assert "event 2" not in last
