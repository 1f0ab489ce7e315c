"""How fast a group reads and others write, from two looks at its offsets; and when it will be at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.types import TopicPartition

#: A commit comes every few seconds (auto.commit.interval.ms is 5 s): a rate of less than that is one of commits.
WINDOW_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a group is in a partition; None for what is not known."""

    committed: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        """How many records there are still to read."""
        if self.committed is None or self.end is None or self.committed > self.end:
            return None
        return self.end - self.committed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Records per second, of one partition or of several."""

    read: float
    written: float

    def drained_in_s(self, lag: int) -> float | None:
        """When it will be at the end, if both go on so; None: never."""
        if lag == 0:
            return 0.0
        gained = self.read - self.written
        return lag / gained if gained > 0 else None


class Rates:
    """Rates over the last `window_s` seconds, of whatever is shown to it; one look gives none."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._looks: deque[tuple[float, Mapping[TopicPartition, Position]]] = deque()
        #: When the committed offset of each partition was last seen to change, or the partition was first seen.
        self._moved_at: dict[TopicPartition, float] = {}

    def look(self, at: float, positions: Mapping[TopicPartition, Position]) -> None:
        """Remember this; `at` is in seconds and never goes back."""
        last = self._looks[-1][1] if self._looks else {}
        for partition, position in positions.items():
            before = last.get(partition)
            if partition not in self._moved_at or (before is not None and before.committed != position.committed):
                self._moved_at[partition] = at
        self._looks.append((at, positions))
        while len(self._looks) > 2 and at - self._looks[1][0] >= self._window_s:  # noqa: PLR2004 - first and last
            self._looks.popleft()

    def of(self, partition: TopicPartition) -> Rate | None:
        """The rate of this partition; None where it is not known at both ends of the window."""
        if not self._looks:
            return None
        (began, first), (ended, last) = self._looks[0], self._looks[-1]
        before, after = first.get(partition), last.get(partition)
        if ended <= began or before is None or after is None:
            return None
        if before.committed is None or after.committed is None or before.end is None or after.end is None:
            return None
        # A group that was set back reads again what it had read: that is no speed.
        read = max(0, after.committed - before.committed)
        return Rate(read=read / (ended - began), written=max(0, after.end - before.end) / (ended - began))

    def of_all(self) -> Rate | None:
        """The sum over the partitions that have a rate; None where none has."""
        known = [rate for one in (self._looks[-1][1] if self._looks else ()) if (rate := self.of(one)) is not None]
        if not known:
            return None
        return Rate(read=sum(rate.read for rate in known), written=sum(rate.written for rate in known))

    def still_for_s(self, partition: TopicPartition) -> float | None:
        """For how long the committed offset has been seen to stand although there is more to read; None: it moves."""
        if not self._looks:
            return None
        at, last = self._looks[-1]
        position = last.get(partition)
        if position is None or not position.lag or partition not in self._moved_at:
            return None
        return at - self._moved_at[partition]
