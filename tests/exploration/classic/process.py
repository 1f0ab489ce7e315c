"""One process of an explored world with a classic member.

It has one JoinGroup or SyncGroup under way at most, on a connection of its own, as in `runtime.classic_requests`: a
newer one and a leave give the older one up. Heartbeats, commits and the leave share the other connection, in order. A
request that was given up while it waits at the coordinator is answered into the void (`abandoned`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from consumer_membership.errors import AssignmentError
from consumer_membership.membership.classic.assignor import Topics
from consumer_membership.membership.classic.assignors.checked import assign_checked
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
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.effects import (
    ApplicationEffect,
    CollectPositions,
    CommitCompleted,
    CommitOffsets,
    FetchCommitted,
    FindCoordinator,
    RaiseToApplication,
    StateChanged,
)
from consumer_membership.membership.events import StartOffsetsFetched, TimePassed
from consumer_membership.membership.protocol import GroupEvent
from consumer_membership.membership.states import MemberState
from consumer_membership.types import FATAL_CODE, BrokerError
from tests.exploration.classic.canonical import REPAIR_S, canonicalise
from tests.exploration.classic.cluster import AT_ONCE, NOBODY, Asked
from tests.exploration.classic.watch import ClassicWatch
from tests.exploration.cluster import Address
from tests.exploration.moves import SESSION_S, Move
from tests.exploration.process import NO_ANSWER, TOPIC, Ask, Call, Process
from tests.simulation.classic.exchanges import Answer, MemberIdRequired, Synced
from tests.simulation.classic.member_words import Event, Order, event_of, failure_of, request_of
from tests.simulation.rules import Refused
from tests.support.members import ClassicMember

_S = ClassicState
#: On the connection of their own.
_REBALANCE = (SendJoin, SendSync)

Task: TypeAlias = DescribeTopics | ComputeAssignment


class Exchange(NamedTuple):
    """A JoinGroup or SyncGroup under way: whether it waits at the coordinator, and for ever, or its answer."""

    order: SendJoin | SendSync
    place: int
    is_seen: bool = False
    is_forgotten: bool = False
    answer: Answer | None = None


@dataclass(slots=True, kw_only=True)
class ClassicProcess(Process):
    """One process with a classic member."""

    member: ClassicMember
    watch: ClassicWatch
    partitions: int
    exchange: Exchange | None = None
    abandoned: list[int] = field(default_factory=list)
    #: What the leader does beside requests to the coordinator.
    tasks: list[Task] = field(default_factory=list)

    def canonicalise(self) -> None:
        """Rewrite this process to one that behaves alike."""
        canonicalise(self)

    # ---- the network ----

    def take_answer(self) -> None:
        """The answer to the JoinGroup or SyncGroup arrives."""
        self.feed(self._end_exchange())

    def take_answer_twice(self) -> None:
        """The answer arrives, and will arrive once more."""
        event = self._end_exchange()
        self.late.append(event)
        self.feed(event)

    def _end_exchange(self) -> Event:
        one, self.exchange = self.exchange, None
        assert one is not None
        assert one.answer is not None
        return event_of(one.order, one.answer)

    def lose_exchange(self) -> None:
        """The JoinGroup or SyncGroup gets no answer in time."""
        order = self._give_up()
        assert order is not None
        self.feed(failure_of(order, NO_ANSWER))

    def time_out(self) -> None:
        """A request that the coordinator has forgotten ends by its own time."""
        self.lose_exchange()

    def _give_up(self) -> SendJoin | SendSync | None:
        """Wait no longer for the JoinGroup or SyncGroup under way, if there is one."""
        one, self.exchange = self.exchange, None
        if one is None:
            return None
        if one.answer is not None:
            if self.overtakes:
                self.late.append(event_of(one.order, one.answer))
        elif not one.is_seen:
            self.zombies.append(one.order)
        elif not one.is_forgotten:
            self.abandoned.append(one.place)
        return one.order

    def lose_exchanges(self) -> bool:
        """The JoinGroup or SyncGroup is not answered."""
        is_out = self.exchange is not None
        if is_out:
            self.lose_exchange()
        return is_out

    def may_arrive_late(self, order: Order) -> bool:
        """A late heartbeat changes nothing."""
        return not isinstance(order, SendClassicHeartbeat | FetchCommitted)

    def answer_to(self, order: Order, reply: Answer) -> Event:
        """A reply as the wire reports it."""
        return event_of(order, reply)

    def failure_of(self, order: Order) -> Event:
        """What the member learns of a request without an answer."""
        return failure_of(order, NO_ANSWER)

    # ---- what the coordinator did ----

    def executed_exchange(self, _: int, answer: Answer | None) -> None:
        """The JoinGroup or SyncGroup was handled by the coordinator; None: it waits."""
        one = self.exchange
        assert one is not None
        self.exchange = one._replace(is_seen=True, answer=answer)
        self.watch.is_confirmed |= isinstance(answer, Synced)
        for kind in _REBALANCE:
            self.forget_zombies(kind)

    def executed_call(self, _: int, answer: Answer) -> None:
        """The first call that the coordinator had not seen was handled by it."""
        number = next(place for place, one in enumerate(self.calls) if one.answer is None)
        order = self.calls[number].order
        self.forget_zombies(type(order))
        self.calls[number] = Call(order, answer)

    def executed_zombie(self, number: int, answer: Answer | None) -> None:
        """A request that was given up was handled after all; a join ends the generation that the member knows."""
        order = self.zombies[number]
        self.zombies = [one for at, one in enumerate(self.zombies) if at > number or type(one) is not type(order)]
        is_join = isinstance(order, SendJoin) and not isinstance(answer, Refused | MemberIdRequired)
        if is_join and order.member_id == self.member.member_id and self.member.state is not _S.JOINING:
            self.excuse()

    def answered(self, place: int, answer: Answer) -> None:
        """A request that waited was answered."""
        one = self.exchange
        if one is not None and one.is_seen and one.place == place:
            self.exchange = one._replace(answer=answer)
            self.watch.is_confirmed |= isinstance(answer, Synced)
        else:
            self.abandoned.remove(place)

    def dropped(self, place: int, _: None) -> None:
        """A request that waited will never be answered."""
        one = self.exchange
        if one is not None and one.is_seen and one.place == place:
            self.exchange = one._replace(is_forgotten=True)
        else:
            self.abandoned.remove(place)

    def excuse(self) -> None:
        """The coordinator removed this process's member id, or goes on without it."""
        self.watch.excuse()

    def grow_old(self) -> None:
        """The session's end: the coordinator's last answer is long ago."""
        self.member.heartbeats.confirmed_at = None

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
            words = BrokerError(code=FATAL_CODE, name="_FATAL", message=str(error))
            return AssignmentFailed(generation=task.generation, error=words)
        return AssignmentComputed(generation=task.generation, assignments=checked.assignments)

    # ---- the clock ----

    def beat(self) -> None:
        """The next heartbeat is due."""
        heartbeats = self.member.heartbeats
        heartbeats._sent_at, heartbeats._not_before = -SESSION_S, 0.0
        self.feed(TimePassed())

    def hear_nothing(self) -> None:
        """The coordinator was silent for a session."""
        self.feed(TimePassed(), SESSION_S)

    def repair(self) -> None:
        """The leader has waited for a session for a member that should have joined again."""
        self.feed(TimePassed(), REPAIR_S)

    def protocol_moves(self) -> Iterator[Move]:
        """Joins and syncs, the leader's part, and a classic member's timers."""
        one, member = self.exchange, self.member
        if one is not None:
            if one.is_forgotten:
                yield Move("time_out")
            else:
                yield Move("lose_exchange", budget="loss")
            if one.answer is not None:
                yield Move("take_answer")
                yield Move("take_answer_twice", budget="duplicate")
        if self.tasks:
            yield Move("do_task")
        if member._may_heartbeat:
            yield Move("hear_nothing", budget="timeout")
        if member.state is _S.STABLE and member.leader._repair_at is not None:
            yield Move("repair", budget="timeout")

    # ---- the member ----

    def feed(self, event: GroupEvent, at: float = 0.0) -> None:
        """Hand an event to the core and take its orders."""
        member, old = self.member, self.member.shown
        self.watch.take(self, event)
        effects = member.handle(event, at)
        self.log.append((event, member.state, effects))
        self.watch.handled(self, old, effects)
        mail: list[ApplicationEffect] = []
        answers: list[GroupEvent] = []
        for effect in effects:
            match effect:
                case SendJoin() | SendSync():
                    self._give_up()
                    place = next(number for number in range(len(self.abandoned) + 1) if number not in self.abandoned)
                    self.exchange = Exchange(effect, place)
                case SendClassicLeave():
                    self._give_up()
                    self.calls.append(Call(effect))
                case FetchCommitted() if not self.is_slow:
                    offsets = dict.fromkeys(sorted(effect.partitions), 0)
                    answers.append(StartOffsetsFetched(attempt=effect.attempt, offsets=offsets))
                case SendClassicHeartbeat() | FetchCommitted() | CommitOffsets():
                    self.calls.append(Call(effect))
                case DescribeTopics() | ComputeAssignment() if self.is_slow:
                    self.tasks.append(effect)
                case DescribeTopics() | ComputeAssignment():
                    answers.append(self._done(effect))
                case FindCoordinator() | StateChanged() | CommitCompleted() | RaiseToApplication() | CollectPositions():
                    pass
                case _:
                    assert not isinstance(effect, type)
                    mail.append(effect)  # type: ignore[arg-type]  # what is left is the application's
        self.application.mail(mail)
        for answer in answers:
            self.feed(answer, at)

    # ---- questions ----

    def asks(self) -> Iterator[Ask]:
        """The oldest request on each connection that the coordinator has not handled."""
        one = self.exchange
        if one is not None and not one.is_seen:
            yield Ask("executed_exchange", 0, Asked(Address(self.name, one.place), request_of(one.order)))
        order = next((one.order for one in self.calls if one.answer is None), None)
        if order is not None:
            yield Ask("executed_call", 0, Asked(AT_ONCE, request_of(order)))
        for place, request in enumerate(self.zombies):
            if request not in self.zombies[:place]:
                yield Ask("executed_zombie", place, _unanswered(request))

    @property
    def unseen(self) -> list[Any]:
        """What is under way to the coordinator and may change something."""
        one = self.exchange
        orders: list[Order] = [one.order] if one is not None and not one.is_seen else []
        orders += [one.order for one in self.calls if one.answer is None and self.may_arrive_late(one.order)]
        return list(map(_unanswered, orders))

    @property
    def left_behind(self) -> list[Any]:
        """What is still under way when the process dies."""
        return [*self.unseen, *map(_unanswered, self.zombies)]

    @property
    def shown(self) -> MemberState:
        """The member's state, as it is shown where both protocols are."""
        return self.member.shown

    @property
    def instance_id(self) -> str | None:
        """The instance id that it has."""
        return self.settings.instance_id

    @property
    def is_answered(self) -> bool:
        """Whether any answer is on its way."""
        is_out = self.exchange is not None and self.exchange.answer is not None
        return is_out or any(one.answer is not None for one in self.calls)

    def should_go_on(self) -> bool:
        """Whether nothing has ended it: the newest JoinGroup of an instance id wins."""
        return self.application.is_subscribed and self.member._fatal is None


def _unanswered(order: Order) -> Asked:
    """A request whose answer nobody waits for any more."""
    return Asked(NOBODY, request_of(order))
