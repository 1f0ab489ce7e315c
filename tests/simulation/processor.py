"""A fake of `processing.Processor` in virtual time: an application that handles records concurrently with its polls.

The real `Scheduler`, `UnfinishedOffsets`, `decode` and `RetryPolicy` make its decisions. The fake keeps the order
contract of the poll loop and of the workers: it admits the records of a poll, and runs as many tasks as there are
workers. In on_revoke it waits for running handlers (drain), ignores handlers that still run, commits, and returns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never, cast

import tenacity
from confluent_kafka import Message

from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    StepEffect,
)
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import ProcessingOrder, Scheduler, Task
from consumer_membership.testing.coordinators.exchanges import Fetch, Fetched
from consumer_membership.testing.coordinators.rules import OFFSET_METADATA_TOO_LARGE
from consumer_membership.translation.offset_metadata import FinishedOffsets, decode
from consumer_membership.types import Instant, OffsetAndMetadata, TopicPartition
from tests.simulation import internals
from tests.simulation.application import Application, Behavior, Partitions
from tests.simulation.handler_invariants import SLOW, PartitionOwnership, exists, key_of

if TYPE_CHECKING:
    from tests.simulation.process import Process

#: With the time for a commit, this is less than the coordinator's rebalance timeout.
DRAIN_TIMEOUT_S = 1.5
HANDLER_TIMEOUT_S = 2.5
COMMIT_INTERVAL_S = 0.5
#: A metadata length that can describe any set of finished records of a run.
ENOUGH_METADATA = 4096
#: The time in which a broker stores a dead letter.
DEAD_LETTER_S = 0.05


class Temporary(Exception):  # noqa: N818 - handlers raise it, and it is no failure of the test
    """The next attempt may succeed."""


class Permanent(Exception):  # noqa: N818 - handlers raise it, and it is no failure of the test
    """No attempt succeeds."""


POLICY = RetryPolicy.from_argument(
    tenacity.Retrying(
        retry=tenacity.retry_if_exception_type((Temporary, TimeoutError)),
        wait=tenacity.wait_exponential(multiplier=0.1, max=1.0),
        stop=tenacity.stop_after_attempt(4),
    )
)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a processor that make decisions; a mutant replaces one of these parts."""

    scheduler: type[Scheduler] = Scheduler
    offsets: type[UnfinishedOffsets] = UnfinishedOffsets
    decode: Callable[[str | None, int], FinishedOffsets | None] = decode

    @property
    def name(self) -> str:
        """The names of the replaced parts."""
        pairs = zip(astuple(self), astuple(Parts()), strict=True)
        return " ".join(part.__name__ for part, real in pairs if part is not real)


class Kind(Enum):
    """The kind of handlers: COROUTINES can be cancelled, THREADS cannot."""

    THREADS = auto()
    COROUTINES = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a processor, and the probabilities that a handler call fails or does not end."""

    order: ProcessingOrder = ProcessingOrder.KEY
    kind: Kind = Kind.COROUTINES
    concurrency: int = 4
    max_queued: int = 12
    max_batch: int = 1
    max_wait_s: float = 0.0
    metadata_limit: int = 4096
    has_dead_letters: bool = True
    temporary: float = 0.1
    permanent: float = 0.03
    stuck: float = 0.01


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the fake log, with the methods of `confluent_kafka.Message` that the scheduler calls."""

    of: TopicPartition
    at: int
    epoch: int = 0

    def topic(self) -> str:
        """Return the topic."""
        return self.of.topic

    def partition(self) -> int:
        """Return the number of the partition."""
        return self.of.partition

    def offset(self) -> int:
        """Return the offset."""
        return self.at

    def leader_epoch(self) -> int:
        """Return the leader epoch."""
        return self.epoch

    def key(self) -> bytes | None:
        """Return the key."""
        return key_of(self.of, self.at)


@dataclass(slots=True, eq=False)
class _Call:
    """One call of the handler; `is_over`: it was cancelled, or has ended."""

    task: Task
    is_over: bool = False


@dataclass(slots=True)
class _Drain:
    """A revocation of these partitions that is in progress."""

    partitions: Partitions
    is_committing: bool = False


def offsets_of(task: Task) -> list[int]:
    """Return the offsets of a task's records."""
    return [offset for _, offset, _ in task.records]


class ProcessorApplication(Application):
    """One processor: the thread of its poll loop, and its workers."""

    def __init__(self, process: Process, behavior: Behavior, options: Options, parts: Parts) -> None:
        super().__init__(process, behavior, auto_commit=False)
        self.options = options
        self.parts = parts
        self.scheduler = parts.scheduler(
            order=options.order,
            max_queued=options.max_queued,
            max_batch=options.max_batch,
            max_wait_s=options.max_wait_s,
        )
        #: The metadata length that the broker accepts, as far as the processor knows.
        self.limit = options.metadata_limit
        self.paused: set[TopicPartition] = set()
        self._invariants = process.simulation.handler_invariants
        self._calls: dict[Task, _Call] = {}
        self._drain: _Drain | None = None
        #: The committed offsets that on_assign read.
        self._found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        self._commits_at: Instant = 0.0
        #: The number of the periodic commit that has no answer yet.
        self._pending: int | None = None
        self._wakes_at: Instant | None = None

    @property
    def now(self) -> Instant:
        """The time of the simulation."""
        return self.process.simulation.now

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        self.process.simulation.after(seconds, self._guarded(action))

    def _ownership(self, task: Task) -> PartitionOwnership:
        return self._invariants.ownership(self.process, task.owned.partition)

    # ---- the poll loop ----

    def _handle_records(self) -> None:
        """Admit the records of this poll, pause full partitions, and commit when it is time."""
        if not self.process.failed:
            for partition in sorted(self.held.keys() - self.frozen - self.paused):
                self._admit(partition)
        self.paused.update(self.scheduler.pause_full())
        self.paused.difference_update(self.scheduler.resume_spacious())
        self._end_overdue()
        self._start_tasks()
        if self.now >= self._commits_at and self._pending is None:
            self._commits_at = self.now + COMMIT_INTERVAL_S
            self._pending = self.commit()

    def _admit(self, partition: TopicPartition) -> None:
        offsets = self._fetch(partition, self._available(partition))
        if offsets:
            most = self.options.max_queued + self.behavior.batch
            self._invariants.admitted(self.process, partition, offsets, most)
            records = [Record(partition, offset) for offset in offsets if exists(partition, offset)]
            self.scheduler.admit(cast("list[Message]", records), self.now)

    def _available(self, partition: TopicPartition) -> int:
        """Return the number of records of a poll; in an idle simulation, only records that earlier owners received."""
        simulation, count = self.process.simulation, self.behavior.batch
        return min(count, simulation.ledger.end(partition) - self.held[partition]) if simulation.is_idle else count

    def _end_overdue(self) -> None:
        """Cancel the handlers that exceed their timeout; a handler that cannot be cancelled ends the processor."""
        for task in self.scheduler.overdue(self.now, HANDLER_TIMEOUT_S):
            if self.options.kind is Kind.COROUTINES:
                task.is_cancelled = True
                self._end(self._calls[task], TimeoutError("handler_timeout"))
            else:
                self._fail()

    def _fail(self) -> None:
        """Stop the intake; the supervisor then replaces this processor, which drains and commits when it is closed."""
        self._close(self.held)
        self.process.failed = True

    def _close(self, partitions: Collection[TopicPartition]) -> None:
        """Start no more handlers for these partitions."""
        self._invariants.closing(self.process, partitions)
        self.scheduler.close(partitions)

    # ---- workers ----

    def _start_tasks(self) -> None:
        """Give each free worker a task; disowned tasks occupy no worker, because their worker is replaced."""
        while len(self.scheduler.running) < self.options.concurrency:
            task = self.scheduler.take(self.now)
            if task is None:
                if self.options.max_wait_s == 0:
                    self._invariants.has_free_worker(self.process)
                break
            self._run(task)
        wakes_at = self.scheduler.next_at
        if wakes_at is not None and wakes_at != self._wakes_at:
            self._wakes_at = wakes_at
            self.process.simulation.at(wakes_at, self._guarded(self._start_tasks))

    def _run(self, task: Task) -> None:
        self._invariants.began(self.process, task.owned.partition, offsets_of(task), task.attempt)
        seconds, error = self._drawn(task)
        call = self._calls[task] = _Call(task)
        self._later(seconds, lambda: self._end(call, error))

    def _drawn(self, task: Task) -> tuple[float, Exception | None]:
        """Draw the duration of this attempt, and its error or None."""
        simulation, options = self.process.simulation, self.options
        chance = simulation.random.random
        seconds = 0.3 * chance() ** 2
        if any(message.key() == SLOW for message in task.messages):
            seconds += chance()
        if simulation.are_faults_over:
            return seconds / 10, None
        lot = chance()
        if lot < options.stuck:
            return 2 * HANDLER_TIMEOUT_S, None
        if lot < options.stuck + options.permanent:
            return seconds, Permanent("bad record")
        if lot < options.stuck + options.permanent + options.temporary:
            return seconds, Temporary("try again")
        return seconds, None

    def _end(self, call: _Call, error: Exception | None) -> None:
        """Handle the end or the cancellation of a call."""
        if call.is_over:
            return
        call.is_over = True
        if error is None:
            self._finish_task(call.task)
        else:
            self._fail_attempt(call, error)

    def _finish_task(self, task: Task) -> None:
        """Finish a task whose records are handled, or are in the dead letter topic."""
        del self._calls[task]
        if not task.is_disowned:
            self._invariants.finished_in(self._ownership(task), offsets_of(task))
        self.scheduler.finish(task, self.now)
        self._go_on()

    def _fail_attempt(self, call: _Call, error: Exception) -> None:
        """Handle a failed attempt: retry, split the batch, write dead letters, or end the processor."""
        task = call.task
        delay = POLICY.after(task.attempt, error, self.now - task.first_at)
        is_split = delay is None and len(task.records) > 1
        if delay is None and not is_split and self.options.has_dead_letters and not task.is_disowned:
            call.is_over = False
            self._later(DEAD_LETTER_S, lambda: self._end(call, None))
            return
        del self._calls[task]
        again_at = None if is_split else self.now + (delay or 0.0)
        if not task.is_disowned:
            self._invariants.failed_in(self._ownership(task), offsets_of(task), again_at)
        if again_at is None:
            self.scheduler.split(task, self.now)
        else:
            self.scheduler.retry(task, again_at, error)
            if delay is None:
                self._fail()
        self._go_on()

    def _go_on(self) -> None:
        self._start_tasks()
        drain = self._drain
        if drain is not None and self.scheduler.is_drained(drain.partitions):
            self._commit_revoked(drain)

    # ---- callbacks ----

    def _begin_callback(self, step: StepEffect, partitions: Partitions) -> None:
        match step:
            case AssignPartitions():
                self._later(2 * self.process.simulation.faults.latency_s, lambda: self._read_committed(partitions))
            case RevokePartitions():
                self._close(partitions)
                self._drain = drain = _Drain(partitions)
                if self.scheduler.is_drained(partitions):
                    self._commit_revoked(drain)
                else:
                    self._later(DRAIN_TIMEOUT_S, lambda: self._cut_short(drain))
            case LosePartitions():
                self._release(partitions)
                self._return()
            case PausePartitions():
                raise AssertionError("a pause has no callback")
            case _:
                assert_never(step)

    def _read_committed(self, partitions: Partitions) -> None:
        """Read the committed offsets with metadata, as `Consumer.committed` does, and then return from on_assign."""
        group_id = self.process.settings.group_id
        answer = self.process.simulation.coordinator.answer(group_id, Fetch(partitions=partitions), self.now)
        if isinstance(answer, Fetched):
            self._found = answer.offsets
            self._return()
        else:
            self._later(0.1, lambda: self._read_committed(partitions))

    def _take(self, offsets: Mapping[TopicPartition, int]) -> None:
        super()._take(offsets)
        epoch = internals.epoch(self.process.member)
        for partition, start in offsets.items():
            committed = self._found.get(partition)
            may_wait = self.limit < ENOUGH_METADATA or self.options.max_wait_s > 0
            self._invariants.assigned(self.process, partition, start, committed, self.options.order, may_wait=may_wait)
            if committed is None:
                in_hand = self.parts.offsets(None, None, self.limit)
            else:
                finished = self.parts.decode(committed.metadata, committed.offset)
                in_hand = self.parts.offsets(
                    committed.offset, finished, self.limit, leader_epoch=committed.leader_epoch
                )
            self.scheduler.assign(partition, epoch, in_hand)
            if self.process.failed:
                self._close([partition])

    def _cut_short(self, drain: _Drain) -> None:
        """At the end of the drain timeout, cancel the running handlers or ignore their results."""
        if drain.is_committing:
            return
        for task in self.scheduler.running_of(drain.partitions):
            if self.options.kind is Kind.COROUTINES:
                task.is_cancelled = True
                self._cancel(task)
        self._disowned(self.scheduler.disown(drain.partitions), drain.partitions)
        self._commit_revoked(drain)

    def _cancel(self, task: Task) -> None:
        """Cancel a coroutine, which ends immediately; its record stays unfinished."""
        self._calls.pop(task).is_over = True
        self._invariants.failed_in(self._ownership(task), offsets_of(task), self.now)
        self.scheduler.retry(task, self.now, TimeoutError("cancelled"))

    def _commit_revoked(self, drain: _Drain) -> None:
        """Commit; the callback returns when the commit has ended."""
        assert self.callback is not None
        drain.is_committing = True
        self.callback.awaits_commit = self.commit(drain.partitions)
        if self.callback.awaits_commit is None:
            self._revoked(drain, is_clean=True)

    def _callback_committed(self, effect: CommitCompleted) -> None:
        """After the commit of a revocation, commit again with less metadata, or return from on_revoke."""
        drain = self._drain
        assert drain is not None
        errors = {error.code for error in effect.errors.values() if error is not None}
        if OFFSET_METADATA_TOO_LARGE in errors:
            self._commit_revoked(drain)
        else:
            self._revoked(drain, is_clean=not errors)

    def _revoked(self, drain: _Drain, *, is_clean: bool) -> None:
        self._drain = None
        if is_clean:
            for partition in drain.partitions:
                self._invariants.revoked_cleanly(self.process, partition)
        self._release(drain.partitions)
        self._return()

    def _release(self, partitions: Collection[TopicPartition]) -> None:
        """Release partitions."""
        self._disowned(self.scheduler.release(partitions), partitions)
        for partition in partitions:
            self._invariants.released(self.process, partition)
        self.paused.difference_update(partitions)
        self._start_tasks()

    def _disowned(self, tasks: list[Task], partitions: Collection[TopicPartition]) -> None:
        """Ignore the results of these tasks, and end coroutines."""
        for partition in partitions:
            of_partition = [task for task in tasks if task.owned.partition == partition]
            offsets = [offset for task in of_partition for offset in offsets_of(task)]
            self._invariants.disowned(self.process, partition, offsets)
        if self.options.kind is Kind.COROUTINES:
            for task in tasks:
                self._calls.pop(task).is_over = True

    # ---- commits ----

    def uncommitted(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit."""
        offsets = self.scheduler.commits(partitions)
        self._invariants.commits(self.process, offsets)
        return offsets

    def _take_commit(self, effect: CommitCompleted) -> None:
        self.scheduler.committed({p: at for p, at in effect.offsets.items() if effect.errors.get(p) is None})
        if effect.commit_id == self._pending:
            self._pending = None
        if any(error is not None and error.code == OFFSET_METADATA_TOO_LARGE for error in effect.errors.values()):
            self._shrink()
        super()._take_commit(effect)

    def _shrink(self) -> None:
        """Halve the metadata limit, because the broker accepts less metadata than configured."""
        self.limit //= 2
        self._invariants.limited(self.process)
        for owned in self.scheduler.partitions.values():
            owned.offsets.capacity = self.limit
        self._commits_at = self.now
