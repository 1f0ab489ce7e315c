"""The ways into, out of and around a group: joining, being fenced, failing, leaving.

`Lifecycle` holds the parts of a member and is the only writer of its state; `member.Member` decides which way to go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from consumer_membership.errors import InternalError
from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.effects import Effect, Heartbeat, SendHeartbeat
from consumer_membership.membership.funnel import Funnel
from consumer_membership.membership.heartbeat import Heartbeats
from consumer_membership.membership.instance import InstanceId
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, CommitIdentity
from consumer_membership.membership.participant import DEFAULT_SESSION_S, LEAVE_ANSWER_S
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import IN_GROUP, SILENT, VALID_TRANSITIONS, MemberState
from consumer_membership.types import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    BrokerError,
    Instant,
    LeaveOption,
    Subscription,
)

_S = MemberState

#: A dynamic member that is fenced this often in a row takes a new member id: brokers before 4.2 refuse epoch 0 of an
#: id that they still know (KAFKA-19233).
FENCES_BEFORE_NEW_ID = 2

#: How many intervals Kafka's default session has (45 s of 5 s each).
BEATS_OF_SESSION = 9
#: The states in which a member owns what its heartbeats keep for it.
_OWNS = frozenset({_S.RECONCILE, _S.ACK, _S.STABLE})


class Lifecycle(Funnel[Effect]):
    """The parts of one member, its state, and the moves between states."""

    _FIRST_JOIN: ClassVar[str] = "the application polls with a subscription"

    def __init__(self, settings: MemberSettings, *, new_member_id: Callable[[], str], jitter: Jitter) -> None:
        super().__init__(settings, jitter=jitter)
        self.member_id = new_member_id()
        self.member_epoch = JOIN_EPOCH
        self.state = _S.UNSUBSCRIBED
        self.heartbeats = Heartbeats(settings, jitter)
        self.instance = InstanceId(settings, jitter)
        self._new_member_id = new_member_id
        self._fences = self._new_backoff(jitter)
        self._acknowledged = 0
        self._given_up = Subscription()

    # ---- state ----

    def _transition(self, new: MemberState, reason: str) -> None:
        """Write the state: the only place that does."""
        if new not in VALID_TRANSITIONS[self.state]:
            raise InternalError(f"a member cannot go from {self.state} to {new} ({reason})")
        self._note_transition(self.state, new, reason)
        self.state = new
        self.since = self._now

    @property
    def shown(self) -> MemberState:
        """The state itself."""
        return self.state

    def _go(self, shown: MemberState, reason: str) -> None:
        self._transition(shown, reason)

    # ---- questions ----

    @property
    def _identity(self) -> CommitIdentity:
        return CommitIdentity(member_id=self.member_id, member_epoch=self.member_epoch, instance_id=self.instance.id)

    @property
    def _may_commit(self) -> bool:
        return self.member_epoch > JOIN_EPOCH and self.state not in SILENT

    @property
    def _is_counted(self) -> bool:
        return self.member_epoch > JOIN_EPOCH

    @property
    def session_s(self) -> float:
        """The group's session timeout, where the broker told it."""
        return self.instance.session_timeout_s or DEFAULT_SESSION_S

    @property
    def lease_until(self) -> Instant | None:
        """Until when what the member owns is surely its own (`Participant.lease_until`)."""
        confirmed_at, interval_s = self.heartbeats.confirmed_at, self.heartbeats.broker_interval_s
        if self.state not in _OWNS or not self.ownership.owned or confirmed_at is None:
            return None
        # Nobody tells a dynamic member its session: Kafka's default is nine intervals, which the broker does tell.
        usual_s = DEFAULT_SESSION_S if interval_s is None else min(DEFAULT_SESSION_S, BEATS_OF_SESSION * interval_s)
        return confirmed_at + (self.instance.session_timeout_s or usual_s)

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
    def _is_urgent(self) -> bool:
        """Whether there is something to say that should not wait for the interval."""
        if self.state in (_S.JOINING, _S.ACK):
            return True
        return self._has_news or not self.heartbeats.has_stated(self.ownership.statement)

    def _send(self, heartbeat: Heartbeat, request_id: int) -> None:
        self._out.append(SendHeartbeat(request_id=request_id, heartbeat=heartbeat))

    # ---- joining ----

    def _join(self, reason: str) -> None:
        self._forget_epoch()
        self._fatal = None
        # Who comes back from a fence or a missed poll may be the older of two holders of an instance id.
        self.instance.begin(is_newest=self.state in (_S.UNSUBSCRIBED, _S.FATAL))
        self._acknowledged = self.ownership.statement
        self.heartbeats.forget()
        self.heartbeats.stir()
        self._transition(_S.JOINING, reason)

    # ---- out of the group, in good order or not ----

    def _fence(self, error: BrokerError) -> None:
        self.last_error = error
        self._forget_epoch()
        self.heartbeats.forget()
        if self.state is _S.UNSUBSCRIBING:
            self._drop_everything(ASSIGNMENT_LOST)
            self._left(f"fenced while leaving ({error.name})")
            return
        self._transition(_S.FENCED, str(error))
        self._drop_everything(ASSIGNMENT_LOST)
        if self.reconciler.is_idle:
            self._rejoin_after_fence()

    def _rejoin_after_fence(self) -> None:
        if self._fences.failures >= FENCES_BEFORE_NEW_ID and not self.settings.is_static:
            self.member_id = self._new_member_id()
        # A static member gives whoever may be taking over from it the time to join first.
        is_patient = self._fences.failures > 0 or self.settings.is_static
        delay = self._fences.next_delay()
        self._join("fenced; everything was given up")
        if is_patient:
            self.heartbeats.wait(self._now + delay)

    def _leave_unasked(self) -> None:
        if self.coordinator.is_known and self._is_known_to_group:
            self._send(self._leave_heartbeat(LeaveOption.DEFAULT), self.heartbeats.next_request_id())
            self.instance.left(self._now)

    def _forget_requests(self) -> None:
        self.heartbeats.forget()

    def _forget_epoch(self) -> None:
        self.member_epoch = JOIN_EPOCH

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
        elif self._now >= self._gives_up_leaving_at:
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
