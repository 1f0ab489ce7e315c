"""What the member orders of the application, sorted by whoever comes first.

Whoever waits for something on the application's side (a poll without partitions, a synchronous commit, a close) waits
at the queue, and whoever comes first takes the orders from the line for all. So a commit is answered although nobody
polls, and a poll learns of a step although another thread took it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from consumer_membership.membership.effects import ApplicationEffect, CommitCompleted, StepEffect
from consumer_membership.runtime.line import Line

#: How long a poll may wait for a record at a time: what a step, a commit from another thread, or Ctrl-C waits for.
SLICE_S = 0.05
#: The same of a calm member, to which nothing comes and of which nothing is wanted.
CALM_SLICE_S = 0.1
#: The shortest slice, and the part of the time since the last step that a slice may take: nothing wakes librdkafka when
#: a step comes, and one step seldom comes alone. Some twenty slices later they are long again.
SHORTEST_SLICE_S = 0.002
SLICE_SHARE = 0.25


class OrderQueue:
    """The orders of one member that wait to be performed."""

    def __init__(self, line: Line) -> None:
        # Re-entrant: a signal handler that commits may interrupt its own thread while it sorts. Taken by itself, not
        # through the condition, whose own `with` is Python: Ctrl-C in there would leave it locked.
        self._lock = threading.RLock()
        self._change = threading.Condition(self._lock)
        self._line = line
        self._take_commit: Callable[[CommitCompleted], bool] = lambda _: False
        self._waiting: deque[ApplicationEffect] = deque()
        line.wake_up.add_reason(lambda: bool(self._waiting))
        self._newest_attempt = 0
        self._stepped_at = float("-inf")
        line.listen(self.notify)

    def completed_commits_go_to(self, take: Callable[[CommitCompleted], bool]) -> None:
        """Show each completed commit to this, which says whether somebody was waiting for it."""
        self._take_commit = take

    def notify(self) -> None:
        """Wake everybody who waits: something has changed."""
        with self._lock:
            self._change.notify_all()

    def add(self, order: ApplicationEffect) -> None:
        """Have this performed as well: the application's own word to itself."""
        with self._lock:
            self._waiting.append(order)
            self._line.wake_up.set()
            self._change.notify_all()

    def sort(self) -> None:
        """Take the orders from the line: completed commits go to their callers, the others wait to be performed.

        Only here is the wake-up cleared, if there is no reason to keep it set (`WakeUp`).
        """
        with self._lock:
            orders = self._line.take_orders()
            for order in orders:
                if isinstance(order, CommitCompleted) and self._take_commit(order):
                    continue
                if isinstance(order, StepEffect):
                    self._newest_attempt = max(self._newest_attempt, order.attempt)
                    self._stepped_at = monotonic()
                self._waiting.append(order)
            if orders:
                self._change.notify_all()
            self._line.wake_up.review()

    def next(self) -> ApplicationEffect | None:
        """The next order to perform, after a look at the line; steps of an overtaken attempt are dropped."""
        with self._lock:
            self.sort()
            while self._waiting:
                order = self._waiting.popleft()
                if not (isinstance(order, StepEffect) and order.attempt < self._newest_attempt):
                    return order
        return None

    def wait(self, is_over: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something is so (None: for ever), taking orders from the line meanwhile; whether it is so."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        with self._lock:
            while True:
                self.sort()
                if is_over():
                    return True
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return False
                self._change.wait(left)

    @property
    def slice_s(self) -> float:
        """How long a poll may wait for a record before it looks here again, in seconds."""
        return min(SLICE_S, max(SHORTEST_SLICE_S, SLICE_SHARE * (monotonic() - self._stepped_at)))

    @property
    def has_waiting(self) -> bool:
        """Whether an order waits to be performed."""
        return bool(self._waiting) or self._line.has_orders
