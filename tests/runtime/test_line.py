"""What crosses between the two sides, and what each may rely on."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from os import PathLike
from pathlib import Path

import pytest

from consumer_membership.membership.effects import ApplicationEffect, LeaveCompleted
from consumer_membership.membership.events import LeaveRequested, Polled
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.line import CommittedOffsetsQuestion, CredentialsChanged, Line, Post
from consumer_membership.runtime.membership_thread import MemberFigures
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S

CREDENTIALS = ("user", "secret")


class Thread:
    """The other end, which counts what is done to it."""

    def __init__(self) -> None:
        self.starts = self.rings = 0
        self.stopped_within_s: float | None = None

    def start(self) -> None:
        self.starts += 1

    def ring(self) -> None:
        self.rings += 1

    def figures(self) -> MemberFigures:
        return MemberFigures(coordinator_since=1.0)

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        return Path(path or cause)

    def dump_by_itself(self, kind: str, cause: str) -> None:
        assert kind
        assert cause

    def stop(self, timeout_s: float) -> None:
        self.stopped_within_s = timeout_s


@pytest.fixture
def thread() -> Thread:
    """The other end."""
    return Thread()


@pytest.fixture
def line(thread: Thread) -> Line:
    """A line with both ends."""
    line = Line(lambda: (1, 2))
    line.connect(thread)
    line.show(view_of(MemberState.UNSUBSCRIBED))
    return line


def test_posts_are_taken_in_their_order_and_ring(line: Line, thread: Thread) -> None:
    """Events, credentials and questions are of one queue: what is posted first is taken first."""
    line.post(Polled())
    line.set_credentials(*CREDENTIALS)
    answer = line.ask_committed(frozenset(), 1.0)
    posts = line.take_posts()
    assert posts == (
        Polled(),
        CredentialsChanged(username=CREDENTIALS[0], password=CREDENTIALS[1]),
        CommittedOffsetsQuestion(partitions=frozenset(), timeout_s=1.0, answer=answer),
    )
    assert line.take_posts() == ()
    assert thread.rings == 3


def test_only_what_is_worth_connecting_for_starts_the_thread(line: Line, thread: Thread) -> None:
    """A subscription waits for the poll; and what was sent is known, for there is something to leave then."""
    line.post(Polled())
    assert (thread.starts, line.has_sent) == (0, False)
    line.send(Polled())
    line.send(Polled())
    assert (thread.starts, line.has_sent) == (1, True)


def test_secrets_are_in_no_text_of_what_crosses() -> None:
    """A post may stand in an error's text."""
    assert "secret" not in repr(CredentialsChanged(username=CREDENTIALS[0], password=CREDENTIALS[1]))


def test_view_and_its_orders_are_seen_together() -> None:
    """Whoever sees the view finds the orders, although it looks before they are there; and the other way round."""
    found: deque[ApplicationEffect] = deque()
    taker = threading.Thread(target=lambda: line.move_orders(found), daemon=True)

    class Eager(Line):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "snapshot":
                assert self.wake_up.is_set
                taker.start()

    line = Eager(lambda: (0, 0))
    line.show(view_of(MemberState.FATAL), LeaveCompleted())
    taker.join(PATIENCE_S)
    assert found == deque([LeaveCompleted()])


def test_each_view_is_another_version(line: Line) -> None:
    """Also where it says the same; and a view alone wakes nobody."""
    heard: list[int] = []
    line.listen(lambda: heard.append(line.snapshot.version))
    before = line.snapshot.version
    line.show(line.view)
    assert (line.snapshot.version, heard, line.wake_up.is_set) == (before + 1, [], False)
    line.show(line.view, LeaveCompleted())
    assert (line.snapshot.version, heard, line.wake_up.is_set) == (before + 2, [before + 2], True)


def test_orders_of_one_call_come_at_once_and_leave_the_wake_up_set(line: Line) -> None:
    """Taking orders performs none of them: only a review clears the wake-up, and only once no order waits."""
    line.order(LeaveCompleted(), LeaveCompleted())
    line.wake_up.review()
    assert line.wake_up.is_set
    taken: deque[ApplicationEffect] = deque()
    line.move_orders(taken)
    assert taken == deque([LeaveCompleted(), LeaveCompleted()])
    assert line.wake_up.is_set
    line.wake_up.review()
    assert not line.wake_up.is_set


def test_questions_end_with_the_thread(line: Line) -> None:
    """Those that wait, and those that come later; an event that nobody takes is forgotten."""
    waiting = line.ask_committed(frozenset(), 1.0)
    line.hang_up()
    later: Future[object] = line.ask_committed(frozenset(), 1.0)  # type: ignore[assignment]
    assert (waiting.cancelled(), later.cancelled()) == (True, True)
    line.post(LeaveRequested())
    nothing: tuple[Post, ...] = ()
    assert line.take_posts() == nothing


def test_the_ends_know_of_each_other_what_the_line_says(line: Line, thread: Thread) -> None:
    """Figures and progress are asked when they are wanted."""
    assert line.figures() == MemberFigures(coordinator_since=1.0)
    assert line.progress() == (1, 2)
    line.stop(0.5)
    assert thread.stopped_within_s == 0.5
