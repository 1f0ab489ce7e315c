"""One process of an explored world: the member, its application, and what is under way between it and the coordinator.

Each public method that `moves` names is one step that may happen next; it changes this object, which the model has
copied before. Requests travel on two connections (heartbeats, everything else), in order on each. A request that was
given up stays under way (`zombies`), an answer that nobody waits for too (`late`): both may still arrive.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from consumer_membership.errors import InternalError
from consumer_membership.membership.effects import (
    ApplicationEffect,
    CollectPositions,
    CommitCompleted,
    CommitOffsets,
    DescribeGroup,
    Effect,
    FetchCommitted,
    FindCoordinator,
    Heartbeat,
    InstanceReleased,
    LearnSessionTimeout,
    LeaveCompleted,
    PausePartitions,
    RaiseToApplication,
    ResolveTopicIds,
    SendHeartbeat,
    StateChanged,
    Warned,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    CoordinatorLost,
    Event,
    HeartbeatFailed,
    LeaveRequested,
    Polled,
    SessionTimeoutLearned,
    StartOffsetsFetched,
    Subscribed,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.member import Member
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.types import JOIN_EPOCH, BrokerAddress, LeaveOption, Subscription
from tests.exploration.application import STEPS, Application
from tests.exploration.canonical import COMMIT_S, LEAVE_S, LONG_AGO, RETRY_S, canonicalise
from tests.exploration.cluster import Answer, Reply, Request
from tests.exploration.exchanges import NO_ANSWER, Call, Exchange, Order, answer_to, failure_of, heartbeat_answer
from tests.exploration.moves import Move
from tests.exploration.watch import Watch
from tests.simulation.invariants import Violation
from tests.simulation.rules import Granted

TOPIC = "t"
TOPIC_ID = UUID(int=1)
SUBSCRIPTION = Subscription(topics=frozenset({TOPIC}))
NODE = BrokerAddress(node_id=1, host="broker", port=9092)
SESSION_S = 45.0
POLL_S = 300.0
_S = MemberState


@dataclass(slots=True)
class MemberIds:
    """Makes the member ids of one process."""

    name: str
    made: int = 0

    def __call__(self) -> str:
        """A fresh id."""
        self.made += 1
        return f"{self.name}.{self.made}"


def _half() -> float:
    return 0.5


@dataclass(slots=True)
class Process:
    """One process. Its name says which world's settings it has."""

    name: str
    #: How many processes had been started before it.
    number: int
    settings: MemberSettings
    member: Member
    application: Application
    #: Names of errors with which the member may end for good.
    may_end_with: frozenset[str]
    leave_option: LeaveOption
    #: Whether the application's posts and the answers to OffsetFetch take their time.
    is_slow: bool
    #: Whether a request that was given up may arrive after a later one.
    overtakes: bool
    watch: Watch = field(default_factory=Watch)
    beats: list[Exchange] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    late: list[Event] = field(default_factory=list)
    zombies: list[Request] = field(default_factory=list)
    inbox: list[Event] = field(default_factory=list)
    #: For the trace: what was handled since it was last looked at.
    log: list[tuple[Event, MemberState, tuple[Effect, ...]]] = field(default_factory=list)

    # ---- what happens ----

    def apply(self, move: Move) -> None:
        """Let it happen; raises Violation."""
        try:
            method = getattr(self, move.name)
            method(move.number) if move.name == "take_late" else method()
        except InternalError as error:
            raise Violation(f"{self.name}: internal error: {error}") from error
        canonicalise(self)

    # ---- the network ----

    def find_coordinator(self) -> None:
        """The lookup is answered."""
        self.feed(CoordinatorFound(coordinator=NODE))

    def take_answer(self) -> None:
        """The oldest heartbeat's answer arrives."""
        self.feed(heartbeat_answer(self.beats.pop(0)))

    def take_answer_twice(self) -> None:
        """The oldest heartbeat's answer arrives, and will arrive once more."""
        answer = heartbeat_answer(self.beats.pop(0))
        self.late.append(answer)
        self.feed(answer)

    def take_late(self, number: int) -> None:
        """An answer arrives that nobody waits for any more."""
        self.feed(self.late.pop(number))

    def lose_heartbeat(self) -> None:
        """The oldest heartbeat gets no answer in time."""
        self._give_up_heartbeat()

    def _give_up_heartbeat(self) -> None:
        one = self.beats.pop(0)
        if one.answer is None:
            self.zombies.append(one.beat)
        else:
            self.late.append(heartbeat_answer(one))
        self.feed(HeartbeatFailed(request_id=one.number, reason=NO_ANSWER))

    def take_reply(self) -> None:
        """The oldest other request's answer arrives."""
        order, reply = self.calls.pop(0)
        self.feed(answer_to(order, reply))

    def lose_call(self) -> None:
        """The oldest other request gets no answer in time."""
        order, answer = self.calls.pop(0)
        if answer is None and isinstance(order, CommitOffsets):
            self.zombies.append(order)
        self.feed(failure_of(order))

    def break_connections(self) -> None:
        """Both connections break, with everything that is under way on them."""
        if not self.beats:
            self.feed(CoordinatorLost(reason="connection reset"))
        for _ in range(len(self.beats)):
            self._give_up_heartbeat()
        for _ in range(len(self.calls)):
            self.lose_call()

    # ---- what the coordinator did ----

    def told(self, how: str, place: int, reply: Reply) -> None:
        """The coordinator handled one of the requests; raises Violation."""
        try:
            self.executed_zombie(place, reply) if how == "executed_zombie" else getattr(self, how)(reply)
        except InternalError as error:
            raise Violation(f"{self.name}: internal error: {error}") from error
        canonicalise(self)

    def executed_heartbeat(self, answer: Answer) -> None:
        """The first heartbeat that the coordinator had not seen was handled by it."""
        number = next(place for place, one in enumerate(self.beats) if one.answer is None)
        self.beats[number] = self.beats[number]._replace(answer=answer)
        self._arrived(Heartbeat)
        beat = self.beats[number].beat
        is_join = isinstance(answer, Granted) and beat.member_epoch == JOIN_EPOCH
        if is_join and beat.member_id == self.member.member_id and self.member.state is _S.JOINING:
            self.watch.is_excused = False

    def executed_zombie(self, number: int, answer: Reply) -> None:
        """A request that was given up was handled after all; a join ends the membership that the member knows."""
        request = self.zombies[number]
        self.zombies = [one for at, one in enumerate(self.zombies) if at > number or type(one) is not type(request)]
        is_join = isinstance(request, Heartbeat) and request.member_epoch == JOIN_EPOCH
        if is_join and isinstance(answer, Granted) and request.member_id == self.member.member_id:
            self.watch.is_excused = True

    def executed_call(self, reply: Reply) -> None:
        """The first other request that the coordinator had not seen was handled by it; reads are answered at once."""
        number = next(place for place, one in enumerate(self.calls) if one.answer is None)
        order = self.calls[number].order
        self._arrived(type(order))
        if isinstance(order, FetchCommitted):
            self.calls.pop(number)
            self.feed(answer_to(order, reply))
        else:
            self.calls[number] = Call(order, reply)

    def _arrived(self, kind: type) -> None:
        """A request of this kind was handled: in most worlds those that were given up before it come no more."""
        if not self.overtakes:
            self.zombies = [one for one in self.zombies if type(one) is not kind]

    def excuse(self) -> None:
        """The coordinator removed this process's member id, or let another one take its place."""
        self.watch.is_excused = True

    def quieten(self) -> None:
        """What nobody waits for will never arrive."""
        self.zombies.clear()
        self.late.clear()

    def grow_old(self) -> None:
        """The session's end: the coordinator's last answer is long ago."""
        self.member.heartbeats.confirmed_at = None

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
        self._post(finished)

    def _post(self, event: Event) -> None:
        if self.is_slow:
            self.inbox.append(event)
        else:
            self.feed(event)

    def poll(self) -> None:
        """The application polls."""
        self.feed(Polled())

    def leave(self) -> None:
        """The application unsubscribes."""
        self.application.is_leaving, self.application.is_subscribed = True, False
        self._post(LeaveRequested(option=self.leave_option))

    def subscribe(self) -> None:
        """The application subscribes, and polls."""
        self.application.is_subscribed = True
        self.feed(Subscribed(subscription=SUBSCRIPTION))
        self.feed(Polled())

    # ---- the clock ----

    def beat(self) -> None:
        """The next heartbeat is due."""
        heartbeats = self.member.heartbeats
        heartbeats._sent_at, heartbeats._not_before = -SESSION_S, 0.0
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

    def wait_too_long(self) -> None:
        """The holder of the instance id has been waited for longer than a session lasts."""
        self.member.instance.waits_since = LONG_AGO

    def commit_too_long(self) -> None:
        """The commit's time is over."""
        self.feed(TimePassed(), COMMIT_S)

    # ---- the member ----

    def feed(self, event: Event, at: float = 0.0) -> None:
        """Hand an event to the core and take its orders."""
        member, old = self.member, self.member.state
        self.watch.take(self, event)
        effects = member.handle(event, at)
        self.log.append((event, member.state, effects))
        self.watch.handled(self, old, effects)
        mail: list[ApplicationEffect] = []
        answers: list[Event] = []
        for effect in effects:
            match effect:
                case SendHeartbeat():
                    self.beats.append(Exchange(effect.request_id, effect.heartbeat))
                case FetchCommitted() if not self.is_slow:
                    offsets = dict.fromkeys(sorted(effect.partitions), 0)
                    answers.append(StartOffsetsFetched(attempt=effect.attempt, offsets=offsets))
                case FetchCommitted() | CommitOffsets() | DescribeGroup():
                    self.calls.append(Call(effect))
                case ResolveTopicIds():
                    answers.append(TopicIdsResolved(names=dict.fromkeys(effect.topic_ids, TOPIC)))
                case LearnSessionTimeout():
                    answers.append(SessionTimeoutLearned(session_timeout_s=SESSION_S))
                case FindCoordinator() | StateChanged() | InstanceReleased() | Warned():
                    pass
                case CommitCompleted() | RaiseToApplication() | CollectPositions():
                    pass
                case _:
                    mail.append(effect)
        self.application.mail(mail)
        for answer in answers:
            self.feed(answer, at)

    # ---- questions ----

    @property
    def unseen_heartbeat(self) -> Heartbeat | None:
        """The oldest heartbeat that the coordinator has not handled."""
        return next((one.beat for one in self.beats if one.answer is None), None)

    @property
    def unseen_call(self) -> Order | None:
        """The oldest other request that the coordinator has not handled; a read waits for those before it."""
        order = next((one.order for one in self.calls if one.answer is None), None)
        is_first = bool(self.calls) and self.calls[0].answer is None
        return order if is_first or not isinstance(order, FetchCommitted) else None

    @property
    def left_behind(self) -> tuple[Request, ...]:
        """What is still under way when the process dies: only what may change something."""
        return (*self.unseen, *self.zombies)

    @property
    def unseen(self) -> list[Request]:
        """What is under way to the coordinator and may change something."""
        beats: list[Request] = [one.beat for one in self.beats if one.answer is None]
        return beats + [one.order for one in self.calls if one.answer is None and isinstance(one.order, CommitOffsets)]


def start(
    name: str,
    number: int,
    settings: MemberSettings,
    member_class: type[Member],
    *,
    may_end_with: frozenset[str],
    leave_option: LeaveOption,
    is_slow: bool,
    overtakes: bool,
) -> Process:
    """A process that has just subscribed and polled."""
    process = Process(
        name=name,
        number=number,
        settings=settings,
        member=member_class(settings, new_member_id=MemberIds(name), jitter=_half),
        application=Application(name, settings.auto_commit),
        may_end_with=may_end_with,
        leave_option=leave_option,
        is_slow=is_slow,
        overtakes=overtakes,
    )
    process.subscribe()
    process.find_coordinator()
    canonicalise(process)
    return process
