"""One process of an explored world: the member, its application, and what is under way between it and the coordinator.

Each public method that `moves` names is one step that may happen next; it changes this object, which the model has
copied before. A request that was given up stays under way (`zombies`), an answer that nobody waits for too (`late`):
both may still arrive. What depends on the protocol is in `consumer.process` and `classic.process`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from consumer_membership.errors import InternalError
from consumer_membership.membership.effects import ApplicationEffect, CommitOffsets, LeaveCompleted, PausePartitions
from consumer_membership.membership.events import (
    CoordinatorFound,
    CoordinatorLost,
    LeaveRequested,
    Polled,
    Subscribed,
    TimePassed,
)
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.types import BrokerAddress, LeaveOption, Subscription
from tests.exploration.application import STEPS, Application
from tests.exploration.moves import COMMIT_S, LEAVE_S, POLL_S, RETRY_S, Move
from tests.exploration.watch import Watch
from tests.simulation.invariants import Violation
from tests.support.members import ClassicMember, Member

TOPIC = "t"
SUBSCRIPTION = Subscription(topics=frozenset({TOPIC}))
NODE = BrokerAddress(node_id=1, host="broker", port=9092)
NO_ANSWER = "no answer"
#: The core of one process. What it is told and what it orders are its own protocol's words.
Core: TypeAlias = Member | ClassicMember
#: The moves of which a process has several, told apart by their number.
_NUMBERED = frozenset({"take_late", "leave"})
_S = MemberState


class Call(NamedTuple):
    """A request under way, or its answer."""

    order: Any
    answer: Any = None


class Ask(NamedTuple):
    """A request that the coordinator may handle next: the method that tells of its answer, which one, the question."""

    how: str
    place: int
    question: Any


def half() -> float:
    """What every member's jitter draws."""
    return 0.5


@dataclass(slots=True, kw_only=True)
class Process(ABC):
    """One process, whatever its protocol. Its name says which world's settings it has."""

    name: str
    #: How many processes had been started before it.
    number: int
    settings: MemberSettings
    member: Core
    application: Application
    watch: Watch
    #: Names of errors with which the member may end for good.
    may_end_with: frozenset[str]
    #: How the application may leave.
    leave_options: tuple[LeaveOption, ...]
    #: Whether the application's posts and the answers to OffsetFetch take their time.
    is_slow: bool
    #: Whether a request that was given up may arrive after a later one.
    overtakes: bool
    calls: list[Call] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    zombies: list[Any] = field(default_factory=list)
    inbox: list[Any] = field(default_factory=list)
    #: For the trace: what was handled since it was last looked at.
    log: list[tuple[Any, object, tuple[Any, ...]]] = field(default_factory=list)

    # ---- what happens ----

    def apply(self, move: Move) -> None:
        """Let it happen; raises Violation."""
        try:
            method = getattr(self, move.name)
            method(move.number) if move.name in _NUMBERED else method()
        except InternalError as error:
            raise Violation(f"{self.name}: internal error: {error}") from error
        self.canonicalise()

    def told(self, how: str, place: int, reply: Any) -> None:  # noqa: ANN401 - each request has its own kind of reply
        """The coordinator handled one of the requests, or answers one that waited (`place`); raises Violation."""
        try:
            getattr(self, how)(place, reply)
        except InternalError as error:
            raise Violation(f"{self.name}: internal error: {error}") from error
        self.canonicalise()

    @abstractmethod
    def canonicalise(self) -> None:
        """Rewrite this process to one that behaves alike."""

    @abstractmethod
    def feed(self, event: Any, at: float = 0.0) -> None:  # noqa: ANN401 - each protocol has its own events
        """Hand an event to the core and take its orders."""

    @abstractmethod
    def asks(self) -> Iterator[Ask]:
        """The requests that the coordinator may handle next."""

    @property
    @abstractmethod
    def unseen(self) -> list[Any]:
        """What is under way to the coordinator and may change something, as questions."""

    @property
    @abstractmethod
    def left_behind(self) -> list[Any]:
        """What is still under way when the process dies, as questions: only what may change something."""

    @property
    @abstractmethod
    def shown(self) -> MemberState:
        """The member's state, as it is shown where both protocols are."""

    @property
    @abstractmethod
    def instance_id(self) -> str | None:
        """The instance id that it has now."""

    @property
    @abstractmethod
    def is_answered(self) -> bool:
        """Whether an answer that prolongs its session is on its way to it."""

    @property
    def is_stable(self) -> bool:
        """Whether it has its share, as far as it knows."""
        return self.shown is _S.STABLE

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may hear of it again without a new join."""
        return self.shown in IN_GROUP or self.shown is _S.UNSUBSCRIBING

    @property
    def may_wait(self) -> bool:
        """Whether it may stay outside although its application subscribes."""
        return False

    @abstractmethod
    def should_go_on(self) -> bool:
        """Whether the newest process of an instance id has no reason to end."""

    # ---- the network ----

    def find_coordinator(self) -> None:
        """The lookup is answered."""
        self.feed(CoordinatorFound(coordinator=NODE))

    def take_late(self, number: int) -> None:
        """An answer arrives that nobody waits for any more."""
        self.feed(self.late.pop(number))

    def take_reply(self) -> None:
        """The oldest call's answer arrives."""
        order, reply = self.calls.pop(0)
        self.feed(self.answer_to(order, reply))

    def lose_call(self) -> None:
        """The oldest call gets no answer in time."""
        order, answer = self.calls.pop(0)
        if answer is None and self.may_arrive_late(order):
            self.zombies.append(order)
        self.feed(self.failure_of(order))

    @abstractmethod
    def answer_to(self, order: Any, reply: Any) -> Any:  # noqa: ANN401
        """A reply as the wire reports it."""

    @abstractmethod
    def failure_of(self, order: Any) -> Any:  # noqa: ANN401
        """What the member learns of a request without an answer."""

    def may_arrive_late(self, order: Any) -> bool:  # noqa: ANN401
        """Whether it matters that this request arrives after it was given up."""
        return isinstance(order, CommitOffsets)

    def forget_zombies(self, kind: type) -> None:
        """A request of this kind was handled: in most worlds those that were given up before it come no more."""
        if not self.overtakes:
            self.zombies = [one for one in self.zombies if type(one) is not kind]

    def break_connections(self) -> None:
        """All connections break, with everything that is under way on them."""
        if not self.lose_exchanges():
            self.feed(CoordinatorLost(reason="connection reset"))
        for _ in range(len(self.calls)):
            self.lose_call()

    @abstractmethod
    def lose_exchanges(self) -> bool:
        """All that is under way beside the calls gets no answer; whether there was anything."""

    # ---- what the coordinator did ----

    def excuse(self) -> None:
        """The coordinator removed this process's member id, or let another one take its place."""
        self.watch.is_excused = True

    def quieten(self) -> None:
        """What nobody waits for will never arrive."""
        self.zombies.clear()
        self.late.clear()

    @abstractmethod
    def grow_old(self) -> None:
        """The session's end: the coordinator's last answer is long ago."""

    # ---- the application ----

    def post(self) -> None:
        """The member takes the next thing out of its mailbox."""
        self.feed(self.inbox.pop(0))

    def perform(self) -> None:
        """The application performs what waits for it."""
        effect = self.application.next_step()
        if isinstance(effect, LeaveCompleted):
            self.application.has_left()
        elif effect is not None:
            self._perform(effect, raises=False)

    def raise_in_callback(self) -> None:
        """The application performs a step, and its callback raises."""
        effect = self.application.next_step()
        self._perform(effect, raises=not isinstance(effect, PausePartitions))

    def finish_overtaken(self) -> None:
        """A callback returns that had begun before its step was overtaken."""
        self._perform(self.application.finish_overtaken(), raises=False)

    def _perform(self, step: ApplicationEffect | None, *, raises: bool) -> None:
        if not isinstance(step, STEPS):
            return
        finished = self.application.perform(step, raises=raises)
        if not isinstance(step, PausePartitions):
            self.watch.history.append(frozenset(self.application.held))
        self.post_later(finished)

    def post_later(self, event: Any) -> None:  # noqa: ANN401
        """The application, or somebody else beside the network, tells the member something."""
        if self.is_slow:
            self.inbox.append(event)
        else:
            self.feed(event)

    def poll(self) -> None:
        """The application polls."""
        self.feed(Polled())

    def leave(self, option: int) -> None:
        """The application unsubscribes, or closes."""
        self.application.is_leaving, self.application.is_subscribed = True, False
        self.post_later(LeaveRequested(option=self.leave_options[option]))

    def subscribe(self) -> None:
        """The application subscribes, and polls."""
        self.application.is_subscribed = True
        self.feed(Subscribed(subscription=SUBSCRIPTION))
        self.feed(Polled())

    # ---- the clock ----

    @abstractmethod
    def beat(self) -> None:
        """The next heartbeat is due."""

    def retry(self) -> None:
        """What waited for a retry is due."""
        self.feed(TimePassed(), RETRY_S)

    def miss_poll(self) -> None:
        """max.poll.interval.ms is over."""
        self.feed(TimePassed(), POLL_S)

    def leave_too_long(self) -> None:
        """The leave's time is over."""
        self.feed(TimePassed(), LEAVE_S)

    def commit_too_long(self) -> None:
        """The commit's time is over."""
        self.feed(TimePassed(), COMMIT_S)

    def protocol_moves(self) -> Iterator[Move]:
        """What may happen next beside the moves of all processes."""
        return iter(())
