"""The invariants of all processes together and of timing, checked at every step.

`process_invariants` contains the invariants of a single process.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.membership.classic.exchanges import SendClassicHeartbeat, SendSync
from consumer_membership.membership.consumer.claim import NEWEST_FOR_S
from consumer_membership.membership.effects import (
    DescribeGroup,
    InstanceReleased,
    LeaveCompleted,
    PausePartitions,
    SendHeartbeat,
    StateChanged,
    StepEffect,
)
from consumer_membership.membership.events import LeaveRequested, TimePassed
from consumer_membership.membership.leave import LEAVE_ANSWER_S
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.exchanges import Answer, Joined, Synced
from consumer_membership.testing.coordinators.journal import CommitAccepted, JoinsCompleted, Loaded, Removed, Replaced
from consumer_membership.testing.coordinators.member_requests import MemberOrder
from consumer_membership.testing.coordinators.rules import Granted
from consumer_membership.types import JOIN_EPOCH, ConflictPolicy, Instant, Offsets, TopicIdPartition, TopicPartition
from tests.simulation import internals
from tests.simulation.hand_overs import HandOvers
from tests.simulation.process_invariants import ProcessInvariants, Violation, check

if TYPE_CHECKING:
    from tests.simulation.network import Exchange
    from tests.simulation.process import Process
    from tests.simulation.simulation import Simulation

#: The limit of heartbeats per member and second, without leaves. Quick heartbeats are sent every 0.2 s, and each change
#: may add a heartbeat.
MOST_HEARTBEATS_PER_S = 20
#: The limit of group descriptions per member and second. A member that waits for an instance id describes its group
#: every 32 ms at most.
MOST_DESCRIPTIONS_PER_S = 32
#: The limit of group descriptions per member and second while the holder releases its instance id: a description
#: every 2 ms.
MOST_DESCRIPTIONS_OF_RELEASES_PER_S = 501
#: The longest duration of callbacks in a random run. Scenarios may set longer callbacks.
SLOWEST_CALLBACK_S = 2.0
#: The limit of timer events that a member receives at one moment.
MOST_WAKES_AT_ONCE = 5


#: The states in which the application receives no records: the member has lost or revoked its partitions.
_HANDS_OUT_NOTHING = frozenset(
    {
        MemberState.UNSUBSCRIBED,
        MemberState.UNSUBSCRIBING,
        MemberState.FENCED,
        MemberState.STALE,
        MemberState.FATAL,
    }
)


class Ledger:
    """The fake log: it counts the deliveries of each record of each partition."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.counts: dict[TopicIdPartition, list[int]] = defaultdict(list)
        self._prefix: dict[TopicIdPartition, int] = defaultdict(int)

    def deliver(self, partition: TopicPartition, position: int, count: int) -> None:
        """Count records as delivered, from this position on."""
        counts = self.counts[self._simulation.by_id(partition)]
        if len(counts) < position + count:
            counts.extend([0] * (position + count - len(counts)))
        for offset in range(position, position + count):
            counts[offset] += 1

    def end(self, partition: TopicPartition) -> int:
        """Return the offset after the last delivered record."""
        return len(self.counts[self._simulation.by_id(partition)])

    def prefix(self, partition: TopicPartition) -> int:
        """Return the offset before which every record was delivered at least once."""
        key = self._simulation.by_id(partition)
        counts, prefix = self.counts[key], self._prefix[key]
        while prefix < len(counts) and counts[prefix]:
            prefix += 1
        self._prefix[key] = prefix
        return prefix

    @property
    def repeated(self) -> int:
        """How many records were delivered more than once."""
        return sum(1 for counts in self.counts.values() for count in counts if count > 1)


@dataclass(slots=True)
class _Record:
    """The state of one process that the invariants of all processes need, and the invariants of that process."""

    invariants: ProcessInvariants = field(default_factory=ProcessInvariants)
    #: Partitions whose on_assign has returned, and whose on_revoke or on_lost has not been called.
    open: set[TopicPartition] = field(default_factory=set)
    heartbeats: deque[Instant] = field(default_factory=deque)
    descriptions: deque[Instant] = field(default_factory=deque)
    heartbeat_count: int = 0
    wakes: tuple[Instant, int] = (0.0, 0)
    leave_since: Instant | None = None
    #: For each subscription time of this process and each holder that it released: when the application of the holder
    #: had subscribed before the first release.
    taken_over: dict[tuple[Instant, str], Instant] = field(default_factory=dict)


class Invariants:
    """Checks every step of a simulation; raises Violation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._records: dict[Process, _Record] = {}
        self._committed: dict[TopicPartition, int] = {}
        #: The request id of the newest heartbeat that arrived from each process, including ended processes.
        self._arrived: dict[str, int] = {}
        self.state_changes: deque[tuple[Instant, Process]] = deque(maxlen=200)
        self.handovers = 0
        self.hand_overs = HandOvers(simulation)

    # ---- processes ----

    def started(self, process: Process) -> None:
        """Register a process that started."""
        self._records[process] = _Record()

    def ended_process(self, process: Process, *, cleanly: bool) -> None:
        """Remove a process that ended; if it ended cleanly, check that its callbacks ran for all partitions."""
        record = self._records.pop(process)
        self._simulation.handler_invariants.forget(process)
        if cleanly:
            check(not record.open, f"{process.name} ended without on_revoke or on_lost for {sorted(record.open)}")

    def heartbeats_of(self, process: Process) -> int:
        """Return the number of heartbeats that a process has sent, without leaves."""
        return self._records[process].heartbeat_count

    def is_excused(self, process: object) -> bool:
        """Return whether other processes may hold this process's partitions without its knowledge."""
        return any(record.invariants.is_excused for one, record in self._records.items() if one is process)

    # ---- the application ----

    def assigned(self, process: Process, partitions: AbstractSet[TopicPartition]) -> None:
        """Record that on_assign returned for these partitions."""
        record = self._records[process]
        doubled = record.open & partitions
        check(not doubled, f"{process.name}: on_assign for {sorted(doubled)}, which it holds already")
        record.open |= partitions

    def ended(self, process: Process, partitions: AbstractSet[TopicPartition], callback: str) -> None:
        """Record that the last call of on_revoke or on_lost for these partitions was made."""
        record = self._records[process]
        strange = partitions - record.open
        check(not strange, f"{process.name}: {callback} for {sorted(strange)}, which it does not hold")
        record.open -= partitions
        self.handovers += len(partitions)

    def holdings_changed(self) -> None:
        """Check that no partition is fetchable by two processes, unless one of them is excused."""
        owners: dict[TopicPartition, Process] = {}
        for process, record in self._records.items():
            if record.invariants.is_excused:
                continue
            for partition in process.application.held.keys() - process.application.frozen:
                other = owners.setdefault(partition, process)
                if other is not process:
                    raise Violation(f"{partition} is fetchable by {other.name} and {process.name}")

    def performed(self, process: Process, step: StepEffect) -> None:
        """Record that the application performed a step; its member has not received the result yet."""
        if not isinstance(step, PausePartitions):
            self._records[process].invariants.history.append(frozenset(process.application.held))

    def commit_completed(self, process: Process, commit_id: int, pending: AbstractSet[int]) -> None:
        """Check that each commit of the application completes exactly once."""
        check(commit_id in pending, f"{process.name}: commit {commit_id} completed, but it is not pending")

    # ---- the coordinator ----

    def arrived(self, exchange: Exchange) -> None:
        """Check that no heartbeat, join or leave arrives after a later request of the same process."""
        order, sender = exchange.order, exchange.connection.sender
        if isinstance(order, SendHeartbeat):
            before = self._arrived.get(sender, 0)
            message = f"{sender}: request {order.request_id} was overtaken by request {before}"
            check(order.request_id > before, message)
            self._arrived[sender] = order.request_id

    def coordinator_acted(self, order: MemberOrder, answer: Answer | None) -> None:
        """End the excuse of a member whose handled request gives it partitions again."""
        match order, answer:
            case SendHeartbeat(heartbeat=heartbeat), Granted() if heartbeat.member_epoch == JOIN_EPOCH:
                self.hand_overs.joined(heartbeat.instance_id or "", heartbeat.member_id)
                for process, invariants in self._of(heartbeat.member_id):
                    if process.state is MemberState.JOINING:
                        invariants.is_excused = False
            case SendSync(), Synced():
                for _, invariants in self._of(order.member_id):
                    invariants.is_confirmed = True
            case _:
                pass

    def read_journal(self, answers: Iterable[Answer | None] = ()) -> None:
        """Read the actions of the coordinator and their answers: excuse removed members, and check commits."""
        joined = {answer.member_id for answer in answers if isinstance(answer, Joined)}
        journal = self._simulation.coordinator.journal
        while journal:
            match journal.popleft():
                case Removed(member_id=member_id, reason=reason):
                    if reason == "session":
                        self._session_ended(member_id)
                    if reason != "left for a while" or self._was_released_by_another(member_id):
                        self._excuse(member_id)
                case Replaced(former_id=member_id):
                    self._excuse(member_id)
                case JoinsCompleted(members=members):
                    # The new generation begins without static members that did not join in time.
                    for member_id in set(members) - joined:
                        self._excuse(member_id)
                case Loaded(members=members):
                    for process, record in self._records.items():
                        if internals.member_id(process.member) not in members:
                            record.invariants.excuse()
                case CommitAccepted(member_id=member_id, offsets=offsets):
                    self._committed_offsets(member_id, offsets)
                    self._simulation.handler_invariants.committed(offsets)
                case _:
                    pass

    def _was_released_by_another(self, member_id: str) -> bool:
        """Return whether a process that takes over the instance id sent the leave, unknown to the member.

        The coordinator immediately assigns the partitions that the member had to revoke (KIP-848, a leave with epoch
        -2).
        """
        return any(process.state is not MemberState.UNSUBSCRIBING for process, _ in self._of(member_id))

    def _of(self, member_id: str) -> Iterable[tuple[Process, ProcessInvariants]]:
        return [
            (one, record.invariants)
            for one, record in self._records.items()
            if internals.member_id(one.member) == member_id
        ]

    def _session_ended(self, member_id: str) -> None:
        """Check that a member delivers no records when its session ends and its partitions move to other members."""
        for process, _ in self._of(member_id):
            view, now = process.view, self._simulation.now
            # Until a member knows the session timeout, it assumes Kafka's default, which is longer than the timeout of
            # a simulation.
            is_over = view.lease_until is not None and (view.lease_until <= now or view.is_session_assumed)
            is_in_group = process.alive and view.state not in _HANDS_OUT_NOTHING
            check(
                is_over or not view.owned or not is_in_group,
                f"{process.name}: its session ended, but it delivers {sorted(view.owned)} until {view.lease_until}",
            )

    def _excuse(self, member_id: str) -> None:
        for _, invariants in self._of(member_id):
            invariants.excuse()

    def _committed_offsets(self, member_id: str, offsets: Offsets) -> None:
        for partition, at in offsets.items():
            prefix = self._simulation.ledger.prefix(partition)
            if at.offset > prefix:
                raise Violation(
                    f"{member_id} committed {at.offset} of {partition}, beyond the delivered offset {prefix}"
                )
            before = self._committed.get(partition, 0)
            if at.offset < before:
                raise Violation(f"{member_id} committed {at.offset} of {partition} after {before}: backwards")
            self._committed[partition] = at.offset

    def forget_topic(self, name: str) -> None:
        """Remove the committed offsets of a deleted topic."""
        for partition in [p for p in self._committed if p.topic == name]:
            del self._committed[partition]

    # ---- the member ----

    def about_to_handle(self, process: Process, event: GroupEvent) -> None:
        """Check an event that the core is about to handle."""
        record = self._records[process]
        record.invariants.take(process, event)
        self.hand_overs.about_to_handle(process, event)
        match event:
            case TimePassed():
                at, count = record.wakes
                count = count + 1 if at == self._simulation.now else 1
                record.wakes = (self._simulation.now, count)
                check(count <= MOST_WAKES_AT_ONCE, f"{process.name} wants to be woken again and again: a busy loop")
            case LeaveRequested():
                record.leave_since = self._simulation.now
            case _:
                pass

    def handled(self, process: Process, old: MemberState, effects: tuple[GroupEffect, ...]) -> None:
        """Check the effects of an event that the core handled."""
        record = self._records[process]
        record.invariants.handled(process, old, effects)
        self.hand_overs.handled(process, effects, is_newest=record.invariants.is_newest)
        for effect in effects:
            match effect:
                case StateChanged():
                    self.state_changes.append((self._simulation.now, process))
                case SendHeartbeat(heartbeat=heartbeat) if not heartbeat.is_leave or heartbeat.owned is None:
                    record.heartbeat_count += not heartbeat.is_leave
                    self._count(process, record.heartbeats, MOST_HEARTBEATS_PER_S, "sent {} heartbeats")
                    if heartbeat.is_leave:
                        self._asked_later_s(process, heartbeat.member_id)
                case SendClassicHeartbeat():
                    record.heartbeat_count += 1
                    self._count(process, record.heartbeats, MOST_HEARTBEATS_PER_S, "sent {} heartbeats")
                case DescribeGroup():
                    is_asking = process.settings.conflict_policy is ConflictPolicy.HAND_OVER
                    most = MOST_DESCRIPTIONS_OF_RELEASES_PER_S if is_asking else MOST_DESCRIPTIONS_PER_S
                    self._count(process, record.descriptions, most, "described its group {} times")
                case LeaveCompleted():
                    self._leave_completed(process, record)
                case InstanceReleased(holder=holder):
                    self._took_over(process, holder.member_id)
                case _:
                    pass

    def _took_over(self, process: Process, holder: str) -> None:
        """Check that a member takes over only from permitted holders.

        With TAKEOVER_WHEN_DEAD the process of the holder must be dead. With the other policies the application of the
        holder must not have subscribed more than `NEWEST_FOR_S` later than the application of the member, unless the
        process of the holder started earlier.

        A released holder may come back before the new member has joined: a heartbeat was in flight, or its application
        subscribes again. The same join then releases it again. Only the first release is compared.
        """
        if process.settings.conflict_policy is ConflictPolicy.TAKEOVER_WHEN_DEAD:
            is_alive = not self._simulation.has_proof_of_death(holder)
            check(not is_alive, f"{process.name} takes over from {holder}, whose process is alive")
            return
        later_s = self._asked_later_s(process, holder)
        message = f"{process.name} takes over from {holder}, which asked {later_s:.1f} s later"
        held_by = self._process_of(holder)
        is_older = held_by is not None and held_by.started_at < process.started_at
        check(later_s <= NEWEST_FOR_S or is_older, message)

    def _process_of(self, member_id: str) -> Process | None:
        return next((one for one in self._simulation.processes if member_id in one.member_ids), None)

    def _asked_later_s(self, process: Process, holder: str) -> float:
        """Return how many seconds later than this process the holder had subscribed before it was first released."""
        taken_over = self._records[process].taken_over
        held_by = self._process_of(holder)
        asked_at = process.asked_at if held_by is None else held_by.asked_at
        return taken_over.setdefault((process.asked_at, holder), asked_at) - process.asked_at

    def _leave_completed(self, process: Process, record: _Record) -> None:
        """Check that leaving takes bounded time.

        It may wait for a commit before and a commit after on_revoke, other commits in flight, callbacks, and the answer
        to the leave.
        """
        since, behavior = record.leave_since, process.application.behavior
        record.leave_since = None
        if since is not None:
            took, callbacks = self._simulation.now - since, 2 * max(behavior.callback_s, SLOWEST_CALLBACK_S)
            most = 2 * process.settings.leave_timeout_s + behavior.commit_timeout_s + callbacks + LEAVE_ANSWER_S
            check(took <= most, f"{process.name} took {took:.1f} s to leave")

    def _count(self, process: Process, moments: deque[Instant], most: int, did: str) -> None:
        now = self._simulation.now
        moments.append(now)
        while moments[0] <= now - 1.0:
            moments.popleft()
        check(len(moments) <= most, f"{process.name} {did.format(len(moments))} within a second")
