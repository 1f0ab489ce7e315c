"""Which offsets a bounded read reads, and how they are shared out over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: What a task reads at least of a partition that is shared: below it, starting a fetch costs more than it saves.
LEAST_OFFSETS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRange:
    """The records of one partition from offset `first` to before offset `end`; none where both are the same.

    There may be fewer records than offsets: compaction and transactions leave gaps.
    """

    topic: str
    partition: int
    first: int
    end: int

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return (self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """How many offsets there are."""
        return self.end - self.first

    def __str__(self) -> str:
        """As errors name it."""
        return f"{self.topic}[{self.partition}] from offset {self.first} to before {self.end}"


def shared_out(ranges: Sequence[ReadRange], tasks: int) -> tuple[tuple[ReadRange, ...], ...]:
    """What each of at most `tasks` tasks reads: about the same number of offsets each, and every offset once.

    A partition is cut only where the even share ends, and never into pieces below `LEAST_OFFSETS`; a task has at most
    one piece of a partition. Little is read by fewer tasks.
    """
    share = max(-(-sum(each.offsets for each in ranges) // tasks), LEAST_OFFSETS)
    shares: list[list[ReadRange]] = []
    room = 0
    for whole in ranges:
        first = whole.first
        while first < whole.end:
            if room <= 0 and len(shares) < tasks:
                shares.append([])
                room = share
            taken = _piece(whole.end - first, room, is_last=len(shares) == tasks)
            if taken:
                piece = ReadRange(topic=whole.topic, partition=whole.partition, first=first, end=first + taken)
                shares[-1].append(piece)
            first += taken
            room = room - taken if taken else 0
    return tuple(map(tuple, shares))


def _piece(left: int, room: int, *, is_last: bool) -> int:
    """How much of what is left of a partition goes where there is so much room; 0: it begins elsewhere."""
    if is_last or left < room + LEAST_OFFSETS:
        return left
    return room if room >= LEAST_OFFSETS else 0
