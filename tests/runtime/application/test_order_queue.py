"""The application's mail: sorted by whoever comes first, for everybody who waits."""

from __future__ import annotations

import threading

import pytest

from consumer_membership.membership.effects import (
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from consumer_membership.runtime.application import order_queue as rooms
from consumer_membership.runtime.application.order_queue import SHORTEST_SLICE_S, SLICE_S, OrderQueue
from consumer_membership.runtime.mailbox import Mailbox

PATIENCE_S = 20.0


def commit(number: int) -> CommitCompleted:
    """A completed commit."""
    return CommitCompleted(commit_id=number, offsets={}, errors={})


def test_what_is_done_first_and_the_items_are_seen_together() -> None:
    """Whoever sees what was done finds the items, although it looks before they are there; and the other way round."""
    mailbox: Mailbox[str] = Mailbox()
    is_done = False
    found: list[tuple[str, ...]] = []

    def first() -> None:
        nonlocal is_done
        is_done = True
        assert mailbox.full
        taker.start()

    taker = threading.Thread(target=lambda: found.append(mailbox.take()), daemon=True)
    mailbox.put("item", first=first)
    taker.join(PATIENCE_S)
    assert (is_done, found) == (True, [("item",)])
    Mailbox[str]().put(first=lambda: found.append(()))
    assert found == [("item",), ()]


def test_commits_go_to_those_who_wait_and_the_rest_keeps_its_order() -> None:
    """A commit that nobody waits for is performed in its place: on_commit is called there."""
    awaited: list[int] = []

    def take(completed: CommitCompleted) -> bool:
        if completed.commit_id == 1:
            awaited.append(1)
            return True
        return False

    order_queue = OrderQueue(take)
    pause = PausePartitions(attempt=1, partitions=None)
    order_queue.mailbox.put(commit(1), pause, commit(2), LeaveCompleted())
    assert [order_queue.next() for _ in range(4)] == [pause, commit(2), LeaveCompleted(), None]
    assert awaited == [1]


def test_steps_of_an_older_attempt_are_dropped() -> None:
    """The whole mailbox is looked at before a step is performed."""
    order_queue = OrderQueue(lambda _: False)
    order_queue.mailbox.put(PausePartitions(attempt=1, partitions=None), RevokePartitions(attempt=1, partitions=None))
    lose = LosePartitions(attempt=2)
    order_queue.mailbox.put(lose)
    assert [order_queue.next(), order_queue.next()] == [lose, None]


def test_polls_look_for_mail_more_often_after_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no step, an automatic commit every few seconds, changes nothing."""
    now = 1_000.0
    monkeypatch.setattr(rooms, "monotonic", lambda: now)
    order_queue = OrderQueue(lambda _: False)
    order_queue.mailbox.put(commit(1))
    order_queue.sort()
    assert order_queue.slice_s == SLICE_S
    order_queue.mailbox.put(PausePartitions(attempt=1, partitions=None))
    order_queue.sort()
    assert order_queue.slice_s == SHORTEST_SLICE_S
    now += 0.1
    assert SHORTEST_SLICE_S < order_queue.slice_s < SLICE_S
    now += 1
    assert order_queue.slice_s == SLICE_S


def test_hot_path_goes_the_long_way_as_long_as_something_waits() -> None:
    """`full` is what the hot path of poll reads."""
    order_queue = OrderQueue(lambda _: False)
    order_queue.mailbox.put(LeaveCompleted(), LeaveCompleted())
    order_queue.next()
    assert not order_queue.mailbox.full
    order_queue.keep_open()
    assert order_queue.mailbox.full
    assert order_queue.next() == LeaveCompleted()
    order_queue.keep_open()
    assert not order_queue.mailbox.full
    assert not order_queue.has_waiting


def test_everybody_who_waits_is_woken_by_what_one_of_them_took() -> None:
    """One thread sorts the mail, and the other's commit is in it."""
    answered: set[int] = set()

    def take(completed: CommitCompleted) -> bool:
        answered.add(completed.commit_id)
        return True

    order_queue = OrderQueue(take)
    threads = [
        threading.Thread(target=lambda n=n: order_queue.wait(lambda: n in answered, PATIENCE_S), daemon=True)  # type: ignore[misc]
        for n in (1, 2, 3)
    ]
    for thread in threads:
        thread.start()
    for number in (3, 1, 2):
        order_queue.mailbox.put(commit(number))
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


def test_wait_ends_when_the_time_is_over() -> None:
    """And says that it did not come true."""
    order_queue = OrderQueue(lambda _: False)
    assert order_queue.wait(lambda: False, 0.01) is False
    assert order_queue.wait(lambda: True, 0) is True
