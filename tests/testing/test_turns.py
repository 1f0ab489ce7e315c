"""Threads that take turns in virtual time."""

from __future__ import annotations

import threading
from math import inf

import pytest

from consumer_membership.testing.turns import Turns


class Time:
    """A virtual time that advances only while all threads wait, and the turns of these threads."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lock = threading.RLock()
        self.turns = Turns(self.lock, lambda: self.now, self.move)

    def move(self, until: float) -> None:
        """Advance the time to this moment."""
        self.now = until

    def sleep(self, seconds: float, *, is_last: bool = False) -> None:
        """Wait for this time."""
        with self.lock:
            self.turns.wait(lambda: False, self.now + seconds, is_last=is_last)


def test_threads_run_in_the_order_in_which_their_waits_end() -> None:
    """Waits with equal ends end in the order in which they began, and a last wait ends after all others."""
    time, events = Time(), list[tuple[str, float]]()

    def sleeper(name: str, *seconds: float) -> None:
        for one in seconds:
            time.sleep(one)
            events.append((name, time.now))

    time.turns.start(lambda: sleeper("a", 3, 2), "a")
    time.turns.start(lambda: sleeper("b", 1, 4), "b")
    assert events == []
    time.sleep(5, is_last=True)
    assert events == [("b", 1), ("a", 3), ("b", 5), ("a", 5)]


def test_wait_without_a_limit_that_nothing_ends_raises() -> None:
    """The error is raised in the thread of the test, even if another thread was the last to advance the time."""
    time = Time()
    with time.lock, pytest.raises(TimeoutError, match="wait without a limit"):
        time.turns.wait(lambda: False, inf)
    time.turns.start(lambda: time.sleep(inf), "sleeper")
    with pytest.raises(TimeoutError, match="wait without a limit"):
        time.sleep(inf)
    time.turns.close()


def test_failure_while_the_time_moves_is_raised_in_the_thread_of_the_test() -> None:
    """An error that occurs in another thread, when it advances the time, is raised in the thread of the test."""
    time = Time()

    def fail(until: float) -> None:
        if until > 1:
            raise RuntimeError("broken")
        time.now = until

    time.turns = Turns(time.lock, lambda: time.now, fail)
    time.turns.start(lambda: [time.sleep(1), time.sleep(1)], "sleeper")
    with pytest.raises(RuntimeError, match="broken"):
        time.sleep(60)
    time.turns.close()
