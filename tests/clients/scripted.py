"""A scripted member in place of the membership thread: it records events and sends orders.

The handle below the consumer is librdkafka's real one; only the member is scripted.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from consumer_membership import Consumer, GroupMember
from consumer_membership.clients.group_member import member_session_of
from consumer_membership.health.handlers import HandlerFact
from consumer_membership.membership.effects import (
    ApplicationEffect,
    AssignPartitions,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from consumer_membership.membership.events import CommitRequested, Event, LeaveRequested, StepFinished
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.application.member_session import MemberSession
from consumer_membership.runtime.line import CommittedOffsetsQuestion, EndOffsetsQuestion, Line, Post
from consumer_membership.runtime.membership_thread import MemberFigures, ThreadSettings, Watcher
from consumer_membership.types import (
    BrokerError,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S, wait_until

EventT = TypeVar("EventT", bound=Event)

MEMBER_ID = "abcdefghijklmnopqrstuv"
#: The configuration of each `ScriptedGroupMember`.
SHARDS_CONFIG: dict[str, object] = {"bootstrap.servers": "localhost:1", "group.id": "shards", "log_level": 0}


class ScriptedMember:
    """A member controlled by the test. It confirms leaves and commits unless configured otherwise."""

    def __init__(self, line: Line, settings: ThreadSettings) -> None:
        self.lines = settings.lines
        self.settings = settings.member
        self.protocols = settings.protocols
        self.connection = settings.connection
        self.start_settings = settings.start
        self.progress = settings.progress
        self.is_calm = False
        self.events: list[Event] = []
        self.is_started = False
        self.is_stopped = False
        self.confirms_leaves = True
        self.commit_error: BrokerError | None = None
        self.answers_commits = True
        #: The group's committed offsets, and the requests for them.
        self.committed: dict[TopicPartition, OffsetAndMetadata | BrokerError] = {}
        self.questions: list[CommittedOffsetsQuestion] = []
        self.answers_questions = True
        #: The result of later authentications.
        self.credentials: tuple[str, str] | None = None
        #: The member's connection state and committed offsets.
        self.current_figures = MemberFigures()
        #: The orders that follow a leave request, before its confirmation.
        self.farewell: list[ApplicationEffect] = []
        self.attempt = 0
        #: How often the application requested a sample of the progress.
        self.samples = 0
        #: The causes of the requested recordings.
        self.dumps: list[str] = []
        self._line = line
        # Acquired directly: the condition's own `with` is Python code, in which Ctrl-C would leave it locked.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        view = view_of(MemberState.UNSUBSCRIBED, group_id=self.settings.group_id, member_id=MEMBER_ID)
        self._watcher: Watcher | None = None
        line.connect(self, replace(view, instance_id=self.settings.instance_id))

    @property
    def view(self) -> MembershipView:
        """The view of the member."""
        return self._line.view

    @view.setter
    def view(self, view: MembershipView) -> None:
        self._line.show(view)

    def calm_down(self) -> None:
        """Sample the progress seldom."""
        self.is_calm = True

    # ---- the thread ----

    def start(self) -> None:
        self.is_started = True

    def stop(self, timeout_s: float) -> None:
        assert timeout_s >= 0
        self.is_stopped = True

    def ring(self) -> None:
        with self._lock:
            posts = self._line.take_posts()
            self.events += [
                post for post in posts if not isinstance(post, CommittedOffsetsQuestion | EndOffsetsQuestion)
            ]
            self._changed.notify_all()
        for post in posts:
            self._answer(post)

    def _answer(self, post: Post) -> None:
        match post:
            case CommitRequested() if self.answers_commits:
                self.answer_commit(post, self.commit_error)
            case LeaveRequested() if self.confirms_leaves:
                if post.at_once:
                    self.in_state(MemberState.UNSUBSCRIBED)
                self.order(*self.farewell, LeaveCompleted())
            case CommittedOffsetsQuestion():
                self.questions.append(post)
                if self.answers_questions:
                    post.answer.set_result({partition: self.committed.get(partition) for partition in post.partitions})

    def figures(self) -> MemberFigures:
        return self.current_figures

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        self.dumps.append(cause)
        return Path(path or "nowhere")

    def sample_soon(self) -> None:
        self.is_calm = False
        self.samples += 1

    def watch(self, watcher: Watcher) -> MembershipView:
        self._watcher = watcher
        return self.view

    def set_credentials(self, username: str, password: str) -> None:
        self.credentials = (username, password)

    def note_handlers(self, fact: HandlerFact) -> None:
        """Drop the fact, because this member has no recording."""

    def dump_automatically(self, kind: str, cause: str) -> None:
        assert kind
        assert cause

    # ---- the test's side ----

    def order(self, *effects: ApplicationEffect) -> None:
        """Send this order to the application."""
        self._line.show(self.view, *effects)

    def answer_commit(self, request: CommitRequested, error: BrokerError | None = None) -> None:
        """Report the outcome of this commit."""
        errors = dict.fromkeys(request.offsets, error)
        if error is None:
            self.committed.update(request.offsets)
        self.order(CommitCompleted(commit_id=request.commit_id, offsets=request.offsets, errors=errors))

    def assign(self, offsets: dict[TopicPartition, int], epoch: int = 2) -> int:
        """Order an assignment, as a stable member does; return the attempt's number."""
        self.attempt += 1
        owned = {**self.view.owned, **dict.fromkeys(offsets, epoch)}
        self.view = replace(self.view, state=MemberState.STABLE, member_epoch=epoch, owned=owned)
        self.order(AssignPartitions(attempt=self.attempt, offsets=offsets, member_epoch=epoch))
        return self.attempt

    def pause(self, partitions: Iterable[TopicPartition] | None) -> int:
        """Order the pause with which a revocation begins."""
        self.attempt += 1
        self.view = replace(self.view, state=MemberState.RECONCILE)
        self.order(PausePartitions(attempt=self.attempt, partitions=_frozen(partitions)))
        return self.attempt

    def revoke(self, partitions: Iterable[TopicPartition] | None) -> int:
        """Order the revocation of the last pause."""
        self.order(RevokePartitions(attempt=self.attempt, partitions=_frozen(partitions)))
        return self.attempt

    def lose(self) -> int:
        """Order the loss of all partitions."""
        self.attempt += 1
        self.view = replace(self.view, state=MemberState.FENCED, owned={})
        self.order(LosePartitions(attempt=self.attempt))
        return self.attempt

    def happens(self, *effects: GroupEffect, **changes: object) -> None:
        """Show another view as the result of an event."""
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]  # of the view
        if self._watcher is not None:
            self._watcher(effects, self.view)

    def in_state(self, state: MemberState) -> None:
        """Show another state."""
        self.view = replace(self.view, state=state)

    def of(self, kind: type[EventT]) -> list[EventT]:
        """The events of this kind so far."""
        with self._lock:
            return [event for event in self.events if isinstance(event, kind)]

    @property
    def steps(self) -> list[StepFinished]:
        """The steps that were performed."""
        return self.of(StepFinished)

    def wait_for(self, kind: type[EventT], count: int = 1) -> list[EventT]:
        """Wait until there are this many events of this kind."""
        wait_until(
            lambda: sum(isinstance(event, kind) for event in self.events) >= count,
            f"{count} {kind.__name__}",
            seen=lambda: self.events,
            changed=self._changed,
        )
        return self.of(kind)


class ScriptedConsumer(Consumer):
    """A consumer whose member is scripted by the test."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.member: ScriptedMember
        self._open(args, kwargs, self._make_member)

    def _make_member(self, line: Line, settings: ThreadSettings) -> ScriptedMember:
        self.member = ScriptedMember(line, settings)
        return self.member


def _frozen(partitions: Iterable[TopicPartition] | None) -> frozenset[TopicPartition] | None:
    return None if partitions is None else frozenset(partitions)


class Thread(threading.Thread):
    """A thread whose result or exception the test gets within a bounded time."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._result: object = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._action()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test gets it
            self._error = error

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a condition, such as the end of another thread's call."""
        frame = sys._current_frames().get(self.ident or 0)
        return frame is not None and frame.f_code is threading.Condition.wait.__code__

    def outcome(self, timeout_s: float = PATIENCE_S) -> object:
        """Return the action's result, or raise its exception."""
        self.join(timeout_s)
        assert not self.is_alive(), "the call did not come back in time"
        if self._error is not None:
            raise self._error
        return self._result


@contextmanager
def signal_in_poll(consumer: ScriptedConsumer, number: signal.Signals) -> Iterator[None]:
    """Send the main thread this signal, once, when its poll in this block has begun a second slice.

    A fixed delay is not enough: a Ctrl-C before or after the poll would end the whole run. If the second slice has not
    begun after half of `PATIENCE_S`, no signal is sent.
    """
    give_up_at = time.monotonic() + PATIENCE_S / 2
    turns = consumer.member.progress()[0]
    is_over = threading.Event()
    main = threading.main_thread().ident or 0

    def send() -> None:
        while consumer.member.progress()[0] < turns + 2:
            if is_over.wait(0.001) or time.monotonic() > give_up_at:
                return
        signal.pthread_kill(main, number)

    sending = Thread(send)
    try:
        yield
    finally:
        is_over.set()
        sending.outcome()


class ScriptedGroupMember(GroupMember):
    """A group member whose membership is scripted by the test, and which records its callbacks."""

    def __init__(self, **config: object) -> None:
        self.member: ScriptedMember
        self.calls: list[tuple[str, list[int]]] = []
        self._open(SHARDS_CONFIG | {key.replace("_", "."): value for key, value in config.items()}, self._make)

    def _make(self, line: Line, settings: ThreadSettings) -> ScriptedMember:
        self.thread_settings = settings
        self.member = ScriptedMember(line, settings)
        return self.member

    @property
    def session(self) -> MemberSession:
        """The session of this group member."""
        return member_session_of(self)

    def joins(self) -> None:
        """Subscribe and poll once."""

        def noting(name: str) -> Any:
            return lambda _, partitions: self.calls.append((name, [one.partition for one in partitions]))

        self.subscribe(["shards"], on_assign=noting("assign"), on_revoke=noting("revoke"), on_lost=noting("lost"))
        assert self.poll(0) is False
