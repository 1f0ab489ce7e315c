"""A classic group as the broker keeps it: its states, and the timers of its phases (GroupMetadataManager; rules 4.9).

`released` collects the responses to waiting requests, and `happened` the events; the coordinator takes both after each
call.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, assert_never

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.classic.roster import ClassicMember, Roster, StoredGroup
from consumer_membership.testing.coordinators.exchanges import (
    Answer,
    ClassicHeartbeat,
    Commit,
    Joined,
    Key,
    LeaderShare,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    Released,
    Sync,
    Synced,
)
from consumer_membership.testing.coordinators.journal import (
    JoinsCompleted,
    JournalEntry,
    Loaded,
    RebalanceBegan,
    RebalanceCompleted,
    Removed,
)
from consumer_membership.testing.coordinators.rules import ClassicRules, Refused, RequestRefusal
from consumer_membership.types import NO_MEMBER_ID, Instant, OffsetAndMetadata, TopicPartition


class TimerKind(Enum):
    """What a timer ends: the session of a member or of a pending member id, or one of the two rebalance phases."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class Timer(NamedTuple):
    """A running timer; only session timers have a `member_id`."""

    at: Instant
    kind: TimerKind
    member_id: str = NO_MEMBER_ID


class InitialDelay(NamedTuple):
    """The first rebalance of a group waits for more members: this wait's length, and the time left for later waits."""

    step_s: float
    left_s: float


class GroupState(Enum):
    """The broker's states of a classic group."""

    EMPTY = "Empty"
    #: The members must join again; the phase ends when all members have joined, or with its timer.
    PREPARING_REBALANCE = "PreparingRebalance"
    #: A new generation, which waits for its leader's assignment.
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    #: The broker is no longer the coordinator of this group.
    DEAD = "Dead"


@dataclass(slots=True)
class ClassicGroup:
    """A group with its members, its state and phase timers, its last written record, and its committed offsets."""

    group_id: str
    rules: ClassicRules
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    assignor: str | None = None
    roster: Roster = field(default_factory=Roster)
    join_ends_at: Instant | None = None
    initial_delay: InitialDelay | None = None
    #: Whether a member has joined during the current wait of the first rebalance.
    has_newcomer: bool = False
    sync_ends_at: Instant | None = None
    pending_sync: set[str] = field(default_factory=set)
    committed: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    written: StoredGroup = field(default_factory=StoredGroup)
    ids_made: int = 0
    released: list[Released] = field(default_factory=list)
    happened: list[JournalEntry] = field(default_factory=list)

    # ---- requests; `consumer_membership.testing.coordinators.classic.joining` has JoinGroup ----

    def check(self, member_id: str, instance_id: str | None, generation: int) -> ClassicMember:
        """Return the sender of a request. Raises RequestRefusal if it is unknown, fenced or not in this generation."""
        self.check_alive()
        member = self.roster.check(member_id, instance_id)
        if generation != self.generation:
            raise RequestRefusal(code.ILLEGAL_GENERATION)
        return member

    def check_alive(self) -> None:
        """Raise RequestRefusal if the group is dead."""
        if self.state is GroupState.DEAD:
            raise RequestRefusal(code.COORDINATOR_NOT_AVAILABLE)

    def sync(self, key: Key, request: Sync, now: Instant) -> Answer | None:
        """Return the response to a SyncGroup; None: it waits, or `released` has its response. Raises RequestRefusal."""
        member = self.check(request.member_id, request.instance_id, request.generation)
        offered = (request.protocol_type, request.assignor)
        for said, known in zip(offered, (self.roster.protocol_type, self.assignor), strict=True):
            if said is not None and known is not None and said != known:
                raise RequestRefusal(code.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RequestRefusal(code.REBALANCE_IN_PROGRESS)
        self.pending_sync.discard(member.member_id)
        if not self.pending_sync:
            self.sync_ends_at = None
        if self.state is GroupState.STABLE:
            return Synced(assignor=self.assignor, assignment=member.assignment)
        member.sync = key
        if member.member_id == self.roster.leader_id:
            self._assign(request.shares, now)
        return None

    def _assign(self, shares: tuple[LeaderShare, ...], now: Instant) -> None:
        """Apply the leader's assignment: a member that is missing from it gets a response without assignment bytes."""
        given = dict(shares)
        for member in self.roster.members.values():
            member.assignment = given.get(member.member_id)
            self._answer_sync(member, Synced(assignor=self.assignor, assignment=member.assignment), now)
        self.state = GroupState.STABLE
        self.write()
        self.happened.append(RebalanceCompleted(generation=self.generation, shares=shares))

    def heartbeat(self, request: ClassicHeartbeat, now: Instant) -> None:
        """Restart the sender's session, also if the response is REBALANCE_IN_PROGRESS. Raises RequestRefusal."""
        self.check(request.member_id, request.instance_id, request.generation).start_session(now)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RequestRefusal(code.REBALANCE_IN_PROGRESS)

    def leave(self, request: LeaveGroup, now: Instant) -> LeaveResults:
        """Remove the members of a LeaveGroup: each member has its own result, and one rebalance follows for all."""
        self.check_alive()
        codes = tuple(self._leave(member) for member in request.members)
        if 0 in codes:
            self.prepare_or_complete("explicit `LeaveGroup` request", now)
        return LeaveResults(codes=codes)

    def _leave(self, who: LeavingMember) -> int:
        member_id = who.member_id
        try:
            if member_id == NO_MEMBER_ID:
                member_id = self.roster.instances.get(who.instance_id or "", NO_MEMBER_ID)
            if member_id not in self.roster.pending:
                self.roster.check(member_id, who.instance_id)
        except RequestRefusal as refusal:
            return refusal.answer.code
        self._remove_member(member_id, "left")
        return 0

    def check_commit(self, request: Commit, now: Instant) -> None:
        """Raise RequestRefusal for a commit that rules 3.6 reject; an accepted commit counts as a heartbeat."""
        self.check_alive()
        if request.generation < 0 and self.state is GroupState.EMPTY:
            return
        member = self.check(request.member_id, request.instance_id, request.generation)
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RequestRefusal(code.REBALANCE_IN_PROGRESS)
        member.start_session(now)

    # ---- the join phase ----

    @property
    def can_rebalance(self) -> bool:
        """Whether a new rebalance can begin: the group is not dead, and no join phase is running."""
        return self.state in {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}

    def prepare_or_complete(self, reason: str, now: Instant) -> None:
        """Begin a rebalance, or end the running join phase if all members have joined and no initial delay runs."""
        if self.can_rebalance:
            if self.state is not GroupState.EMPTY or self.roster.members:
                self.prepare(reason, now)
        elif self.initial_delay is None and self.roster.has_all_joined:
            self.complete_joins(now)

    def prepare(self, reason: str, now: Instant) -> None:
        """Begin a rebalance: waiting SyncGroups get REBALANCE_IN_PROGRESS, and every member must join again."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member in self.roster.members.values():
                member.assignment = None
                self._answer_sync(member, Refused(code.REBALANCE_IN_PROGRESS), now)
        self.pending_sync.clear()
        self.sync_ends_at = None
        is_initial = self.state is GroupState.EMPTY
        self.state = GroupState.PREPARING_REBALANCE
        self.happened.append(RebalanceBegan(generation=self.generation, reason=reason))
        timeout_s = self.roster.rebalance_timeout_s
        if is_initial:
            step_s = self.rules.initial_rebalance_delay_s
            self.initial_delay = InitialDelay(step_s, max(timeout_s - step_s, 0.0))
            self.join_ends_at = now + step_s
        elif self.roster.has_all_joined:
            self.complete_joins(now)
        else:
            self.join_ends_at = now + timeout_s

    def _end_join_phase(self, now: Instant) -> None:
        """End the join phase when its timer fires, or extend a first rebalance if a member joined and time is left."""
        delay = self.initial_delay
        if delay is None or not self.has_newcomer or delay.left_s == 0:
            self.complete_joins(now)
            return
        self.has_newcomer = False
        step_s = min(self.rules.initial_rebalance_delay_s, delay.left_s)
        self.initial_delay = InitialDelay(step_s, max(delay.left_s - delay.step_s, 0.0))
        self.join_ends_at = now + step_s

    def complete_joins(self, now: Instant) -> None:
        """End the join phase: remove dynamic members that did not join, and begin a generation with the others."""
        self.join_ends_at = self.initial_delay = None
        for member in [one for one in self.roster.members.values() if one.join is None and one.instance_id is None]:
            self.remove(member.member_id, "rebalance")
        if not self.roster.elect_joined_leader() and self.roster.members:
            # All members are static and no member has joined: they can join until their sessions end.
            self.join_ends_at = now + self.roster.rebalance_timeout_s
            return
        self.generation += 1
        if self.roster.members:
            self._begin_generation(now)
        else:
            self.state, self.assignor = GroupState.EMPTY, None
            self.write()
        self.happened.append(
            JoinsCompleted(
                generation=self.generation,
                members=tuple(self.roster.members),
                leader_id=self.roster.leader_id,
                assignor=self.assignor,
            )
        )

    def _begin_generation(self, now: Instant) -> None:
        self.state = GroupState.COMPLETING_REBALANCE
        self.assignor = self.roster.select_assignor()
        for member in self.roster.members.values():
            self.answer_join(member, self.joined(member))
            member.start_session(now)
            member.is_new = False
            self.pending_sync.add(member.member_id)
        self.sync_ends_at = now + self.roster.rebalance_timeout_s

    def joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> Joined:
        """Return the JoinGroup response of this generation for a member."""
        leads = member.member_id == self.roster.leader_id
        return Joined(
            member_id=member.member_id,
            generation=self.generation,
            assignor=self.assignor or "",
            leader_id=self.roster.leader_id or "",
            members=self.roster.members_for(self.assignor or "") if leads else (),
            skip_assignment=skip_assignment and leads,
        )

    # ---- responses and removals ----

    def answer_join(self, member: ClassicMember, answer: Answer) -> None:
        """Release this response to the member's JoinGroup if it has a waiting JoinGroup."""
        if member.join is not None:
            self.released.append(Released(member.join, answer))
            member.join = None

    def fence(self, member: ClassicMember) -> None:
        """Release FENCED_INSTANCE_ID to waiting requests of a member whose instance id another member has taken."""
        fenced = Refused(code.FENCED_INSTANCE_ID)
        self.answer_join(member, fenced)
        if member.sync is not None:
            self.released.append(Released(member.sync, fenced))
            member.sync = None

    def _answer_sync(self, member: ClassicMember, answer: Answer, now: Instant) -> None:
        if member.sync is not None:
            self.released.append(Released(member.sync, answer))
            member.sync = None
            member.start_session(now)

    def remove(self, member_id: str, reason: str) -> None:
        """Remove a member or a pending member id; this does not begin or complete a rebalance."""
        self.pending_sync.discard(member_id)
        if self.roster.remove(member_id) is not None:
            self.happened.append(Removed(member_id=member_id, reason=reason))

    def _remove_member(self, member_id: str, reason: str) -> None:
        """Remove a member and reject its waiting JoinGroup; a waiting SyncGroup gets no response, as at a broker."""
        member = self.roster.members.get(member_id)
        if member is not None:
            self.answer_join(member, Refused(code.UNKNOWN_MEMBER_ID))
        self.remove(member_id, reason)

    # ---- time ----

    def timers(self) -> Iterator[Timer]:
        """Yield the running timers."""
        for member in self.roster.members.values():
            if member.session_ends_at is not None:
                yield Timer(member.session_ends_at, TimerKind.SESSION, member.member_id)
        for member_id, at in self.roster.pending.items():
            yield Timer(at, TimerKind.SESSION, member_id)
        if self.join_ends_at is not None:
            yield Timer(self.join_ends_at, TimerKind.JOIN)
        if self.sync_ends_at is not None:
            yield Timer(self.sync_ends_at, TimerKind.SYNC)

    def fire(self, timer: Timer, now: Instant) -> None:
        """End the session or phase of this timer, whether the timer is due or not."""
        match timer.kind:
            case TimerKind.SESSION:
                self._end_session(timer.member_id, now)
            case TimerKind.JOIN:
                self._end_join_phase(now)
            case TimerKind.SYNC:
                self._end_sync_phase(now)
            case _:
                assert_never(timer.kind)

    def _end_session(self, member_id: str, now: Instant) -> None:
        member = self.roster.members.get(member_id)
        if member is not None and member.satisfies_heartbeat:
            member.session_ends_at = None
            return
        self._remove_member(member_id, "session")
        if self.state is GroupState.PREPARING_REBALANCE:
            # Unlike a leave, this also ends the delay of the first rebalance.
            if self.roster.has_all_joined:
                self.complete_joins(now)
        elif member is not None:
            self.prepare(f"removing member {member_id} on heartbeat expiration.", now)

    def _end_sync_phase(self, now: Instant) -> None:
        """Remove members, static or not, that sent no SyncGroup in time; the other members must join again.

        If a static member was replaced before its SyncGroup, the group still waits for the former id, as at a broker.
        """
        late = sorted(self.pending_sync)
        for member_id in late:
            self.remove(member_id, "sync")
        self.prepare(f"Removing {late} on pending sync request expiration", now)

    # ---- a new coordinator ----

    def write(self) -> None:
        """Write the current members and generation to the log, from which the next coordinator loads the group."""
        self.written = StoredGroup.of(self.roster, self.generation, self.assignor)

    def unload(self) -> None:
        """Make the group dead, as the broker is no longer its coordinator; waiting requests get NOT_COORDINATOR."""
        self.state = GroupState.DEAD
        for member in self.roster.members.values():
            for key in (member.join, member.sync):
                if key is not None:
                    self.released.append(Released(key, Refused(code.NOT_COORDINATOR)))
            member.join = member.sync = None

    def load(self, now: Instant) -> None:
        """Restore the last written record; sessions restart, and pending member ids are lost."""
        self.roster = self.written.roster(now)
        self.generation, self.assignor = self.written.generation, self.written.assignor
        self.state = GroupState.STABLE if self.roster.members else GroupState.EMPTY
        self.join_ends_at = self.initial_delay = self.sync_ends_at = None
        self.has_newcomer = False
        self.pending_sync = set()
        self.happened.append(Loaded(generation=self.generation, members=tuple(self.roster.members)))

    # ---- inspection ----

    @property
    def is_settled(self) -> bool:
        """Whether every member has its assignment, and no request or pending member id is left."""
        waits = any(member.join is not None or member.sync is not None for member in self.roster.members.values())
        return self.state is GroupState.STABLE and not (waits or self.pending_sync or self.roster.pending)

    def waiting(self) -> frozenset[Key]:
        """Return the keys of the requests that wait for a response."""
        keys = [key for member in self.roster.members.values() for key in (member.join, member.sync)]
        return frozenset(key for key in keys if key is not None)

    def key(self) -> Hashable:
        """Return the group's state as a hashable value."""
        phase = (self.state, self.generation, self.assignor, self.has_newcomer, self.initial_delay)
        times = (self.join_ends_at, self.sync_ends_at, frozenset(self.pending_sync))
        return (phase, times, self.roster.key(), frozenset(self.committed.items()), self.written, self.ids_made)
