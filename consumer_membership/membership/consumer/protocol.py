"""The consumer protocol of a member (KIP-848): its heartbeats and their responses.

A heartbeat has the changes since the last answered one (`heartbeat`), and the instance id (`claim`); the response has
the epoch and the target. The member moves towards the target with the shared reconciler and acknowledges with the next
heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import assert_never

from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import REFUSALS
from consumer_membership.membership.consumer.claim import InstanceClaim
from consumer_membership.membership.consumer.epoch_increase import EpochIncrease
from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.effects import CommitIdentity, Heartbeat, Problem, SendHeartbeat
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.protocol import (
    DEFAULT_SESSION_S,
    Fatal,
    Fenced,
    GroupEvent,
    HandOver,
    Left,
    MembershipEnd,
    ProtocolEvent,
    removed_for_good,
)
from consumer_membership.membership.states import (
    IN_GROUP,
    SILENT,
    TARGETS,
    ConsumerTrigger,
    MemberState,
    StateMachine,
    Trigger,
)
from consumer_membership.membership.view import ProtocolView
from consumer_membership.membership.waits import Wait, WaitsFor
from consumer_membership.types import (
    FATAL_CODE,
    FENCED_INSTANCE_CODE,
    GROUP_FULL_CODE,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    UNKNOWN_MEMBER_CODE,
    Assignment,
    BrokerError,
    ConflictPolicy,
    GroupProtocol,
    Instant,
    LeaveOption,
    TopicPartition,
)

_S, _T = MemberState, ConsumerTrigger

#: A dynamic member that is fenced this often in a row takes a new member id: brokers before 4.2 refuse epoch 0 of an id
#: that they still know (KAFKA-19233).
FENCES_BEFORE_NEW_ID = 2
#: How many intervals Kafka's default session has (45 s of 5 s each).
HEARTBEATS_OF_SESSION = 9
#: A session lasts at least this number of the broker's heartbeat intervals, as far as a member can know: its heartbeats
#: are one interval apart, and a group in which one lost heartbeat ends the session would not work. The session timeout
#: that was read is only an upper bound, since it may have been lowered since.
SESSION_INTERVALS = 2.0
#: The states in which heartbeats keep the member's partitions.
_OWNS = frozenset({_S.RECONCILE, _S.ACK, _S.STABLE})
#: The states in which the member may hand its instance id over.
_SETTLED = frozenset({_S.ACK, _S.STABLE})

#: Late events that a correct broker or a slow application may still deliver, by the states in which they are ignored.
#: Every other pair of event and state is handled; the numbers of responses sort out the rest.
IGNORED: Mapping[type[GroupEvent], frozenset[MemberState]] = MappingProxyType(
    {
        ev.HeartbeatAnswered: SILENT,
        ev.HeartbeatRejected: SILENT,
        ev.HeartbeatFailed: SILENT,
        ev.StepFinished: frozenset({_S.JOINING, _S.ACK, _S.STABLE}),
        ev.GroupDescribed: frozenset(_S) - {_S.JOINING},
        ev.GroupDescribeFailed: frozenset(_S) - {_S.JOINING},
        ev.HolderChecked: frozenset(_S) - {_S.JOINING},
        ev.TopicIdsResolved: SILENT | {_S.UNSUBSCRIBING},
        ev.StartOffsetsFetched: frozenset(_S) - {_S.RECONCILE},
        ev.StartOffsetsFailed: frozenset(_S) - {_S.RECONCILE},
    }
)


class ConsumerProtocol:
    """The consumer protocol of one member. `new_member_id` generates a member id (KIP-1082).

    `refuse_conversion`: its joins do not convert classic groups that have members.
    """

    def __init__(
        self, context: MemberContext, *, new_member_id: Callable[[], str], refuse_conversion: bool = False
    ) -> None:
        settings = context.settings
        self._settings = settings
        self._event = context.event
        self._history = context.history
        self._coordinator = context.coordinator
        self._ownership = context.ownership
        self._reconciler = context.reconciler
        self._watch = context.watch
        self._leave = context.leave
        self._context = context
        self._new_member_id = new_member_id
        self._refuse_conversion = refuse_conversion
        self._machine = StateMachine("a member", TARGETS)
        self.member_id = new_member_id()
        self.member_epoch = JOIN_EPOCH
        self.heartbeats = Heartbeats(settings, context.jitter)
        self.claim = InstanceClaim(context.event, settings, context.jitter)
        self.epoch_increase = EpochIncrease(context.event, settings, new_member_id)
        self.last_heartbeat_at: Instant | None = None
        self._fences = context.new_backoff()
        self._leave_backoff = context.new_backoff()
        #: The version of the owned partitions that was acknowledged last, or is about to be.
        self._acknowledged = 0
        #: The subscription in heartbeats. During a leave it is the former one, because a static member keeps its
        #: partitions.
        self._sent_subscription = self._watch.subscription
        #: The topics that the subscribed patterns matched when the heartbeats were last sped up for them.
        self._matched: frozenset[str] | None = None
        #: Whether the subscription changed since the last heartbeat.
        self._has_news = False
        self._watch.list_all(does=True)

    # ---- questions ----

    @property
    def state(self) -> MemberState:
        """The state, which the view shows unchanged."""
        return self._machine.state

    @property
    def public_state(self) -> MemberState:
        """The state itself."""
        return self._machine.state

    @property
    def is_handing_over(self) -> bool:
        """Whether the member releases its instance id for its successor."""
        return self.claim.predecessor.is_releasing

    @property
    def retries_at_poll(self) -> bool:
        """Whether on_warm raised; the next poll repeats it."""
        return self.claim.successor.retries_at_poll

    @property
    def identity(self) -> CommitIdentity:
        """The identity with which the member fetches and commits."""
        return CommitIdentity(member_id=self.member_id, member_epoch=self.member_epoch, instance_id=self.claim.id)

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator accepts commits of this member now."""
        return self.member_epoch > JOIN_EPOCH and self.state not in SILENT

    @property
    def retained(self) -> frozenset[TopicPartition]:
        """Always empty: the coordinator may assign a partition as soon as its revocation is acknowledged."""
        return frozenset()

    @property
    def group_protocol(self) -> GroupProtocol | None:
        """The consumer protocol as the type of the group; None: this is not a member."""
        return GroupProtocol.CONSUMER if self.member_epoch > JOIN_EPOCH else None

    @property
    def session_s(self) -> float:
        """The group's session timeout, if the broker reported it."""
        return self.claim.session.timeout_s or DEFAULT_SESSION_S

    def ignores(self, event: GroupEvent) -> bool:
        """Return whether the state drops this event unread."""
        return self.state in IGNORED.get(type(event), ())

    def refused_join(self, event: GroupEvent) -> BrokerError | None:
        """Return the error with which the coordinator refuses this member's join; None for other events."""
        if not isinstance(event, ev.HeartbeatRejected) or event.request_id != self.heartbeats.in_flight:
            return None
        is_join = self.state is _S.JOINING and self.member_epoch == JOIN_EPOCH and self.claim.release is None
        return event.error if is_join else None

    @property
    def _lease_until(self) -> Instant | None:
        """Until when the owned partitions are certainly owned; None: it owns none, or there is no session.

        The session lasts from the sending of the last answered heartbeat. The moment of the response proves nothing: a
        process that was suspended reads an old response when it continues.
        """
        confirmed_at = self.heartbeats.confirmed_at
        is_owner = self.state in _OWNS or (self.state is _S.UNSUBSCRIBING and self._settings.has_leases)
        if not is_owner or confirmed_at is None or not self._context.has_holdings:
            return None
        return confirmed_at + self._settings.lease_s(self.claim.session.timeout_s or self._assumed_session_s)

    @property
    def _assumed_session_s(self) -> float:
        """The session timeout if the broker does not report it: Kafka's default is nine heartbeat intervals.

        A lease counts only as many intervals as fit into any session.
        """
        interval_s = self.heartbeats.broker_interval_s
        if interval_s is None:
            return DEFAULT_SESSION_S
        intervals = SESSION_INTERVALS if self._settings.has_leases else HEARTBEATS_OF_SESSION
        return min(DEFAULT_SESSION_S, intervals * interval_s)

    @property
    def _may_heartbeat(self) -> bool:
        """Whether an ordinary heartbeat may be sent as soon as it is due; at most one is in flight."""
        if not self._coordinator.is_known or self.heartbeats.in_flight is not None or self._leave.is_sent:
            return False
        if self.state is _S.JOINING and not self.claim.may_join:
            return False
        return self.state in IN_GROUP or (self.state is _S.UNSUBSCRIBING and self.member_epoch > JOIN_EPOCH)

    @property
    def _is_known_to_group(self) -> bool:
        """Whether the coordinator may know this member: a heartbeat was sent, and its instance id was not released."""
        return self.heartbeats.has_sent and not (self._settings.is_static and self.claim.id is None)

    @property
    def _is_urgent(self) -> bool:
        """Whether the next heartbeat should not wait for the interval."""
        if self.state in (_S.JOINING, _S.ACK) or self.epoch_increase.is_pending:
            return True
        return self._has_news or not self.heartbeats.has_sent_ownership(self._ownership.version)

    @property
    def _due_at(self) -> Instant:
        return self.heartbeats.due_at(self._event.now, urgent=self._is_urgent, holds=bool(self._ownership.owned))

    # ---- state ----

    def _fire(self, trigger: Trigger | ConsumerTrigger, reason: str) -> None:
        old = self._machine.fire(trigger)
        self._history.note_transition(old, self.state, reason)

    def begin_leaving(self, reason: str) -> None:
        """Go to UNSUBSCRIBING: heartbeats continue until everything is released."""
        self._dismiss_temporary_member()
        self._fire(Trigger.LEAVE_REQUESTED, reason)

    def end(self, trigger: Trigger, reason: str) -> None:
        """Leave the group locally: forget the epoch and the heartbeat in flight."""
        self._dismiss_temporary_member()
        self.heartbeats.forget()
        self._leave_backoff.reset()
        self.member_epoch = JOIN_EPOCH
        self.claim.successor.begin()
        self.claim.predecessor.released()
        self._fire(trigger, reason)

    def handed_over(self, reason: str) -> None:
        """Wait until the successor has joined, for which the instance id is released."""
        self._leave_backoff.reset()
        self.member_epoch = JOIN_EPOCH
        self.claim.predecessor.released()
        self.join(_T.ID_RELEASED, reason)

    def join(self, trigger: Trigger | ConsumerTrigger, reason: str) -> None:
        """Send the first heartbeat of a membership as soon as it may go."""
        wait_until = self._fence_ends_at() if self.state is _S.FENCED else None
        # A member that returns from a fence or a missed poll may be the older of two holders of an instance id.
        is_requested = self.state in (_S.UNSUBSCRIBED, _S.FATAL)
        self.claim.begin(subscribed_at=self._watch.subscribed_at if is_requested else None)
        self._acknowledged = self._ownership.version
        self._sent_subscription = self._watch.subscription
        self.heartbeats.forget()
        self.heartbeats.speed_up()
        self._fire(trigger, reason)
        if wait_until is not None:
            self.heartbeats.wait(wait_until)

    def _fence_ends_at(self) -> Instant | None:
        """Return until when a fenced member sends nothing; None: it joins at once."""
        is_static = self._settings.is_static
        if self._fences.failures >= FENCES_BEFORE_NEW_ID and not is_static:
            self._take_new_id()
        # A static member leaves time for a member that may be taking over from it to join first.
        is_patient = self._fences.failures > 0 or is_static
        delay = self._fences.next_delay()
        return self._event.now + delay if is_patient else None

    def _take_new_id(self) -> None:
        """Leave under the old id, which would keep its partitions for a session, and continue under a new id."""
        if self._coordinator.is_known:
            self._send(self._leave_heartbeat(LeaveOption.LEAVE), self._event.next_request_id())
        self.member_id = self._new_member_id()

    # ---- leaving ----

    def resign(self) -> None:
        """Send the leave, without waiting for its response."""
        if self._coordinator.is_known and self._is_known_to_group:
            self._send(self._leave_heartbeat(LeaveOption.DEFAULT), self._event.next_request_id())
            self.claim.session.leave()

    def leave(self, gives_up_at: Instant) -> Left | None:
        """Everything was released: send the leave, once."""
        option, is_static = self._leave.option, self._settings.is_static
        if not self._is_known_to_group:
            return Left("the member never joined")
        if option is LeaveOption.REMAIN and not is_static:
            return Left("the member stays in the group until its session ends")
        if self._coordinator.is_known:
            request_id = self._event.next_request_id()
            self._leave.send(request_id, self._event.now)
            self._send(self._leave_heartbeat(option), request_id)
            if is_static and option is not LeaveOption.LEAVE:
                self.claim.session.leave()
        elif self._event.now >= gives_up_at:
            return Left("no coordinator was found to leave; the broker removes the member when its session ends")
        return None

    def _dismiss_temporary_member(self) -> None:
        """Take the temporary member out of the group, as far as that is possible without waiting."""
        leave = self.epoch_increase.leave
        if leave is not None:
            # The response in flight is the temporary member's, whose epoch is not that of this member.
            self.heartbeats.retry(self._event.now, after_backoff=False)
            if self._coordinator.is_known:
                self._send(leave, self._event.next_request_id())
        self.epoch_increase.end()

    def _leave_heartbeat(self, option: LeaveOption) -> Heartbeat:
        """Return the heartbeat that ends the membership (KIP-1092); -2 lets a static member keep its partitions."""
        stays = self._settings.is_static and option is not LeaveOption.LEAVE
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if stays else LEAVE_EPOCH,
            instance_id=self.claim.id,
            owned=frozenset(),
        )

    # ---- time and circumstances ----

    def prepare(self) -> MembershipEnd | None:
        """Request the data that is needed to join as an instance, and for a lease."""
        if (self._settings.is_static or self._settings.has_leases) and self._coordinator.is_known:
            self.claim.request_if_due(is_settled=self.state is _S.STABLE, interval_s=self.heartbeats.broker_interval_s)
            if self._hands_over:
                self._exchange_announcements()
        return None

    @property
    def _hands_over(self) -> bool:
        return self._settings.conflict_policy is ConflictPolicy.HAND_OVER and self._settings.is_static

    def _exchange_announcements(self) -> None:
        if self.state is _S.JOINING:
            self.claim.successor.send_due(self.member_id)
        elif self.state in _SETTLED:
            self.claim.predecessor.read_if_due(frozenset(self._ownership.named_owned))

    def advance(self) -> MembershipEnd | None:
        """Continue the reconciliation, and send the heartbeat if it is due."""
        if self.state is _S.RECONCILE:
            self._reconcile()
        self._heartbeat_if_due()
        if self.state is _S.RECONCILE:
            # The acknowledgement just sent may have been of an older target: begin with the newer one.
            self._reconcile()
        return None

    def _reconcile(self) -> None:
        ownership, reconciler = self._ownership, self._reconciler
        if reconciler.is_idle and self._acknowledged == ownership.version and self._may_reconcile:
            has_steps = ownership.surplus() or ownership.missing()
            has_news = ownership.is_first or not ownership.is_reached
            if has_steps or (has_news and not reconciler.awaits_first_names):
                reconciler.begin()
        if reconciler.is_idle and self._acknowledged != ownership.version:
            self._acknowledged = ownership.version
            self._context.note_holdings()
            self._fire(_T.RECONCILED, "the assignment was applied" if not ownership.unresolved else "in part")

    @property
    def _may_reconcile(self) -> bool:
        """Whether an attempt may begin: not before the last statement of ownership was answered.

        If the target has changed, the coordinator may have assigned partitions that were not in that statement to
        another member.
        """
        is_unanswered = self.heartbeats.has_unanswered_ownership and self._ownership.missing()
        return not is_unanswered and not self.epoch_increase.is_pending

    def _heartbeat_if_due(self) -> None:
        if not self._may_heartbeat or self._event.now < self._due_at:
            return
        self._has_news = False
        request_id = self._event.next_request_id()
        on_behalf = self.claim.release or self.epoch_increase.heartbeat
        if on_behalf is not None:
            self.heartbeats.sending(request_id, self._event.now)
            self._send(on_behalf, request_id)
            return
        if self.claim.predecessor.drops_released_id(self.claim.id):
            self.member_id = self._new_member_id()
        heartbeat = self.heartbeats.compose(
            member_id=self.member_id,
            instance_id=self.claim.id,
            epoch=self.member_epoch,
            subscription=self._sent_subscription,
            claims=self._reconciler.claims,
            ownership_version=self._ownership.version,
        )
        self.heartbeats.sending(request_id, self._event.now, is_join=self.member_epoch == JOIN_EPOCH)
        self._send(heartbeat, request_id)
        if self.state is _S.ACK:
            # As in Java, an acknowledgement counts when it is sent; if it is lost, a full heartbeat repeats it.
            if self._ownership.is_settled:
                self._fire(_T.ACK_SENT, "the assignment was acknowledged")
            else:
                self._fire(_T.ACK_SENT_EARLY, "acknowledged; the target is not reached yet")

    def _send(self, heartbeat: Heartbeat, request_id: int) -> None:
        is_join = heartbeat.member_epoch == JOIN_EPOCH
        order = SendHeartbeat(
            request_id=request_id,
            heartbeat=heartbeat,
            refuse_conversion=self._refuse_conversion and is_join,
            may_take_over=is_join and self.claim.may_take_over,
            is_consumer_group=is_join and self.claim.knows_consumer_group,
            expected=self.claim.expected if is_join else frozenset(),
        )
        self._event.emit(order)

    def next_deadline(self) -> Instant | None:
        """Return the moment when the next heartbeat is due, or a pool's member checks again for a free id."""
        moments: list[Instant | None] = []
        if self.state is _S.JOINING and self._coordinator.is_known:
            moments += [self.claim.next_deadline(), self.claim.successor.next_deadline()]
        if self.state in _SETTLED and self._coordinator.is_known and self._hands_over:
            moments.append(self.claim.predecessor.next_deadline())
        if self._may_heartbeat:
            moments.append(self._due_at)
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- events ----

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:
        """Handle an event of the consumer protocol; drop a late event of the classic protocol."""
        if not isinstance(event, ev.ConsumerEvent):
            return None
        match event:
            case ev.HeartbeatAnswered():
                return self._on_heartbeat_answered(event)
            case ev.HeartbeatRejected():
                return self._on_heartbeat_rejected(event)
            case ev.HeartbeatFailed():
                return self._on_heartbeat_failed(event)
            case ev.GroupDescribed() | ev.GroupDescribeFailed() | ev.HolderChecked():
                return self.claim.answered(event, self.member_id)
            case ev.SessionTimeoutLearned():
                self.claim.session.learn(event.session_timeout_s, self.claim.id)
            case ev.TopicIdsResolved():
                self._ownership.resolve(event.names)
                self._reconciler.topic_ids_resolved()
            case (
                ev.Warmed()
                | ev.AnnouncementsRead()
                | ev.AnnouncementsNotRead()
                | ev.AnnouncementWritten()
                | ev.AnnouncementNotWritten()
            ):
                return self._on_hand_over_event(event)
            case _:
                assert_never(event)
        return None

    def subscribed(self, event: ev.Subscribed) -> None:
        """Heartbeat quickly, with the new subscription."""
        self._has_news |= event.subscription != self._sent_subscription
        if self.state is not _S.UNSUBSCRIBING:
            self._sent_subscription = event.subscription
        self.heartbeats.speed_up()

    def polled(self, event: ev.Polled) -> None:
        """Note whether records flow."""
        self.claim.successor.polled()
        self.heartbeats.note_activity(is_active=event.delivered)

    def suspended(self, seconds: float) -> None:
        """Count the suspension as part of the session."""
        self.heartbeats.suspended(seconds)

    def leave_requested(self) -> None:
        """The application leaves, also during a hand-over: the successor finds the instance id free in both cases."""
        self.claim.successor.begin()
        self.claim.predecessor.cancel()

    def topics_looked_up(self) -> None:
        """A topic begins to match a pattern: heartbeat quickly, so that the broker matches again soon.

        The broker matches patterns when a heartbeat arrives, at most every 10 s, and assigns the topic with a later
        heartbeat (GroupMetadataManager.maybeUpdateRegularExpressions).
        """
        before, self._matched = self._matched, self._watch.matched
        if before is not None and self._matched is not None and self._matched - before:
            self.heartbeats.speed_up()

    # ---- the coordinator's answers: successes ----

    def _on_heartbeat_answered(self, event: ev.HeartbeatAnswered) -> MembershipEnd | None:
        if event.request_id == self._leave.request:
            return Left("the coordinator confirmed the leave")
        if event.request_id != self.heartbeats.in_flight:
            return None
        self.heartbeats.answered()
        now = self._event.now
        if self._was_on_behalf():
            self.heartbeats.retry(now, after_backoff=False)
            return None
        self.last_heartbeat_at = now
        if event.member_epoch <= JOIN_EPOCH:
            # No successful response to a member has such an epoch; with it, the next heartbeat would be a leave.
            self.heartbeats.retry(now, after_backoff=True)
            return None
        interval_s = self.heartbeats.broker_interval_s
        self.heartbeats.succeeded(event.heartbeat_interval_s, now)
        if interval_s not in (None, self.heartbeats.broker_interval_s):
            self.claim.session.doubt()
        self._fences.reset()
        self.claim.joined()
        self._adopt_epoch(event)
        if self.state is _S.UNSUBSCRIBING:
            return None
        if event.assignment is not None:
            self._take_target(event.assignment)
        elif self.state is _S.JOINING:
            # Without an assignment the join is not complete: send a full heartbeat again, at the pace of a retry.
            self.heartbeats.retry(now, after_backoff=True)
        if self.epoch_increase.received(self.member_epoch):
            self.heartbeats.retry(now, after_backoff=True)
        return None

    def _was_on_behalf(self) -> bool:
        """Return whether the answered heartbeat was another member's: the holder's, or the temporary member's."""
        if self.claim.release is not None:
            self.claim.released()
        elif self.epoch_increase.heartbeat is not None:
            self.epoch_increase.answered()
        else:
            return False
        return True

    def _adopt_epoch(self, event: ev.HeartbeatAnswered) -> None:
        if event.member_epoch != self.member_epoch:
            self.member_epoch = event.member_epoch
            self.heartbeats.speed_up()
            if event.assignment is None and not self._ownership.owned:
                # The response with the assignment may have gone to a join that was given up: request the complete
                # assignment.
                self.heartbeats.send_full_next()
        if self.heartbeats.begin_membership(self._event.now):
            self.claim.session.returned(self.claim.id)
            if self.state is not _S.UNSUBSCRIBING:
                self.epoch_increase.admitted(self.member_epoch)

    def _take_target(self, assignment: Assignment) -> None:
        is_change = self._ownership.take_target(assignment)
        if is_change:
            self.heartbeats.speed_up()
        if self.state is _S.JOINING:
            self._fire(_T.ASSIGNMENT_RECEIVED, "the coordinator answered the join with an assignment")
        elif is_change and self.state in (_S.STABLE, _S.ACK):
            self._fire(_T.TARGET_CHANGED, "the coordinator changed the assignment")

    def _on_hand_over_event(self, event: ev.HandOverEvent) -> HandOver | None:
        claim = self.claim
        match event:
            case ev.Warmed():
                claim.successor.warmed(event)
            case ev.AnnouncementsRead():
                return self._on_announcements_read(event)
            case ev.AnnouncementsNotRead():
                claim.reservations_read(event)
                claim.predecessor.announcements_not_read(event)
                claim.successor.not_done(event)
            case ev.AnnouncementWritten():
                claim.successor.announcement_written(event)
            case ev.AnnouncementNotWritten():
                claim.successor.not_done(event)
            case _:
                assert_never(event)
        return None

    def _on_announcements_read(self, event: ev.AnnouncementsRead) -> HandOver | None:
        """Hand the instance id over if an announcement names this member, or continue with this member's request."""
        claim = self.claim
        claim.reservations_read(event)
        claim.successor.announcements_read(event, self.member_id, is_pool=bool(self._settings.instance_pool))
        may_release = self.state in _SETTLED and self._reconciler.is_idle
        if not claim.predecessor.announcements_read(event, self.member_id, claim.id, may_release=may_release):
            return None
        self._fire(_T.HAND_OVER_REQUESTED, f"member {claim.predecessor.successor} is ready to take the id over")
        return HandOver()

    # ---- silence and refusals ----

    def _on_heartbeat_failed(self, event: ev.HeartbeatFailed) -> MembershipEnd | None:
        if not event.is_sent:
            self.heartbeats.not_sent(event.request_id)
        if event.request_id == self._leave.request:
            return Left(
                f"the leave request was not answered ({event.reason}); the coordinator removes the member when its "
                "session ends"
            )
        if event.request_id != self.heartbeats.in_flight:
            return None
        self.heartbeats.retry(self._event.now, after_backoff=True)
        if not event.retriable:
            return Fatal(BrokerError(code=FATAL_CODE, name="_FATAL", message=event.reason))
        if self._leave.is_sent and not event.is_sent:
            # The join was withdrawn because a leave follows it; the leave's response counts.
            return None
        self._coordinator.miss_answer(event.reason)
        return None

    def _on_heartbeat_rejected(self, event: ev.HeartbeatRejected) -> MembershipEnd | None:
        if event.request_id == self._leave.request:
            is_unknown = event.error.code == UNKNOWN_MEMBER_CODE or event.verdict is Verdict.GROUP_GONE
            if is_unknown and self.heartbeats.has_open_join:
                # A join without a response may arrive after this leave, on a connection that was given up.
                self._leave.repeat(self._event.now + self._leave_backoff.next_delay())
                return None
            # The leave is idempotent: whatever the error, this member has left or will be removed.
            return Left(f"the coordinator answered the leave with {event.error.name}")
        if event.request_id != self.heartbeats.in_flight:
            return None
        self.heartbeats.answered()
        if event.verdict is Verdict.UNRELEASED:
            return self._on_instance_held(event)
        self.heartbeats.retry(self._event.now, after_backoff=True)
        if self.claim.release is not None and event.verdict not in (Verdict.RETRY, Verdict.REDISCOVER):
            return self._on_release_refused(event)
        if self.epoch_increase.heartbeat is not None and event.verdict not in (Verdict.RETRY, Verdict.REDISCOVER):
            self.epoch_increase.refused(event)
            self.heartbeats.retry(self._event.now, after_backoff=False)
            return None
        return self._on_error(event)

    def _on_release_refused(self, event: ev.HeartbeatRejected) -> MembershipEnd | None:
        """Handle a refused release of the holder, for which no retry helps."""
        if event.verdict in (Verdict.REJOIN, Verdict.GROUP_GONE):
            # The coordinator does not know the stale member (any more): nothing keeps this member from joining.
            self.claim.released()
            self.heartbeats.retry(self._event.now, after_backoff=False)
            return None
        if event.error.code == FENCED_INSTANCE_CODE and not self.claim.needs_proof_of_death:
            return self._on_instance_taken(self.claim.lost_race_error(event.error))
        self.claim.cancel_release()
        if event.error.code == FENCED_INSTANCE_CODE:
            # Another member has replaced the dead holder: the join shows which one, and this member waits for it.
            return None
        return self._on_error(event)

    def _on_error(self, event: ev.HeartbeatRejected) -> MembershipEnd | None:
        match event.verdict:
            case Verdict.RETRY:
                self._history.note_error(event.error)
            case Verdict.REDISCOVER:
                self._history.note_error(event.error)
                self._coordinator.search(event.error.name)
            case Verdict.REPORT:
                self._report(event.error)
            case Verdict.REJOIN:
                return self._on_unknown(event.error)
            case Verdict.GROUP_GONE if self.member_epoch > JOIN_EPOCH:
                # The emptied group was deleted, or became classic: the join at epoch 0 will show which.
                return Fenced(event.error)
            case Verdict.UNRELEASED | Verdict.GROUP_GONE | Verdict.FATAL:
                return self._on_refused(event.error)
            case _:
                assert_never(event.verdict)
        return None

    def _report(self, error: BrokerError) -> None:
        """Report that a topic cannot be described, unless a check of the topics reports it with its name."""
        if self._watch.requests_refused_topics():
            self._history.note_error(error)
        else:
            self._history.raise_to_application(Problem.REFUSED, error)

    def _on_refused(self, error: BrokerError) -> MembershipEnd | None:
        if error.code == FENCED_INSTANCE_CODE:
            return self._on_instance_taken(error)
        if self._may_be_counted_already(error):
            self.heartbeats.retry(self._event.now, after_backoff=False)
            return None
        is_pointless = self.state is _S.UNSUBSCRIBING and self.member_epoch == JOIN_EPOCH
        if is_pointless and error.code in REFUSALS[GroupProtocol.CONSUMER]:
            # The error refuses a join that the application has cancelled meanwhile, so it is not fatal.
            return None
        return Fatal(error)

    def _on_instance_held(self, event: ev.HeartbeatRejected) -> MembershipEnd | None:
        """UNRELEASED_INSTANCE_ID: act by `group.instance.id.conflict.policy`."""
        now = self._event.now
        if self.member_epoch > JOIN_EPOCH or not self._settings.is_static:
            # Coordinators do not send this to a member that has joined, or that has no instance id.
            self.heartbeats.retry(now, after_backoff=True)
            return Fatal(event.error)
        self._history.note_error(event.error)
        end = self.claim.on_unreleased(event.error, event.holder, self.member_id)
        self.heartbeats.retry(now, after_backoff=self.claim.backs_off)
        return end

    def _on_instance_taken(self, error: BrokerError) -> MembershipEnd | None:
        """FENCED_INSTANCE_ID: a newer member has the instance id. A pool has other ids, else this is the end."""
        is_leaving = self.state is _S.UNSUBSCRIBING and not self.is_handing_over
        if is_leaving or not self.claim.try_another():
            return Fatal(error)
        if self.state is not _S.JOINING:
            return Fenced(error)
        self._history.note_error(error)
        return None

    def _may_be_counted_already(self, error: BrokerError) -> bool:
        """Return whether the full group that refuses this static member may count it under an older member id."""
        is_join = self.state is _S.JOINING and self._settings.is_static
        return is_join and error.code == GROUP_FULL_CODE and self.claim.look_up_former_member(error)

    def _on_unknown(self, error: BrokerError) -> MembershipEnd:
        """The coordinator does not know the member, or its epoch: it joins again, unless it was removed on purpose.

        A static member was removed on purpose (KIP-345's removal) if its session cannot have ended, because the last
        answered heartbeat was sent less than a session ago. The response itself may be old: a process that was
        suspended reads it when it continues. A member that was slow to revoke may have been removed for that (the
        rebalance timeout).
        """
        interval_s, confirmed_at = self.heartbeats.broker_interval_s, self.heartbeats.confirmed_at
        is_member = self.state is not _S.UNSUBSCRIBING and self.member_epoch > JOIN_EPOCH
        if not self._settings.is_static or not is_member or error.code != UNKNOWN_MEMBER_CODE:
            return Fenced(error)
        if interval_s is None or confirmed_at is None or self._ownership.surplus():
            return Fenced(error)
        session_s = min(SESSION_INTERVALS * interval_s, self.claim.session.longest_s)
        if self._event.now - confirmed_at < session_s:
            return Fatal(removed_for_good(self.claim.id, error))
        return Fenced(error)

    # ---- the view ----

    def view(self) -> ProtocolView:
        """Return the consumer protocol's part of the member's view."""
        lease_until = self._lease_until
        return ProtocolView(
            member_id=self.member_id,
            instance_id=self.claim.id,
            member_epoch=self.member_epoch,
            wait=self._wait(),
            waits_until=self.claim.waits_until(),
            heartbeat_interval_s=self.heartbeats.broker_interval_s,
            session_timeout_s=self.claim.session.timeout_s,
            lease_until=lease_until,
            is_session_assumed=lease_until is not None and self.claim.session.timeout_s is None,
            is_warm=self.claim.successor.is_warm,
            has_tokens=not self.epoch_increase.is_refused,
        )

    def _wait(self) -> Wait | None:
        claim, since = self.claim, self._history.since
        if self._ownership.unresolved:
            return Wait(what=WaitsFor.TOPIC_METADATA, since=since)
        match self.state:
            case _S.JOINING if claim.is_waiting:
                return claim.wait
            case _S.JOINING if (refused := self._watch.describe_refused()) is not None:
                return Wait(what=WaitsFor.SUBSCRIBED_TOPICS, since=since, detail=refused)
            case _S.JOINING:
                return Wait(what=WaitsFor.JOIN_RESPONSE, since=since)
            case _ if self.epoch_increase.is_pending:
                return Wait(what=WaitsFor.LARGER_EPOCH, since=since)
            case _S.STABLE if not self._ownership.owned:
                return self._watch.wait_without_partitions("the coordinator has assigned none")
            case _:
                return None
