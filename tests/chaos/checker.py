"""Check a history: which rules of a consumer group the round broke, and the figures of the round.

The checker does no I/O: it receives entries in the order of their times, and returns a verdict. Each rule is sound: it
reports only events that no correct member could have caused, whatever the faults were. If a line that was written late
could explain an event (for example, a commit was acknowledged after the next owner began), the rule does not report it.

A process is the owner of a partition from its `Assigned` to its `Revoked`, `Lost` or `Closed`. The committed offset of
an ownership is the highest offset whose commit was acknowledged before the ownership began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from tests.chaos import history as h
from tests.chaos.history import Entry, Partition

_S = 1_000_000_000
#: `health()` must not return "consuming" if a partition with unread records has had no progress for this long.
FALSE_CONSUMING_NS = 30 * _S
#: A member that received records both within this time before a sample and within this time after it needs no restart.
ALIVE_NS = 2 * _S
#: If the last statement of a member is older than this at the end, the member is not alive at the end.
RECENT_NS = 5 * _S
#: The possible health verdicts of a member whose group has consumed all records.
_STEADY_VERDICTS = frozenset({"consuming", "idle", "paused", None})


_FAULTS = (h.FaultBegan, h.Killed, h.Evicted, h.OffsetsReset, h.Recreated)


class Rule(StrEnum):
    """The rules that a history may break.

    Attributes:
        LOST: No member of a group received an acknowledged record.
        SKIPPED: An owner received a record before an earlier uncommitted record of the partition, which it skipped.
        REPEATED: An owner received a record whose commit was acknowledged before the partition was assigned, or it
            received a record twice during one ownership. In a round without faults also: an owner received a record
            that the previous owner received, although the previous owner commits automatically and the partition was
            revoked from it, not lost.
        ORDER: Records of a partition (processor: of a key) were received in another order than they were produced.
        NOT_OWNED: A member received a record of a partition that it does not own.
        COMMIT_UNREAD: A commit beyond the received records (processor: beyond the finished records) was acknowledged.
        COMMIT_NOT_OWNED: A member committed a partition that it does not own, and the commit was acknowledged.
        OFFSETS_BACK: A committed offset decreased.
        OWNERS_BY_EPOCH: A partition was assigned before the lease of its owner ended, and the owner claimed, used or
            revoked the partition afterwards. Or a partition was assigned at an epoch that is not newer than the epoch
            of its previous owner.
        OWNERS_BY_LEASE: A member with leases received a record after its lease ended, or after a newer owner had
            received its first record.
        TRANSACTIONS: A source record has no result, or several results, in the output of transactions.
        STATEMENT: A sample of `membership()` or `health()` was false, or a lease was longer than a session.
        NOT_SETTLED: After the faults, the group did not consume all records, or it did not reach a steady state.
    """

    LOST = "lost"
    SKIPPED = "skipped"
    REPEATED = "repeated"
    ORDER = "order"
    NOT_OWNED = "not owned"
    COMMIT_UNREAD = "commit unread"
    COMMIT_NOT_OWNED = "commit not owned"
    OFFSETS_BACK = "offsets back"
    OWNERS_BY_EPOCH = "owners by epoch"
    OWNERS_BY_LEASE = "owners by lease"
    TRANSACTIONS = "transactions"
    STATEMENT = "statement"
    NOT_SETTLED = "not settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken rule, with the time and the process that broke it (empty: no single process broke it)."""

    rule: Rule
    at_ns: int
    process: str
    text: str

    def __str__(self) -> str:
        return f"{self.at_ns / _S:.3f} {self.process}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a round.

    `records` counts acknowledged records, `received` counts received records including repeats, and `repeated` counts
    repeats, also allowed ones. `worst_stall_s` is the longest time in which a partition had unread records and its
    group received none of them. `overlap_s` is the longest time from the first record of a newer owner to the last
    record of an older owner.
    """

    records: int = 0
    received: int = 0
    lost: int = 0
    repeated: int = 0
    hand_overs: int = 0
    worst_stall_s: float = 0.0
    overlap_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result for one history. `client_of` has the client library of each process, because rounds mix clients."""

    violations: tuple[Violation, ...]
    figures: Figures
    client_of: dict[str, str]

    @property
    def rules(self) -> frozenset[Rule]:
        """The broken rules."""
        return frozenset(violation.rule for violation in self.violations)


def check(entries: Iterable[Entry]) -> Verdict:
    """Check the entries of a round."""
    checker = _Checker(tuple(entries))
    checker.run()
    return Verdict(
        violations=tuple(sorted(checker.violations, key=lambda violation: violation.at_ns)),
        figures=checker.figures(),
        client_of={name: process.started.client for name, process in checker.processes.items()},
    )


# ---- the state of the pass over the entries ----


@dataclass(slots=True)
class _Ownership:
    """The ownership of one partition by one process."""

    process: str
    partition: Partition
    epoch: int
    began_ns: int
    #: The highest acknowledged commit when the ownership began.
    committed: int
    member_id: str | None
    ended_ns: float = inf
    was_lost: bool = False
    first_ns: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    next_by_key: dict[str | None, int] = field(default_factory=dict)

    def is_newer_than(self, other: _Ownership) -> bool:
        """Whether this ownership of the partition is newer than the other one."""
        if self.epoch >= 0 and other.epoch >= 0:
            return self.epoch > other.epoch
        return self.began_ns > other.began_ns


@dataclass(slots=True)
class _Process:
    """A member process."""

    name: str
    started: h.Started
    instance_id: str | None
    owned: dict[Partition, _Ownership] = field(default_factory=dict)
    commits: dict[int, tuple[int, h.CommitBegun, frozenset[Partition]]] = field(default_factory=dict)
    lease_until_ns: int | None = None
    #: An administrator has removed the member: its lease is void, and another process may already own its partitions.
    is_evicted: bool = False
    is_killed: bool = False
    is_closed: bool = False
    #: Partitions that were assigned to other processes before its lease ended: violations if it still uses them.
    overtaken: dict[Partition, Violation] = field(default_factory=dict)
    owned_changed_ns: int = 0
    last_statement: tuple[int, h.Statement] | None = None

    def shares_instance_id(self, other: _Process) -> bool:
        """Whether one process may replace the other immediately: a restarted member, or a second one with its id."""
        return self.instance_id is not None and self.instance_id == other.instance_id


@dataclass(slots=True)
class _Log:
    """The progress of one group in one partition."""

    #: How many times the record of each number was received.
    receptions: Counter[int] = field(default_factory=Counter)
    #: The highest acknowledged commit, with its time.
    committed: int = 0
    committed_ns: int = 0
    #: The highest offset that may be committed, including commits without a response.
    reachable: int = 0
    #: The committed offset that an admin client read last.
    observed: int = 0
    #: The offset after the last received record, and the offsets of records that processors finished.
    read: int = 0
    finished: set[int] = field(default_factory=set)
    ownerships: list[_Ownership] = field(default_factory=list)
    last_received_ns: int = 0


class _Checker:
    """One pass over the entries."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries
        self.processes: dict[str, _Process] = {}
        self.violations: list[Violation] = []
        self._groups: dict[str, dict[Partition, _Log]] = {}
        #: Acknowledged records: offset to number and time. For a re-created topic only the records of the newest topic.
        self._produced: dict[Partition, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._offsets: dict[Partition, list[int]] = defaultdict(list)
        self._recreated = {entry.event.topic for entry in entries if isinstance(entry.event, h.Recreated)}
        self._has_faults = any(isinstance(entry.event, _FAULTS) for entry in entries)
        self._outputs: dict[str, Counter[tuple[Partition, int]]] = defaultdict(Counter)
        #: Groups whose offsets were deleted: they process their records again.
        self._reset: set[str] = set()
        #: Processes that an administrator removed, perhaps before they wrote `Started`.
        self._evicted: set[str] = set()
        self._settled_ns: int | None = None
        self._at_ns = 0
        self._process = ""
        self._received = self._repeated = self._hand_overs = 0
        self._worst_stall_ns = self._overlap_ns = 0
        self._produced_number = 0

    def run(self) -> None:
        """Read all entries, and then check the rules that need the complete history."""
        for entry in self._entries:
            # All records are read first: a member may receive a record before the producer writes `Produced`.
            if isinstance(entry.event, h.Produced):
                self._produce(entry.at_ns, entry.event)
            elif isinstance(entry.event, h.Recreated):
                for partition in [p for p in self._produced if p.topic == entry.event.topic]:
                    del self._produced[partition]
                    self._offsets.pop(partition)
        for entry in self._entries:
            self._at_ns, self._process = entry.at_ns, entry.process
            self._take(entry)
        self._process = ""
        self._judge_end()

    def figures(self) -> Figures:
        """The figures of the round."""
        return Figures(
            records=self._produced_number,
            received=self._received,
            lost=sum(violation.rule is Rule.LOST for violation in self.violations),
            repeated=self._repeated,
            hand_overs=self._hand_overs,
            worst_stall_s=self._worst_stall_ns / _S,
            overlap_s=self._overlap_ns / _S,
        )

    def _report(self, rule: Rule, text: str) -> None:
        self.violations.append(Violation(rule=rule, at_ns=self._at_ns, process=self._process, text=text))

    def _log(self, group: str, partition: Partition) -> _Log:
        return self._groups.setdefault(group, {}).setdefault(partition, _Log())

    def _produce(self, at_ns: int, event: h.Produced) -> None:
        self._produced_number += 1
        self._produced[event.partition][event.offset] = (event.number, at_ns)
        insort(self._offsets[event.partition], event.offset)

    def _unread_between(self, partition: Partition, begin: int, end: int) -> list[int]:
        """The offsets of acknowledged records from `begin` to before `end`."""
        offsets = self._offsets.get(partition, [])
        return offsets[bisect_left(offsets, begin) : bisect_left(offsets, end)]

    # ---- the entries ----

    def _take(self, entry: Entry) -> None:
        event = entry.event
        if isinstance(event, h.Started):
            process = _Process(entry.process, event, event.instance_id)
            process.is_evicted = any(h.is_of(entry.process, member) for member in self._evicted)
            self.processes[entry.process] = process
            self._groups.setdefault(event.group, {})
        elif entry.process in self.processes:
            self._take_from_member(self.processes[entry.process], entry)
        else:
            self._take_from_harness(event)

    def _take_from_harness(self, event: h.Event) -> None:
        match event:
            case h.OffsetsObserved():
                self._observe(event)
            case h.OffsetsReset():
                self._reset.add(event.group)
                for partition in event.partitions:
                    log = self._log(event.group, partition)
                    log.committed = log.observed = 0
                    # A group that was deleted begins again at epoch 1.
                    log.ownerships = [one for one in log.ownerships if one.ended_ns == inf]
            case h.Evicted():
                self._evicted.add(event.member)
                for process in self._processes_of(event.member):
                    process.is_evicted = True
            case h.Killed():
                for process in self._processes_of(event.member):
                    process.is_killed = True
            case h.Output():
                self._outputs[event.group][event.partition, event.number] += 1
            case h.Settled():
                self._settled_ns = self._at_ns
                for process in self.processes.values():
                    self._judge_steady_state(process)
            case h.Produced() | h.FaultBegan() | h.FaultEnded() | h.Recreated():
                pass
            case _:
                raise ValueError(f"{self._process} wrote {event} before `Started`")

    def _processes_of(self, member: str) -> list[_Process]:
        return [process for name, process in self.processes.items() if h.is_of(name, member)]

    def _take_from_member(self, process: _Process, entry: Entry) -> None:
        event = entry.event
        match event:
            case h.Assigned():
                self._assign(process, event)
            case h.Revoked() | h.Lost():
                self._give_up(process, event.partitions, was_lost=isinstance(event, h.Lost))
            case h.Received():
                self._receive(process, event)
            case h.Finished():
                self._log(process.started.group, event.partition).finished.add(event.offset)
            case h.Warmed():
                pass
            case h.CommitBegun():
                self._begin_commit(process, event)
            case h.CommitEnded():
                self._end_commit(process, event)
            case h.LeaseRenewed():
                process.lease_until_ns = event.until_ns
            case h.Statement():
                self._state(process, event)
            case h.Raised():
                process.is_killed = process.is_killed or event.is_fatal
            case h.Closed():
                process.is_closed = True
                self._give_up(process, tuple(process.owned))
            case _:
                self._take_from_harness(event)

    # ---- ownership ----

    def _assign(self, process: _Process, event: h.Assigned) -> None:
        process.instance_id = event.instance_id or process.instance_id
        for item in event.epochs:
            partition = item.partition
            log = self._log(process.started.group, partition)
            ownership = _Ownership(
                process=process.name,
                partition=partition,
                epoch=item.epoch,
                began_ns=self._at_ns,
                committed=log.committed,
                member_id=event.member_id,
            )
            if not process.started.is_manual:
                for former in log.ownerships:
                    self._compare_owners(process, former, ownership)
            self._hand_overs += any(former.process != process.name for former in log.ownerships[-1:])
            log.ownerships.append(ownership)
            process.owned[partition] = ownership
        process.owned_changed_ns = self._at_ns

    def _compare_owners(self, process: _Process, former: _Ownership, new: _Ownership) -> None:
        owner = self.processes[former.process]
        if owner is process or owner.shares_instance_id(process) or owner.started.is_manual:
            return
        name = f"{new.partition} at epoch {new.epoch}"
        if 0 <= new.epoch <= former.epoch:
            self._report(Rule.OWNERS_BY_EPOCH, f"{name}, after {owner.name} owned it at epoch {former.epoch}")
        lasts = owner.lease_until_ns is not None and owner.lease_until_ns > self._at_ns
        if former.ended_ns == inf and lasts and not (owner.is_evicted or owner.is_killed):
            remaining_s = ((owner.lease_until_ns or 0) - self._at_ns) / _S
            text = (
                f"{name}, while {owner.name} owns it at epoch {former.epoch}, with a lease for {remaining_s:.3f} s more"
            )
            # Not a violation yet: the member may have left its group. Then its on_lost runs when it polls again.
            owner.overtaken.setdefault(
                new.partition,
                Violation(rule=Rule.OWNERS_BY_EPOCH, at_ns=self._at_ns, process=process.name, text=text),
            )

    def _judge_overtaken(self, owner: _Process, begun_ns: int, claimed: Iterable[Partition]) -> None:
        """Report the violations of a member that claims, uses or revokes partitions that other members got."""
        for partition in claimed:
            violation = owner.overtaken.get(partition)
            if violation is not None and begun_ns > violation.at_ns:
                self.violations.append(owner.overtaken.pop(partition))

    def _give_up(self, process: _Process, partitions: Iterable[Partition], *, was_lost: bool = False) -> None:
        if not was_lost:
            self._judge_overtaken(process, self._at_ns, partitions)
        for partition in partitions:
            process.overtaken.pop(partition, None)
            ownership = process.owned.pop(partition, None)
            if ownership is not None:
                ownership.ended_ns, ownership.was_lost = self._at_ns, was_lost
        process.owned_changed_ns = self._at_ns

    # ---- records ----

    def _receive(self, process: _Process, event: h.Received) -> None:
        self._received += 1
        log = self._log(process.started.group, event.partition)
        self._note_stall(log, event)
        self._judge_overtaken(process, event.begun_ns, [event.partition])
        ownership = process.owned.get(event.partition)
        until = process.lease_until_ns
        self._judge_length(process, event.lease_until_ns)
        # A response during the call may have renewed the lease before the record was returned.
        if event.lease_until_ns is not None:
            until = process.lease_until_ns = max(event.lease_until_ns, until or 0)
        if ownership is None:
            if process.started.has_callbacks:
                self._report(Rule.NOT_OWNED, f"received {event.partition}@{event.offset}")
        else:
            self._judge_lease(process, log, ownership, event, until)
            self._judge_order(process, log, ownership, event)
            if ownership.first_ns is None:
                ownership.first_ns = self._at_ns
            first = ownership.first_offset
            ownership.first_offset = event.offset if first is None else min(event.offset, first)
            ownership.last_offset = max(event.offset, ownership.last_offset or 0)
        log.receptions[event.number] += 1
        if log.receptions[event.number] > 1:
            self._repeated += 1
            self._judge_repeat_without_faults(log, event)
        log.read = max(log.read, event.offset + 1)
        if process.started.commits_automatically or not process.started.has_callbacks:
            log.reachable = max(log.reachable, event.offset + 1)

    def _judge_repeat_without_faults(self, log: _Log, event: h.Received) -> None:
        former = [ownership for ownership in log.ownerships if ownership.ended_ns < inf]
        if self._has_faults or not former or any(ownership.was_lost for ownership in former):
            return
        started = self.processes[former[-1].process].started
        if started.commits_automatically and not started.is_processor:
            self._report(
                Rule.REPEATED,
                f"received {event.partition}@{event.offset} again, although {former[-1].process} commits automatically "
                "before it gives a partition up",
            )

    def _note_stall(self, log: _Log, event: h.Received) -> None:
        number_and_time = self._produced.get(event.partition, {}).get(event.offset)
        if number_and_time is not None and event.number not in log.receptions:
            since = max(log.last_received_ns, number_and_time[1])
            self._worst_stall_ns = max(self._worst_stall_ns, self._at_ns - since)
        log.last_received_ns = self._at_ns

    def _judge_lease(
        self, process: _Process, log: _Log, ownership: _Ownership, event: h.Received, until: int | None
    ) -> None:
        what = f"received {event.partition}@{event.offset}"
        if process.started.has_leases and until is not None and event.begun_ns > until:
            self._report(Rule.OWNERS_BY_LEASE, f"{what} {(event.begun_ns - until) / _S:.3f} s after its lease ended")
        for other in log.ownerships:
            owner = self.processes[other.process]
            if other.first_ns is None or owner is process or not other.is_newer_than(ownership):
                continue
            self._overlap_ns = max(self._overlap_ns, self._at_ns - other.first_ns)
            by_design = process.is_evicted or owner.shares_instance_id(process) or process.started.is_manual
            if process.started.has_leases and not by_design and event.begun_ns > other.first_ns:
                late_s = (event.begun_ns - other.first_ns) / _S
                self._report(
                    Rule.OWNERS_BY_LEASE,
                    f"{what} at epoch {ownership.epoch}, {late_s:.3f} s after the first record of {owner.name} at "
                    f"epoch {other.epoch}",
                )

    def _judge_order(self, process: _Process, log: _Log, ownership: _Ownership, event: h.Received) -> None:
        partition, offset = event.partition, event.offset
        if partition.topic in self._recreated:
            return
        what = f"received {partition}@{offset}"
        if offset < ownership.committed:
            text = f"{what}, although {ownership.committed} was committed before it was assigned"
            self._report(Rule.REPEATED, text)
        if process.started.is_processor:
            following = ownership.next_by_key.get(event.key, 0)
            if offset + 1 < following:
                self._report(Rule.ORDER, f"{what} after {following - 1} of key {event.key}")
            # An earlier owner may have finished the record without a commit. Within one ownership it is a repeat.
            is_again = offset in log.finished and offset + 1 == following
            # An aborted transaction removes the results of finished records: they are processed again.
            if is_again and not process.started.is_transactional:
                self._report(Rule.REPEATED, f"{what} again, after its handler had returned")
            ownership.next_by_key[event.key] = max(following, offset + 1)
            return
        last = ownership.last_offset
        if last is not None and offset <= last:
            rule = Rule.REPEATED if offset == last else Rule.ORDER
            self._report(rule, f"{what} after {last}, during one ownership")
            return
        begin = last + 1 if last is not None else max(log.reachable, log.committed)
        skipped = [one for one in self._unread_between(partition, begin, offset) if one not in log.finished]
        if skipped:
            after = f"after {last}" if last is not None else f"first, although at most {begin} was committed"
            self._report(Rule.SKIPPED, f"{what} {after}: {len(skipped)} records from {skipped[0]} on are skipped")

    # ---- commits ----

    def _begin_commit(self, process: _Process, event: h.CommitBegun) -> None:
        foreign = frozenset(o.partition for o in event.offsets if o.partition not in process.owned)
        begun_ns = self._at_ns
        if process.started.commits_automatically:
            # Only `on_commit` reports automatic commits, after they end: the time when they began is unknown.
            begun_ns, foreign = 0, frozenset()
        process.commits[event.commit] = (begun_ns, event, foreign)
        for offset in event.offsets:
            log = self._log(process.started.group, offset.partition)
            log.reachable = max(log.reachable, offset.offset)

    def _end_commit(self, process: _Process, event: h.CommitEnded) -> None:
        begun_ns, begun, foreign = process.commits.pop(event.commit)
        if event.error is not None or event.is_unknown:
            return
        for offset in begun.offsets:
            if offset.topic in self._recreated:
                continue
            log = self._log(process.started.group, offset.partition)
            what = f"committed {offset.partition}@{offset.offset}"
            if process.started.is_processor:
                # Earlier owners, which may not be processors, committed the records before its first record.
                firsts = [one.first_offset for one in log.ownerships if one.process == process.name]
                begin = max(log.committed, firsts[-1] or 0 if firsts else 0)
                is_ahead = not log.finished.issuperset(self._unread_between(offset.partition, begin, offset.offset))
            else:
                is_ahead = offset.offset > log.read and bool(
                    self._unread_between(offset.partition, log.read, offset.offset)
                )
            if is_ahead:
                self._report(Rule.COMMIT_UNREAD, f"{what}, but records were read only to {log.read}")
            if offset.partition in foreign and process.started.has_callbacks and not process.started.is_manual:
                self._report(Rule.COMMIT_NOT_OWNED, what)
            if offset.offset < log.committed and begun_ns > log.committed_ns:
                self._report(Rule.OFFSETS_BACK, f"{what}, after a commit of {log.committed} was acknowledged")
            if offset.offset > log.committed:
                log.committed, log.committed_ns = offset.offset, self._at_ns

    def _observe(self, event: h.OffsetsObserved) -> None:
        for offset in event.offsets:
            if offset.topic in self._recreated:
                continue
            log = self._log(event.group, offset.partition)
            if offset.offset < log.observed:
                self._report(
                    Rule.OFFSETS_BACK,
                    f"{offset.partition} of group {event.group} from {log.observed} to {offset.offset}",
                )
            log.observed = offset.offset

    # ---- statements ----

    def _state(self, process: _Process, event: h.Statement) -> None:
        process.last_statement = (self._at_ns, event)
        self._judge_length(process, event.lease_until_ns)
        if event.lease_until_ns is not None:
            process.lease_until_ns = max(event.lease_until_ns, process.lease_until_ns or 0)
        owned = {item.partition: item.epoch for item in event.owned}
        self._judge_overtaken(process, event.begun_ns, owned)
        is_reported = process.started.has_callbacks and not process.started.is_manual
        is_settled = event.state == "STABLE" and process.owned_changed_ns < event.begun_ns
        if is_reported and is_settled and owned.keys() != process.owned.keys():
            self._report(
                Rule.STATEMENT, f"STABLE with {_named(owned)}, but the callbacks named {_named(process.owned)}"
            )
        for partition, epoch in owned.items():
            self._judge_claim(process, event, partition, epoch)
            self._judge_progress(process, event, partition)
        if event.would_restart_help and self._is_alive(process, event.begun_ns):
            self._report(
                Rule.STATEMENT, f"would_restart_help is true ({event.verdict}), but the process receives records"
            )

    def _judge_length(self, process: _Process, until_ns: int | None) -> None:
        """Check that a lease lasts for one session at most: it begins when an earlier heartbeat was sent."""
        session_s = process.started.session_s
        if session_s is None or until_ns is None:
            return
        remaining_s = (until_ns - self._at_ns) / _S
        if remaining_s > session_s:
            self._report(
                Rule.STATEMENT, f"its lease lasts {remaining_s:.3f} s more, but its session is {session_s:g} s"
            )

    def _judge_claim(self, process: _Process, event: h.Statement, partition: Partition, epoch: int) -> None:
        """Check a claim with a lease: it is false if another member has received a record at a newer epoch."""
        until = event.lease_until_ns
        if until is None or process.is_evicted:
            return
        for other in self._log(process.started.group, partition).ownerships:
            owner = self.processes[other.process]
            if owner is process or owner.shares_instance_id(process):
                continue
            if other.first_ns is None or other.epoch <= epoch:
                continue
            if other.first_ns < min(until, event.begun_ns):
                self._report(
                    Rule.STATEMENT,
                    f"owns {partition} at epoch {epoch} with a lease, but {owner.name} received it at {other.epoch}",
                )

    def _judge_progress(self, process: _Process, event: h.Statement, partition: Partition) -> None:
        if event.verdict not in {"consuming", "idle"} or partition not in process.owned:
            return
        horizon = event.begun_ns - FALSE_CONSUMING_NS
        log = self._log(process.started.group, partition)
        if log.last_received_ns > horizon or process.owned[partition].began_ns > horizon:
            return
        unread = [
            offset
            for offset in self._unread_between(partition, log.read, 1 << 62)
            if self._produced[partition][offset][1] < horizon
        ]
        if unread:
            text = f"{event.verdict}, but {partition}@{unread[0]} is unread, and no record is received"
            self._report(Rule.STATEMENT, text)

    def _is_alive(self, process: _Process, at_ns: int) -> bool:
        """Whether the process received records directly before and after this moment."""
        times = [
            entry.at_ns
            for entry in self._around(at_ns)
            if entry.process == process.name and isinstance(entry.event, h.Received)
        ]
        return any(time < at_ns for time in times) and any(time > at_ns for time in times)

    def _around(self, at_ns: int) -> Iterator[Entry]:
        begin = bisect_left(self._entries, at_ns - ALIVE_NS, key=lambda entry: entry.at_ns)
        end = bisect_right(self._entries, at_ns + ALIVE_NS, key=lambda entry: entry.at_ns)
        return iter(self._entries[begin:end])

    # ---- the end ----

    def _judge_end(self) -> None:
        if self._settled_ns is None:
            self._report(Rule.NOT_SETTLED, "the group did not consume all records")
            return
        transactional = {p.started.group for p in self.processes.values() if p.started.is_transactional}
        for group, logs in self._groups.items():
            for partition, records in self._produced.items():
                missing = [
                    (offset, number)
                    for offset, (number, at_ns) in sorted(records.items())
                    if at_ns < self._settled_ns and not logs.get(partition, _Log()).receptions[number]
                ]
                for offset, _ in missing:
                    self._report(Rule.LOST, f"{partition}@{offset} in group {group}")
                if group in transactional:
                    self._judge_outputs(group, partition, records)

    def _judge_outputs(self, group: str, partition: Partition, records: dict[int, tuple[int, int]]) -> None:
        begins_again = partition.topic in self._recreated or group in self._reset
        for offset, (number, at_ns) in records.items():
            count = self._outputs[group][partition, number]
            is_wrong = count == 0 if begins_again else count != 1
            if is_wrong and at_ns < (self._settled_ns or 0):
                self._report(Rule.TRANSACTIONS, f"{partition}@{offset} has {count} results in group {group}")

    def _judge_steady_state(self, process: _Process) -> None:
        if process.last_statement is None or process.started.is_manual or process.is_closed or process.is_killed:
            return
        at_ns, statement = process.last_statement
        if at_ns < self._at_ns - RECENT_NS:
            return
        is_steady = statement.verdict in _STEADY_VERDICTS and not (statement.stalled or statement.would_restart_help)
        if statement.state != "STABLE" or not is_steady:
            self._report(
                Rule.NOT_SETTLED,
                f"{process.name} is still {statement.state}, {statement.verdict}; stalled: {_named(statement.stalled)}",
            )


def _named(partitions: Iterable[Partition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "no partition"
