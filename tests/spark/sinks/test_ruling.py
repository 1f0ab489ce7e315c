"""The rule of the fenced sinks: each record is written once, in any order of attempts, never by a replaced attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.errors import FencedError
from consumer_membership.spark.context import RUN_SPACING, Partition, attempt_number
from consumer_membership.spark.sinks.ruling import UNWRITTEN, StoredFence, rule
from tests.spark.sinks.builders import GROUP, TOPIC, context

REMEDY = "call forget('orders-group') of this sink"


def stored(next_offset: int, epoch: int = 5, attempt: int = 1, partition: int = 0) -> dict[Partition, StoredFence]:
    """The stored fence of one partition."""
    return {(TOPIC, partition): StoredFence(next_offset=next_offset, epoch=epoch, attempt=attempt, writer="pipe-1")}


@pytest.mark.parametrize("before", [{}, {(TOPIC, 0): UNWRITTEN}, stored(10), stored(7), stored(10, epoch=4, attempt=9)])
def test_batch_after_the_stored_offset_is_written_completely(before: dict[Partition, StoredFence]) -> None:
    """This holds without a fence, at the stored offset or after a gap, with the same or a higher rank."""
    ruling = rule(context({0: range(10, 20)}), before, remedy=REMEDY)
    assert (ruling.is_whole, ruling.is_empty, ruling.positions) == (True, False, {(TOPIC, 0): 10})
    assert ruling.fences == {(TOPIC, 0): StoredFence(next_offset=20, epoch=5, attempt=1, writer="pipe-0")}


def test_records_below_the_stored_offset_are_skipped() -> None:
    """The previous attempt died between the sink's commit and Kafka's, so its records are not written again."""
    ruling = rule(context({0: range(10, 20), 1: range(5)}, epoch=6), stored(14), remedy=REMEDY)
    assert (ruling.is_whole, ruling.is_empty) == (False, False)
    assert ruling.positions == {(TOPIC, 0): 14, (TOPIC, 1): 0}


@pytest.mark.parametrize("end", [20, 23])
def test_batch_below_the_stored_offset_writes_only_its_fence(end: int) -> None:
    """The caller becomes the owner without writing records, and the stored offset never decreases."""
    ruling = rule(context({0: range(10, 20)}, attempt=2), stored(end), remedy=REMEDY)
    assert (ruling.is_whole, ruling.is_empty) == (False, True)
    assert ruling.fences == {(TOPIC, 0): StoredFence(next_offset=end, epoch=5, attempt=2, writer="pipe-0")}


@pytest.mark.parametrize(("epoch", "attempt"), [(6, 0), (5, 2)])
def test_fenced_error_names_the_last_writer_and_the_remedy(epoch: int, attempt: int) -> None:
    """The error names group, partition, both ranks, the last writer, and the remedy for a recreated group."""
    with pytest.raises(FencedError) as caught:
        rule(context({1: range(3), 0: range(10, 20)}), stored(12, epoch, attempt), remedy=REMEDY)
    text = str(caught.value)
    assert "group 'orders-group', orders-0: 'pipe-0' (epoch 5, attempt 1) was replaced" in text
    assert f"'pipe-1' (epoch {epoch}, attempt {attempt}) wrote last, up to offset 12" in text
    assert "Nothing of this batch was written (orders-1@0..2, orders-0@10..19)" in text
    assert text.endswith(f"its epochs started again, {REMEDY}")
    assert GROUP in text


RUN = 1_700_000_000_000


@pytest.mark.parametrize(
    ("writer", "run", "task", "epoch", "is_final"),
    [
        # Another member of this run, which owned the partition while this member was away.
        ("pipe-1", RUN, 9, 6, False),
        # A later attempt of the same task.
        ("pipe-0", RUN, 9, 6, True),
        ("pipe-0", RUN, 9, 5, True),
        # A later run of the pipeline, which may have fewer members.
        ("pipe-0", RUN + 2 * RUN_SPACING, 0, 6, True),
        ("pipe-1", RUN + 2 * RUN_SPACING, 0, 6, True),
        # Another member of this run, in an application that has had a million task attempts by then.
        ("pipe-1", RUN, 1 << 20, 6, False),
        ("pipe-1", RUN, 1 << 35, 6, False),
        # An earlier run, which still has a running task.
        ("pipe-1", RUN - 1, 9, 6, False),
        # Another pipeline of the group, whose name begins with this pipeline's name.
        ("pipe-b-1", RUN + 2 * RUN_SPACING, 0, 6, False),
        # This attempt, in a group that was deleted and created again.
        ("pipe-0", RUN, 3, 6, False),
    ],
)
def test_only_a_later_attempt_or_run_fences_a_writer_permanently(
    writer: str, run: int, task: int, epoch: int, *, is_final: bool
) -> None:
    """A writer that another member of its own run has overtaken can get the partition back, so its run continues."""
    last = StoredFence(next_offset=12, epoch=epoch, attempt=attempt_number(run, task), writer=writer)
    mine = context({0: range(10, 20)}, epoch=5, attempt=attempt_number(RUN, 3))
    with pytest.raises(FencedError) as caught:
        rule(mine, {(TOPIC, 0): last}, remedy=REMEDY)
    assert caught.value.is_final is is_final


ranks = st.tuples(st.integers(0, 3), st.integers(0, 3))
calls = st.lists(st.tuples(ranks, st.integers(0, 30), st.integers(1, 10)), max_size=40)


@given(calls)
def test_each_record_is_written_once_and_ranks_never_fall(course: list[tuple[tuple[int, int], int, int]]) -> None:
    """For any order of attempts and offsets, the rule lets each record be written once, and ranks never decrease."""
    kept: dict[Partition, StoredFence] = {}
    written: list[int] = []
    highest = UNWRITTEN.rank
    for (epoch, attempt), first, length in course:
        part = range(first, first + length)
        call = context({0: part}, epoch=epoch, attempt=attempt)
        if (epoch, attempt) < highest:
            with pytest.raises(FencedError):
                rule(call, kept, remedy=REMEDY)
            continue
        ruling = rule(call, kept, remedy=REMEDY)
        left = [offset for offset in part if offset >= ruling.positions[TOPIC, 0]]
        assert (ruling.is_empty, ruling.is_whole) == (not left, left == list(part))
        written += left
        kept = dict(ruling.fences)
        highest = (epoch, attempt)
        assert kept[TOPIC, 0].rank == highest
        assert written[-1:] <= [kept[TOPIC, 0].next_offset - 1]
    assert written == sorted(set(written))
