"""How far a bounded drain is, by partition: what is committed, what is left, and what the run did of it.

What a run did stands in the metadata of its commits, together with the offset and as safe as it: a task that is killed
takes nothing of the account with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from consumer_membership.spark.context import OffsetRange, Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one run did in one partition: records given to the sink, from which offset on, from when until when.

    Times are seconds since 1970, by the clocks of the tasks.
    """

    run: str
    first: int
    records: int
    began_at: float
    ended_at: float

    def metadata(self) -> str:
        """As text for a commit."""
        times = {"began": round(self.began_at, 3), "ended": round(self.ended_at, 3)}
        said = {"run": self.run, "first": self.first, "records": self.records, **times}
        return json.dumps(said, separators=(",", ":"))


def tally_in(metadata: str | None, run: str) -> Tally | None:
    """The tally of this run in a commit's metadata; None: somebody else committed."""
    try:
        # confluent-kafka counts the NUL behind it as part of the metadata that a transaction commits.
        read = json.loads((metadata or "").rstrip("\0"))
        times = {"began_at": float(read["began"]), "ended_at": float(read["ended"])}
        tally = Tally(run=str(read["run"]), first=int(read["first"]), records=int(read["records"]), **times)
    except (ValueError, TypeError, KeyError):
        return None
    return tally if tally.run == run else None


class Bounds:
    """The ends of a run, and what is known of the way there; `ends` None: a run without end, which has no tallies.

    A partition is done when the group's committed offset is at its end or beyond. An empty partition is done at once.
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
        """The partitions that are not done, as far as is known."""
        return frozenset(self._left)

    @property
    def is_done(self) -> bool:
        """Whether the run has an end and every partition is there."""
        return self.is_bounded and not self._left

    def end_of(self, partition: Partition) -> int | None:
        """Where this partition ends; None: nowhere. One that came after the run's start is not part of it: 0."""
        return self._ends.get(partition, 0) if self.is_bounded else None

    def learn(self, partition: Partition, committed: int, metadata: str | None) -> None:
        """Note what the coordinator says is committed; below 0: nothing is."""
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
        """Note the first offset read of a partition: where the group has committed nothing, its lag counts from it."""
        self._committed.setdefault(partition, first)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """These partitions go to other members, whose commits are not known here."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def committed_of(self, partition: Partition) -> int | None:
        """The group's committed offset, where it is known; of one without, the first offset read."""
        return self._committed.get(partition)

    def metadata(self, part: OffsetRange, began_at: float, ended_at: float) -> str:
        """The metadata of the commit that follows these records; `keep` makes its tally the last one."""
        return self._grown(part, began_at, ended_at).metadata() if self.is_bounded else ""

    def metadata_of(self, partition: Partition) -> str:
        """The metadata of a commit that follows no new records."""
        tally = self._tallies.get(partition)
        return "" if tally is None else tally.metadata()

    def keep(self, part: OffsetRange, began_at: float, ended_at: float) -> None:
        """Note that the commit with these records succeeded."""
        if self.is_bounded:
            self._tallies[part.place] = self._grown(part, began_at, ended_at)

    def outstanding(self, positions: Mapping[Partition, int], partitions: Iterable[Partition]) -> int | None:
        """How many offsets there are from these positions to the ends of these partitions; None: one is not known."""
        total = 0
        for partition in self._left.intersection(partitions):
            if partition not in positions:
                return None
            total += max(0, self._ends.get(partition, 0) - positions[partition])
        return total

    def _grown(self, part: OffsetRange, began_at: float, ended_at: float) -> Tally:
        before = self._tallies.get(part.place)
        if before is None:
            return Tally(run=self._run, first=part.first, records=part.records, began_at=began_at, ended_at=ended_at)
        return replace(before, records=before.records + part.records, ended_at=ended_at)
