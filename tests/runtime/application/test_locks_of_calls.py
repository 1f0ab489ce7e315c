"""Who is doing something: believed only as long as the call that said so runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from consumer_membership.runtime.application.locks import CallLock, caller, is_running
from tests.support.waiting import PATIENCE_S


def test_one_call_at_a_time_has_the_lock() -> None:
    """Not even a call further in on the same thread gets it; given back it is free."""
    lock = CallLock()

    def further_in() -> bool:
        return lock.acquire()

    assert lock.acquire()
    assert lock.owner == threading.get_ident()
    assert not further_in()
    lock.release()
    assert lock.owner is None
    assert further_in()


def test_lock_of_a_call_that_was_interrupted_is_free() -> None:
    """Ctrl-C between taking it and the `try` that gives it back: the call is gone, and with it its lock."""
    lock = CallLock()

    def interrupted() -> None:
        assert lock.acquire()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert lock.owner is None
    assert lock.acquire()


def test_another_threads_lock_is_seen() -> None:
    """As long as its call runs."""
    lock = CallLock()
    taken, end = threading.Event(), threading.Event()

    def hold() -> None:
        assert lock.acquire()
        taken.set()
        assert end.wait(PATIENCE_S)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert taken.wait(PATIENCE_S)
    assert lock.owner == thread.ident
    assert not lock.acquire()
    end.set()
    thread.join(PATIENCE_S)
    assert lock.acquire()


class Calls:
    """An object whose methods call each other."""

    def outer(self, then: Callable[[], object]) -> object:
        """Call something."""
        return then()

    def asks(self) -> bool:
        """Whether this thread is inside `outer` of this object, above this call."""
        return is_running(self, frozenset({Calls.outer.__code__}), caller(1))


def test_a_call_knows_whether_it_is_inside_another_one_of_its_object() -> None:
    """Of the same object, on the same thread."""
    one, other = Calls(), Calls()
    assert not one.asks()
    assert one.outer(one.asks)
    assert not other.outer(one.asks)
