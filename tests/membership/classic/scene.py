"""`ClassicScene` runs one classic member: a test acts as coordinator, application and clock, and reads its effects."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from consumer_membership.assignors.assignor import Assigned, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import ProtocolSettings
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.protocol import ClassicProtocol
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import (
    BrokerAddress,
    BrokerError,
    GroupProtocol,
    LeaveOption,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.support.subscriptions import to_a_member

EffectT = TypeVar("EffectT")

COORDINATOR = BrokerAddress(node_id=1, host="broker", port=9092)
A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
REBALANCING = BrokerError(code=27, name="REBALANCE_IN_PROGRESS")
UNKNOWN = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
OLD_GENERATION = BrokerError(code=22, name="ILLEGAL_GENERATION")
MAX_POLL_S = 300.0
REFRESH_S = 300.0
_STEPS = {
    ef.PausePartitions: ev.Step.PAUSE,
    ef.RevokePartitions: ev.Step.REVOKE,
    ef.LosePartitions: ev.Step.LOSE,
    ef.AssignPartitions: ev.Step.ASSIGN,
}


@dataclass(frozen=True)
class Plan:
    """An assignor whose name and protocols a test chooses; the test also provides its results."""

    name: str = "plan"
    protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.COOPERATIVE})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        return f"{sorted(topics)} {len(owned)} {generation}".encode()

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition] | Assigned]:
        raise NotImplementedError


EAGER = Plan(protocols=frozenset({RebalanceProtocol.EAGER}))


class ClassicScene:
    """One classic member, its clock, and all effects that it has returned so far."""

    def __init__(self, *assignors: Plan, classic: Mapping[str, object] | None = None, **settings: object) -> None:
        values: dict[str, object] = {"group_id": "g", "max_poll_interval_s": MAX_POLL_S} | settings
        classic_settings = ClassicSettings(assignors=assignors or (Plan(),), **(classic or {}))  # type: ignore[arg-type]
        self.member = MemberCore(
            MemberSettings(**values),  # type: ignore[arg-type]  # the test chooses the values
            ProtocolSettings(classic=classic_settings, protocols=(GroupProtocol.CLASSIC,)),
            new_member_id=lambda: "unused",
            jitter=lambda: 0.5,
        )
        self.now = 100.0
        self.effects: list[GroupEffect] = []
        self.last: tuple[GroupEffect, ...] = ()

    # ---- what the member did ----

    @property
    def context(self) -> MemberContext:
        """The parts of the member that both protocols share."""
        return self.member.context

    @property
    def view(self) -> MembershipView:
        return self.member.view()

    @property
    def protocol(self) -> ClassicProtocol:
        """The member's classic protocol."""
        protocol = self.member._protocol
        assert isinstance(protocol, ClassicProtocol)
        return protocol

    @property
    def state(self) -> ClassicState:
        return self.protocol.state

    def all(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def new(self, kind: type[EffectT]) -> list[EffectT]:
        return [effect for effect in self.last if isinstance(effect, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(effect).__name__ for effect in self.last if not isinstance(effect, ef.StateChanged)]

    @property
    def join(self) -> ex.SendJoin:
        return self.all(ex.SendJoin)[-1]

    @property
    def sync(self) -> ex.SendSync:
        return self.all(ex.SendSync)[-1]

    @property
    def owned(self) -> set[TopicPartition]:
        return set(self.context.ownership.named_owned)

    # ---- the clock, the application ----

    def feed(self, event: GroupEvent) -> ClassicScene:
        ordered = self.member.handle(event, self.now)
        # `test_choice` checks which protocol the member chooses.
        self.last = tuple(effect for effect in ordered if not isinstance(effect, ef.ProtocolChosen))
        self.effects += self.last
        return self

    def after(self, seconds: float) -> ClassicScene:
        self.now += seconds
        return self.feed(ev.TimePassed())

    def subscribe(self, *topics: str, pattern: str | None = None, is_eager: bool = False) -> ClassicScene:
        return self.feed(ev.Subscribed(subscription=to_a_member(*topics, pattern=pattern), is_eager=is_eager))

    def poll(self, *, delivered: bool = False) -> ClassicScene:
        return self.feed(ev.Polled(delivered=delivered))

    def leave(self, option: LeaveOption = LeaveOption.DEFAULT) -> ClassicScene:
        return self.feed(ev.LeaveRequested(option=option))

    def finish(self, *, failed: bool = False) -> ClassicScene:
        """The application completes the latest step."""
        step = next(effect for effect in reversed(self.effects) if type(effect) in _STEPS)
        kind = _STEPS[type(step)]
        return self.feed(ev.StepFinished(attempt=step.attempt, step=kind, failed=failed))  # type: ignore[union-attr]

    def settle(self) -> ClassicScene:
        """Let the application complete its steps, and let start offsets arrive, until no order is left."""
        while True:
            match [effect for effect in self.last if type(effect) in _STEPS or isinstance(effect, ef.FetchCommitted)]:
                case [*_, ef.FetchCommitted() as fetch]:
                    offsets = dict.fromkeys(fetch.partitions, 0)
                    self.feed(ev.StartOffsetsFetched(attempt=fetch.attempt, offsets=offsets))
                case [*_, _]:
                    self.finish()
                case _:
                    return self

    # ---- the coordinator ----

    def found(self) -> ClassicScene:
        return self.feed(ev.CoordinatorFound(coordinator=COORDINATOR))

    def gather(
        self,
        generation: int,
        *,
        leads: bool = False,
        members: Mapping[str, MemberSubscription] | None = None,
        skip: bool = False,
        protocol: str = "plan",
        leader: str = "leader",
    ) -> ClassicScene:
        """The coordinator answers the JoinGroup, because all members of the generation have joined."""
        mine = self.protocol.member_id or "m"
        return self.feed(
            ex.JoinAnswered(
                request_id=self.join.request_id,
                generation=generation,
                member_id=mine,
                leader_id=mine if leads else leader,
                protocol_name=protocol,
                members=members or {},
                skip_assignment=skip,
            )
        )

    def share(self, *partitions: TopicPartition) -> ClassicScene:
        """The coordinator answers the SyncGroup with these partitions."""
        return self.feed(ex.SyncAnswered(request_id=self.sync.request_id, assignment=frozenset(partitions)))

    def heartbeat(self) -> ex.SendClassicHeartbeat:
        """Let time pass until the next heartbeat is sent."""
        before = len(self.all(ex.SendClassicHeartbeat))
        while len(self.all(ex.SendClassicHeartbeat)) == before:
            deadline = self.member.next_deadline()
            assert deadline is not None
            self.now = max(self.now, deadline)
            self.feed(ev.TimePassed())
        return self.all(ex.SendClassicHeartbeat)[-1]

    def heartbeat_answered(self) -> ClassicScene:
        return self.feed(ex.ClassicHeartbeatAnswered(request_id=self.heartbeat().request_id))

    def heartbeat_rejected(self, verdict: ex.ClassicVerdict, error: BrokerError) -> ClassicScene:
        request_id = self.heartbeat().request_id
        return self.feed(ex.ClassicHeartbeatRejected(request_id=request_id, verdict=verdict, error=error))

    def rebalance(self) -> ClassicScene:
        """The response to the next heartbeat is REBALANCE_IN_PROGRESS."""
        return self.heartbeat_rejected(ex.ClassicVerdict.REJOIN_NOW, REBALANCING)

    def join_rejected(self, verdict: ex.ClassicVerdict, error: BrokerError, member_id: str = "") -> ClassicScene:
        request_id = self.join.request_id
        return self.feed(ex.JoinRejected(request_id=request_id, verdict=verdict, error=error, member_id=member_id))

    def sync_rejected(self, verdict: ex.ClassicVerdict, error: BrokerError) -> ClassicScene:
        return self.feed(ex.SyncRejected(request_id=self.sync.request_id, verdict=verdict, error=error))

    def described(self, **partitions: int) -> ClassicScene:
        """A Metadata response arrives: the topics have these numbers of partitions."""
        request_id = self.all(ex.DescribeTopics)[-1].request_id
        return self.feed(ex.TopicsDescribed(request_id=request_id, topics=Topics(partitions=partitions)))

    def listed(self, *topics: str) -> ClassicScene:
        """The response to the latest Metadata request for all topics arrives: these topics exist."""
        request_id = next(asked.request_id for asked in reversed(self.all(ex.DescribeTopics)) if asked.topics is None)
        return self.feed(ex.TopicsDescribed(request_id=request_id, topics=Topics(partitions=dict.fromkeys(topics, 1))))

    def computed(self, **shares: Iterable[TopicPartition]) -> ClassicScene:
        """The assignor returns these partitions for the members."""
        assignments = {member_id: frozenset(share) for member_id, share in shares.items()}
        return self.feed(ex.AssignmentComputed(generation=self.protocol.generation, assignments=assignments))


def joining(*assignors: Plan, **settings: object) -> ClassicScene:
    """JOINING, with the first JoinGroup in flight."""
    return ClassicScene(*assignors, **settings).subscribe("a").poll().found()  # type: ignore[arg-type]


def stable(*partitions: TopicPartition, assignors: tuple[Plan, ...] = (), **settings: object) -> ClassicScene:
    """STABLE in generation 1 as a follower with these partitions."""
    return joining(*assignors, **settings).gather(1).share(*partitions).settle()


def at(offset: int, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return this offset for each of these partitions."""
    return {partition: OffsetAndMetadata(offset=offset) for partition in partitions}
