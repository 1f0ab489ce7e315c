"""From what the member owns to what it shall own, as steps with an attempt number.

One attempt runs at a time. Its phases, of which those without work are left out:

    PAUSE -> COMMIT -> REVOKE -> COMMIT_STORED -> FETCH -> ASSIGN

Each completion carries the attempt's number; one with another number is dropped. So a member that is fenced, leaves or
rejoins in the middle only needs a new number, and whatever is still running for the old one cannot touch it.
A newer target does not interrupt a running attempt: the attempt ends with the target that it began with, is
acknowledged, and the next one starts from there (as in the Java client). Only an attempt that has had no step performed
and cannot get its start offsets gives way to a newer target at once: its topic may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import (
    AssignPartitions,
    Effect,
    FetchCommitted,
    LosePartitions,
    PausePartitions,
    ResolveTopicIds,
    RevokePartitions,
)
from consumer_membership.membership.events import Step, StepFinished
from consumer_membership.membership.offsets import CommitIdentity, PendingCommits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.types import Assignment, Instant, Offsets, TopicPartition

#: The commit before a revocation is given up after this time, for the revocation holds up the others.
REBALANCE_COMMIT_S = 30.0


class Phase(Enum):
    """Where the running attempt stands; the value is how the view names what it waits for."""

    IDLE = "nothing"
    PAUSE = "the application's next poll, to pause what is revoked"
    COMMIT = "the commit before the revocation"
    REVOKE = "the application's on_revoke"
    COMMIT_STORED = "the commit of what on_revoke stored"
    FETCH = "the committed offsets of what is assigned"
    ASSIGN = "the application's on_assign"
    AWAIT_POLL = "the application's next poll, because a callback raised"
    LOSE = "the application's on_lost"


#: The phase in which each step of the application's thread is under way.
_PHASE_OF_STEP: Mapping[Step, Phase] = {
    Step.PAUSE: Phase.PAUSE,
    Step.REVOKE: Phase.REVOKE,
    Step.ASSIGN: Phase.ASSIGN,
    Step.LOSE: Phase.LOSE,
}


class Reconciler:
    """The attempts of one member. Its methods return the effects that come next; `is_idle` says that none runs."""

    def __init__(self, settings: MemberSettings, ownership: Ownership, commits: PendingCommits, jitter: Jitter) -> None:
        self._settings = settings
        self._ownership = ownership
        self._commits = commits
        self._resolve_backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self._fetch_backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self.attempt = 0
        self.phase = Phase.IDLE
        self.since: Instant | None = None
        #: What the attempt has the application give up; None: everything, because the member leaves.
        self.revoking: Assignment | None = frozenset()
        #: What of it the member owns no more then; the rest is given back by the same attempt.
        self._surplus: Assignment = frozenset()
        self._adding: Assignment = frozenset()
        #: What a leaving member held.
        self._given_up: Assignment = frozenset()
        self._epoch = 0
        self._target_number = 0
        self._offsets: Mapping[TopicPartition, int] = {}
        self._commit_id: int | None = None
        self._commit_within_s = REBALANCE_COMMIT_S
        #: Whether the application holds back partitions for a revocation that has not taken place.
        self._has_paused = False
        #: When Metadata may be asked next; None while it is being asked.
        self._resolve_at: Instant | None = 0.0
        #: When the start offsets may be asked for next; None while they are being asked for.
        self._fetch_at: Instant | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no attempt runs, and none waits for the application to poll."""
        return self.phase is Phase.IDLE

    @property
    def may_hold(self) -> bool:
        """Whether the application may hold partitions, or be about to."""
        return bool(self._ownership.owned) or self.revoking is None or self.phase in (Phase.ASSIGN, Phase.LOSE)

    def claims(self) -> Assignment:
        """What the coordinator must not give to others: what is owned, and what the running attempt will assign.

        A complete heartbeat that left the latter out while its on_assign runs would read as its revocation. A leaving
        member claims what it gave up, too: commits of it may still be under way, and the leave itself ends the claim.
        """
        return frozenset(self._ownership.owned) | self._adding | self._given_up

    @property
    def awaits_first_names(self) -> bool:
        """Whether Metadata has not answered yet for what is unresolved: too early to acknowledge the rest alone."""
        return bool(self._ownership.unresolved) and self._resolve_backoff.failures == 0

    # ---- beginning and ending ----

    def begin(self, identity: CommitIdentity, now: Instant, *, is_eager: bool = False) -> list[Effect]:
        """Begin an attempt towards the target as far as it is resolved.

        `is_eager`: if it changes anything, the application gives up everything and is assigned the whole, from what is
        committed by then. The member owns what stays all the while, so that nobody else notices.
        """
        ownership = self._ownership
        self.attempt += 1
        surplus, missing = ownership.surplus(), ownership.missing()
        kept = frozenset(ownership.owned.keys() - surplus)
        given_back = ownership.withheld & kept
        if is_eager and (surplus or missing):
            given_back = kept
            ownership.tell_next(is_first=True)
        # An attempt that did not get to its end may have had the application give up some of it already.
        self._disown(surplus & ownership.withheld)
        self._surplus = surplus & ownership.owned.keys()
        self.revoking = self._surplus | (given_back - ownership.withheld)
        self._adding = missing | given_back
        self._offsets = {}
        self._epoch = identity.member_epoch
        self._target_number = ownership.target_number
        self._commit_within_s = min(REBALANCE_COMMIT_S, self._settings.max_poll_interval_s)
        return self._move_on({}, identity, now)

    def begin_leaving(self, identity: CommitIdentity, now: Instant) -> list[Effect]:
        """Begin to give up everything that the application holds."""
        may_hold = self.may_hold
        self.attempt += 1
        if self.phase is Phase.ASSIGN:
            # on_assign may be running, or have returned: the application holds these until it gives them up, too.
            self._ownership.add(self._adding, identity.member_epoch)
        self._given_up = frozenset(self._ownership.owned)
        self._enter(Phase.IDLE, now)
        self._adding = frozenset()
        self._ownership.tell_next(is_first=False)
        self._commit_id = None
        self._commit_within_s = self._settings.leave_timeout_s
        self.revoking = None if may_hold else frozenset()
        return self._move_on({}, identity, now) if may_hold else []

    def lose(self, now: Instant) -> list[Effect]:
        """Give up everything without asking the coordinator; empty: the application holds nothing."""
        may_hold = self.may_hold
        self._forget()
        self._enter(Phase.LOSE if may_hold else Phase.IDLE, now)
        return [LosePartitions(attempt=self.attempt)] if may_hold else []

    def left(self, now: Instant) -> None:
        """Everything was given up in good order and the membership is over."""
        self._forget()
        self._enter(Phase.IDLE, now)

    def _forget(self) -> None:
        """The membership is over, and so is everything that was under way in it."""
        self.attempt += 1
        self._ownership.forget()
        self.revoking = self._surplus = self._adding = self._given_up = frozenset()
        self._offsets = {}
        self._commit_id = None
        self._has_paused = False
        # An answer of Metadata that is still to come may find nobody who listens: ask anew in the next membership.
        self._resolve_at = 0.0
        self._resolve_backoff.reset()

    def polled(self, now: Instant) -> None:
        """The application polls: an attempt whose callback raised begins anew."""
        if self.phase is Phase.AWAIT_POLL:
            self._enter(Phase.IDLE, now)

    # ---- the phases ----

    def _enter(self, phase: Phase, now: Instant) -> None:
        self.phase = phase
        self.since = now

    @property
    def _revokes(self) -> bool:
        return self.revoking is None or bool(self.revoking)

    def _following(self) -> Phase:
        """The phase after the present one, leaving out those without work."""
        match self.phase:
            case Phase.IDLE if self._revokes or self._has_paused:
                return Phase.PAUSE
            case Phase.PAUSE if self._revokes:
                return Phase.COMMIT
            case Phase.COMMIT:
                return Phase.REVOKE
            case Phase.REVOKE:
                return Phase.COMMIT_STORED
            case Phase.IDLE | Phase.PAUSE | Phase.COMMIT_STORED if self._adding:
                return Phase.FETCH
            case Phase.FETCH:
                return Phase.ASSIGN
            case Phase.IDLE | Phase.PAUSE | Phase.COMMIT_STORED if self._ownership.is_first:
                # The first assignment of a membership is told to the application even if it is empty, as in Java.
                return Phase.ASSIGN
            case _:
                return Phase.IDLE

    def _move_on(self, offsets: Offsets, identity: CommitIdentity, now: Instant) -> list[Effect]:
        """Enter the following phase and order its work; a commit phase without offsets is passed over."""
        self._enter(self._following(), now)
        match self.phase:
            case Phase.PAUSE:
                # With nothing to revoke any more it ends the pause of a revocation that raised.
                self._has_paused = self._revokes
                return [PausePartitions(attempt=self.attempt, partitions=self._names_of_revoking())]
            case Phase.COMMIT | Phase.COMMIT_STORED if self._settings.auto_commit and offsets:
                self._commit_id = self._commits.next_automatic_id()
                self._commits.begin(self._commit_id, offsets, now + self._commit_within_s, now)
                return []
            case Phase.COMMIT | Phase.COMMIT_STORED:
                return self._move_on({}, identity, now)
            case Phase.REVOKE:
                return [RevokePartitions(attempt=self.attempt, partitions=self._names_of_revoking())]
            case Phase.FETCH:
                return self._fetch(identity)
            case Phase.ASSIGN:
                return [AssignPartitions(attempt=self.attempt, offsets=self._offsets, member_epoch=self._epoch)]
            case _:
                self._finish()
                return []

    def _finish(self) -> None:
        if self.revoking is not None:
            self._ownership.finish(self._adding, self._epoch, self._target_number)
        self.revoking = self._surplus = self._adding = frozenset()
        self._offsets = {}

    def _names_of_revoking(self) -> frozenset[TopicPartition] | None:
        return None if self.revoking is None else self._ownership.named(self.revoking)

    def _fetch(self, identity: CommitIdentity) -> list[Effect]:
        self._fetch_at = None
        return [
            FetchCommitted(
                attempt=self.attempt,
                partitions=self._ownership.named(self._adding),
                member_id=identity.member_id,
                member_epoch=identity.member_epoch,
            )
        ]

    # ---- completions ----

    def step_finished(self, event: StepFinished, identity: CommitIdentity, now: Instant) -> list[Effect]:
        """Take the application's completion of a step; one of another attempt or phase is dropped."""
        if event.attempt != self.attempt or self.phase is not _PHASE_OF_STEP[event.step]:
            return []
        if event.step is Step.LOSE:
            self._enter(Phase.IDLE, now)
            return []
        is_leaving = self.revoking is None
        if event.failed and not is_leaving:
            self.revoking = self._surplus = self._adding = frozenset()
            self._enter(Phase.AWAIT_POLL, now)
            return []
        if event.step is Step.REVOKE:
            # A raising callback does not stop a leave: what it had is given up all the same, and committed until then.
            self._take_away()
            self._has_paused = False
        return self._move_on(event.offsets, identity, now)

    def _take_away(self) -> None:
        """The application gave up what it was to."""
        if self.revoking is None:
            self._ownership.drop(self._ownership.owned)
            return
        # It reads what stays from what is committed by now, so that an older commit must not be repeated after that.
        self._commits.revoked(self._ownership.named(self.revoking))
        self._ownership.drop(self._surplus)
        self._ownership.withhold(self.revoking)

    def _disown(self, partitions: Assignment) -> None:
        """These are not owned any more, and may soon be others'."""
        self._commits.revoked(self._ownership.named(partitions))
        self._ownership.drop(partitions)

    def commit_over(self, commit_id: int, identity: CommitIdentity, now: Instant) -> list[Effect]:
        """A commit is over, well or not; if the attempt waits for it, it goes on."""
        if commit_id != self._commit_id:
            return []
        self._commit_id = None
        return self._move_on({}, identity, now)

    def start_offsets_fetched(
        self, attempt: int, offsets: Mapping[TopicPartition, int], identity: CommitIdentity, now: Instant
    ) -> list[Effect]:
        """The start offsets of what is to be added are there; an answer that lacks some is as good as none."""
        if attempt != self.attempt or self.phase is not Phase.FETCH:
            return []
        asked = self._ownership.named(self._adding)
        if not asked <= offsets.keys():
            self.start_offsets_failed(attempt, now)
            return []
        self._fetch_backoff.reset()
        self._offsets = {partition: offsets[partition] for partition in asked}
        return self._move_on({}, identity, now)

    def start_offsets_failed(self, attempt: int, now: Instant) -> bool:
        """The start offsets could not be had: ask again after a backoff. False: nobody waits for them any more."""
        if attempt != self.attempt or self.phase is not Phase.FETCH:
            return False
        self._fetch_at = now + self._fetch_backoff.next_delay()
        if self._target_number != self._ownership.target_number:
            self._adding = frozenset()
            self._enter(Phase.IDLE, now)
        return True

    def topic_ids_resolved(self, now: Instant) -> None:
        """Metadata answered; what is still unresolved is asked for again after a backoff."""
        if self._ownership.unresolved:
            self._resolve_at = now + self._resolve_backoff.next_delay()
        else:
            self._resolve_backoff.reset()
            self._resolve_at = now

    # ---- time ----

    def advance(self, identity: CommitIdentity, now: Instant) -> list[Effect]:
        """Ask again for what is due to be asked again."""
        effects: list[Effect] = []
        unresolved = self._ownership.unresolved
        if unresolved and self._resolve_at is not None and now >= self._resolve_at:
            self._resolve_at = None
            effects.append(ResolveTopicIds(topic_ids=unresolved))
        if self.phase is Phase.FETCH and self._fetch_at is not None and now >= self._fetch_at:
            effects += self._fetch(identity)
        return effects

    def next_deadline(self) -> Instant | None:
        """When `advance` has something to do."""
        moments = [self._resolve_at] if self._ownership.unresolved else []
        if self.phase is Phase.FETCH:
            moments.append(self._fetch_at)
        return min((moment for moment in moments if moment is not None), default=None)
