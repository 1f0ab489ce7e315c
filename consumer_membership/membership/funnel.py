"""What happens to members of both protocols, taken in: the application's wishes and steps, commits, the coordinator.

`Funnel` is the part of a member's funnel that knows no protocol; each protocol's member passes to it what it does not
take itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, TypeAlias, assert_never

from consumer_membership.membership import events as ev
from consumer_membership.membership.effects import LeaveCompleted, Problem
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.membership.participant import SUBSCRIPTION_ERRORS, OrderT, Participant
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.states import MemberState
from consumer_membership.types import FATAL_CODE, BrokerError, Offsets, Subscription

_S = MemberState

#: What happens to members of both protocols.
SharedEvent: TypeAlias = (
    ev.Subscribed
    | ev.Polled
    | ev.StepFinished
    | ev.PositionsReported
    | ev.CommitRequested
    | ev.AssignedByHand
    | ev.LeaveRequested
    | ev.CoordinatorFound
    | ev.CoordinatorLookupFailed
    | ev.CoordinatorLost
    | ev.TopicsLookedUp
    | ev.TopicsNotLookedUp
    | ev.StartOffsetsFetched
    | ev.StartOffsetsFailed
    | ev.CommitFailed
    | ev.TimePassed
)

#: How long one automatic commit is tried.
AUTO_COMMIT_S = 30.0


class Funnel(Participant[OrderT]):
    """One member of a group, whatever its protocol, as far as its application and its commits move it."""

    #: Why a member joins that has not been in its group.
    _FIRST_JOIN: ClassVar[str]

    @abstractmethod
    def _join(self, reason: str) -> None:
        """Begin to join, or to join anew."""

    @abstractmethod
    def _rejoin_after_fence(self) -> None:
        """Join again: what the fence took was given up."""

    # ---- the funnel ----

    def _dispatch_shared(self, event: SharedEvent) -> None:  # noqa: C901, PLR0912 - a funnel has one branch an event
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
            case ev.TopicsLookedUp():
                if self.watch.awaits(event.request_id):
                    self._tell_seen(self.watch.saw(event.names, event.refused, self._now))
            case ev.TopicsNotLookedUp():
                if self.watch.awaits(event.request_id):
                    self.watch.not_seen(self._now)
            case ev.StartOffsetsFetched():
                identity = self._identity
                self._out += self.reconciler.start_offsets_fetched(event.attempt, event.offsets, identity, self._now)
            case ev.StartOffsetsFailed():
                self._on_start_offsets_failed(event)
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
        self.watch.subscribe(self.subscription, self._now)

    def _on_polled(self, event: ev.Polled) -> None:  # noqa: ARG002 - what was delivered is the heartbeats' matter
        self._polled_at = self._now
        self.reconciler.polled(self._now)
        if self.subscription and self.reconciler.is_idle:
            self._join_at_poll()

    def _join_at_poll(self) -> None:
        """A rebalance never starts outside poll: this is where a member that is out of its group joins."""
        match self.shown:
            case _S.UNSUBSCRIBED:
                self._join(self._FIRST_JOIN)
            case _S.STALE:
                self._join("the application polls again")
            case _S.FATAL if self._has_news and self._fatal is not None and self._fatal.code in SUBSCRIPTION_ERRORS:
                self._join("another subscription took the place of the refused one")
            case _:
                pass

    def _on_step_finished(self, event: ev.StepFinished) -> None:
        was_losing = self.reconciler.phase is Phase.LOSE
        self._out += self.reconciler.step_finished(event, self._identity, self._now)
        if event.step is not ev.Step.LOSE or not was_losing or not self.reconciler.is_idle:
            return
        if self.shown is _S.FENCED:
            self._rejoin_after_fence()
        elif self.shown is _S.STALE and self.subscription:
            # The step was performed inside a poll: that is the poll which the member waited for.
            self._polled_at = self._now
            self._join("the application polls again and has given up its partitions")

    def _on_assigned_by_hand(self, event: ev.AssignedByHand) -> None:
        if event.holds:
            self.auto_commit.restart(self._now)
        elif not self.ownership.owned:
            self.auto_commit.stop()

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        self.subscription = Subscription()
        self.watch.subscribe(self.subscription, self._now)
        match self.shown:
            case _S.UNSUBSCRIBING:
                pass
            case _S.UNSUBSCRIBED | _S.FATAL:
                self._out.append(LeaveCompleted())
            case _S.FENCED | _S.STALE:
                # on_lost is already on its way to the application; the coordinator has nothing of this member.
                self._go(_S.UNSUBSCRIBED, "the application left while the member was out of the group")
                self._out.append(LeaveCompleted())
            case _:
                self._leave_option = event.option
                self._leaving_since = self._now
                self._leave_by = self._now + self.settings.leave_timeout_s
                self._go(_S.UNSUBSCRIBING, "the application leaves the group")
                self._out += self.reconciler.begin_leaving(self._identity, self._now)

    # ---- commits and offsets ----

    def _begin_commit(self, commit_id: int, offsets: Offsets, timeout_s: float) -> None:
        self._over(self.commits.begin(commit_id, offsets, self._now + timeout_s, self._now))
        if self.shown in (_S.FATAL, _S.FENCED, _S.STALE):
            self._over(self.commits.abandon(self._fatal or ASSIGNMENT_LOST))

    def _on_positions_reported(self, event: ev.PositionsReported) -> None:
        if event.commit_id != self.auto_commit.collecting:
            return
        if event.offsets:
            self.auto_commit.collected(self._now)
            self._begin_commit(event.commit_id, event.offsets, AUTO_COMMIT_S)
        else:
            self.auto_commit.restart(self._now)

    def _collect_positions_if_due(self) -> None:
        due_at = self.auto_commit.due_at
        if due_at is not None and self._now >= due_at:
            self._out.append(self.auto_commit.collect(self.commits.next_automatic_id()))

    def _watch_positions(self) -> None:
        """The assignment was taken over: the automatic commit's interval begins where something is held."""
        self._tell_seen(self.watch.holds(frozenset(one.topic for one in self.ownership.named_owned), self._now))
        if self.ownership.owned:
            self.auto_commit.restart(self._now)
        else:
            self.auto_commit.stop()

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

    # ---- the coordinator ----

    def _on_lookup_failed(self, event: ev.CoordinatorLookupFailed) -> None:
        """Where waiting does not mend it, tell the application and keep nobody waiting (KAFKA-18034)."""
        self.coordinator.not_found(event.error)
        if not event.is_final:
            self.last_error = event.error
            return
        self._raise(Problem.REFUSED, event.error)
        self._over(self.commits.abandon(event.error))
        self._leave_by = self._now
