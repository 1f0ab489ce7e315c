"""The messages between the application's side and the network's side of a line, and the guarantees of the line."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

import pytest

from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.effects import ApplicationEffect, LeaveCompleted
from consumer_membership.membership.events import LeaveRequested, Polled
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.line import (
    ApplicationQuestion,
    CommittedOffsetsQuestion,
    EndOffsetsQuestion,
    Line,
    Post,
)
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S


def committed_offsets_question() -> ApplicationQuestion:
    """Return a question for committed offsets."""
    return CommittedOffsetsQuestion(partitions=frozenset(), timeout_s=1.0)


def end_offsets_question() -> ApplicationQuestion:
    """Return a question for end offsets."""
    return EndOffsetsQuestion(partitions=frozenset())


class Thread:
    """The network's side, which counts the calls."""

    def __init__(self) -> None:
        self.starts = self.rings = 0

    def start(self) -> None:
        self.starts += 1

    def ring(self) -> None:
        self.rings += 1


@pytest.fixture
def thread() -> Thread:
    """The network's side of the line."""
    return Thread()


@pytest.fixture
def line(thread: Thread) -> Line:
    """A line with both sides."""
    line = Line()
    line.connect(thread, view_of(MemberState.UNSUBSCRIBED))
    return line


def test_post_and_ask_are_received_in_order_and_ring(line: Line, thread: Thread) -> None:
    """Events and questions share one queue and are received in the order in which they were sent."""
    first = CommittedOffsetsQuestion(partitions=frozenset(), timeout_s=1.0)
    last = EndOffsetsQuestion(partitions=frozenset())
    line.post(Polled())
    line.ask(first)
    line.post(LeaveRequested())
    line.ask(last)
    assert line.take_posts() == (Polled(), first, LeaveRequested(), last)
    assert line.take_posts() == ()
    assert thread.rings == 4


def test_send_and_ask_start_the_thread_but_post_does_not(line: Line, thread: Thread) -> None:
    """A subscription alone waits for the first poll; after `send`, `close` knows that there is a group to leave."""
    line.post(Polled())
    assert (thread.starts, line.has_sent) == (0, False)
    line.ask(EndOffsetsQuestion(partitions=frozenset()))
    assert (thread.starts, line.has_sent) == (1, False)
    line.send(Polled())
    line.send(Polled())
    assert (thread.starts, line.has_sent) == (2, True)


def test_show_publishes_the_view_and_its_orders_together() -> None:
    """A thread that reads the view also finds its orders, whether it takes them before or after it reads the view."""
    found: deque[ApplicationEffect] = deque()
    taker = threading.Thread(target=lambda: eager.move_orders(found), daemon=True)

    class Eager(Line):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "snapshot":
                assert self.wake_up.is_set
                taker.start()

    eager = Eager()
    eager.show(view_of(MemberState.FATAL), LeaveCompleted())
    taker.join(PATIENCE_S)
    assert found == deque([LeaveCompleted()])


def test_show_gives_each_view_a_new_version(line: Line) -> None:
    """A view that equals the last one also gets a new version, and a view without orders wakes no listener."""
    versions: list[int] = []
    line.listen(lambda: versions.append(line.snapshot.version))
    before = line.snapshot.version
    line.show(line.view)
    assert (line.snapshot.version, versions, line.wake_up.is_set) == (before + 1, [], False)
    line.show(line.view, LeaveCompleted())
    assert (line.snapshot.version, versions, line.wake_up.is_set) == (before + 2, [before + 2], True)


def test_move_orders_takes_all_orders_and_leaves_the_wake_up_set(line: Line) -> None:
    """Taking orders performs none of them; only a review without waiting orders clears the wake-up."""
    line.show(line.view, LeaveCompleted(), LeaveCompleted())
    line.wake_up.review()
    assert line.wake_up.is_set
    taken: deque[ApplicationEffect] = deque()
    line.move_orders(taken)
    assert taken == deque([LeaveCompleted(), LeaveCompleted()])
    assert line.wake_up.is_set
    line.wake_up.review()
    assert not line.wake_up.is_set


@pytest.mark.parametrize("question", [committed_offsets_question, end_offsets_question])
def test_close_cancels_waiting_and_later_questions(line: Line, question: Callable[[], ApplicationQuestion]) -> None:
    """The end of the thread cancels every question, and later events are dropped."""
    waiting, later = question(), question()
    line.ask(waiting)
    line.close()
    line.ask(later)
    assert (waiting.answer.cancelled(), later.answer.cancelled()) == (True, True)
    line.post(LeaveRequested())
    nothing: tuple[Post, ...] = ()
    assert line.take_posts() == nothing


def leased(until: float) -> MembershipView:
    """Return the view of a member whose lease ends at this time."""
    return replace(view_of(MemberState.STABLE), lease_until=until)


def test_lease_ends_during_a_suspension_of_the_machine() -> None:
    """`monotonic` stops during a suspension, so another clock ends the lease before the member adjusts it."""
    suspended_s = 0.0
    line = Line(lambda: monotonic() + suspended_s)
    line.connect(Thread(), leased(monotonic() + 60.0))
    assert not line.lease_is_over
    suspended_s = 3600.0
    assert line.lease_is_over


def test_suspension_is_counted_once_and_later_leases_are_as_long_as_before() -> None:
    """The member reduces its lease by the suspension; the lease of the next heartbeat response has its full length."""
    suspended_s = 0.0
    line = Line(lambda: monotonic() + suspended_s)
    until = monotonic() + 60.0
    line.connect(Thread(), leased(until))
    suspended_s = 3600.0
    counted_s = line.count_suspension()
    assert (round(counted_s), line.count_suspension()) == (3600, 0.0)
    line.show(leased(until - counted_s))
    assert line.lease_is_over
    line.show(leased(monotonic() + 60.0))
    assert not line.lease_is_over


def test_member_without_a_lease_never_withholds_records() -> None:
    """If the group assigned no partitions, no buffered record can belong to another member."""
    line = Line()
    line.connect(Thread(), view_of(MemberState.UNSUBSCRIBED))
    assert not line.lease_is_over
