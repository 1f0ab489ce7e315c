"""What the coordinator's answers mean for the member: its successes, its refusals, and its silence."""

from __future__ import annotations

from typing import assert_never

from consumer_membership.membership import events as ev
from consumer_membership.membership.effects import Problem
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.instance import LONGEST_SESSION_S, removed_for_good
from consumer_membership.membership.lifecycle import Lifecycle
from consumer_membership.membership.states import MemberState
from consumer_membership.types import (
    FATAL_CODE,
    FENCED_INSTANCE_CODE,
    GROUP_FULL_CODE,
    JOIN_EPOCH,
    UNKNOWN_MEMBER_CODE,
    Assignment,
    BrokerError,
)

_S = MemberState

#: So many of the broker's heartbeat intervals are within a session, as far as a member can know it: its heartbeats are
#: one apart, and a group in which one that is lost costs the session would not work. The session that was read is an
#: upper bound only, since it may have been lowered since.
SESSION_INTERVALS = 2.0


class Answers(Lifecycle):
    """A member as far as its coordinator's answers move it."""

    # ---- successes ----

    def _on_heartbeat_answered(self, event: ev.HeartbeatAnswered) -> None:
        if event.request_id == self._leave_request:
            self._left("the coordinator confirmed the leave")
        if event.request_id != self.heartbeats.in_flight:
            return
        if self.instance.ghost is not None:
            self.instance.released()
            self.heartbeats.failed(self._now, back_off=False)
            return
        self.last_heartbeat_at = self._now
        if event.member_epoch <= JOIN_EPOCH:
            # No success of a member carries such an epoch; to adopt it would turn the next heartbeat into a leave.
            self.heartbeats.failed(self._now, back_off=True)
            return
        interval_s = self.heartbeats.broker_interval_s
        self.heartbeats.succeeded(event.heartbeat_interval_s, self._now)
        if interval_s not in (None, self.heartbeats.broker_interval_s):
            self.instance.doubt_session_timeout()
        self._fences.reset()
        self.instance.joined()
        self._adopt_epoch(event)
        if self.state is _S.UNSUBSCRIBING:
            return
        if event.assignment is not None:
            self._take_target(event.assignment)
        elif self.state is _S.JOINING:
            # Without an assignment the join is not complete: ask again in full, at the pace of a retry.
            self.heartbeats.failed(self._now, back_off=True)

    def _adopt_epoch(self, event: ev.HeartbeatAnswered) -> None:
        if event.member_epoch != self.member_epoch:
            self.member_epoch = event.member_epoch
            self.heartbeats.stir()
            if event.assignment is None and not self.ownership.owned:
                # The answer with the assignment may have gone to a join that was given up: ask for the whole of it.
                self.heartbeats.restate()
        if self.heartbeats.joined_at is None:
            self.heartbeats.joined_at = self._now
            self.instance.returned(self._now)

    def _take_target(self, assignment: Assignment) -> None:
        is_change = self.ownership.take_target(assignment)
        if is_change:
            self.heartbeats.stir()
        if self.state is _S.JOINING:
            self._transition(_S.RECONCILE, "the coordinator answered the join with an assignment")
        elif is_change and self.state in (_S.STABLE, _S.ACK):
            self._transition(_S.RECONCILE, "the coordinator changed the assignment")

    # ---- silence ----

    def _on_heartbeat_failed(self, event: ev.HeartbeatFailed) -> None:
        if event.request_id == self._leave_request:
            self._left(f"the leave got no answer ({event.reason}); the session's end removes the member")
        if event.request_id != self.heartbeats.in_flight:
            return
        self.heartbeats.failed(self._now, back_off=True)
        if event.retriable:
            self._lose_coordinator(event.reason)
        else:
            self._fail(BrokerError(code=FATAL_CODE, name="_FATAL", message=event.reason))

    # ---- refusals ----

    def _on_heartbeat_rejected(self, event: ev.HeartbeatRejected) -> None:
        if event.request_id == self._leave_request:
            # The leave is idempotent: whatever the coordinator says of it, this member is gone or will be.
            self._left(f"the coordinator answered the leave with {event.error.name}")
        if event.request_id != self.heartbeats.in_flight:
            return
        if event.verdict is Verdict.UNRELEASED:
            self._on_instance_held(event)
            return
        self.heartbeats.failed(self._now, back_off=True)
        if self.instance.ghost is not None and event.verdict not in (Verdict.RETRY, Verdict.REDISCOVER):
            self._on_release_refused(event)
        else:
            self._obey(event)

    def _on_release_refused(self, event: ev.HeartbeatRejected) -> None:
        """The release of another member, or of this one's own ghost, was refused for good."""
        if event.verdict in (Verdict.REJOIN, Verdict.GROUP_GONE):
            # The coordinator does not know the ghost (any more): nothing keeps this member from joining.
            self.instance.released()
            self.heartbeats.failed(self._now, back_off=False)
            return
        if event.error.code == FENCED_INSTANCE_CODE:
            self._on_instance_taken(self.instance.overtaken(event.error))
            return
        self.instance.ghost = None
        self._obey(event)

    def _obey(self, event: ev.HeartbeatRejected) -> None:
        match event.verdict:
            case Verdict.RETRY:
                self.last_error = event.error
            case Verdict.REDISCOVER:
                self.last_error = event.error
                self._lose_coordinator(event.error.name)
            case Verdict.REPORT:
                self._report(event.error)
            case Verdict.REJOIN if self._was_removed_for_good(event.error):
                self._fail(removed_for_good(self.instance.id, event.error))
            case Verdict.REJOIN:
                self._fence(event.error)
            case Verdict.GROUP_GONE if self.member_epoch > JOIN_EPOCH:
                # The emptied group was deleted, or turned classic: the join at epoch 0 will tell.
                self._fence(event.error)
            case Verdict.FATAL if event.error.code == FENCED_INSTANCE_CODE:
                self._on_instance_taken(event.error)
            case Verdict.FATAL if self._may_have_a_place(event.error):
                self.heartbeats.failed(self._now, back_off=False)
            case Verdict.UNRELEASED | Verdict.GROUP_GONE | Verdict.FATAL:
                self._fail(event.error)
            case _:
                assert_never(event.verdict)

    def _report(self, error: BrokerError) -> None:
        """A topic may not be described: where a look at the topics says which, the application hears it from there."""
        if self.watch.looks_for_refused(self._now):
            self.last_error = error
        else:
            self._raise(Problem.REFUSED, error)

    def _on_instance_held(self, event: ev.HeartbeatRejected) -> None:
        """UNRELEASED_INSTANCE_ID: what the policy says."""
        if self.member_epoch > JOIN_EPOCH or not self.settings.is_static:
            # No coordinator says so to a member, or to one without an instance id.
            self.heartbeats.failed(self._now, back_off=True)
            self._fail(event.error)
            return
        self.last_error = event.error
        ends = self.instance.held(event.error, event.holder, self.member_id, self._now)
        self.heartbeats.failed(self._now, back_off=self.instance.backs_off)
        if ends is not None:
            self._fail(ends)

    def _on_instance_taken(self, error: BrokerError) -> None:
        """FENCED_INSTANCE_ID: a newer member has the instance id. A pool has others, else this is the end."""
        if self.state is not _S.UNSUBSCRIBING and self.instance.fenced(self._now):
            if self.state is _S.JOINING:
                self.last_error = error
            else:
                self._fence(error)
        else:
            self._fail(error)

    def _may_have_a_place(self, error: BrokerError) -> bool:
        """Whether a full group that refuses this static member may count it already, under an older member id."""
        is_join = self.state is _S.JOINING and self.settings.is_static
        return is_join and error.code == GROUP_FULL_CODE and self.instance.refused_as_full(error, self._now)

    def _was_removed_for_good(self, error: BrokerError) -> bool:
        """Whether a static member was taken out by an administrator (KIP-345's removal), not by its session's end.

        Who sent the heartbeat that was answered last within a session cannot have lost it. The answer itself may be
        old: a process that was stopped reads it when it goes on. A member that was slow to revoke may have been removed
        for that (the rebalance timeout).
        """
        interval_s, confirmed_at = self.heartbeats.broker_interval_s, self.heartbeats.confirmed_at
        if not self.settings.is_static or self.state is _S.UNSUBSCRIBING or self.member_epoch <= JOIN_EPOCH:
            return False
        if error.code != UNKNOWN_MEMBER_CODE or interval_s is None or confirmed_at is None:
            return False
        session_s = min(SESSION_INTERVALS * interval_s, self.instance.session_timeout_s or LONGEST_SESSION_S)
        return self._now - confirmed_at < session_s and not self.ownership.surplus()

    # ---- who holds which instance id ----

    def _claim_instance(self) -> None:
        """Ask what has to be known to join as an instance; a pool without a free id may be the end."""
        if not self.settings.is_static or not self.coordinator.is_known:
            return
        if self.state is _S.JOINING and self.instance.refusal is not None:
            self._fail(self.instance.refusal)
            return
        self._out += self.instance.orders(is_settled=self.state is _S.STABLE, now=self._now)

    def _on_group_described(self, event: ev.GroupDescribed) -> None:
        self.instance.described(event, self.member_id, self._now)

    def _on_session_timeout_learned(self, event: ev.SessionTimeoutLearned) -> None:
        self.instance.learned(event.session_timeout_s)
