"""The member of a classic group: one funnel that turns events into effects (KIP-345, KIP-394, KIP-429, KIP-792).

As in the consumer protocol's core, `handle(event, now)` takes an event in, then does what time and circumstances ask
for. Partitions are given up and taken over by the same reconciler: before a join the target is what may be kept, after
a sync it is the share that the leader gave.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic import leadership as le
from consumer_membership.membership.classic.answers import ClassicAnswers
from consumer_membership.membership.classic.assignor import Assignor
from consumer_membership.membership.classic.lifecycle import INITIAL, AnyEffect
from consumer_membership.membership.classic.states import IN_GROUP, ClassicState
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.text import speakable
from consumer_membership.types import FATAL_CODE, NO_MEMBER_ID, BrokerError, Instant

_S = ClassicState

#: What can happen to a classic member.
AnyEvent: TypeAlias = ev.Event | ex.ClassicEvent | le.LeaderEvent


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
                self._on_classic_commit_answered(event)
            case le.TopicsDescribed():
                self._on_topics_described(event)
            case le.TopicsNotDescribed():
                self._on_topics_not_described(event)
            case le.AssignmentComputed():
                self._on_assignment_computed(event)
            case le.AssignmentFailed():
                self._on_assignment_failed(event)
            case le.AssignorNotified():
                self._on_assignor_notified(event)
            case (
                ev.HeartbeatAnswered()
                | ev.HeartbeatRejected()
                | ev.HeartbeatFailed()
                | ev.GroupDescribed()
                | ev.GroupDescribeFailed()
                | ev.SessionTimeoutLearned()
                | ev.TopicIdsResolved()
                | ev.CommitAnswered()
            ):
                # The consumer protocol's: nothing that this member orders is answered so.
                pass
            case _:
                self._dispatch_shared(event)

    # ---- the application ----

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        super()._on_subscribed(event)
        self.patterns.subscribe(event.subscription.patterns, self._now)

    def _on_polled(self, event: ev.Polled) -> None:
        self.heartbeats.is_active = event.delivered
        super()._on_polled(event)

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        self.patterns.subscribe(frozenset(), self._now)
        self.rejoins_because = None
        if self.member_id != NO_MEMBER_ID:
            self._exchange = None
        super()._on_leave_requested(event)

    def _on_classic_commit_answered(self, event: ex.ClassicCommitAnswered) -> None:
        if not self.commits.is_pending(event.answer.commit_id):
            return
        is_of_this_generation = self.commits.epoch_of(event.answer.commit_id) == self.generation
        if self._was_overtaken(event, is_of_this_generation=is_of_this_generation):
            self._on_commit_answered(replace(event.answer, verdict=ev.CommitVerdict.STALE_EPOCH))
            return
        self._on_commit_answered(event.answer)
        errors = [error for error in event.answer.errors.values() if error is not None]
        is_heard = self.is_in_group or self.state is _S.UNSUBSCRIBING
        if event.membership is ex.ClassicVerdict.FATAL and is_of_this_generation and is_heard and errors:
            self._fail(errors[0])
        elif event.membership is not None:
            # What the coordinator says of the membership it says with the next heartbeat, too: that one is acted on.
            self.heartbeats.hurry()

    def _was_overtaken(self, event: ex.ClassicCommitAnswered, *, is_of_this_generation: bool) -> bool:
        """Whether a rebalance overtook the commit: what the member keeps is committed by the next generation.

        Java's client has the application do that (RebalanceInProgressException).
        """
        if event.membership not in (ex.ClassicVerdict.REJOIN_KEEP_ID, ex.ClassicVerdict.REJOIN_NOW):
            return False
        refused = {partition for partition, error in event.answer.errors.items() if error is not None}
        gathers = self.state in (_S.JOINING, _S.SYNCING)
        return (gathers or not is_of_this_generation) and not refused.isdisjoint(self.ownership.named_owned)

    # ---- time and circumstances ----

    def _advance(self) -> None:
        now = self._now
        if self.state in IN_GROUP and now >= self._poll_deadline:
            self._expire()
        if self.state in IN_GROUP and self.patterns.refusal is not None:
            self._resign("the subscribed pattern cannot be read")
            self._fail(self.patterns.refusal)
        if self.state in IN_GROUP:
            self._list_topics_if_due()
        if self.needs_coordinator and not self.coordinator.is_known:
            self._lose_coordinator("the coordinator is not known yet")
        if self.state in IN_GROUP:
            self._out += self.reconciler.advance(self._identity, now)
        self._over(self.commits.pump(self._commit_identity, self._absence, now))
        self._advance_state()
        self._collect_positions_if_due()
        self._heartbeat_if_due()
        self._look_for_topics_if_due()

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
        if not self.reconciler.is_idle or not self.patterns.is_resolved:
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
        if self.place.asks_for_room:
            self._make_room()
        if self.place.request is not None or not self.patterns.is_resolved:
            return
        words = []
        for assignor in self.classic.assignors:
            said = self._words_for(assignor)
            if isinstance(said, BrokerError):
                self._walk_out("the assignor failed")
                self._fail(said)
                return
            words.append((assignor.name, said))
        self._told, self._told_topics = self.subscription, self.topics
        self._exchange = self._next_request_id()
        self.heartbeats.forget()
        join = ex.SendJoin(
            request_id=self._exchange,
            member_id=self.member_id,
            instance_id=self.settings.instance_id,
            session_timeout_s=self.classic.session_timeout_s,
            rebalance_timeout_s=self.settings.max_poll_interval_s,
            protocols=tuple(words),
            reason=self.rejoins_because or INITIAL,
        )
        self._out.append(join)

    def _words_for(self, assignor: Assignor) -> MemberSubscription | BrokerError:
        """What this member tells the leader, as this assignor wants it (KIP-792); or how the assignor failed."""
        try:
            user_data = assignor.user_data(self.topics, self.last_share, self.share_generation)
        except Exception as error:  # noqa: BLE001 - a user's own code may raise anything, and the user has to know
            return _failure(assignor, f"{type(error).__name__}: {error}")
        if not _is_bytes_or_none(user_data):
            return _failure(assignor, f"it gave {user_data!r}; give bytes, or None")
        return MemberSubscription(
            topics=self.topics,
            user_data=user_data,
            owned=frozenset(self.ownership.named_owned),
            generation=self.share_generation,
            rack_id=self.settings.rack_id,
        )

    def _advance_taking_over(self) -> None:
        ownership, reconciler = self.ownership, self.reconciler
        if reconciler.is_idle and (ownership.surplus() or ownership.missing() or ownership.is_first):
            self._out += reconciler.begin(self._identity, self._now)
        if not reconciler.is_idle or ownership.surplus() or ownership.missing():
            return
        self._watch_positions()
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
        moments = self._shared_deadlines()
        if self.state in IN_GROUP:
            moments += [self._leader_s_deadline(), self.patterns.due_at]
        is_resolved = self.patterns.is_resolved
        is_free = self._exchange is None and self.place.request is None
        if self.state is _S.JOINING and is_free and self.coordinator.is_known and is_resolved:
            moments.append(self._join_not_before)
        if self._may_heartbeat:
            moments.append(self.heartbeats.session_ends_at)
            moments.append(self.heartbeats.due_at(is_attentive=self._is_attentive))
        return min((moment for moment in moments if moment is not None), default=None)


def _failure(assignor: Assignor, words: str) -> BrokerError:
    text = speakable(f"user_data() of the assignor {assignor.name!r} failed: {words}")
    return BrokerError(code=FATAL_CODE, name="_FATAL", message=text)


def _is_bytes_or_none(given: object) -> bool:
    # A user's own code may give anything, whatever its type says.
    return given is None or isinstance(given, bytes)
