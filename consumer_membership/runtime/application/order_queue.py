"""Sorts the application's mail: commits that somebody waits for, and everything else in its order.

Whoever waits for something on the application's side (a poll without partitions, a synchronous commit, a close) waits
here, and whoever comes first sorts the mail for all. So a commit is answered although nobody polls, and a poll learns
of a step although another thread took the mail.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CommitCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from consumer_membership.runtime.mailbox import Mailbox

#: How long a poll may wait for a record at a time: what a step, a commit from another thread, or Ctrl-C waits for.
SLICE_S = 0.05
#: The shortest slice, and the part of the time since the last step that a slice may take: nothing wakes librdkafka when
#: a step comes, and one step seldom comes alone. Some twenty slices later they are long again.
SHORTEST_SLICE_S = 0.002
SLICE_SHARE = 0.25


class OrderQueue:
    """The application's mailbox and what was taken out of it and waits to be performed."""

    def __init__(self, take_commit: Callable[[CommitCompleted], bool]) -> None:
        """`take_commit` is shown each completed commit and says whether somebody was waiting for it."""
        # Re-entrant: a signal handler that commits may interrupt its own thread while it sorts. Taken by itself, not
        # through the condition, whose own `with` is Python: Ctrl-C in there would leave it locked.
        self._lock = threading.RLock()
        self._bell = threading.Condition(self._lock)
        self._take_commit = take_commit
        self.mailbox: Mailbox[ApplicationEffect] = Mailbox(self.ring)
        self._waiting: deque[ApplicationEffect] = deque()
        self._newest_attempt = 0
        self._stepped_at = float("-inf")

    def ring(self) -> None:
        """Wake everybody who waits: something has changed."""
        with self._lock:
            self._bell.notify_all()

    def sort(self) -> None:
        """Take the mail out and sort it: completed commits to their callers, the rest to wait its turn."""
        with self._lock:
            mail = self.mailbox.take()
            for effect in mail:
                match effect:
                    case CommitCompleted() if self._take_commit(effect):
                        pass
                    case PausePartitions() | RevokePartitions() | LosePartitions() | AssignPartitions():
                        self._newest_attempt = max(self._newest_attempt, effect.attempt)
                        self._stepped_at = monotonic()
                        self._waiting.append(effect)
                    case _:
                        self._waiting.append(effect)
            if mail:
                self._bell.notify_all()

    def next(self) -> ApplicationEffect | None:
        """The next effect to perform, after a look into the mailbox; steps of an overtaken attempt are dropped."""
        with self._lock:
            self.sort()
            while self._waiting:
                effect = self._waiting.popleft()
                match effect:
                    case PausePartitions() | RevokePartitions() | LosePartitions() | AssignPartitions():
                        if effect.attempt == self._newest_attempt:
                            return effect
                    case _:
                        return effect
        return None

    def keep_open(self) -> None:
        """Send the hot path of `poll` the long way as long as something waits."""
        with self._lock:
            if self._waiting:
                self.mailbox.full = True

    def wait(self, is_over: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until something is so (None: for ever), sorting the mail meanwhile; whether it is so."""
        deadline = None if timeout_s is None else monotonic() + timeout_s
        with self._lock:
            while True:
                self.sort()
                if is_over():
                    return True
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return False
                self._bell.wait(left)

    @property
    def slice_s(self) -> float:
        """How long a poll may wait for a record before it looks here again, in seconds."""
        return min(SLICE_S, max(SHORTEST_SLICE_S, SLICE_SHARE * (monotonic() - self._stepped_at)))

    @property
    def has_waiting(self) -> bool:
        """Whether something waits to be performed."""
        return bool(self._waiting) or self.mailbox.full
