"""The offset ranges of a list of records, by partition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from consumer_membership.spark.batches import before, ranges_of, runs_of
from consumer_membership.spark.context import OffsetRange


def record(topic: str, partition: int, offset: int) -> Message:
    """One record."""
    return Message(topic=topic, partition=partition, offset=offset, value=b"")


def one_by_one(records: Sequence[Message]) -> tuple[OffsetRange, ...]:
    """The ranges, computed record by record."""
    found: dict[tuple[str, int], list[int]] = {}
    for one in records:
        found.setdefault((one.topic() or "", one.partition() or 0), []).append(one.offset() or 0)
    return tuple(
        OffsetRange(topic=topic, partition=number, first=at[0], next_offset=at[-1] + 1, records=len(at))
        for (topic, number), at in sorted(found.items())
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(1, 5)), max_size=40))
def test_ranges_equal_a_record_by_record_computation(steps: list[tuple[str, int, int]]) -> None:
    """The ranges of any mixture of partitions, topics and gaps equal those of a record-by-record computation."""
    at: dict[tuple[str, int], int] = {}
    records = []
    for topic, partition, step in steps:
        at[(topic, partition)] = at.get((topic, partition), -1) + step
        records.append(record(topic, partition, at[(topic, partition)]))
    assert ranges_of(runs_of(records, ["a", "b"])) == one_by_one(records)
    of_a = [one for one in records if one.topic() == "a"]
    assert ranges_of(runs_of(of_a, ["a"])) == one_by_one(of_a)


def test_runs_are_consecutive_records_of_one_partition() -> None:
    """Runs follow the order of the records; a run with a gap has fewer records than offsets."""
    records = [record("a", 1, 4), record("a", 1, 5), record("a", 0, 9), record("a", 1, 6), record("a", 1, 8)]
    assert [(run.partition, run.first, run.next_offset, run.records) for run in runs_of(records, ["a"])] == [
        (1, 4, 6, 2),
        (0, 9, 10, 1),
        (1, 6, 9, 2),
    ]


def test_end_of_a_range_is_exclusive() -> None:
    """The end of a range is not part of it."""
    records = [record("a", 0, 4), record("a", 1, 4), record("a", 0, 5)]
    assert before(records, {("a", 0): 5, ("a", 1): 4}) == [records[0]]


@pytest.mark.parametrize("topics", [["a"], ["a", "b"]])
def test_empty_batch_has_no_ranges(topics: list[str]) -> None:
    """An empty batch has no ranges."""
    assert ranges_of(runs_of([], topics)) == ()
