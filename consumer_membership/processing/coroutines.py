"""Runs handlers that are coroutine functions: `count` workers on one event loop.

A worker is a task of the loop that handles one record after the other, because a task for each record would cost more
than most handlers. To cancel a call, its worker is cancelled; the worker catches that and continues.

On the program's own loop, the program may cancel the workers as well: `asyncio.run` cancels all tasks at its end. A
record whose handler was cancelled in this way has not failed, so it is never dead-lettered, and idle workers continue.
Only `stop` ends workers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from contextvars import Context, copy_context
from threading import Condition, get_ident
from typing import NamedTuple

from consumer_membership.processing.outputs import OutputRecord
from consumer_membership.processing.scheduler import Task
from consumer_membership.processing.stacks import stack_of_coroutine, traceback_of_handler
from consumer_membership.processing.work import WORK_OF_HANDLER, HandlerInterruptedError, Work
from consumer_membership.runtime.clock import SYSTEM_CLOCK, Clock

#: How many dead letters are written at the same time.
_DEAD_LETTER_THREADS = 8
#: How long the end of an own event loop may take, in seconds.
_LOOP_STOP_S = 5.0


class HandlerCancelledError(Exception):
    """The coroutine was cancelled: it exceeded its timeout, or its partition was given up."""


class _Worker:
    """One worker (`scheduler.Runner`). `current` is its running task, which `cancel` ends."""

    __slots__ = ("_loop", "_self", "_thread", "current")
    can_cancel = True

    def __init__(self, loop: asyncio.AbstractEventLoop, own: asyncio.Task[None]) -> None:
        self._loop = loop
        self._self = own
        #: The thread of the loop, which creates the worker.
        self._thread = get_ident()
        self.current: Task | None = None

    def cancel(self) -> None:
        """End the running call, in any thread."""
        self._loop.call_soon_threadsafe(self._cancel, self.current)

    def stack(self) -> str:
        """Return the stack of the coroutine, in any thread."""
        return stack_of_coroutine(self._self.get_coro(), self._thread)

    def _cancel(self, task: Task | None) -> None:
        if task is not None and task is self.current:
            self._self.cancel()

    def uncancel(self) -> None:
        """Continue after a cancellation."""
        while self._self.cancelling():
            self._self.uncancel()


class CoroutineWorkers:
    """Up to `count` workers on one loop.

    Args:
        work: Where the tasks come from.
        call: Calls the handler with the records of a task; an exception fails the attempt.
        outputs_of: Returns the outputs in a handler's result.
        write_dead_letter: As for `threads.ThreadWorkers`; called on other threads.
        count: The largest number of workers.
        loop: The running event loop.
    """

    def __init__(
        self,
        work: Work,
        call: Callable[[Task], Awaitable[object]],
        outputs_of: Callable[[Task, object], Collection[OutputRecord]],
        write_dead_letter: Callable[[Task], Collection[OutputRecord]],
        count: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._work = work
        self._call = call
        self._outputs_of = outputs_of
        self._dead_letters = _DeadLetterThreads(write_dead_letter, loop, work.clock)
        self._count = count
        self._loop = loop
        #: On the loop only: the workers that count, what idle ones wait for, and the timer of the next attempt.
        self._workers: set[asyncio.Task[None]] = set()
        self._alive = 0
        self._idle: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: With the work's lock: whether `_dispatch` is on its way to the loop.
        self._is_dispatching = False
        self._is_stopping = False
        work.on_available = self._wake

    # ---- the poll loop ----

    def replace(self, disowned: Collection[Task]) -> None:
        """Allow another worker for each that runs a disowned task; it ends after that task."""
        if disowned:
            self._loop.call_soon_threadsafe(self._retire, len(disowned))

    def stop(self) -> None:
        """End all workers; running calls are cancelled. Does not wait."""
        with self._work.lock:
            self._is_stopping = True
        self._dead_letters.stop()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel_all)

    def _retire(self, number: int) -> None:
        self._alive -= number
        self._dispatch()

    def _cancel_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for worker in self._workers:
            worker.cancel()

    # ---- waking workers ----

    def _wake(self) -> None:
        """Have the loop wake a worker; the caller holds the lock, in any thread."""
        if not self._is_dispatching and not self._is_stopping:
            self._is_dispatching = True
            self._loop.call_soon_threadsafe(self._dispatch)

    def _dispatch(self) -> None:
        """Wake a worker if a task may be ready; a worker that took a task wakes the next one."""
        with self._work.lock:
            self._is_dispatching = False
            has_turns, next_at = self._work.scheduler.has_turns, self._work.next_at
        if has_turns or (next_at is not None and next_at <= self._work.now()):
            self._wake_one()
        elif next_at is not None:
            self._dispatch_at(next_at)

    def _dispatch_at(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(at - self._work.now(), 0.0), self._dispatch)

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.pop().set_result(None)
        elif self._alive < self._count and not self._is_stopping:
            self._alive += 1
            started = self._loop.create_task(self._run())
            self._workers.add(started)
            started.add_done_callback(self._workers.discard)

    # ---- a worker ----

    async def _run(self) -> None:
        own = asyncio.current_task()
        if own is None:
            return
        worker = _Worker(self._loop, own)
        WORK_OF_HANDLER.set(self._work)
        done: Task | None = None
        outputs: Collection[OutputRecord] = ()
        while not self._is_stopping:
            task = self._next(worker, done, outputs)
            done = None
            if task is None:
                await self._wait(worker)
                continue
            try:
                result = await self._call(task)
                worker.current = None
                if own.cancelling():
                    worker.uncancel()  # the handler continued after a cancellation
                done, outputs = task, self._outputs_of(task, result)
            except asyncio.CancelledError as cancelled:
                worker.current = None
                self._work.end(task)
                if self._is_stopping:
                    raise
                error = _cancellation(task, cancelled, by_program=own.cancelling() > 0)
                worker.uncancel()
                await self._fail(worker, task, error)
            except BaseException as error:  # noqa: BLE001 - a handler may raise anything; the retry policy decides
                worker.current = None
                await self._fail(worker, task, error)
            if task.is_disowned:
                return  # another worker has replaced this one

    def _next(self, worker: _Worker, done: Task | None, outputs: Collection[OutputRecord]) -> Task | None:
        """End a task that succeeded and return the next one, or None; wake the next worker if more are ready."""
        work = self._work
        with work.lock:
            task = work.exchange(done, outputs)
            if task is None:
                next_at = work.next_at
            else:
                task.runner = worker
                worker.current = task
                has_turns = work.scheduler.has_turns
        if task is None:
            if next_at is not None:
                self._dispatch_at(next_at)
        elif has_turns:
            self._wake_one()
        return task

    async def _wait(self, worker: _Worker) -> None:
        """Wait until a task may be ready. Only `stop` ends this wait with an exception."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if self._is_stopping:
                raise
            worker.uncancel()
            if waiting in self._idle:
                self._idle.remove(waiting)

    async def _fail(self, worker: _Worker, task: Task, error: BaseException) -> None:
        if not self._work.failed(task, error):
            return
        written = await self._written(worker, task)
        if written.error is None:
            self._work.dead_lettered(task, written.outputs)
        else:
            self._work.give_up(task, written.error)

    async def _written(self, worker: _Worker, task: Task) -> _DeadLetterResult:
        """Write a dead letter on another thread; only `stop` interrupts the wait."""
        writing = self._dead_letters.write(task)
        while not writing.done():
            try:
                await asyncio.wait([writing])
            except asyncio.CancelledError:
                if self._is_stopping:
                    raise
                worker.uncancel()
        return writing.result()


class _DeadLetterResult(NamedTuple):
    """The outputs of a dead letter, or the error of its target."""

    outputs: Collection[OutputRecord] = ()
    error: BaseException | None = None


class _DeadLetterThreads:
    """Writes dead letters on daemon threads, because the exit of the program waits for the threads of an executor.

    A target may be a function that blocks forever, also after the grace period.
    """

    def __init__(
        self, write: Callable[[Task], Collection[OutputRecord]], loop: asyncio.AbstractEventLoop, clock: Clock
    ) -> None:
        self._write = write
        self._loop = loop
        self._clock = clock
        #: Notified when there is a task, and at the end.
        self._changed = Condition()
        self._tasks: deque[tuple[Task, Context, asyncio.Future[_DeadLetterResult]]] = deque()
        self._is_over = False
        self._threads = 0

    def write(self, task: Task) -> asyncio.Future[_DeadLetterResult]:
        """Write the dead letter of this task; the future has the result. On the loop only."""
        written: asyncio.Future[_DeadLetterResult] = self._loop.create_future()
        with self._changed:
            self._tasks.append((task, copy_context(), written))
            self._changed.notify()
        if self._threads < _DEAD_LETTER_THREADS:
            self._threads += 1
            self._clock.start_thread(self._run, "consumer-membership-dead-letters")
        return written

    def stop(self) -> None:
        """End the threads after the dead letters in work; does not wait."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _next(self) -> tuple[Task, Context, asyncio.Future[_DeadLetterResult]] | None:
        """Wait for the next task; None: no task will follow."""
        with self._changed:
            while not self._tasks and not self._is_over:
                self._clock.wait(self._changed, None)
            return self._tasks.popleft() if self._tasks else None

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            task, context, written = taken
            try:
                result = _DeadLetterResult(outputs=context.run(self._write, task))
            except BaseException as refused:  # noqa: BLE001 - the target may be a function; the processor stops
                result = _DeadLetterResult(error=refused)
            with suppress(RuntimeError):  # the loop is closed, after a stop that did not wait for this dead letter
                self._loop.call_soon_threadsafe(written.set_result, result)


def _cancellation(task: Task, cancelled: asyncio.CancelledError, *, by_program: bool) -> Exception:
    """Return the error of a call that was cancelled: by the processor, by the program, or by the handler itself."""
    if task.is_cancelled:
        reason = "it exceeded handler_timeout, or its partition was given up"
        error: Exception = HandlerCancelledError(f"the handler was cancelled: {reason}")
    elif by_program:
        error = HandlerInterruptedError("the program cancelled the task of the handler")
    else:
        error = HandlerCancelledError("the handler raised CancelledError")
    error.__cause__ = cancelled.with_traceback(traceback_of_handler(cancelled.__traceback__))
    return error


@contextmanager
def own_event_loop(clock: Clock = SYSTEM_CLOCK) -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop on a thread of its own until the end of the block, which cancels its tasks."""
    loop = clock.new_event_loop()
    is_over = asyncio.Event()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(is_over.wait())

    ended = clock.start_thread(run, "consumer-membership-handlers")
    try:
        yield loop
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(is_over.set)
        clock.wait_for_end(ended, _LOOP_STOP_S)
