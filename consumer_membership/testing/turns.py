"""The turns of threads on the virtual time of a cluster: one thread runs at a time, in a fixed order.

A thread keeps its turn until it waits for a time, a record, a response or another thread. The next turn goes to the
first thread in the queue whose wait is over. If no wait is over, the time moves to the next deadline. So time never
passes while a thread runs, and the order of events is the same in each run.

The thread that starts the first of these threads, usually the test's thread, also takes turns. A thread must not wait
for another thread without the cluster, for example with `threading.Lock` or `join`: the other thread would never run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from time import monotonic

from consumer_membership.errors import UseError

_FOREVER = (
    "all threads of the cluster wait without a limit, so none of them can continue; use a timeout, or "
    'FakeCluster(time="real") if a thread has to continue that the cluster did not start'
)
#: The limit in real seconds for the end of all threads; a thread that waits for another program does not end.
_END_S = 5.0


class ClusterClosedError(BaseException):
    """Ends a waiting thread when the cluster is closed; handlers of `Exception` do not catch it."""


class _Wait:
    """A thread that waits until a condition is true or a time is reached."""

    __slots__ = ("failure", "has_turn", "is_last", "is_over", "thread", "turn_came", "until")

    def __init__(
        self, is_over: Callable[[], bool], until: float, turn_came: threading.Condition, *, is_last: bool
    ) -> None:
        self.is_over = is_over
        self.until = until
        #: Whether all other threads whose wait is over run first.
        self.is_last = is_last
        self.turn_came = turn_came
        self.has_turn = False
        self.failure: Exception | None = None
        self.thread = threading.get_ident()


class Turns:
    """The turns of the threads of one cluster.

    Args:
        lock: The lock of the cluster; the caller of `wait` holds it.
        now: Returns the virtual time.
        move_time: Moves the time to the next deadline, or to the given time if there is no earlier deadline.
    """

    def __init__(self, lock: threading.RLock, now: Callable[[], float], move_time: Callable[[float], None]) -> None:
        self._lock = lock
        self._now = now
        self._move_time = move_time
        #: The threads that wait, in the order in which they began to wait.
        self._waits: list[_Wait] = []
        #: The started threads that have not ended, by identifier, and the thread that started the first one.
        self._threads: dict[int | None, threading.Thread] = {}
        self._starter: int | None = None
        self._is_closed = False

    # ---- waiting ----

    def wait(self, is_over: Callable[[], bool], until: float, *, is_last: bool = False) -> bool:
        """Wait until a condition is true or this time is reached, while other threads run; return the condition.

        Raises:
            TimeoutError: no thread can continue, because all threads wait without a limit.
            UseError: other threads take turns, but the cluster did not start this thread.
        """
        if not self._threads:
            while not is_over():
                if self._now() >= until:
                    return False
                if until == inf:
                    raise TimeoutError(_FOREVER)
                self._move_time(until)
            return True
        if is_over():
            return True
        this_thread = threading.get_ident()
        if self._is_closed and this_thread in self._threads:
            raise ClusterClosedError
        if this_thread not in self._threads and this_thread != self._starter:
            raise UseError(
                f"the thread {threading.current_thread().name!r} waits on virtual time, but FakeCluster.start did not "
                "start it; start it with cluster.start(function)"
            )
        wait = _Wait(is_over, until, threading.Condition(self._lock), is_last=is_last)
        self._waits.append(wait)
        self._pass_turn()
        self._await_turn(wait)
        return is_over()

    def _await_turn(self, wait: _Wait) -> None:
        try:
            while not wait.has_turn:
                if self._is_closed:
                    raise ClusterClosedError
                wait.turn_came.wait()
        finally:
            if wait in self._waits:
                self._waits.remove(wait)
        if wait.failure is not None:
            raise wait.failure

    def _pass_turn(self) -> None:
        """Give the next turn, after moving the time if necessary. The thread of the test raises any failure."""
        try:
            chosen = self._next()
        except Exception as failure:  # noqa: BLE001 - the thread of the test raises it
            chosen = next((one for one in self._waits if one.thread == self._starter), self._waits[-1])
            chosen.failure = failure
        if chosen is not None:
            self._waits.remove(chosen)
            chosen.has_turn = True
            chosen.turn_came.notify()

    def _next(self) -> _Wait | None:
        while self._waits:
            now = self._now()
            ready = [one for one in self._waits if now >= one.until or one.is_over()]
            if ready:
                return min(ready, key=lambda one: one.is_last)
            until = min(one.until for one in self._waits)
            if until == inf:
                raise TimeoutError(_FOREVER)
            self._move_time(until)
        return None

    # ---- threads ----

    def start(self, target: Callable[[], object], name: str) -> Future[None]:
        """Start a thread, which runs at its turn; return a future that is done when the thread has ended."""
        ended: Future[None] = Future()
        with self._lock:
            wait = _Wait(lambda: True, self._now(), threading.Condition(self._lock), is_last=False)
            thread = threading.Thread(target=self._run, args=(target, wait, ended), name=name, daemon=True)
            if not self._threads:
                self._starter = threading.get_ident()
            thread.start()
            wait.thread = thread.ident or 0
            self._threads[thread.ident] = thread
            self._waits.append(wait)
        return ended

    def _run(self, target: Callable[[], object], wait: _Wait, ended: Future[None]) -> None:
        try:
            with self._lock:
                self._await_turn(wait)
            target()
        except ClusterClosedError:
            pass  # the test has ended
        finally:
            with self._lock:
                del self._threads[threading.get_ident()]
                ended.set_result(None)
                if not self._is_closed:
                    self._pass_turn()

    def close(self) -> None:
        """End the started threads; their further calls of the cluster raise `ClusterClosedError`."""
        with self._lock:
            self._is_closed = True
            threads = [one for one in self._threads.values() if one is not threading.current_thread()]
            for wait in self._waits:
                wait.turn_came.notify()
        until = monotonic() + _END_S
        for thread in threads:
            thread.join(max(until - monotonic(), 0.0))
