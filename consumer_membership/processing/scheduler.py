"""Decide which record runs next, which records run again, and which offsets may be committed.

The scheduler is pure: it has no clock, lock, thread or I/O. `work.Work` calls it under one lock; the simulation calls
it with virtual time.

| word | meaning |
|---|---|
| lane | a queue of records that run one after the other: those of one key, or of one partition |
| task | the records of one handler call, with the number of its attempt |
| in hand | admitted and not finished: queued, running, or waiting for the next attempt |
| disowned | a task whose partition was given up while it ran: its result is ignored |

Laws, which hold after every call:

- Records of a serial lane run in the order of their offsets, one task at a time. The lane of a task that failed stays
  locked until the task has ended, so that a retry delays no other lane.
- Partitions with ready lanes take turns, and so do the ready lanes of a partition: a busy key delays other keys by one
  record at most.
- A record starts only if the metadata of a commit can describe all finished records afterwards, whatever ends first
  (`UnfinishedOffsets.start`). The record that holds back the committed offset may always start.
- A closing partition starts nothing. A released partition has no tasks: those that still ran are disowned.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import count
from operator import itemgetter
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from confluent_kafka import Message

from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.types import Instant, OffsetAndMetadata, TopicPartition

#: A record in a lane: the message, its offset, and when it was admitted.
Queued: TypeAlias = tuple[Message, int, Instant]


class ProcessingOrder(Enum):
    """Which records of a partition run one after the other.

    Attributes:
        KEY: Those with the same key; records without a key form one sequence for each partition.
        PARTITION: All records.
        NONE: No records: all may run at the same time.
    """

    KEY = "key"
    PARTITION = "partition"
    NONE = "none"


class _LaneState(Enum):
    """The state of a lane. READY: it waits for its turn. HELD: its first record may not start. BUSY: a task has it."""

    IDLE = "idle"
    READY = "ready"
    HELD = "held"
    BUSY = "busy"


_IDLE, _READY, _HELD, _BUSY = _LaneState.IDLE, _LaneState.READY, _LaneState.HELD, _LaneState.BUSY


#: How many lanes without records are kept for the next keys, because a new lane costs as much as the rest of `admit`.
_SPARE_LANES = 1000


class Lane:
    """A queue of records of one partition; `is_parallel`: its records may run at the same time."""

    __slots__ = ("alone", "is_parallel", "key", "queue", "state")

    def __init__(self, key: bytes | str | None, *, is_parallel: bool) -> None:
        self.key = key
        self.is_parallel = is_parallel
        self.queue: deque[Queued] = deque()
        self.state = _IDLE
        #: How many of the first records run alone, because a batch with them failed.
        self.alone = 0


class OwnedPartition:
    """The records in hand of one assigned partition; `epoch` is the member epoch at which it was assigned."""

    __slots__ = (
        "committed",
        "due",
        "epoch",
        "held",
        "in_hand",
        "is_closing",
        "is_in_turn",
        "is_paused",
        "lanes",
        "next_offset",
        "offsets",
        "outputs",
        "partition",
        "ready",
        "ready_records",
        "running",
        "wakes_at",
    )

    def __init__(self, partition: TopicPartition, epoch: int, offsets: UnfinishedOffsets) -> None:
        self.partition = partition
        self.epoch = epoch
        self.offsets = offsets
        #: The offset that was committed last by this processor; None: none yet.
        self.committed: int | None = None
        self.lanes: dict[bytes | str | None, Lane] = {}
        self.ready: deque[Lane] = deque()
        #: The records in ready lanes.
        self.ready_records = 0
        #: Lanes whose first record may not start until the committed offset moves.
        self.held: list[Lane] = []
        #: Failed tasks whose next attempt may begin.
        self.due: deque[Task] = deque()
        self.in_hand = 0
        #: The offset after the last received record.
        self.next_offset = 0
        #: The number of running tasks.
        self.running = 0
        self.is_in_turn = False
        self.is_closing = False
        self.is_paused = False
        #: When a batch that is not full starts; None: no batch waits.
        self.wakes_at: Instant | None = None
        #: The outputs of finished records, until they are committed with the offsets.
        self.outputs: list[OutputRecord] = []


class Runner(Protocol):
    """What runs a task: a thread, a process, or a coroutine."""

    #: Whether `cancel` can end the running call.
    can_cancel: bool

    def cancel(self) -> None:
        """End the running call, in any thread; its attempt fails."""

    def stack(self) -> str:
        """Return the stack of the running call, as `traceback` formats it; "" if it is not known."""


class Task:
    """The records of one handler call. `attempt` counts from 1; `first_at` is when the first attempt began."""

    __slots__ = (
        "attempt",
        "began_at",
        "first_at",
        "has_failed",
        "is_cancelled",
        "is_disowned",
        "lanes",
        "last_error",
        "owned",
        "records",
        "runner",
    )

    def __init__(self, owned: OwnedPartition, lane: Lane, record: Queued, now: Instant) -> None:
        self.owned = owned
        self.lanes: Sequence[Lane] = (lane,)
        self.records: Sequence[Queued] = (record,)
        self.attempt = 1
        self.first_at = self.began_at = now
        self.last_error: BaseException | None = None
        #: Whether its handler failed for the last time; its dead letter is being written then.
        self.has_failed = False
        self.is_cancelled = False
        self.is_disowned = False
        #: What runs it; set by the worker, None while it does not run.
        self.runner: Runner | None = None

    @property
    def messages(self) -> list[Message]:
        """The records, in the order in which the handler receives them."""
        return [message for message, _, _ in self.records]

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.records[0][1]


T = TypeVar("T")


class _Delayed(Generic[T]):
    """Values that wait for a moment; the earliest first, equal ones in the order in which they were added."""

    def __init__(self) -> None:
        self.heap: list[tuple[Instant, int, T]] = []
        self._numbers = count()

    def add(self, at: Instant, value: T) -> None:
        heapq.heappush(self.heap, (at, next(self._numbers), value))

    @property
    def next_at(self) -> Instant | None:
        return self.heap[0][0] if self.heap else None

    def pop_until(self, now: Instant) -> Iterator[T]:
        while self.heap and self.heap[0][0] <= now:
            yield heapq.heappop(self.heap)[2]

    def __iter__(self) -> Iterator[T]:
        return (value for _, _, value in self.heap)

    def keep(self, values: Collection[T]) -> None:
        """Drop all other values."""
        self.heap = [one for one in self.heap if one[2] in values]
        heapq.heapify(self.heap)


class Scheduler:
    """The records in hand of one processor.

    Args:
        order: Which records run one after the other.
        max_queued: The number of records in hand from which on a partition is full, and is to be paused.
        max_batch: The largest number of records of one task; all are of one partition.
        max_wait_s: How long a smaller batch waits for more records, in seconds.
    """

    def __init__(self, *, order: ProcessingOrder, max_queued: int, max_batch: int = 1, max_wait_s: float = 0.0) -> None:
        self._by_key = order is ProcessingOrder.KEY
        self._is_parallel = order is ProcessingOrder.NONE
        self._max_queued: Final = max_queued
        self._max_batch: Final = max_batch
        self._max_wait_s: Final = max_wait_s
        self._owned: dict[tuple[str, int], OwnedPartition] = {}
        #: The partitions with ready lanes or due tasks, in the order of their turns.
        self._turns: deque[OwnedPartition] = deque()
        #: Running tasks, the one that began first is first.
        self._running: dict[Task, None] = {}
        #: Failed tasks by the time of their next attempt, and partitions whose batch waits for more records.
        self._retries: _Delayed[Task] = _Delayed()
        self._batches: _Delayed[OwnedPartition] = _Delayed()
        #: Whether finished records have outputs that were not taken. Read without the lock by the poll loop.
        self.has_outputs = False
        #: Running tasks whose records were forgotten; the caller takes them out.
        self.orphans: list[Task] = []
        #: Full partitions that are not paused, and paused ones that have space again.
        self._full: set[OwnedPartition] = set()
        self._spacious: set[OwnedPartition] = set()
        #: Lanes without records, for the next keys.
        self._spare: list[Lane] = []

    # ---- partitions ----

    def assign(self, partition: TopicPartition, epoch: int, offsets: UnfinishedOffsets) -> None:
        """Accept records of this partition from now on."""
        self._owned[partition] = OwnedPartition(partition, epoch, offsets)

    @property
    def partitions(self) -> Mapping[tuple[str, int], OwnedPartition]:
        """The assigned partitions."""
        return self._owned

    def close(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Start nothing more of these partitions, and drop their records that do not run."""
        for partition in partitions:
            owned = self._owned.get(partition)
            if owned is None or owned.is_closing:
                continue
            owned.is_closing = True
            for lane in owned.lanes.values():
                lane.queue.clear()
                lane.alone = 0
            owned.lanes = {key: lane for key, lane in owned.lanes.items() if lane.state is _BUSY}
            owned.ready.clear()
            owned.held.clear()
            owned.due.clear()
            owned.ready_records = 0
            owned.in_hand = sum(len(task.records) for task in self._running if task.owned is owned)
            owned.wakes_at = None
            self._full.discard(owned)
            self._spacious.discard(owned)
        self._retries.keep({task for task in self._retries if not task.owned.is_closing})

    def is_drained(self, partitions: Iterable[tuple[str, int]]) -> bool:
        """Return whether no task of these partitions runs."""
        return not any(partition in self._owned and self._owned[partition].running for partition in partitions)

    def running_of(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:
        """Return the running tasks of these partitions."""
        wanted = set(partitions)
        return [task for task in self._running if task.owned.partition in wanted]

    def disown(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:
        """Close these partitions; return the tasks that still run, whose results are ignored from now on."""
        given_up = list(partitions)
        self.close(given_up)
        disowned = self.running_of(given_up)
        for task in disowned:
            self._disown(task)
        return disowned

    def _disown(self, task: Task) -> None:
        """Ignore the result of a task that still runs."""
        runner = task.runner
        self._end(task)
        task.runner = runner
        task.is_disowned = task.is_cancelled = True

    def release(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:
        """Forget these partitions; return the tasks that still ran, as `disown` does."""
        given_up = list(partitions)
        disowned = self.disown(given_up)
        for partition in given_up:
            self._owned.pop(partition, None)
        return disowned

    # ---- records ----

    def admit(self, messages: Iterable[Message], now: Instant) -> int:
        """Accept records in the order of their offsets; return how many an earlier owner had finished.

        Records of partitions that are not assigned, or closing, are dropped.
        """
        skipped = 0
        owned_by, by_key = self._owned, self._by_key
        for message in messages:
            owned = owned_by.get((message.topic(), message.partition()))  # type: ignore[arg-type]  # a record has both
            if owned is None or owned.is_closing:
                continue
            offset: int = message.offset()  # type: ignore[assignment]  # a record has an offset
            if offset < owned.next_offset:
                self._restart(owned, offset, now)
            owned.next_offset = offset + 1
            if not owned.offsets.admit(offset, message.leader_epoch()):
                skipped += 1
                continue
            key = message.key() if by_key else None
            lane = owned.lanes.get(key)
            if lane is None:
                lane = owned.lanes[key] = self._new_lane(key)
            lane.queue.append((message, offset, now))
            owned.in_hand += 1
            if lane.state is _IDLE or lane.state is _READY:
                self._add_ready(owned, lane, now)
            if owned.in_hand >= self._max_queued and not owned.is_paused:
                self._full.add(owned)
        return skipped

    def _new_lane(self, key: bytes | str | None) -> Lane:
        if not self._spare:
            return Lane(key, is_parallel=self._is_parallel)
        lane = self._spare.pop()
        lane.key = key
        return lane

    def _add_ready(self, owned: OwnedPartition, lane: Lane, now: Instant) -> None:
        """Count a new record of a lane that is ready, or becomes ready with it."""
        owned.ready_records += 1
        if lane.state is _IDLE:
            lane.state = _READY
            owned.ready.append(lane)
        if not owned.is_in_turn:
            self._enter(owned, now)

    def _restart(self, owned: OwnedPartition, offset: int, now: Instant) -> None:
        """Forget the records at and after this offset: the consumer receives it again after its log was truncated."""
        for task in [*self._running, *self.waiting]:
            if task.owned is not owned or all(at < offset for _, at, _ in task.records):
                continue
            if task in self._running:
                self._disown(task)
                self.orphans.append(task)
            self._return_records(task)
            self._retries.keep({one for one in self._retries if one is not task})
            owned.due = deque(one for one in owned.due if one is not task)
        owned.ready.clear()
        owned.held.clear()
        owned.ready_records = 0
        for lane in list(owned.lanes.values()):
            lane.queue = deque(record for record in lane.queue if record[1] < offset)
            lane.alone = min(lane.alone, len(lane.queue))
            if lane.state is _BUSY:
                continue
            if lane.queue:
                self._make_ready(owned, lane, now)
            elif lane.is_parallel:
                lane.state = _IDLE  # running tasks may return their records to it
            else:
                del owned.lanes[lane.key]
        self._count_in_hand(owned)

    def _return_records(self, task: Task) -> None:
        """Put the records of a task back to the heads of its lanes, in their order, and unlock the lanes."""
        lane_of = self._lanes_of(task)
        for record in reversed(task.records):
            lane_of[record[1]].queue.appendleft(record)
        for lane in task.lanes:
            if lane.state is _BUSY:
                lane.state = _IDLE
            elif len(lane.queue) > len(task.records):
                # Other tasks of a parallel lane may have returned earlier records, and one of them may be at `base`.
                lane.queue = deque(sorted(lane.queue, key=itemgetter(1)))

    def _count_in_hand(self, owned: OwnedPartition) -> None:
        queued = sum(len(lane.queue) for lane in owned.lanes.values())
        taken = sum(len(task.records) for task in (*self._running, *self.waiting) if task.owned is owned)
        owned.in_hand = queued + taken

    def _enter(self, owned: OwnedPartition, now: Instant) -> None:
        """Give the partition a turn, or have a batch that is not full wait for more records."""
        if self._max_wait_s and not owned.due and owned.ready_records < self._max_batch:
            if owned.wakes_at is None:
                owned.wakes_at = now + self._max_wait_s
                self._batches.add(owned.wakes_at, owned)
            if now < owned.wakes_at:
                return
        owned.wakes_at = None
        owned.is_in_turn = True
        self._turns.append(owned)

    # ---- tasks ----

    def take(self, now: Instant) -> Task | None:
        """Return the next task to run, which then runs until `finish`, `retry` or `split`; None: nothing may start."""
        if self._retries.heap or self._batches.heap:
            self._end_waits(now)
        turns = self._turns
        while turns:
            owned = turns.popleft()
            task = self._take_of(owned, now)
            if not owned.ready and not owned.due:
                owned.is_in_turn = False
            elif self._max_wait_s:
                owned.is_in_turn = False
                self._enter(owned, now)
            else:
                turns.append(owned)
            if task is not None:
                owned.running += 1
                self._running[task] = None
                return task
        return None

    def _end_waits(self, now: Instant) -> None:
        """Give a turn to tasks whose next attempt is due, and to batches that have waited long enough."""
        for due in self._retries.pop_until(now):
            due.owned.due.append(due)
            if not due.owned.is_in_turn:
                self._enter(due.owned, now)
        for owned in self._batches.pop_until(now):
            if not owned.is_in_turn and owned.ready and owned.wakes_at is not None and owned.wakes_at <= now:
                self._enter(owned, now)

    def _take_of(self, owned: OwnedPartition, now: Instant) -> Task | None:
        if owned.due:
            task = owned.due.popleft()
            task.attempt += 1
            task.is_cancelled = False
            task.began_at = now
            return task
        ready, offsets = owned.ready, owned.offsets
        while ready:
            lane = ready[0]
            if offsets.start(lane.queue[0][1]):
                task = Task(owned, lane, self._pop(owned, lane), now)
                if lane.alone:
                    lane.alone -= 1
                elif self._max_batch > 1:
                    self._fill(task, owned, lane)
                return task
            self._hold(owned, lane)
        return None

    def _pop(self, owned: OwnedPartition, lane: Lane) -> Queued:
        """Take the first record of the lane whose turn it is; a serial lane is locked."""
        queue = lane.queue
        record = queue.popleft()
        if not lane.is_parallel:
            owned.ready.popleft()
            owned.ready_records -= len(queue) + 1
            lane.state = _BUSY
            return record
        owned.ready_records -= 1
        if queue:
            owned.ready.rotate(-1)
        else:
            owned.ready.popleft()
            lane.state = _IDLE
        return record

    def _fill(self, task: Task, owned: OwnedPartition, lane: Lane) -> None:
        """Add records to a batch: the next ones of its locked lane, then those of other lanes."""
        lanes, records = [lane], [*task.records]
        self._add_next(records, owned, lane)
        while owned.ready and len(records) < self._max_batch:
            lane = owned.ready[0]
            if lane.alone:
                break
            if not owned.offsets.start(lane.queue[0][1]):
                self._hold(owned, lane)
                continue
            records.append(self._pop(owned, lane))
            if lane is not lanes[-1]:
                lanes.append(lane)
            self._add_next(records, owned, lane)
        task.lanes, task.records = lanes, records

    def _add_next(self, records: list[Queued], owned: OwnedPartition, lane: Lane) -> None:
        """Add the next records of a locked lane to a batch, in their order."""
        if lane.is_parallel:
            return
        while lane.queue and len(records) < self._max_batch and owned.offsets.start(lane.queue[0][1]):
            records.append(lane.queue.popleft())

    def _hold(self, owned: OwnedPartition, lane: Lane) -> None:
        owned.ready.popleft()
        owned.ready_records -= len(lane.queue)
        lane.state = _HELD
        owned.held.append(lane)

    def finish(self, task: Task, now: Instant, outputs: Iterable[OutputRecord] = ()) -> bool:
        """End a task: its records are finished. Return False for a disowned task, which changes nothing."""
        if task.is_disowned:
            return False
        owned = task.owned
        del self._running[task]
        task.runner = None
        owned.running -= 1
        finish = owned.offsets.finish
        has_moved = False
        for _, offset, _ in task.records:
            if finish(offset):
                has_moved = True
        if outputs:
            owned.outputs.extend(outputs)
            self.has_outputs = True
        owned.in_hand -= len(task.records)
        self._unlock(owned, task.lanes, now)
        if has_moved and owned.held:
            self._resume_held(owned, now)
        if owned.is_paused or self._full:
            self._note_space(owned)
        return True

    def _note_space(self, owned: OwnedPartition) -> None:
        if owned.in_hand <= self._max_queued // 2:
            self._full.discard(owned)
            if owned.is_paused and not owned.is_closing:
                self._spacious.add(owned)

    def retry(self, task: Task, at: Instant, error: BaseException) -> bool:
        """End an attempt that failed; the next one may begin at this moment. Its lanes stay locked until then.

        Return False for a disowned task, and for a closing partition: the record stays unfinished for the next owner.
        """
        if task.is_disowned:
            return False
        task.last_error = error
        owned = self._end(task)
        if owned.is_closing:
            owned.in_hand -= len(task.records)
            return False
        self._retries.add(at, task)
        return True

    def split(self, task: Task, now: Instant) -> bool:
        """End a failed batch: each of its records runs alone from now on, so that only the bad one fails.

        Return False for a disowned task.
        """
        if task.is_disowned:
            return False
        owned = self._end(task)
        if owned.is_closing:
            owned.in_hand -= len(task.records)
            return True
        for message, _, _ in task.records:
            owned.lanes[self._lane_key(message)].alone += 1
        self._return_records(task)
        for lane in task.lanes:
            if lane.state is _IDLE:
                self._make_ready(owned, lane, now)
            elif lane.state is _READY:  # a parallel lane: other records of it are ready already
                owned.ready_records = sum(len(one.queue) for one in owned.ready)
            elif lane.state is _HELD:  # a parallel lane: its first record is another one now
                owned.held.remove(lane)
                self._make_ready(owned, lane, now)
        return True

    def _lanes_of(self, task: Task) -> dict[int, Lane]:
        by_key = {lane.key: lane for lane in task.lanes}
        return {offset: by_key[self._lane_key(message)] for message, offset, _ in task.records}

    def _lane_key(self, message: Message) -> bytes | str | None:
        return message.key() if self._by_key else None

    def _end(self, task: Task) -> OwnedPartition:
        del self._running[task]
        task.runner = None
        task.owned.running -= 1
        return task.owned

    def _unlock(self, owned: OwnedPartition, lanes: Iterable[Lane], now: Instant) -> None:
        for lane in lanes:
            if lane.is_parallel:
                continue
            if lane.queue:
                self._make_ready(owned, lane, now)
            else:
                lane.state = _IDLE
                del owned.lanes[lane.key]
                if len(self._spare) < _SPARE_LANES:
                    self._spare.append(lane)

    def _make_ready(self, owned: OwnedPartition, lane: Lane, now: Instant) -> None:
        lane.state = _READY
        owned.ready.append(lane)
        owned.ready_records += len(lane.queue)
        if not owned.is_in_turn:
            self._enter(owned, now)

    def _resume_held(self, owned: OwnedPartition, now: Instant) -> None:
        held, owned.held = owned.held, []
        for lane in held:
            self._make_ready(owned, lane, now)

    @property
    def next_at(self) -> Instant | None:
        """When `take` may have a task that waits for its time now; None: no task waits for a time."""
        retry, batch = self._retries.next_at, self._batches.next_at
        return batch if retry is None else retry if batch is None else min(retry, batch)

    @property
    def has_turns(self) -> bool:
        """Whether `take` may return a task now."""
        return bool(self._turns)

    def overdue(self, now: Instant, timeout_s: float) -> list[Task]:
        """Return the tasks whose handlers run for at least this long, those that were cancelled included."""
        found: list[Task] = []
        for task in self._running:
            if now - task.began_at < timeout_s:
                break
            if not task.has_failed:
                found.append(task)
        return found

    @property
    def running(self) -> Collection[Task]:
        """The running tasks, the one that began first is first."""
        return self._running.keys()

    @property
    def waiting(self) -> list[Task]:
        """The failed tasks that wait for their next attempt."""
        return [*self._retries, *(task for owned in self._owned.values() for task in owned.due)]

    # ---- flow and commits ----

    @property
    def has_full(self) -> bool:
        """Whether a partition is full and not paused."""
        return bool(self._full)

    @property
    def has_reserve(self) -> bool:
        """Whether at least as many records wait as run, so that the handlers stay busy for a while."""
        return sum(owned.in_hand for owned in self._owned.values()) >= 2 * len(self._running)

    @property
    def has_space(self) -> bool:
        """Whether a paused partition can accept records again."""
        return bool(self._spacious)

    def pause_full(self) -> list[TopicPartition]:
        """Mark the full partitions as paused and return them."""
        found, self._full = self._full, set()
        for owned in found:
            owned.is_paused = True
        return [owned.partition for owned in found]

    def resume_spacious(self) -> list[TopicPartition]:
        """Mark the paused partitions that can accept records again as not paused, and return them."""
        found, self._spacious = self._spacious, set()
        for owned in found:
            owned.is_paused = False
        return [owned.partition for owned in found]

    def commits(self, partitions: Iterable[tuple[str, int]] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit of these partitions (None: of all), if they changed since `committed`."""
        owned = self._owned.values() if partitions is None else self._known(partitions)
        return {one.partition: at for one in owned if (at := one.offsets.to_commit()) is not None}

    def take_outputs(self) -> list[OutputRecord]:
        """Return and remove the outputs of finished records; for each partition, in the order of their end."""
        taken: list[OutputRecord] = []
        for owned in self._owned.values():
            taken += owned.outputs
            owned.outputs.clear()
        self.has_outputs = False
        return taken

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that these offsets are committed."""
        for partition, at in offsets.items():
            owned = self._owned.get(partition)
            if owned is not None:
                owned.offsets.committed(at)
                owned.committed = at.offset

    def _known(self, partitions: Iterable[tuple[str, int]]) -> list[OwnedPartition]:
        return [self._owned[partition] for partition in partitions if partition in self._owned]
