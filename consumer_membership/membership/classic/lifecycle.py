"""The ways into, out of and around a classic group: preparing, being fenced, failing, leaving.

`ClassicLifecycle` holds the parts of a member and is the only writer of its state; `member.ClassicMember` decides which
way to go.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias
from uuid import NAMESPACE_OID, UUID, uuid5

from consumer_membership.errors import InternalError
from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.classic.exchanges import ClassicEffect, SendClassicLeave
from consumer_membership.membership.classic.heartbeat import ClassicHeartbeats
from consumer_membership.membership.classic.leadership import LeaderEffect
from consumer_membership.membership.classic.pattern import SubscribedPatterns
from consumer_membership.membership.classic.place import MAKES_ROOM, Place
from consumer_membership.membership.classic.settings import ClassicSettings
from consumer_membership.membership.classic.states import HEARTBEATS, SHOWN, VALID_TRANSITIONS, ClassicState
from consumer_membership.membership.classic.subscription import NO_GENERATION
from consumer_membership.membership.effects import (
    Effect,
)
from consumer_membership.membership.funnel import Funnel
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, CommitIdentity
from consumer_membership.membership.participant import LEAVE_ANSWER_S
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.topics import TopicWatch
from consumer_membership.types import (
    NO_MEMBER_ID,
    BrokerError,
    Instant,
    LeaveOption,
    Subscription,
    TopicIdPartition,
    TopicPartition,
)

_S = ClassicState

#: What a classic member orders.
AnyEffect: TypeAlias = Effect | ClassicEffect | LeaderEffect

#: Java's reasons, which brokers log.
INITIAL = "initialized by the application's poll"
CLOSES = "the consumer is being closed"
EXPIRES = "consumer poll timeout has expired."


def key_of(partition: TopicPartition) -> TopicIdPartition:
    """The partition as the shared parts name it: the classic protocol knows no topic ids, so the name makes one."""
    return TopicIdPartition(topic_key(partition.topic), partition.partition)


def topic_key(topic: str) -> UUID:
    """What stands for the id of the topic with this name."""
    return uuid5(NAMESPACE_OID, topic)


#: The states in which a member owns what its heartbeats keep for it.
_OWNS = frozenset({_S.PREPARING, _S.RECONCILE, _S.STABLE})


class ClassicLifecycle(Funnel[ClassicEffect | LeaderEffect]):
    """The parts of one member of a classic group, its state, and the moves between states."""

    _FIRST_JOIN: ClassVar[str] = INITIAL

    def __init__(self, settings: MemberSettings, classic: ClassicSettings, *, jitter: Jitter) -> None:
        super().__init__(settings, jitter=jitter)
        self.classic = classic
        # With patterns this member has the list of all topics already.
        self.watch = TopicWatch(settings.topic_refresh_s, jitter, lists_all=False)
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.state = _S.UNSUBSCRIBED
        #: What the leader gave last: an eager member owns nothing when it joins, and its assignor may ask for this.
        self.last_share: frozenset[TopicPartition] = frozenset()
        #: The generation to which that, and what is owned, belongs: not that of a JoinGroup without a SyncGroup.
        self.share_generation = NO_GENERATION
        #: Why the member has to join again, as the broker's log gets to know it; None: it has not.
        self.rejoins_because: str | None = None
        self._backoff = self._new_backoff(jitter)
        self.place = Place(settings.instance_id, classic.session_timeout_s)
        self.patterns = SubscribedPatterns(classic.refresh_interval_s, self._new_backoff(jitter), classic.blacklist)
        self.heartbeats = ClassicHeartbeats(
            classic.heartbeat_interval_s,
            settings.active_heartbeat_interval_s,
            classic.session_timeout_s,
            self._new_backoff(jitter),
        )
        #: What the last JoinGroup said: the subscription, and the topics that it came to.
        self._told = Subscription()
        self._told_topics: frozenset[str] = frozenset()
        self._join_not_before: Instant = 0.0
        #: The JoinGroup or SyncGroup under way.
        self._exchange: int | None = None
        self._last_request_id = 0

    # ---- state ----

    def _transition(self, new: ClassicState, reason: str) -> None:
        """Write the state: the only place that does."""
        if new not in VALID_TRANSITIONS[self.state]:
            raise InternalError(f"a classic member cannot go from {self.state} to {new} ({reason})")
        old, shown = SHOWN[self.state], SHOWN[new]
        if old is not shown:
            self._note_transition(old, shown, reason)
        self.state = new
        self.since = self._now

    @property
    def shown(self) -> MemberState:
        """The state as it is shown where both protocols are."""
        return SHOWN[self.state]

    def _go(self, shown: MemberState, reason: str) -> None:
        self._transition(_S(shown.value), reason)

    def _next_request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id

    # ---- questions ----

    @property
    def topics(self) -> frozenset[str]:
        """What the subscription comes to: the named topics, and those that match the pattern."""
        return self.subscription.topics | self.patterns.matched

    @property
    def _change(self) -> str | None:
        """Why what the last JoinGroup said holds no more; None: it holds, or the list of topics is not there yet."""
        if not self.patterns.is_resolved or self.topics == self._told_topics:
            return None
        is_same = self.subscription == self._told
        return "the topics that match the pattern have changed" if is_same else "the subscription changed"

    @property
    def _identity(self) -> CommitIdentity:
        """As whom the member fetches and commits: a classic OffsetFetch names no member."""
        return CommitIdentity(
            member_id=self.member_id, member_epoch=self.generation, instance_id=self.settings.instance_id
        )

    @property
    def _may_commit(self) -> bool:
        """While the group gathers no commit is accepted."""
        is_settled = self.state in (_S.PREPARING, _S.RECONCILE, _S.STABLE, _S.UNSUBSCRIBING)
        return is_settled and self.generation != NO_GENERATION

    @property
    def _is_counted(self) -> bool:
        return self.member_id != NO_MEMBER_ID and self.generation != NO_GENERATION

    @property
    def session_s(self) -> float:
        """The session timeout, which a classic member states itself."""
        return self.classic.session_timeout_s

    @property
    def lease_until(self) -> Instant | None:
        """Until when what the member owns is surely its own (`Participant.lease_until`).

        While the group gathers the coordinator keeps everybody's place, whether anything is heard of them or not.
        """
        heard_at = self.heartbeats.heard_at
        if self.state not in _OWNS or not self.ownership.owned or heard_at is None:
            return None
        return heard_at + self.classic.session_timeout_s

    @property
    def _may_heartbeat(self) -> bool:
        is_free = self.heartbeats.in_flight is None and self._leave_request is None
        return is_free and self.coordinator.is_known and self._is_counted and self.state in HEARTBEATS

    def awaits(self, request_id: int) -> bool:
        """Whether this is the JoinGroup or SyncGroup that is under way."""
        return request_id == self._exchange

    @property
    def _is_attentive(self) -> bool:
        """Whether a heartbeat may bring news: not while a rebalance is under way, or known to come."""
        return self.state in (_S.RECONCILE, _S.STABLE) and self.rejoins_because is None

    # ---- joining ----

    def _join(self, reason: str, *, delay_s: float = 0.0) -> None:
        """Go to JOINING, or stay there; the JoinGroup goes out as soon as it may."""
        self._exchange = None
        self._join_not_before = self._now + delay_s
        self._fatal = None
        self.rejoins_because = self.rejoins_because or reason
        if self.state is not _S.JOINING:
            # Who comes back from a fence or a missed poll may be the older of two holders of an instance id.
            self.place.begin(is_newest=self.state in (_S.UNSUBSCRIBED, _S.FATAL))
            self._transition(_S.JOINING, reason)

    def _prepare(self, reason: str) -> None:
        """Begin a rebalance: what must be given up before the join is given up (rules 4.4)."""
        self._exchange = None
        self.rejoins_because = reason
        self._transition(_S.PREPARING, reason)

    def _kept(self) -> frozenset[TopicIdPartition]:
        """What a member keeps through a rebalance: an eager one nothing, a cooperative one all that it subscribes."""
        if self.classic.is_eager:
            return frozenset()
        topics = {topic_key(topic) for topic in self.topics}
        return frozenset(p for p in self.ownership.owned if p.topic_id in topics)

    # ---- out of the group, in good order or not ----

    def _fence(self, error: BrokerError, *, keeps_id: bool = False) -> None:
        """The coordinator does not know the member, or its generation: what is owned is lost (rules 4.7)."""
        self.last_error = error
        self._forget_epoch()
        if not keeps_id:
            self.member_id = NO_MEMBER_ID
        self._forget_requests()
        if self.state is _S.UNSUBSCRIBING:
            self._drop_everything(ASSIGNMENT_LOST)
            self._left(f"fenced while leaving ({error.name})")
            return
        if self.state is _S.JOINING and not self.reconciler.may_hold:
            self._join(str(error), delay_s=self._backoff.next_delay())
            return
        self._transition(_S.FENCED, str(error))
        self._drop_everything(ASSIGNMENT_LOST)
        if self.reconciler.is_idle:
            self._rejoin_after_fence()

    def _forget_requests(self) -> None:
        self._exchange = None
        self.place.forget()
        self.heartbeats.forget()

    def _rejoin_after_fence(self) -> None:
        self._join("fenced; everything was given up")

    def _fail(self, error: BrokerError) -> None:
        super()._fail(error)
        self.rejoins_because = None

    def _forget_epoch(self) -> None:
        self.generation = self.share_generation = NO_GENERATION
        self.last_share = frozenset()

    def _leave_unasked(self) -> None:
        self._resign(EXPIRES)

    def _forget_membership(self) -> None:
        super()._forget_membership()
        if not self.settings.is_static:
            # A static member keeps its id: with another one it would fence itself when it comes back (KAFKA-20985).
            self.member_id = NO_MEMBER_ID

    def _resign(self, reason: str) -> None:
        """A dynamic member leaves without waiting for an answer, and its id with it; a static one keeps its place."""
        if not self.settings.is_static:
            self._walk_out(reason)

    def _walk_out(self, reason: str) -> None:
        """Leave for good without waiting for an answer, a static member too."""
        if self.coordinator.is_known and self.member_id != NO_MEMBER_ID:
            self._send_leave(reason)
        self.member_id = NO_MEMBER_ID

    def _leave(self) -> None:
        """Everything was given up: say so, once, and wait a bounded time for the answer (rules 4.8)."""
        option, is_static = self._leave_option, self.settings.is_static
        stays = option is LeaveOption.REMAIN or (is_static and option is LeaveOption.DEFAULT)
        if self.member_id == NO_MEMBER_ID and self._exchange is not None and not stays and self._now < self._leave_by:
            # The JoinGroup that is out may make a member, whose id comes with its answer: it has to leave.
            return
        if self.member_id == NO_MEMBER_ID:
            self._left("the coordinator has never heard of this member")
        elif stays:
            self._left("the member keeps its place until its session ends")
        elif self.coordinator.is_known:
            self._leave_request = self._send_leave(CLOSES)
            self._leave_by = self._now + LEAVE_ANSWER_S
        elif self._now >= self._gives_up_leaving_at:
            self._left("no coordinator could be found to leave from; the session's end removes the member")

    def _make_room(self) -> None:
        """Have the ghost of this instance removed, whose place the full group has no other for."""
        self.place.request = self._next_request_id()
        self._out.append(
            SendClassicLeave(
                request_id=self.place.request,
                member_id=NO_MEMBER_ID,
                instance_id=self.settings.instance_id,
                reason=MAKES_ROOM,
            )
        )

    def _send_leave(self, reason: str) -> int:
        leave = SendClassicLeave(
            request_id=self._next_request_id(),
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            reason=reason,
        )
        self._out.append(leave)
        return leave.request_id
