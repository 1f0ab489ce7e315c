"""`Scene` runs one member with a scripted environment; the functions below build scenes that begin in each state.

The clock is a number, and jitter is fixed at the middle of its range, so delays are exact. The network and the
application act only when a test calls a method of the scene.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.member_ids import new_member_id
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import (
    BrokerAddress,
    BrokerError,
    ConflictPolicy,
    HandOverAnnouncement,
    LeaveOption,
    OffsetAndMetadata,
    TopicIdPartition,
    TopicPartition,
)
from tests.support.protocols import CONSUMER_ONLY
from tests.support.subscriptions import to_a_broker

EffectT = TypeVar("EffectT", bound=GroupEffect)

START = 1000.0
INTERVAL_S = 5.0
MAX_POLL_S = 300.0

ORDERS, PAYMENTS = UUID(int=1), UUID(int=2)
NAMES: Mapping[UUID, str] = {ORDERS: "orders", PAYMENTS: "payments"}
#: Partitions with topic ids, as the protocol names them. `named` returns them with topic names, as applications do.
A0, A1, A2 = (TopicIdPartition(ORDERS, number) for number in range(3))
B0, B1 = (TopicIdPartition(PAYMENTS, number) for number in range(2))

COORDINATOR = BrokerAddress(node_id=1, host="broker", port=9092)

FENCED_EPOCH = BrokerError(code=110, name="FENCED_MEMBER_EPOCH")
UNKNOWN_MEMBER = BrokerError(code=25, name="UNKNOWN_MEMBER_ID")
GROUP_FULL = BrokerError(code=81, name="GROUP_MAX_SIZE_REACHED", message="full")
LOADING = BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS")
MOVED = BrokerError(code=16, name="NOT_COORDINATOR")
BAD_REGEX = BrokerError(code=128, name="INVALID_REGULAR_EXPRESSION", message="`(` is not valid")
NOT_ALLOWED = BrokerError(code=30, name="GROUP_AUTHORIZATION_FAILED", message="Not authorized to access group: g")
GROUP_GONE = BrokerError(code=69, name="GROUP_ID_NOT_FOUND")
UNRELEASED = BrokerError(code=111, name="UNRELEASED_INSTANCE_ID", message="owned by another member")

STEPS = (ef.PausePartitions, ef.RevokePartitions, ef.LosePartitions, ef.AssignPartitions)
STEP_OF: Mapping[type[ef.StepEffect], ev.Step] = dict(
    zip(STEPS, (ev.Step.PAUSE, ev.Step.REVOKE, ev.Step.LOSE, ev.Step.ASSIGN), strict=True)
)


def named(*partitions: TopicIdPartition) -> frozenset[TopicPartition]:
    """Return these partitions with topic names."""
    return frozenset(TopicPartition(NAMES[p.topic_id], p.partition) for p in partitions)


def at(offset: int, *partitions: TopicIdPartition) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return this offset for each of these partitions."""
    return {partition: OffsetAndMetadata(offset=offset) for partition in named(*partitions)}


def created(at_s: float) -> str:
    """Return a member id with this creation time."""
    return new_member_id(round(at_s * 1000), bytes(10))


class Scene:
    """One member, its clock, and all effects that it has returned so far."""

    def __init__(self, **settings: object) -> None:
        self.ids = [f"member-{number}" for number in range(50, 0, -1)]
        if "member_id" in settings:
            self.ids.append(str(settings.pop("member_id")))
        values: dict[str, object] = {"group_id": "g", "max_poll_interval_s": MAX_POLL_S} | settings
        self.member = MemberCore(
            MemberSettings(**values),  # type: ignore[arg-type]  # the test chooses the values
            CONSUMER_ONLY,
            new_member_id=self.ids.pop,
            jitter=lambda: 0.5,
        )
        self.now = START
        self.effects: list[GroupEffect] = []
        self.last: tuple[GroupEffect, ...] = ()
        self._settled = 0

    # ---- what the member did ----

    @property
    def context(self) -> MemberContext:
        """The parts of the member that both protocols share."""
        return self.member.context

    @property
    def protocol(self) -> ConsumerProtocol:
        """The member's consumer protocol."""
        protocol = self.member._protocol
        assert isinstance(protocol, ConsumerProtocol)
        return protocol

    @property
    def state(self) -> MemberState:
        return self.protocol.state

    @property
    def view(self) -> MembershipView:
        return self.member.view()

    @property
    def edges(self) -> list[tuple[MemberState, MemberState]]:
        """The state transitions so far."""
        return [(change.old, change.new) for change in self.all(ef.StateChanged)]

    def all(self, kind: type[EffectT]) -> list[EffectT]:
        """Return all effects of a kind so far."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def new(self, kind: type[EffectT]) -> list[EffectT]:
        """Return the last event's effects of a kind."""
        return [effect for effect in self.last if isinstance(effect, kind)]

    @property
    def kinds(self) -> list[str]:
        """The names of the last event's effects, in order."""
        return [type(effect).__name__ for effect in self.last]

    @property
    def heartbeats(self) -> list[ef.Heartbeat]:
        """All heartbeats so far."""
        return [order.heartbeat for order in self.all(ef.SendHeartbeat)]

    @property
    def new_heartbeats(self) -> list[ef.Heartbeat]:
        """The last event's heartbeats."""
        return [order.heartbeat for order in self.new(ef.SendHeartbeat)]

    @property
    def new_steps(self) -> list[ef.StepEffect]:
        return [effect for effect in self.last if isinstance(effect, STEPS)]

    @property
    def step(self) -> ef.StepEffect:
        """The latest step that was ordered."""
        return next(effect for effect in reversed(self.effects) if isinstance(effect, STEPS))

    @property
    def request_id(self) -> int:
        """The request number of the latest heartbeat."""
        return self.all(ef.SendHeartbeat)[-1].request_id

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self.view.owned)

    # ---- the clock ----

    def feed(self, event: ev.Event) -> Scene:
        """Pass an event to the member at the current time."""
        ordered = self.member.handle(event, self.now)
        # `test_choice` checks which protocol the member chooses.
        self.last = tuple(effect for effect in ordered if not isinstance(effect, ef.ProtocolChosen))
        self.effects += self.last
        return self

    def after(self, seconds: float) -> Scene:
        """Let this much time pass in one step."""
        self.now += seconds
        return self.feed(ev.TimePassed())

    def until(self, condition: Callable[[Scene], bool], limit_s: float = 600.0) -> Scene:
        """Advance the clock from deadline to deadline until the condition holds."""
        end = self.now + limit_s
        while not condition(self):
            deadline = self.member.next_deadline()
            assert deadline is not None, "the member has no deadline"
            assert deadline <= end, "the condition did not hold within the limit"
            self.now = max(self.now, deadline)
            self.feed(ev.TimePassed())
        return self

    def next_heartbeat(self) -> ef.Heartbeat:
        """Let time pass until the next heartbeat is sent."""
        before = len(self.heartbeats)
        return self.until(lambda scene: len(scene.heartbeats) > before).heartbeats[-1]

    # ---- the application ----

    def subscribe(self, *topics: str, pattern: str | None = None, is_eager: bool = False) -> Scene:
        return self.feed(ev.Subscribed(subscription=to_a_broker(*topics, pattern=pattern), is_eager=is_eager))

    def poll(self, *, delivered: bool = False) -> Scene:
        return self.feed(ev.Polled(delivered=delivered))

    def finish(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        *,
        failed: bool = False,
        step: ef.StepEffect | None = None,
    ) -> Scene:
        """The application completes this step, by default the latest one."""
        done = step or self.step
        kind = STEP_OF[type(done)]
        return self.feed(ev.StepFinished(attempt=done.attempt, step=kind, offsets=offsets or {}, failed=failed))

    def leave(self, option: LeaveOption = LeaveOption.DEFAULT) -> Scene:
        return self.feed(ev.LeaveRequested(option=option))

    def commit(self, offset: int, *partitions: TopicIdPartition, commit_id: int = 1, timeout_s: float = 60.0) -> Scene:
        return self.feed(ev.CommitRequested(commit_id=commit_id, offsets=at(offset, *partitions), timeout_s=timeout_s))

    # ---- the network ----

    def found(self) -> Scene:
        return self.feed(ev.CoordinatorFound(coordinator=COORDINATOR))

    def answer(
        self,
        epoch: int | None = None,
        assignment: Iterable[TopicIdPartition] | None = None,
        *,
        interval_s: float = INTERVAL_S,
        request_id: int | None = None,
    ) -> Scene:
        """The coordinator accepts this heartbeat, by default the latest; by default the epoch stays unchanged."""
        return self.feed(
            ev.HeartbeatAnswered(
                request_id=self.request_id if request_id is None else request_id,
                member_epoch=max(1, self.protocol.member_epoch) if epoch is None else epoch,
                heartbeat_interval_s=interval_s,
                assignment=None if assignment is None else frozenset(assignment),
            )
        )

    def reject(
        self, verdict: ev.Verdict, error: BrokerError, *, holder: str | None = None, request_id: int | None = None
    ) -> Scene:
        """The coordinator rejects this heartbeat, by default the latest."""
        number = self.request_id if request_id is None else request_id
        return self.feed(ev.HeartbeatRejected(request_id=number, verdict=verdict, error=error, holder=holder))

    def fence(self, error: BrokerError = FENCED_EPOCH) -> Scene:
        """The coordinator rejects the next heartbeat, because it does not know the member or its epoch."""
        return self.with_heartbeat_in_flight().reject(ev.Verdict.REJOIN, error)

    def fail(self, error: BrokerError = GROUP_FULL) -> Scene:
        """The coordinator rejects the next heartbeat permanently."""
        return self.with_heartbeat_in_flight().reject(ev.Verdict.FATAL, error)

    def drop(self, *, retriable: bool = True) -> Scene:
        """The latest heartbeat fails without a response."""
        return self.feed(ev.HeartbeatFailed(request_id=self.request_id, reason="disconnected", retriable=retriable))

    def resolve(self, *topic_ids: UUID) -> Scene:
        return self.feed_names({topic_id: NAMES[topic_id] for topic_id in topic_ids})

    def feed_names(self, names: Mapping[UUID, str]) -> Scene:
        """A Metadata response with these names arrives."""
        return self.feed(ev.TopicIdsResolved(names=names))

    def offsets(self, offset: int = 0) -> Scene:
        """The start offsets of the latest request arrive."""
        asked = self.all(ef.FetchCommitted)[-1]
        return self.feed(ev.StartOffsetsFetched(attempt=asked.attempt, offsets=dict.fromkeys(asked.partitions, offset)))

    def committed(
        self,
        verdict: ev.CommitVerdict = ev.CommitVerdict.FINAL,
        error: BrokerError | None = None,
        *,
        order: ef.CommitOffsets | None = None,
    ) -> Scene:
        """The coordinator answers this commit, by default the latest."""
        asked = order or self.all(ef.CommitOffsets)[-1]
        return self.feed(
            ev.CommitAnswered(commit_id=asked.commit_id, verdict=verdict, errors=dict.fromkeys(asked.offsets, error))
        )

    # ---- several events ----

    def with_heartbeat_in_flight(self) -> Scene:
        """If no ordinary heartbeat is in flight, let time pass until one is sent."""
        if self.protocol.heartbeats.in_flight is None:
            self.next_heartbeat()
        return self

    def target(self, epoch: int, *partitions: TopicIdPartition) -> Scene:
        """The coordinator's next heartbeat response carries this target assignment."""
        return self.with_heartbeat_in_flight().answer(epoch, partitions)

    def settle(self, *, answers: bool = True) -> Scene:
        """Let application and network complete every order immediately, without errors, until no order is left."""
        while self._settled < len(self.effects):
            effect = self.effects[self._settled]
            self._settled += 1
            match effect:
                case ef.FindCoordinator() if not self.context.coordinator.is_known:
                    self.found()
                case ef.ResolveTopicIds():
                    self.resolve(*effect.topic_ids)
                case ef.FetchCommitted():
                    self.feed(
                        ev.StartOffsetsFetched(attempt=effect.attempt, offsets=dict.fromkeys(effect.partitions, 0))
                    )
                case ef.CommitOffsets():
                    self.committed(order=effect)
                case ef.SendHeartbeat() if answers:
                    self.answer(request_id=effect.request_id)
                case ef.PausePartitions() | ef.RevokePartitions() | ef.LosePartitions() | ef.AssignPartitions() if (
                    effect.attempt == self.step.attempt
                ):
                    self.finish(step=effect)
                case ef.CollectPositions():
                    self.feed(ev.PositionsReported(commit_id=effect.commit_id, offsets={}))
                case _:
                    pass
        return self


# ---- scenes that begin in a state -----------------------------------------------------------------------------------


def joining(**settings: object) -> Scene:
    """JOINING, with the join in flight."""
    return Scene(**settings).subscribe("orders", "payments").poll().found()


def stable(*partitions: TopicIdPartition, **settings: object) -> Scene:
    """STABLE at epoch 1 with these partitions, nothing in flight."""
    return joining(**settings).answer(1, partitions).settle()


def revoking(**settings: object) -> Scene:
    """RECONCILE at epoch 2: the member owns A0 and A1, and the pause of A1 before its revocation was ordered."""
    return stable(A0, A1, **settings).target(2, A0)


def adding(**settings: object) -> Scene:
    """RECONCILE at epoch 2: the member owns A0, and on_assign of A1 was ordered."""
    return stable(A0, **settings).target(2, A0, A1).offsets()


def acknowledging(**settings: object) -> Scene:
    """ACK: an earlier heartbeat is still in flight, so the acknowledgement waits."""
    return adding(**settings).with_heartbeat_in_flight().finish()


def fenced(**settings: object) -> Scene:
    """FENCED: on_lost of A0 was ordered."""
    return stable(A0, **settings).fence()


def stale(**settings: object) -> Scene:
    """STALE: on_lost of A0 was ordered."""
    return stable(A0, **settings).after(MAX_POLL_S)


def unsubscribing(**settings: object) -> Scene:
    """UNSUBSCRIBING: the pause of all partitions was ordered."""
    return stable(A0, **settings).leave()


def handing_over(**settings: object) -> Scene:
    """UNSUBSCRIBING: the member read an announcement of `successor`, and the pause of all partitions was ordered."""
    scene = stable(A0, A1, instance_id="i", conflict_policy=ConflictPolicy.HAND_OVER, **settings)
    return requested(scene.until(lambda s: bool(s.all(ef.ReadAnnouncements))))


def requested(scene: Scene, successor: str = "successor", instance_id: str = "i") -> Scene:
    """The announcements of the latest request arrive: this successor is ready to take over the member's place."""
    order = scene.all(ef.ReadAnnouncements)[-1]
    announcement = HandOverAnnouncement(
        predecessor=scene.protocol.member_id, successor=successor, instance_id=instance_id
    )
    return scene.feed(
        ev.AnnouncementsRead(request_id=order.request_id, announcements=dict.fromkeys(order.partitions, announcement))
    )


def leaving(**settings: object) -> Scene:
    """UNSUBSCRIBING: all partitions were released and the leave is in flight."""
    return unsubscribing(**settings).settle(answers=False)


def fatal(**settings: object) -> Scene:
    """FATAL: on_lost of A0 was ordered."""
    return stable(A0, **settings).fail()


#: A scene for each state.
IN_STATE: Mapping[MemberState, Callable[[], Scene]] = {
    MemberState.UNSUBSCRIBED: lambda: Scene().subscribe("orders"),
    MemberState.JOINING: joining,
    MemberState.RECONCILE: adding,
    MemberState.ACK: acknowledging,
    MemberState.STABLE: lambda: stable(A0),
    MemberState.FENCED: fenced,
    MemberState.STALE: stale,
    MemberState.UNSUBSCRIBING: unsubscribing,
    MemberState.FATAL: fatal,
}
