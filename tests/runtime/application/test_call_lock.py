"""Who is doing something: believed only as long as the call that said so runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from consumer_membership.runtime.application.call_lock import CallLock, caller, is_running

PATIENCE_S = 20.0


def test_one_call_at_a_time_has_the_duty() -> None:
    """Not even a call further in on the same thread gets it; given back it is free."""
    duty = CallLock()

    def further_in() -> bool:
        return duty.take()

    assert duty.take()
    assert duty.holder == threading.get_ident()
    assert not further_in()
    duty.give_back()
    assert duty.holder is None
    assert further_in()


def test_duty_of_a_call_that_was_interrupted_is_free() -> None:
    """Ctrl-C between taking it and the `try` that gives it back: the call is gone, and with it its duty."""
    duty = CallLock()

    def interrupted() -> None:
        assert duty.take()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert duty.holder is None
    assert duty.take()


def test_another_threads_duty_is_seen() -> None:
    """As long as its call runs."""
    duty = CallLock()
    taken, end = threading.Event(), threading.Event()

    def hold() -> None:
        assert duty.take()
        taken.set()
        assert end.wait(PATIENCE_S)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert taken.wait(PATIENCE_S)
    assert duty.holder == thread.ident
    assert not duty.take()
    end.set()
    thread.join(PATIENCE_S)
    assert duty.take()


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
