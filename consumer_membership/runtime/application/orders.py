"""The member's orders for the application, which the first waiting thread sorts for all.

Calls that wait for something on the application's side (a poll without partitions, a synchronous commit, a close) wait
at the queue, and the first of these threads takes the orders from the line for all. So a commit is answered although no
thread polls, and a poll notices a step although another thread took it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from consumer_membership.membership.effects import ApplicationEffect, CommitCompleted, StepEffect
from consumer_membership.runtime.line import Line

#: How long a poll may wait for a record at a time: a step, a commit from another thread, or Ctrl-C waits that long.
SLICE_S = 0.05
#: The slice of an idle poll whose member expects no orders: a slice is most of the cost of a record that comes alone.
IDLE_SLICE_S = 0.1
#: The shortest slice, and the part of the time since the last step that a slice may take: a step does not wake
#: librdkafka, and steps seldom come alone. About twenty slices later, slices are long again.
SHORTEST_SLICE_S = 0.002
SLICE_SHARE = 0.25


class OrderQueue:
    """The orders of one member that wait to be performed."""

    def __init__(self, line: Line) -> None:
        # Re-entrant: a signal handler that commits may interrupt its own thread while it sorts. Acquired directly, not
        # through the condition, whose own `with` is Python: Ctrl-C in there would leave it locked.
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._line = line
        self._take_commit: Callable[[CommitCompleted], bool] = lambda _: False
        #: Each order is in one of these queues from the moment it leaves the line until it is performed. One C call
        #: moves it, so that an interrupt, which may come between any two of this module's lines, leaves it in one of
        #: them.
        self._unsorted: deque[ApplicationEffect] = deque()
        self._waiting: deque[ApplicationEffect] = deque()
        self._begun: deque[ApplicationEffect] = deque()
        line.wake_up.add_reason(lambda: bool(self._unsorted or self._waiting or self._begun))
        self._newest_attempt = 0
        self._stepped_at = float("-inf")
        self._on_change: Callable[[], None] = lambda: None
        line.listen(self.notify)

    def completed_commits_go_to(self, take: Callable[[CommitCompleted], bool]) -> None:
        """Call this with each completed commit; it returns whether a caller waited for the commit."""
        self._take_commit = take

    def notify(self) -> None:
        """Wake all waiting calls: something has changed."""
        with self._lock:
            self._change.notify_all()
        self._on_change()

    def listen(self, on_change: Callable[[], None]) -> None:
        """Also call this after each change, in any thread, for a caller that waits elsewhere; it must not wait."""
        self._on_change = on_change

    def add(self, order: ApplicationEffect) -> None:
        """Add an order of the application itself, to be performed with the others."""
        with self._lock:
            self._waiting.append(order)
            self._line.wake_up.set()
            self._change.notify_all()

    def sort(self) -> None:
        """Take the orders from the line: completed commits go to their callers, the others wait to be performed.

        Only this method clears the wake-up, if there is no reason to keep it set (`WakeUp`).
        """
        with self._lock:
            self._line.move_orders(self._unsorted)
            has_new = bool(self._unsorted)
            while self._unsorted:
                order = self._unsorted[0]
                if isinstance(order, CommitCompleted) and self._take_commit(order):
                    self._unsorted.popleft()
                    continue
                if isinstance(order, StepEffect):
                    self._newest_attempt = max(self._newest_attempt, order.attempt)
                    self._stepped_at = self._line.now()
                self._waiting.extend(map(deque.popleft, (self._unsorted,)))
            if has_new:
                self._change.notify_all()
            self._line.wake_up.review()

    def next(self) -> ApplicationEffect | None:
        """Return the next order to perform, after reading the line; steps of an overtaken attempt are dropped.

        Call `done` after it was performed. Until then this returns the same order, so that an order whose performance
        was interrupted is performed again.
        """
        with self._lock:
            self.sort()
            while self._begun or self._waiting:
                if not self._begun:
                    self._begun.extend(map(deque.popleft, (self._waiting,)))
                order = self._begun[0]
                if not (isinstance(order, StepEffect) and order.attempt < self._newest_attempt):
                    return order
                self._begun.clear()
        return None

    def done(self) -> None:
        """Mark the order that `next` returned as performed."""
        self._begun.clear()

    def done_by(self, callback: Callable[[CommitCompleted], None]) -> None:
        """Call this with the commit that `next` returned, which counts as performed, even if the callback raises.

        One C call removes the order and calls the callback: an interrupt comes before both, or inside the callback.
        """
        next(map(callback, map(deque.popleft, (self._begun,))))  # type: ignore[arg-type]  # the caller matched it

    def wait(self, is_over: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until a condition is true (None: forever), taking orders from the line; return whether it is true."""
        deadline = None if timeout_s is None else self._line.now() + timeout_s
        with self._lock:
            while True:
                self.sort()
                if is_over():
                    return True
                left = None if deadline is None else deadline - self._line.now()
                if left is not None and left <= 0:
                    return False
                self._line.wait(self._change, left)

    @property
    def slice_s(self) -> float:
        """How long a poll may wait for a record before it checks the orders again, in seconds."""
        return min(SLICE_S, max(SHORTEST_SLICE_S, SLICE_SHARE * (self._line.now() - self._stepped_at)))

    @property
    def has_waiting(self) -> bool:
        """Whether an order waits to be performed."""
        return bool(self._begun or self._waiting or self._unsorted) or self._line.has_orders
