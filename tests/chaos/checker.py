"""Judge a history: which rules of a consumer group the round broke, and the figures of the round.

Pure: entries in, a verdict out. The entries are in the order of their times. Each rule is sound: it reports only what
no correct member could have done, whatever the faults were. Where a late line could explain an event (a commit was
answered after the next owner began), the rule gives the member the benefit of the doubt.

A process is the owner of a partition from its `Assigned` to its `Revoked`, `Lost` or `Closed`. The floor of an
ownership is the highest offset of which a commit was acknowledged before the ownership began.
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
#: For how long a partition with unread records may be without progress while `health()` reports that it consumes.
FALSE_CONSUMING_NS = 30 * _S
#: A member that received a record this long before and after a sample does not need a restart.
ALIVE_NS = 2 * _S
#: Statements that are older do not describe a live member at the end.
RECENT_NS = 5 * _S
#: The verdicts of a member in a group that has consumed everything.
_STEADY_VERDICTS = frozenset({"consuming", "idle", "paused", None})


_FAULTS = (h.FaultBegan, h.Killed, h.Evicted, h.OffsetsReset, h.Recreated)


class Rule(StrEnum):
    """The rules that a history may break.

    Attributes:
        LOST: An acknowledged record was received by no member of a group.
        SKIPPED: An owner began after, or went over, a record that was not committed.
        REPEATED: An owner received a record whose commit was acknowledged before it was assigned the partition, or a
            record twice during one ownership; or, in a round without faults, a record of a former owner that commits
            automatically and gave the partition up in order.
        ORDER: Records of a partition (processor: of a key) were received in another order than they were produced.
        NOT_OWNED: A member received a record of a partition that it does not own.
        COMMIT_UNREAD: A commit was acknowledged that is ahead of the received (processor: finished) records.
        COMMIT_NOT_OWNED: A member committed a partition that it does not own, and the commit was acknowledged.
        OFFSETS_BACK: A committed offset went back.
        OWNERS_BY_EPOCH: A partition was assigned although the lease of its owner lasted, which claims, uses or revokes
            it afterwards; or at an epoch that is not newer than its owner's.
        OWNERS_BY_LEASE: A member with leases received a record after its lease, or after a newer owner's first one.
        TRANSACTIONS: A source record has no result, or more than one, in the output of transactions.
        STATEMENT: A sample of `membership()` or `health()` was false, or a lease was longer than a session.
        NOT_SETTLED: The group did not consume to the end after the faults, or is not in a steady state.
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
    """A broken rule: by which process (empty: by none of them) and when."""

    rule: Rule
    at_ns: int
    process: str
    text: str

    def __str__(self) -> str:
        return f"{self.at_ns / _S:.3f} {self.process}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The result of a round.

    `records` are acknowledged records, `received` includes repeats, `repeated` are the allowed ones. `worst_stall_s` is
    the longest time in which a partition had unread records and its group received none. `overlap_s` is the longest
    time from the first record of a newer owner to the last one of an older owner.
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
    """The result for one history; `client_of` names the client of each process, for rounds with members of others."""

    violations: tuple[Violation, ...]
    figures: Figures
    client_of: dict[str, str]

    @property
    def rules(self) -> frozenset[Rule]:
        """The broken rules."""
        return frozenset(violation.rule for violation in self.violations)


def check(entries: Iterable[Entry]) -> Verdict:
    """Judge the entries of a round."""
    checker = _Checker(tuple(entries))
    checker.run()
    return Verdict(
        violations=tuple(sorted(checker.violations, key=lambda violation: violation.at_ns)),
        figures=checker.figures(),
        client_of={name: process.started.client for name, process in checker.processes.items()},
    )


# ---- the state of the sweep ----


@dataclass(slots=True)
class _Ownership:
    """The ownership of one partition by one process."""

    process: str
    partition: Partition
    epoch: int
    began_ns: int
    #: The acknowledged offset at its begin, and the highest offset that could have been committed by then.
    floor: int
    member_id: str | None
    ended_ns: float = inf
    was_lost: bool = False
    first_ns: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    next_by_key: dict[str | None, int] = field(default_factory=dict)

    def is_newer_than(self, other: _Ownership) -> bool:
        """Whether this ownership of the partition is the later one."""
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
    #: Its lease does not protect it any more, and another process may replace it at once.
    is_evicted: bool = False
    is_killed: bool = False
    is_closed: bool = False
    #: Partitions that were assigned to others while its lease lasted: a violation if it still works with them.
    overtaken: dict[Partition, Violation] = field(default_factory=dict)
    owned_changed_ns: int = 0
    last_statement: tuple[int, h.Statement] | None = None

    def shares_place(self, other: _Process) -> bool:
        """Whether one process replaces the other by design: a restart, or two processes with one instance id."""
        return self.instance_id is not None and self.instance_id == other.instance_id


@dataclass(slots=True)
class _Log:
    """A partition as one group reads it."""

    #: The first reception of each number, and how often it was received.
    receptions: Counter[int] = field(default_factory=Counter)
    #: The highest acknowledged commit, with its time; the highest offset that a commit may have reached.
    committed: int = 0
    committed_ns: int = 0
    reachable: int = 0
    observed: int = 0
    #: Received (processor: finished) up to here, as the next offset; offsets that processors finished.
    read: int = 0
    finished: set[int] = field(default_factory=set)
    ownerships: list[_Ownership] = field(default_factory=list)
    last_received_ns: int = 0


class _Checker:
    """One sweep over the entries."""

    def __init__(self, entries: tuple[Entry, ...]) -> None:
        self._entries = entries
        self.processes: dict[str, _Process] = {}
        self.violations: list[Violation] = []
        self._groups: dict[str, dict[Partition, _Log]] = {}
        #: Acknowledged records: offset to number and time; of re-created topics those of the latest topic.
        self._produced: dict[Partition, dict[int, tuple[int, int]]] = defaultdict(dict)
        self._offsets: dict[Partition, list[int]] = defaultdict(list)
        self._recreated = {entry.event.topic for entry in entries if isinstance(entry.event, h.Recreated)}
        self._has_faults = any(isinstance(entry.event, _FAULTS) for entry in entries)
        self._outputs: dict[str, Counter[tuple[Partition, int]]] = defaultdict(Counter)
        #: Groups whose offsets were deleted: their records are processed again.
        self._reset: set[str] = set()
        #: Processes that an administrator removed, perhaps before they wrote their start.
        self._evicted: set[str] = set()
        self._settled_ns: int | None = None
        self._at_ns = 0
        self._process = ""
        self._received = self._repeated = self._hand_overs = 0
        self._worst_stall_ns = self._overlap_ns = 0
        self._produced_number = 0

    def run(self) -> None:
        """Read all entries, and then judge the rules that need the complete history."""
        for entry in self._entries:
            # Records first: a member may receive a record before the producer's acknowledgement is written.
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
                    # The epochs of a group that was deleted begin again.
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
                raise ValueError(f"{self._process} writes {event} before it has started")

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
                floor=log.committed,
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
        if owner is process or owner.shares_place(process) or owner.started.is_manual:
            return
        name = f"{new.partition} at epoch {new.epoch}"
        if 0 <= new.epoch <= former.epoch:
            self._report(Rule.OWNERS_BY_EPOCH, f"{name}, after {owner.name} had it at epoch {former.epoch}")
        lasts = owner.lease_until_ns is not None and owner.lease_until_ns > self._at_ns
        if former.ended_ns == inf and lasts and not (owner.is_evicted or owner.is_killed):
            remaining_s = ((owner.lease_until_ns or 0) - self._at_ns) / _S
            text = f"{name}, while {owner.name} has it at epoch {former.epoch} with a lease of {remaining_s:.3f} s more"
            # The member may have left: then its on_lost runs when it polls again.
            owner.overtaken.setdefault(
                new.partition,
                Violation(rule=Rule.OWNERS_BY_EPOCH, at_ns=self._at_ns, process=process.name, text=text),
            )

    def _judge_overtaken(self, owner: _Process, begun_ns: int, claimed: Iterable[Partition]) -> None:
        """Judge a member that claims, uses or revokes these partitions."""
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
                Rule.REPEATED, f"received {event.partition}@{event.offset}, which {former[-1].process} gave up in order"
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
            self._report(Rule.OWNERS_BY_LEASE, f"{what} {(event.begun_ns - until) / _S:.3f} s after its lease")
        for other in log.ownerships:
            owner = self.processes[other.process]
            if other.first_ns is None or owner is process or not other.is_newer_than(ownership):
                continue
            self._overlap_ns = max(self._overlap_ns, self._at_ns - other.first_ns)
            by_design = process.is_evicted or owner.shares_place(process) or process.started.is_manual
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
        if offset < ownership.floor:
            self._report(Rule.REPEATED, f"{what}, although {ownership.floor} was committed before it was assigned")
        if process.started.is_processor:
            following = ownership.next_by_key.get(event.key, 0)
            if offset + 1 < following:
                self._report(Rule.ORDER, f"{what} after {following - 1} of key {event.key}")
            # An earlier owner may have finished it without a commit; in one ownership it is a repeat.
            is_again = offset in log.finished and offset + 1 == following
            # A transaction that is aborted takes the results of finished records with it.
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
            # Only `on_commit` reports these, after the commit: when it began is not known.
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
                # Records before its first one were committed by an owner that is no processor.
                firsts = [one.first_offset for one in log.ownerships if one.process == process.name]
                begin = max(log.committed, firsts[-1] or 0 if firsts else 0)
                is_ahead = not log.finished.issuperset(self._unread_between(offset.partition, begin, offset.offset))
            else:
                is_ahead = offset.offset > log.read and bool(
                    self._unread_between(offset.partition, log.read, offset.offset)
                )
            if is_ahead:
                self._report(Rule.COMMIT_UNREAD, f"{what}, but read only to {log.read}")
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
                    Rule.OFFSETS_BACK, f"{offset.partition} of {event.group} from {log.observed} to {offset.offset}"
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
            self._report(Rule.STATEMENT, f"a restart would help ({event.verdict}), but records are received")

    def _judge_length(self, process: _Process, until_ns: int | None) -> None:
        """A lease begins with a heartbeat that was sent before, and lasts for a session at most."""
        session_s = process.started.session_s
        if session_s is None or until_ns is None:
            return
        remaining_s = (until_ns - self._at_ns) / _S
        if remaining_s > session_s:
            self._report(Rule.STATEMENT, f"a lease of {remaining_s:.3f} s more, with a session of {session_s:g} s")

    def _judge_claim(self, process: _Process, event: h.Statement, partition: Partition, epoch: int) -> None:
        """A claim with a lease is false once another member received a record at a newer epoch."""
        until = event.lease_until_ns
        if until is None or process.is_evicted:
            return
        for other in self._log(process.started.group, partition).ownerships:
            owner = self.processes[other.process]
            if owner is process or owner.shares_place(process) or other.first_ns is None or other.epoch <= epoch:
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
            self._report(Rule.STATEMENT, f"{event.verdict}, but {partition}@{unread[0]} is unread and nothing arrives")

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
            self._report(Rule.NOT_SETTLED, "the group did not consume to the end")
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
                self._report(Rule.TRANSACTIONS, f"{partition}@{offset} has {count} results of group {group}")

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
