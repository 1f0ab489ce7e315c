"""One member of one group, whatever its protocol: the one funnel that turns events into effects.

`GroupMember.handle(event, now)` takes an event in (its table says how), then does what time and circumstances ask for
(`_advance`). The shared parts know little of each other and nothing of a protocol (`parts`); the protocol is one part
more (`protocol` has the contract, `consumer` and `classic` the two of them). What connects them is here: when a member
joins, fails, is fenced, gives up and leaves.

Start reading at `states`, then `effects` (the order contract), then here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias, assert_never

from consumer_membership.light_dataclasses import replace
from consumer_membership.membership import events as ev
from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.choice import ProtocolChoice, ProtocolSettings
from consumer_membership.membership.classic.exchanges import JoinRejected
from consumer_membership.membership.consumer.protocol import ConsumerProtocol
from consumer_membership.membership.coordinator import Outage
from consumer_membership.membership.effects import LeaveCompleted, LookUpTopics, Problem, ProtocolChosen
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, CommitIdentity
from consumer_membership.membership.parts import SUBSCRIPTION_ERRORS, Parts
from consumer_membership.membership.protocol import (
    Conclusion,
    Fatal,
    Fenced,
    GroupEffect,
    GroupEvent,
    Left,
    MemberProtocol,
)
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.membership.view import MembershipView, ProtocolView
from consumer_membership.types import (
    FATAL_CODE,
    NO_EPOCH,
    NO_MEMBER_ID,
    POLL_TIMEOUT_CODE,
    TRANSPORT_CODE,
    BrokerAddress,
    BrokerError,
    GroupProtocol,
    Instant,
    Offsets,
    Subscription,
    TopicPartition,
)

_S = MemberState

#: How long one automatic commit is tried.
AUTO_COMMIT_S = 30.0
#: How long a leave, and a commit that was begun by it, is tried while no broker can be reached at all.
UNREACHABLE_S = 1.0
#: The longest pause between two attempts to reach a broker while a session runs, and its part of what is left of it.
LONGEST_PAUSE_S, PAUSE_SHARE = 1.0, 0.2
#: The states in which commits of the membership that ended are not taken any more.
_OVER = frozenset({_S.FATAL, _S.FENCED, _S.STALE})
#: What a member waits for in a state where its protocol waits for nothing.
_WAITS_FOR: Mapping[MemberState, str] = MappingProxyType(
    {
        _S.STALE: "the application's next poll, to rejoin",
        _S.UNSUBSCRIBING: "the coordinator's answer to the leave",
    }
)

#: How an event of one kind is taken in.
_Taker: TypeAlias = Callable[["GroupMember", Any], None]


class GroupMember:
    """One member of one group. `new_member_id` makes a fresh member id (KIP-1082), `jitter` a number in [0, 1)."""

    def __init__(
        self,
        settings: MemberSettings,
        protocols: ProtocolSettings,
        *,
        new_member_id: Callable[[], str],
        jitter: Jitter,
    ) -> None:
        self.settings = settings
        self._new_member_id = new_member_id
        self.parts = Parts(settings, jitter)
        self._choice = ProtocolChoice(protocols)
        self._protocol = self._new_protocol()
        self._polled_at: Instant = 0.0
        self._fatal: BrokerError | None = None
        #: Whether another subscription came since the member was refused.
        self._has_news = False

    def _new_protocol(self) -> MemberProtocol:
        """The chosen protocol, at its beginning."""
        if self._choice.protocol is GroupProtocol.CONSUMER:
            refuse_conversion = self._choice.settings.refuse_conversion
            return ConsumerProtocol(self.parts, new_member_id=self._new_member_id, refuse_conversion=refuse_conversion)
        from consumer_membership.membership.classic.protocol import ClassicProtocol  # noqa: PLC0415 - few need it

        return ClassicProtocol(self.parts, self._choice.settings.classic)

    # ---- questions ----

    @property
    def protocol(self) -> GroupProtocol:
        """The protocol that the member speaks now."""
        return self._choice.protocol

    @property
    def classic(self) -> ClassicSettings:
        """The settings of the classic protocol, its assignors among them."""
        return self._choice.settings.classic

    @property
    def coordinator(self) -> BrokerAddress | None:
        """The group's coordinator, where it is known."""
        return self.parts.coordinator.address

    @property
    def last_error(self) -> BrokerError | None:
        """What went wrong last, over or not."""
        noted = self.parts.last_error
        return None if noted is None else noted.error

    @property
    def newest_attempt(self) -> int:
        """The number of the reconciliation that was begun last."""
        return self.parts.reconciler.attempt

    def longest_pause_s(self, now: Instant) -> float | None:
        """How long attempts to reach a broker may be apart at most; None: the member has no place that is at stake.

        A network that is back is to be noticed well before the session ends. After its end nothing is urgent any more,
        and a cluster that comes back is not to be overrun by all its members.
        """
        if self._shown is _S.UNSUBSCRIBING:
            return LONGEST_PAUSE_S
        heard_at = self._protocol.last_heartbeat_at
        if not self._is_in_group or heard_at is None:
            return None
        left_s = heard_at + self._protocol.session_s - now
        return min(LONGEST_PAUSE_S, left_s * PAUSE_SHARE) if left_s > 0 else None

    @property
    def _shown(self) -> MemberState:
        return self._protocol.public_state

    @property
    def _is_in_group(self) -> bool:
        """Whether the member is in its group, or on the way into it; the application's polls are watched then."""
        return self._shown in IN_GROUP

    @property
    def _needs_coordinator(self) -> bool:
        """Whether something is to be said to the coordinator, or soon will be."""
        return self._is_in_group or self._shown is _S.UNSUBSCRIBING or len(self.parts.commits) > 0

    @property
    def _commit_identity(self) -> CommitIdentity | None:
        """As whom a commit may be sent now; None: not now."""
        if not self.parts.coordinator.is_known or self.parts.leave.is_sent:
            return None
        if self._shown is _S.UNSUBSCRIBED:
            return CommitIdentity(member_id=NO_MEMBER_ID, member_epoch=NO_EPOCH, instance_id=None)
        return self._protocol.identity if self._protocol.may_commit else None

    @property
    def _outage(self) -> Outage | None:
        """What keeps the coordinator from being found, and how long that is borne; None: nothing that is known.

        A commit waits for as long as the session lasts: afterwards its partitions are another member's (librdkafka
        waits for session.timeout.ms, too). A leave, and what is committed by it, counts the time that the coordinator
        was absent before: who closes a consumer whose broker is gone has waited enough.
        """
        coordinator = self.parts.coordinator
        since, cause = coordinator.searching_since, coordinator.last_error
        if coordinator.is_known or since is None or cause is None:
            return None
        if self._shown is not _S.UNSUBSCRIBING:
            session_s = self._protocol.session_s
            return Outage(since=since, cause=cause, max_wait_s=session_s, min_wait_s=session_s)
        limit_s = self.settings.leave_timeout_s
        # A broker that answers will know the coordinator soon: after a restart, or when the group's topic is made.
        min_wait_s = min(limit_s, UNREACHABLE_S) if cause.code == TRANSPORT_CODE else limit_s
        return Outage(since=since, cause=cause, max_wait_s=limit_s, min_wait_s=min_wait_s)

    @property
    def _gives_up_leaving_at(self) -> Instant:
        """Until when a leave that is not sent yet waits for the coordinator."""
        leave, absence = self.parts.leave, self._outage
        return leave.by if absence is None else min(leave.by, leave.since + absence.min_wait_s)

    # ---- the funnel ----

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Take one event in at this moment; what to do about it, in order (`effects` has the contract)."""
        self.parts.begin(now)
        chosen = self._take(event)
        self._advance()
        effects = self.parts.ordered()
        return effects if chosen is None else (chosen, *effects)

    def _take(self, event: GroupEvent) -> ProtocolChosen | None:
        """Take an event in; the protocol that was chosen by it."""
        refusal = self._protocol.refused_join(event)
        if refusal is not None and self._choice.is_refused_by(refusal):
            chosen = self._choice.change(refusal)
            if chosen is not None:
                self._change_protocol()
                return chosen
            if isinstance(event, ev.HeartbeatRejected | JoinRejected):
                event = replace(event, error=self._choice.with_alternative(refusal))
        if not self._protocol.ignores(event):
            take = self._TAKERS.get(type(event))
            if take is not None:
                take(self, event)
            self._conclude(self._protocol.handle(event))
        return self._choice.settle() if self._protocol.group_protocol is not None else None

    def _change_protocol(self) -> None:
        """Go on with the next protocol: the application's wishes stay, and it joins as the other one was about to."""
        self._protocol = self._new_protocol()
        # What is answered in the other one's words is not heard any more.
        self.parts.commits.resend_in_flight()
        self._join("the application polls with a subscription")

    def _conclude(self, conclusion: Conclusion | None) -> None:
        match conclusion:
            case None:
                pass
            case Fatal(error=error):
                self._fail(error)
            case Fenced(error=error):
                self._fence(error)
            case Left(reason=reason):
                self._left(reason)
            case _:
                assert_never(conclusion)

    # ---- the application ----

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        self._has_news |= event.subscription != self.parts.subscription
        self.parts.subscribe(event.subscription, event.asked_at)
        self.parts.set_eager_callbacks(is_eager=event.is_eager)

    def _on_assigned_incrementally(self, _: ev.AssignedIncrementally) -> None:
        self.parts.set_eager_callbacks(is_eager=False)

    def _on_polled(self, _: ev.Polled) -> None:
        """A rebalance never starts outside poll: this is where a member that is out of its group joins."""
        parts = self.parts
        self._polled_at = parts.now
        parts.reconciler.polled(parts.now)
        if not parts.subscription or not parts.reconciler.is_idle:
            return
        match self._shown:
            case _S.UNSUBSCRIBED:
                self._join("the application polls with a subscription")
            case _S.STALE:
                self._join("the application polls again")
            case _S.FATAL if self._has_news and self._fatal is not None and self._fatal.code in SUBSCRIPTION_ERRORS:
                self._join("another subscription took the place of the refused one")
            case _:
                pass

    def _join(self, reason: str) -> None:
        self._fatal = None
        self._protocol.join(reason)

    def _on_step_finished(self, event: ev.StepFinished) -> None:
        parts = self.parts
        was_losing = parts.reconciler.phase is Phase.LOSE
        parts.order(*parts.reconciler.step_finished(event, self._protocol.identity, parts.now))
        if event.step is not ev.Step.LOSE or not was_losing or not parts.reconciler.is_idle:
            return
        if self._shown is _S.FENCED:
            self._join("fenced; everything was given up")
        elif self._shown is _S.STALE and parts.subscription:
            # The step was performed inside a poll: that is the poll which the member waited for.
            self._polled_at = parts.now
            self._join("the application polls again and has given up its partitions")

    def _on_assigned_by_hand(self, event: ev.AssignedByHand) -> None:
        if event.holds:
            self.parts.auto_commit.restart(self.parts.now)
        elif not self.parts.ownership.owned:
            self.parts.auto_commit.stop()

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        parts = self.parts
        parts.subscribe(Subscription())
        match self._shown:
            case _S.UNSUBSCRIBING:
                pass
            case _S.UNSUBSCRIBED | _S.FATAL:
                parts.order(LeaveCompleted())
            case _S.FENCED | _S.STALE:
                # on_lost is already on its way to the application; the coordinator has nothing of this member.
                self._protocol.enter(_S.UNSUBSCRIBED, "the application left while the member was out of the group")
                parts.order(LeaveCompleted())
            case _:
                parts.leave.begin(event.option, parts.now, self.settings.leave_timeout_s)
                self._protocol.enter(_S.UNSUBSCRIBING, "the application leaves the group")
                parts.order(*parts.reconciler.begin_leaving(self._protocol.identity, parts.now))
        if event.at_once and self._shown is _S.UNSUBSCRIBING and not parts.leave.is_sent:
            parts.reconciler.left(parts.now)
            parts.order(*parts.commits.abandon(ASSIGNMENT_LOST))
            parts.leave.expire_now(parts.now)

    # ---- commits and offsets ----

    def _on_commit_requested(self, event: ev.CommitRequested) -> None:
        self._begin_commit(event.commit_id, event.offsets, event.timeout_s)

    def _begin_commit(self, commit_id: int, offsets: Offsets, timeout_s: float) -> None:
        parts, identity = self.parts, self._protocol.identity
        parts.order_commit_results(parts.commits.begin(commit_id, offsets, parts.now + timeout_s, parts.now), identity)
        if self._shown in _OVER:
            parts.order_commit_results(parts.commits.abandon(self._fatal or ASSIGNMENT_LOST), identity)

    def _on_positions_reported(self, event: ev.PositionsReported) -> None:
        auto_commit = self.parts.auto_commit
        if event.commit_id != auto_commit.collecting:
            return
        if event.offsets:
            auto_commit.collected(self.parts.now)
            self._begin_commit(event.commit_id, event.offsets, AUTO_COMMIT_S)
        else:
            auto_commit.restart(self.parts.now)

    def _on_commit_answered(self, event: ev.CommitAnswered) -> None:
        self.parts.commit_answered(event, self._protocol.identity)

    def _on_commit_failed(self, event: ev.CommitFailed) -> None:
        parts = self.parts
        if not parts.commits.is_pending(event.commit_id):
            return
        if event.retriable:
            self._lose_coordinator(event.reason)
        error = BrokerError(code=FATAL_CODE, name="_FAIL", message=event.reason)
        over = parts.commits.unanswered(event.commit_id, parts.now, error=error, retriable=event.retriable)
        parts.order_commit_results(over, self._protocol.identity)

    def _on_start_offsets_fetched(self, event: ev.StartOffsetsFetched) -> None:
        parts = self.parts
        identity = self._protocol.identity
        parts.order(*parts.reconciler.start_offsets_fetched(event.attempt, event.offsets, identity, parts.now))

    def _on_start_offsets_failed(self, event: ev.StartOffsetsFailed) -> None:
        if not self.parts.reconciler.start_offsets_failed(event.attempt, self.parts.now):
            return
        if event.rediscover:
            self.parts.lose_coordinator(event.error.name)
        if event.retriable:
            self.parts.note_error(event.error)
        else:
            self._fail(event.error)

    # ---- the coordinator and the topics ----

    def _on_coordinator_found(self, event: ev.CoordinatorFound) -> None:
        self.parts.coordinator.found(event.coordinator)

    def _on_lookup_failed(self, event: ev.CoordinatorLookupFailed) -> None:
        """Where waiting does not mend it, tell the application and keep nobody waiting (KAFKA-18034)."""
        parts = self.parts
        parts.coordinator.not_found(event.error)
        if not event.is_final:
            parts.note_error(event.error)
            return
        parts.raise_to_application(Problem.REFUSED, event.error)
        parts.order_commit_results(parts.commits.abandon(event.error), self._protocol.identity)
        parts.leave.expire_now(parts.now)

    def _on_coordinator_lost(self, event: ev.CoordinatorLost) -> None:
        if self._needs_coordinator:
            self._lose_coordinator(event.reason)
        else:
            self.parts.coordinator.forget()

    def _lose_coordinator(self, reason: str) -> None:
        """Search for the coordinator; outside the group, the last error may say why the member is out, and stays."""
        if self._is_in_group:
            self.parts.miss_answer(reason)
        else:
            self.parts.lose_coordinator(reason)

    def _on_topics_looked_up(self, event: ev.TopicsLookedUp) -> None:
        parts = self.parts
        if parts.watch.awaits(event.request_id):
            parts.report_topics(parts.watch.on_metadata(event.names, event.refused, parts.now))

    def _on_topics_not_looked_up(self, event: ev.TopicsNotLookedUp) -> None:
        if self.parts.watch.awaits(event.request_id):
            self.parts.watch.on_metadata_failed(self.parts.now)

    #: The events that mean the same under both protocols; their own ones the protocols have in tables like this.
    _TAKERS: ClassVar[Mapping[type[GroupEvent], _Taker]] = MappingProxyType(
        {
            ev.Subscribed: _on_subscribed,
            ev.AssignedIncrementally: _on_assigned_incrementally,
            ev.Polled: _on_polled,
            ev.StepFinished: _on_step_finished,
            ev.PositionsReported: _on_positions_reported,
            ev.CommitRequested: _on_commit_requested,
            ev.AssignedByHand: _on_assigned_by_hand,
            ev.LeaveRequested: _on_leave_requested,
            ev.CoordinatorFound: _on_coordinator_found,
            ev.CoordinatorLookupFailed: _on_lookup_failed,
            ev.CoordinatorLost: _on_coordinator_lost,
            ev.TopicsLookedUp: _on_topics_looked_up,
            ev.TopicsNotLookedUp: _on_topics_not_looked_up,
            ev.StartOffsetsFetched: _on_start_offsets_fetched,
            ev.StartOffsetsFailed: _on_start_offsets_failed,
            ev.CommitAnswered: _on_commit_answered,
            ev.CommitFailed: _on_commit_failed,
        }
    )

    # ---- out of the group, in good order or not ----

    def _fail(self, error: BrokerError) -> None:
        parts = self.parts
        was_leaving = self._shown is _S.UNSUBSCRIBING
        parts.raise_to_application(Problem.FATAL, error)
        self._fatal, self._has_news = error, False
        self._protocol.enter(_S.FATAL, str(error))
        parts.drop_everything(error)
        if was_leaving:
            parts.leave.end()
            parts.order(LeaveCompleted())

    def _fence(self, error: BrokerError) -> None:
        parts = self.parts
        parts.note_error(error)
        if self._shown is _S.UNSUBSCRIBING:
            parts.drop_everything(ASSIGNMENT_LOST)
            self._left(f"fenced while leaving ({error.name})")
            return
        self._protocol.enter(_S.FENCED, str(error))
        parts.drop_everything(ASSIGNMENT_LOST)
        if parts.reconciler.is_idle:
            self._join("fenced; everything was given up")

    def _expire(self) -> None:
        """The application did not poll in time: leave, so that others get the partitions (max.poll.interval.ms)."""
        limit_ms = round(self.settings.max_poll_interval_s * 1000)
        error = BrokerError(
            code=POLL_TIMEOUT_CODE,
            name="_MAX_POLL_EXCEEDED",
            message=f"max.poll.interval.ms={limit_ms} exceeded: the application did not poll for longer, so the member "
            "left its group; poll more often, handle less between two polls, or raise max.poll.interval.ms (in a "
            "Spark task: sink_timeout_s)",
        )
        self._protocol.resign()
        self.parts.raise_to_application(Problem.POLL_TIMEOUT, error)
        self._protocol.enter(_S.STALE, f"max.poll.interval.ms={limit_ms} is over")
        self.parts.drop_everything(ASSIGNMENT_LOST)

    def _advance_leave(self) -> None:
        parts, leave = self.parts, self.parts.leave
        if leave.is_sent:
            if parts.now >= leave.by:
                self._left("the coordinator did not answer the leave in time")
            elif leave.repeat_at is not None and parts.now >= leave.repeat_at:
                self._conclude(self._protocol.leave(leave.by))
            return
        # Once the member has left, no commit of this membership is accepted.
        has_commits = self._protocol.may_commit and len(parts.commits) > 0
        if parts.reconciler.is_idle and (parts.now >= leave.by or not has_commits):
            self._conclude(self._protocol.leave(self._gives_up_leaving_at))

    def _left(self, reason: str) -> None:
        parts = self.parts
        parts.leave.end()
        if parts.reconciler.phase is not Phase.LOSE:
            parts.reconciler.left(parts.now)
        parts.auto_commit.stop()
        absence = self._outage
        parts.order(*parts.commits.abandon(ASSIGNMENT_LOST if absence is None else absence.error(parts.now)))
        self._protocol.enter(_S.UNSUBSCRIBED, reason)
        parts.order(LeaveCompleted())

    # ---- time and circumstances ----

    def _advance(self) -> None:
        parts = self.parts
        if self._is_in_group and parts.now >= self._poll_deadline:
            self._expire()
        if self._is_in_group:
            self._conclude(self._protocol.prepare())
        if self._needs_coordinator and not parts.coordinator.is_known:
            parts.lose_coordinator("the coordinator is not known yet")
        if self._is_in_group:
            parts.order(*parts.reconciler.advance(self._protocol.identity, parts.now))
        parts.order_commit_results(
            parts.commits.send_due(self._commit_identity, self._outage, parts.now), self._protocol.identity
        )
        if self._shown is _S.UNSUBSCRIBING:
            self._advance_leave()
        self._conclude(self._protocol.advance())
        if self._has_recovered:
            parts.end_error()
        self._collect_positions_if_due()
        self._look_for_topics_if_due()

    @property
    def _has_recovered(self) -> bool:
        """Whether the coordinator has confirmed a settled member since its last error.

        A member outside its group has no heartbeats; all it needs is that the coordinator is known. An error about a
        topic is over when the topic is there (`Parts.report_topics`).
        """
        noted, coordinator = self.parts.last_error, self.parts.coordinator
        if noted is None or noted.topic is not None or not coordinator.is_known or not self.parts.reconciler.is_idle:
            return False
        if self._shown is _S.UNSUBSCRIBED:
            return True
        heard_at = self._protocol.last_heartbeat_at
        return self._shown in (_S.ACK, _S.STABLE) and heard_at is not None and heard_at > noted.at

    @property
    def _poll_deadline(self) -> Instant:
        return self._polled_at + self.settings.max_poll_interval_s

    def _collect_positions_if_due(self) -> None:
        parts, due_at = self.parts, self.parts.auto_commit.due_at
        if due_at is not None and parts.now >= due_at:
            parts.order(parts.auto_commit.collect(parts.commits.next_automatic_id()))

    def _look_for_topics_if_due(self) -> None:
        """See whether the subscribed topics are there."""
        parts, due_at = self.parts, self.parts.watch.due_at
        if self._is_in_group and due_at is not None and parts.now >= due_at:
            request_id, topics = parts.watch.ask()
            parts.order(LookUpTopics(request_id=request_id, topics=topics))

    def next_deadline(self) -> Instant | None:
        """When time alone makes something due; None: never. Call `handle(TimePassed(), now)` then."""
        parts = self.parts
        moments = [parts.auto_commit.due_at, parts.commits.next_deadline(self._commit_identity, self._outage)]
        if self._is_in_group:
            moments += [self._poll_deadline, parts.reconciler.next_deadline(), parts.watch.due_at]
        if self._shown is _S.UNSUBSCRIBING and parts.reconciler.is_idle:
            # What waits for commits hears of their end, which is sooner than its own.
            moments.append(parts.leave.by if len(parts.commits) else self._gives_up_leaving_at)
            moments.append(parts.leave.repeat_at if parts.coordinator.is_known else None)
        moments.append(self._protocol.next_deadline())
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- the view ----

    def view(self) -> MembershipView:
        """The member as it is now; later it gives another view."""
        parts, ownership, shown = self.parts, self.parts.ownership, self._protocol.view()
        waits_for, waits_since = self._waits(shown)
        noted = parts.last_error
        return MembershipView(
            state=self._shown,
            protocol=self.protocol,
            group_id=self.settings.group_id,
            member_id=shown.member_id,
            instance_id=shown.instance_id,
            member_epoch=shown.member_epoch,
            owned=ownership.named_owned,
            target=ownership.named_target,
            unresolved=ownership.count_unresolved(),
            pending_revocation=self._pending_revocation,
            waits_for=waits_for,
            waits_since=waits_since,
            waits_until=shown.waits_until,
            coordinator=parts.coordinator.address,
            heartbeat_interval_s=shown.heartbeat_interval_s,
            session_timeout_s=shown.session_timeout_s,
            last_heartbeat_at=self._protocol.last_heartbeat_at,
            last_error=None if noted is None else noted.error,
            last_error_at=None if noted is None else noted.at,
            last_error_over_at=None if noted is None else noted.over_at,
            transitions=tuple(parts.transitions),
            missing_topics=parts.watch.missing,
            protocol_reason=self._choice.reason,
            group_protocol=self._protocol.group_protocol,
            lease_until=shown.lease_until,
        )

    @property
    def _pending_revocation(self) -> frozenset[TopicPartition]:
        """What the running reconciliation will have taken from the application."""
        revoking, ownership = self.parts.reconciler.revoking, self.parts.ownership
        if revoking is None:
            return frozenset(ownership.named_owned)
        return ownership.named(revoking & ownership.owned.keys() - ownership.withheld) if revoking else frozenset()

    def _waits(self, shown: ProtocolView) -> tuple[str | None, Instant | None]:
        """What the member waits for, in words, and since when."""
        parts = self.parts
        if self._needs_coordinator and not parts.coordinator.is_known:
            return "the group's coordinator to be found", parts.coordinator.searching_since
        if not parts.reconciler.is_idle:
            return parts.reconciler.phase.value, parts.reconciler.since
        if shown.waits_for is not None:
            return shown.waits_for, shown.waits_since
        words = _WAITS_FOR.get(self._shown)
        if self._shown is _S.UNSUBSCRIBED and parts.subscription:
            words = "the application's next poll, to join"
        return words, parts.since if words is not None else None
