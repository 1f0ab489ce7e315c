"""The invariants of the handlers of all processors in a simulation.

- A commit covers exactly the finished records: records that the owner finished or sent to the dead letters, and records
  that the committed offset already covered when the ownership began. A later commit covers all records that an earlier
  commit covered.
- When a clean revocation returns, the committed offset covers every finished record.
- A covered record never runs again. A finished record does not run again while its owner keeps the partition.
- Records of one lane run in order, each after the earlier records have finished. This also holds across owners.
- A record runs on two processes only if one process was excluded from the group and cannot know it, or if one process
  has disowned the handler at the timeout of a revocation. When partitions are lost, exactly the running records are
  reported.
- While a worker is free, a lane waits only for space in the metadata or for a batch. The record that holds back the
  committed offset never waits. While a lane waits, every other lane of its partition has at most one turn; while a
  partition waits, every other partition has at most one turn.
- An attempt begins at its due time or later, and has the right attempt number.
- The number of unfinished records of a partition and the number of running handlers of a processor stay within their
  limits.

The fake log has no record at some offsets, as in a log with compaction or transaction markers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from math import inf
from typing import Protocol

from consumer_membership.processing.scheduler import ProcessingOrder
from consumer_membership.translation.offset_metadata import decode
from consumer_membership.types import Instant, OffsetAndMetadata, Offsets, TopicPartition
from tests.simulation.process_invariants import check


class Owner(Protocol):
    """The process of a processor."""

    name: str


HOT, SLOW = b"hot", b"slow"
#: The keys of ten successive offsets: half of the records have the same key, and some have no key.
_KEYS = (HOT, HOT, b"rare", None, HOT, HOT, SLOW, HOT, None, b"other")


def exists(partition: TopicPartition, offset: int) -> bool:
    """Return whether the log has a record at this offset."""
    return (offset + partition.partition) % 7 not in (3, 4)


def key_of(partition: TopicPartition, offset: int) -> bytes | None:
    """Return the key of the record at this offset."""
    return _KEYS[(offset + 3 * partition.partition) % len(_KEYS)]


def coverage(committed: OffsetAndMetadata | None) -> Callable[[int], bool]:
    """Return a predicate: whether this committed offset covers an offset."""
    if committed is None:
        return lambda _: False
    base, finished = committed.offset, decode(committed.metadata, committed.offset)
    if finished is None:
        return lambda offset: offset < base
    unfinished, high = frozenset(finished.unfinished), finished.high
    return lambda offset: offset < base or (offset < high and offset not in unfinished)


def end_of(committed: OffsetAndMetadata | None) -> int:
    """Return the end of the offsets that this committed offset covers."""
    if committed is None:
        return 0
    finished = decode(committed.metadata, committed.offset)
    return committed.offset if finished is None else finished.high


@dataclass(slots=True, eq=False)
class PartitionOwnership:
    """One ownership of a partition by one processor, from on_assign to its on_revoke or on_lost."""

    process: Owner
    partition: TopicPartition
    order: ProcessingOrder
    #: The committed offset at the beginning of the ownership.
    began_with: OffsetAndMetadata | None
    #: The unfinished records, in order.
    in_hand: dict[int, None] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    #: The number of attempts of each unfinished record, and when its next attempt may begin.
    attempts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    due: dict[int, Instant] = field(default_factory=dict)
    #: For each lane that waits for its turn, the lanes that had a turn meanwhile.
    overtaken: dict[object, set[object]] = field(default_factory=lambda: defaultdict(set))
    #: The partitions that had a turn while this partition waited.
    others: set[TopicPartition] = field(default_factory=set)
    #: The offsets whose handlers run, and the offsets that wait for their next attempt.
    running: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    #: The end of the records that this or an earlier owner received.
    end: int = 0
    #: From this offset on, the log was truncated and written again: the committed offset covered other records.
    truncated_at: float = inf
    #: Whether the processor starts no more handlers for this partition.
    is_closing: bool = False
    #: Whether ready records may have to wait: for space in the metadata, or for more records of a batch.
    may_wait: bool = False
    #: Whether the broker has refused the metadata as too long.
    is_limited: bool = False

    def __str__(self) -> str:
        return f"{self.process.name}: {self.partition.topic}-{self.partition.partition}"

    def lane(self, offset: int) -> object:
        """Return the lane of the record at this offset. Records of the same lane run one after the other."""
        match self.order:
            case ProcessingOrder.KEY:
                return key_of(self.partition, offset)
            case ProcessingOrder.PARTITION:
                return None
            case ProcessingOrder.NONE:
                return offset

    def before(self, offset: int) -> Iterator[int]:
        """Return the earlier unfinished records in the lane of this record."""
        lane = self.lane(offset)
        return (one for one in takewhile(offset.__gt__, self.in_hand) if self.lane(one) == lane)

    def ready(self) -> dict[object, int]:
        """Return the lanes that wait for their turn, each with its first record."""
        busy = {self.lane(offset) for offset in self.running | self.waiting}
        first: dict[object, int] = {}
        for offset in () if self.is_closing else self.in_hand:
            first.setdefault(self.lane(offset), offset)
        return {lane: offset for lane, offset in first.items() if lane not in busy}


class Situation(Enum):
    """The situations in which a rule can be broken. Each must occur in some run."""

    SKIPPED = "a record that an earlier owner finished was received"
    RETRIED = "an attempt began after a failed one"
    SPLIT = "the records of a failed batch ran alone"
    DISOWNED = "a handler still ran when its partition was given up"
    HELD = "a record waited for space in the metadata"
    LIMITED = "a broker refused metadata as too long"
    REPEATED = "a record was finished again by another owner"


class HandlerInvariants:
    """Checks every step of the processors of a simulation; raises Violation.

    Args:
        now: Returns the time.
        exists: Returns whether a partition exists.
        is_excused: Returns whether a process was excluded from the group and cannot know it.
    """

    def __init__(
        self,
        *,
        now: Callable[[], Instant],
        exists: Callable[[TopicPartition], bool],
        is_excused: Callable[[Owner], bool],
    ) -> None:
        self._now = now
        self._exists = exists
        self._is_excused = is_excused
        self._ownerships: dict[tuple[Owner, TopicPartition], PartitionOwnership] = {}
        #: The finished records of all owners, and how often each was finished.
        self.finished: dict[TopicPartition, Counter[int]] = defaultdict(Counter)
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
        #: How often each situation occurred.
        self.situations: Counter[Situation] = Counter()

    @property
    def repeated(self) -> int:
        """How many records were finished more than once."""
        return sum(times > 1 for counts in self.finished.values() for times in counts.values())

    def ownership(self, process: Owner, partition: TopicPartition) -> PartitionOwnership:
        """Return the current ownership of a partition by this process."""
        return self._ownerships[process, partition]

    # ---- ownership ----

    def assigned(
        self,
        process: Owner,
        partition: TopicPartition,
        start: int,
        committed: OffsetAndMetadata | None,
        order: ProcessingOrder,
        *,
        may_wait: bool,
    ) -> None:
        """Record that a processor receives a partition from `start` on, with this committed offset."""
        ownership = self._ownerships[process, partition] = PartitionOwnership(
            process, partition, order, committed, may_wait=may_wait
        )
        if committed is not None and start < committed.offset:
            message = f"{ownership} starts at {start}, before the committed offset {committed.offset}"
            check(self._is_excused(process), message)
            # The process was excluded, and this is the newer committed offset of the next owner.
            ownership.began_with = None
        ownership.end = end_of(ownership.began_with)

    def closing(self, process: Owner, partitions: Iterable[TopicPartition]) -> None:
        """Record that a processor starts no more handlers for these partitions."""
        for partition in partitions:
            self._ownerships[process, partition].is_closing = True

    def disowned(self, process: Owner, partition: TopicPartition, reported: Collection[int]) -> None:
        """Check that a processor that disowns the running handlers of a partition reports exactly their records."""
        ownership = self._ownerships[process, partition]
        ran = sorted(ownership.running)
        check(sorted(reported) == ran, f"{ownership} is disowned: {sorted(reported)} were reported, but {ran} ran")
        self.situations[Situation.DISOWNED] += len(ran)
        ownership.running.clear()

    def released(self, process: Owner, partition: TopicPartition) -> None:
        """Record that a processor has released a partition."""
        del self._ownerships[process, partition]

    def revoked_cleanly(self, process: Owner, partition: TopicPartition) -> None:
        """Check that all finished records are committed when on_revoke returns after an accepted commit."""
        ownership = self._ownerships[process, partition]
        if ownership.is_limited or not self._exists(partition):
            return
        covered = coverage(self._committed.get(partition))
        left = sorted(offset for offset in ownership.finished if not covered(offset))
        check(not left, f"{ownership} is revoked, and no commit covers the finished {left}")

    def forget(self, process: Owner) -> None:
        """Remove the ownerships of a process that died."""
        for key in [key for key in self._ownerships if key[0] is process]:
            del self._ownerships[key]

    # ---- records ----

    def admitted(self, process: Owner, partition: TopicPartition, offsets: range, most: int) -> None:
        """Record that a processor received these offsets, and check that at most `most` records are unfinished."""
        ownership = self._ownerships[process, partition]
        covered = coverage(ownership.began_with)
        new = [
            offset
            for offset in offsets
            if exists(partition, offset) and (offset >= ownership.truncated_at or not covered(offset))
        ]
        ownership.in_hand |= dict.fromkeys(new)
        self.situations[Situation.SKIPPED] += sum(exists(partition, offset) for offset in offsets) - len(new)
        ownership.end = max(ownership.end, offsets.stop)
        check(len(ownership.in_hand) <= most, f"{ownership} has {len(ownership.in_hand)} records in hand: too many")

    def restarted(self, process: Owner, partition: TopicPartition, offset: int, dropped: Iterable[int]) -> None:
        """Record that a processor reads again from this offset on, because the log was truncated and written again.

        The log has other records there. The tasks of the dropped records, which may also be earlier, are removed.
        """
        ownership = self._ownerships[process, partition]
        ownership.running.difference_update(dropped)
        ownership.waiting.difference_update(dropped)
        for one in dropped:
            ownership.attempts.pop(one, None)
            ownership.due.pop(one, None)
        ownership.in_hand = {one: None for one in ownership.in_hand if one < offset}
        ownership.finished = {one for one in ownership.finished if one < offset}
        ownership.end = min(ownership.end, offset)
        ownership.truncated_at = min(ownership.truncated_at, offset)
        ownership.overtaken.clear()
        finished = self.finished[partition]
        self.finished[partition] = Counter({one: finished[one] for one in finished if one < offset})

    def began(self, process: Owner, partition: TopicPartition, offsets: Sequence[int], attempt: int) -> None:
        """Check a handler call that begins with these records."""
        ownership = self._ownerships.get((process, partition))
        check(ownership is not None, f"{process.name} runs {offsets} of {partition}, which it does not own")
        assert ownership is not None
        check(not ownership.is_closing, f"{ownership}: {offsets} run although the partition is being revoked")
        self._check_turns(ownership, {ownership.lane(offset) for offset in offsets}, is_retry=attempt > 1)
        called = set(offsets)
        under_way = (ownership.running | ownership.waiting) - called
        for number, offset in enumerate(offsets):
            check(
                offset in ownership.in_hand,
                f"{ownership}: {offset} runs again although it is finished, or was not received",
            )
            check(offset not in ownership.running, f"{ownership}: {offset} runs twice at the same time")
            lane = ownership.lane(offset)
            busy = next((one for one in under_way if ownership.lane(one) == lane), None)
            check(busy is None, f"{ownership}: {offset} runs while {busy} of the same lane has not ended")
            before = called.difference(offsets[number:])
            earlier = next((one for one in ownership.before(offset) if one not in before), None)
            check(earlier is None, f"{ownership}: {offset} runs before {earlier} of the same lane")
            self.situations[Situation.RETRIED] += attempt > 1
            ownership.attempts[offset] += 1
            tried = ownership.attempts[offset]
            check(tried == attempt, f"{ownership}: attempt {tried} of {offset} counts as {attempt}")
            early_s = ownership.due.pop(offset, 0.0) - self._now()
            check(early_s <= 0, f"{ownership}: the next attempt of {offset} begins {early_s:.2f} s too early")
            self._check_elsewhere(ownership, offset)
        ownership.running |= called
        ownership.waiting -= called

    def _check_turns(self, ownership: PartitionOwnership, lanes: AbstractSet[object], *, is_retry: bool) -> None:
        """Check that lanes and partitions take turns. A retry that is due need not wait for its turn."""
        if ownership.may_wait:
            return
        for lane in lanes:
            ownership.overtaken.pop(lane, None)
        is_exempt = is_retry or ownership.order is ProcessingOrder.NONE
        for lane in () if is_exempt else ownership.ready().keys() - lanes:
            twice = ownership.overtaken[lane] & lanes
            check(not twice, f"{ownership}: {twice} had two turns while {lane!r} waited")
            ownership.overtaken[lane] |= lanes
        ownership.others.clear()
        for other in self.owned(ownership.process):
            if other is not ownership and other.ready():
                check(ownership.partition not in other.others, f"{ownership} had two turns while {other} waited")
                other.others.add(ownership.partition)

    def _check_elsewhere(self, ownership: PartitionOwnership, offset: int) -> None:
        for (other, partition), held in self._ownerships.items():
            if partition != ownership.partition or held is ownership or offset not in held.running:
                continue
            excused = self._is_excused(other) or self._is_excused(ownership.process)
            check(excused, f"{ownership}: {offset} runs while it runs on {other.name}")

    def finished_in(self, ownership: PartitionOwnership, offsets: Iterable[int]) -> None:
        """Record that these records are finished or in the dead letters while their processor owns the partition."""
        for offset in offsets:
            ownership.running.discard(offset)
            del ownership.in_hand[offset], ownership.attempts[offset]
            ownership.finished.add(offset)
            self.situations[Situation.REPEATED] += self.finished[ownership.partition][offset] > 0
            self.finished[ownership.partition][offset] += 1

    def failed_in(self, ownership: PartitionOwnership, offsets: Sequence[int], again_at: Instant | None) -> None:
        """Record a failed attempt.

        The next attempt has the same records at `again_at`. If that is None, each record runs alone.
        """
        ownership.running.difference_update(offsets)
        if again_at is None:
            self.situations[Situation.SPLIT] += 1
            for offset in offsets:
                del ownership.attempts[offset]
        else:
            ownership.waiting.update(offsets)
            ownership.due.update(dict.fromkeys(offsets, again_at))

    def owned(self, process: Owner) -> Iterable[PartitionOwnership]:
        """Return the current ownerships of this process."""
        return [ownership for (owner, _), ownership in self._ownerships.items() if owner is process]

    def has_free_worker(self, process: Owner) -> None:
        """Check that the first record of each lane is in progress when a worker finds no record to run."""
        for ownership in self.owned(process):
            first = next(iter(ownership.in_hand), None)
            ready = sorted(ownership.ready().values())
            idle = [offset for offset in ready if offset == first or not ownership.may_wait]
            self.situations[Situation.HELD] += len(ready) - len(idle)
            check(not idle, f"{ownership}: {idle} do not run with a free worker")

    # ---- commits ----

    def limited(self, process: Owner) -> None:
        """Record that the broker accepts less metadata than the processor is configured to write."""
        self.situations[Situation.LIMITED] += 1
        for ownership in self.owned(process):
            ownership.is_limited = ownership.may_wait = True

    def commits(self, process: Owner, offsets: Offsets) -> None:
        """Check that a commit of a processor covers exactly the finished records."""
        for partition, at in offsets.items():
            ownership = self._ownerships.get((process, partition))
            check(ownership is not None, f"{process.name} commits {partition}, which it does not own")
            assert ownership is not None
            covered = coverage(at)
            ahead = [offset for offset in ownership.in_hand if covered(offset)]
            check(not ahead, f"{ownership} commits {at.offset} and {at.metadata!r} beyond the unfinished {ahead}")
            check(
                at.offset <= ownership.end,
                f"{ownership} commits {at.offset}, and received records up to {ownership.end}",
            )
            left = sorted(offset for offset in ownership.finished if not covered(offset))
            check(not left or ownership.is_limited, f"{ownership} commits {at.offset} without the finished {left}")

    def committed(self, offsets: Offsets) -> None:
        """Check that accepted offsets cover all finished records that the former committed offsets covered."""
        for partition, at in offsets.items():
            before = self._committed.get(partition)
            self._committed[partition] = at
            if before is None or any(one.is_limited for (_, p), one in self._ownerships.items() if p == partition):
                continue
            covered, was_covered = coverage(at), coverage(before)
            finished = self.finished[partition]
            lost = [offset for offset in finished if was_covered(offset) and not covered(offset)]
            check(not lost, f"a commit of {at} for {partition} forgets the finished {lost} of {before}")

    def behind(self, ends: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions that have a record before their end that the committed offset does not cover."""
        return [partition for partition, end in ends.items() if self._left(partition, end)]

    def check_end(self, ends: Mapping[TopicPartition, int]) -> None:
        """Check that each record before these ends was finished and is covered by the committed offset."""
        for partition, end in ends.items():
            there = [offset for offset in range(end) if exists(partition, offset)]
            never = [offset for offset in there if not self.finished[partition][offset]]
            check(not never, f"{never} of {partition} were received and never finished")
            left = self._left(partition, end)
            check(not left, f"{left} of {partition} are finished and not committed: {self._committed.get(partition)}")

    def _left(self, partition: TopicPartition, end: int) -> list[int]:
        covered = coverage(self._committed.get(partition))
        return [offset for offset in range(end) if exists(partition, offset) and not covered(offset)]
