"""Members of a group, each in its own process, and the ownership that follows from their reports."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tests.benchmarks.bench import PARTITIONS
from tests.benchmarks.processes import Report, Worker, WorkerFailedError
from tests.benchmarks.workers import member

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from types import TracebackType

    from tests.benchmarks.bench import Bench, Side

_READY_S = 60.0
_LEAVE_S = 60.0
_CHECK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record as a member handled it; times are CLOCK_MONOTONIC."""

    partition: int
    offset: int
    number: int
    sent_at: float
    handled_at: float


class GroupMember:
    """The process of one member."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.constructing_at = 0.0
        self.subscribed_at = 0.0
        self.left_at = 0.0
        self.leaving_at = 0.0
        self.handled: list[Record] = []
        self.errors: list[str] = []

    def prepare(self) -> None:
        """Wait until the process runs and has imported its modules."""
        self.worker.expect("ready", _READY_S)

    def subscribe(self) -> None:
        """Create the consumer and subscribe it."""
        self.worker.order("subscribe")
        self.await_subscribed()

    def await_subscribed(self) -> None:
        """Wait until the consumer is created and subscribed."""
        subscribed = self.worker.expect("subscribed", _READY_S)
        self.subscribed_at = subscribed.at
        self.constructing_at = subscribed.at - subscribed.facts["constructor_s"]

    def owned(self) -> tuple[frozenset[int], float]:
        """Return the partitions that the member's callbacks report as owned, and since when."""
        return owned_by(self.callbacks())

    def callbacks(self) -> list[Report]:
        """Return its rebalance callbacks so far."""
        return self.worker.reports("assigned", "revoked", "lost")

    @property
    def moves(self) -> int:
        """Return how many partitions its callbacks have received so far."""
        return sum(len(report.facts["partitions"]) for report in self.worker.reports("assigned"))

    def reported(self) -> list[int]:
        """Return the assignment that the consumer itself reports."""
        before = len(self.worker.reports("owns"))
        self.worker.order("report")
        self.worker.until(lambda: len(self.worker.reports("owns")) > before, _READY_S, "'owns'")
        partitions: list[int] = self.worker.reports("owns")[-1].facts["partitions"]
        return partitions

    def progress(self) -> int:
        """Return how many records it has handled, at most half a second ago."""
        reports = self.worker.reports("progress")
        return int(reports[-1].facts["count"]) if reports else 0

    def leave(self) -> None:
        """Close the consumer, receive the member's records, and wait for the process to end."""
        self.close()
        self.end()

    def close(self) -> None:
        """Close the consumer."""
        self.worker.order("end")
        left = self.worker.expect("left", _LEAVE_S)
        self.left_at, self.leaving_at = left.at, left.facts["leaving_at"]

    def end(self) -> None:
        """Receive the records of the member that was closed, and wait for the process to end."""
        facts = self.worker.expect("handled", _LEAVE_S).facts
        self.worker.wait()
        self.handled = records_of(facts["records"])
        self.errors = facts["errors"]


def subscribe_together(members: Sequence[GroupMember]) -> None:
    """Create the consumers and subscribe them, all at the same time."""
    for one in members:
        one.worker.order("subscribe")
    for one in members:
        one.await_subscribed()


class Group:
    """A group, at first without members; all its processes end with its context."""

    def __init__(self, bench: Bench, side: Side, topic: str, **job: Any) -> None:
        config = bench.config(side)
        self._job = member.Job(module=side.module, config=config, topic=topic, **job)
        self._processes = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.close()

    def spare(self) -> GroupMember:
        """Start the process of a new member; `prepare` waits until it runs."""
        return GroupMember(self._processes.enter_context(Worker("member", self._job)))

    def member(self) -> GroupMember:
        """Return a new member's process, which runs and is not subscribed."""
        new = self.spare()
        new.prepare()
        return new


def balanced_at(
    members: Sequence[GroupMember], timeout_s: float, *, partitions: int = PARTITIONS, check_every_s: float = _CHECK_S
) -> float:
    """Return the moment since which each member owns an even share, and all of them own all partitions.

    Raises:
        WorkerFailedError: The group is not balanced in time.
    """
    give_up_at = time.monotonic() + timeout_s
    while True:
        owned = [member.owned() for member in members]
        if is_balanced([share for share, _ in owned], partitions):
            return max(since for _, since in owned)
        if time.monotonic() > give_up_at:
            errors = "\n".join(one.worker.stderr_tail() for one in members)
            raise WorkerFailedError(f"no balance within {timeout_s} s: {[sorted(has) for has, _ in owned]}\n{errors}")
        for one in members:
            if one.worker.reports("handled"):
                raise WorkerFailedError("a member left without an order")
        time.sleep(check_every_s)


def is_balanced(shares: Sequence[frozenset[int]], partitions: int = PARTITIONS) -> bool:
    """Return whether the shares are even, disjoint and complete."""
    even = all(len(share) in {partitions // len(shares), -(-partitions // len(shares))} for share in shares)
    return even and sum(map(len, shares)) == len(frozenset().union(*shares)) == partitions


def owned_by(events: Iterable[Report]) -> tuple[frozenset[int], float]:
    """Return the partitions that a member owns after these callbacks, and the time of the last change."""
    owned: frozenset[int] = frozenset()
    since = 0.0
    for event in events:
        partitions = frozenset(event.facts["partitions"])
        after = owned | partitions if event.event == "assigned" else owned - partitions
        if after != owned:
            owned, since = after, event.at
    return owned, since


def assigned_at(events: Iterable[Report]) -> dict[int, float]:
    """Return the partitions that a member owns after these callbacks, each with the time of its callback."""
    owned: dict[int, float] = {}
    for event in events:
        for partition in event.facts["partitions"]:
            if event.event == "assigned":
                owned[partition] = event.at
            else:
                owned.pop(partition, None)
    return owned


def first_record_at(records: Iterable[Record], share: Mapping[int, float]) -> float:
    """Return when a member handled the first record of a partition after the assignment of that partition.

    Raises:
        WorkerFailedError: The member handled no such record.
    """
    moments = [one.handled_at for one in records if one.handled_at >= share.get(one.partition, float("inf"))]
    if not moments:
        raise WorkerFailedError(f"no record of partitions {sorted(share)}")
    return min(moments)


def records_of(rows: Iterable[Sequence[float]]) -> list[Record]:
    """Return records from the rows that a worker reports."""
    return [
        Record(partition=int(row[0]), offset=int(row[1]), number=int(row[2]), sent_at=row[3], handled_at=row[4])
        for row in rows
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The change of one partition's owner.

    Attributes:
        partition: The partition's number.
        standstill_s: From the old owner's last record to the new owner's first one; negative if they overlap.
        oldest_s: The age of the first record at the new owner when it was handled.
    """

    partition: int
    standstill_s: float
    oldest_s: float


def handovers(old: Iterable[Record], new: Iterable[Record], partitions: Iterable[int]) -> list[Handover]:
    """Return the changes of these partitions from one member to another; the records must be from around one change.

    Raises:
        WorkerFailedError: One of the two members handled no record of a partition.
    """
    last = {record.partition: record for record in sorted(old, key=lambda record: record.handled_at)}
    first = {record.partition: record for record in sorted(new, key=lambda record: -record.handled_at)}
    silent = [partition for partition in partitions if partition not in last or partition not in first]
    if silent:
        raise WorkerFailedError(f"no records of partitions {silent} on one side of the change")
    return [
        Handover(
            partition=partition,
            standstill_s=first[partition].handled_at - last[partition].handled_at,
            oldest_s=first[partition].handled_at - first[partition].sent_at,
        )
        for partition in partitions
    ]


def longest_gaps(records: Iterable[Record], began_at: float, ended_at: float) -> dict[int, float]:
    """Return for each partition the longest time without a record at any member, between two moments.

    The part of a gap outside of the two moments does not count. The result contains every partition of the records; a
    partition without a record between the moments has the whole time.
    """
    moments: dict[int, list[float]] = {}
    for record in records:
        within = moments.setdefault(record.partition, [began_at, ended_at])
        if began_at <= record.handled_at <= ended_at:
            within.append(record.handled_at)
    return {
        partition: max(later - earlier for earlier, later in itertools.pairwise(sorted(within)))
        for partition, within in moments.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The numbers of lost and duplicate records."""

    lost: int
    duplicates: int


def tally(numbers: Iterable[Iterable[int]], total: int) -> Tally:
    """Return the lost and the duplicate records of all members, of the records 0 to total - 1."""
    handled = list(itertools.chain.from_iterable(numbers))
    distinct = set(handled)
    return Tally(lost=total - len(distinct), duplicates=len(handled) - len(distinct))
