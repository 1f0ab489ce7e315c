"""What must hold after every step, whatever goes wrong.

**Which overlaps KIP-848 permits.** Two processes may hold the same partition only while the membership of one of them
is over without its knowledge or without its application's: the coordinator removed it (session or rebalance timeout,
an administrator) or let another member id take its instance id's place, or it left because its application does not
poll (STALE). Such a process is *excused* from that moment until it joins anew, and by then it must hold nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitCompleted,
    CommitOffsets,
    Effect,
    FindCoordinator,
    Heartbeat,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    SendHeartbeat,
    StateChanged,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    Event,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    LeaveRequested,
    Step,
    StepFinished,
    TimePassed,
)
from consumer_membership.membership.parts import LEAVE_ANSWER_S
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.types import JOIN_EPOCH, Assignment, Instant, Offsets, TopicIdPartition, TopicPartition
from tests.simulation.coordinator import Committed, Removed
from tests.simulation.rules import Granted, Refused
from tests.support.members import ClassicMember, Member

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

_S = MemberState

#: Ordinary heartbeats of one member within one second; quick ones come every 0.2 s, and each change may add one.
MOST_HEARTBEATS_PER_S = 20
#: The longest that a run's callbacks take; longer ones are a scenario's own.
SLOWEST_CALLBACK_S = 2.0
#: How often a member may be told, at one moment, that time has passed.
MOST_WAKES_AT_ONCE = 5
_STEPS = (PausePartitions, RevokePartitions, LosePartitions, AssignPartitions)
_ENDS_MEMBERSHIP = frozenset({_S.FENCED, _S.STALE, _S.UNSUBSCRIBED, _S.FATAL})
#: The only refusals in a simulation that waiting, rejoining or asking elsewhere does not mend.
_FATAL = frozenset({"UNRELEASED_INSTANCE_ID", "FENCED_INSTANCE_ID", "GROUP_MAX_SIZE_REACHED", "UNKNOWN_MEMBER_ID"})
_KIND: dict[type[Effect], Step] = {
    PausePartitions: Step.PAUSE,
    RevokePartitions: Step.REVOKE,
    LosePartitions: Step.LOSE,
    AssignPartitions: Step.ASSIGN,
}


class Violation(AssertionError):  # noqa: N818 - what it is called
    """An invariant does not hold."""


def check(holds: bool, words: str) -> None:  # noqa: FBT001 - it is what the call is about
    """Raise a Violation with these words unless it holds."""
    if not holds:
        raise Violation(words)


def check_outsider(member: Member | ClassicMember, name: str) -> None:
    """Who is not in the group has no epoch to show, and owns nothing."""
    if member.shown in SILENT:
        epoch = member.identity.member_epoch
        check(epoch <= JOIN_EPOCH, f"{name} is {member.shown} and shows epoch {epoch}")
        check(not member.ownership.owned, f"{name} is {member.shown} and owns {member.ownership.held}")


class Ledger:
    """The fake log: how often each record of each partition was handed out, and up to where without a gap."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.counts: dict[TopicIdPartition, list[int]] = defaultdict(list)
        self._prefix: dict[TopicIdPartition, int] = defaultdict(int)

    def deliver(self, partition: TopicPartition, position: int, count: int) -> None:
        """Hand out records from this position on."""
        counts = self.counts[self._world.by_id(partition)]
        if len(counts) < position + count:
            counts.extend([0] * (position + count - len(counts)))
        for offset in range(position, position + count):
            counts[offset] += 1

    def prefix(self, partition: TopicPartition) -> int:
        """Up to which offset every record was handed out at least once."""
        key = self._world.by_id(partition)
        counts, prefix = self.counts[key], self._prefix[key]
        while prefix < len(counts) and counts[prefix]:
            prefix += 1
        self._prefix[key] = prefix
        return prefix

    @property
    def repeated(self) -> int:
        """How many records were handed out more than once."""
        return sum(1 for counts in self.counts.values() for count in counts if count > 1)


@dataclass(slots=True)
class _Record:
    """What the invariants remember of one process."""

    is_excused: bool = False
    #: What the member was told that the application holds.
    told: set[TopicPartition] = field(default_factory=set)
    #: Partitions after on_assign and before their on_revoke or on_lost.
    open: set[TopicPartition] = field(default_factory=set)
    in_flight: int | None = None
    beats: deque[Instant] = field(default_factory=deque)
    beat_count: int = 0
    step: tuple[int, Step] | None = None
    paused: set[TopicPartition] | None = None
    owed_commit: Offsets | None = None
    is_searching: bool = False
    wakes: tuple[Instant, int] = (0.0, 0)
    leave_since: Instant | None = None
    #: Whether the application itself made it join and it was not let in yet, and whom it released in this join.
    is_newest: bool = False
    released: set[str] = field(default_factory=set)


class Invariants:
    """Looks at everything that happens in a world, and raises Violation."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._records: dict[Process, _Record] = {}
        self._committed: dict[TopicPartition, int] = {}
        self.state_changes: deque[tuple[Instant, Process]] = deque(maxlen=200)
        self.handovers = 0

    # ---- processes ----

    def started(self, process: Process) -> None:
        """A process started."""
        self._records[process] = _Record()

    def ended_process(self, process: Process, *, cleanly: bool) -> None:
        """A process ended."""
        record = self._records.pop(process)
        if cleanly:
            check(not record.open, f"{process.name} ended without on_revoke or on_lost for {sorted(record.open)}")

    def beats_of(self, process: Process) -> int:
        """How many ordinary heartbeats a process has sent."""
        return self._records[process].beat_count

    # ---- the application ----

    def assigned(self, process: Process, partitions: AbstractSet[TopicPartition]) -> None:
        """on_assign returned for these."""
        record = self._records[process]
        doubled = record.open & partitions
        check(not doubled, f"{process.name}: on_assign for {sorted(doubled)}, which it holds already")
        record.open |= partitions

    def ended(self, process: Process, partitions: AbstractSet[TopicPartition], callback: str) -> None:
        """on_revoke or on_lost was called for the last time for these."""
        record = self._records[process]
        strange = partitions - record.open
        check(not strange, f"{process.name}: {callback} for {sorted(strange)}, which it does not hold")
        record.open -= partitions
        self.handovers += len(partitions)

    def holdings_changed(self) -> None:
        """No partition is fetchable by two processes, except where one is excused."""
        owners: dict[TopicPartition, Process] = {}
        for process, record in self._records.items():
            if record.is_excused:
                continue
            for partition in process.application.held.keys() - process.application.frozen:
                other = owners.setdefault(partition, process)
                if other is not process:
                    raise Violation(f"{partition} is fetchable by {other.name} and {process.name}")

    def commit_completed(self, process: Process, commit_id: int, pending: AbstractSet[int]) -> None:
        """A commit of the application's own ends exactly once."""
        check(commit_id in pending, f"{process.name}: commit {commit_id} ended, and nobody waits for it")

    # ---- the coordinator ----

    def coordinator_acted(self, process: Process, beat: Heartbeat, answer: Granted | Refused) -> None:
        """A heartbeat was handled by the coordinator."""
        self.look_into_journal()
        if isinstance(answer, Granted) and beat.member_epoch == JOIN_EPOCH and process in self._records:
            record = self._records[process]
            if beat.member_id == process.member.member_id and process.member.state is _S.JOINING:
                record.is_excused = False

    def look_into_journal(self) -> None:
        """Take in what the coordinator did: removals excuse, commits are looked at."""
        journal = self._world.coordinator.journal
        while journal:
            match journal.popleft():
                case Removed(member_id=member_id, reason=reason):
                    self._removed(member_id, reason)
                case Committed(member_id=member_id, offsets=offsets):
                    self._committed_offsets(member_id, offsets)

    def _removed(self, member_id: str, reason: str) -> None:
        if reason == "left for a while":
            return
        for process, record in self._records.items():
            if process.member.member_id == member_id:
                record.is_excused = True

    def _committed_offsets(self, member_id: str, offsets: Offsets) -> None:
        for partition, at in offsets.items():
            prefix = self._world.ledger.prefix(partition)
            if at.offset > prefix:
                raise Violation(f"{member_id} committed {at.offset} of {partition}, delivered is {prefix}")
            before = self._committed.get(partition, 0)
            if at.offset < before:
                raise Violation(f"{member_id} committed {at.offset} of {partition} after {before}: backwards")
            self._committed[partition] = at.offset

    def forget_topic(self, name: str) -> None:
        """A topic was deleted, and what was committed of it."""
        for partition in [p for p in self._committed if p.topic == name]:
            del self._committed[partition]

    # ---- the member ----

    def handled(self, process: Process, event: Event, old: MemberState, effects: tuple[Effect, ...]) -> None:
        """The core handled an event."""
        record = self._records[process]
        self._take_event(process, record, event)
        check_outsider(process.member, process.name)
        state = old
        for number, effect in enumerate(effects):
            match effect:
                case StateChanged():
                    state = effect.new
                    self._changed(process, record, effect)
                case SendHeartbeat():
                    self._sent(process, record, effect, state, effects[number + 1 :])
                case FindCoordinator():
                    check(not record.is_searching, f"{process.name}: two searches for the coordinator at once")
                    record.is_searching = True
                case CommitCompleted():
                    if record.owed_commit is not None and effect.offsets == record.owed_commit:
                        record.owed_commit = None
                case PausePartitions() | RevokePartitions() | LosePartitions() | AssignPartitions():
                    self._ordered(process, record, effect)
                case LeaveCompleted():
                    self._leave_completed(process, record)
                case CommitOffsets():
                    check(effect.offsets != {}, f"{process.name}: a commit of nothing")
                case _:
                    pass

    def _take_event(self, process: Process, record: _Record, event: Event) -> None:
        match event:
            case StepFinished():
                if record.step == (event.attempt, event.step):
                    record.step = None
                self._step_finished(process, record, event)
            case HeartbeatAnswered() | HeartbeatRejected() | HeartbeatFailed():
                if event.request_id == record.in_flight:
                    record.in_flight = None
            case CoordinatorFound():
                record.is_searching = False
            case TimePassed():
                at, count = record.wakes
                count = count + 1 if at == self._world.now else 1
                record.wakes = (self._world.now, count)
                check(count <= MOST_WAKES_AT_ONCE, f"{process.name} wants to be woken again and again: a busy loop")
            case LeaveRequested():
                record.leave_since = self._world.now
            case _:
                pass

    def _step_finished(self, process: Process, record: _Record, event: StepFinished) -> None:
        application = process.application
        match event.step:
            case Step.PAUSE:
                member = process.member
                is_current = event.attempt == member.reconciler.attempt
                if event.offsets and is_current and member.state in (_S.RECONCILE, _S.UNSUBSCRIBING):
                    record.owed_commit = event.offsets
            case Step.REVOKE | Step.LOSE | Step.ASSIGN:
                record.told = set(application.history.popleft())

    def _leave_completed(self, process: Process, record: _Record) -> None:
        """Leaving is bounded: a commit before and one after on_revoke, others under way, callbacks, the answer."""
        since, habits = record.leave_since, process.application.habits
        record.leave_since = None
        if since is not None:
            took, callbacks = self._world.now - since, 2 * max(habits.callback_s, SLOWEST_CALLBACK_S)
            most = 2 * process.settings.leave_timeout_s + habits.commit_timeout_s + callbacks + LEAVE_ANSWER_S
            check(took <= most, f"{process.name} took {took:.1f} s to leave")

    def _changed(self, process: Process, record: _Record, effect: StateChanged) -> None:
        self.state_changes.append((self._world.now, process))
        if effect.new in _ENDS_MEMBERSHIP:
            record.in_flight = None
            record.owed_commit = None
            record.step = None
        if effect.new is _S.RECONCILE:
            record.is_newest = False
        if effect.new is _S.UNSUBSCRIBING:
            record.owed_commit = None
            record.step = None
        if effect.new is _S.STALE:
            record.is_excused = True
        if effect.new is _S.FATAL:
            error = process.member.last_error
            name = error.name if error is not None else None
            check(name in _FATAL, f"{process.name} gives up for good: {effect.reason}")
        if effect.new is _S.JOINING:
            held = sorted(process.application.held)
            check(not held, f"{process.name} joins anew while its application holds {held}")
            record.is_excused = False
            record.is_newest |= effect.old in (_S.UNSUBSCRIBED, _S.FATAL)
            record.released.clear()

    def _ordered(
        self,
        process: Process,
        record: _Record,
        effect: PausePartitions | RevokePartitions | LosePartitions | AssignPartitions,
    ) -> None:
        """Pause, commit, on_revoke, and one step of an attempt at a time."""
        if record.step is not None:
            check(record.step[0] < effect.attempt, f"{process.name}: {effect} while step {record.step} runs")
        record.step = (effect.attempt, _KIND[type(effect)])
        match effect:
            case PausePartitions():
                record.paused = set(process.application.held if effect.partitions is None else effect.partitions)
                record.owed_commit = None
            case RevokePartitions():
                check(record.paused is not None, f"{process.name}: revocation without a pause before it")
                names = effect.partitions
                check(
                    names is None or names <= (record.paused or set()),
                    f"{process.name}: {names} is revoked and {record.paused} was paused",
                )
                owed = record.owed_commit
                check(owed is None, f"{process.name}: revocation before the commit of {owed} was over")
                record.paused = None
            case LosePartitions():
                record.paused = record.owed_commit = None
            case AssignPartitions():
                pass

    def _sent(
        self, process: Process, record: _Record, effect: SendHeartbeat, state: MemberState, rest: tuple[Effect, ...]
    ) -> None:
        beat, name = effect.heartbeat, process.name
        if beat.is_leave:
            self._left(process, record, beat, state, rest)
            return
        check(state not in SILENT, f"{name} sends a heartbeat in state {state}")
        check(record.in_flight is None, f"{name} sends heartbeat {effect.request_id} while {record.in_flight} is out")
        record.in_flight = effect.request_id
        record.beat_count += 1
        self._count(process, record)
        if beat.member_epoch == JOIN_EPOCH:
            check(beat.is_full and beat.owned == frozenset(), f"{name} joins with {beat}")
        elif beat.owned is not None:
            said, held = self._names(process, beat.owned), process.application.held.keys()
            check(held <= said, f"{name} says that it owns {sorted(said)}, and its application holds {sorted(held)}")
            extra = said - record.told
            check(state is not _S.ACK or not extra, f"{name} acknowledges {sorted(extra)}, which it has not taken over")

    def _count(self, process: Process, record: _Record) -> None:
        now, beats = self._world.now, record.beats
        beats.append(now)
        while beats[0] <= now - 1.0:
            beats.popleft()
        check(len(beats) <= MOST_HEARTBEATS_PER_S, f"{process.name} sent {len(beats)} heartbeats within a second")

    def _left(
        self, process: Process, record: _Record, beat: Heartbeat, state: MemberState, rest: tuple[Effect, ...]
    ) -> None:
        if beat.owned is None:
            # On behalf of the member's own ghost, or of a holder; the answer is waited for like that of any heartbeat.
            check(state is _S.JOINING, f"{process.name} releases {beat} in state {state}")
            self._released(process, record, beat)
            self._count(process, record)
            return
        goes_stale = any(isinstance(effect, StateChanged) and effect.new is _S.STALE for effect in rest)
        check(state is _S.UNSUBSCRIBING or goes_stale, f"{process.name} sends a leave in state {state}")
        if state is _S.UNSUBSCRIBING:
            check(not record.told, f"{process.name} leaves before its application gave up {sorted(record.told)}")

    def _released(self, process: Process, record: _Record, beat: Heartbeat) -> None:
        """A takeover: from one holder in a join that the application asked for, never by who may be the older one."""
        if beat.member_id in process.member_ids:
            return
        record.released.add(beat.member_id)
        check(record.is_newest, f"{process.name} takes over from {beat.member_id} although it was in the group before")
        check(len(record.released) == 1, f"{process.name} takes over again and again: {sorted(record.released)}")
        check(not process.settings.instance_pool, f"{process.name} takes an id of the pool from {beat.member_id}")

    def _names(self, process: Process, partitions: Assignment) -> set[TopicPartition]:
        names = process.member.ownership.names
        return {TopicPartition(names[p.topic_id], p.partition) for p in partitions}
