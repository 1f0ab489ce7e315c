"""The threads that wait for consumers of asyncio, and make their calls that may take a while.

librdkafka has nothing that an event loop could wait for, so a thread waits. As long as few consumers of a process wait
each has a thread, which sleeps inside librdkafka and is there as soon as a record is. Those beyond share one thread,
which looks at each of them several times a second: hundreds of idle consumers cost neither a thread nor a wake-up each.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic

from consumer_membership.clients.exceptions import raises_as_confluent
from consumer_membership.runtime.application.session import Session

#: So many consumers have a thread each while they wait.
THREADS = 32
#: How often the shared thread looks at the others.
CHECK_INTERVAL_S = 0.05
#: How long at most one of the others has a thread of its own when something is to be done for it.
TURN_S = 1.0
#: How long a thread without work stays.
KEPT_S = 10.0

Job = Callable[[], None]


class AwaitedPoll:
    """One awaited `poll` or `consume`: until there is something to hand out, the time is over, or it is cancelled."""

    def __init__(
        self, session: Session, limit: int, deadline: float, loop: asyncio.AbstractEventLoop, settle: Settle
    ) -> None:
        self._session = session
        self._prepare = raises_as_confluent(session.prepare)
        self._limit = limit
        self._deadline = deadline
        self._loop = loop
        self._settle = settle
        self._is_wanted = True

    def cancel(self) -> None:
        """Nobody waits any more; whoever is at it looks soon."""
        self._is_wanted = False
        self._session.line.wake_up.set()

    @property
    def is_calm(self) -> bool:
        """Whether nothing is to be done but to look for records."""
        session = self._session
        return not (session.line.wake_up.is_set or session.has_reports or session.life.is_ending)

    def run(self, until: float) -> bool:
        """Poll until then at most; whether it is over, and whoever awaits it told."""
        error: BaseException | None = None
        try:
            self._prepare(self._limit, min(self._deadline, until), lambda: self._is_wanted)
        except BaseException as raised:  # noqa: BLE001 - what a callback raises comes out of the awaited call
            error = raised
        if error is None and not self._is_over:
            return False
        tell(self._loop, lambda: self._settle(error))
        return True

    @property
    def _is_over(self) -> bool:
        session = self._session
        has_records = len(session.buffer.ready) >= self._limit and session.can_hand_out
        is_ending = not self._is_wanted or session.life.is_ending
        return has_records or session.has_notice or is_ending or monotonic() >= self._deadline


#: Told on the loop what came of it: an exception, or None.
Settle = Callable[[BaseException | None], None]


def tell(loop: asyncio.AbstractEventLoop, call: Job) -> None:
    """Have the loop do this; a loop that is closed has nobody left to tell."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        if not loop.is_closed():
            raise


class Workers:
    """Threads that do one job after another and end when there is none for a while.

    Who was busy last is busy next, so that those which are not needed any more come to their end.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """There are no threads: at the beginning, and in the child of a fork, which has none of its parent's."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job]] = []

    def do(self, job: Job) -> None:
        """Have a thread do this now: one that is idle, or a new one. It must not raise."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(job)
            return
        threading.Thread(target=self._work, args=[job], name="consumer-membership-aio", daemon=True).start()

    def _work(self, job: Job | None) -> None:
        inbox: SimpleQueue[Job] = SimpleQueue()
        while job is not None:
            job()
            job = None  # what it holds is not kept by an idle thread
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
        return inbox.get()  # it was given just now


class Waiters:
    """Whoever waits for records in this process."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self.begin_anew()

    def begin_anew(self) -> None:
        """Nobody waits, as in the child of a fork."""
        self._lock = threading.Lock()
        self._busy = 0
        self._others: list[AwaitedPoll] = []
        self._comes = threading.Event()
        self._is_looking = False

    def begin(self, waiting: AwaitedPoll) -> None:
        """Wait for this one."""
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
            while not waiting.run(monotonic() + KEPT_S):
                pass
        finally:
            with self._lock:
                self._busy -= 1

    def _share(self, waiting: AwaitedPoll) -> None:
        with self._lock:
            self._others.append(waiting)
            is_first = not self._is_looking
            self._is_looking = True
        self._comes.set()
        if is_first:
            self._workers.do(self._look)

    def _look(self) -> None:
        """Look at the others in turn, until there are none; who has something to do gets a thread for a moment."""
        while True:
            with self._lock:
                if not self._others:
                    self._is_looking = False
                    return
                others, self._others = self._others, []
            left = [one for one in others if self._is_left(one)]
            with self._lock:
                self._others += left
                self._comes.clear()
            self._comes.wait(CHECK_INTERVAL_S)

    def _is_left(self, waiting: AwaitedPoll) -> bool:
        """Look at one; whether it waits on."""
        if waiting.is_calm:
            return not waiting.run(0.0)
        # Its callbacks may take their time, and the loop may have to run them.
        self._workers.do(lambda: self._turn(waiting))
        return False

    def _turn(self, waiting: AwaitedPoll) -> None:
        until = monotonic() + TURN_S
        is_over = waiting.run(0.0)
        while not is_over and not waiting.is_calm and monotonic() < until:
            is_over = waiting.run(monotonic() + CHECK_INTERVAL_S)
        if not is_over:
            self.begin(waiting)


#: Of the process: its consumers, of any event loop, share a bounded number of threads.
WORKERS = Workers()
WAITERS = Waiters(WORKERS)
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=WORKERS.begin_anew)
    os.register_at_fork(after_in_child=WAITERS.begin_anew)
