"""The consumer protocol as a member speaks it (KIP-848): heartbeats out, their answers in.

A heartbeat says what changed since the last one that was answered (`heartbeat`), as which instance (`instance`); the
answer brings the epoch and the target. The member goes towards the target by the shared reconciler and acknowledges
with the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, assert_never

from consumer_membership.membership import events as ev
from consumer_membership.membership.choice import REFUSALS
from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.consumer.instance import LONGEST_SESSION_S, InstanceClaim
from consumer_membership.membership.effects import Heartbeat, Problem, SendHeartbeat
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.offsets import CommitIdentity
from consumer_membership.membership.parts import Parts
from consumer_membership.membership.protocol import (
    DEFAULT_SESSION_S,
    Conclusion,
    Fatal,
    Fenced,
    GroupEvent,
    Left,
    removed_for_good,
)
from consumer_membership.membership.states import IN_GROUP, SILENT, VALID_TRANSITIONS, MemberState, StateMachine
from consumer_membership.membership.view import ProtocolView
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
    GroupProtocol,
    Instant,
    LeaveOption,
)

_S = MemberState

#: A dynamic member that is fenced this often in a row takes a new member id: brokers before 4.2 refuse epoch 0 of an
#: id that they still know (KAFKA-19233).
FENCES_BEFORE_NEW_ID = 2
#: How many intervals Kafka's default session has (45 s of 5 s each).
BEATS_OF_SESSION = 9
#: So many of the broker's heartbeat intervals are within a session, as far as a member can know it: its heartbeats are
#: one apart, and a group in which one that is lost costs the session would not work. The session that was read is an
#: upper bound only, since it may have been lowered since.
SESSION_INTERVALS = 2.0
#: The states in which a member owns what its heartbeats keep for it.
_OWNS = frozenset({_S.RECONCILE, _S.ACK, _S.STABLE})

#: Late events that a correct broker or a slow application may still deliver, by the states in which they are ignored.
#: Every other pair of event and state is handled; the numbers that answers carry sort out the rest.
IGNORED: Mapping[type[GroupEvent], frozenset[MemberState]] = MappingProxyType(
    {
        ev.HeartbeatAnswered: SILENT,
        ev.HeartbeatRejected: SILENT,
        ev.HeartbeatFailed: SILENT,
        ev.StepFinished: frozenset({_S.JOINING, _S.ACK, _S.STABLE}),
        ev.GroupDescribed: frozenset(_S) - {_S.JOINING},
        ev.GroupDescribeFailed: frozenset(_S) - {_S.JOINING},
        ev.TopicIdsResolved: SILENT | {_S.UNSUBSCRIBING},
        ev.StartOffsetsFetched: frozenset(_S) - {_S.RECONCILE},
        ev.StartOffsetsFailed: frozenset(_S) - {_S.RECONCILE},
    }
)

_Taker: TypeAlias = Callable[["ConsumerProtocol", Any], Conclusion | None]


class ConsumerProtocol:
    """The consumer protocol of one member. `new_member_id` makes a fresh member id (KIP-1082).

    `refuse_conversion`: its joins leave classic groups that have members as they are.
    """

    def __init__(self, parts: Parts, *, new_member_id: Callable[[], str], refuse_conversion: bool = False) -> None:
        settings = parts.settings
        self._parts = parts
        self._settings = settings
        self._new_member_id = new_member_id
        self._refuse_conversion = refuse_conversion
        self._machine = StateMachine("a member", VALID_TRANSITIONS)
        self.member_id = new_member_id()
        self.member_epoch = JOIN_EPOCH
        self.heartbeats = Heartbeats(settings, parts.jitter)
        self.instance = InstanceClaim(settings, parts.jitter)
        self.last_heartbeat_at: Instant | None = None
        self._fences = parts.new_backoff()
        self._leave_backoff = parts.new_backoff()
        #: The last statement of ownership that was acknowledged, or is about to be.
        self._acknowledged = 0
        #: What heartbeats state: the old one until a leave is over, or a static member's place would be given to
        #: others.
        self._sent_subscription = parts.subscription
        #: The topics that the subscribed patterns matched when the coordinator was last hurried for them.
        self._matched: frozenset[str] | None = None
        #: Whether the subscription changed since the last heartbeat.
        self._has_news = False
        parts.watch.list_all(does=True)

    # ---- questions ----

    @property
    def state(self) -> MemberState:
        """The state, which both protocols are shown by."""
        return self._machine.state

    @property
    def public_state(self) -> MemberState:
        """The state itself."""
        return self._machine.state

    @property
    def identity(self) -> CommitIdentity:
        """As whom the member fetches and commits."""
        return CommitIdentity(member_id=self.member_id, member_epoch=self.member_epoch, instance_id=self.instance.id)

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this member now."""
        return self.member_epoch > JOIN_EPOCH and self.state not in SILENT

    @property
    def group_protocol(self) -> GroupProtocol | None:
        """That the group is one of the consumer protocol; None: this is no member."""
        return GroupProtocol.CONSUMER if self.member_epoch > JOIN_EPOCH else None

    @property
    def session_s(self) -> float:
        """The group's session timeout, where the broker told it."""
        return self.instance.session.timeout_s or DEFAULT_SESSION_S

    def ignores(self, event: GroupEvent) -> bool:
        """Whether the state drops this event unread."""
        return self.state in IGNORED.get(type(event), ())

    def refused_join(self, event: GroupEvent) -> BrokerError | None:
        """The error with which the coordinator refuses this member's join; None: the event is no such refusal."""
        if not isinstance(event, ev.HeartbeatRejected) or event.request_id != self.heartbeats.in_flight:
            return None
        return event.error if self.state is _S.JOINING and self.member_epoch == JOIN_EPOCH else None

    @property
    def _lease_until(self) -> Instant | None:
        """Until when what the member owns is surely its own; None: it owns nothing, or the coordinator does not count.

        The session goes on from when that was sent which was answered last. The answer's own moment says nothing: a
        process that was stopped reads an old one when it goes on.
        """
        confirmed_at, interval_s = self.heartbeats.confirmed_at, self.heartbeats.broker_interval_s
        if self.state not in _OWNS or not self._parts.ownership.owned or confirmed_at is None:
            return None
        # Nobody tells a dynamic member its session: Kafka's default is nine intervals, which the broker does tell.
        usual_s = DEFAULT_SESSION_S if interval_s is None else min(DEFAULT_SESSION_S, BEATS_OF_SESSION * interval_s)
        return confirmed_at + (self.instance.session.timeout_s or usual_s)

    @property
    def _may_heartbeat(self) -> bool:
        """Whether an ordinary heartbeat may be sent as soon as it is due; at most one is in flight."""
        parts = self._parts
        if not parts.coordinator.is_known or self.heartbeats.in_flight is not None or parts.leave.is_sent:
            return False
        if self.state is _S.JOINING and not self.instance.may_join:
            return False
        return self.state in IN_GROUP or (self.state is _S.UNSUBSCRIBING and self.member_epoch > JOIN_EPOCH)

    @property
    def _is_known_to_group(self) -> bool:
        """Whether the coordinator may know of this member: it was told, and not as an instance that it let go."""
        return self.heartbeats.has_spoken and not (self._settings.is_static and self.instance.id is None)

    @property
    def _is_urgent(self) -> bool:
        """Whether there is something to say that should not wait for the interval."""
        if self.state in (_S.JOINING, _S.ACK):
            return True
        return self._has_news or not self.heartbeats.has_sent_ownership(self._parts.ownership.version)

    @property
    def _due_at(self) -> Instant:
        parts = self._parts
        return self.heartbeats.due_at(parts.now, urgent=self._is_urgent, holds=bool(parts.ownership.owned))

    # ---- state ----

    def _transition(self, new: MemberState, reason: str) -> None:
        self._parts.note_transition(self._machine.go(new, reason), new, reason)

    def enter(self, state: MemberState, reason: str) -> None:
        """Go out of the group, or begin to: who is out has no epoch and waits for no answer."""
        if state is not _S.UNSUBSCRIBING:
            self.heartbeats.forget()
            self._leave_backoff.reset()
            self.member_epoch = JOIN_EPOCH
        self._transition(state, reason)

    def join(self, reason: str) -> None:
        """Send the first heartbeat of a membership as soon as it may go."""
        parts = self._parts
        wait_until = self._fence_ends_at() if self.state is _S.FENCED else None
        # Who comes back from a fence or a missed poll may be the older of two holders of an instance id.
        self.instance.begin(asked_at=parts.asked_at if self.state in (_S.UNSUBSCRIBED, _S.FATAL) else None)
        self._acknowledged = parts.ownership.version
        self._sent_subscription = parts.subscription
        self.heartbeats.forget()
        self.heartbeats.speed_up()
        self._transition(_S.JOINING, reason)
        if wait_until is not None:
            self.heartbeats.wait(wait_until)

    def _fence_ends_at(self) -> Instant | None:
        """Until when a member that was fenced keeps quiet; None: it joins at once."""
        is_static = self._settings.is_static
        if self._fences.failures >= FENCES_BEFORE_NEW_ID and not is_static:
            self._take_new_id()
        # A static member gives whoever may be taking over from it the time to join first.
        is_patient = self._fences.failures > 0 or is_static
        delay = self._fences.next_delay()
        return self._parts.now + delay if is_patient else None

    def _take_new_id(self) -> None:
        """Leave under the old id, which would keep its partitions until its session ends, and go on under a new one."""
        if self._parts.coordinator.is_known:
            self._send(self._leave_heartbeat(LeaveOption.LEAVE), self._parts.next_request_id())
        self.member_id = self._new_member_id()

    # ---- leaving ----

    def resign(self) -> None:
        """Send the leave, without waiting for its answer."""
        if self._parts.coordinator.is_known and self._is_known_to_group:
            self._send(self._leave_heartbeat(LeaveOption.DEFAULT), self._parts.next_request_id())
            self.instance.session.leave(self._parts.now)

    def leave(self, gives_up_at: Instant) -> Left | None:
        """Everything was given up: say so, once."""
        parts, option, is_static = self._parts, self._parts.leave.option, self._settings.is_static
        if not self._is_known_to_group:
            return Left("the coordinator has never heard of this member")
        if option is LeaveOption.REMAIN and not is_static:
            return Left("the member keeps its place until its session ends")
        if parts.coordinator.is_known:
            request_id = parts.next_request_id()
            parts.leave.send(request_id, parts.now)
            self._send(self._leave_heartbeat(option), request_id)
            if is_static and option is not LeaveOption.LEAVE:
                self.instance.session.leave(parts.now)
        elif parts.now >= gives_up_at:
            return Left("no coordinator could be found to leave from; the session's end removes the member")
        return None

    def _leave_heartbeat(self, option: LeaveOption) -> Heartbeat:
        """The heartbeat that ends the membership (KIP-1092): -2 lets a static member come back to its partitions."""
        stays = self._settings.is_static and option is not LeaveOption.LEAVE
        return Heartbeat(
            member_id=self.member_id,
            member_epoch=LEAVE_STATIC_EPOCH if stays else LEAVE_EPOCH,
            instance_id=self.instance.id,
            owned=frozenset(),
        )

    # ---- time and circumstances ----

    def prepare(self) -> Conclusion | None:
        """Ask what has to be known to join as an instance; a pool without a free id may be the end."""
        parts = self._parts
        if not self._settings.is_static or not parts.coordinator.is_known:
            return None
        if self.state is _S.JOINING and self.instance.refusal is not None:
            return Fatal(self.instance.refusal)
        parts.order(*self.instance.orders(parts.next_request_id, is_settled=self.state is _S.STABLE, now=parts.now))
        return None

    def advance(self) -> Conclusion | None:
        """Go on with the reconciliation, and send the heartbeat that is due."""
        if self.state is _S.RECONCILE:
            self._reconcile()
        self._heartbeat_if_due()
        if self.state is _S.RECONCILE:
            # The acknowledgement that just went out may have been of an older target: begin with the newer one.
            self._reconcile()
        return None

    def _reconcile(self) -> None:
        parts, ownership, reconciler = self._parts, self._parts.ownership, self._parts.reconciler
        if reconciler.is_idle and self._acknowledged == ownership.version and self._may_reconcile:
            has_steps = ownership.surplus() or ownership.missing()
            has_statement = ownership.is_first or not ownership.is_reached
            if has_steps or (has_statement and not reconciler.awaits_first_names):
                parts.begin_reconciliation(self.identity)
        if reconciler.is_idle and self._acknowledged != ownership.version:
            self._acknowledged = ownership.version
            parts.note_holdings()
            self._transition(_S.ACK, "the assignment was taken over" if not ownership.unresolved else "in part")

    @property
    def _may_reconcile(self) -> bool:
        """Whether an attempt may begin: nothing new is taken before the last statement of what is owned is answered.

        What that statement lacked, the coordinator may have given to another member, if the target has changed.
        """
        return not (self.heartbeats.has_unanswered_ownership and self._parts.ownership.missing())

    def _heartbeat_if_due(self) -> None:
        parts = self._parts
        if not self._may_heartbeat or parts.now < self._due_at:
            return
        self._has_news = False
        request_id = parts.next_request_id()
        release = self.instance.release
        if release is not None:
            self.heartbeats.sending(request_id, parts.now)
            self._send(release, request_id)
            return
        beat = self.heartbeats.compose(
            member_id=self.member_id,
            instance_id=self.instance.id,
            epoch=self.member_epoch,
            subscription=self._sent_subscription,
            claims=parts.reconciler.claims,
            ownership_version=parts.ownership.version,
        )
        self.heartbeats.sending(request_id, parts.now, is_join=self.member_epoch == JOIN_EPOCH)
        self._send(beat, request_id)
        if self.state is _S.ACK:
            # Like Java, the acknowledgement counts as made when it is sent; a lost one is repeated in full.
            if parts.ownership.is_settled:
                self._transition(_S.STABLE, "the assignment was acknowledged")
            else:
                self._transition(_S.RECONCILE, "acknowledged; the target is not reached yet")

    def _send(self, heartbeat: Heartbeat, request_id: int) -> None:
        is_join = heartbeat.member_epoch == JOIN_EPOCH
        order = SendHeartbeat(
            request_id=request_id,
            heartbeat=heartbeat,
            refuse_conversion=self._refuse_conversion and is_join,
            may_take_over=is_join and self.instance.may_take_over(self._parts.now),
        )
        self._parts.order(order)

    def next_deadline(self) -> Instant | None:
        """When the next heartbeat is due, or a pool's member looks again for a free id."""
        moments: list[Instant | None] = []
        if self.state is _S.JOINING and self._parts.coordinator.is_known:
            moments.append(self.instance.next_deadline())
        if self._may_heartbeat:
            moments.append(self._due_at)
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- the application ----

    def handle(self, event: GroupEvent) -> Conclusion | None:
        """Take an event in, if this protocol knows it."""
        take = self._TAKERS.get(type(event))
        return None if take is None else take(self, event)

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        self._has_news |= event.subscription != self._sent_subscription
        if self.state is not _S.UNSUBSCRIBING:
            self._sent_subscription = event.subscription
        self.heartbeats.speed_up()

    def _on_polled(self, event: ev.Polled) -> None:
        self.heartbeats.note_activity(is_active=event.delivered)

    def _on_topics_looked_up(self, _: ev.TopicsLookedUp) -> None:
        """A topic that begins to match a pattern: heartbeat quickly, so that the broker matches again soon.

        The broker matches patterns when a heartbeat arrives, 10 s after the last time at the earliest, and gives the
        topic with a later heartbeat (GroupMetadataManager.maybeUpdateRegularExpressions).
        """
        before, self._matched = self._matched, self._parts.watch.matched
        if before is not None and self._matched is not None and self._matched - before:
            self.heartbeats.speed_up()

    # ---- the coordinator's answers: successes ----

    def _on_heartbeat_answered(self, event: ev.HeartbeatAnswered) -> Conclusion | None:
        if event.request_id == self._parts.leave.request:
            return Left("the coordinator confirmed the leave")
        if event.request_id != self.heartbeats.in_flight:
            return None
        self.heartbeats.answered()
        now = self._parts.now
        if self.instance.release is not None:
            self.instance.released()
            self.heartbeats.failed(now, back_off=False)
            return None
        self.last_heartbeat_at = now
        if event.member_epoch <= JOIN_EPOCH:
            # No success of a member carries such an epoch; to adopt it would turn the next heartbeat into a leave.
            self.heartbeats.failed(now, back_off=True)
            return None
        interval_s = self.heartbeats.broker_interval_s
        self.heartbeats.succeeded(event.heartbeat_interval_s, now)
        if interval_s not in (None, self.heartbeats.broker_interval_s):
            self.instance.session.doubt()
        self._fences.reset()
        self.instance.joined()
        self._adopt_epoch(event)
        if self.state is _S.UNSUBSCRIBING:
            return None
        if event.assignment is not None:
            self._take_target(event.assignment)
        elif self.state is _S.JOINING:
            # Without an assignment the join is not complete: ask again in full, at the pace of a retry.
            self.heartbeats.failed(now, back_off=True)
        return None

    def _adopt_epoch(self, event: ev.HeartbeatAnswered) -> None:
        if event.member_epoch != self.member_epoch:
            self.member_epoch = event.member_epoch
            self.heartbeats.speed_up()
            if event.assignment is None and not self._parts.ownership.owned:
                # The answer with the assignment may have gone to a join that was given up: ask for the whole of it.
                self.heartbeats.send_full_next()
        if self.heartbeats.begin_membership(self._parts.now):
            self.instance.returned(self._parts.now)

    def _take_target(self, assignment: Assignment) -> None:
        is_change = self._parts.ownership.take_target(assignment)
        if is_change:
            self.heartbeats.speed_up()
        if self.state is _S.JOINING:
            self._transition(_S.RECONCILE, "the coordinator answered the join with an assignment")
        elif is_change and self.state in (_S.STABLE, _S.ACK):
            self._transition(_S.RECONCILE, "the coordinator changed the assignment")

    def _on_group_described(self, event: ev.GroupDescribed) -> None:
        self.instance.described(event, self.member_id, self._parts.now)

    def _on_group_not_described(self, event: ev.GroupDescribeFailed) -> None:
        self.instance.not_described(event, self._parts.now)

    def _on_session_timeout_learned(self, event: ev.SessionTimeoutLearned) -> None:
        self.instance.learn_session_timeout(event.session_timeout_s)

    def _on_topic_ids_resolved(self, event: ev.TopicIdsResolved) -> None:
        self._parts.ownership.resolve(event.names)
        self._parts.reconciler.topic_ids_resolved(self._parts.now)

    # ---- silence and refusals ----

    def _on_heartbeat_failed(self, event: ev.HeartbeatFailed) -> Conclusion | None:
        if not event.is_sent:
            self.heartbeats.not_sent(event.request_id)
        if event.request_id == self._parts.leave.request:
            return Left(f"the leave got no answer ({event.reason}); the session's end removes the member")
        if event.request_id != self.heartbeats.in_flight:
            return None
        self.heartbeats.failed(self._parts.now, back_off=True)
        if not event.retriable:
            return Fatal(BrokerError(code=FATAL_CODE, name="_FATAL", message=event.reason))
        if self._parts.leave.is_sent and not event.is_sent:
            # The join was withdrawn for the leave behind it, whose answer says more.
            return None
        self._parts.miss_answer(event.reason)
        return None

    def _on_heartbeat_rejected(self, event: ev.HeartbeatRejected) -> Conclusion | None:
        if event.request_id == self._parts.leave.request:
            is_unknown = event.error.code == UNKNOWN_MEMBER_CODE or event.verdict is Verdict.GROUP_GONE
            if is_unknown and self.heartbeats.has_open_join:
                # A join without an answer may arrive after this leave, on a connection that was given up.
                self._parts.leave.repeat(self._parts.now + self._leave_backoff.next_delay())
                return None
            # The leave is idempotent: whatever the coordinator says of it, this member is gone or will be.
            return Left(f"the coordinator answered the leave with {event.error.name}")
        if event.request_id != self.heartbeats.in_flight:
            return None
        self.heartbeats.answered()
        if event.verdict is Verdict.UNRELEASED:
            return self._on_instance_held(event)
        self.heartbeats.failed(self._parts.now, back_off=True)
        if self.instance.release is not None and event.verdict not in (Verdict.RETRY, Verdict.REDISCOVER):
            return self._on_release_refused(event)
        return self._on_error(event)

    def _on_release_refused(self, event: ev.HeartbeatRejected) -> Conclusion | None:
        """The release of another member, or of this one's own ghost, was refused for good."""
        if event.verdict in (Verdict.REJOIN, Verdict.GROUP_GONE):
            # The coordinator does not know the ghost (any more): nothing keeps this member from joining.
            self.instance.released()
            self.heartbeats.failed(self._parts.now, back_off=False)
            return None
        if event.error.code == FENCED_INSTANCE_CODE:
            return self._on_instance_taken(self.instance.lost_race_error(event.error))
        self.instance.cancel_release()
        return self._on_error(event)

    def _on_error(self, event: ev.HeartbeatRejected) -> Conclusion | None:
        match event.verdict:
            case Verdict.RETRY:
                self._parts.note_error(event.error)
            case Verdict.REDISCOVER:
                self._parts.note_error(event.error)
                self._parts.lose_coordinator(event.error.name)
            case Verdict.REPORT:
                self._report(event.error)
            case Verdict.REJOIN:
                return self._on_unknown(event.error)
            case Verdict.GROUP_GONE if self.member_epoch > JOIN_EPOCH:
                # The emptied group was deleted, or turned classic: the join at epoch 0 will tell.
                return Fenced(event.error)
            case Verdict.UNRELEASED | Verdict.GROUP_GONE | Verdict.FATAL:
                return self._on_refused(event.error)
            case _:
                assert_never(event.verdict)
        return None

    def _report(self, error: BrokerError) -> None:
        """A topic may not be described: where a look at the topics says which, the application hears it from there."""
        if self._parts.watch.looks_for_refused(self._parts.now):
            self._parts.note_error(error)
        else:
            self._parts.raise_to_application(Problem.REFUSED, error)

    def _on_refused(self, error: BrokerError) -> Conclusion | None:
        if error.code == FENCED_INSTANCE_CODE:
            return self._on_instance_taken(error)
        if self._may_have_a_place(error):
            self.heartbeats.failed(self._parts.now, back_off=False)
            return None
        is_pointless = self.state is _S.UNSUBSCRIBING and self.member_epoch == JOIN_EPOCH
        if is_pointless and error.code in REFUSALS[GroupProtocol.CONSUMER]:
            # It refuses a join that the application has given up meanwhile: no reason to end FATAL.
            return None
        return Fatal(error)

    def _on_instance_held(self, event: ev.HeartbeatRejected) -> Conclusion | None:
        """UNRELEASED_INSTANCE_ID: what the policy says."""
        now = self._parts.now
        if self.member_epoch > JOIN_EPOCH or not self._settings.is_static:
            # No coordinator says so to a member, or to one without an instance id.
            self.heartbeats.failed(now, back_off=True)
            return Fatal(event.error)
        self._parts.note_error(event.error)
        ends = self.instance.on_unreleased(event.error, event.holder, self.member_id, now)
        self.heartbeats.failed(now, back_off=self.instance.backs_off)
        return None if ends is None else Fatal(ends)

    def _on_instance_taken(self, error: BrokerError) -> Conclusion | None:
        """FENCED_INSTANCE_ID: a newer member has the instance id. A pool has others, else this is the end."""
        if self.state is _S.UNSUBSCRIBING or not self.instance.try_another(self._parts.now):
            return Fatal(error)
        if self.state is not _S.JOINING:
            return Fenced(error)
        self._parts.note_error(error)
        return None

    def _may_have_a_place(self, error: BrokerError) -> bool:
        """Whether a full group that refuses this static member may count it already, under an older member id."""
        is_join = self.state is _S.JOINING and self._settings.is_static
        return is_join and error.code == GROUP_FULL_CODE and self.instance.look_for_place(error, self._parts.now)

    def _on_unknown(self, error: BrokerError) -> Conclusion:
        """The coordinator does not know the member, or its epoch: it joins anew, unless it was removed on purpose.

        That is so for a static member (KIP-345's removal) whose session cannot have ended: who sent the heartbeat that
        was answered last within a session cannot have lost it. The answer itself may be old: a process that was stopped
        reads it when it goes on. A member that was slow to revoke may have been removed for that (the rebalance
        timeout).
        """
        interval_s, confirmed_at = self.heartbeats.broker_interval_s, self.heartbeats.confirmed_at
        is_member = self.state is not _S.UNSUBSCRIBING and self.member_epoch > JOIN_EPOCH
        if not self._settings.is_static or not is_member or error.code != UNKNOWN_MEMBER_CODE:
            return Fenced(error)
        if interval_s is None or confirmed_at is None or self._parts.ownership.surplus():
            return Fenced(error)
        session_s = min(SESSION_INTERVALS * interval_s, self.instance.session.timeout_s or LONGEST_SESSION_S)
        if self._parts.now - confirmed_at < session_s:
            return Fatal(removed_for_good(self.instance.id, error))
        return Fenced(error)

    _TAKERS: ClassVar[Mapping[type[GroupEvent], _Taker]] = MappingProxyType(
        {
            ev.Subscribed: _on_subscribed,
            ev.Polled: _on_polled,
            ev.HeartbeatAnswered: _on_heartbeat_answered,
            ev.HeartbeatRejected: _on_heartbeat_rejected,
            ev.HeartbeatFailed: _on_heartbeat_failed,
            ev.GroupDescribed: _on_group_described,
            ev.GroupDescribeFailed: _on_group_not_described,
            ev.SessionTimeoutLearned: _on_session_timeout_learned,
            ev.TopicIdsResolved: _on_topic_ids_resolved,
            ev.TopicsLookedUp: _on_topics_looked_up,
        }
    )

    # ---- the view ----

    def view(self) -> ProtocolView:
        """What the consumer protocol adds to the member's view."""
        waits_for, waits_since = self._waits()
        return ProtocolView(
            member_id=self.member_id,
            instance_id=self.instance.id,
            member_epoch=self.member_epoch,
            waits_for=waits_for,
            waits_since=waits_since,
            waits_until=self.instance.waits_until(),
            heartbeat_interval_s=self.heartbeats.broker_interval_s,
            session_timeout_s=self.instance.session.timeout_s,
            lease_until=self._lease_until,
        )

    def _waits(self) -> tuple[str | None, Instant | None]:
        parts, instance = self._parts, self.instance
        if parts.ownership.unresolved:
            return "the names of assigned topic ids", parts.since
        match self.state:
            case _S.JOINING if instance.is_waiting:
                return instance.describe(), instance.waits_since
            case _S.JOINING:
                return parts.watch.describe_refused() or "the coordinator's answer to the join", parts.since
            case _S.STABLE if not parts.ownership.owned:
                return parts.watch.describe() or "partitions: the coordinator has assigned none", parts.since
            case _:
                return None, None
