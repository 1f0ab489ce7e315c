"""The thread that stops delivery when leases end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from consumer_membership.runtime.line import WakeUp
from consumer_membership.runtime.network.lease_watch import LeaseWatch
from tests.support.waiting import PATIENCE_S


class RecordingWakeUp(WakeUp):
    """A wake-up that records the time at which it was set."""

    __slots__ = ("set_at", "was_set")

    def __init__(self) -> None:
        super().__init__()
        self.was_set = threading.Event()
        self.set_at = 0.0

    def set(self) -> None:
        """Set the wake-up and record the time."""
        super().set()
        self.set_at = time.monotonic()
        self.was_set.set()


def test_lease_that_ends_sets_the_wake_up_of_its_consumer_only() -> None:
    """The lease that ends earliest is handled first, even if it was added last."""
    leases, late, early = LeaseWatch(), RecordingWakeUp(), RecordingWakeUp()
    leases.watch(late, time.monotonic() + PATIENCE_S)
    until = time.monotonic() + 0.05
    leases.watch(early, until)
    assert early.was_set.wait(PATIENCE_S)
    assert early.set_at >= until
    assert not late.is_set
    leases.watch(late, None)


def test_lease_that_grows_sets_nothing_before_its_new_end() -> None:
    """The former end of a lease that was extended has no effect."""
    leases, one = LeaseWatch(), RecordingWakeUp()
    leases.watch(one, time.monotonic() + 0.05)
    until = time.monotonic() + 0.2
    leases.watch(one, until)
    assert one.was_set.wait(PATIENCE_S)
    assert one.set_at >= until


def test_next_lease_of_a_consumer_is_watched_like_the_first() -> None:
    """After a lease or the thread has ended, a new lease of the same consumer is watched again."""
    leases, one = LeaseWatch(), RecordingWakeUp()
    for _ in range(3):
        one.was_set.clear()
        leases.watch(one, time.monotonic())
        assert one.was_set.wait(PATIENCE_S)


def test_lease_in_a_forked_child_is_watched_by_a_separate_thread() -> None:
    """The child inherits neither the parent's leases nor the state of the thread that watches them."""
    leases, parents, one = LeaseWatch(), RecordingWakeUp(), RecordingWakeUp()
    leases.watch(parents, time.monotonic() + PATIENCE_S)
    leases.begin_in_child()
    leases.watch(one, time.monotonic())
    assert one.was_set.wait(PATIENCE_S)
    assert not parents.is_set


def test_leases_of_many_threads_all_end() -> None:
    """The members' threads add, extend and end leases at the same time, and no end is missed."""
    leases, ones = LeaseWatch(), [RecordingWakeUp() for _ in range(50)]

    def member(one: RecordingWakeUp) -> None:
        for _ in range(20):
            leases.watch(one, time.monotonic() + 0.01)
            leases.watch(one, None)
        leases.watch(one, time.monotonic())

    work: list[Callable[[], None]] = [lambda one=one: member(one) for one in ones]  # type: ignore[misc]  # a default
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert all(one.was_set.wait(PATIENCE_S) for one in ones)
