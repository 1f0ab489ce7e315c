"""The scheduler under one lock: what the poll loop and the workers share.

| caller | methods |
|---|---|
| the poll loop, one thread | `assign`, `admit`, `close`, `release`, `resume`, `wait_until`, and the offsets |
| workers, any thread | `take`, `exchange`, `failed`, `dead_lettered` |

Every method holds the lock for a few microseconds and runs no foreign code under it. Two parties wait: idle workers for
a task (`on_available` is called whenever one may be ready), and the poll loop for the end of tasks (`wait_until`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar
from math import inf
from threading import Condition, RLock

from confluent_kafka import Message
from confluent_kafka.error import KeyDeserializationError, ValueDeserializationError

from consumer_membership.errors import ConfigurationError, HandlerError
from consumer_membership.metrics.handler_ledger import HandlerLedger
from consumer_membership.processing.failures import HandlerFailures
from consumer_membership.processing.offsets import UnfinishedOffsets
from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import Scheduler, Task
from consumer_membership.runtime.clock import SYSTEM_CLOCK, Clock
from consumer_membership.text import error_text
from consumer_membership.types import Instant, TopicPartition

#: Errors that each attempt with the same bytes would raise again.
_PERMANENT = (KeyDeserializationError, ValueDeserializationError)

#: How often the lease is read, in seconds. It usually ends a session after the last heartbeat; a heartbeat that the
#: coordinator refuses ends it at once.
LEASE_CHECK_S = 0.1


#: The work whose handler runs in this thread or asyncio task, also in the tasks that the handler creates.
WORK_OF_HANDLER: ContextVar[Work | None] = ContextVar("consumer_membership.processing.work", default=None)


class HandlerInterruptedError(Exception):
    """The program cancelled the coroutine, for example because its event loop ends. The record itself did not fail."""


class ResultRejectedError(Exception):
    """The retry policy rejects the result of a handler; the next attempt follows after `delay_s` seconds."""

    def __init__(self, delay_s: float) -> None:
        super().__init__("the retry policy rejects the result of the handler")
        self.delay_s = delay_s


class Work:
    """The records in hand of one processor.

    `has_target`: whether there is a target for dead letters. `fatal`: exceptions that are neither retried nor
    dead-lettered, because they do not concern the record. `clock`: the time of the consumer.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        ledger: HandlerLedger,
        retry: RetryPolicy,
        *,
        has_target: bool,
        max_batch: int,
        fatal: tuple[type[Exception], ...] = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.clock = clock
        self.now = clock.now
        #: Reentrant, because a signal handler may call `health` or `progress` in the thread that holds it.
        self.lock = RLock()
        self.scheduler = scheduler
        self.ledger = ledger
        self._retry = retry
        self._has_target = has_target
        self._is_batch = max_batch > 1
        self._never_retried: tuple[type[Exception], ...] = (*_PERMANENT, *fatal)
        # A handler with a wrong result, or a wrong configuration, would fail for each record.
        self._never_dead_lettered: tuple[type[Exception], ...] = (ConfigurationError, HandlerInterruptedError, *fatal)
        self.failures = HandlerFailures(ledger.failures)
        self._changed = Condition(self.lock)
        #: The condition that the poll loop waits for. Workers check it, because to wake the loop costs more.
        self._awaited: Callable[[], bool] | None = None
        #: Called with the lock held when a task may be ready; set by the workers.
        self.on_available: Callable[[], None] = lambda: None
        #: Returns until when the partitions are certainly owned (`Line.lease_until`); set by the engine.
        self.lease: Callable[[], Instant | None] = lambda: None
        #: Until when records may start without another check of the lease.
        self._owned_until: Instant = -inf
        #: Whether no record may start because the lease is over.
        self.is_suspended = False
        #: Why the processor has to stop; set once, with the lock held.
        self.failure: HandlerError | None = None
        self.failed_at: Instant | None = None
        #: Running tasks whose partitions were given up; their results are ignored.
        self.disowned: dict[Task, None] = {}
        #: Set by the poll loop: workers take nothing more.
        self.is_over = False

    # ---- the poll loop ----

    def assign(self, partition: TopicPartition, epoch: int, offsets: UnfinishedOffsets) -> None:
        """Accept records of this partition from now on."""
        with self.lock:
            self.scheduler.assign(partition, epoch, offsets)

    def admit(self, messages: Iterable[Message]) -> list[Task]:
        """Accept these records, and drop those that an earlier owner finished; return tasks that became disowned."""
        with self.lock:
            self.ledger.skipped += self.scheduler.admit(messages, self.now())
            if self.scheduler.has_turns or self.scheduler.next_at is not None:
                self.on_available()
            orphans, self.scheduler.orphans = self.scheduler.orphans, []
            self.disowned.update(dict.fromkeys(orphans))
        return orphans

    def close(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Start nothing more of these partitions."""
        with self.lock:
            self.scheduler.close(partitions)

    def disown(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:
        """Close these partitions; return the tasks that still run, whose results are ignored from now on."""
        with self.lock:
            found = self.scheduler.disown(partitions)
            self.disowned.update(dict.fromkeys(found))
        return found

    def release(self, partitions: Iterable[tuple[str, int]]) -> list[Task]:
        """Forget these partitions; return the tasks that still run, whose results are ignored."""
        with self.lock:
            found = self.scheduler.release(partitions)
            self.disowned.update(dict.fromkeys(found))
        return found

    def wait_until(self, is_over: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until a condition, which is checked with the lock held, is true; return whether it is.

        With a timeout of None, it returns only when the condition is true.
        """
        with self.lock:
            self._awaited = is_over
            try:
                return self._wait_until(is_over, timeout_s)
            finally:
                self._awaited = None

    def _wait_until(self, is_over: Callable[[], bool], timeout_s: float | None) -> bool:
        until = None if timeout_s is None else self.now() + timeout_s
        while not is_over():
            left_s = None if until is None else until - self.now()
            if left_s is not None and left_s <= 0:
                return False
            self.clock.wait(self._changed, left_s)
        return True

    def cancel(self, tasks: Iterable[Task]) -> list[Task]:
        """End the running attempts of these tasks; return those that nothing can end."""
        left: list[Task] = []
        with self.lock:
            for task in tasks:
                task.is_cancelled = True
                if task.runner is not None and task.runner.can_cancel:
                    task.runner.cancel()
                elif task in self.scheduler.running:
                    left.append(task)
        return left

    def resume(self) -> None:
        """Wake the workers if the lease was renewed after its end."""
        with self.lock:
            if self._renew_lease(self.now()):
                self.on_available()

    def fail(self, error: HandlerError) -> None:
        """Make the processor stop with this error, unless it already stops with another one."""
        with self.lock:
            self._fail(error)
            self._changed.notify_all()

    def _fail(self, error: HandlerError) -> None:
        if self.failure is None:
            self.failure, self.failed_at = error, self.now()

    # ---- workers ----

    def exchange(self, done: Task | None, outputs: Collection[OutputRecord] = ()) -> Task | None:
        """End a task that succeeded, if there is one, and return the next task, or None. The caller holds the lock."""
        now = self.now()
        ledger, scheduler = self.ledger, self.scheduler
        if done is not None and self._finish(done, now, outputs):
            ledger.handler_time.add(now - done.began_at, now)
        if self.is_over or (now >= self._owned_until and not self._renew_lease(now)):
            return None
        task = scheduler.take(now)
        if task is not None and task.attempt == 1:
            for _, _, queued_at in task.records:
                ledger.queue_time.add(now - queued_at, now)
        return task

    def _renew_lease(self, now: Instant) -> bool:
        """Return whether records may start; the caller holds the lock.

        A process that was suspended may continue long after its session, and the queued records are handled by other
        members by then. The member knows that only when the coordinator has answered its next heartbeat.
        """
        until = self.lease()
        self.is_suspended = until is not None and now >= until
        self._owned_until = now + LEASE_CHECK_S if until is None else min(until, now + LEASE_CHECK_S)
        return not self.is_suspended

    @property
    def next_at(self) -> Instant | None:
        """When the next task that waits for a time may start; None: none waits, or the lease is over."""
        return None if self.is_suspended else self.scheduler.next_at

    def take(self) -> Task | None:
        """Return the next task, or None. The caller holds the lock."""
        return self.exchange(None)

    def finished(self, task: Task, outputs: Collection[OutputRecord] = ()) -> None:
        """End a task that succeeded. The caller holds the lock."""
        now = self.now()
        if self._finish(task, now, outputs):
            self.ledger.handler_time.add(now - task.began_at, now)

    def _finish(self, task: Task, now: Instant, outputs: Collection[OutputRecord]) -> bool:
        is_current = self.scheduler.finish(task, now, outputs)
        if is_current:
            self.ledger.finished += len(task.records)
        else:
            self.disowned.pop(task, None)
        if self._awaited is not None and self._awaited():
            self._changed.notify_all()
        return is_current

    def end(self, task: Task) -> None:
        """Forget a disowned task that has ended without a result."""
        with self.lock:
            self.disowned.pop(task, None)

    def failed(self, task: Task, error: BaseException) -> bool:
        """End an attempt that failed; return True if the caller has to write a dead letter for its record.

        Then `dead_lettered` or `give_up` has to follow.
        """
        now = self.now()
        delay = None if task.is_disowned else self._delay(task, error, now)
        if not task.is_disowned and not (task.is_cancelled and task.owned.is_closing):
            self.failures.failed(task, error, delay)
        with self.lock:
            self.ledger.handler_time.add(now - task.began_at, now)
            if task.is_disowned:
                self.disowned.pop(task, None)
                return False
            if task.owned.is_closing and task.is_cancelled:
                self.scheduler.retry(task, now, error)
            elif delay is not None:
                self.ledger.retries += 1
                self.scheduler.retry(task, now + delay, error)
                self.on_available()
            elif self._is_batch and len(task.records) > 1:
                self.scheduler.split(task, now)
                self.on_available()
            else:
                task.last_error = error
                is_of_record = isinstance(error, Exception) and not isinstance(error, self._never_dead_lettered)
                if self._has_target and is_of_record:
                    task.has_failed = True
                    return True
                advice = "Fix the handler" if self._has_target else "Fix the handler, or set dead_letter"
                self._stop_at(task, failure_of(task, error, advice))
            self._changed.notify_all()
        return False

    def _delay(self, task: Task, error: BaseException, now: Instant) -> float | None:
        if not isinstance(error, Exception):
            return None  # SystemExit and KeyboardInterrupt are not errors of a record
        if isinstance(error, self._never_retried):
            return None
        if isinstance(error, ResultRejectedError):
            return error.delay_s
        return self._retry.after(task.attempt, error, now - task.first_at)

    def dead_lettered(self, task: Task, outputs: Collection[OutputRecord] = ()) -> None:
        """End a task whose record is in the target for dead letters."""
        with self.lock:
            self.ledger.dead_letters += 1
            self._finish(task, self.now(), outputs)

    def give_up(self, task: Task, refused: BaseException) -> None:
        """Stop the processor at this record: it can be neither handled nor written to the target for dead letters."""
        with self.lock:
            if task.is_disowned:
                self.disowned.pop(task, None)
            else:
                refused.__context__ = task.last_error
                self._stop_at(task, dead_letter_failure_of(task, refused))
            self._changed.notify_all()

    def _stop_at(self, task: Task, failure: HandlerError) -> None:
        """Leave the record unfinished and make the processor stop."""
        self._fail(failure)
        # Its partition starts nothing more, so that no record of this key runs before the failed one.
        self.scheduler.close([task.owned.partition])
        self.scheduler.retry(task, self.now(), failure.__cause__ or failure)


def failure_of(task: Task, error: BaseException, advice: str) -> HandlerError:
    """Return the error with which a processor stops at the record of this task."""
    attempts = "1 attempt" if task.attempt == 1 else f"{task.attempt} attempts"
    what = f"the handler failed for {_place_of(task)} after {attempts}: {error_text(error)}"
    return _error_of(task, f"{what}. The offset is not committed. {advice}", error)


def dead_letter_failure_of(task: Task, refused: BaseException) -> HandlerError:
    """Return the error with which a processor stops because it cannot write the dead letter of this task."""
    what = f"the dead letter for {_place_of(task)} cannot be written: {error_text(refused)}"
    cause = "" if task.last_error is None else f". The handler had failed with {error_text(task.last_error)}"
    return _error_of(task, f"{what}{cause}. The offset is not committed. Fix the target of dead_letter", refused)


def timeout_of(task: Task, timeout_s: float) -> HandlerError:
    """Return the error with which a processor stops because of a handler that it cannot end."""
    return _error_of(
        task,
        f"the handler for {_place_of(task)} exceeded handler_timeout={timeout_s:g} s and cannot be interrupted. The "
        "offset is not committed. Raise handler_timeout, check context.is_cancelled in the handler, or use a coroutine "
        "or processes=True, which can be cancelled",
        None,
    )


def _error_of(task: Task, message: str, cause: BaseException | None) -> HandlerError:
    error = HandlerError(message, TopicPartition(*task.owned.partition), task.first_offset)
    error.__cause__ = cause
    return error


def _place_of(task: Task) -> str:
    topic, partition = task.owned.partition
    return f"offset {task.first_offset} of {topic}-{partition}"
