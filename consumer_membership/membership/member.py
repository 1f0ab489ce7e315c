"""One member of one group, whatever its protocol: the one place that turns events into effects.

`MemberCore.handle(event, now)` handles an event (`_handle`), then does what is due (`_advance`). The events that both
protocols share are handled here, and so is each consequence: a join, a fence, a refusal, a missed poll and a leave have
one method each. Everything else belongs to its protocol (`protocol` has the contract). The parts that both share know
little of each other and nothing of a protocol (`member_context`).

Start reading at `states`, then `effects` (the order contract), then here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import assert_never

from consumer_membership.membership import events as ev
from consumer_membership.membership.backoff import Jitter
from consumer_membership.membership.choice import ProtocolChoice, ProtocolSettings
from consumer_membership.membership.coordinator import Outage
from consumer_membership.membership.effects import CommitIdentity, LeaveCompleted, Problem
from consumer_membership.membership.history import SUBSCRIPTION_ERRORS
from consumer_membership.membership.member_context import MemberContext
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.membership.protocol import (
    Fatal,
    Fenced,
    GroupEffect,
    GroupEvent,
    HandOver,
    Left,
    MemberProtocol,
    MembershipEnd,
)
from consumer_membership.membership.protocols import new_protocol
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.settings import ClassicSettings, MemberSettings
from consumer_membership.membership.states import IN_GROUP, MemberState, Trigger
from consumer_membership.membership.view import MembershipView, ProtocolView
from consumer_membership.membership.waits import Wait, WaitsFor
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
    LeaveOption,
    Offsets,
    Subscription,
    TopicPartition,
)

_S, _T = MemberState, Trigger

#: How long one automatic commit is retried.
AUTO_COMMIT_S = 30.0
#: How long a leave, and a commit that was begun by it, is retried while no broker can be reached at all.
UNREACHABLE_S = 1.0
#: The longest pause between two attempts to reach a broker during a session, and its share of the remaining session.
LONGEST_PAUSE_S, PAUSE_SHARE = 1.0, 0.2
#: The states in which commits of the membership that ended are not accepted any more.
_OVER = frozenset({_S.FATAL, _S.FENCED, _S.STALE})
#: What a member waits for in a state where its protocol waits for nothing.
_WAITS_FOR: Mapping[MemberState, WaitsFor] = MappingProxyType(
    {
        _S.STALE: WaitsFor.POLL_TO_REJOIN,
        _S.UNSUBSCRIBING: WaitsFor.LEAVE_RESPONSE,
    }
)


class MemberCore:
    """One member of one group. `new_member_id` generates a member id (KIP-1082), `jitter` a number in [0, 1)."""

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
        self.context = context = MemberContext(settings, jitter)
        self._event = context.event
        self._history = context.history
        self._coordinator = context.coordinator
        self._ownership = context.ownership
        self._commits = context.commits
        self._auto_commit = context.auto_commit
        self._reconciler = context.reconciler
        self._watch = context.watch
        self._leave = context.leave
        self._choice = ProtocolChoice(protocols)
        self._protocol = self._new_protocol()
        self._polled_at: Instant = 0.0
        self._fatal: BrokerError | None = None
        #: Whether the subscription changed since the member was refused.
        self._has_news = False

    def _new_protocol(self) -> MemberProtocol:
        """Create the chosen protocol in its initial state."""
        protocol = new_protocol(self._choice, self.context, self._new_member_id)
        self._event.use_protocol(protocol)
        return protocol

    # ---- questions ----

    @property
    def protocol(self) -> GroupProtocol:
        """The protocol that the member uses now."""
        return self._choice.protocol

    @property
    def classic(self) -> ClassicSettings:
        """The settings of the classic protocol, its assignors among them."""
        return self._choice.settings.classic

    @property
    def coordinator(self) -> BrokerAddress | None:
        """The group's coordinator, if it is known."""
        return self._coordinator.address

    @property
    def last_error(self) -> BrokerError | None:
        """The last error, over or not."""
        noted = self._history.last_error
        return None if noted is None else noted.error

    @property
    def newest_attempt(self) -> int:
        """The number of the reconciliation that was begun last."""
        return self._reconciler.attempt

    @property
    def retries_at_poll(self) -> bool:
        """Whether the next poll repeats a callback that raised."""
        return self._reconciler.retries_at_poll or self._protocol.retries_at_poll

    def longest_pause_s(self, now: Instant) -> float | None:
        """Return the longest pause between two attempts to reach a broker; None: the member has nothing to lose.

        The return of a network has to be noticed well before the session ends. After its end nothing is urgent any
        more, and the members must not overload a cluster that returns.
        """
        if self._state is _S.UNSUBSCRIBING:
            return LONGEST_PAUSE_S
        last_heartbeat_at = self._protocol.last_heartbeat_at
        if not self._is_in_group or last_heartbeat_at is None:
            return None
        left_s = last_heartbeat_at + self._protocol.session_s - now
        return min(LONGEST_PAUSE_S, left_s * PAUSE_SHARE) if left_s > 0 else None

    @property
    def _state(self) -> MemberState:
        return self._protocol.public_state

    @property
    def _is_in_group(self) -> bool:
        """Whether the member is in its group, or joining; the application's polls are watched then."""
        return self._state in IN_GROUP

    @property
    def _has_to_poll(self) -> bool:
        """Whether a poll that is too late ends the membership: also while a successor waits for the id."""
        return self._is_in_group or (self._protocol.is_handing_over and not self._leave.is_sent)

    @property
    def _needs_coordinator(self) -> bool:
        """Whether the coordinator is to receive something, or soon will be."""
        return self._is_in_group or self._state is _S.UNSUBSCRIBING or len(self._commits) > 0

    @property
    def _commit_identity(self) -> CommitIdentity | None:
        """The identity with which a commit may be sent now; None: not now."""
        if not self._coordinator.is_known or self._leave.is_sent:
            return None
        if self._state is _S.UNSUBSCRIBED:
            return CommitIdentity(member_id=NO_MEMBER_ID, member_epoch=NO_EPOCH, instance_id=None)
        return self._protocol.identity if self._protocol.may_commit else None

    @property
    def _outage(self) -> Outage | None:
        """Why the coordinator is not found, and how long that is tolerated; None: there is no known cause.

        A commit waits for as long as the session lasts: afterwards its partitions belong to another member (librdkafka
        also waits for session.timeout.ms). A leave, and its commits, count the time that the coordinator was absent
        before: an application that closes a consumer whose broker is gone has waited long enough.
        """
        coordinator = self._coordinator
        since, cause = coordinator.searching_since, coordinator.last_error
        if coordinator.is_known or since is None or cause is None:
            return None
        if self._state is not _S.UNSUBSCRIBING:
            session_s = self._protocol.session_s
            return Outage(since=since, cause=cause, max_wait_s=session_s, min_wait_s=session_s)
        limit_s = self.settings.leave_timeout_s
        # A broker that answers will know the coordinator soon: after a restart, or when the group's topic is created.
        min_wait_s = min(limit_s, UNREACHABLE_S) if cause.code == TRANSPORT_CODE else limit_s
        return Outage(since=since, cause=cause, max_wait_s=limit_s, min_wait_s=min_wait_s)

    @property
    def _gives_up_leaving_at(self) -> Instant:
        """Until when a leave that is not sent yet waits for the coordinator."""
        leave, outage = self._leave, self._outage
        return leave.by if outage is None else min(leave.by, leave.since + outage.min_wait_s)

    # ---- the funnel ----

    def handle(self, event: GroupEvent, now: Instant) -> tuple[GroupEffect, ...]:
        """Handle one event at this moment; return the effects in order (`effects` has the contract)."""
        self._event.begin(now)
        chosen = None
        refusal = self._protocol.refused_join(event)
        if refusal is not None and self._choice.is_refused_by(refusal):
            chosen = self._choice.change(refusal)
            if chosen is not None:
                self._change_protocol()
            else:
                self._fail(self._choice.with_alternative(refusal))
        elif not self._protocol.ignores(event):
            self._handle(event)
        if chosen is None and self._protocol.group_protocol is not None:
            chosen = self._choice.confirm()
        self._advance()
        effects = self._event.effects()
        return effects if chosen is None else (chosen, *effects)

    def _change_protocol(self) -> None:
        """Continue with the next protocol: the subscription and the commits stay, and it joins with that protocol."""
        self._protocol = self._new_protocol()
        self._commits.resend_in_flight()
        self._join(_T.POLLED, "the application polls with a subscription")

    def _handle(self, event: GroupEvent) -> None:  # noqa: C901, PLR0912 - a case for each event
        """Handle the events that both protocols share; the others belong to the protocol.

        An event that concerns both reaches the shared parts first, then the protocol.
        """
        match event:
            case ev.Subscribed():
                self._on_subscribed(event)
            case ev.Polled():
                self._on_polled(event)
            case ev.AssignedIncrementally():
                self._reconciler.set_eager_callbacks(is_eager=False)
            case ev.AssignedByHand():
                self._on_assigned_by_hand(event)
            case ev.StepFinished():
                self._on_step_finished(event)
            case ev.LeaveRequested():
                self._on_leave_requested(event)
            case ev.CommitRequested():
                self._begin_commit(event.commit_id, event.offsets, event.timeout_s, event.by_hand)
            case ev.PositionsReported():
                self._on_positions_reported(event)
            case ev.CommitAnswered():
                self._on_commit_answered(event)
            case ev.CommitFailed():
                self._on_commit_failed(event)
            case ev.StartOffsetsFetched():
                self._reconciler.start_offsets_fetched(event.attempt, event.offsets)
            case ev.StartOffsetsFailed():
                self._on_start_offsets_failed(event)
            case ev.CoordinatorFound():
                self._coordinator.found(event.coordinator)
            case ev.CoordinatorLookupFailed():
                self._on_lookup_failed(event)
            case ev.CoordinatorLost():
                self._on_coordinator_lost(event)
            case ev.TopicsLookedUp():
                self._on_topics_looked_up(event)
            case ev.TopicsNotLookedUp():
                if self._watch.awaits(event.request_id):
                    self._watch.on_metadata_failed()
            case ev.TimePassed():
                pass
            case ev.Suspended():
                self._protocol.suspended(event.seconds)
            case _:
                self._act_on(self._protocol.handle(event))

    def _act_on(self, end: MembershipEnd | None) -> None:
        """Act on the end of the membership that the protocol returned."""
        match end:
            case None:
                pass
            case Fatal(error=error):
                self._fail(error)
            case Fenced(error=error):
                self._fence(error)
            case Left(reason=reason):
                self._complete_leave(reason)
            case HandOver():
                limit_s = self.settings.drain_timeout_s + self.settings.leave_timeout_s
                self._leave.begin(LeaveOption.DEFAULT, self._event.now, limit_s)
                self._reconciler.begin_leaving()
            case _:
                assert_never(end)

    # ---- consequences: each from top to bottom ----

    def _join(self, trigger: Trigger, reason: str) -> None:
        self._fatal = None
        self._protocol.join(trigger, reason)

    def _fence(self, error: BrokerError) -> None:
        """The coordinator fenced the member: on_lost, then a new join; a leave has ended by it."""
        self._history.note_error(error)
        if self._state is _S.UNSUBSCRIBING and not self._protocol.is_handing_over:
            self._drop_everything(ASSIGNMENT_LOST)
            self._complete_leave(f"fenced while leaving ({error.name})")
            return
        self._leave.end()
        self._protocol.end(_T.FENCED, str(error))
        self._drop_everything(ASSIGNMENT_LOST)
        if self._reconciler.is_idle:
            self._join(_T.PARTITIONS_LOST, "fenced; all partitions were released")

    def _fail(self, error: BrokerError) -> None:
        """The coordinator refuses the member: the application receives the error first, and everything is lost."""
        was_leaving = self._state is _S.UNSUBSCRIBING and not self._protocol.is_handing_over
        self._history.raise_to_application(Problem.FATAL, error)
        self._fatal, self._has_news = error, False
        self._protocol.end(_T.REFUSED, str(error))
        self._drop_everything(error)
        self._leave.end()
        if was_leaving:
            self._event.emit(LeaveCompleted())

    def _expire(self) -> None:
        """Leave, so that other members get the partitions: the application did not poll or release them in time."""
        limit_ms = round(self.settings.max_poll_interval_s * 1000)
        late_ms = round((self._event.now - self._next_poll_by) * 1000)
        limit = f"max.poll.interval.ms={limit_ms}"
        # librdkafka's sentence, which applications and alerts match.
        message = (
            f"Application maximum poll interval ({limit_ms}ms) exceeded by {late_ms}ms: the member left its group; "
            "poll more often, process fewer records between two polls, or raise max.poll.interval.ms (in a Spark task: "
            "sink_timeout_s)"
        )
        if late_ms < 0:
            limit = f"drain.timeout.ms={round(self.settings.drain_timeout_s * 1000)}"
            message = (
                f"{limit} exceeded while the partitions were handed over: the member left its group before its "
                "application had released them; poll more often, make on_revoke shorter, or raise drain.timeout.ms"
            )
        error = BrokerError(code=POLL_TIMEOUT_CODE, name="_MAX_POLL_EXCEEDED", message=message)
        self._protocol.resign()
        self._leave.end()
        self._history.raise_to_application(Problem.POLL_TIMEOUT, error)
        self._protocol.end(_T.POLL_TIMEOUT, f"{limit} exceeded")
        self._drop_everything(ASSIGNMENT_LOST)

    def _drop_everything(self, error: BrokerError) -> None:
        """Order on_lost if the application may hold anything; commits that were not sent yet end with this error."""
        self._reconciler.lose()
        self._commits.abandon(error)
        self._auto_commit.stop()

    def _on_leave_requested(self, event: ev.LeaveRequested) -> None:
        """The application leaves: release everything in order, then send the leave (`_advance_leave`)."""
        self._watch.subscribe(Subscription())
        match self._state:
            case _S.UNSUBSCRIBING if self._protocol.is_handing_over and not self._leave.is_sent:
                self._leave.begin(event.option, self._event.now, self.settings.leave_timeout_s)
            case _S.UNSUBSCRIBING:
                pass
            case _S.UNSUBSCRIBED | _S.FATAL:
                self._event.emit(LeaveCompleted())
            case _S.FENCED | _S.STALE:
                # on_lost is already on its way to the application; the coordinator does not know this member any more.
                self._protocol.end(_T.LEAVE_REQUESTED, "the application left while the member was out of the group")
                self._event.emit(LeaveCompleted())
            case _:
                self._leave.begin(event.option, self._event.now, self.settings.leave_timeout_s)
                self._protocol.begin_leaving("the application leaves the group")
                self._reconciler.begin_leaving()
        if event.at_once and self._state is _S.UNSUBSCRIBING and not self._leave.is_sent:
            self._reconciler.left()
            self._commits.abandon(ASSIGNMENT_LOST)
            self._leave.expire_now(self._event.now)
        self._protocol.leave_requested()

    def _advance_leave(self) -> None:
        leave, now = self._leave, self._event.now
        if leave.is_sent:
            if now >= leave.by:
                self._complete_leave("the coordinator did not answer the leave in time")
            elif leave.repeat_at is not None and now >= leave.repeat_at:
                self._act_on(self._protocol.leave(leave.by))
            return
        # Once the member has left, no commit of this membership is accepted.
        has_commits = self._protocol.may_commit and len(self._commits) > 0
        if self._reconciler.is_idle and (now >= leave.by or not has_commits):
            self._act_on(self._protocol.leave(self._gives_up_leaving_at))

    def _complete_leave(self, reason: str) -> None:
        self._leave.end()
        if self._reconciler.phase is not Phase.LOSE:
            self._reconciler.left()
            # Of partitions that were lost, callbacks and workers may still commit offsets that another member passed.
            self._ownership.assigned.clear()
        self._auto_commit.stop()
        outage = self._outage
        self._commits.abandon(ASSIGNMENT_LOST if outage is None else outage.error(self._event.now))
        if self._protocol.is_handing_over:
            self._protocol.handed_over(reason)
        else:
            self._protocol.end(_T.LEAVE_ENDED, reason)
            self._event.emit(LeaveCompleted())

    # ---- the application ----

    def _on_subscribed(self, event: ev.Subscribed) -> None:
        self._has_news |= event.subscription != self._watch.subscription
        self._watch.subscribe(event.subscription, event.asked_at)
        self._reconciler.set_eager_callbacks(is_eager=event.is_eager)
        self._protocol.subscribed(event)

    def _on_polled(self, event: ev.Polled) -> None:
        """A rebalance never starts outside poll: this is where a member that is out of its group joins."""
        self._polled_at = self._event.now
        if event.delivered:
            self._auto_commit.record_delivered()
        self._reconciler.polled()
        if self._watch.subscription and self._reconciler.is_idle:
            self._join_at_poll()
        self._protocol.polled(event)

    def _join_at_poll(self) -> None:
        match self._state:
            case _S.UNSUBSCRIBED:
                self._join(_T.POLLED, "the application polls with a subscription")
            case _S.STALE:
                self._join(_T.POLLED, "the application polls again")
            case _S.FATAL if self._has_news and self._fatal is not None and self._fatal.code in SUBSCRIPTION_ERRORS:
                self._join(_T.RESUBSCRIBED, "the application replaced the refused subscription")
            case _:
                pass

    def _on_step_finished(self, event: ev.StepFinished) -> None:
        if not self._reconciler.step_finished(event) or event.step is not ev.Step.LOSE:
            return
        if self._state is _S.FENCED:
            self._join(_T.PARTITIONS_LOST, "fenced; all partitions were released")
        elif self._state is _S.STALE and self._watch.subscription:
            # The step was performed inside a poll: that is the poll for which the member waited.
            self._polled_at = self._event.now
            self._join(_T.PARTITIONS_LOST, "the application polls again and has released its partitions")

    def _on_assigned_by_hand(self, event: ev.AssignedByHand) -> None:
        if event.holds:
            self._auto_commit.restart()
        elif not self._ownership.owned:
            self._auto_commit.stop()

    # ---- commits and offsets ----

    def _begin_commit(
        self, commit_id: int, offsets: Offsets, timeout_s: float, by_hand: frozenset[TopicPartition] = frozenset()
    ) -> None:
        self._commits.begin(commit_id, offsets, timeout_s, by_hand=by_hand)
        if self._state in _OVER:
            self._commits.abandon(self._fatal or ASSIGNMENT_LOST)

    def _drop_commits_of_given_up_partitions(self) -> None:
        """Drop them, because another member may have committed since, and the coordinator accepts older offsets.

        It accepts commits of every partition from a living member. A classic coordinator knows no assignment at all.
        """
        if self.settings.may_commit_revoked or not len(self._commits):
            return
        given_up = self._ownership.given_up(self._commits.partitions)
        if given_up:
            self._commits.revoked(given_up - self._reconciler.reserved - self._protocol.retained)

    def _on_positions_reported(self, event: ev.PositionsReported) -> None:
        if event.commit_id != self._auto_commit.collecting:
            return
        if event.offsets:
            self._auto_commit.collected()
            self._begin_commit(event.commit_id, event.offsets, AUTO_COMMIT_S)
        elif event.until_next_record:
            self._auto_commit.await_record()
        else:
            self._auto_commit.restart()

    def _on_commit_answered(self, event: ev.CommitAnswered) -> None:
        if self._commits.is_pending(event.commit_id) and event.verdict is ev.CommitVerdict.REDISCOVER:
            self._coordinator.search("a commit was rejected with NOT_COORDINATOR")
        self._commits.answered(event)

    def _on_commit_failed(self, event: ev.CommitFailed) -> None:
        if not self._commits.is_pending(event.commit_id):
            return
        if event.retriable:
            self._lose_coordinator(event.reason)
        error = BrokerError(code=FATAL_CODE, name="_FAIL", message=event.reason)
        self._commits.unanswered(event.commit_id, error=error, retriable=event.retriable)

    def _on_start_offsets_failed(self, event: ev.StartOffsetsFailed) -> None:
        if not self._reconciler.start_offsets_failed(event.attempt):
            return
        if event.rediscover:
            self._coordinator.search(event.error.name)
        if event.retriable:
            self._history.note_error(event.error)
        else:
            self._fail(event.error)

    # ---- the coordinator and the topics ----

    def _on_lookup_failed(self, event: ev.CoordinatorLookupFailed) -> None:
        """If waiting does not help, the application receives the error, and nothing waits (KAFKA-18034)."""
        self._coordinator.not_found(event.error)
        if not event.is_final:
            self._history.note_error(event.error)
            return
        self._history.raise_to_application(Problem.REFUSED, event.error)
        self._commits.abandon(event.error)
        self._leave.expire_now(self._event.now)

    def _on_coordinator_lost(self, event: ev.CoordinatorLost) -> None:
        if self._needs_coordinator:
            self._lose_coordinator(event.reason)
        else:
            self._coordinator.forget()

    def _lose_coordinator(self, reason: str) -> None:
        """Search for the coordinator; outside the group, the last error may be the reason for that, and stays."""
        if self._is_in_group:
            self._coordinator.miss_answer(reason)
        else:
            self._coordinator.search(reason)

    def _on_topics_looked_up(self, event: ev.TopicsLookedUp) -> None:
        if self._watch.awaits(event.request_id):
            self._watch.on_metadata(event.names, event.refused)
        self._protocol.topics_looked_up()

    # ---- time and circumstances ----

    def _advance(self) -> None:
        if self._has_to_poll and self._event.now >= self.poll_deadline:
            self._expire()
        if self._is_in_group:
            self._act_on(self._protocol.prepare())
        if self._needs_coordinator and not self._coordinator.is_known:
            self._coordinator.search("the coordinator is not known yet")
        if self._is_in_group:
            self._reconciler.advance()
        self._drop_commits_of_given_up_partitions()
        self._commits.send_due(self._commit_identity, self._outage)
        if self._state is _S.UNSUBSCRIBING:
            self._advance_leave()
        self._act_on(self._protocol.advance())
        if self._has_recovered:
            self._history.end_error()
        self._auto_commit.collect_if_due()
        if self._is_in_group:
            self._watch.request_if_due()

    @property
    def _has_recovered(self) -> bool:
        """Whether the coordinator has confirmed a settled member since its last error.

        A member outside its group has no heartbeats; it is enough that the coordinator is known. An error about a topic
        is over when the topic exists (`TopicWatch.report_topics`).
        """
        noted = self._history.last_error
        if noted is None or noted.topic is not None or not self._coordinator.is_known or not self._reconciler.is_idle:
            return False
        if self._state is _S.UNSUBSCRIBED:
            return True
        last_heartbeat_at = self._protocol.last_heartbeat_at
        return self._state in (_S.ACK, _S.STABLE) and last_heartbeat_at is not None and last_heartbeat_at > noted.at

    @property
    def _next_poll_by(self) -> Instant:
        return self._polled_at + self.settings.max_poll_interval_s

    @property
    def poll_deadline(self) -> Instant:
        """When the member leaves its group unless the application polls, or has released everything for a hand-over."""
        is_releasing = self._protocol.is_handing_over and not self._reconciler.is_idle
        return min(self._next_poll_by, self._leave.by) if is_releasing else self._next_poll_by

    def next_deadline(self) -> Instant | None:
        """Return the moment when the next timed action is due; None: never. Call `handle(TimePassed(), now)` then."""
        leave = self._leave
        moments = [self._auto_commit.due_at, self._commits.next_deadline(self._commit_identity, self._outage)]
        if self._has_to_poll:
            moments.append(self.poll_deadline)
        if self._is_in_group:
            moments += [self._reconciler.next_deadline(), self._watch.due_at]
        if self._state is _S.UNSUBSCRIBING and self._reconciler.is_idle:
            # A leave that waits for commits continues when they end, before its own deadline.
            moments.append(leave.by if len(self._commits) else self._gives_up_leaving_at)
            moments.append(leave.repeat_at if self._coordinator.is_known else None)
        moments.append(self._protocol.next_deadline())
        return min((moment for moment in moments if moment is not None), default=None)

    # ---- the view ----

    def view(self) -> MembershipView:
        """Return the member as it is now; the view does not change later."""
        ownership, extra = self._ownership, self._protocol.view()
        wait = self._wait(extra)
        noted = self._history.last_error
        return MembershipView(
            state=self._state,
            protocol=self.protocol,
            group_id=self.settings.group_id,
            member_id=extra.member_id,
            instance_id=extra.instance_id,
            member_epoch=extra.member_epoch,
            owned=ownership.named_owned,
            target=ownership.named_target,
            unresolved=ownership.count_unresolved(),
            pending_revocation=self._pending_revocation,
            waits_for=None if wait is None else wait.what,
            waits_for_detail="" if wait is None else wait.detail,
            waits_since=None if wait is None else wait.since,
            waits_until=extra.waits_until,
            coordinator=self._coordinator.address,
            heartbeat_interval_s=extra.heartbeat_interval_s,
            session_timeout_s=extra.session_timeout_s,
            last_heartbeat_at=self._protocol.last_heartbeat_at,
            last_error=None if noted is None else noted.error,
            last_error_at=None if noted is None else noted.at,
            last_error_over_at=None if noted is None else noted.over_at,
            transitions=tuple(self._history.transitions),
            missing_topics=self._watch.missing,
            protocol_reason=self._choice.reason,
            group_protocol=self._protocol.group_protocol,
            lease_until=extra.lease_until,
            is_session_assumed=extra.is_session_assumed,
            is_warm=extra.is_warm,
            has_tokens=extra.has_tokens,
        )

    @property
    def _pending_revocation(self) -> frozenset[TopicPartition]:
        """The partitions that the running reconciliation is going to revoke."""
        reconciler, ownership = self._reconciler, self._ownership
        if reconciler.is_leaving:
            return frozenset(ownership.named_owned)
        revoking = reconciler.revoking
        return ownership.named(revoking & ownership.owned.keys() - ownership.withheld) if revoking else frozenset()

    def _wait(self, extra: ProtocolView) -> Wait | None:
        """Return what the member waits for; None: nothing."""
        reconciler = self._reconciler
        if self._needs_coordinator and not self._coordinator.is_known:
            return Wait(what=WaitsFor.COORDINATOR, since=self._coordinator.searching_since)
        if reconciler.waits_for is not None:
            return Wait(what=reconciler.waits_for, since=reconciler.since)
        if extra.wait is not None:
            return extra.wait
        waits_for = _WAITS_FOR.get(self._state)
        if self._state is _S.UNSUBSCRIBED and self._watch.subscription:
            waits_for = WaitsFor.POLL_TO_JOIN
        return None if waits_for is None else Wait(what=waits_for, since=self._history.since)
