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

from consumer_membership.membership import events as ev
from consumer_membership.membership.answers import Answers
from consumer_membership.membership.effects import (
    Effect,
    Heartbeat,
)
from consumer_membership.membership.events import Event
from consumer_membership.membership.states import IN_GROUP, SILENT, MemberState
from consumer_membership.types import (
    Instant,
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

    def _dispatch(self, event: Event) -> None:
        match event:
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
            case ev.CommitAnswered():
                self._on_commit_answered(event)
            case _:
                self._dispatch_shared(event)

    # ---- the application ----

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        super()._on_subscribed(event)
        self.heartbeats.stir()

    def _on_polled(self, event: ev.Polled) -> None:
        self.heartbeats.is_active = event.delivered
        super()._on_polled(event)

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        if self.state in IN_GROUP:
            self._given_up = self.subscription
        super()._on_leave_requested(event)

    # ---- time and circumstances ----

    def _advance(self) -> None:
        now = self._now
        self.heartbeats.holds_partitions = bool(self.ownership.owned)
        if self.state in IN_GROUP and now >= self._poll_deadline:
            self._expire()
        if self.needs_coordinator and not self.coordinator.is_known:
            self._lose_coordinator("the coordinator is not known yet")
        if self.state in IN_GROUP:
            self._claim_instance()
            self._out += self.reconciler.advance(self._identity, now)
        self._over(self.commits.pump(self._commit_identity, self._absence, now))
        if self.state is _S.RECONCILE:
            self._reconcile()
        self._collect_positions_if_due()
        if self.state is _S.UNSUBSCRIBING:
            self._advance_leave()
        self._heartbeat_if_due()
        if self.state is _S.RECONCILE:
            # The acknowledgement that just went out may have been of an older target: begin with the newer one.
            self._reconcile()
        self._look_for_topics_if_due()

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
            self._watch_positions()
            self._transition(_S.ACK, "the assignment was taken over" if not ownership.unresolved else "in part")

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
        moments = self._shared_deadlines()
        if self.state is _S.JOINING and self.coordinator.is_known:
            moments.append(self.instance.next_deadline())
        if self._may_heartbeat:
            moments.append(self.heartbeats.due_at(self._now, urgent=self._is_urgent))
        return min((moment for moment in moments if moment is not None), default=None)
