"""Commits: which are in flight, when to retry, and when the automatic one is due (rules 3.6).

Every commit is stamped with the member's epoch at the moment it is sent. STALE_MEMBER_EPOCH means that the epoch
changed while the commit was in flight: the commit waits for the next epoch, drops revoked partitions, and is retried a
bounded number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Protocol

from consumer_membership.light_dataclasses import dataclass, replace
from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.coordinator import Outage
from consumer_membership.membership.effects import CollectPositions, CommitCompleted, CommitIdentity, CommitOffsets
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import CommitAnswered, CommitVerdict
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import (
    ASSIGNMENT_LOST_CODE,
    TIMED_OUT_CODE,
    TRANSPORT_CODE,
    BrokerError,
    Instant,
    OffsetAndMetadata,
    Offsets,
    TopicPartition,
)

ASSIGNMENT_LOST = BrokerError(
    code=ASSIGNMENT_LOST_CODE, name="_ASSIGNMENT_LOST", message="the partition was revoked or lost before the commit"
)
TIMED_OUT = BrokerError(code=TIMED_OUT_CODE, name="_TIMED_OUT", message="the commit was not answered in time")
UNCONFIRMED = BrokerError(
    code=TRANSPORT_CODE, name="_TRANSPORT", message="the response of the coordinator did not include the commit"
)
#: How often one commit may get STALE_MEMBER_EPOCH (franz-go: 10).
STALE_TRIES = 10
#: How often an automatic commit is retried for a partition's own error: a deleted topic must not stop a rebalance.
AUTOMATIC_TRIES = 3
#: How often one commit may contain partitions that the coordinator does not know, and no other error: 0.3 s with the
#: usual backoff, as in librdkafka. Every broker knows a new topic within milliseconds.
UNKNOWN_TRIES = 3
#: A stale commit is retried after this time even if no new epoch was seen.
STALE_WAIT_S = 0.5


@dataclass(slots=True, kw_only=True)
class _Pending:
    commit_id: int
    #: Counts commits in the order in which the application made them.
    number: int
    begun_at: Instant
    offsets: dict[TopicPartition, OffsetAndMetadata]
    deadline: Instant
    backoff: Backoff
    is_automatic: bool
    requested: Offsets
    #: The partitions that the application assigned itself: no revocation concerns them.
    by_hand: frozenset[TopicPartition] = frozenset()
    errors: dict[TopicPartition, BrokerError | None] = field(default_factory=dict)
    #: Why its last attempt got no response.
    failure: BrokerError | None = None
    #: The partitions that were revoked since the commit was created.
    revoked: set[TopicPartition] = field(default_factory=set)
    in_flight: bool = False
    not_before: Instant = 0.0
    stale_epoch: int | None = None
    stale_tries: int = 0
    unknown_tries: int = 0
    #: Whether the membership in which it was created has ended, so that it must not be sent again.
    is_last_try: bool = False
    was_sent: bool = False


class CommitListener(Protocol):
    """A part of the member that waits for commits."""

    def commit_over(self, commit_id: int) -> None:
        """This commit has ended, well or not."""


class PendingCommits:
    """The commits of one member that have not ended; its listeners are notified of each end."""

    def __init__(self, event: EventContext, settings: MemberSettings, jitter: Jitter) -> None:
        self._event = event
        self._settings = settings
        self._listeners: list[CommitListener] = []
        self._jitter = jitter
        self._pending: dict[int, _Pending] = {}
        self._begun = 0
        #: The newest commit of each partition, and the number and the outcome of the newest one that has ended.
        self._newest: dict[TopicPartition, _Pending] = {}
        self._outcomes: dict[TopicPartition, tuple[int, BrokerError | None]] = {}
        self._last_automatic_id = 0

    def add_listeners(self, *listeners: CommitListener) -> None:
        """Notify these of each end from now on, in this order."""
        self._listeners += listeners

    def next_automatic_id(self) -> int:
        """Return a number for an automatic commit, never used before by this member; always negative."""
        self._last_automatic_id -= 1
        return self._last_automatic_id

    def __len__(self) -> int:
        return len(self._pending)

    def begin(
        self, commit_id: int, offsets: Offsets, timeout_s: float, *, by_hand: frozenset[TopicPartition] = frozenset()
    ) -> None:
        """Add a commit; the next `send_due` sends it. An empty commit ends at once.

        A negative number marks an automatic commit. `by_hand`: the partitions that the application assigned itself.
        """
        if not offsets:
            self._emit_end(commit_id, {}, {})
            return
        self._begun += 1
        commit = self._pending[commit_id] = _Pending(
            commit_id=commit_id,
            number=self._begun,
            begun_at=self._event.now,
            offsets=dict(offsets),
            requested=offsets,
            deadline=self._event.now + timeout_s,
            backoff=Backoff(self._settings.retry_backoff_s, self._settings.retry_backoff_max_s, self._jitter),
            is_automatic=commit_id < 0,
            by_hand=by_hand,
        )
        self._newest |= dict.fromkeys(offsets, commit)

    def revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these were revoked: another member may own them soon, and old commits must not undo its commits.

        It holds for the commits that are in flight now, also if a partition returns before they are sent again.
        """
        revoked = frozenset(partitions)
        for commit in self._pending.values():
            commit.revoked |= (revoked & commit.offsets.keys()) - commit.by_hand

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions of all commits that have not ended."""
        return set().union(*(commit.offsets for commit in self._pending.values()))

    def send_due(self, identity: CommitIdentity | None, outage: Outage | None) -> None:
        """Send the due commits with this identity (None: none now), and give up those beyond their deadline.

        `outage`: why the coordinator cannot be found; waiting commits are given up sooner, with that reason.
        """
        now = self._event.now
        for commit in list(self._pending.values()):
            if not commit.in_flight:
                self._withdraw(commit, dict.fromkeys(commit.revoked, ASSIGNMENT_LOST))
            if not commit.offsets:
                self._finish(commit, ASSIGNMENT_LOST)
            elif now >= self._ends_at(commit, outage):
                self._finish(commit, outage.error(now) if outage is not None else _timed_out(commit))
        for commit in list(self._pending.values()):
            if identity is not None and self._may_send(commit, identity):
                self._send(commit, identity)

    @staticmethod
    def _ends_at(commit: _Pending, outage: Outage | None) -> Instant:
        """Return the moment when a commit is given up; an outage never ends one in flight, which may be answered."""
        if outage is None or commit.in_flight:
            return commit.deadline
        return min(commit.deadline, outage.ends_for(commit.begun_at))

    def _may_send(self, commit: _Pending, identity: CommitIdentity) -> bool:
        if commit.in_flight or self._yields(commit):
            return False
        new_epoch = commit.stale_epoch is not None and commit.stale_epoch != identity.member_epoch
        return new_epoch or self._event.now >= commit.not_before

    def _yields(self, commit: _Pending) -> bool:
        """Return whether a commit that was sent before waits for the end of a younger one of the same partition.

        Sent again after the younger one, it would take the committed offset back.
        """
        if not commit.was_sent:
            return False
        newest = (self._newest[partition] for partition in commit.offsets)
        return any(other is not commit and other.commit_id in self._pending for other in newest)

    def _overtaken(self, commit: _Pending) -> dict[TopicPartition, BrokerError | None]:
        """Return the partitions of which a younger commit has ended, whose outcome also counts for this commit."""
        outcomes = {partition: self._outcomes[partition] for partition in commit.offsets.keys() & self._outcomes.keys()}
        return {partition: error for partition, (number, error) in outcomes.items() if number > commit.number}

    @staticmethod
    def _withdraw(commit: _Pending, errors: Mapping[TopicPartition, BrokerError | None]) -> None:
        """Do not send these partitions of a commit (any more): their outcome is known."""
        for partition, error in errors.items():
            if commit.offsets.pop(partition, None) is not None:
                commit.errors[partition] = error

    def _send(self, commit: _Pending, identity: CommitIdentity) -> None:
        self._withdraw(commit, self._overtaken(commit))
        if not commit.offsets:
            self._finish(commit, ASSIGNMENT_LOST)
            return
        commit.in_flight = commit.was_sent = True
        commit.stale_epoch = identity.member_epoch
        order = CommitOffsets(
            commit_id=commit.commit_id,
            offsets=dict(commit.offsets),
            member_id=identity.member_id,
            member_epoch=identity.member_epoch,
            instance_id=identity.instance_id,
        )
        self._event.emit(order)

    def answered(self, answer: CommitAnswered) -> None:
        """Process the coordinator's response: the commit has ended, or is retried."""
        commit = self._pending.get(answer.commit_id)
        if commit is None or not commit.in_flight:
            return
        commit.in_flight = False
        for partition, error in answer.errors.items():
            commit.errors[partition] = error
            if error is None:
                commit.offsets.pop(partition, None)
        is_final = answer.verdict is CommitVerdict.FINAL or not commit.offsets
        if is_final or self._retries_exhausted(commit, answer.verdict):
            self._finish(commit, UNCONFIRMED)
        elif answer.verdict is CommitVerdict.STALE_EPOCH:
            commit.stale_tries += 1
            commit.not_before = self._event.now + STALE_WAIT_S
        else:
            commit.unknown_tries += answer.verdict is CommitVerdict.RETRY_BRIEFLY
            commit.stale_epoch = None
            commit.not_before = self._event.now + commit.backoff.next_delay()

    @staticmethod
    def _retries_exhausted(commit: _Pending, verdict: CommitVerdict) -> bool:
        if commit.is_last_try:
            return True
        if verdict is CommitVerdict.STALE_EPOCH:
            return commit.stale_tries + 1 >= STALE_TRIES
        if verdict is CommitVerdict.RETRY_BRIEFLY and commit.unknown_tries + 1 >= UNKNOWN_TRIES:
            return True
        return verdict is CommitVerdict.RETRY and commit.is_automatic and commit.backoff.failures >= AUTOMATIC_TRIES

    def unanswered(self, commit_id: int, *, error: BrokerError, retriable: bool) -> None:
        """No response will come: retry after a backoff, or give up with this error."""
        commit = self._pending.get(commit_id)
        if commit is None:
            return
        commit.in_flight = False
        commit.failure = error
        commit.stale_epoch = None
        commit.not_before = self._event.now + commit.backoff.next_delay()
        if not retriable or commit.is_last_try:
            self._finish(commit, error)

    def resend_in_flight(self) -> None:
        """Send the commits in flight once more: a response to the other protocol's request would not be read."""
        for commit in self._pending.values():
            commit.in_flight = False
            commit.stale_epoch = None

    def abandon(self, error: BrokerError) -> None:
        """Give up the commits that wait to be sent; those in flight may still succeed, and are not sent again."""
        for commit in self._pending.values():
            commit.is_last_try = True
        for commit in list(self._pending.values()):
            if not commit.in_flight:
                self._finish(commit, error)

    def _finish(self, commit: _Pending, error: BrokerError) -> None:
        del self._pending[commit.commit_id]
        known = commit.errors.get
        # The partitions left in `offsets` were not committed: the reason is their own error, or else the common one.
        errors = {p: known(p) or error if p in commit.offsets else known(p) for p in commit.requested}
        if commit.was_sent:
            for partition, outcome in errors.items():
                if self._outcomes.get(partition, (0, None))[0] < commit.number:
                    self._outcomes[partition] = (commit.number, outcome)
        self._emit_end(commit.commit_id, commit.requested, errors)

    def _emit_end(self, commit_id: int, offsets: Offsets, errors: Mapping[TopicPartition, BrokerError | None]) -> None:
        self._event.emit(CommitCompleted(commit_id=commit_id, offsets=offsets, errors=errors))
        for listener in self._listeners:
            listener.commit_over(commit_id)

    def is_pending(self, commit_id: int) -> bool:
        """Return whether this commit has not ended yet."""
        return commit_id in self._pending

    def epoch_of(self, commit_id: int) -> int | None:
        """Return the epoch or generation with which this commit was last sent; None: it has ended, or was not sent."""
        commit = self._pending.get(commit_id)
        return None if commit is None or not commit.in_flight else commit.stale_epoch

    def next_deadline(self, identity: CommitIdentity | None, outage: Outage | None = None) -> Instant | None:
        """Return the moment when `send_due` has something to do again."""
        moments = [self._ends_at(commit, outage) for commit in self._pending.values()]
        if identity is not None:
            waiting = (commit for commit in self._pending.values() if not commit.in_flight)
            moments += [commit.not_before for commit in waiting if not self._yields(commit)]
        return min(moments, default=None)


def _timed_out(commit: _Pending) -> BrokerError:
    """Return the error of a commit without a response in time, with the reason of its last attempt, if known."""
    if commit.failure is None:
        return TIMED_OUT
    return replace(TIMED_OUT, message=f"{TIMED_OUT.message}: {commit.failure.message}")


class AutoCommit:
    """The schedule of the automatic commit (`enable.auto.commit`, `auto.commit.interval.ms`); one at a time.

    The interval pauses while there is nothing to commit until another record is delivered: an idle member needs no
    timer, and its application is not interrupted.
    """

    def __init__(self, event: EventContext, settings: MemberSettings, commits: PendingCommits) -> None:
        self._event = event
        self._commits = commits
        self._enabled = settings.auto_commit
        self._interval_s = settings.auto_commit_interval_s
        self._due_at: Instant | None = None
        self.collecting: int | None = None
        self._committing: int | None = None
        self._awaits_record = False
        #: Whether a record was delivered since the last request for positions; the report may not include it.
        self._has_record = False

    def restart(self) -> None:
        """Begin the interval: partitions are held from now on, or were just committed."""
        self._due_at = self._event.now + self._interval_s if self._enabled else None
        self.collecting = None
        self._awaits_record = False

    def collected(self) -> None:
        """Begin the next interval, which waits for the commit of the collected positions."""
        self._committing = self.collecting
        self.restart()

    def await_record(self) -> None:
        """Begin the next interval with the next delivered record: until then there is nothing to commit."""
        self.restart()
        if not self._has_record:
            self._due_at = None
            self._awaits_record = True

    def record_delivered(self) -> None:
        """Note that records reached the application."""
        self._has_record = True
        if self._awaits_record:
            self.restart()

    def commit_over(self, commit_id: int) -> None:
        """Note that a commit has ended, successfully or not."""
        if commit_id == self._committing:
            self._committing = None

    def stop(self) -> None:
        """Stop the schedule: no partition is held any more."""
        self._due_at = None
        self.collecting = None
        self._committing = None
        self._awaits_record = False

    @property
    def due_at(self) -> Instant | None:
        """When positions are to be collected next; None while that or the last commit runs, or nothing is held."""
        return self._due_at if self.collecting is None and self._committing is None else None

    def collect_if_due(self) -> None:
        """Begin one automatic commit if the interval is over: the application reports its positions."""
        if self.due_at is not None and self._event.now >= self.due_at:
            self.collecting = self._commits.next_automatic_id()
            self._has_record = False
            self._event.emit(CollectPositions(commit_id=self.collecting))
