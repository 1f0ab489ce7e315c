"""One explored process: the member, its application, and the messages in flight between it and the coordinator.

Each public method that `moves` names is a possible step. It changes this object, which is a copy that the model made.
An abandoned request stays in flight (`abandoned_orders`), and so does an answer without a waiter (`late`): both may
still arrive. The `transport` of a protocol delivers its requests. It has no state, and its public methods are also
steps.
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
#: The orders of members that need no answer, or have no receiver in an exploration.
_UNANSWERED = (
    *(FindCoordinator, StateChanged, InstanceReleased, Warned, ProtocolChosen),
    *(CommitCompleted, RaiseToApplication, CollectPositions),
)


class Call(NamedTuple):
    """A request in flight, or its answer."""

    order: Any
    answer: Any = None


class HeartbeatCall(NamedTuple):
    """A KIP-848 member's heartbeat in flight, or its answer."""

    number: int
    heartbeat: Heartbeat
    answer: Answer | None = None


class Exchange(NamedTuple):
    """A JoinGroup or SyncGroup in flight: whether the coordinator received or dropped it, and its answer."""

    order: SendJoin | SendSync
    place: int
    is_seen: bool = False
    is_forgotten: bool = False
    answer: Answer | None = None


class Delivery(NamedTuple):
    """A request that the coordinator may handle next: the method for its reply, its index, and the request."""

    how: str
    place: int
    request: Envelope


def half() -> float:
    """Return the constant random value for the jitter of every member."""
    return 0.5


@dataclass(slots=True, kw_only=True)
class Process:
    """One process of either protocol. Its name includes the slot."""

    name: str
    #: The number of processes that were started before it.
    number: int
    settings: MemberSettings
    member: MemberCore
    transport: Transport
    application: Application
    invariants: ProcessInvariants
    hand_over: HandOverInvariants
    #: The number of partitions of its topic.
    partitions: int
    #: The names of fatal errors that the member may have.
    may_end_with: frozenset[str]
    #: The options with which the application may leave.
    leave_options: tuple[LeaveOption, ...]
    #: Whether the application's events, the answers to OffsetFetch and the assignor are delayed.
    is_slow: bool
    #: Whether an abandoned request may arrive after a later one.
    overtakes: bool
    #: For KIP-848 members only.
    heartbeats: list[HeartbeatCall] = field(default_factory=list)
    #: For classic members only: the JoinGroup or SyncGroup in flight, the abandoned requests that wait at the
    #: coordinator, and the tasks of a leader.
    exchange: Exchange | None = None
    abandoned: list[int] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    #: Requests about announcements for hand-overs, on a separate connection.
    announcements: list[Call] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    abandoned_orders: list[Any] = field(default_factory=list)
    inbox: list[Any] = field(default_factory=list)
    #: For the trace: the events that the core handled since the last step.
    log: list[tuple[Any, object, tuple[Any, ...]]] = field(default_factory=list)

    # ---- steps ----

    def apply(self, move: Move) -> None:
        """Apply a move.

        Raises:
            Violation: The process broke a rule.
        """
        self._do(move.name, *((move.number,) if move.name in _NUMBERED else ()))

    def handled(self, how: str, place: int, reply: Answer | None) -> None:
        """Apply the reply to a request that the coordinator handled, or that waited at the coordinator (`place`).

        Raises:
            Violation: The process broke a rule.
        """
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
        """Rewrite this process to the canonical process with equal behavior."""
        self.transport.canonicalise(self)

    def feed(self, event: Any, at: float = 0.0) -> None:
        """Pass an event to the core, and perform its effects."""
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
                    mail.append(effect)  # type: ignore[arg-type]  # the earlier cases handle the other effects
        self.application.mail(mail)
        for answer in answers:
            self.feed(answer, at)

    # ---- requests ----

    def deliveries(self) -> Iterator[Delivery]:
        """Yield the requests that the coordinator may handle next."""
        yield from self.transport.deliveries(self)
        for place, request in enumerate(self.abandoned_orders):
            if request not in self.abandoned_orders[:place]:
                yield Delivery("executed_abandoned", place, self.envelope(NO_RECEIVER, request))

    def delivery_of_call(self, order: Any, how: str = "executed_call") -> Delivery:
        """Return the delivery of a call that the coordinator may handle next."""
        return Delivery(how, 0, self.envelope(AT_ONCE, order))

    def envelope(self, address: Address, order: Any) -> Envelope:
        """Return the request of an order, with the address of its answer and with its group."""
        group_id = HELPER_GROUP if isinstance(order, ReadAnnouncements | WriteAnnouncement) else GROUP
        return Envelope(address, self.transport.request_of(order), group_id)

    @property
    def next_call(self) -> Any:
        """The oldest call that the coordinator has not handled, or None."""
        return next((one.order for one in self.calls if one.answer is None), None)

    @property
    def unseen(self) -> list[Envelope]:
        """The requests in flight to the coordinator that may change its state."""
        return self._without_receiver(self.transport.unseen(self))

    @property
    def left_behind(self) -> list[Envelope]:
        """The requests in flight at the death of the process that may change the coordinator's state."""
        return [*self.unseen, *self._without_receiver(self.abandoned_orders)]

    def _without_receiver(self, orders: Iterable[Any]) -> list[Envelope]:
        return [self.envelope(NO_RECEIVER, order) for order in orders]

    @property
    def shown(self) -> MemberState:
        """The member's state in the terms that both protocols share."""
        return internals.shown(self.member)

    @property
    def instance_id(self) -> str | None:
        """Its current instance id."""
        return internals.instance_id(self.member)

    @property
    def is_answered(self) -> bool:
        """Whether an answer that extends its session is in flight."""
        return self.transport.is_answered(self)

    @property
    def is_stable(self) -> bool:
        """Whether its state is STABLE, so that it owns its assignment."""
        return self.shown is _S.STABLE

    @property
    def is_member(self) -> bool:
        """Whether it may send requests of its membership without a new join."""
        return self.shown in IN_GROUP or self.shown is _S.UNSUBSCRIBING

    @property
    def may_wait(self) -> bool:
        """Whether it may wait for an instance id although its application has subscribed (the policy `wait`)."""
        return self.shown is _S.JOINING and internals.is_waiting_for_instance(self.member)

    def should_continue(self) -> bool:
        """Return whether this process, the newest one of an instance id, has no reason to end."""
        if internals.fatal_error(self.member) is None:
            return self.application.is_subscribed
        return self.transport.should_not_have_ended(self)

    # ---- the network ----

    def find_coordinator(self) -> None:
        """Deliver the answer to the lookup of the coordinator."""
        self.feed(CoordinatorFound(coordinator=NODE))

    def take_late(self, number: int) -> None:
        """Deliver an answer that has no waiter."""
        self.feed(self.late.pop(number))

    def take_reply(self) -> None:
        """Deliver the answer to the oldest call."""
        order, reply = self.calls.pop(0)
        self.feed(self.event_of(order, reply))

    def take_announcement(self) -> None:
        """Deliver the oldest answer about announcements."""
        order, answer = self.announcements.pop(0)
        self.feed(self.event_of(order, answer))

    def lose_call(self) -> None:
        """Let the oldest call time out."""
        self._lose(*self.calls.pop(0))

    def lose_announcement(self) -> None:
        """Let the oldest request about announcements time out."""
        self._lose(*self.announcements.pop(0))

    def _lose(self, order: Any, answer: Any) -> None:
        if answer is None and self.transport.may_arrive_late(order):
            self.abandoned_orders.append(order)
        self.feed(failure_of(order, NO_ANSWER))

    def event_of(self, order: Any, answer: Any) -> Any:
        """Return the event of an answer, as the wire reports it."""
        return event_of(order, answer, self.member.protocol)

    def forget_abandoned(self, kind: type) -> None:
        """Drop the abandoned requests of this kind after a later one was handled, except with `overtakes`."""
        if not self.overtakes:
            self.abandoned_orders = [one for one in self.abandoned_orders if type(one) is not kind]

    def take_abandoned(self, number: int) -> Any:
        """Return an abandoned request that is handled now, and drop earlier abandoned requests of its kind."""
        request = self.abandoned_orders[number]
        self.abandoned_orders = [
            one for at, one in enumerate(self.abandoned_orders) if at > number or type(one) is not type(request)
        ]
        return request

    def break_connections(self) -> None:
        """Break all connections, and lose all messages on them."""
        if not self.transport.lose_all(self):
            self.feed(CoordinatorLost(reason="connection reset"))
        for _ in range(len(self.calls)):
            self.lose_call()
        for _ in range(len(self.announcements)):
            self.lose_announcement()

    # ---- actions of the coordinator ----

    def excuse(self) -> None:
        """Excuse the process: the coordinator removed or replaced its member, or continues without it."""
        self.invariants.excuse()

    def drop_undelivered(self) -> None:
        """Drop abandoned requests and answers without a waiter."""
        self.abandoned_orders.clear()
        self.late.clear()

    def age_confirmation(self) -> None:
        """Make the coordinator's last answer older than a session."""
        internals.forget_confirmation(self.member)

    # ---- the leader ----

    def do_task(self) -> None:
        """Deliver the response to Metadata, or the result of the assignor."""
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
        """Deliver the next event of the member's inbox."""
        self.feed(self.inbox.pop(0))

    def perform(self) -> None:
        """Let the application perform its next effect."""
        effect = self.application.next_step()
        if isinstance(effect, LeaveCompleted):
            self.application.has_left()
        elif effect is not None:
            self._perform(effect, raises=False)

    def raise_in_callback(self) -> None:
        """Let the application perform a step whose callback raises."""
        effect = self.application.next_step()
        self._perform(effect, raises=not isinstance(effect, PausePartitions))

    def finish_overtaken(self) -> None:
        """Let the callback of an overtaken step return; it had begun before the step was overtaken."""
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
        """Send the member an event that does not come from the network; in a slow configuration it is delayed."""
        if self.is_slow:
            self.inbox.append(event)
        else:
            self.feed(event)

    def poll(self) -> None:
        """Let the application poll."""
        self.feed(Polled())

    def leave(self, option: int) -> None:
        """Let the application unsubscribe or close."""
        self.application.is_leaving, self.application.is_subscribed = True, False
        self.post_later(LeaveRequested(option=self.leave_options[option]))

    def subscribe(self) -> None:
        """Let the application subscribe and poll."""
        self.application.is_subscribed = True
        self.feed(Subscribed(subscription=SUBSCRIPTION, is_eager=self.application.is_eager))
        self.feed(Polled())

    # ---- the clock ----

    def heartbeat(self) -> None:
        """Let the next heartbeat become due."""
        internals.make_heartbeat_due(self.member, SESSION_S)
        self.feed(TimePassed())

    def retry(self) -> None:
        """Let the waiting retries become due."""
        self.feed(TimePassed(), RETRY_S)

    def miss_poll(self) -> None:
        """Let max.poll.interval.ms expire."""
        self.feed(TimePassed(), POLL_S)

    def leave_too_long(self) -> None:
        """Let the timeout of the leave expire."""
        self.feed(TimePassed(), LEAVE_S)

    def repetitions_end(self) -> None:
        """End the repetitions of the leave, when no answer to the leave can arrive any more."""
        self.feed(TimePassed(), LEAVE_S)

    def commit_too_long(self) -> None:
        """Let the timeout of the commit expire."""
        self.feed(TimePassed(), COMMIT_S)


class Transport(ABC):
    """The delivery of a protocol's requests between a process and the coordinator."""

    protocol: ClassVar[GroupProtocol]

    @abstractmethod
    def canonicalise(self, process: Process) -> None:
        """Rewrite the process to the canonical process with equal behavior."""

    @abstractmethod
    def moves(self, process: Process) -> Iterator[Move]:
        """Yield the possible moves that only this protocol has."""

    @abstractmethod
    def send(self, process: Process, order: SendHeartbeat | SendJoin | SendSync | SendClassicLeave) -> None:
        """Send a request."""

    @abstractmethod
    def lose_all(self, process: Process) -> bool:
        """Lose all messages in flight except for the calls; return whether there were any."""

    @abstractmethod
    def deliveries(self, process: Process) -> Iterator[Delivery]:
        """Yield the requests that the coordinator may handle next, without abandoned requests."""

    @abstractmethod
    def unseen(self, process: Process) -> list[Any]:
        """Return the requests in flight to the coordinator that may change its state."""

    @abstractmethod
    def is_answered(self, process: Process) -> bool:
        """Return whether an answer that extends its session is in flight to the process."""

    @abstractmethod
    def may_arrive_late(self, order: Any) -> bool:
        """Return whether this call may change the coordinator's state if it arrives after it was abandoned."""

    def should_not_have_ended(self, process: Process) -> bool:  # noqa: ARG002
        """Return whether the newest process of an instance id had no reason to end."""
        return False

    def request_of(self, order: Any) -> Any:
        """Return the request of an order or of an abandoned heartbeat."""
        return order if isinstance(order, Heartbeat) else request_of(order, self.protocol)
