"""Which task reads which offsets of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from consumer_membership.spark.range_reader import LEAST_OFFSETS, ReadRange

#: More of one partition than this is cut, so that a partition with most of the records does not stand for itself.
MOST_OFFSETS = 1_000_000

TaskRanges = tuple[ReadRange, ...]


def tasks_of(ranges: Sequence[ReadRange], min_partitions: int | None, max_records: int | None) -> list[TaskRanges]:
    """What each task reads: every offset of these ranges once.

    A partition is one task's, cut where it has more than `max_records` (1,000,000 unless it is given) or where there
    are to be `min_partitions` tasks. Unless either is given, partitions with little to read share a task: a task costs
    more than some thousand records do.
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
    """Pieces of about the same size."""
    count = -(-whole.offsets // most)
    bounds = [whole.first + whole.offsets * number // count for number in range(count + 1)]
    for first, end in pairwise(bounds):
        yield ReadRange(topic=whole.topic, partition=whole.partition, first=first, end=end)


def _packed(pieces: Iterable[ReadRange]) -> Iterable[TaskRanges]:
    """Pieces together until there is enough for a task; pieces of one partition are never small."""
    gathered: list[ReadRange] = []
    for piece in pieces:
        gathered.append(piece)
        if sum(each.offsets for each in gathered) >= LEAST_OFFSETS:
            yield tuple(gathered)
            gathered = []
    if gathered:
        yield tuple(gathered)
