"""One process of an explored world with a KIP-848 member.

Requests travel on two connections (heartbeats, everything else), in order on each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

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
    RaiseToApplication,
    ResolveTopicIds,
    SendHeartbeat,
    StateChanged,
    Warned,
)
from consumer_membership.membership.events import (
    Event,
    HeartbeatFailed,
    SessionTimeoutLearned,
    StartOffsetsFetched,
    TimePassed,
    TopicIdsResolved,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.types import JOIN_EPOCH
from tests.exploration.consumer.canonical import LONG_AGO, canonicalise
from tests.exploration.consumer.cluster import Answer, Reply, question_of
from tests.exploration.consumer.exchanges import Exchange, answer_to, failure_of, heartbeat_answer
from tests.exploration.consumer.watch import ConsumerWatch
from tests.exploration.moves import SESSION_S, Move
from tests.exploration.process import NO_ANSWER, TOPIC, Ask, Call, Process
from tests.simulation.rules import Granted
from tests.support.members import Member

TOPIC_ID = UUID(int=1)
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


@dataclass(slots=True, kw_only=True)
class ConsumerProcess(Process):
    """One process with a KIP-848 member."""

    member: Member
    watch: ConsumerWatch
    beats: list[Exchange] = field(default_factory=list)

    def canonicalise(self) -> None:
        """Rewrite this process to one that behaves alike."""
        canonicalise(self)

    # ---- the network ----

    def take_answer(self) -> None:
        """The oldest heartbeat's answer arrives."""
        self.feed(heartbeat_answer(self.beats.pop(0)))

    def take_answer_twice(self) -> None:
        """The oldest heartbeat's answer arrives, and will arrive once more."""
        answer = heartbeat_answer(self.beats.pop(0))
        self.late.append(answer)
        self.feed(answer)

    def lose_heartbeat(self) -> None:
        """The oldest heartbeat gets no answer in time."""
        one = self.beats.pop(0)
        if one.answer is None:
            self.zombies.append(one.beat)
        else:
            self.late.append(heartbeat_answer(one))
        self.feed(HeartbeatFailed(request_id=one.number, reason=NO_ANSWER))

    def lose_exchanges(self) -> bool:
        """No heartbeat is answered."""
        number = len(self.beats)
        for _ in range(number):
            self.lose_heartbeat()
        return number > 0

    def answer_to(self, order: Any, reply: Any) -> Event:  # noqa: ANN401
        """A reply as the wire reports it."""
        return answer_to(order, reply)

    def failure_of(self, order: Any) -> Event:  # noqa: ANN401
        """What the member learns of a request without an answer."""
        return failure_of(order)

    # ---- what the coordinator did ----

    def executed_heartbeat(self, _: int, answer: Answer) -> None:
        """The first heartbeat that the coordinator had not seen was handled by it."""
        number = next(place for place, one in enumerate(self.beats) if one.answer is None)
        self.beats[number] = self.beats[number]._replace(answer=answer)
        self.forget_zombies(Heartbeat)
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

    def executed_call(self, _: int, reply: Reply) -> None:
        """The first other request that the coordinator had not seen was handled by it; reads are answered at once."""
        number = next(place for place, one in enumerate(self.calls) if one.answer is None)
        order = self.calls[number].order
        self.forget_zombies(type(order))
        if isinstance(order, FetchCommitted):
            self.calls.pop(number)
            self.feed(answer_to(order, reply))
        else:
            self.calls[number] = Call(order, reply)

    def grow_old(self) -> None:
        """The session's end: the coordinator's last answer is long ago."""
        self.member.heartbeats.confirmed_at = None

    # ---- the clock ----

    def beat(self) -> None:
        """The next heartbeat is due."""
        heartbeats = self.member.heartbeats
        heartbeats._sent_at, heartbeats._not_before = -SESSION_S, 0.0
        self.feed(TimePassed())

    def wait_too_long(self) -> None:
        """The holder of the instance id has been waited for longer than a session lasts."""
        self.member.instance._attempt.waits_since = LONG_AGO

    def protocol_moves(self) -> Iterator[Move]:
        """Heartbeats, and waiting for an instance id."""
        if self.beats:
            yield Move("lose_heartbeat", budget="loss")
            if self.beats[0].answer is not None:
                yield Move("take_answer")
                yield Move("take_answer_twice", budget="duplicate")
        if self.member.instance.waits_since == 0.0:
            yield Move("wait_too_long", budget="timeout")

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

    def asks(self) -> Iterator[Ask]:
        """The oldest request on each connection that the coordinator has not handled; a read waits for those before."""
        beat = next((one.beat for one in self.beats if one.answer is None), None)
        if beat is not None:
            yield Ask("executed_heartbeat", 0, beat)
        order = next((one.order for one in self.calls if one.answer is None), None)
        is_first = bool(self.calls) and self.calls[0].answer is None
        if order is not None and (is_first or not isinstance(order, FetchCommitted)):
            yield Ask("executed_call", 0, question_of(order))
        for place, request in enumerate(self.zombies):
            if request not in self.zombies[:place]:
                yield Ask("executed_zombie", place, question_of(request))

    @property
    def unseen(self) -> list[Any]:
        """What is under way to the coordinator and may change something."""
        beats: list[Any] = [one.beat for one in self.beats if one.answer is None]
        commits = [one.order for one in self.calls if one.answer is None and isinstance(one.order, CommitOffsets)]
        return [question_of(request) for request in (*beats, *commits)]

    @property
    def left_behind(self) -> list[Any]:
        """What is still under way when the process dies."""
        return [*self.unseen, *map(question_of, self.zombies)]

    @property
    def shown(self) -> MemberState:
        """The member's state."""
        return self.member.state

    @property
    def instance_id(self) -> str | None:
        """The instance id that it has now."""
        return self.member.instance.id

    @property
    def is_answered(self) -> bool:
        """Whether a heartbeat's answer is on its way."""
        return any(one.answer is not None for one in self.beats)

    @property
    def may_wait(self) -> bool:
        """The policy `wait`: until the holder has gone."""
        return self.member.state is _S.JOINING and self.member.instance.is_waiting

    def should_go_on(self) -> bool:
        """Whether it was never let in, lost no race, and did not wait in vain."""
        if self.member._fatal is None:
            return self.application.is_subscribed
        watch = self.watch
        return watch.is_newest and watch.takeovers == 0 and self.member.instance.waits_since != LONG_AGO
