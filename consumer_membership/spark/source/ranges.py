"""Divide the offsets of a batch among tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from consumer_membership.spark.range_reader import LEAST_OFFSETS, ReadRange

#: A partition with more offsets than this is split, so that a single large partition does not delay a batch.
MOST_OFFSETS = 1_000_000

TaskRanges = tuple[ReadRange, ...]


def tasks_of(ranges: Sequence[ReadRange], min_partitions: int | None, max_records: int | None) -> list[TaskRanges]:
    """Return the ranges of each task; together they have every offset once.

    A task reads one partition. A partition with more than `max_records` offsets (default: 1,000,000) is split, and so
    are partitions if there must be at least `min_partitions` tasks. If neither is given, partitions with few offsets
    share a task, because a task costs more than some thousand records.
    """
    wanted = [each for each in ranges if each.offsets > 0]
    if not wanted:
        return []
    most = max_records or MOST_OFFSETS
    if min_partitions is not None and min_partitions > len(wanted):
        most = min(most, max(1, -(-sum(each.offsets for each in wanted) // min_partitions)))
    pieces = [piece for each in wanted for piece in _cut(each, most)]
    if min_partitions is not None or max_records is not None:
        return [(piece,) for piece in pieces]
    return list(_packed(pieces))


def _cut(whole: ReadRange, most: int) -> Iterable[ReadRange]:
    """Split a range into pieces of about the same size."""
    count = -(-whole.offsets // most)
    bounds = [whole.first + whole.offsets * number // count for number in range(count + 1)]
    for first, end in pairwise(bounds):
        yield ReadRange(topic=whole.topic, partition=whole.partition, first=first, end=end)


def _packed(pieces: Iterable[ReadRange]) -> Iterable[TaskRanges]:
    """Join pieces until there is enough for a task; the pieces of a split partition are never small."""
    gathered: list[ReadRange] = []
    for piece in pieces:
        gathered.append(piece)
        if sum(each.offsets for each in gathered) >= LEAST_OFFSETS:
            yield tuple(gathered)
            gathered = []
    if gathered:
        yield tuple(gathered)
