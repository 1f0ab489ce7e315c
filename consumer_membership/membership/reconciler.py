"""Change the owned partitions to the target, in steps that carry the number of an attempt.

One attempt runs at a time. Its phases, of which those without work are left out:

    PAUSE -> COMMIT -> REVOKE -> COMMIT_STORED -> FETCH -> ASSIGN

Each completion carries the attempt's number; one with another number is dropped. So a member that is fenced, leaves or
rejoins in the middle only needs a new number, and whatever is still running for the old one cannot touch it.
A newer target does not interrupt a running attempt: the attempt ends with the target that it began with, is
acknowledged, and the next one starts from there (as in the Java client). Only an attempt without a performed step that
cannot get its start offsets is replaced at once if the target changes: its topic may be gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.membership.backoff import Backoff, Jitter
from consumer_membership.membership.effects import (
    AssignPartitions,
    FetchCommitted,
    LosePartitions,
    PausePartitions,
    ResolveTopicIds,
    RevokePartitions,
)
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import Step, StepFinished
from consumer_membership.membership.offsets import PendingCommits
from consumer_membership.membership.ownership import Ownership
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.types import Assignment, Instant, Offsets, TopicPartition

#: The commit before a revocation is given up after this time, because the revocation delays other members.
REBALANCE_COMMIT_S = 30.0


class Phase(Enum):
    """The phase of the running attempt; the value is what the view shows in `waits_for`."""

    IDLE = None
    PAUSE = WaitsFor.POLL_TO_REVOKE
    COMMIT = WaitsFor.COMMIT_BEFORE_REVOKE
    REVOKE = WaitsFor.ON_REVOKE
    COMMIT_STORED = WaitsFor.COMMIT_AFTER_REVOKE
    FETCH = WaitsFor.COMMITTED_OFFSETS
    ASSIGN = WaitsFor.ON_ASSIGN
    AWAIT_POLL = WaitsFor.POLL_TO_RETRY_CALLBACK
    LOSE = WaitsFor.ON_LOST


class AttemptKind(Enum):
    """The purpose of an attempt."""

    #: No attempt runs, or the running one has nothing left to give up or to take.
    NONE = "none"
    #: To own the target.
    RECONCILE = "reconcile"
    #: To give up everything that the application holds, because the member leaves.
    LEAVE = "leave"


#: The phase in which each step of the application's thread is under way.
_PHASE_OF_STEP: Mapping[Step, Phase] = {
    Step.PAUSE: Phase.PAUSE,
    Step.REVOKE: Phase.REVOKE,
    Step.ASSIGN: Phase.ASSIGN,
    Step.LOSE: Phase.LOSE,
}


class Reconciler:
    """The attempts of one member; `is_idle`: none runs."""

    def __init__(
        self,
        event: EventContext,
        settings: MemberSettings,
        ownership: Ownership,
        commits: PendingCommits,
        jitter: Jitter,
    ) -> None:
        self._event = event
        self._settings = settings
        self._ownership = ownership
        self._commits = commits
        self._resolve_backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self._fetch_backoff = Backoff(settings.retry_backoff_s, settings.retry_backoff_max_s, jitter)
        self.attempt = 0
        self.phase = Phase.IDLE
        self.since: Instant | None = None
        self.kind = AttemptKind.NONE
        #: The partitions that the application releases in the attempt; a leave releases everything, and names no
        #: partitions.
        self.revoking: Assignment = frozenset()
        #: The part of it that the member does not own afterwards; the same attempt returns the rest.
        self._surplus: Assignment = frozenset()
        self._adding: Assignment = frozenset()
        #: The partitions that a leaving member held.
        self._given_up: Assignment = frozenset()
        self._epoch = 0
        self._target_number = 0
        self._offsets: Mapping[TopicPartition, int] = {}
        self._commit_id: int | None = None
        self._commit_within_s = REBALANCE_COMMIT_S
        #: Whether the application holds back partitions for a revocation that has not taken place.
        self._has_paused = False
        #: When Metadata may be requested next; None while a request is in flight.
        self._resolve_at: Instant | None = 0.0
        #: When the start offsets may be requested next; None while a request is in flight.
        self._fetch_at: Instant | None = None
        self._uses_eager_callbacks = False

    def set_eager_callbacks(self, *, is_eager: bool) -> None:
        """Set whether callbacks follow the eager protocol: all is revoked, and the whole assignment is passed."""
        self._uses_eager_callbacks = is_eager

    @property
    def retries_at_poll(self) -> bool:
        """Whether the next poll repeats a callback that raised."""
        return self.phase is Phase.AWAIT_POLL

    @property
    def is_idle(self) -> bool:
        """Whether no attempt runs, and none waits for the application to poll."""
        return self.phase is Phase.IDLE

    @property
    def waits_for(self) -> WaitsFor | None:
        """What the running attempt waits for; None: no attempt runs."""
        waits_for: WaitsFor | None = self.phase.value
        return waits_for

    @property
    def is_leaving(self) -> bool:
        """Whether the running attempt gives up everything because the member leaves."""
        return self.kind is AttemptKind.LEAVE

    @property
    def is_assigning(self) -> bool:
        """Whether on_assign was ordered for partitions that the member does not own yet."""
        return self.phase is Phase.ASSIGN and bool(self._adding)

    @property
    def may_hold(self) -> bool:
        """Whether the application may hold partitions, or be about to."""
        return bool(self._ownership.owned) or self.is_leaving or self.phase in (Phase.ASSIGN, Phase.LOSE)

    def claims(self) -> Assignment:
        """Return the partitions that no other member may get: owned, or about to be assigned by this attempt.

        If a complete heartbeat omitted the latter while their on_assign runs, the coordinator would treat them as
        revoked. A leaving member also claims the released ones: commits of them may still be in flight, and the leave
        ends the claim.
        """
        return frozenset(self._ownership.owned) | self._adding | self._given_up

    @property
    def reserved(self) -> frozenset[TopicPartition]:
        """The partitions that the member does not own, and that no other member may get yet.

        on_assign of them was ordered, or the application released them and the coordinator does not know that yet: the
        offsets that on_revoke stored are being committed, or the leave is not sent.
        """
        reserved = self._given_up
        if self.phase is Phase.ASSIGN:
            reserved |= self._adding
        elif self.phase is Phase.COMMIT_STORED:
            reserved |= self._surplus
        return self._ownership.named(reserved)

    @property
    def awaits_first_names(self) -> bool:
        """Whether Metadata has not answered yet for unresolved topics: too early to acknowledge the rest alone."""
        return bool(self._ownership.unresolved) and self._resolve_backoff.failures == 0

    # ---- beginning and ending ----

    def begin(self, *, releases_all: bool = False) -> None:
        """Begin an attempt towards the resolved part of the target.

        With eager callbacks, an attempt that changes anything has the application release everything and assigns the
        whole, from the offsets that are committed by then. The member owns retained partitions throughout, so other
        members are not affected. `releases_all`: the protocol itself is eager, and its target reflects that already.
        """
        ownership = self._ownership
        self.attempt += 1
        surplus, missing = ownership.surplus(), ownership.missing()
        kept = frozenset(ownership.owned.keys() - surplus)
        given_back = ownership.withheld & kept
        if self._uses_eager_callbacks and not releases_all and (surplus or missing):
            given_back = kept
            ownership.prepare_next(is_first=True)
        # An attempt that did not end may have had the application release some partitions already.
        self._disown(surplus & ownership.withheld)
        self.kind = AttemptKind.RECONCILE
        self._surplus = surplus & ownership.owned.keys()
        self.revoking = self._surplus | (given_back - ownership.withheld)
        self._adding = missing | given_back
        self._offsets = {}
        self._epoch = self._event.identity.member_epoch
        self._target_number = ownership.target_number
        self._commit_within_s = min(REBALANCE_COMMIT_S, self._settings.max_poll_interval_s)
        self._move_on()

    def begin_leaving(self) -> None:
        """Begin to release everything that the application holds."""
        may_hold = self.may_hold
        self.attempt += 1
        if self.phase is Phase.ASSIGN:
            # on_assign may be running, or have returned: the application also holds these until it releases them.
            self._ownership.add(self._adding, self._event.identity.member_epoch)
        self._given_up = frozenset(self._ownership.owned)
        self._enter(Phase.IDLE)
        self._adding = self.revoking = frozenset()
        self._ownership.prepare_next(is_first=False)
        self._commit_id = None
        self._commit_within_s = self._settings.leave_timeout_s
        self.kind = AttemptKind.LEAVE if may_hold else AttemptKind.NONE
        if may_hold:
            self._move_on()

    def lose(self) -> None:
        """Release everything without the coordinator; on_lost is due if the application may hold anything."""
        may_hold = self.may_hold
        self._forget()
        self._enter(Phase.LOSE if may_hold else Phase.IDLE)
        if may_hold:
            self._event.emit(LosePartitions(attempt=self.attempt))

    def left(self) -> None:
        """End all attempts: everything was released in order, and the membership has ended."""
        self._forget()
        self._enter(Phase.IDLE)

    def _forget(self) -> None:
        """End every action of the membership, which has ended."""
        self.attempt += 1
        self._ownership.forget()
        self._end_attempt()
        self._given_up = frozenset()
        self._commit_id = None
        self._has_paused = False
        # The next membership requests it again: a late response of Metadata may arrive between the two.
        self._resolve_at = 0.0
        self._resolve_backoff.reset()

    def _end_attempt(self) -> None:
        self.kind = AttemptKind.NONE
        self.revoking = self._surplus = self._adding = frozenset()
        self._offsets = {}

    def polled(self) -> None:
        """Begin an attempt again whose callback raised, because the application polls."""
        if self.retries_at_poll:
            self._enter(Phase.IDLE)

    # ---- the phases ----

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        self.since = self._event.now

    @property
    def _revokes(self) -> bool:
        return self.is_leaving or bool(self.revoking)

    def _following(self) -> Phase:
        """Return the phase after the present one, leaving out those without work."""
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
                # The first assignment of a membership calls on_assign even if it is empty, as in Java.
                return Phase.ASSIGN
            case _:
                return Phase.IDLE

    def _move_on(self, offsets: Offsets = MappingProxyType({})) -> None:
        """Enter the following phase and order its work; a commit phase without offsets is skipped."""
        self._enter(self._following())
        match self.phase:
            case Phase.PAUSE:
                # If nothing is left to revoke, this pause of no partitions ends the pause for a revocation that raised.
                self._has_paused = self._revokes
                self._event.emit(PausePartitions(attempt=self.attempt, partitions=self._names_of_revoking()))
            case Phase.COMMIT | Phase.COMMIT_STORED if self._settings.auto_commit and offsets:
                self._commit_id = self._commits.next_automatic_id()
                self._commits.begin(self._commit_id, offsets, self._commit_within_s)
            case Phase.COMMIT | Phase.COMMIT_STORED:
                self._move_on()
            case Phase.REVOKE:
                self._event.emit(RevokePartitions(attempt=self.attempt, partitions=self._names_of_revoking()))
            case Phase.FETCH:
                self._fetch()
            case Phase.ASSIGN:
                self._ownership.assigned.update(self._offsets)
                order = AssignPartitions(attempt=self.attempt, offsets=self._offsets, member_epoch=self._epoch)
                self._event.emit(order)
            case _:
                if not self.is_leaving:
                    self._ownership.finish(self._adding, self._epoch, self._target_number)
                self._end_attempt()

    def _names_of_revoking(self) -> frozenset[TopicPartition] | None:
        """Return the partitions that a step releases; None: all that the application holds."""
        return None if self.is_leaving else self._ownership.named(self.revoking)

    def _fetch(self) -> None:
        self._fetch_at = None
        identity = self._event.identity
        order = FetchCommitted(
            attempt=self.attempt,
            partitions=self._ownership.named(self._adding),
            member_id=identity.member_id,
            member_epoch=identity.member_epoch,
        )
        self._event.emit(order)

    # ---- completions ----

    def step_finished(self, event: StepFinished) -> bool:
        """Process the application's completion of a step; False: it is of another attempt or phase, and is dropped."""
        if event.attempt != self.attempt or self.phase is not _PHASE_OF_STEP[event.step]:
            return False
        if event.step is Step.LOSE:
            self._enter(Phase.IDLE)
            return True
        if event.failed and not self.is_leaving:
            self._end_attempt()
            self._enter(Phase.AWAIT_POLL)
            return True
        if event.step is Step.REVOKE:
            # A raising callback does not stop a leave: its partitions are released and committed all the same.
            self._remove()
            self._has_paused = False
        self._move_on(event.offsets)
        return True

    def _remove(self) -> None:
        """Remove the partitions that the application released."""
        if self.is_leaving:
            self._ownership.drop(self._ownership.owned)
            return
        # Retained partitions are read from the committed offsets, so an older commit must not be repeated after that.
        self._commits.revoked(self._ownership.named(self.revoking))
        self._ownership.drop(self._surplus)
        self._ownership.withhold(self.revoking)

    def _disown(self, partitions: Assignment) -> None:
        """Remove these partitions, which may soon belong to other members."""
        self._commits.revoked(self._ownership.named(partitions))
        self._ownership.drop(partitions)

    def commit_over(self, commit_id: int) -> None:
        """Continue the attempt if it waits for this commit, which has ended, successfully or not."""
        if commit_id == self._commit_id:
            self._commit_id = None
            self._move_on()

    def start_offsets_fetched(self, attempt: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Assign the new partitions from these start offsets; an incomplete response counts as none."""
        if attempt != self.attempt or self.phase is not Phase.FETCH:
            return
        requested = self._ownership.named(self._adding)
        if not requested <= offsets.keys():
            self.start_offsets_failed(attempt)
            return
        self._fetch_backoff.reset()
        self._offsets = {partition: offsets[partition] for partition in requested}
        self._move_on()

    def start_offsets_failed(self, attempt: int) -> bool:
        """The start offsets could not be fetched: retry after a backoff. False: no attempt waits for them any more."""
        if attempt != self.attempt or self.phase is not Phase.FETCH:
            return False
        self._fetch_at = self._event.now + self._fetch_backoff.next_delay()
        if self._target_number != self._ownership.target_number:
            self._end_attempt()
            self._enter(Phase.IDLE)
        return True

    def topic_ids_resolved(self) -> None:
        """Metadata answered; unresolved topics are requested again after a backoff."""
        self._resolve_at = self._event.now
        if self._ownership.unresolved:
            self._resolve_at += self._resolve_backoff.next_delay()
        else:
            self._resolve_backoff.reset()

    # ---- time ----

    def advance(self) -> None:
        """Repeat the requests that are due."""
        now, unresolved = self._event.now, self._ownership.unresolved
        if unresolved and self._resolve_at is not None and now >= self._resolve_at:
            self._resolve_at = None
            self._event.emit(ResolveTopicIds(topic_ids=unresolved))
        if self.phase is Phase.FETCH and self._fetch_at is not None and now >= self._fetch_at:
            self._fetch()

    def next_deadline(self) -> Instant | None:
        """Return the moment when `advance` has something to do."""
        moments = [self._resolve_at] if self._ownership.unresolved else []
        if self.phase is Phase.FETCH:
            moments.append(self._fetch_at)
        return min((moment for moment in moments if moment is not None), default=None)
