"""One explored process: the member, its application, and what is under way between it and the coordinator.

Each public method that `moves` names is one step that may happen next; it changes this object, which the model has
copied before. A request that was given up stays under way (`zombies`), so does an answer without a waiter (`late`):
both may still arrive. How a protocol's requests travel is its `transport`'s: a part without state of its own, whose
public methods are also steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeAlias

from consumer_membership.assignors.assignor import Topics
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.errors import AssignmentError, InternalError
from consumer_membership.membership.classic.exchanges import (
    AssignmentComputed,
    AssignmentFailed,
    ComputeAssignment,
    DescribeTopics,
    LeaderEvent,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    TopicsDescribed,
)
from consumer_membership.membership.effects import (
    ApplicationEffect,
    CollectPositions,
    CommitCompleted,
    CommitOffsets,
    DescribeGroup,
    FetchCommitted,
    FindCoordinator,
    Heartbeat,
    InstanceReleased,
    LearnSessionTimeout,
    LeaveCompleted,
    PausePartitions,
    ProtocolChosen,
    RaiseToApplication,
    ReadAnnouncements,
    ResolveTopicIds,
    SendHeartbeat,
    StateChanged,
    WarmPartitions,
    Warned,
    WriteAnnouncement,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    CoordinatorLost,
    LeaveRequested,
    Polled,
    SessionTimeoutLearned,
    StartOffsetsFetched,
    Subscribed,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.testing.coordinators.exchanges import Answer
from consumer_membership.testing.coordinators.member_requests import event_of, failure_of, request_of
from consumer_membership.types import (
    FATAL_CODE,
    BrokerAddress,
    BrokerError,
    ConflictPolicy,
    GroupProtocol,
    LeaveOption,
    Subscription,
)
from tests.exploration.application import Application
from tests.exploration.cluster import AT_ONCE, GROUP, HELPER_GROUP, NO_RECEIVER, Address, Envelope
from tests.exploration.consumer.hand_over import HandOverInvariants
from tests.exploration.moves import COMMIT_S, LEAVE_S, POLL_S, RETRY_S, SESSION_S, Move
from tests.simulation import internals
from tests.simulation.process_invariants import STEPS, ProcessInvariants, Violation

TOPIC = "t"
SUBSCRIPTION = Subscription(topics=frozenset({TOPIC}))
NODE = BrokerAddress(node_id=1, host="broker", port=9092)
NO_ANSWER = "no answer"
Task: TypeAlias = DescribeTopics | ComputeAssignment
#: The moves of which a process has several, distinguished by their number.
_NUMBERED = frozenset({"take_late", "leave"})
_S = MemberState
#: The orders of members that have no answer, or no receiver here.
_UNANSWERED = (
    *(FindCoordinator, StateChanged, InstanceReleased, Warned, ProtocolChosen),
    *(CommitCompleted, RaiseToApplication, CollectPositions),
)


class Call(NamedTuple):
    """A request under way, or its answer."""

    order: Any
    answer: Any = None


class Beat(NamedTuple):
    """A KIP-848 member's heartbeat under way, or its answer."""

    number: int
    beat: Heartbeat
    answer: Answer | None = None


class Exchange(NamedTuple):
    """A JoinGroup or SyncGroup under way: whether it waits at the coordinator, and for ever, or its answer."""

    order: SendJoin | SendSync
    place: int
    is_seen: bool = False
    is_forgotten: bool = False
    answer: Answer | None = None


class Delivery(NamedTuple):
    """A request that the coordinator may handle next: the method for its reply, its place, and the request."""

    how: str
    place: int
    request: Envelope


def half() -> float:
    """What every member's jitter draws."""
    return 0.5


@dataclass(slots=True, kw_only=True)
class Process:
    """One process, whatever its protocol. Its name includes the slot."""

    name: str
    #: How many processes had been started before it.
    number: int
    settings: MemberSettings
    member: MemberCore
    transport: Transport
    application: Application
    invariants: ProcessInvariants
    hand_over: HandOverInvariants
    #: How many partitions its topic has.
    partitions: int
    #: Names of errors with which the member may end permanently.
    may_end_with: frozenset[str]
    #: How the application may leave.
    leave_options: tuple[LeaveOption, ...]
    #: Whether the application's posts, the answers to OffsetFetch and the assignor take their time.
    is_slow: bool
    #: Whether a request that was given up may arrive after a later one.
    overtakes: bool
    #: Of a KIP-848 member.
    beats: list[Beat] = field(default_factory=list)
    #: Of a classic one: its JoinGroup or SyncGroup, those that wait although it gave them up, and what a leader does
    #: beside requests to the coordinator.
    exchange: Exchange | None = None
    abandoned: list[int] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: Requests about announcements for hand-overs, on a connection of their own.
    announcements: list[Call] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    zombies: list[Any] = field(default_factory=list)
    inbox: list[Any] = field(default_factory=list)
    #: For the trace: what was handled since the last step.
    log: list[tuple[Any, object, tuple[Any, ...]]] = field(default_factory=list)

    # ---- steps ----

    def apply(self, move: Move) -> None:
        """Apply a move; raises Violation."""
        self._do(move.name, *((move.number,) if move.name in _NUMBERED else ()))

    def handled(self, how: str, place: int, reply: Answer | None) -> None:
        """The coordinator handled one of the requests, or answers one that waited (`place`); raises Violation."""
        self._do(how, place, reply)

    def _do(self, name: str, *arguments: object) -> None:
        try:
            if hasattr(self, name):
                getattr(self, name)(*arguments)
            else:
                getattr(self.transport, name)(self, *arguments)
        except InternalError as error:
            raise Violation(f"{self.name}: internal error: {error}") from error
        self.canonicalise()

    def canonicalise(self) -> None:
        """Rewrite this process to one that behaves alike."""
        self.transport.canonicalise(self)

    def feed(self, event: Any, at: float = 0.0) -> None:
        """Hand an event to the core and take its orders."""
        member, old = self.member, self.shown
        self.invariants.take(self, event)
        effects = member.handle(event, at)
        self.log.append((event, internals.state(member), effects))
        self.invariants.handled(self, old, effects)
        if self.settings.conflict_policy is ConflictPolicy.HAND_OVER:
            self.hand_over.handled(self, effects, is_newest=self.invariants.is_newest)
        mail: list[ApplicationEffect] = []
        answers: list[Any] = []
        for effect in effects:
            match effect:
                case SendHeartbeat() | SendJoin() | SendSync() | SendClassicLeave():
                    self.transport.send(self, effect)
                case FetchCommitted() if not self.is_slow:
                    offsets = dict.fromkeys(sorted(effect.partitions), 0)
                    answers.append(StartOffsetsFetched(attempt=effect.attempt, offsets=offsets))
                case FetchCommitted() | CommitOffsets() | DescribeGroup() | SendClassicHeartbeat():
                    self.calls.append(Call(effect))
                case ReadAnnouncements() | WriteAnnouncement():
                    self.announcements.append(Call(effect))
                case ResolveTopicIds():
                    answers.append(TopicIdsResolved(names=dict.fromkeys(effect.topic_ids, TOPIC)))
                case LearnSessionTimeout():
                    answers.append(SessionTimeoutLearned(session_timeout_s=SESSION_S))
                case DescribeTopics() | ComputeAssignment() if self.is_slow:
                    self.tasks.append(effect)
                case DescribeTopics() | ComputeAssignment():
                    answers.append(self._done(effect))
                case _ if not isinstance(effect, _UNANSWERED):
                    mail.append(effect)  # type: ignore[arg-type]  # the others are handled above
        self.application.mail(mail)
        for answer in answers:
            self.feed(answer, at)

    # ---- requests ----

    def deliveries(self) -> Iterator[Delivery]:
        """The requests that the coordinator may handle next."""
        yield from self.transport.deliveries(self)
        for place, request in enumerate(self.zombies):
            if request not in self.zombies[:place]:
                yield Delivery("executed_zombie", place, self.envelope(NO_RECEIVER, request))

    def delivery_of_call(self, order: Any, how: str = "executed_call") -> Delivery:
        """A call that the coordinator may handle next."""
        return Delivery(how, 0, self.envelope(AT_ONCE, order))

    def envelope(self, address: Address, order: Any) -> Envelope:
        """What the coordinator sees of an order, and where its answer goes."""
        group_id = HELPER_GROUP if isinstance(order, ReadAnnouncements | WriteAnnouncement) else GROUP
        return Envelope(address, self.transport.request_of(order), group_id)

    @property
    def next_call(self) -> Any:
        """The oldest call that the coordinator has not handled; None: there is none."""
        return next((one.order for one in self.calls if one.answer is None), None)

    @property
    def unseen(self) -> list[Envelope]:
        """What is under way to the coordinator and may change something."""
        return self._without_receiver(self.transport.unseen(self))

    @property
    def left_behind(self) -> list[Envelope]:
        """What is still under way when the process dies: only what may change something."""
        return [*self.unseen, *self._without_receiver(self.zombies)]

    def _without_receiver(self, orders: Iterable[Any]) -> list[Envelope]:
        return [self.envelope(NO_RECEIVER, order) for order in orders]

    @property
    def shown(self) -> MemberState:
        """The member's state, as it is shown where both protocols are."""
        return internals.shown(self.member)

    @property
    def instance_id(self) -> str | None:
        """The instance id that it has now."""
        return internals.instance_id(self.member)

    @property
    def is_answered(self) -> bool:
        """Whether an answer that prolongs its session is on its way to it."""
        return self.transport.is_answered(self)

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
        """Whether it may stay outside although its application subscribes (the policy `wait`)."""
        return self.shown is _S.JOINING and internals.is_waiting_for_instance(self.member)

    def should_go_on(self) -> bool:
        """Whether the newest process of an instance id has no reason to end."""
        if internals.fatal_error(self.member) is None:
            return self.application.is_subscribed
        return self.transport.should_not_have_ended(self)

    # ---- the network ----

    def find_coordinator(self) -> None:
        """The lookup is answered."""
        self.feed(CoordinatorFound(coordinator=NODE))

    def take_late(self, number: int) -> None:
        """An answer arrives that no longer has a waiter."""
        self.feed(self.late.pop(number))

    def take_reply(self) -> None:
        """The oldest call's answer arrives."""
        order, reply = self.calls.pop(0)
        self.feed(self.event_of(order, reply))

    def take_announcement(self) -> None:
        """The oldest answer about announcements arrives."""
        order, answer = self.announcements.pop(0)
        self.feed(self.event_of(order, answer))

    def lose_call(self) -> None:
        """The oldest call gets no answer in time."""
        self._lose(*self.calls.pop(0))

    def lose_announcement(self) -> None:
        """The oldest request about announcements gets no answer in time."""
        self._lose(*self.announcements.pop(0))

    def _lose(self, order: Any, answer: Any) -> None:
        if answer is None and self.transport.may_arrive_late(order):
            self.zombies.append(order)
        self.feed(failure_of(order, NO_ANSWER))

    def event_of(self, order: Any, answer: Any) -> Any:
        """An answer as the wire reports it."""
        return event_of(order, answer, self.member.protocol)

    def forget_zombies(self, kind: type) -> None:
        """A request of this kind was handled: except with `overtakes`, those given up before it come no more."""
        if not self.overtakes:
            self.zombies = [one for one in self.zombies if type(one) is not kind]

    def take_zombie(self, number: int) -> Any:
        """A request that was given up is handled after all; those of its kind that were given up before it never."""
        request = self.zombies[number]
        self.zombies = [one for at, one in enumerate(self.zombies) if at > number or type(one) is not type(request)]
        return request

    def break_connections(self) -> None:
        """All connections break, with everything that is under way on them."""
        if not self.transport.lose_all(self):
            self.feed(CoordinatorLost(reason="connection reset"))
        for _ in range(len(self.calls)):
            self.lose_call()
        for _ in range(len(self.announcements)):
            self.lose_announcement()

    # ---- what the coordinator did ----

    def excuse(self) -> None:
        """The coordinator removed this process's member id, gave its place to another, or goes on without it."""
        self.invariants.excuse()

    def drop_undelivered(self) -> None:
        """Drop an answer without a waiter."""
        self.zombies.clear()
        self.late.clear()

    def age_confirmation(self) -> None:
        """The session's end: the coordinator's last answer is long ago."""
        internals.forget_confirmation(self.member)

    # ---- the leader ----

    def do_task(self) -> None:
        """Metadata answers, or the assignor has computed."""
        self.feed(self._done(self.tasks.pop(0)))

    def _done(self, task: Task) -> LeaderEvent:
        if isinstance(task, DescribeTopics):
            return TopicsDescribed(request_id=task.request_id, topics=Topics(partitions={TOPIC: self.partitions}))
        assignor = next(one for one in self.member.classic.assignors if one.name == task.assignor)
        try:
            checked = assign_checked(assignor, task.topics, task.members)
        except AssignmentError as error:
            failure = BrokerError(code=FATAL_CODE, name="_FATAL", message=str(error))
            return AssignmentFailed(generation=task.generation, error=failure)
        return AssignmentComputed(generation=task.generation, assignments=checked.assignments)

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
        if isinstance(step, WarmPartitions) and not self.application.is_leaving:
            self.post_later(self.application.warm(step, raises=raises))
        if not isinstance(step, STEPS):
            return
        finished = self.application.perform(step, raises=raises)
        if not isinstance(step, PausePartitions):
            self.invariants.history.append(frozenset(self.application.held))
        self.post_later(finished)

    def post_later(self, event: Any) -> None:
        """The application, or another source beside the network, sends the member an event."""
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
        self.feed(Subscribed(subscription=SUBSCRIPTION, is_eager=self.application.is_eager))
        self.feed(Polled())

    # ---- the clock ----

    def beat(self) -> None:
        """The next heartbeat is due."""
        internals.make_heartbeat_due(self.member, SESSION_S)
        self.feed(TimePassed())

    def retry(self) -> None:
        """What waited for a retry is due."""
        self.feed(TimePassed(), RETRY_S)

    def miss_poll(self) -> None:
        """max.poll.interval.ms is over."""
        self.feed(TimePassed(), POLL_S)

    def leave_too_long(self) -> None:
        """The leave's time is over."""
        self.feed(TimePassed(), LEAVE_S)

    def repetitions_end(self) -> None:
        """The leave was repeated for as long as an answer to it may take."""
        self.feed(TimePassed(), LEAVE_S)

    def commit_too_long(self) -> None:
        """The commit's time is over."""
        self.feed(TimePassed(), COMMIT_S)


class Transport(ABC):
    """How a protocol's requests travel between a process and the coordinator."""

    protocol: ClassVar[GroupProtocol]

    @abstractmethod
    def canonicalise(self, process: Process) -> None:
        """Rewrite the process to one that behaves alike."""

    @abstractmethod
    def moves(self, process: Process) -> Iterator[Move]:
        """What may happen next beside the moves of all processes."""

    @abstractmethod
    def send(self, process: Process, order: SendHeartbeat | SendJoin | SendSync | SendClassicLeave) -> None:
        """Put a request on its way."""

    @abstractmethod
    def lose_all(self, process: Process) -> bool:
        """All that is under way beside the calls gets no answer; whether there was anything."""

    @abstractmethod
    def deliveries(self, process: Process) -> Iterator[Delivery]:
        """The requests that the coordinator may handle next, but for those that were given up."""

    @abstractmethod
    def unseen(self, process: Process) -> list[Any]:
        """What is under way to the coordinator and may change something."""

    @abstractmethod
    def is_answered(self, process: Process) -> bool:
        """Whether an answer that prolongs its session is on its way to the process."""

    @abstractmethod
    def may_arrive_late(self, order: Any) -> bool:
        """Whether it matters that this call arrives after it was given up."""

    def should_not_have_ended(self, process: Process) -> bool:  # noqa: ARG002
        """Whether the newest process of an instance id had no reason to end."""
        return False

    def request_of(self, order: Any) -> Any:
        """What the coordinator sees of an order, or of a heartbeat that was given up."""
        return order if isinstance(order, Heartbeat) else request_of(order, self.protocol)
