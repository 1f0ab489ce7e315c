"""The progress of a bounded drain by partition: committed offsets, remaining offsets, and the work of this run.

The work of a run is counted in the metadata of its commits, so it is stored together with the offsets: a task that is
killed loses nothing of the count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from consumer_membership.spark.context import OffsetRange, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The work of one run in one partition: first offset, number of records that the sink took, begin and end.

    Times are seconds since 1970, by the clocks of the tasks.
    """

    run: str
    first: int
    records: int
    began_at: float
    ended_at: float

    def metadata(self) -> str:
        """Return the tally as text for the metadata of a commit."""
        times = {"began": round(self.began_at, 3), "ended": round(self.ended_at, 3)}
        fields = {"run": self.run, "first": self.first, "records": self.records, **times}
        return json.dumps(fields, separators=(",", ":"))


def tally_in(metadata: str | None, run: str) -> Tally | None:
    """Return the tally of this run in a commit's metadata; None if another run or program committed."""
    try:
        # confluent-kafka includes the terminating NUL in the metadata that a transaction commits.
        read = json.loads((metadata or "").rstrip("\0"))
        times = {"began_at": float(read["began"]), "ended_at": float(read["ended"])}
        tally = Tally(run=str(read["run"]), first=int(read["first"]), records=int(read["records"]), **times)
    except (ValueError, TypeError, KeyError):
        return None
    return tally if tally.run == run else None


class Bounds:
    """The end offsets of a run, and its known progress; `ends` is None for a run without end, which has no tallies.

    A partition is done when the group's committed offset has reached its end. An empty partition is done at once.
    """

    def __init__(self, run: str, ends: Mapping[Partition, int] | None) -> None:
        self._run = run
        self._ends: Mapping[Partition, int] = ends or {}
        self.is_bounded = ends is not None
        self._tallies: dict[Partition, Tally] = {}
        self._committed: dict[Partition, int] = {}
        self._left = {partition for partition, end in self._ends.items() if end > 0}

    @property
    def left(self) -> frozenset[Partition]:
        """The partitions that are not known to be done."""
        return frozenset(self._left)

    @property
    def is_done(self) -> bool:
        """Whether the run has an end and every partition has reached it."""
        return self.is_bounded and not self._left

    def end_of(self, partition: Partition) -> int | None:
        """Return the end of a partition: None in a run without end, 0 for a partition created after the start."""
        return self._ends.get(partition, 0) if self.is_bounded else None

    def learn(self, partition: Partition, committed: int, metadata: str | None) -> None:
        """Note the offset and metadata from the coordinator; an offset below 0 means that none is committed."""
        tally = tally_in(metadata, self._run)
        if tally is None:
            self._tallies.pop(partition, None)
        else:
            self._tallies[partition] = tally
        self.note(partition, committed)

    def note(self, partition: Partition, committed: int) -> None:
        """Note the group's committed offset."""
        self._committed[partition] = committed
        if max(committed, 0) >= self._ends.get(partition, 0):
            self._left.discard(partition)
        else:
            self._left.add(partition)

    def begin(self, partition: Partition, first: int) -> None:
        """Note the first offset read of a partition; without a committed offset, the lag counts from there."""
        self._committed.setdefault(partition, first)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Forget the committed offsets of partitions that go to other members, whose commits are unknown here."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def committed_of(self, partition: Partition) -> int | None:
        """Return the group's committed offset, else the first offset read; None if neither is known."""
        return self._committed.get(partition)

    def metadata(self, part: OffsetRange, began_at: float, ended_at: float) -> str:
        """Return the metadata of the commit after these records; call `keep` when that commit has succeeded."""
        return self._grown(part, began_at, ended_at).metadata() if self.is_bounded else ""

    def metadata_of(self, partition: Partition) -> str:
        """Return the metadata of a commit without new records."""
        tally = self._tallies.get(partition)
        return "" if tally is None else tally.metadata()

    def keep(self, part: OffsetRange, began_at: float, ended_at: float) -> None:
        """Note that the commit with these records succeeded."""
        if self.is_bounded:
            self._tallies[part.topic_partition] = self._grown(part, began_at, ended_at)

    def outstanding(self, positions: Mapping[Partition, int], partitions: Iterable[Partition]) -> int | None:
        """Return the number of offsets from the positions to the ends; None if a position is unknown."""
        total = 0
        for partition in self._left.intersection(partitions):
            if partition not in positions:
                return None
            total += max(0, self._ends.get(partition, 0) - positions[partition])
        return total

    def _grown(self, part: OffsetRange, began_at: float, ended_at: float) -> Tally:
        before = self._tallies.get(part.topic_partition)
        if before is None:
            return Tally(run=self._run, first=part.first, records=part.records, began_at=began_at, ended_at=ended_at)
        return replace(before, records=before.records + part.records, ended_at=ended_at)
