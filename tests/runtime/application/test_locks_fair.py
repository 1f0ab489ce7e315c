"""The fair lock around the handle: nobody starves, and a thread never waits for itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from consumer_membership.runtime.application.locks import FairLock
from tests.support.waiting import PATIENCE_S


def run(action: Callable[[], None]) -> threading.Thread:
    """Start it in a thread."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def send_while_main_waits(fair_lock: FairLock, number: signal.Signals, handled: threading.Event) -> None:
    """Send the main thread a signal when it waits for its turn.

    Once more where that came a moment before the wait, which a lock does not look for.
    """
    while fair_lock._door.acquire(blocking=False):
        fair_lock._door.release()
    while not handled.wait(0.05):
        signal.pthread_kill(threading.main_thread().ident or 0, number)


def test_who_waits_goes_before_who_comes_back() -> None:
    """A thread that takes and releases in a loop, as a poll does, lets a waiting one in at once."""
    fair_lock = FairLock()
    got_in = threading.Event()
    turns_after_waiting = 0

    def enter() -> None:
        with fair_lock:
            got_in.set()

    with fair_lock:
        waiter = run(enter)
        while fair_lock._door.acquire(blocking=False):
            fair_lock._door.release()
    while not got_in.is_set():
        with fair_lock:
            turns_after_waiting += 1
    waiter.join(PATIENCE_S)
    assert turns_after_waiting <= 1


def test_it_is_reentrant_while_another_one_waits() -> None:
    """A callback or a signal handler inside must not queue behind the one that waits for its own thread."""
    fair_lock = FairLock()
    with fair_lock:
        waiter = run(fair_lock.__enter__)
        while fair_lock._door.acquire(blocking=False):
            fair_lock._door.release()
        with fair_lock:
            assert fair_lock.is_mine()
        assert fair_lock.is_mine()
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive()
    assert not fair_lock.is_mine()


def test_signal_handler_may_enter_while_its_thread_waits() -> None:
    """The interrupted thread waits at the door; its handler goes through it first."""
    fair_lock = FairLock()
    entered: list[bool] = []
    release = threading.Event()
    inside = threading.Event()

    def hold() -> None:
        with fair_lock:
            inside.set()
            assert release.wait(PATIENCE_S)

    def handle(_: int, __: object) -> None:
        if not release.is_set():
            release.set()
            with fair_lock:
                entered.append(fair_lock.is_mine())

    holder = run(hold)
    assert inside.wait(PATIENCE_S)
    before = signal.signal(signal.SIGUSR1, handle)
    sender = run(lambda: send_while_main_waits(fair_lock, signal.SIGUSR1, release))
    try:
        with fair_lock:
            assert entered == [True]
    finally:
        sender.join(PATIENCE_S)
        signal.signal(signal.SIGUSR1, before)
    holder.join(PATIENCE_S)


def test_interrupted_wait_leaves_nothing_locked() -> None:
    """Ctrl-C while waiting: the exception goes on, and others get in afterwards."""
    fair_lock = FairLock()
    release = threading.Event()
    inside = threading.Event()

    def hold() -> None:
        with fair_lock:
            inside.set()
            assert release.wait(PATIENCE_S)

    holder = run(hold)
    assert inside.wait(PATIENCE_S)
    interrupted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not interrupted.is_set():
            interrupted.set()
            signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, interrupt)
    sender = run(lambda: send_while_main_waits(fair_lock, signal.SIGINT, interrupted))
    try:
        with pytest.raises(KeyboardInterrupt), fair_lock:
            pass
    finally:
        sender.join(PATIENCE_S)
        signal.signal(signal.SIGINT, before)
    release.set()
    holder.join(PATIENCE_S)

    def enter() -> None:
        with fair_lock:
            pass

    other = run(enter)
    other.join(PATIENCE_S)
    assert not other.is_alive()


def test_depth_counts_the_ways_in_and_an_interrupt_goes_back_to_where_it_was() -> None:
    """Read on every release of Python that the package runs on: early ones of 3.11 have no count but in the text."""
    fair_lock = FairLock()
    assert fair_lock._depth == 0
    with fair_lock:
        assert fair_lock._depth == 1
        with fair_lock:
            assert fair_lock._depth == 2
        assert fair_lock._depth == 1
    assert fair_lock._depth == 0
