"""The member's orders: the first thread that takes them sorts them for all waiting threads."""

from __future__ import annotations

import threading

import pytest

from consumer_membership.membership.effects import (
    ApplicationEffect,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application.orders import SHORTEST_SLICE_S, SLICE_S, OrderQueue
from consumer_membership.runtime.line import Line
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S


def commit(number: int) -> CommitCompleted:
    """Return a completed commit."""
    return CommitCompleted(commit_id=number, offsets={}, errors={})


@pytest.fixture
def line() -> Line:
    """The line that carries the orders."""
    line = Line()
    line.show(view_of(MemberState.STABLE))
    return line


def performed(orders: OrderQueue) -> ApplicationEffect | None:
    """Take the next order and mark it as performed."""
    order = orders.next()
    orders.done()
    return order


def test_order_queue_returns_an_order_again_until_it_is_performed(line: Line) -> None:
    """If an interrupt ends the call that took an order, the next call takes it again, and the wake-up stays set."""
    orders = OrderQueue(line)
    line.show(line.view, LeaveCompleted(), commit(1))
    assert [orders.next(), orders.next()] == [LeaveCompleted(), LeaveCompleted()]
    assert (line.wake_up.is_set, orders.has_waiting) == (True, True)
    orders.done()
    assert [performed(orders), performed(orders)] == [commit(1), None]
    assert (line.wake_up.is_set, orders.has_waiting) == (False, False)


def test_order_queue_passes_on_awaited_commits_and_keeps_the_other_orders(line: Line) -> None:
    """A commit without a waiting call is performed in its turn, and on_commit is called then."""
    awaited: list[int] = []

    def take(completed: CommitCompleted) -> bool:
        if completed.commit_id == 1:
            awaited.append(1)
            return True
        return False

    orders = OrderQueue(line)
    orders.completed_commits_go_to(take)
    pause = PausePartitions(attempt=1, partitions=None)
    line.show(line.view, commit(1), pause, commit(2), LeaveCompleted())
    assert [performed(orders) for _ in range(4)] == [pause, commit(2), LeaveCompleted(), None]
    assert awaited == [1]


def test_order_queue_drops_steps_of_an_older_attempt(line: Line) -> None:
    """The queue reads every order on the line before it returns a step."""
    orders = OrderQueue(line)
    line.show(line.view, PausePartitions(attempt=1, partitions=None), RevokePartitions(attempt=1, partitions=None))
    lose = LosePartitions(attempt=2)
    line.show(line.view, lose)
    assert [performed(orders), performed(orders)] == [lose, None]


def test_order_queue_shortens_the_slice_after_a_step(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """An order that is not a step, such as a periodic automatic commit, does not change the slice."""
    now = 1_000.0
    monkeypatch.setattr(line, "now", lambda: now)
    orders = OrderQueue(line)
    line.show(line.view, commit(1))
    orders.sort()
    assert orders.slice_s == SLICE_S
    line.show(line.view, PausePartitions(attempt=1, partitions=None))
    orders.sort()
    assert orders.slice_s == SHORTEST_SLICE_S
    now += 0.1
    assert SHORTEST_SLICE_S < orders.slice_s < SLICE_S
    now += 1
    assert orders.slice_s == SLICE_S


def test_order_queue_keeps_the_wake_up_set_until_the_last_order_is_performed(line: Line) -> None:
    """A wait takes orders from the line, and each poll leaves the hot path until they are performed.

    The hot path of `poll` reads only the wake-up.
    """
    orders = OrderQueue(line)
    line.show(line.view, LeaveCompleted(), commit(2))
    assert not orders.wait(lambda: False, 0)
    assert (line.wake_up.is_set, line.has_orders, orders.has_waiting) == (True, False, True)
    assert performed(orders) == LeaveCompleted()
    assert not orders.wait(lambda: False, 0)
    assert line.wake_up.is_set
    assert performed(orders) == commit(2)
    assert performed(orders) is None
    assert not line.wake_up.is_set
    assert not orders.has_waiting


def test_order_queue_wakes_all_waiting_threads_for_orders_that_one_took(line: Line) -> None:
    """One thread sorts the orders, which include the commits of the other threads."""
    answered: set[int] = set()

    def take(completed: CommitCompleted) -> bool:
        answered.add(completed.commit_id)
        return True

    orders = OrderQueue(line)
    orders.completed_commits_go_to(take)
    threads = [
        threading.Thread(target=lambda n=n: orders.wait(lambda: n in answered, PATIENCE_S), daemon=True)
        for n in (1, 2, 3)
    ]
    for thread in threads:
        thread.start()
    for number in (3, 1, 2):
        line.show(line.view, commit(number))
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_order_queue_wait_returns_false_after_its_timeout(line: Line) -> None:
    """`wait` returns False if the condition is not true when the timeout expires."""
    orders = OrderQueue(line)
    assert orders.wait(lambda: False, 0.01) is False
    assert orders.wait(lambda: True, 0) is True
