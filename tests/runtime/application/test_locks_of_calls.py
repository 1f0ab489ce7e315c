"""Locks of calls: a call owns its lock, or a thread is inside a call, for exactly as long as the call runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from threading import Lock

import pytest

from consumer_membership.runtime.application.locks import CallLock, RunningCalls
from tests.clients.interrupts import is_cut_short
from tests.support.waiting import PATIENCE_S


def outcome(call: Callable[[], object]) -> object:
    """Return the result of a call on another thread."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return found[0]


def owns(lock: CallLock) -> bool:
    """Return whether a new call acquires the lock; it owns the lock until it returns."""
    running = Lock()
    with running:
        return lock.acquire(running)


def test_call_lock_is_owned_by_one_call_at_a_time() -> None:
    """While a call owns the lock, neither a nested call on the same thread nor another thread acquires it."""
    lock, running = CallLock(), Lock()
    with running:
        assert lock.acquire(running)
        assert lock.owner == threading.get_ident()
        assert not owns(lock)
        assert not outcome(lambda: owns(lock))
        assert lock.owner == threading.get_ident()
    assert lock.owner is None
    assert owns(lock)
    assert outcome(lambda: owns(lock))


def test_call_lock_that_is_released_is_free_before_its_call_ends() -> None:
    """After a release another call may own the lock; the end of the first call changes nothing for the new owner."""
    lock, running, later = CallLock(), Lock(), Lock()
    with later:
        with running:
            assert lock.acquire(running)
            lock.release()
            assert lock.owner is None
            assert lock.acquire(later)
        assert lock.owner == threading.get_ident()


def test_call_lock_of_an_interrupted_call_is_free() -> None:
    """The end of the call frees the lock, although the call never released it."""
    lock, running = CallLock(), Lock()

    def interrupted() -> None:
        with running:
            assert lock.acquire(running)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lock.owner is None
    assert owns(lock)


def test_call_lock_that_is_interrupted_at_any_line_has_no_owner_after_its_call() -> None:
    """After an interrupt at any line of `acquire` or `release`, the lock is free for each thread."""
    lock = CallLock()

    def call() -> None:
        running = Lock()
        with running:
            assert lock.acquire(running)
            lock.release()

    for line in count(1):
        was_cut_short = is_cut_short(call, line)
        assert lock.owner is None
        assert owns(lock)
        assert outcome(lambda: owns(lock))
        if not was_cut_short:
            break
    assert line > 4


def test_call_lock_shows_the_owner_to_other_threads() -> None:
    """Another thread's call is the owner for as long as it runs."""
    lock = CallLock()
    taken, end = threading.Event(), threading.Event()

    def hold() -> None:
        running = Lock()
        with running:
            assert lock.acquire(running)
            taken.set()
            assert end.wait(PATIENCE_S)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert taken.wait(PATIENCE_S)
    assert lock.owner == thread.ident
    assert not owns(lock)
    end.set()
    thread.join(PATIENCE_S)
    assert owns(lock)


def test_running_calls_are_inside_until_the_outermost_one_ends() -> None:
    """A nested call does not end the outer call, and another thread is not inside."""
    calls = RunningCalls()
    assert not calls.is_inside
    with calls.begin():
        assert calls.is_inside
        with calls.begin():
            assert calls.is_inside
        assert calls.is_inside
        assert not outcome(lambda: calls.is_inside)
        with calls.begin():
            assert calls.is_inside
    assert not calls.is_inside


def test_running_calls_that_are_interrupted_at_any_line_leave_no_thread_inside() -> None:
    """The rule holds for an interrupt at each line of a call's beginning, with and without an outer call."""
    calls = RunningCalls()

    def call() -> None:
        with calls.begin():
            assert calls.is_inside

    for line in count(1):
        was_cut_short = is_cut_short(call, line)
        assert not calls.is_inside
        with calls.begin():
            is_cut_short(call, line)
            assert calls.is_inside
        assert not calls.is_inside
        if not was_cut_short:
            break
    assert line > 1
