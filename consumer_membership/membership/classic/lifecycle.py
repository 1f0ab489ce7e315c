"""The ways into, out of and around a classic group: preparing, being fenced, failing, leaving.

`ClassicLifecycle` holds the parts of a member and is the only writer of its state; `member.ClassicMember` decides which
way to go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias
from uuid import NAMESPACE_OID, UUID, uuid5

from consumer_membership.errors import InternalError
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.classic.exchanges import ClassicEffect, SendClassicLeave
from consumer_membership.membership.classic.heartbeat import ClassicHeartbeats
from consumer_membership.membership.classic.leadership import LeaderEffect
from consumer_membership.membership.classic.pattern import SubscribedPattern
from consumer_membership.membership.classic.settings import ClassicSettings
from consumer_membership.membership.classic.states import HEARTBEATS, IN_GROUP, SHOWN, VALID_TRANSITIONS, ClassicState
from consumer_membership.membership.classic.subscription import NO_GENERATION
from consumer_membership.membership.coordinator import Coordinator
from consumer_membership.membership.effects import (
    CommitCompleted,
    Effect,
    LeaveCompleted,
    Problem,
    RaiseToApplication,
    StateChanged,
)
from consumer_membership.membership.lifecycle import LEAVE_ANSWER_S, REMEMBERED_TRANSITIONS
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, AutoCommit, CommitIdentity, Commits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.view import Transition
from consumer_membership.types import (
    NO_EPOCH,
    NO_MEMBER_ID,
    POLL_TIMEOUT_CODE,
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
CLOSES = "the consumer is being closed"
EXPIRES = "consumer poll timeout has expired."


def key_of(partition: TopicPartition) -> TopicIdPartition:
    """The partition as the shared parts name it: the classic protocol knows no topic ids, so the name makes one."""
    return TopicIdPartition(topic_key(partition.topic), partition.partition)


def topic_key(topic: str) -> UUID:
    """What stands for the id of the topic with this name."""
    return uuid5(NAMESPACE_OID, topic)


class ClassicLifecycle:
    """The parts of one member of a classic group, its state, and the moves between states."""

    def __init__(self, settings: MemberSettings, classic: ClassicSettings, *, jitter: Jitter) -> None:
        self.settings = settings
        self.classic = classic
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.state = _S.UNSUBSCRIBED
        self.since: Instant | None = None
        self.subscription = Subscription()
        self.coordinator = Coordinator()
        self.ownership = Ownership()
        self.commits = Commits(settings, jitter)
        self.reconciler = Reconciler(settings, self.ownership, self.commits, jitter)
        self.auto_commit = AutoCommit(settings)
        self.transitions: deque[Transition] = deque(maxlen=REMEMBERED_TRANSITIONS)
        self.last_error: BrokerError | None = None
        self.last_heartbeat_at: Instant | None = None
        #: What the leader gave last: an eager member owns nothing when it joins, and its assignor may ask for this.
        self.last_share: frozenset[TopicPartition] = frozenset()
        #: Why the member has to join again, as the broker's log gets to know it; None: it has not.
        self.rejoins_because: str | None = None
        self._backoff = self._new_backoff(jitter)
        self.pattern = SubscribedPattern(classic.refresh_interval_s, self._new_backoff(jitter))
        self.heartbeats = ClassicHeartbeats(
            classic.heartbeat_interval_s,
            settings.active_heartbeat_interval_s,
            classic.session_timeout_s,
            self._new_backoff(jitter),
        )
        #: What the last JoinGroup said: the subscription, and the topics that it came to.
        self._told = Subscription()
        self._told_topics: frozenset[str] = frozenset()
        self._polled_at: Instant = 0.0
        self._join_not_before: Instant = 0.0
        #: The JoinGroup or SyncGroup under way.
        self._exchange: int | None = None
        self._leave_request: int | None = None
        self._leave_by: Instant = 0.0
        self._leave_option = LeaveOption.DEFAULT
        self._last_request_id = 0
        self._fatal: BrokerError | None = None
        self._has_news = False
        self._out: list[AnyEffect] = []
        self._now: Instant = 0.0

    def _new_backoff(self, jitter: Jitter) -> Backoff:
        return Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, jitter)

    # ---- state ----

    def _transition(self, new: ClassicState, reason: str) -> None:
        """Write the state: the only place that does."""
        if new not in VALID_TRANSITIONS[self.state]:
            raise InternalError(f"a classic member cannot go from {self.state} to {new} ({reason})")
        old, shown = SHOWN[self.state], SHOWN[new]
        if old is not shown:
            self._out.append(StateChanged(old=old, new=shown, reason=reason))
            self.transitions.append(Transition(at=self._now, old=old, new=shown, reason=reason))
        self.state = new
        self.since = self._now

    def _raise(self, problem: Problem, error: BrokerError) -> None:
        self.last_error = error
        self._out.append(RaiseToApplication(problem=problem, error=error))

    def _next_request_id(self) -> int:
        self._last_request_id += 1
        return self._last_request_id

    # ---- questions ----

    @property
    def topics(self) -> frozenset[str]:
        """What the subscription comes to: the named topics, and those that match the pattern."""
        return self.subscription.topics | self.pattern.matched

    @property
    def _change(self) -> str | None:
        """Why what the last JoinGroup said holds no more; None: it holds, or the list of topics is not there yet."""
        if not self.pattern.is_resolved or self.topics == self._told_topics:
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
    def _commit_identity(self) -> CommitIdentity | None:
        """As whom a commit may be sent now; None: not now. While the group gathers no commit is accepted."""
        if not self.coordinator.is_known or self._leave_request is not None:
            return None
        if self.state is _S.UNSUBSCRIBED:
            return CommitIdentity(member_id=NO_MEMBER_ID, member_epoch=NO_EPOCH, instance_id=None)
        is_settled = self.state in (_S.PREPARING, _S.RECONCILE, _S.STABLE, _S.UNSUBSCRIBING)
        return self._identity if is_settled and self.generation != NO_GENERATION else None

    @property
    def _poll_deadline(self) -> Instant:
        return self._polled_at + self.settings.max_poll_interval_s

    @property
    def _needs_coordinator(self) -> bool:
        return self.state in IN_GROUP or self.state is _S.UNSUBSCRIBING or len(self.commits) > 0

    @property
    def _is_member(self) -> bool:
        """Whether the coordinator counts on this member."""
        return self.member_id != NO_MEMBER_ID and self.generation != NO_GENERATION

    @property
    def _may_heartbeat(self) -> bool:
        is_free = self.heartbeats.in_flight is None and self._leave_request is None
        return is_free and self.coordinator.is_known and self._is_member and self.state in HEARTBEATS

    def awaits(self, request_id: int) -> bool:
        """Whether this is the JoinGroup or SyncGroup that is under way."""
        return request_id == self._exchange

    @property
    def _is_attentive(self) -> bool:
        """Whether a heartbeat may bring news: not while a rebalance is under way, or known to come."""
        return self.state in (_S.RECONCILE, _S.STABLE) and self.rejoins_because is None

    # ---- joining ----

    def _lose_coordinator(self, reason: str) -> None:
        if self._needs_coordinator:
            self._out += self.coordinator.search(reason, self._now)
        else:
            self.coordinator.forget()

    def _join(self, reason: str, *, delay_s: float = 0.0) -> None:
        """Go to JOINING, or stay there; the JoinGroup goes out as soon as it may."""
        self._exchange = None
        self._join_not_before = self._now + delay_s
        self._fatal = None
        self.rejoins_because = self.rejoins_because or reason
        if self.state is not _S.JOINING:
            self._transition(_S.JOINING, reason)

    def _prepare(self, reason: str) -> None:
        """Begin a rebalance: what must be given up before the join is given up (protocol rules 4.4)."""
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
        """The coordinator does not know the member, or its generation: what is owned is lost (protocol rules 4.7)."""
        self.last_error = error
        self.generation = NO_GENERATION
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
            self._join("fenced; everything was given up")

    def _forget_requests(self) -> None:
        self._exchange = None
        self.heartbeats.forget()

    def _drop_everything(self, error: BrokerError) -> None:
        """Order on_lost if the application may hold anything; commits that were not sent yet end with this error."""
        self._out += self.reconciler.lose(self._now)
        self._out += self.commits.abandon(error)
        self.auto_commit.stop()

    def _fail(self, error: BrokerError) -> None:
        self._raise(Problem.FATAL, error)
        self._fatal = error
        self._has_news = False
        self.rejoins_because = None
        was_leaving = self.state is _S.UNSUBSCRIBING
        self._forget_requests()
        self.generation = NO_GENERATION
        self._transition(_S.FATAL, str(error))
        self._drop_everything(error)
        if was_leaving:
            self._leave_request = None
            self._out.append(LeaveCompleted())

    def _expire(self) -> None:
        """The application did not poll in time: a dynamic member leaves, so that others get its partitions."""
        limit_ms = round(self.settings.max_poll_interval_s * 1000)
        message = (
            f"max.poll.interval.ms={limit_ms} exceeded: the application did not poll for longer, so the member left "
            "its group; poll more often, handle less between two polls, or raise max.poll.interval.ms"
        )
        error = BrokerError(code=POLL_TIMEOUT_CODE, name="_MAX_POLL_EXCEEDED", message=message)
        self._resign(EXPIRES)
        self._forget_requests()
        self._raise(Problem.POLL_TIMEOUT, error)
        self._transition(_S.STALE, f"max.poll.interval.ms={limit_ms} is over")
        self.generation = NO_GENERATION
        self._drop_everything(ASSIGNMENT_LOST)

    def _resign(self, reason: str) -> None:
        """A dynamic member leaves without waiting for an answer, and its id with it; a static one keeps its place."""
        if self.settings.is_static:
            return
        if self.coordinator.is_known and self.member_id != NO_MEMBER_ID:
            self._send_leave(reason)
        self.member_id = NO_MEMBER_ID

    def _leave(self) -> None:
        """Everything was given up: say so, once, and wait a bounded time for the answer (protocol rules 4.8)."""
        option, is_static = self._leave_option, self.settings.is_static
        stays = option is LeaveOption.REMAIN or (is_static and option is LeaveOption.DEFAULT)
        if self.member_id == NO_MEMBER_ID:
            self._left("the coordinator has never heard of this member")
        elif stays:
            self._left("the member keeps its place until its session ends")
        elif self.coordinator.is_known:
            self._leave_request = self._send_leave(CLOSES)
            self._leave_by = self._now + LEAVE_ANSWER_S
        elif self._now >= self._leave_by:
            self._left("no coordinator could be found to leave from; the session's end removes the member")

    def _send_leave(self, reason: str) -> int:
        leave = SendClassicLeave(
            request_id=self._next_request_id(),
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            reason=reason,
        )
        self._out.append(leave)
        return leave.request_id

    def _left(self, reason: str) -> None:
        self._leave_request = None
        self._forget_requests()
        if self.reconciler.phase is not Phase.LOSE:
            self.reconciler.left(self._now)
        self.auto_commit.stop()
        self._out += self.commits.abandon(ASSIGNMENT_LOST)
        self.generation = NO_GENERATION
        if not self.settings.is_static:
            # A static member keeps its id: with another one it would fence itself when it comes back (KAFKA-20985).
            self.member_id = NO_MEMBER_ID
        self._transition(_S.UNSUBSCRIBED, reason)
        self._out.append(LeaveCompleted())

    def _over(self, effects: Iterable[Effect]) -> None:
        """Pass effects on; a reconciliation that waits for a commit among them goes on."""
        for effect in effects:
            self._out.append(effect)
            if isinstance(effect, CommitCompleted):
                self.auto_commit.committed(effect.commit_id)
                self._out += self.reconciler.commit_over(effect.commit_id, self._identity, self._now)
