"""The distribution of offset ranges over tasks."""

from __future__ import annotations

from collections import defaultdict

import pytest

from consumer_membership.spark.range_reader import LEAST_OFFSETS, ReadRange
from consumer_membership.spark.source.ranges import MOST_OFFSETS, TaskRanges, tasks_of


def ranges(*sizes: int) -> list[ReadRange]:
    """One range for each size, each from offset 7."""
    return [ReadRange(topic="t", partition=n, first=7, end=7 + size) for n, size in enumerate(sizes)]


def sizes(tasks: list[TaskRanges]) -> list[list[int]]:
    """The sizes of each task's ranges."""
    return [[each.offsets for each in task] for task in tasks]


def test_few_records_are_read_by_few_tasks() -> None:
    """A task costs more than reading some thousand records; without records there is no task."""
    assert sizes(tasks_of(ranges(1, 0, 2, 3), None, None)) == [[1, 2, 3]]
    assert sizes(tasks_of(ranges(LEAST_OFFSETS, 5, LEAST_OFFSETS, 1), None, None)) == [
        [LEAST_OFFSETS],
        [5, LEAST_OFFSETS],
        [1],
    ]
    assert tasks_of(ranges(0, 0), None, None) == []


def test_large_partition_is_cut_into_equal_pieces() -> None:
    """`maxRecordsPerPartition` makes smaller pieces, and `minPartitions` makes more."""
    assert sizes(tasks_of(ranges(2 * MOST_OFFSETS + 1), None, None)) == [[666_667], [666_667], [666_667]]
    assert sizes(tasks_of(ranges(10, 3), None, 4)) == [[3], [3], [4], [3]]
    assert sizes(tasks_of(ranges(90, 10), 5, None)) == [[18]] * 5 + [[10]]
    assert sizes(tasks_of(ranges(3, 3), 1, None)) == [[3], [3]]


@pytest.mark.parametrize("most", [None, 1, 7, 1_000])
@pytest.mark.parametrize("least", [None, 1, 3, 64])
def test_ranges_contain_every_offset_once(least: int | None, most: int | None) -> None:
    """For any options, each offset is in one range, and no task has two ranges of a partition."""
    given = ranges(0, 1, 13, 2_000, 5)
    seen: dict[int, list[range]] = defaultdict(list)
    for task in tasks_of(given, least, most):
        assert len({each.topic_partition for each in task}) == len(task)
        for each in task:
            seen[each.partition].append(range(each.first, each.end))
    for whole in given:
        read = [offset for piece in sorted(seen[whole.partition], key=lambda r: r.start) for offset in piece]
        assert read == list(range(whole.first, whole.end))
