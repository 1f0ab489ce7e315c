"""The fair lock around the handle: no thread starves, and a thread never waits for itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from types import FrameType

import pytest

from consumer_membership.runtime.application.locks import FairLock
from tests.clients.interrupts import Interrupt, is_cut_short, storm
from tests.support.waiting import PATIENCE_S


def run(action: Callable[[], object]) -> threading.Thread:
    """Start an action in a thread."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def send_while_main_waits(fair_lock: FairLock, number: signal.Signals, handled: threading.Event) -> None:
    """Send the main thread a signal while it waits for its turn.

    The signal is repeated if it arrived just before the wait, because a lock does not check for that.
    """
    while fair_lock._entry.acquire(blocking=False):
        fair_lock._entry.release()
    while not handled.wait(0.05):
        signal.pthread_kill(threading.main_thread().ident or 0, number)


def test_fair_lock_prefers_a_waiting_thread_to_a_returning_one() -> None:
    """If a thread acquires and releases the lock in a loop, as a poll does, a waiting thread acquires it next."""
    fair_lock = FairLock()
    got_in = threading.Event()
    turns_after_waiting = 0

    def enter() -> None:
        with fair_lock:
            got_in.set()

    with fair_lock:
        waiter = run(enter)
        while fair_lock._entry.acquire(blocking=False):
            fair_lock._entry.release()
    while not got_in.is_set():
        with fair_lock:
            turns_after_waiting += 1
    waiter.join(PATIENCE_S)
    assert turns_after_waiting <= 1


def test_fair_lock_is_reentrant_while_another_thread_waits() -> None:
    """A callback or signal handler inside must not queue behind a thread that waits for its own thread."""
    fair_lock = FairLock()
    with fair_lock:
        waiter = run(fair_lock.__enter__)
        while fair_lock._entry.acquire(blocking=False):
            fair_lock._entry.release()
        with fair_lock:
            assert fair_lock.is_mine()
        assert fair_lock.is_mine()
    waiter.join(PATIENCE_S)
    assert not waiter.is_alive()
    assert not fair_lock.is_mine()


def test_fair_lock_is_available_to_a_signal_handler_while_its_thread_waits() -> None:
    """The interrupted thread waits for the lock, and its signal handler acquires the lock first."""
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


def test_fair_lock_is_free_after_an_interrupted_wait() -> None:
    """Ctrl-C during the wait raises KeyboardInterrupt, and other threads acquire the lock afterwards."""
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


class Other:
    """A thread that acquires and releases the lock on request."""

    def __init__(self, fair_lock: FairLock) -> None:
        self._fair_lock = fair_lock

    def gets_in(self) -> bool:
        """Return whether the lock is free for another thread."""
        found: list[bool] = []

        def enter() -> None:
            if self._fair_lock.acquire(blocking=False):
                found.append(True)
                self._fair_lock.release()

        run(enter).join(PATIENCE_S)
        return bool(found)


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_fair_lock_that_is_interrupted_at_any_line_is_held_once_for_each_block(depth: int) -> None:
    """An interrupted entry adds nothing to the count.

    A completed entry adds one, which the end of its block removes.
    """
    fair_lock = FairLock()
    other = Other(fair_lock)

    def enter_and_leave() -> None:
        with fair_lock:
            assert fair_lock.is_mine()

    for line in count(1):
        for _ in range(depth):
            fair_lock.__enter__()
        was_cut_short = is_cut_short(enter_and_leave, line)
        for _ in range(depth):
            assert fair_lock.is_mine()
            assert not other.gets_in()
            fair_lock.release()
        assert not fair_lock.is_mine()
        assert other.gets_in()
        assert fair_lock._entry.acquire(blocking=False)
        fair_lock._entry.release()
        if not was_cut_short:
            break
    assert line > 4


@pytest.mark.slow
def test_fair_lock_in_a_storm_of_signals_is_held_once_for_each_block() -> None:
    """Signals between any two instructions, even right after C code acquired the lock, do not change the count."""
    fair_lock = FairLock()
    other = Other(fair_lock)
    interrupts: list[None] = []
    calls: list[None] = []
    inside: list[int] = []

    def nest() -> None:
        with fair_lock:
            inside.append(1)
            with fair_lock:
                inside.append(2)
            assert fair_lock.is_mine()
            calls.append(None)

    with storm(interrupts, calls, seed=0):
        while len(interrupts) < 50:
            with suppress(Interrupt):
                nest()
            assert not fair_lock._is_owned()  # type: ignore[attr-defined]  # implemented in C, so a signal cannot interrupt it
    assert not fair_lock.is_mine()
    assert other.gets_in()
