"""The threads in which asyncio consumers wait, and in which they make calls that may take a while.

librdkafka offers nothing that an event loop can wait for, so a thread waits. While at most `THREADS` consumers of a
process wait, each has a thread, which sleeps inside librdkafka and returns as soon as a record arrives. Further
consumers share one thread, which polls each of them every 50 ms: hundreds of idle consumers cost neither a thread nor a
wake-up each.

On the virtual time of a cluster inside the test process, each wait and each call has a thread of that cluster.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TypeVar

from consumer_membership.clients.exceptions import raises_as_confluent
from consumer_membership.runtime.application.session import Session
from consumer_membership.runtime.clock import Clock

#: The number of consumers that have their own thread while they wait.
THREADS = 32
#: The interval at which the shared thread polls its consumers, in seconds.
CHECK_INTERVAL_S = 0.05
#: The longest time for which a consumer of the shared thread has its own thread when it has work, in seconds.
TURN_S = 1.0
#: How long an idle thread is kept, in seconds.
KEPT_S = 10.0

_THREAD_NAME = "consumer-membership-aio"

Job = Callable[[], None]
T = TypeVar("T")


class AwaitedPoll:
    """One awaited `poll` or `consume`, until records are available, the time is over, or it is cancelled."""

    def __init__(
        self, session: Session, limit: int, deadline: float, loop: asyncio.AbstractEventLoop, settle: Settle
    ) -> None:
        self._session = session
        self.clock = session.line.time
        self._now = self.clock.now
        self._prepare = raises_as_confluent(session.prepare)
        self._limit = limit
        self._deadline = deadline
        self._loop = loop
        self._settle = settle
        self._is_wanted = True

    def cancel(self) -> None:
        """Note that no task waits for it any more; the thread that runs it stops soon."""
        self._is_wanted = False
        self._session.line.wake_up.set()

    @property
    def is_calm(self) -> bool:
        """Return whether the only work is to check for records."""
        session = self._session
        return not (session.line.wake_up.is_set or session.has_reports or session.life.is_ending)

    def run(self, seconds: float) -> bool:
        """Poll for this time at most; return whether it is complete and its result is on the way to the task."""
        error: BaseException | None = None
        try:
            self._prepare(self._limit, min(self._deadline, self._now() + seconds), lambda: self._is_wanted)
        except BaseException as raised:  # noqa: BLE001 - the awaited call raises a callback's exception
            error = raised
        if error is None and not self._is_over:
            return False
        call_on_loop(self._loop, lambda: self._settle(error))
        return True

    @property
    def _is_over(self) -> bool:
        session = self._session
        has_records = len(session.buffer.ready) >= self._limit and session.can_hand_out
        is_ending = not self._is_wanted or session.life.is_ending
        return has_records or session.has_notice or is_ending or self._now() >= self._deadline


def _run_to_end(waiting: AwaitedPoll) -> None:
    while not waiting.run(KEPT_S):
        pass


#: Called on the loop with the result: an exception, or None.
Settle = Callable[[BaseException | None], None]


def call_on_loop(loop: asyncio.AbstractEventLoop, call: Job) -> None:
    """Run `call` on the loop; a closed loop runs nothing, which is not an error."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        if not loop.is_closed():
            raise


async def call_in_worker(call: Callable[[], T], clock: Clock) -> T:
    """Make a call in another thread. If the task is cancelled, the call continues and its result is dropped."""
    loop = asyncio.get_running_loop()
    made: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if made.done():
            return
        if error is None:
            made.set_result(result)  # type: ignore[arg-type]  # the call's own
        else:
            made.set_exception(error)

    def make() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - the awaited call raises it
            call_on_loop(loop, partial(settle, None, error))
        else:
            call_on_loop(loop, partial(settle, result, None))

    if clock.is_virtual:
        clock.start_thread(make, _THREAD_NAME)
    else:
        WORKERS.do(make)
    return await made


class Workers:
    """Threads that run jobs one after another and end after an idle time.

    The thread that finished last receives the next job, so that threads which are no longer needed end.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start without threads: at first, and in a forked child, which has none of its parent's threads."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job]] = []

    def do(self, job: Job) -> None:
        """Run this job immediately in an idle thread or in a new one. The job must not raise."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(job)
            return
        threading.Thread(target=self._work, args=[job], name=_THREAD_NAME, daemon=True).start()

    def _work(self, job: Job | None) -> None:
        inbox: SimpleQueue[Job] = SimpleQueue()
        while job is not None:
            job()
            job = None  # so that an idle thread keeps no reference to the job's objects
            with self._lock:
                self._idle.append(inbox)
            job = self._next(inbox)

    def _next(self, inbox: SimpleQueue[Job]) -> Job | None:
        with suppress(Empty):
            return inbox.get(timeout=KEPT_S)
        with self._lock:
            if inbox in self._idle:
                self._idle.remove(inbox)
                return None
        return inbox.get()  # it received a job at this moment


class Waiters:
    """The polls of this process that wait for records."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.reset()

    def reset(self) -> None:
        """Start without waiting polls: at first, and in a forked child."""
        self._lock = threading.Lock()
        self._busy = 0
        self._sharing: list[AwaitedPoll] = []
        self._joined = threading.Event()
        self._is_looking = False

    def begin(self, waiting: AwaitedPoll) -> None:
        """Wait for this poll: in its own thread, or beyond `THREADS` in the shared thread."""
        if waiting.clock.is_virtual:
            waiting.clock.start_thread(partial(_run_to_end, waiting), _THREAD_NAME)
            return
        with self._lock:
            has_thread = self._busy < THREADS
            if has_thread:
                self._busy += 1
        if has_thread:
            self._workers.do(lambda: self._wait(waiting))
        else:
            self._share(waiting)

    def _wait(self, waiting: AwaitedPoll) -> None:
        try:
            _run_to_end(waiting)
        finally:
            with self._lock:
                self._busy -= 1

    def _share(self, waiting: AwaitedPoll) -> None:
        with self._lock:
            self._sharing.append(waiting)
            is_first = not self._is_looking
            self._is_looking = True
        self._joined.set()
        if is_first:
            self._workers.do(self._poll_all)

    def _poll_all(self) -> None:
        """Poll the consumers of the shared thread in turn; one with work gets its own thread for a moment."""
        while True:
            with self._lock:
                if not self._sharing:
                    self._is_looking = False
                    return
                others, self._sharing = self._sharing, []
            left = [one for one in others if self._is_left(one)]
            with self._lock:
                self._sharing += left
                self._joined.clear()
            self._joined.wait(CHECK_INTERVAL_S)

    def _is_left(self, waiting: AwaitedPoll) -> bool:
        """Run a poll without waiting; return whether it must continue to wait."""
        if waiting.is_calm:
            return not waiting.run(0.0)
        # Its callbacks may take a long time, and the loop may have to run them.
        self._workers.do(lambda: self._turn(waiting))
        return False

    def _turn(self, waiting: AwaitedPoll) -> None:
        until = monotonic() + TURN_S
        is_over = waiting.run(0.0)
        while not is_over and not waiting.is_calm and monotonic() < until:
            is_over = waiting.run(CHECK_INTERVAL_S)
        if not is_over:
            self.begin(waiting)


#: One per process: its consumers, of any event loop, share a bounded number of threads.
WORKERS = Workers()
WAITERS = Waiters(WORKERS)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=WORKERS.reset)
    os.register_at_fork(after_in_child=WAITERS.reset)
