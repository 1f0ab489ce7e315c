"""Runs handlers that are functions: on worker threads, or in one worker process for each worker thread.

A thread starts when a task is ready and no thread is idle. A thread that has taken a task wakes the next one if more
are ready, so that short handlers occupy few threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from threading import Condition
from typing import Protocol

from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.scheduler import Runner, Task
from consumer_membership.processing.work import WORK_OF_HANDLER, Work
from consumer_membership.types import Instant


class WorkerCall(Runner, Protocol):
    """What one worker calls for each task."""

    def run(self, task: Task) -> Collection[OutputRecord]:
        """Handle the records of this task and return the outputs; an exception fails the attempt."""

    def close(self) -> None:
        """Release what the calls needed; on the worker's thread."""


class ThreadWorkers:
    """Up to `count` threads that take tasks.

    Args:
        work: Where the tasks come from.
        make_call: Creates what a thread calls; called on the thread.
        write_dead_letter: Writes a record that failed to the target for dead letters, and returns the outputs to commit
            with its offset; it blocks, and raises if it cannot.
        count: The largest number of threads.
    """

    def __init__(
        self,
        work: Work,
        make_call: Callable[[], WorkerCall],
        write_dead_letter: Callable[[Task], Collection[OutputRecord]],
        count: int,
    ) -> None:
        self._work = work
        self._make_call = make_call
        self._write_dead_letter = write_dead_letter
        self._count = count
        self._available = Condition(work.lock)
        #: With the work's lock: threads that count, idle ones, and until when one of the idle ones waits.
        self._alive = 0
        self._idle = 0
        self._timer: Instant | None = None
        self._is_stopping = False
        self._numbers = 0
        work.on_available = self._wake

    # ---- the poll loop ----

    def replace(self, disowned: Collection[Task]) -> None:
        """Allow another thread for each that still runs a disowned task and ends after it."""
        with self._work.lock:
            self._alive -= len(disowned)
            self._wake()

    def stop(self) -> None:
        """End the idle threads at once, and the others after their task; does not wait."""
        with self._work.lock:
            self._is_stopping = True
            self._available.notify_all()

    # ---- threads ----

    def _wake(self) -> None:
        """Wake or start a thread for a task that is ready; the caller holds the lock."""
        if self._idle:
            self._available.notify()
        elif self._alive < self._count and not self._is_stopping:
            self._alive += 1
            self._numbers += 1
            self._work.clock.start_thread(self._run, f"consumer-membership-handler-{self._numbers}")

    def _run(self) -> None:
        WORK_OF_HANDLER.set(self._work)
        call = self._make_call()
        try:
            task = self._next(call, None, ())
            while task is not None:
                try:
                    outputs = call.run(task)
                except BaseException as error:  # noqa: BLE001 - a handler may raise anything; the retry policy decides
                    self._fail(task, error)
                    task = None if task.is_disowned else self._next(call, None, ())
                else:
                    task = self._next(call, task, outputs)
        finally:
            call.close()

    def _fail(self, task: Task, error: BaseException) -> None:
        if not self._work.failed(task, error):
            return
        try:
            outputs = self._write_dead_letter(task)
        except BaseException as refused:  # noqa: BLE001 - the target may be a function; the processor stops
            self._work.give_up(task, refused)
        else:
            self._work.dead_lettered(task, outputs)

    def _next(self, call: WorkerCall, done: Task | None, outputs: Collection[OutputRecord]) -> Task | None:
        """End a task that succeeded, and wait for the next one; None: this thread ends."""
        work = self._work
        with work.lock:
            if done is not None and done.is_disowned:
                work.finished(done, outputs)
                return None  # another thread has replaced this one
            task = work.exchange(done, outputs)
            while task is None:
                if self._is_stopping:
                    self._alive -= 1
                    return None
                self._wait()
                task = work.take()
            task.runner = call
            if work.scheduler.has_turns:
                self._wake()
            return task

    def _wait(self) -> None:
        """Wait until a task may be ready; one idle thread waits for the next attempt that is due."""
        at = self._work.next_at
        keeps_time = at is not None and (self._timer is None or at < self._timer)
        if keeps_time:
            self._timer = at
        self._idle += 1
        try:
            work = self._work
            timeout_s = max(at - work.now(), 0.0) if keeps_time and at is not None else None
            work.clock.wait(self._available, timeout_s)
        finally:
            self._idle -= 1
            if keeps_time:
                self._timer = None
                if self._idle and self._work.next_at is not None:
                    self._available.notify()  # another one waits for the next attempt
