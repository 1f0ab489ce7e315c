"""What members of both protocols have and do alike: their parts, and the ways out of a group.

`Participant` holds the parts that know nothing of a protocol. What differs is left to `lifecycle` and
`classic.lifecycle`, each of them the only writer of its machine's state: this room asks for a state by the name under
which both are shown (`shown`, `_go`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.coordinator import Absence, Coordinator
from consumer_membership.membership.effects import (
    CommitCompleted,
    Effect,
    LeaveCompleted,
    LookUpTopics,
    Problem,
    RaiseToApplication,
    StateChanged,
    TopicsAppeared,
)
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, AutoCommit, CommitIdentity, Commits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.reconciler import Phase, Reconciler
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import IN_GROUP, MemberState
from consumer_membership.membership.topics import Seen, TopicWatch
from consumer_membership.membership.view import Transition
from consumer_membership.types import (
    INVALID_PATTERN_CODE,
    NO_EPOCH,
    NO_MEMBER_ID,
    POLL_TIMEOUT_CODE,
    TRANSPORT_CODE,
    BrokerError,
    Instant,
    LeaveOption,
    Subscription,
    TopicPartition,
)

_S = MemberState
#: What a protocol's member orders beside the common effects.
OrderT = TypeVar("OrderT")

#: How long the answer to the leave may take; it is sent once and never repeated.
LEAVE_ANSWER_S = 5.0
#: How long a leave, and a commit that was begun by it, is tried while no broker can be reached at all.
UNREACHABLE_S = 1.0
#: How long a session is thought to last where nobody told: the default of both protocols, in Kafka and librdkafka.
DEFAULT_SESSION_S = 45.0
#: The longest pause between two attempts to reach a broker while a session runs, and its part of what is left of it.
LONGEST_PAUSE_S, PAUSE_SHARE = 1.0, 0.2
#: Fatal errors whose cause is the subscription, so that another one leads out of them: INVALID_REGULAR_EXPRESSION.
SUBSCRIPTION_ERRORS = frozenset({INVALID_PATTERN_CODE})
#: Transitions kept for the view.
REMEMBERED_TRANSITIONS = 32


class Participant(ABC, Generic[OrderT]):
    """The parts of one member of a group, whatever its protocol, and what is done with them."""

    def __init__(self, settings: MemberSettings, *, jitter: Jitter) -> None:
        self.settings = settings
        self.since: Instant | None = None
        self.subscription = Subscription()
        self.coordinator = Coordinator()
        self.ownership = Ownership()
        self.commits = Commits(settings, jitter)
        self.reconciler = Reconciler(settings, self.ownership, self.commits, jitter)
        self.auto_commit = AutoCommit(settings)
        self.watch = TopicWatch(settings.topic_refresh_s, jitter)
        self.transitions: deque[Transition] = deque(maxlen=REMEMBERED_TRANSITIONS)
        self.last_error: BrokerError | None = None
        self.last_heartbeat_at: Instant | None = None
        self._polled_at: Instant = 0.0
        self._has_news = False
        self._fatal: BrokerError | None = None
        self._leave_option = LeaveOption.DEFAULT
        self._leave_by: Instant = 0.0
        self._leaving_since: Instant = 0.0
        self._leave_request: int | None = None
        self._out: list[Effect | OrderT] = []
        self._now: Instant = 0.0

    # ---- what a protocol adds ----

    @property
    @abstractmethod
    def shown(self) -> MemberState:
        """The state, as it is shown where both protocols are."""

    @abstractmethod
    def _go(self, shown: MemberState, reason: str) -> None:
        """Change to the state that is shown so; one that both machines have."""

    @property
    @abstractmethod
    def _identity(self) -> CommitIdentity:
        """As whom the member fetches and commits."""

    @property
    @abstractmethod
    def _may_commit(self) -> bool:
        """Whether a member of the group may commit now."""

    @property
    @abstractmethod
    def _is_counted(self) -> bool:
        """Whether the coordinator counts this member in, so that it takes commits of it."""

    @property
    @abstractmethod
    def session_s(self) -> float:
        """How long the coordinator keeps a silent member's place, as far as is known."""

    @abstractmethod
    def _leave(self) -> None:
        """Everything was given up: say so, or end where there is nothing to say."""

    @abstractmethod
    def _leave_unasked(self) -> None:
        """Say that the member leaves, without waiting for the answer: its application does not poll."""

    @abstractmethod
    def _forget_requests(self) -> None:
        """Wait for no answer any more, but for one to the leave."""

    @abstractmethod
    def _forget_epoch(self) -> None:
        """Have no epoch any more: whoever is not in the group must not tag a write with that of its replacement."""

    def _forget_membership(self) -> None:
        """The membership is over: its epoch is, and what else belongs to it."""
        self._forget_epoch()

    # ---- state and questions ----

    def _note_transition(self, old: MemberState, new: MemberState, reason: str) -> None:
        self._out.append(StateChanged(old=old, new=new, reason=reason))
        self.transitions.append(Transition(at=self._now, old=old, new=new, reason=reason))

    def _raise(self, problem: Problem, error: BrokerError, topic: str | None = None) -> None:
        self.last_error = error
        notice = RaiseToApplication(
            problem=problem,
            error=error,
            topic=topic,
            ends_with_subscription=problem is Problem.FATAL and error.code in SUBSCRIPTION_ERRORS,
        )
        self._out.append(notice)

    def _tell_seen(self, seen: Seen) -> None:
        """Tell the application which subscribed topics are not available, and the log which ones have come."""
        for one in seen.unavailable:
            self._raise(Problem.REFUSED, one.error, one.topic)
        if seen.appeared:
            self._out.append(TopicsAppeared(topics=seen.appeared))

    def _look_for_topics_if_due(self) -> None:
        """See whether the subscribed topics are there."""
        due_at = self.watch.due_at
        if self.is_in_group and due_at is not None and self._now >= due_at:
            request_id, topics = self.watch.ask()
            self._out.append(LookUpTopics(request_id=request_id, topics=topics))

    def _new_backoff(self, jitter: Jitter) -> Backoff:
        return Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, jitter)

    @property
    def _commit_identity(self) -> CommitIdentity | None:
        """As whom a commit may be sent now; None: not now."""
        if not self.coordinator.is_known or self._leave_request is not None:
            return None
        if self.shown is _S.UNSUBSCRIBED:
            return CommitIdentity(member_id=NO_MEMBER_ID, member_epoch=NO_EPOCH, instance_id=None)
        return self._identity if self._may_commit else None

    @property
    def _poll_deadline(self) -> Instant:
        return self._polled_at + self.settings.max_poll_interval_s

    @property
    def is_in_group(self) -> bool:
        """Whether the member is in its group, or on the way into it; the application's polls are watched then."""
        return self.shown in IN_GROUP

    @property
    def needs_coordinator(self) -> bool:
        """Whether something is to be said to the coordinator, or soon will be."""
        return self.is_in_group or self.shown is _S.UNSUBSCRIBING or len(self.commits) > 0

    @property
    @abstractmethod
    def lease_until(self) -> Instant | None:
        """Until when what the member owns is surely its own; None: it owns nothing, or the coordinator does not count.

        The session goes on from when that was sent which was answered last. The answer's own moment says nothing: a
        process that was stopped reads an old one when it goes on.
        """

    def longest_pause_s(self, now: Instant) -> float | None:
        """How long attempts to reach a broker may be apart at most; None: the member has no place that is at stake.

        A network that is back is to be noticed well before the session ends. After its end nothing is urgent any more,
        and a cluster that comes back is not to be overrun by all its members.
        """
        if self.shown is _S.UNSUBSCRIBING:
            return LONGEST_PAUSE_S
        if not self.is_in_group or self.last_heartbeat_at is None:
            return None
        left_s = self.last_heartbeat_at + self.session_s - now
        return min(LONGEST_PAUSE_S, left_s * PAUSE_SHARE) if left_s > 0 else None

    @property
    def _absence(self) -> Absence | None:
        """What keeps the coordinator from being found, and how long that is borne; None: nothing that is known.

        A commit waits for as long as the session lasts: afterwards its partitions are another member's (librdkafka
        waits for session.timeout.ms, too). A leave, and what is committed by it, counts the time that the coordinator
        was absent before: who closes a consumer whose broker is gone has waited enough.
        """
        since, cause = self.coordinator.searching_since, self.coordinator.trouble
        if self.coordinator.is_known or since is None or cause is None:
            return None
        if self.shown is not _S.UNSUBSCRIBING:
            return Absence(since=since, cause=cause, patience_s=self.session_s, floor_s=self.session_s)
        limit_s = self.settings.leave_timeout_s
        # A broker that answers will know the coordinator soon: after a restart, or when the group's topic is made.
        floor_s = min(limit_s, UNREACHABLE_S) if cause.code == TRANSPORT_CODE else limit_s
        return Absence(since=since, cause=cause, patience_s=limit_s, floor_s=floor_s)

    @property
    def _gives_up_leaving_at(self) -> Instant:
        """Until when a leave that is not sent yet waits for the coordinator."""
        absence = self._absence
        return self._leave_by if absence is None else min(self._leave_by, self._leaving_since + absence.floor_s)

    @property
    def pending_revocation(self) -> frozenset[TopicPartition]:
        """What the running reconciliation will have taken from the application."""
        revoking, ownership = self.reconciler.revoking, self.ownership
        if revoking is None:
            return frozenset(ownership.named_owned)
        return ownership.named(revoking & ownership.owned.keys()) if revoking else frozenset()

    def _shared_deadlines(self) -> list[Instant | None]:
        moments = [self.auto_commit.due_at, self.commits.next_deadline(self._commit_identity, self._absence)]
        if self.is_in_group:
            moments += [self._poll_deadline, self.reconciler.next_deadline(), self.watch.due_at]
        if self.shown is _S.UNSUBSCRIBING and self.reconciler.is_idle:
            # What waits for commits hears of their end, which is sooner than its own.
            moments.append(self._leave_by if len(self.commits) else self._gives_up_leaving_at)
        return moments

    # ---- the coordinator, commits ----

    def _lose_coordinator(self, reason: str) -> None:
        if self.needs_coordinator:
            self._out += self.coordinator.search(reason, self._now)
        else:
            self.coordinator.forget()

    def _over(self, effects: Iterable[Effect]) -> None:
        """Pass effects on; a reconciliation that waits for a commit among them goes on."""
        for effect in effects:
            self._out.append(effect)
            if isinstance(effect, CommitCompleted):
                self.auto_commit.committed(effect.commit_id)
                self._out += self.reconciler.commit_over(effect.commit_id, self._identity, self._now)

    # ---- out of the group, in good order or not ----

    def _drop_everything(self, error: BrokerError) -> None:
        """Order on_lost if the application may hold anything; commits that were not sent yet end with this error."""
        self._out += self.reconciler.lose(self._now)
        self._out += self.commits.abandon(error)
        self.auto_commit.stop()

    def _fail(self, error: BrokerError) -> None:
        self._raise(Problem.FATAL, error)
        self._fatal = error
        self._has_news = False
        was_leaving = self.shown is _S.UNSUBSCRIBING
        self._forget_requests()
        self._go(_S.FATAL, str(error))
        self._forget_epoch()
        self._drop_everything(error)
        if was_leaving:
            self._leave_request = None
            self._out.append(LeaveCompleted())

    def _expire(self) -> None:
        """The application did not poll in time: leave, so that others get the partitions (max.poll.interval.ms)."""
        limit_ms = round(self.settings.max_poll_interval_s * 1000)
        error = BrokerError(
            code=POLL_TIMEOUT_CODE,
            name="_MAX_POLL_EXCEEDED",
            message=f"max.poll.interval.ms={limit_ms} exceeded: the application did not poll for longer, so the member "
            "left its group; poll more often, handle less between two polls, or raise max.poll.interval.ms",
        )
        self._leave_unasked()
        self._forget_requests()
        self._raise(Problem.POLL_TIMEOUT, error)
        self._go(_S.STALE, f"max.poll.interval.ms={limit_ms} is over")
        self._forget_membership()
        self._drop_everything(ASSIGNMENT_LOST)

    def _advance_leave(self) -> None:
        if self._leave_request is not None:
            if self._now >= self._leave_by:
                self._left("the coordinator did not answer the leave in time")
            return
        # Once the member has left, no commit of this membership is accepted.
        has_commits = self._is_counted and len(self.commits) > 0
        if self.reconciler.is_idle and (self._now >= self._leave_by or not has_commits):
            self._leave()

    def _left(self, reason: str) -> None:
        self._leave_request = None
        self._forget_requests()
        if self.reconciler.phase is not Phase.LOSE:
            self.reconciler.left(self._now)
        self.auto_commit.stop()
        absence = self._absence
        self._out += self.commits.abandon(ASSIGNMENT_LOST if absence is None else absence.error(self._now))
        self._forget_membership()
        self._go(_S.UNSUBSCRIBED, reason)
        self._out.append(LeaveCompleted())
