"""The ways into, out of and around a group: joining, being fenced, failing, leaving.

`Lifecycle` holds the parts of a member and is the only writer of its state; `member.Member` decides which way to go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from consumer_membership.errors import InternalError
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.coordinator import Coordinator
from consumer_membership.membership.effects import (
    CommitCompleted,
    Effect,
    Heartbeat,
    LeaveCompleted,
    Problem,
    RaiseToApplication,
    SendHeartbeat,
    StateChanged,
)
from consumer_membership.membership.heartbeat import Heartbeats
from consumer_membership.membership.instance import InstanceId
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, AutoCommit, CommitIdentity, Commits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import IN_GROUP, SILENT, VALID_TRANSITIONS, MemberState
from consumer_membership.membership.view import Transition
from consumer_membership.types import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_EPOCH,
    NO_MEMBER_ID,
    POLL_TIMEOUT_CODE,
    BrokerError,
    Instant,
    LeaveOption,
    Subscription,
)

_S = MemberState

#: A dynamic member that is fenced this often in a row takes a new member id: brokers before 4.2 refuse epoch 0 of an
#: id that they still know (KAFKA-19233).
FENCES_BEFORE_NEW_ID = 2
#: How long the answer to the leave heartbeat may take; the leave is sent once and never repeated.
LEAVE_ANSWER_S = 5.0
#: Transitions kept for the view.
REMEMBERED_TRANSITIONS = 32


class Lifecycle:
    """The parts of one member, its state, and the moves between states."""

    def __init__(self, settings: MemberSettings, *, new_member_id: Callable[[], str], jitter: Jitter) -> None:
        self.settings = settings
        self.member_id = new_member_id()
        self.member_epoch = JOIN_EPOCH
        self.state = _S.UNSUBSCRIBED
        self.since: Instant | None = None
        self.subscription = Subscription()
        self.coordinator = Coordinator()
        self.heartbeats = Heartbeats(settings, jitter)
        self.instance = InstanceId(settings, jitter)
        self.ownership = Ownership()
        self.commits = Commits(settings, jitter)
        self.reconciler = Reconciler(settings, self.ownership, self.commits, jitter)
        self.auto_commit = AutoCommit(settings)
        self.transitions: deque[Transition] = deque(maxlen=REMEMBERED_TRANSITIONS)
        self.last_error: BrokerError | None = None
        self.last_heartbeat_at: Instant | None = None
        self._new_member_id = new_member_id
        self._fences = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self._polled_at: Instant = 0.0
        self._acknowledged = 0
        self._has_news = False
        self._fatal: BrokerError | None = None
        self._leave_option = LeaveOption.DEFAULT
        self._given_up = Subscription()
        self._leave_by: Instant = 0.0
        self._leave_request: int | None = None
        self._out: list[Effect] = []
        self._now: Instant = 0.0

    # ---- state ----

    def _transition(self, new: MemberState, reason: str) -> None:
        """Write the state: the only place that does."""
        if new not in VALID_TRANSITIONS[self.state]:
            raise InternalError(f"a member cannot go from {self.state} to {new} ({reason})")
        self._out.append(StateChanged(old=self.state, new=new, reason=reason))
        self.transitions.append(Transition(at=self._now, old=self.state, new=new, reason=reason))
        self.state = new
        self.since = self._now

    def _raise(self, problem: Problem, error: BrokerError) -> None:
        self.last_error = error
        self._out.append(RaiseToApplication(problem=problem, error=error))

    @property
    def _identity(self) -> CommitIdentity:
        return CommitIdentity(member_id=self.member_id, member_epoch=self.member_epoch, instance_id=self.instance.id)

    # ---- questions ----

    @property
    def _commit_identity(self) -> CommitIdentity | None:
        """As whom a commit may be sent now; None: not now."""
        if not self.coordinator.is_known or self._leave_request is not None:
            return None
        if self.state is _S.UNSUBSCRIBED:
            return CommitIdentity(member_id=NO_MEMBER_ID, member_epoch=NO_EPOCH, instance_id=None)
        may_commit = self.member_epoch > JOIN_EPOCH and self.state not in SILENT
        return self._identity if may_commit else None

    @property
    def _poll_deadline(self) -> Instant:
        return self._polled_at + self.settings.max_poll_interval_s

    @property
    def _needs_coordinator(self) -> bool:
        return self.state in IN_GROUP or self.state is _S.UNSUBSCRIBING or len(self.commits) > 0

    @property
    def _may_heartbeat(self) -> bool:
        """Whether an ordinary heartbeat may be sent as soon as it is due; at most one is in flight."""
        if not self.coordinator.is_known or self.heartbeats.in_flight is not None or self._leave_request is not None:
            return False
        if self.state is _S.JOINING and not self.instance.may_join:
            return False
        return self.state in IN_GROUP or (self.state is _S.UNSUBSCRIBING and self.member_epoch > JOIN_EPOCH)

    @property
    def _is_known_to_group(self) -> bool:
        """Whether the coordinator may know of this member: it was told, and not as an instance that it let go."""
        return self.heartbeats.has_spoken and not (self.settings.is_static and self.instance.id is None)

    @property
    def _stated_subscription(self) -> Subscription:
        """What heartbeats state: the old one until the leave, or a static member's place would be given to others."""
        return self._given_up if self.state is _S.UNSUBSCRIBING else self.subscription

    @property
    def _may_reconcile(self) -> bool:
        """Whether an attempt may begin: nothing new is taken before the last statement of what is owned is answered.

        What that statement lacked, the coordinator may have given to another member, if the target has changed.
        """
        return not (self.heartbeats.has_unanswered_statement and self.ownership.missing())

    @property
    def _has_commits_to_await(self) -> bool:
        """Whether commits of this membership are not over: once the member has left, none is accepted."""
        return self.member_epoch > JOIN_EPOCH and len(self.commits) > 0

    @property
    def _is_urgent(self) -> bool:
        """Whether there is something to say that should not wait for the interval."""
        if self.state in (_S.JOINING, _S.ACK):
            return True
        return self._has_news or not self.heartbeats.has_stated(self.ownership.statement)

    def _send(self, heartbeat: Heartbeat, request_id: int) -> None:
        self._out.append(SendHeartbeat(request_id=request_id, heartbeat=heartbeat))

    # ---- joining ----

    def _join(self, reason: str) -> None:
        self.member_epoch = JOIN_EPOCH
        self._fatal = None
        # Who comes back from a fence or a missed poll may be the older of two holders of an instance id.
        self.instance.begin(is_newest=self.state in (_S.UNSUBSCRIBED, _S.FATAL))
        self._acknowledged = self.ownership.statement
        self.heartbeats.forget()
        self.heartbeats.stir()
        self._transition(_S.JOINING, reason)

    def _lose_coordinator(self, reason: str) -> None:
        if self._needs_coordinator:
            self._out += self.coordinator.search(reason, self._now)
        else:
            self.coordinator.forget()

    # ---- out of the group, in good order or not ----

    def _fence(self, error: BrokerError) -> None:
        self.last_error = error
        self.member_epoch = JOIN_EPOCH
        self.heartbeats.forget()
        if self.state is _S.UNSUBSCRIBING:
            self._drop_everything(ASSIGNMENT_LOST)
            self._left(f"fenced while leaving ({error.name})")
            return
        self._transition(_S.FENCED, str(error))
        self._drop_everything(ASSIGNMENT_LOST)
        if self.reconciler.is_idle:
            self._rejoin_after_fence()

    def _drop_everything(self, error: BrokerError) -> None:
        """Order on_lost if the application may hold anything; commits that were not sent yet end with this error."""
        self._out += self.reconciler.lose(self._now)
        self._out += self.commits.abandon(error)
        self.auto_commit.stop()

    def _rejoin_after_fence(self) -> None:
        if self._fences.failures >= FENCES_BEFORE_NEW_ID and not self.settings.is_static:
            self.member_id = self._new_member_id()
        # A static member gives whoever may be taking over from it the time to join first.
        is_patient = self._fences.failures > 0 or self.settings.is_static
        delay = self._fences.next_delay()
        self._join("fenced; everything was given up")
        if is_patient:
            self.heartbeats.wait(self._now + delay)

    def _fail(self, error: BrokerError) -> None:
        self._raise(Problem.FATAL, error)
        self._fatal = error
        self._has_news = False
        was_leaving = self.state is _S.UNSUBSCRIBING
        self.heartbeats.forget()
        self._transition(_S.FATAL, str(error))
        self._drop_everything(error)
        if was_leaving:
            self._leave_request = None
            self._out.append(LeaveCompleted())

    def _expire(self) -> None:
        """The application did not poll in time: leave, so that others get the partitions (max.poll.interval.ms)."""
        limit_ms = round(self.settings.max_poll_interval_s * 1000)
        error = BrokerError(
            code=POLL_TIMEOUT_CODE,
            name="_MAX_POLL_EXCEEDED",
            message=f"max.poll.interval.ms={limit_ms} exceeded: the application did not poll for longer, so the member "
            "left its group; poll more often, handle less between two polls, or raise max.poll.interval.ms",
        )
        if self.coordinator.is_known and self._is_known_to_group:
            self._send(self._leave_heartbeat(LeaveOption.DEFAULT), self.heartbeats.next_request_id())
            self.instance.left(self._now)
        self.heartbeats.forget()
        self._raise(Problem.POLL_TIMEOUT, error)
        self._transition(_S.STALE, f"max.poll.interval.ms={limit_ms} is over")
        self.member_epoch = JOIN_EPOCH
        self._drop_everything(ASSIGNMENT_LOST)

    def _left(self, reason: str) -> None:
        self._leave_request = None
        self.heartbeats.forget()
        if self.reconciler.phase is not Phase.LOSE:
            self.reconciler.left(self._now)
        self.auto_commit.stop()
        self._out += self.commits.abandon(ASSIGNMENT_LOST)
        self.member_epoch = JOIN_EPOCH
        self._transition(_S.UNSUBSCRIBED, reason)
        self._out.append(LeaveCompleted())

    def _leave(self) -> None:
        """Everything was given up: say so, once, and wait a bounded time for the answer."""
        if not self._is_known_to_group:
            self._left("the coordinator has never heard of this member")
        elif self._leave_option is LeaveOption.REMAIN and not self.settings.is_static:
            self._left("the member keeps its place until its session ends")
        elif self.coordinator.is_known:
            self._leave_request = self.heartbeats.next_request_id()
            self._leave_by = self._now + LEAVE_ANSWER_S
            self._send(self._leave_heartbeat(self._leave_option), self._leave_request)
            if self.settings.is_static and self._leave_option is not LeaveOption.LEAVE:
                self.instance.left(self._now)
        elif self._now >= self._leave_by:
            self._left("no coordinator could be found to leave from; the session's end removes the member")

    def _leave_heartbeat(self, option: LeaveOption) -> Heartbeat:
        """The heartbeat that ends the membership (KIP-1092): -2 lets a static member come back to its partitions."""
        stays = self.settings.is_static and option is not LeaveOption.LEAVE
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if stays else LEAVE_EPOCH,
            instance_id=self.instance.id,
            owned=frozenset(),
        )

    def _over(self, effects: Iterable[Effect]) -> None:
        """Pass effects on; a reconciliation that waits for a commit among them goes on."""
        for effect in effects:
            self._out.append(effect)
            if isinstance(effect, CommitCompleted):
                self.auto_commit.committed(effect.commit_id)
                self._out += self.reconciler.commit_over(effect.commit_id, self._identity, self._now)
