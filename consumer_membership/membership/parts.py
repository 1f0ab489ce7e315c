"""What members of both protocols have: their parts, and the verbs by which a protocol works with them.

`member.GroupMember` makes one `Parts` and keeps it for life; a protocol (`protocol.MemberProtocol`) is handed it, reads
the parts, and changes them by their own verbs and by those here. Nothing in this module knows a protocol.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.coordinator import Coordinator
from consumer_membership.membership.effects import (
    CommitCompleted,
    Effect,
    Problem,
    RaiseToApplication,
    StateChanged,
    TopicsAppeared,
)
from consumer_membership.membership.events import CommitAnswered, CommitVerdict
from consumer_membership.membership.offsets import AutoCommit, CommitIdentity, PendingCommits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.reconciler import Reconciler
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.topics import TopicChanges, TopicWatch
from consumer_membership.membership.view import LastError, Transition
from consumer_membership.types import (
    INVALID_PATTERN_CODE,
    TRANSPORT_CODE,
    BrokerError,
    Instant,
    LeaveOption,
    Subscription,
)

#: How long the answer to the leave may take, repetitions included.
LEAVE_ANSWER_S = 5.0
#: Fatal errors whose cause is the subscription, so that another one leads out of them: INVALID_REGULAR_EXPRESSION.
SUBSCRIPTION_ERRORS = frozenset({INVALID_PATTERN_CODE})
#: Transitions kept for the view.
REMEMBERED_TRANSITIONS = 32


class Leave:
    """The leave of one member: how it goes, since when, until when at most, and the request that says so."""

    def __init__(self) -> None:
        self.option = LeaveOption.DEFAULT
        self.since: Instant = 0.0
        #: The end of all waiting: for commits and callbacks before the request is sent, for its answer afterwards.
        self.by: Instant = 0.0
        self.request: int | None = None
        #: When the request is sent once more; None: its answer is waited for, or it is not sent yet.
        self.repeat_at: Instant | None = None
        self._is_first = True

    @property
    def is_sent(self) -> bool:
        """Whether the coordinator was told, and its answer is waited for."""
        return self.request is not None

    def begin(self, option: LeaveOption, now: Instant, timeout_s: float) -> None:
        """The application leaves."""
        self.option, self.since, self.by = option, now, now + timeout_s
        self._is_first = True

    def send(self, request_id: int, now: Instant) -> None:
        """The leave request goes out under this number; a repetition has only the time that was left."""
        if self._is_first:
            self.by = now + LEAVE_ANSWER_S
        self.request, self.repeat_at, self._is_first = request_id, None, False

    def repeat(self, at: Instant) -> None:
        """Send it once more at this moment."""
        self.repeat_at = at

    def expire_now(self, now: Instant) -> None:
        """Wait for nothing any more."""
        self.by = now

    def end(self) -> None:
        """The leave is over."""
        self.request = self.repeat_at = None


class Parts:
    """The parts of one member, whatever its protocol; `now` is the moment of the event that is being handled."""

    def __init__(self, settings: MemberSettings, jitter: Jitter) -> None:
        self.settings = settings
        self.jitter = jitter
        self.now: Instant = 0.0
        self.subscription = Subscription()
        #: When the application subscribed last.
        self.asked_at: Instant = 0.0
        #: Whether the application's callbacks are told as under the eager protocol.
        self.is_eager = False
        self.coordinator = Coordinator()
        self.ownership = Ownership()
        self.commits = PendingCommits(settings, jitter)
        self.reconciler = Reconciler(settings, self.ownership, self.commits, jitter)
        self.auto_commit = AutoCommit(settings)
        self.watch = TopicWatch(settings.topic_refresh_s, jitter)
        self.leave = Leave()
        #: Since when the state is what it is.
        self.since: Instant | None = None
        self.transitions: deque[Transition] = deque(maxlen=REMEMBERED_TRANSITIONS)
        self.last_error: LastError | None = None
        self._effects: list[GroupEffect] = []
        self._last_request_id = 0

    # ---- one event ----

    def begin(self, now: Instant) -> None:
        """An event is handled from here on."""
        self.now, self._effects = now, []

    def order(self, *effects: GroupEffect) -> None:
        """Have these performed, after all that was ordered before."""
        self._effects += effects

    def ordered(self) -> tuple[GroupEffect, ...]:
        """What was ordered since the event came."""
        return tuple(self._effects)

    def next_request_id(self) -> int:
        """A number for a request, never used before by this member."""
        self._last_request_id += 1
        return self._last_request_id

    def new_backoff(self) -> Backoff:
        """Delays as the settings have them."""
        return Backoff(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, self.jitter)

    # ---- what is told ----

    def note_transition(self, old: MemberState, new: MemberState, reason: str) -> None:
        """The protocol's state changed; equal ones are a change that is not shown."""
        self.since = self.now
        if old is not new:
            self.order(StateChanged(old=old, new=new, reason=reason))
            self.transitions.append(Transition(at=self.now, old=old, new=new, reason=reason))

    def note_error(self, error: BrokerError) -> None:
        """Something went wrong that the application need not be told of; the view has it."""
        self.last_error = LastError(error=error, at=self.now)

    def end_error(self) -> None:
        """The member has recovered from its last error."""
        if self.last_error is not None and self.last_error.over_at is None:
            self.last_error = replace(self.last_error, over_at=self.now)

    def raise_to_application(self, problem: Problem, error: BrokerError, topic: str | None = None) -> None:
        """Tell the application."""
        self.last_error = LastError(error=error, at=self.now, topic=topic)
        notice = RaiseToApplication(
            problem=problem,
            error=error,
            topic=topic,
            ends_with_subscription=problem is Problem.FATAL and error.code in SUBSCRIPTION_ERRORS,
        )
        self.order(notice)

    def report_topics(self, changes: TopicChanges) -> None:
        """Tell the application which subscribed topics are not available, and the log which ones have come."""
        for one in changes.unavailable:
            self.raise_to_application(Problem.REFUSED, one.error, one.topic)
        if self.last_error is not None and self.last_error.topic in changes.appeared:
            self.end_error()
        if changes.appeared:
            self.order(TopicsAppeared(topics=changes.appeared))

    # ---- what is subscribed and held ----

    def set_eager_callbacks(self, *, is_eager: bool) -> None:
        """Whether callbacks are told as under the eager protocol from now on."""
        self.is_eager = is_eager

    def subscribe(self, subscription: Subscription, asked_at: Instant | None = None) -> None:
        """Take this in the place of what was subscribed; `asked_at`: when the application did so (None: now)."""
        self.subscription = subscription
        self.asked_at = self.now if asked_at is None else asked_at
        self.watch.subscribe(subscription, self.now)

    def begin_reconciliation(self, identity: CommitIdentity, *, gives_up_all: bool = False) -> None:
        """Begin an attempt towards the target; `gives_up_all`: the protocol itself is eager."""
        self.order(*self.reconciler.begin(identity, self.now, is_eager=self.is_eager and not gives_up_all))

    def note_holdings(self) -> None:
        """The assignment was taken over: the automatic commit's interval begins where something is held."""
        ownership = self.ownership
        self.report_topics(self.watch.holds(frozenset(one.topic for one in ownership.named_owned), self.now))
        if ownership.owned:
            self.auto_commit.restart(self.now)
        else:
            self.auto_commit.stop()

    def drop_everything(self, error: BrokerError) -> None:
        """Order on_lost if the application may hold anything; commits that were not sent yet end with this error."""
        self.order(*self.reconciler.lose(self.now))
        self.order(*self.commits.abandon(error))
        self.auto_commit.stop()

    # ---- commits and the coordinator ----

    def lose_coordinator(self, reason: str) -> None:
        """The coordinator is elsewhere, or silent: look it up anew, unless that is under way."""
        self.order(*self.coordinator.search(reason, self.now))

    def miss_answer(self, reason: str) -> None:
        """A member of the group got no answer from the coordinator: the view has the cause of the search that follows.

        During a search its own failures say more than requests that were under way when it began.
        """
        if self.coordinator.searching_since is None:
            self.note_error(BrokerError(code=TRANSPORT_CODE, name="_TRANSPORT", message=reason))
        self.lose_coordinator(reason)

    def commit_answered(self, answer: CommitAnswered, identity: CommitIdentity) -> None:
        """Take the answer to a commit, if it is waited for."""
        if not self.commits.is_pending(answer.commit_id):
            return
        if answer.verdict is CommitVerdict.REDISCOVER:
            self.lose_coordinator("a commit was answered by a broker that is not the coordinator")
        self.order_commit_results(self.commits.answered(answer, self.now), identity)

    def order_commit_results(self, effects: Iterable[Effect], identity: CommitIdentity) -> None:
        """Order what became of commits; a reconciliation that waits for one of them goes on."""
        for effect in effects:
            self.order(effect)
            if isinstance(effect, CommitCompleted):
                self.auto_commit.committed(effect.commit_id)
                self.order(*self.reconciler.commit_over(effect.commit_id, identity, self.now))
