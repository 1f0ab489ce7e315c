"""How a worker calls the handler for the records of a task, and reads its result."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection

from confluent_kafka import Message

from consumer_membership.processing.context import HandlerContext
from consumer_membership.processing.handlers import RecordHandler
from consumer_membership.processing.outputs import DEFAULT_MAX_BYTES, OutputRecord, outputs_of
from consumer_membership.processing.processes import WorkerProcess
from consumer_membership.processing.retries import RetryPolicy
from consumer_membership.processing.scheduler import Task
from consumer_membership.processing.shared_lease import SharedLease
from consumer_membership.processing.stacks import stack_of_thread
from consumer_membership.processing.work import ResultRejectedError
from consumer_membership.runtime.clock import SYSTEM_CLOCK
from consumer_membership.types import Instant


class HandlerCalls:
    """Calls one handler.

    `prepare` is applied to each record before each attempt (deserializers). Outputs with more than `max_output_bytes`
    fail the attempt. `make_context` returns the second argument of the handler. Worker processes read `lease`. `now`
    returns the time of the work.
    """

    def __init__(
        self,
        handler: RecordHandler,
        retry: RetryPolicy,
        *,
        is_batch: bool,
        timeout_s: float | None,
        prepare: Callable[[Message], Message] | None,
        max_output_bytes: int = DEFAULT_MAX_BYTES,
        make_context: Callable[[Task, Instant | None], HandlerContext] = HandlerContext,
        lease: SharedLease | None = None,
        now: Callable[[], Instant] = SYSTEM_CLOCK.now,
    ) -> None:
        self._handler = handler
        self._call = handler.call
        self._retry = retry if retry.judges_results else None
        self._is_batch = is_batch
        self._timeout_s = timeout_s
        self._prepare = prepare
        self._is_plain = prepare is None and not is_batch
        self._max_output_bytes = max_output_bytes
        self._takes_context = handler.takes_context
        self._make_context = make_context
        self._lease = lease
        self._now = now

    def run(self, task: Task) -> Collection[OutputRecord]:
        """Call a function; return the outputs. Exceptions of the handler propagate."""
        context = self._make_context(task, self._deadline(task)) if self._takes_context else None
        given = task.records[0][0] if self._is_plain else self._records(task)
        result = self._call(given) if context is None else self._call(given, context)
        if result is None and self._retry is None:
            return ()
        return self.outputs_of(task, self._handler.checked(result))

    def run_in(self, process: WorkerProcess, task: Task) -> Collection[OutputRecord]:
        """Call a function in a worker process; return the outputs."""
        context = self._make_context(task, self._deadline(task))
        return self.outputs_of(task, process.call(self._records(task), context))

    def process(self) -> WorkerProcess:
        """Return a worker process for the handler, which has started."""
        process = WorkerProcess(self._handler, self._lease)
        process.start()
        return process

    def start(self, task: Task) -> Awaitable[object]:
        """Call a coroutine function; await what this returns, and pass it to `outputs_of`."""
        context = self._make_context(task, self._deadline(task)) if self._takes_context else None
        given = task.records[0][0] if self._is_plain else self._records(task)
        return self._handler.start(given, context)

    def outputs_of(self, task: Task, result: object) -> Collection[OutputRecord]:
        """Return the outputs in the result of a handler.

        Raises:
            ResultRejectedError: the retry policy rejects this result, and another attempt follows.
            tenacity.RetryError: the retry policy rejects this result, and this was the last attempt.
        """
        if self._retry is not None:
            delay = self._retry.after_result(task.attempt, result, self._now() - task.first_at)
            if delay is not None:
                raise ResultRejectedError(delay)
        return () if result is None else outputs_of(result, self._handler.name, self._max_output_bytes)

    def _records(self, task: Task) -> Message | list[Message]:
        prepare = self._prepare
        if self._is_batch:
            return task.messages if prepare is None else [prepare(message) for message in task.messages]
        return task.records[0][0] if prepare is None else prepare(task.records[0][0])

    def _deadline(self, task: Task) -> Instant | None:
        return None if self._timeout_s is None else task.began_at + self._timeout_s


class FunctionCall:
    """Calls the handler on the worker's own thread (`threads.WorkerCall`); nothing can end a running call."""

    can_cancel = False

    def __init__(self, calls: HandlerCalls) -> None:
        self.run = calls.run
        self._thread = threading.get_ident()

    def cancel(self) -> None:
        """Do nothing: Python cannot interrupt a thread."""

    def stack(self) -> str:
        """Return the stack of the thread, from the handler on."""
        return stack_of_thread(self._thread)

    def close(self) -> None:
        """Release nothing."""


class ProcessCall:
    """Calls the handler in a process of the worker's own (`threads.WorkerCall`); `cancel` kills that process."""

    can_cancel = True

    def __init__(self, calls: HandlerCalls) -> None:
        self._calls = calls
        self._process = calls.process()
        self.cancel = self._process.cancel
        self.close = self._process.close

    def run(self, task: Task) -> Collection[OutputRecord]:
        """Handle the records of this task and return the outputs."""
        return self._calls.run_in(self._process, task)

    def stack(self) -> str:
        """Return no stack: the handler runs in another process."""
        return ""
