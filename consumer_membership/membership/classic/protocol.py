"""The classic protocol of a member (KIP-345, KIP-394, KIP-429, KIP-792): join, sync, heartbeat, leave.

The reconciler that both protocols share revokes and assigns partitions: before a join the target is the retained
partitions, after a sync it is the assignment from the leader.

`ClassicProtocol` has the states, and decides what follows from an event. Its parts have state of their own:

| part | state |
|---|---|
| `assignment` | the generations and the assignment, with the rules for missed and unwritten generations |
| `requests` | JoinGroup and SyncGroup: contents, the one in flight, when the next join is due |
| `heartbeat` | when heartbeats are sent, when the session and the lease end |
| `leader` | the work for the whole group, if this member leads |
| `pattern` | the topics that match the subscribed patterns |
| `former_member` | the member of the former process, which a full group still counts |
| `leave`, `commit_answers` | none: they send the LeaveGroup, and interpret its response and the responses to commits |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from consumer_membership.errors import InternalError
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.assignment import ClassicAssignment, key_of, topic_key
from consumer_membership.membership.classic.commit_answers import CommitAnswers
from consumer_membership.membership.classic.former_member import FormerMember
from consumer_membership.membership.classic.heartbeat import ClassicHeartbeats
from consumer_membership.membership.classic.leader import Leader
from consumer_membership.membership.classic.leave import EXPIRES, ClassicLeave
from consumer_membership.membership.classic.pattern import SubscribedPatterns
from consumer_membership.membership.classic.requests import RebalanceRequests
from consumer_membership.membership.classic.states import (
    CLASSIC_IN_GROUP,
    CLASSIC_TARGETS,
    HEARTBEATS,
    PUBLIC_STATES,
    ClassicState,
    ClassicTrigger,
)
from consumer_membership.membership.effects import CommitIdentity
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.protocol import (
    Fatal,
    Fenced,
    GroupEvent,
    Left,
    MembershipEnd,
    ProtocolEvent,
    removed_for_good,
)
from consumer_membership.membership.settings import ClassicSettings
from consumer_membership.membership.states import MemberState, StateMachine, Trigger
from consumer_membership.membership.view import ProtocolView
from consumer_membership.membership.waits import Wait, WaitsFor
from consumer_membership.types import (
    GROUP_FULL_CODE,
    NO_MEMBER_ID,
    UNKNOWN_MEMBER_CODE,
    BrokerError,
    GroupProtocol,
    Instant,
    TopicIdPartition,
    TopicPartition,
)

_S, _T = ClassicState, ClassicTrigger
_V = ex.ClassicVerdict

#: The reason of the first join, which brokers log.
INITIAL = "initialized by the application's poll"
#: The states in which heartbeats keep the member's partitions.
_OWNS = frozenset({_S.PREPARING, _S.RECONCILE, _S.STABLE})
#: The states in which commits are accepted: not while the group joins.
_COMMITS = _OWNS | {_S.UNSUBSCRIBING}


class ClassicProtocol:
    """The classic protocol of one member."""

    #: The classic protocol has no hand-over, and so no callback that prepares for one.
    is_handing_over = retries_at_poll = False

    def __init__(self, context: MemberContext, classic: ClassicSettings) -> None:
        settings = context.settings
        self._settings = settings
        self.classic = classic
        self._context = context
        self._event = context.event
        self._history = context.history
        self._coordinator = context.coordinator
        self._ownership = context.ownership
        self._reconciler = context.reconciler
        self._watch = context.watch
        self._leave = context.leave
        self._machine = StateMachine("a classic member", CLASSIC_TARGETS)
        self.member_id = NO_MEMBER_ID
        self.last_heartbeat_at: Instant | None = None
        self.assignment = ClassicAssignment(context.event, classic.assignors, is_static=settings.is_static)
        self.requests = RebalanceRequests(context.event, settings, classic, self.assignment)
        #: Why the member has to join again, for the broker's log; None: it need not.
        self.rejoins_because: str | None = None
        self._backoff = context.new_backoff()
        self.former_member = FormerMember(context.event, settings.instance_id, classic.session_timeout_s)
        self.patterns = SubscribedPatterns(
            context.event, classic.refresh_interval_s, context.new_backoff(), classic.blacklist
        )
        self.heartbeats = ClassicHeartbeats(
            context.event,
            classic.heartbeat_interval_s,
            settings.active_heartbeat_interval_s,
            classic.session_timeout_s,
            context.new_backoff(),
        )
        self.leader = Leader(context.event, classic, context.new_backoff(), context.jitter)
        self._leaving = ClassicLeave(context)
        self._commit_answers = CommitAnswers(context, self.heartbeats)
        # With patterns this member has the list of all topics already.
        self._watch.list_all(does=False)
        self.patterns.subscribe(self._watch.subscription.patterns)

    # ---- questions ----

    @property
    def state(self) -> ClassicState:
        """The state; the view shows some of them as one."""
        return self._machine.state

    @property
    def public_state(self) -> MemberState:
        """The state as the view shows it, for both protocols."""
        return PUBLIC_STATES[self._machine.state]

    @property
    def generation(self) -> int:
        """The generation that the member joined last, and that its requests name."""
        return self.assignment.joined_generation

    @property
    def topics(self) -> frozenset[str]:
        """The resolved subscription: the named topics, and those that match the pattern."""
        return self._watch.subscription.topics | self.patterns.matched

    @property
    def identity(self) -> CommitIdentity:
        """The identity with which the member fetches and commits: a classic OffsetFetch names no member."""
        return CommitIdentity(
            member_id=self.member_id, member_epoch=self.generation, instance_id=self._settings.instance_id
        )

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator accepts commits of this member now."""
        return self.state in _COMMITS and self.assignment.is_joined

    @property
    def retained(self) -> frozenset[TopicPartition]:
        """The partitions that an eager member released for a join: the next assignment shows which it gave up."""
        is_assigned = self.state in (_S.RECONCILE, _S.STABLE)
        return self.assignment.unchanged if is_assigned else self.assignment.partitions

    @property
    def group_protocol(self) -> GroupProtocol | None:
        """The type of the group, as the coordinator reported at the join; None: it is not a member."""
        return self.assignment.group_protocol if self.assignment.is_joined else None

    @property
    def session_s(self) -> float:
        """The session timeout, which a classic member states itself."""
        return self.classic.session_timeout_s

    def ignores(self, _: GroupEvent) -> bool:
        """Always False: outdated responses are recognized by their numbers."""
        return False

    def refused_join(self, event: GroupEvent) -> BrokerError | None:
        """Return the error with which the coordinator refuses this member's join; None for other events."""
        if not isinstance(event, ex.JoinRejected) or not self.requests.awaits(event.request_id):
            return None
        return event.error if self.state is _S.JOINING else None

    @property
    def _lease_until(self) -> Instant | None:
        """Until when the owned partitions are certainly owned; None: it owns none.

        The coordinator keeps a member whose JoinGroup is pending, even if their connection is cut. The
        member cannot know that: behind a cut path the JoinGroup may have been answered long ago. So the lease continues
        while the member joins, and heartbeats beside the JoinGroup extend it (`_heartbeats_during_join`).
        """
        is_owner = self.state in CLASSIC_IN_GROUP or (self.state is _S.UNSUBSCRIBING and self._settings.has_leases)
        if not is_owner or not self._context.has_holdings:
            return None
        until = self.heartbeats.lease_until(self._settings.max_poll_interval_s)
        return None if until is None else until - (self.session_s - self._settings.lease_s(self.session_s))

    @property
    def _may_heartbeat(self) -> bool:
        is_free = self.heartbeats.in_flight is None and not self._leave.is_sent
        is_counted = self.member_id != NO_MEMBER_ID and self.assignment.is_joined
        is_due = self.state in HEARTBEATS or self._heartbeats_during_join
        return is_free and is_counted and self._coordinator.is_known and is_due

    @property
    def _heartbeats_during_join(self) -> bool:
        """Whether heartbeats are sent while a JoinGroup is pending: the member keeps partitions, and returns records.

        They use another connection. The coordinator answers REBALANCE_IN_PROGRESS for as long as the group joins, so a
        member that waits for slow others differs from one that is cut off. Java's client sends none.
        """
        is_pending = self.state is _S.JOINING and self.requests.is_waiting
        return is_pending and bool(self._ownership.owned) and not self.heartbeats.is_doubted

    @property
    def _heartbeat_due_at(self) -> Instant:
        """When the next heartbeat may be sent; soon, unless a rebalance runs already or is known to come."""
        is_attentive = self.state in (_S.RECONCILE, _S.STABLE) and self.rejoins_because is None
        return self.heartbeats.due_at(is_attentive=is_attentive)

    # ---- state ----

    def _fire(self, trigger: Trigger | ClassicTrigger, reason: str) -> None:
        old = self._machine.fire(trigger)
        self._history.note_transition(PUBLIC_STATES[old], self.public_state, reason)

    def handed_over(self, reason: str) -> None:
        """Not called: the classic protocol has no hand-over."""
        raise InternalError(f"a classic member has no hand-over ({reason})")

    def begin_leaving(self, reason: str) -> None:
        """Go to UNSUBSCRIBING: heartbeats continue until everything is released."""
        self._fire(Trigger.LEAVE_REQUESTED, reason)

    def end(self, trigger: Trigger, reason: str) -> None:
        """Leave the group locally: forget the generation and the request in flight."""
        self._forget()
        if trigger is Trigger.REFUSED:
            self.rejoins_because = None
        if trigger is Trigger.LEAVE_ENDED and not self._settings.is_static:
            # A static member keeps its id: with another one it would fence itself when it returns (KAFKA-20985).
            self.member_id = NO_MEMBER_ID
        self._fire(trigger, reason)

    def _forget(self) -> None:
        """Have no generation, and wait for no response."""
        self.requests.forget()
        self.former_member.forget()
        self.heartbeats.forget()
        self.assignment.forget()

    def join(self, trigger: Trigger, reason: str) -> None:
        """Go to JOINING; the JoinGroup is sent as soon as possible."""
        # A member that returns from a fence or a missed poll may be the older of two holders of an instance id.
        is_newest = self.state in (_S.UNSUBSCRIBED, _S.FATAL)
        self._begin_join(trigger, INITIAL if self.state is _S.UNSUBSCRIBED else reason, is_newest=is_newest)

    def _begin_join(
        self, trigger: Trigger | ClassicTrigger, reason: str, *, delay_s: float = 0.0, is_newest: bool = False
    ) -> None:
        self._schedule_join(reason, delay_s)
        self.former_member.begin(is_newest=is_newest)
        self._fire(trigger, reason)

    def _join_again(self, reason: str, *, delay_s: float = 0.0) -> None:
        """Send one more JoinGroup, because the last one, or its SyncGroup, did not succeed."""
        if self.state is _S.JOINING:
            self._schedule_join(reason, delay_s)
        else:
            self._begin_join(_T.REJOIN_NEEDED, reason, delay_s=delay_s)

    def _schedule_join(self, reason: str, delay_s: float) -> None:
        self.requests.schedule_join(delay_s)
        self.rejoins_because = self.rejoins_because or reason

    def _prepare(self, trigger: ClassicTrigger, reason: str) -> None:
        """Begin a rebalance: release the partitions that the member must not keep in the join (rules 4.4)."""
        self.requests.forget()
        self.rejoins_because = reason
        self._fire(trigger, reason)

    def _fence(self, error: BrokerError, *, keeps_id: bool = False) -> MembershipEnd | None:
        """The coordinator does not know the member, or its generation: its partitions are lost (rules 4.7)."""
        if not keeps_id:
            self.member_id = NO_MEMBER_ID
        if self.state is not _S.JOINING or self._reconciler.may_hold:
            return Fenced(error)
        self._history.note_error(error)
        self._forget()
        self._join_again(str(error), delay_s=self._backoff.next_delay())
        return None

    # ---- leaving ----

    def resign(self) -> None:
        """Leave without waiting for the response, as a dynamic member; a static one stays in the group."""
        self._resign(EXPIRES)

    def _resign(self, reason: str) -> None:
        if not self._settings.is_static:
            self._leave_without_waiting(reason)

    def _leave_without_waiting(self, reason: str) -> None:
        """Leave permanently without waiting for a response, also as a static member."""
        self._leaving.send_and_forget(self.member_id, reason)
        self.member_id = NO_MEMBER_ID

    def leave(self, gives_up_at: Instant) -> Left | None:
        """Send the leave, once: everything was released."""
        return self._leaving.send(self.member_id, gives_up_at, is_joining=self.requests.is_waiting)

    # ---- time and circumstances ----

    def prepare(self) -> MembershipEnd | None:
        """With a pattern: request the topics that exist, as a leader and as a follower."""
        patterns = self.patterns
        if patterns.refusal is not None:
            self._resign("the subscribed pattern cannot be read")
            return Fatal(patterns.refusal)
        patterns.request_if_due()
        return None

    def advance(self) -> MembershipEnd | None:
        """Continue the rebalance, and send the heartbeat if it is due."""
        if not self._coordinator.is_known:
            self._forget_unwritten_generation()
        conclusion: MembershipEnd | None = None
        match self.state:
            case _S.PREPARING:
                conclusion = self._advance_preparing()
            case _S.JOINING:
                conclusion = self._join_if_due()
            case _S.SYNCING if self._computes:
                self.leader.check_if_due(self.topics)
            case _S.RECONCILE:
                conclusion = self._advance_reconciling()
            case _S.STABLE:
                conclusion = self._advance_stable()
            case _:
                pass
        if conclusion is None:
            self._heartbeat_if_due()
        return conclusion

    def _advance_preparing(self) -> MembershipEnd | None:
        ownership = self._ownership
        if not self._reconciler.is_idle or not self.patterns.is_resolved:
            return None
        ownership.take_target(self._kept())
        if ownership.surplus():
            self._reconciler.begin(releases_all=self.classic.is_eager)
            return None
        self._begin_join(_T.READY_TO_JOIN, self.rejoins_because or "a rebalance")
        return self._join_if_due()

    def _kept(self) -> frozenset[TopicIdPartition]:
        """Return the partitions that a member keeps in a rebalance: eager none, cooperative all subscribed ones."""
        if self.classic.is_eager:
            return frozenset()
        topics = {topic_key(topic) for topic in self.topics}
        return frozenset(p for p in self._ownership.owned if p.topic_id in topics)

    def _join_if_due(self) -> MembershipEnd | None:
        requests = self.requests
        if requests.is_waiting or not self._coordinator.is_known or self._event.now < requests.join_at:
            return None
        if self.former_member.removal_is_due:
            self.former_member.remove()
        if self.former_member.request is not None or not self.patterns.is_resolved:
            return None
        failure = requests.join(
            member_id=self.member_id,
            reason=self.rejoins_because or INITIAL,
            subscription=self._watch.subscription,
            topics=self.topics,
            owned=self._ownership.named_owned,
        )
        if failure is not None:
            self._leave_without_waiting("the assignor failed")
            return Fatal(failure)
        self.heartbeats.forget()
        return None

    @property
    def _computes(self) -> bool:
        """Whether a leader still has to send the assignment of its group."""
        return self.state is _S.SYNCING and not self.requests.is_waiting and not self.assignment.is_notifying

    def _advance_reconciling(self) -> MembershipEnd | None:
        ownership, reconciler = self._ownership, self._reconciler
        if reconciler.is_idle and (ownership.surplus() or ownership.missing() or ownership.is_first):
            self._reconciler.begin(releases_all=self.classic.is_eager)
        if not reconciler.is_idle or ownership.surplus() or ownership.missing():
            return None
        self._context.note_holdings()
        self._fire(_T.RECONCILED, f"has its assignment of generation {self.generation}")
        if self.assignment.revokes and not self.classic.is_eager:
            self.rejoins_because = "need to revoke partitions and re-join"
        return self._advance_stable()

    def _advance_stable(self) -> MembershipEnd | None:
        if self.leader.repair():
            self.rejoins_because = "withheld partitions are still unassigned"
        reason = self.rejoins_because
        if reason is None and self.patterns.is_resolved:
            reason = self.requests.change(self._watch.subscription, self.topics)
        if reason is None:
            self.leader.check_if_due(self.topics)
            return None
        self._prepare(_T.REBALANCE, reason)
        return self._advance_preparing()

    def _heartbeat_if_due(self) -> None:
        if not self._may_heartbeat:
            return
        if self._event.now >= self.heartbeats.session_ends_at:
            # No response for a session: the coordinator is looked up again; its response shows whether the member is
            # out.
            self.heartbeats.search_again(self._event.now)
            self._coordinator.search("no heartbeat was answered for a session")
            return
        if self._event.now < self._heartbeat_due_at:
            return
        self.heartbeats.send(
            generation=self.generation, member_id=self.member_id, instance_id=self._settings.instance_id
        )

    def next_deadline(self) -> Instant | None:
        """Return the moment when the join, the heartbeat, or a check of the topics is due; None: nothing is."""
        moments: list[Instant | None] = []
        if self.state in CLASSIC_IN_GROUP:
            moments.append(self.patterns.due_at)
        if self._computes:
            moments.append(self.leader.check_at)
        elif self.state is _S.STABLE:
            moments.append(self.leader.due_at)
        is_free = not self.requests.is_waiting and self.former_member.request is None
        if self.state is _S.JOINING and is_free and self._coordinator.is_known and self.patterns.is_resolved:
            moments.append(self.requests.join_at)
        if self._may_heartbeat:
            moments += [self.heartbeats.session_ends_at, self._heartbeat_due_at]
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- events ----

    def handle(self, event: ProtocolEvent) -> MembershipEnd | None:  # noqa: C901, PLR0911, PLR0912 - a case for each
        """Handle an event of the classic protocol; drop a late event of the consumer protocol."""
        if isinstance(event, ev.ConsumerEvent):
            return None
        match event:
            case ex.JoinAnswered():
                return self._on_join_answered(event)
            case ex.JoinRejected():
                return self._on_join_rejected(event)
            case ex.SyncAnswered():
                self._on_sync_answered(event)
            case ex.SyncRejected():
                return self._on_sync_rejected(event)
            case ex.ClassicHeartbeatAnswered():
                self._on_heartbeat_answered(event)
            case ex.ClassicHeartbeatRejected():
                return self._on_heartbeat_rejected(event)
            case ex.ExchangeFailed():
                return self._on_exchange_failed(event)
            case ex.ClassicLeft():
                return self._on_left(event)
            case ex.ClassicCommitAnswered():
                return self._commit_answers.handle(event, self.state, self.generation)
            case ex.TopicsDescribed():
                self._on_topics_described(event)
            case ex.TopicsNotDescribed():
                self._on_topics_not_described(event)
            case ex.AssignmentComputed():
                self._on_assignment_computed(event)
            case ex.AssignmentFailed():
                return self._on_assignment_failed(event)
            case ex.AssignorNotified():
                self._on_assignor_notified(event)
            case _:
                assert_never(event)
        return None

    def subscribed(self, event: ev.Subscribed) -> None:
        """Match the patterns, before the next JoinGroup."""
        self.patterns.subscribe(event.subscription.patterns)
        self.leader.subscribed(event.subscription)

    def polled(self, event: ev.Polled) -> None:
        """Note whether records flow."""
        self.heartbeats.note_activity(is_active=event.delivered)

    def suspended(self, seconds: float) -> None:
        """Count the suspension as part of the session."""
        self.requests.suspended(seconds)
        self.heartbeats.suspended(seconds)

    def topics_looked_up(self) -> None:
        """Do nothing: with patterns, the member has its own list of topics (`SubscribedPatterns`)."""

    def leave_requested(self) -> None:
        """End the subscription to patterns, and every reason to join again."""
        self.patterns.subscribe(frozenset())
        self.rejoins_because = None
        if self.member_id != NO_MEMBER_ID:
            self.requests.forget()

    # ---- joining ----

    def _on_join_answered(self, event: ex.JoinAnswered) -> MembershipEnd | None:
        if not self.requests.awaits(event.request_id):
            return None
        self.requests.forget()
        has_new_id, self.member_id = event.member_id != self.member_id, event.member_id
        if self.state is not _S.JOINING:
            return None
        now = self._event.now
        self._backoff.reset()
        self.last_heartbeat_at = now
        if self._reconciler.may_hold and (missed := self.assignment.missed_generation(event)) is not None:
            return self._fence(missed, keeps_id=True)
        self.heartbeats.gathered(self.requests.sent_at, now)
        self.assignment.joined(event)
        self.former_member.joined(has_new_id=has_new_id)
        if (unsupported := self.assignment.unsupported_assignor()) is not None:
            self._resign("the group chose an assignor that this member does not support")
            return Fatal(unsupported)
        self.rejoins_because = None
        self._fire(_T.GATHERED, f"generation {event.generation} has joined")
        self.leader.begin(event)
        if not event.is_leader or event.skip_assignment:
            self._sync({}, {})
        return None

    def _sync(self, assignments: Mapping[str, frozenset[TopicPartition]], user_data: Mapping[str, bytes]) -> None:
        self.requests.sync(
            member_id=self.member_id, assignments=assignments, user_data=user_data, versions=self.leader.versions
        )

    def _on_join_rejected(self, event: ex.JoinRejected) -> MembershipEnd | None:
        if not self.requests.awaits(event.request_id):
            return None
        self.requests.forget()
        if event.verdict is _V.MEMBER_ID_REQUIRED and self.member_id == NO_MEMBER_ID and event.member_id:
            self.member_id = event.member_id
            return None
        if self.state is not _S.JOINING:
            return None
        if event.verdict is _V.MEMBER_ID_REQUIRED:
            # The member has an id, or the error contains none. No coordinator does that; to join at once could cause
            # endless requests without a pause.
            return self._on_error(_V.RETRY, event.error)
        if event.error.code == GROUP_FULL_CODE and self.former_member.may_be_counted(event.error):
            self._history.note_error(event.error)
            delay_s = 0.0 if self.former_member.removal_is_due else self._backoff.next_delay()
            self._join_again(f"rebalance failed due to {event.error.name}", delay_s=delay_s)
            return None
        return self._on_error(event.verdict, event.error)

    def _on_left(self, event: ex.ClassicLeft) -> MembershipEnd | None:
        if event.request_id == self.former_member.request and self.state is _S.JOINING:
            return self._on_removal_answered(event)
        return self._leaving.answered(event)

    def _on_removal_answered(self, event: ex.ClassicLeft) -> MembershipEnd | None:
        """Join again or end after the response to the removal of the former member."""
        end = self.former_member.answered(event.verdict, event.error)
        if end is not None:
            return end
        self._join_again(
            "the full group no longer counts the former member",
            delay_s=0.0 if event.error is None else self._backoff.next_delay(),
        )
        if event.error is not None and event.verdict is _V.REDISCOVER:
            self._coordinator.search(event.error.name)
        return None

    def _forget_unwritten_generation(self) -> None:
        """Forget an unwritten generation, because the coordinator may have changed since the join (rules 4.4)."""
        if self.state in (_S.JOINING, _S.UNSUBSCRIBING) and self.assignment.forget_unwritten():
            # The coordinator confirmed the generation that is forgotten now (`_was_removed_for_good`).
            self.heartbeats.forget_confirmation()

    # ---- the assignment ----

    def _on_sync_answered(self, event: ex.SyncAnswered) -> None:
        if not self.requests.awaits(event.request_id) or self.state is not _S.SYNCING:
            return
        self.requests.forget()
        self._backoff.reset()
        self.former_member.written()
        self.heartbeats.synced(self.requests.sent_at)
        if self._is_outdated(event.assignment):
            return
        if self.assignment.has_observer:
            self.assignment.notify_assignor(event)
        else:
            self._apply(event.assignment)

    def _on_assignor_notified(self, event: ex.AssignorNotified) -> None:
        partitions = self.assignment.notified(event.request_id) if self.state is _S.SYNCING else None
        if partitions is not None and not self._is_outdated(partitions):
            self._apply(partitions)

    def _is_outdated(self, partitions: frozenset[TopicPartition]) -> bool:
        """Return whether the subscription changed meanwhile: nothing is applied then (rules 4.5)."""
        strange = sorted({p.topic for p in partitions} - self.topics)
        if strange:
            self._prepare(
                _T.ASSIGNMENT_OUTDATED, f"assigned topics that are no longer subscribed: {', '.join(strange)}"
            )
        return bool(strange)

    def _apply(self, partitions: frozenset[TopicPartition]) -> None:
        ownership = self._ownership
        ownership.resolve({topic_key(p.topic): p.topic for p in partitions})
        ownership.take_target(frozenset(map(key_of, partitions)))
        # Each assignment calls on_assign, also an empty one, as with Java's client and confluent-kafka.
        ownership.prepare_next(is_first=True)
        self.assignment.apply(partitions, revokes=bool(ownership.surplus()))
        self.heartbeats.speed_up()
        self._fire(_T.ASSIGNMENT_RECEIVED, f"received the assignment of generation {self.generation}")

    def _on_sync_rejected(self, event: ex.SyncRejected) -> MembershipEnd | None:
        if not self.requests.awaits(event.request_id) or self.state is not _S.SYNCING:
            return None
        self.requests.forget()
        return self._on_error(event.verdict, event.error)

    # ---- the topics, and the assignor ----

    def _on_topics_described(self, event: ex.TopicsDescribed) -> None:
        if self.patterns.awaits(event.request_id):
            self._see_topics(event)
            self.patterns.listed(event.topics.partitions, again_at=self._watch.again_at)
        if not self.leader.awaits(event.request_id):
            return
        if self.patterns.is_resolved:  # otherwise the matching topics are unknown, so they were not requested
            self._see_topics(event)
        before = self.leader.described(event, self.topics)
        if self._computes:
            self.leader.compute(self.generation, self.assignment.assignor)
        elif self.state is _S.STABLE:
            reason = self.leader.reason_to_rebalance(before, self.topics, self.assignment.partitions)
            self.rejoins_because = reason or self.rejoins_because

    def _see_topics(self, event: ex.TopicsDescribed) -> None:
        """Report subscribed topics that do not exist or cannot be described, once each."""
        self._watch.on_metadata(self.patterns.without_blacklisted(event.topics.partitions), event.refused)

    def _on_topics_not_described(self, event: ex.TopicsNotDescribed) -> None:
        if self.patterns.awaits(event.request_id):
            self._history.note_error(event.error)
            self.patterns.not_listed()
        if self.leader.awaits(event.request_id):
            self._history.note_error(event.error)
            self.leader.not_described()

    def _on_assignment_computed(self, event: ex.AssignmentComputed) -> None:
        if event.generation == self.generation and self._computes:
            self._sync(*self.leader.assignments(event, self.topics))
            self.leader.synced()

    def _on_assignment_failed(self, event: ex.AssignmentFailed) -> MembershipEnd | None:
        """Leave, because this member's assignor failed, so that another member can lead; the error is raised."""
        if event.generation != self.generation or self.state is not _S.SYNCING or self.requests.is_waiting:
            return None
        self._leave_without_waiting("the assignor failed")
        return Fatal(event.error)

    # ---- silence, heartbeats, and verdicts ----

    def _on_exchange_failed(self, event: ex.ExchangeFailed) -> MembershipEnd | None:
        """A request got no response: the coordinator may have acted on it, so the member keeps its id (rules 4.7)."""
        number = event.request_id
        if (end := self._leaving.unanswered(number, event.reason)) is not None:
            return end
        if number == self.heartbeats.in_flight:
            self.heartbeats.failed(self._event.now)
            self._coordinator.miss_answer(event.reason)
        elif self.requests.awaits(number) and self.state is _S.UNSUBSCRIBING:
            self.requests.forget()
        elif number == self.former_member.request or self.requests.awaits(number):
            if number == self.former_member.request:
                self.former_member.forget()
            elif self.member_id == NO_MEMBER_ID:
                self.former_member.unanswered()
            self._join_again(f"no response: {event.reason}", delay_s=self._backoff.next_delay())
            self._coordinator.miss_answer(event.reason)
        return None

    def _on_heartbeat_answered(self, event: ex.ClassicHeartbeatAnswered) -> None:
        if event.request_id == self.heartbeats.in_flight:
            self._confirm(is_undisturbed=True)

    def _confirm(self, *, is_undisturbed: bool) -> None:
        self.last_heartbeat_at = self._event.now
        self.heartbeats.confirmed(self._event.now, is_undisturbed=is_undisturbed)

    def _on_heartbeat_rejected(self, event: ex.ClassicHeartbeatRejected) -> MembershipEnd | None:
        """Interpret a heartbeat's error: if it is not about the membership, the heartbeat is repeated."""
        error = event.error
        if event.request_id != self.heartbeats.in_flight:
            return None
        if event.verdict is _V.REJOIN_NOW:
            self._confirm(is_undisturbed=False)
        else:
            self.heartbeats.failed(self._event.now)
        match event.verdict:
            case _V.RETRY | _V.REJOIN_LATER:
                self._history.note_error(error)
            case _V.REJOIN | _V.REJOIN_KEEP_ID | _V.MEMBER_ID_REQUIRED | _V.FATAL if self.state is _S.JOINING:
                # The group may have joined, with this member or without it: the JoinGroup's response shows which.
                self.heartbeats.doubt(self._event.now)
            case _V.REDISCOVER:
                self._history.note_error(error)
                self._coordinator.search(error.name)
            case _V.REJOIN_NOW if self.state in (_S.STABLE, _S.RECONCILE):
                self._history.note_error(error)
                self.rejoins_because = self.rejoins_because or "the group rebalances"
            case _V.REJOIN_NOW if self.requests.is_waiting or self.state is not _S.SYNCING:
                # A rebalance is already in preparation, or the response to the SyncGroup will show it.
                self._history.note_error(error)
            case _:
                return self._on_error(event.verdict, error)
        return None

    def _on_error(self, verdict: ex.ClassicVerdict, error: BrokerError) -> MembershipEnd | None:
        """Interpret an error of JoinGroup or SyncGroup (rules 4.7): it leads back to JOINING, or ends."""
        self._history.note_error(error)
        match verdict:
            case _V.RETRY | _V.REJOIN_LATER | _V.REDISCOVER:
                self._join_again(f"rebalance failed due to {error.name}", delay_s=self._backoff.next_delay())
                self._forget_unwritten_generation()
                if verdict is _V.REDISCOVER:
                    self._coordinator.search(error.name)
            case _V.REJOIN if self._was_removed_for_good(error):
                return Fatal(removed_for_good(self._settings.instance_id, error))
            case _V.REJOIN:
                return self._fence(error)
            case _V.REJOIN_KEEP_ID:
                return self._fence(error, keeps_id=True)
            case _V.REJOIN_NOW:
                self._join_again(f"rebalance failed due to {error.name}")
            case _V.FATAL if self.former_member.may_rejoin_without_id(error):
                return self._fence(error)
            case _V.MEMBER_ID_REQUIRED | _V.FATAL:
                return Fatal(error)
            case _:
                assert_never(verdict)
        return None

    def _was_removed_for_good(self, error: BrokerError) -> bool:
        """Return whether an administrator removed a static member (KIP-345's removal), not the end of its session.

        The requested session began again when the last answered heartbeat arrived. A member with the assignment of its
        generation was written to the log; before that, a coordinator that moved may have forgotten it, or have removed
        it for a late SyncGroup. In a group of the consumer protocol a member that joins too late is removed.
        """
        if not self._settings.is_static or self.state not in CLASSIC_IN_GROUP or error.code != UNKNOWN_MEMBER_CODE:
            return False
        cannot_be_late = self.assignment.group_protocol is GroupProtocol.CLASSIC or self.state is _S.STABLE
        return cannot_be_late and self.assignment.is_written and self.heartbeats.is_session_running

    # ---- the view ----

    def view(self) -> ProtocolView:
        """Return the classic protocol's part of the member's view; its epoch is the generation."""
        return ProtocolView(
            member_id=self.member_id,
            instance_id=self._settings.instance_id,
            member_epoch=max(self.generation, 0),
            wait=self._wait(),
            waits_until=self.former_member.waits_until(),
            heartbeat_interval_s=self.classic.heartbeat_interval_s,
            session_timeout_s=self.classic.session_timeout_s if self._settings.is_static else None,
            lease_until=self._lease_until,
            has_tokens=not self._settings.is_static,
        )

    def _wait(self) -> Wait | None:
        former = self.former_member
        if not self.patterns.is_resolved and self.state in (_S.PREPARING, _S.JOINING, _S.STABLE):
            return Wait(what=WaitsFor.TOPIC_LIST, since=self.patterns.waits_since)
        match self.state:
            case _S.JOINING if (detail := former.describe()) is not None:
                since = former.waits_since or self._history.since
                return Wait(what=WaitsFor.INSTANCE_ID, since=since, detail=detail)
            case _S.JOINING:
                waits_for = WaitsFor.OTHER_MEMBERS
            case _S.SYNCING if self.assignment.is_notifying:
                waits_for = WaitsFor.ASSIGNOR_ON_ASSIGNMENT
            case _S.SYNCING if self.leader.is_leading:
                waits_for = WaitsFor.ASSIGNOR_ASSIGN
            case _S.SYNCING:
                waits_for = WaitsFor.LEADER_ASSIGNMENT
            case _S.STABLE if not self._ownership.owned:
                return self._watch.wait_without_partitions("the leader has assigned none")
            case _:
                return None
        return Wait(what=waits_for, since=self._history.since)
