"""The member of a classic group: one funnel that turns events into effects (KIP-345, KIP-394, KIP-429, KIP-792).

As in the consumer protocol's core, `handle(event, now)` takes an event in, then does what time and circumstances ask
for. Partitions are given up and taken over by the same reconciler: before a join the target is what may be kept, after
a sync it is the share that the leader gave.
"""

from __future__ import annotations

from typing import TypeAlias

from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.answers import ClassicAnswers
from consumer_membership.membership.classic.leadership import LeaderEvent
from consumer_membership.membership.classic.lifecycle import AnyEffect
from consumer_membership.membership.classic.states import IN_GROUP, ClassicState
from consumer_membership.membership.classic.subscription import NO_GENERATION, MemberSubscription
from consumer_membership.membership.effects import LeaveCompleted
from consumer_membership.membership.events import Step
from consumer_membership.membership.member import SUBSCRIPTION_ERRORS
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.membership.reconciler import Phase
from consumer_membership.types import (
    FATAL_CODE,
    BrokerError,
    Instant,
    Offsets,
    Subscription,
    TopicPartition,
)

_S = ClassicState

#: What can happen to a classic member.
AnyEvent: TypeAlias = ev.Event | ex.ClassicEvent | LeaderEvent

#: How long one automatic commit is tried.
AUTO_COMMIT_S = 30.0
#: What Java's clients tell the broker of a first join.
INITIAL = "initialized by the application's poll"


class ClassicMember(ClassicAnswers):
    """One member of one classic group. `jitter` gives a number in [0, 1)."""

    # ---- the funnel ----

    def handle(self, event: AnyEvent, now: Instant) -> tuple[AnyEffect, ...]:
        """Take one event in at this moment; what to do about it, in order."""
        self._now = now
        self._out = []
        self._dispatch(event)
        self._advance()
        return tuple(self._out)

    def _dispatch(self, event: AnyEvent) -> None:  # noqa: C901, PLR0912 - a funnel has one branch an event
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
            case ev.StartOffsetsFetched():
                self._out += self.reconciler.start_offsets_fetched(
                    event.attempt, event.offsets, self._identity, self._now
                )
            case ev.StartOffsetsFailed():
                self._on_start_offsets_failed(event)
            case ex.JoinAnswered():
                self._on_join_answered(event)
            case ex.JoinRejected():
                self._on_join_rejected(event)
            case ex.SyncAnswered():
                self._on_sync_answered(event)
            case ex.SyncRejected():
                self._on_sync_rejected(event)
            case ex.ClassicHeartbeatAnswered() | ex.ClassicHeartbeatRejected():
                self._on_heartbeat(event)
            case ex.ExchangeFailed():
                self._on_exchange_failed(event)
            case ex.ClassicLeft():
                self._on_left(event)
            case ex.ClassicCommitAnswered():
                self._on_commit_answered(event)
            case ev.CommitFailed():
                self._on_commit_failed(event)
            case ev.TimePassed():
                pass
            case _:
                self._dispatch_to_leader(event)

    # ---- the application ----

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        self._has_news |= event.subscription != self.subscription
        self.subscription = event.subscription
        self.pattern.subscribe(event.subscription.pattern, self._now)

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
                self._join(INITIAL)
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
            self._join("fenced; everything was given up")
        elif self.state is _S.STALE and self.subscription:
            self._polled_at = self._now
            self._join("the application polls again and has given up its partitions")

    def _on_assigned_by_hand(self, event: ev.AssignedByHand) -> None:
        if event.holds:
            self.auto_commit.restart(self._now)
        elif not self.ownership.owned:
            self.auto_commit.stop()

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        self.subscription = Subscription()
        self.pattern.subscribe(None, self._now)
        self.rejoins_because = None
        match self.state:
            case _S.UNSUBSCRIBING:
                pass
            case _S.UNSUBSCRIBED | _S.FATAL:
                self._out.append(LeaveCompleted())
            case _S.FENCED | _S.STALE:
                self._transition(_S.UNSUBSCRIBED, "the application left while the member was out of the group")
                self._out.append(LeaveCompleted())
            case _:
                self._leave_option = event.option
                self._leave_by = self._now + self.settings.leave_timeout_s
                self._exchange = None
                self._transition(_S.UNSUBSCRIBING, "the application leaves the group")
                self._out += self.reconciler.begin_leaving(self._identity, self._now)

    # ---- commits and offsets ----

    def _begin_commit(self, commit_id: int, offsets: Offsets, timeout_s: float) -> None:
        self._over(self.commits.begin(commit_id, offsets, self._now + timeout_s))
        if self.state in (_S.FATAL, _S.FENCED, _S.STALE):
            self._over(self.commits.abandon(self._fatal or ASSIGNMENT_LOST))

    def _on_positions_reported(self, event: ev.PositionsReported) -> None:
        if event.commit_id != self.auto_commit.collecting:
            return
        if event.offsets:
            self.auto_commit.collected(self._now)
            self._begin_commit(event.commit_id, event.offsets, AUTO_COMMIT_S)
        else:
            self.auto_commit.restart(self._now)

    def _on_commit_answered(self, event: ex.ClassicCommitAnswered) -> None:
        answer = event.answer
        if not self.commits.is_pending(answer.commit_id):
            return
        if answer.verdict is ev.CommitVerdict.REDISCOVER:
            self._lose_coordinator("a commit was answered by a broker that is not the coordinator")
        self._over(self.commits.answered(answer, self._now))
        # What the coordinator says of the membership it says with the next heartbeat, too: that one is acted on.
        if event.membership is not None:
            self.heartbeats.hurry()

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
        if self.state in IN_GROUP and now >= self._poll_deadline:
            self._expire()
        if self.state in IN_GROUP and self.pattern.refusal is not None:
            self._resign("the subscribed pattern cannot be read")
            self._fail(self.pattern.refusal)
        if self.state in IN_GROUP:
            self._list_topics_if_due()
        if self._needs_coordinator and not self.coordinator.is_known:
            self._lose_coordinator("the coordinator is not known yet")
        if self.state in IN_GROUP:
            self._out += self.reconciler.advance(self._identity, now)
        self._over(self.commits.pump(self._commit_identity, now))
        self._advance_state()
        due_at = self.auto_commit.due_at
        if due_at is not None and now >= due_at:
            self._out.append(self.auto_commit.collect(self.commits.next_automatic_id()))
        self._heartbeat_if_due()

    def _advance_state(self) -> None:
        match self.state:
            case _S.PREPARING:
                self._advance_preparing()
            case _S.JOINING:
                self._join_if_due()
            case _S.SYNCING:
                self._advance_leading()
            case _S.RECONCILE:
                self._advance_taking_over()
            case _S.STABLE:
                self._advance_stable()
            case _S.UNSUBSCRIBING:
                self._advance_leave()
            case _:
                pass

    def _advance_preparing(self) -> None:
        if not self.reconciler.is_idle or not self.pattern.is_resolved:
            return
        self.ownership.take_target(self._kept())
        if self.ownership.surplus():
            self._out += self.reconciler.begin(self._identity, self._now)
        else:
            self._join(self.rejoins_because or "a rebalance")
            self._join_if_due()

    def _join_if_due(self) -> None:
        if self._exchange is not None or not self.coordinator.is_known or self._now < self._join_not_before:
            return
        if not self.pattern.is_resolved:
            return
        self._told, self._told_topics = self.subscription, self.topics
        self._exchange = self._next_request_id()
        self.heartbeats.forget()
        join = ex.SendJoin(
            request_id=self._exchange,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            session_timeout_s=self.classic.session_timeout_s,
            rebalance_timeout_s=self.settings.max_poll_interval_s,
            protocols=tuple((assignor.name, self._words_for(assignor.name)) for assignor in self.classic.assignors),
            reason=self.rejoins_because or INITIAL,
        )
        self._out.append(join)

    def _words_for(self, name: str) -> MemberSubscription:
        """What this member tells the leader, as the assignor of this name wants it (KIP-792)."""
        assignor = next(one for one in self.classic.assignors if one.name == name)
        owned = frozenset(self.ownership.named_owned)
        had = self.last_share if self.generation != NO_GENERATION else frozenset[TopicPartition]()
        return MemberSubscription(
            topics=self.topics,
            user_data=assignor.user_data(self.topics, had, self.generation),
            owned=owned,
            generation=self.generation,
            rack_id=self.settings.rack_id,
        )

    def _advance_taking_over(self) -> None:
        ownership, reconciler = self.ownership, self.reconciler
        if reconciler.is_idle and (ownership.surplus() or ownership.missing() or ownership.is_first):
            self._out += reconciler.begin(self._identity, self._now)
        if not reconciler.is_idle or ownership.surplus() or ownership.missing():
            return
        if ownership.owned:
            self.auto_commit.restart(self._now)
        else:
            self.auto_commit.stop()
        self._transition(_S.STABLE, f"has its share of generation {self.generation}")
        if self._gives_up and not self.classic.is_eager:
            self.rejoins_because = "need to revoke partitions and re-join"
        self._advance_stable()

    def _advance_stable(self) -> None:
        self._repair_if_due()
        reason = self.rejoins_because or self._change
        if reason is not None:
            self._prepare(reason)
            self._advance_preparing()
        else:
            self._look_at_topics_if_due()

    def _advance_leave(self) -> None:
        has_commits = self._is_member and len(self.commits) > 0
        if self._leave_request is not None:
            if self._now >= self._leave_by:
                self._left("the coordinator did not answer the leave in time")
        elif self.reconciler.is_idle and (self._now >= self._leave_by or not has_commits):
            self._leave()

    def _heartbeat_if_due(self) -> None:
        if not self._may_heartbeat:
            return
        if self._now >= self.heartbeats.session_ends_at:
            # Nobody answered for a session: the coordinator is looked up anew; it will say whether the member is out.
            self.heartbeats.search_anew(self._now)
            self._lose_coordinator("no heartbeat was answered for a session")
            return
        if self._now < self.heartbeats.due_at(is_attentive=self._is_attentive):
            return
        request_id = self._next_request_id()
        self.heartbeats.sending(request_id, self._now)
        beat = ex.SendClassicHeartbeat(
            request_id=request_id,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
        )
        self._out.append(beat)

    def next_deadline(self) -> Instant | None:
        """When time alone makes something due; None: never. Call `handle(TimePassed(), now)` then."""
        moments = [self.auto_commit.due_at, self.commits.next_deadline(self._commit_identity)]
        if self.state in IN_GROUP:
            moments += [self._poll_deadline, self.reconciler.next_deadline()]
            moments += [self._leader_s_deadline(), self.pattern.due_at]
        is_resolved = self.pattern.is_resolved
        if self.state is _S.JOINING and self._exchange is None and self.coordinator.is_known and is_resolved:
            moments.append(self._join_not_before)
        if self.state is _S.UNSUBSCRIBING and self.reconciler.is_idle:
            moments.append(self._leave_by)
        if self._may_heartbeat:
            moments.append(self.heartbeats.session_ends_at)
            moments.append(self.heartbeats.due_at(is_attentive=self._is_attentive))
        return min((moment for moment in moments if moment is not None), default=None)
