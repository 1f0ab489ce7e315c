"""The scheduler of a cluster inside the test process, on virtual or on real time.

Each action of the cluster and its members is a call in one queue, or a deadline of one actor, and runs under one lock,
in a fixed order. On virtual time nothing happens in the background: a call that waits (a `poll` without a record) moves
the time to the next deadline, and takes no real time; threads take turns (`turns`). On real time one thread acts at the
deadlines.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from asyncio import _get_running_loop
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from consumer_membership.errors import UseError
from consumer_membership.runtime.clock import SYSTEM_CLOCK
from consumer_membership.testing.turns import Turns

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

#: The virtual time at the start, in seconds; not 0, because the members' times may be before it.
_START = 1_000.0
#: A wait of this length on virtual time means that a call waits for an event that will never happen.
LONGEST_WAIT_S = 7 * 24 * 3600.0


class Actor(Protocol):
    """A member, or the coordinator."""

    def next_deadline(self) -> float | None:
        """Return the time of the next `pass_time` call; None: no call is necessary."""

    def pass_time(self, now: float) -> None:
        """Perform the actions that are due."""


class ClusterEngine:
    """Runs the calls and deadlines of one cluster. Any thread may call each method."""

    def __init__(self, *, is_virtual: bool) -> None:
        self.is_virtual = is_virtual
        self._virtual_now = _START
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._calls: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._actors: list[Actor] = []
        self._is_running = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._turns = Turns(self._lock, self.now, self._move_time)

    # ---- the clock of the consumers ----

    def now(self) -> float:
        """Return the current time in seconds."""
        return self._virtual_now if self.is_virtual else monotonic()

    #: Sessions use the same clock, because this machine is never suspended.
    session_time = now

    def wait(self, change: threading.Condition, timeout_s: float | None) -> None:
        """Wait until this condition, whose lock the caller holds, is notified, or until the timeout."""
        if not self.is_virtual:
            change.wait(timeout_s)
            return
        notified = threading.Lock()
        notified.acquire()  # `notify` releases it, as in `Condition.wait`
        waiting: deque[threading.Lock] = change._waiters  # type: ignore[attr-defined]  # noqa: SLF001
        waiting.append(notified)
        try:
            with _released(change):
                self._wait(lambda: not notified.locked(), inf if timeout_s is None else timeout_s)
        finally:
            if notified in waiting:
                waiting.remove(notified)

    def wait_for_end(self, future: Future[Any], timeout_s: float | None = None) -> None:
        """Wait until this future is done, at most for this time; None: without a limit."""
        if self.is_virtual:
            self._wait(future.done, inf if timeout_s is None else timeout_s)
        else:
            SYSTEM_CLOCK.wait_for_end(future, timeout_s)

    def start_thread(self, target: Callable[[], object], name: str) -> Future[None]:
        """Start a thread; on virtual time it takes turns with the other threads."""
        if not self.is_virtual:
            return SYSTEM_CLOCK.start_thread(target, name)
        loop = _get_running_loop()
        if loop is not None and not hasattr(loop, "is_virtual"):
            raise UseError(
                "this event loop runs on real time, and the cluster on virtual time; run the coroutine with "
                'cluster.run(coroutine), or use FakeCluster(time="real")'
            )
        return self._turns.start(target, name)

    def new_event_loop(self) -> AbstractEventLoop:
        """Return an event loop that uses the cluster's time."""
        if not self.is_virtual:
            return SYSTEM_CLOCK.new_event_loop()
        from consumer_membership.testing.event_loop import VirtualEventLoop  # noqa: PLC0415 - few tests use asyncio

        return VirtualEventLoop(self.now, self._wait, self.start_thread)

    def _wait(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        with self._lock:
            return self._turns.wait(is_over, self._virtual_now + timeout_s)

    # ---- actions ----

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock for a change, so that no other thread acts; at the end, run all calls that it has queued."""
        with self._lock:
            yield
            self.run_due()

    def soon(self, call: Callable[[], object]) -> None:
        """Queue this call after all calls that are already queued."""
        with self._lock:
            self._calls.append(call)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """Schedule this call after this many seconds."""
        with self._lock:
            heapq.heappush(self._timers, (self.now() + delay_s, next(self._numbers), call))
            self._changed.notify_all()

    @property
    def actors(self) -> tuple[Actor, ...]:
        """The current actors."""
        return tuple(self._actors)

    def add(self, actor: Actor) -> None:
        """Add this actor, and call it at its deadlines."""
        with self._lock:
            self._actors.append(actor)
            if not self.is_virtual and self._thread is None:
                self._thread = threading.Thread(target=self._act, name="fake cluster", daemon=True)
                self._thread.start()

    def remove(self, actor: Actor) -> None:
        """Remove this actor. Idempotent."""
        with self._lock:
            if actor in self._actors:
                self._actors.remove(actor)

    def run_due(self) -> None:
        """Run the queued calls, unless a queued call is already running."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._calls:
                self._calls.popleft()()
        finally:
            self._is_running = False
        self._changed.notify_all()

    # ---- time ----

    def await_change(self, is_over: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until this is true, while other actions continue; return False after the timeout."""
        with self._lock:
            until = self.now() + timeout_s
            self.run_due()
            if self.is_virtual:
                if timeout_s >= LONGEST_WAIT_S and not is_over():
                    raise TimeoutError(
                        f"a call waits for more than {LONGEST_WAIT_S:g} s of virtual time; use a timeout"
                    )
                return self._turns.wait(is_over, until)
            while not is_over():
                self._raise_failure()
                left_s = until - self.now()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
            return True

    def advance(self, seconds: float) -> None:
        """On virtual time, wait this long, and until the other threads have done everything that is due by then."""
        with self._lock:
            self.run_due()
            self._turns.wait(lambda: False, self._virtual_now + seconds, is_last=True)

    def _move_time(self, until: float) -> None:
        """Move the time to the next deadline, or to this time if there is no earlier deadline."""
        deadline = self._next_deadline()
        self._virtual_now = until if deadline is None else max(self._virtual_now, min(deadline, until))
        self._pass_time()

    def _next_deadline(self) -> float | None:
        moments = [moment for actor in self._actors if (moment := actor.next_deadline()) is not None]
        return min([*moments, *(timer[0] for timer in self._timers[:1])], default=None)

    def _pass_time(self) -> None:
        now = self.now()
        while self._timers and self._timers[0][0] <= now:
            self._calls.append(heapq.heappop(self._timers)[2])
        for actor in tuple(self._actors):
            deadline = actor.next_deadline()
            if deadline is not None and deadline <= now:
                actor.pass_time(now)
        self.run_due()

    def _act(self) -> None:
        """Act at the deadlines, on real time, until the cluster is closed."""
        with self._lock:
            while not self._is_closed:
                try:
                    self._pass_time()
                except Exception as error:  # noqa: BLE001 - the next wait of the test raises it
                    self._failure = error
                deadline = self._next_deadline()
                self._changed.wait(None if deadline is None else max(deadline - self.now(), 0.0))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def close(self) -> None:
        """End the thread of real time."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()

    def end_threads(self) -> None:
        """End the threads that take turns, because they hold locks of consumers while they wait."""
        self._turns.close()


@contextmanager
def _released(change: threading.Condition) -> Iterator[None]:
    """Release the lock of a condition completely, as `wait` does, even if the thread acquired it several times."""
    state = change._release_save()  # type: ignore[attr-defined]  # noqa: SLF001 - like `Condition.wait`
    try:
        yield
    finally:
        change._acquire_restore(state)  # type: ignore[attr-defined]  # noqa: SLF001 - like `Condition.wait`
