"""Compute consumption and production rates from samples of a group's offsets, and the time until the lag is zero."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.translation.offset_metadata import FinishedOffsets, decode
from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition

#: Several commit intervals (auto.commit.interval.ms is 5 s), so that a rate does not depend on the moment of a commit.
WINDOW_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The committed offset and the end offset of a partition; None if unknown.

    `finished_beyond` is the number of offsets that are finished beyond the committed offset.
    """

    committed: int | None
    end: int | None
    finished_beyond: int = 0

    @property
    def lag(self) -> int | None:
        """The number of offsets between the committed offset and the end that are not finished; None if unknown."""
        if self.committed is None or self.end is None or self.committed > self.end:
            return None
        return max(0, self.end - self.committed - self.finished_beyond)

    @property
    def progress(self) -> int | None:
        """A number that increases with each finished offset, in any order; None without a committed offset."""
        return None if self.committed is None else self.committed + self.finished_beyond


def position_of(committed: OffsetAndMetadata | BrokerError | None, end: int | None) -> Position:
    """Return the position of a partition from its committed offset and its end."""
    if not isinstance(committed, OffsetAndMetadata):
        return Position(committed=None, end=end)
    finished = finished_beyond(committed)
    return Position(committed=committed.offset, end=end, finished_beyond=0 if finished is None else finished.count)


def finished_beyond(committed: OffsetAndMetadata | BrokerError | None) -> FinishedOffsets | None:
    """Return the offsets that are finished beyond a committed offset, if its metadata lists any."""
    return decode(committed.metadata, committed.offset) if isinstance(committed, OffsetAndMetadata) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """The consumed and produced records per second of one or more partitions."""

    consumed: float
    produced: float

    def drained_in_s(self, lag: int) -> float | None:
        """Return the seconds until the lag is zero at constant rates, or None if it does not shrink."""
        if lag == 0:
            return 0.0
        gained = self.consumed - self.produced
        return lag / gained if gained > 0 else None


class Rates:
    """The rates over the last `window_s` seconds; they need at least two samples."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, Mapping[TopicPartition, Position]]] = deque()
        #: When the progress of each partition last changed, or the partition was first seen.
        self._moved_at: dict[TopicPartition, float] = {}

    def add(self, at: float, positions: Mapping[TopicPartition, Position]) -> None:
        """Add a sample; `at` is in seconds and never decreases."""
        last = self._samples[-1][1] if self._samples else {}
        for partition, position in positions.items():
            before = last.get(partition)
            if partition not in self._moved_at or (before is not None and before.progress != position.progress):
                self._moved_at[partition] = at
        self._samples.append((at, positions))
        while len(self._samples) > 2 and at - self._samples[1][0] >= self._window_s:  # noqa: PLR2004 - first and last
            self._samples.popleft()

    def of(self, partition: TopicPartition) -> Rate | None:
        """Return the rate of this partition, or None if its offsets are not known at both ends of the window."""
        if not self._samples:
            return None
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        before, after = first.get(partition), last.get(partition)
        if ended <= began or before is None or after is None:
            return None
        if before.progress is None or after.progress is None or before.end is None or after.end is None:
            return None
        # An offset that was reset to an earlier one is not a negative rate.
        consumed = max(0, after.progress - before.progress)
        return Rate(consumed=consumed / (ended - began), produced=max(0, after.end - before.end) / (ended - began))

    def of_all(self) -> Rate | None:
        """Return the sum of the known rates, or None if no partition has one."""
        known = [rate for one in (self._samples[-1][1] if self._samples else ()) if (rate := self.of(one)) is not None]
        if not known:
            return None
        return Rate(consumed=sum(rate.consumed for rate in known), produced=sum(rate.produced for rate in known))

    def stalled_for_s(self, partition: TopicPartition) -> float | None:
        """Return for how many seconds a partition with lag had no progress, or None without lag."""
        if not self._samples:
            return None
        at, last = self._samples[-1]
        position = last.get(partition)
        if position is None or not position.lag or partition not in self._moved_at:
            return None
        return at - self._moved_at[partition]
