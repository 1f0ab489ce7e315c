"""The KIP-848 member: one funnel that turns events into effects, and the only writer of the member's state.

`handle(event, now)` first drops what the present state ignores (`IGNORED`), then takes the event in, then does what
time and circumstances ask for (`_advance`): give up when the application stopped polling, begin a reconciliation, send
what is due. The parts that it is made of know little of each other: `heartbeat` (when, and which fields), `instance`
(as whom), `ownership` and `reconciler` (from owned to target), `coordinator` (where), `offsets` (commits). What
connects them is here, in `answers` (what the coordinator says) and in `lifecycle` (in, out and around).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from consumer_membership.membership import events as ev
from consumer_membership.membership.answers import Answers
from consumer_membership.membership.effects import (
    Effect,
    Heartbeat,
    LeaveCompleted,
)
from consumer_membership.membership.events import Event, Step
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.states import IN_GROUP, SILENT, MemberState
from consumer_membership.types import (
    FATAL_CODE,
    INVALID_PATTERN_CODE,
    BrokerError,
    Instant,
    Offsets,
    Subscription,
)

_S = MemberState

#: Late events that a correct broker or a slow application may still deliver, by the states in which they are ignored.
#: Every other pair of event and state is handled; the numbers that answers carry sort out the rest.
IGNORED: Mapping[type[Event], frozenset[MemberState]] = MappingProxyType(
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

#: Fatal errors whose cause is the subscription, so that another one leads out of them: INVALID_REGULAR_EXPRESSION.
SUBSCRIPTION_ERRORS = frozenset({INVALID_PATTERN_CODE})
#: How long one automatic commit is tried.
AUTO_COMMIT_S = 30.0


class Member(Answers):
    """One member of one group. `new_member_id` makes a fresh member id (KIP-1082), `jitter` a number in [0, 1)."""

    # ---- the funnel ----

    def handle(self, event: Event, now: Instant) -> tuple[Effect, ...]:
        """Take one event in at this moment; what to do about it, in order (`effects` has the contract)."""
        self._now = now
        self._out = []
        if self.state not in IGNORED.get(type(event), frozenset()):
            self._dispatch(event)
        self._advance()
        return tuple(self._out)

    def _dispatch(self, event: Event) -> None:  # noqa: C901, PLR0912 - a funnel has one branch an event
        match event:
            case ev.Subscribed():
                self._on_subscribed(event)
            case ev.Polled():
                self._on_polled(event)
            case ev.StepFinished():
                self._on_step_finished(event)
            case ev.PositionsReported():
                self._on_positions_reported(event)
            case ev.CommitRequested():
                self._begin_commit(event.commit_id, event.offsets, event.timeout_s)
            case ev.AssignedByHand():
                self._on_assigned_by_hand(event)
            case ev.LeaveRequested():
                self._on_leave_requested(event)
            case ev.CoordinatorFound():
                self.coordinator.found(event.coordinator)
            case ev.CoordinatorLookupFailed():
                self._on_lookup_failed(event)
            case ev.CoordinatorLost():
                self._lose_coordinator(event.reason)
            case ev.HeartbeatAnswered():
                self._on_heartbeat_answered(event)
            case ev.HeartbeatRejected():
                self._on_heartbeat_rejected(event)
            case ev.HeartbeatFailed():
                self._on_heartbeat_failed(event)
            case ev.GroupDescribed():
                self._on_group_described(event)
            case ev.GroupDescribeFailed():
                self.instance.not_described(event, self._now)
            case ev.SessionTimeoutLearned():
                self._on_session_timeout_learned(event)
            case ev.TopicIdsResolved():
                self.ownership.resolve(event.names)
                self.reconciler.topic_ids_resolved(self._now)
            case ev.StartOffsetsFetched():
                identity = self._identity
                self._out += self.reconciler.start_offsets_fetched(event.attempt, event.offsets, identity, self._now)
            case ev.StartOffsetsFailed():
                self._on_start_offsets_failed(event)
            case ev.CommitAnswered():
                self._on_commit_answered(event)
            case ev.CommitFailed():
                self._on_commit_failed(event)
            case ev.TimePassed():
                pass
            case _:
                assert_never(event)

    # ---- the application ----

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        self._has_news |= event.subscription != self.subscription
        self.subscription = event.subscription
        self.heartbeats.stir()

    def _on_polled(self, event: ev.Polled) -> None:
        self._polled_at = self._now
        self.heartbeats.is_active = event.delivered
        self.reconciler.polled(self._now)
        if self.subscription and self.reconciler.is_idle:
            self._join_at_poll()

    def _join_at_poll(self) -> None:
        """A rebalance never starts outside poll: this is where a member that is out of its group joins."""
        match self.state:
            case _S.UNSUBSCRIBED:
                self._join("the application polls with a subscription")
            case _S.STALE:
                self._join("the application polls again")
            case _S.FATAL if self._has_news and self._fatal is not None and self._fatal.code in SUBSCRIPTION_ERRORS:
                self._join("another subscription took the place of the refused one")
            case _:
                pass

    def _on_step_finished(self, event: ev.StepFinished) -> None:
        was_losing = self.reconciler.phase is Phase.LOSE
        self._out += self.reconciler.step_finished(event, self._identity, self._now)
        if event.step is not Step.LOSE or not was_losing or not self.reconciler.is_idle:
            return
        if self.state is _S.FENCED:
            self._rejoin_after_fence()
        elif self.state is _S.STALE and self.subscription:
            # The step was performed inside a poll: that is the poll which the member waited for.
            self._polled_at = self._now
            self._join("the application polls again and has given up its partitions")

    def _on_assigned_by_hand(self, event: ev.AssignedByHand) -> None:
        if event.holds:
            self.auto_commit.restart(self._now)
        elif not self.ownership.owned:
            self.auto_commit.stop()

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        subscription, self.subscription = self.subscription, Subscription()
        match self.state:
            case _S.UNSUBSCRIBING:
                pass
            case _S.UNSUBSCRIBED | _S.FATAL:
                self._out.append(LeaveCompleted())
            case _S.FENCED | _S.STALE:
                # on_lost is already on its way to the application; the coordinator has nothing of this member.
                self._transition(_S.UNSUBSCRIBED, "the application left while the member was out of the group")
                self._out.append(LeaveCompleted())
            case _:
                self._leave_option, self._given_up = event.option, subscription
                self._leave_by = self._now + self.settings.leave_timeout_s
                self._transition(_S.UNSUBSCRIBING, "the application leaves the group")
                self._out += self.reconciler.begin_leaving(self._identity, self._now)

    # ---- commits and offsets ----

    def _begin_commit(self, commit_id: int, offsets: Offsets, timeout_s: float) -> None:
        self._over(self.commits.begin(commit_id, offsets, self._now + timeout_s))
        if self.state is _S.FATAL or (self.state in (_S.FENCED, _S.STALE)):
            self._over(self.commits.abandon(self._fatal or ASSIGNMENT_LOST))

    def _on_positions_reported(self, event: ev.PositionsReported) -> None:
        if event.commit_id != self.auto_commit.collecting:
            return
        if event.offsets:
            self.auto_commit.collected(self._now)
            self._begin_commit(event.commit_id, event.offsets, AUTO_COMMIT_S)
        else:
            self.auto_commit.restart(self._now)

    def _on_commit_answered(self, event: ev.CommitAnswered) -> None:
        if not self.commits.is_pending(event.commit_id):
            return
        if event.verdict is ev.CommitVerdict.REDISCOVER:
            self._lose_coordinator("a commit was answered by a broker that is not the coordinator")
        self._over(self.commits.answered(event, self._now))

    def _on_commit_failed(self, event: ev.CommitFailed) -> None:
        if not self.commits.is_pending(event.commit_id):
            return
        if event.retriable:
            self._lose_coordinator(event.reason)
        error = BrokerError(code=FATAL_CODE, name="_FAIL", message=event.reason)
        self._over(self.commits.unanswered(event.commit_id, self._now, error=error, retriable=event.retriable))

    def _on_start_offsets_failed(self, event: ev.StartOffsetsFailed) -> None:
        if not self.reconciler.start_offsets_failed(event.attempt, self._now):
            return
        if event.rediscover:
            self._lose_coordinator(event.error.name)
        if event.retriable:
            self.last_error = event.error
        else:
            self._fail(event.error)

    # ---- time and circumstances ----

    def _advance(self) -> None:
        now = self._now
        self.heartbeats.holds_partitions = bool(self.ownership.owned)
        if self.state in IN_GROUP and now >= self._poll_deadline:
            self._expire()
        if self._needs_coordinator and not self.coordinator.is_known:
            self._lose_coordinator("the coordinator is not known yet")
        if self.state in IN_GROUP:
            self._claim_instance()
        if self.state in IN_GROUP:
            self._out += self.reconciler.advance(self._identity, now)
        self._over(self.commits.pump(self._commit_identity, now))
        if self.state is _S.RECONCILE:
            self._reconcile()
        due_at = self.auto_commit.due_at
        if due_at is not None and now >= due_at:
            self._out.append(self.auto_commit.collect(self.commits.next_automatic_id()))
        if self.state is _S.UNSUBSCRIBING:
            self._advance_leave()
        self._heartbeat_if_due()
        if self.state is _S.RECONCILE:
            # The acknowledgement that just went out may have been of an older target: begin with the newer one.
            self._reconcile()

    def _reconcile(self) -> None:
        ownership, reconciler = self.ownership, self.reconciler
        if reconciler.is_idle and self._acknowledged == ownership.statement and self._may_reconcile:
            has_steps = ownership.surplus() or ownership.missing()
            has_statement = ownership.is_first or not ownership.is_reached
            if has_steps or (has_statement and not reconciler.awaits_first_names):
                self._out += reconciler.begin(self._identity, self._now)
        if reconciler.is_idle and self._acknowledged != ownership.statement:
            self._acknowledged = ownership.statement
            self.heartbeats.holds_partitions = bool(ownership.owned)
            if ownership.owned:
                self.auto_commit.restart(self._now)
            else:
                self.auto_commit.stop()
            self._transition(_S.ACK, "the assignment was taken over" if not ownership.unresolved else "in part")

    def _advance_leave(self) -> None:
        if self._leave_request is not None:
            if self._now >= self._leave_by:
                self._left("the coordinator did not answer the leave in time")
        elif self.reconciler.is_idle and (self._now >= self._leave_by or not self._has_commits_to_await):
            self._leave()

    def _heartbeat_if_due(self) -> None:
        if not self._may_heartbeat or self._now < self.heartbeats.due_at(self._now, urgent=self._is_urgent):
            return
        self._has_news = False
        if self.instance.ghost is not None:
            release = Heartbeat(
                member_id=self.instance.ghost.member_id,
                member_epoch=self.instance.release_epoch,
                instance_id=self.instance.id,
            )
            self._send(release, self.heartbeats.sending(self._now))
            return
        beat = self.heartbeats.compose(
            member_id=self.member_id,
            instance_id=self.instance.id,
            epoch=self.member_epoch,
            subscription=self._stated_subscription,
            claims=self.reconciler.claims,
            statement=self.ownership.statement,
        )
        self._send(beat, self.heartbeats.sending(self._now))
        if self.state is _S.ACK:
            # Like Java, the acknowledgement counts as made when it is sent; a lost one is repeated in full.
            if self.ownership.is_settled:
                self._transition(_S.STABLE, "the assignment was acknowledged")
            else:
                self._transition(_S.RECONCILE, "acknowledged; the target is not reached yet")

    def next_deadline(self) -> Instant | None:
        """When time alone makes something due; None: never. Call `handle(TimePassed(), now)` then."""
        moments = [self.auto_commit.due_at, self.commits.next_deadline(self._commit_identity)]
        if self.state in IN_GROUP:
            moments += [self._poll_deadline, self.reconciler.next_deadline()]
        if self.state is _S.JOINING and self.coordinator.is_known:
            moments.append(self.instance.next_deadline())
        if self.state is _S.UNSUBSCRIBING and self.reconciler.is_idle:
            moments.append(self._leave_by)
        if self._may_heartbeat:
            moments.append(self.heartbeats.due_at(self._now, urgent=self._is_urgent))
        return min((moment for moment in moments if moment is not None), default=None)
