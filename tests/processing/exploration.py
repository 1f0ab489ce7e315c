"""Exhaustive exploration of a processor's scheduler and offsets: every interleaving of small configurations.

One processor after the other owns two partitions with a few records. From each state the exploration takes every
possible step: a record arrives, a worker takes a task, a task finishes or fails, a commit is sent, applied or answered,
or its response is lost, a partition is revoked, released, lost or assigned again, or the processor dies. The rules are
those of the simulation (`tests.simulation.handler_invariants`). Without further faults, each path ends with all records
finished and committed.

Two states are equal if their objects have equal contents (`_Fingerprint`). Time passes only in the step "take later",
in which a worker takes a task that waited for its next attempt.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, is_dataclass
from enum import Enum
from itertools import count
from typing import Any, TypeAlias, cast

from confluent_kafka import Message

from consumer_membership.processing.scheduler import ProcessingOrder, Task
from consumer_membership.types import Instant, OffsetAndMetadata, TopicPartition
from tests.simulation.handler_invariants import HandlerInvariants, exists
from tests.simulation.process_invariants import Violation
from tests.simulation.processor import ENOUGH_METADATA, Parts, Record, offsets_of

#: A step: its name and the number of its partition or task.
Step: TypeAlias = tuple[str, int]
PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 1))
FAILED = ValueError("failed")
#: The wait between two attempts.
WAIT_S = 1.0
_FAULTS = frozenset(
    {
        "close",
        "lose",
        "crash",
        "restart",
        "shrink",
        "no answer",
        "commit without a response",
        "release without a response",
    }
)
_OF_PARTITIONS = frozenset({"assign", "admit", "close", "lose", "release", "release without a response"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The records and options of a processor, and how many faults may happen on one path."""

    name: str
    #: The end offset of each partition.
    ends: tuple[int, int] = (3, 2)
    order: ProcessingOrder = ProcessingOrder.KEY
    workers: int = 2
    max_queued: int = 100
    max_batch: int = 1
    max_wait_s: float = 0.0
    metadata_limit: int = ENOUGH_METADATA
    #: Whether disowned tasks continue until a step ends them; otherwise they end immediately.
    keeps_disowned: bool = False
    #: Whether the log of the first partition may be truncated and written again; this fault replaces the crash.
    restarts: bool = False
    #: Whether a commit, its application by the coordinator, and its response are separate steps.
    has_slow_commits: bool = False
    #: How many attempts may fail on one path.
    failures: int = 1
    #: How many other faults may happen on one path: a revocation, a loss, a crash, a commit without a response.
    faults: int = 1


class Processor:
    """A processor from its start to its crash."""

    name = "p"

    def __init__(self, config: Configuration, parts: Parts) -> None:
        self.scheduler = parts.scheduler(
            order=config.order,
            max_queued=config.max_queued,
            max_batch=config.max_batch,
            max_wait_s=config.max_wait_s,
        )
        self.positions: dict[TopicPartition, int] = {}
        self.closing: set[TopicPartition] = set()
        self.paused: set[TopicPartition] = set()
        #: Running tasks; disowned ones also run to their end.
        self.tasks: list[Task] = []


@dataclass(slots=True)
class Sent:
    """A commit without a response: its offsets, the partitions for which they are valid, and whether it is applied."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    valid: set[TopicPartition]
    is_applied: bool = False


class Model:
    """One state of a small configuration, and the steps from it to other states."""

    def __init__(self, config: Configuration, parts: Parts) -> None:
        self.config = config
        self.parts = parts
        self.failures, self.faults = config.failures, config.faults
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.sent: Sent | None = None
        self.leader_epoch = 0
        #: The offset at which the consumer will receive records of the first partition again.
        self.restarts_at: int | None = None
        self.processor = Processor(config, parts)
        self.invariants = HandlerInvariants(now=self._time, exists=self._always, is_excused=self._never)
        for partition in PARTITIONS:
            self._assign(partition)

    def _time(self) -> Instant:
        return 0.0

    def _always(self, _: TopicPartition) -> bool:
        return True

    def _never(self, _: object) -> bool:
        return False

    # ---- steps ----

    def steps(self) -> list[Step]:
        """Return the possible steps except faults. If no fault can follow a commit, the commit waits for the end."""
        processor = self.processor
        found: list[Step] = []
        for number, partition in enumerate(PARTITIONS):
            if partition not in processor.positions:
                found.append(("assign", number))
            elif partition in processor.closing:
                found += [("release", number)] if self.sent is None else []
            elif partition not in processor.paused and processor.positions[partition] < self.config.ends[number]:
                found.append(("admit", number))
        if len(processor.scheduler.running) < self.config.workers:
            found.append(("take", 0))
            if processor.scheduler.next_at is not None:
                found.append(("take later", 0))
        found += [("finish", number) for number in range(len(processor.tasks))]
        if self.sent is not None:
            found.append(("answer", 0) if self.sent.is_applied else ("apply", 0))
        elif (self.faults or found == [("take", 0)]) and processor.scheduler.commits():
            found.append(("send" if self.config.has_slow_commits else "commit", 0))
        return found

    def faults_now(self) -> list[Step]:
        """Return the possible faults."""
        processor = self.processor
        found: list[Step] = []
        for number, task in enumerate(processor.tasks):
            if self.failures and not task.is_disowned:
                found.append(("fail", number))
                if len(task.records) > 1:
                    found.append(("split", number))
        if not self.faults:
            return found
        for number, partition in enumerate(PARTITIONS):
            if partition in processor.positions:
                found.append(("lose", number))
                if partition not in processor.closing:
                    found.append(("close", number))
                elif self.sent is None:
                    found.append(("release without a response", number))
        if self.sent is not None:
            found.append(("no answer", 0))
        elif not self.config.has_slow_commits and processor.scheduler.commits():
            found.append(("commit without a response", 0))
        if any(owned.offsets.capacity for owned in processor.scheduler.partitions.values()):
            found.append(("shrink", 0))
        if self.config.restarts:
            return [*found, *(("restart", offset) for offset in range(processor.positions.get(PARTITIONS[0], 0)))]
        return [*found, ("crash", 0)]

    def take_step(self, step: Step) -> None:
        """Go to the next state; raise Violation if the step breaks a rule."""
        name, number = step
        if name in _FAULTS:
            self.faults -= 1
        if name in ("finish", "fail", "split"):
            self._end(self.processor.tasks.pop(number), name)
        elif name in _OF_PARTITIONS:
            self._move(PARTITIONS[number], name)
        elif name in ("take", "take later"):
            self._take(is_later=name == "take later")
        elif name == "restart":
            self.leader_epoch += 1
            self.restarts_at = self.processor.positions[PARTITIONS[0]] = number
        elif name == "shrink":
            self._shrink()
        elif name == "crash":
            self.invariants.forget(self.processor)
            self.processor, self.sent = Processor(self.config, self.parts), None
        else:
            self._commit(name)
        scheduler, paused = self.processor.scheduler, self.processor.paused
        paused.update(scheduler.pause_full())
        paused.difference_update(scheduler.resume_spacious())

    def _move(self, partition: TopicPartition, name: str) -> None:
        match name:
            case "assign":
                self._assign(partition)
            case "admit":
                self._admit(partition)
            case "close":
                self._close(partition)
            case "lose":
                self._give_up(partition)
            case _:
                self._release(partition, is_applied=name == "release")

    def _commit(self, name: str) -> None:
        if name in ("send", "commit", "commit without a response"):
            offsets = self._commits(None)
            self.sent = Sent(offsets, set(offsets))
        if name in ("apply", "commit", "commit without a response"):
            self._apply()
        if name in ("answer", "commit"):
            self._answer()
        if name in ("no answer", "commit without a response"):
            self.sent = None

    def _assign(self, partition: TopicPartition) -> None:
        config, processor, at = self.config, self.processor, self.committed.get(partition)
        start = 0 if at is None else at.offset
        may_wait = config.metadata_limit < ENOUGH_METADATA or config.max_wait_s > 0
        self.invariants.assigned(processor, partition, start, at, config.order, may_wait=may_wait)
        finished = None if at is None else self.parts.decode(at.metadata, at.offset)
        offsets = self.parts.offsets(None if at is None else start, finished, config.metadata_limit)
        processor.scheduler.assign(partition, 1, offsets)
        processor.positions[partition] = start

    def _admit(self, partition: TopicPartition) -> None:
        """Receive the next record."""
        processor = self.processor
        first = processor.positions[partition]
        offset = next(one for one in count(first) if exists(partition, one))
        processor.positions[partition] = offset + 1
        if self.restarts_at is not None and partition == PARTITIONS[0]:
            self._restart(partition, offset)
        self.invariants.admitted(processor, partition, range(first, offset + 1), self.config.max_queued)
        processor.scheduler.admit(cast("list[Message]", [Record(partition, offset, self.leader_epoch)]), 0.0)

    def _restart(self, partition: TopicPartition, offset: int) -> None:
        """Receive the records again from this offset on."""
        processor, self.restarts_at = self.processor, None
        waiting = processor.scheduler.waiting
        tasks = [task for task in (*processor.tasks, *waiting) if task.owned.partition == partition]
        dropped = [task for task in tasks if any(one >= offset for one in offsets_of(task))]
        self.invariants.restarted(processor, partition, offset, [one for task in dropped for one in offsets_of(task)])
        processor.tasks = [task for task in processor.tasks if task not in dropped]

    # ---- tasks ----

    def _take(self, *, is_later: bool) -> None:
        processor = self.processor
        if is_later:
            for ownership in self.invariants.owned(processor):
                ownership.due.clear()
        task = processor.scheduler.take(processor.scheduler.next_at or 0.0 if is_later else 0.0)
        if task is None:
            if self.config.max_wait_s == 0:
                self.invariants.has_free_worker(processor)
            return
        self.invariants.began(processor, task.owned.partition, offsets_of(task), task.attempt)
        processor.tasks.append(task)

    def _end(self, task: Task, name: str) -> None:
        scheduler, offsets = self.processor.scheduler, offsets_of(task)
        if name != "finish":
            self.failures -= 1
        if not task.is_disowned:
            ownership = self.invariants.ownership(self.processor, task.owned.partition)
            if name == "finish":
                self.invariants.finished_in(ownership, offsets)
            else:
                self.invariants.failed_in(ownership, offsets, WAIT_S if name == "fail" else None)
        match name:
            case "finish":
                scheduler.finish(task, 0.0)
            case "fail":
                scheduler.retry(task, WAIT_S, FAILED)
            case _:
                scheduler.split(task, 0.0)

    # ---- revocations and commits ----

    def _close(self, partition: TopicPartition) -> None:
        self.processor.closing.add(partition)
        self.invariants.closing(self.processor, [partition])
        self.processor.scheduler.close([partition])

    def _commits(self, partitions: list[TopicPartition] | None) -> dict[TopicPartition, OffsetAndMetadata]:
        offsets = self.processor.scheduler.commits(partitions)
        self.invariants.commits(self.processor, offsets)
        return offsets

    def _release(self, partition: TopicPartition, *, is_applied: bool) -> None:
        """End a revocation: disown the running tasks, commit, and release the partition."""
        processor = self.processor
        self._disowned(processor.scheduler.disown([partition]), partition)
        offsets = self._commits([partition])
        if is_applied:
            self.committed |= offsets
            self.invariants.committed(offsets)
            processor.scheduler.committed(offsets)
            self.invariants.revoked_cleanly(processor, partition)
        self._give_up(partition)

    def _disowned(self, tasks: list[Task], partition: TopicPartition) -> None:
        processor = self.processor
        self.invariants.disowned(processor, partition, [offset for task in tasks for offset in offsets_of(task)])
        for task in [] if self.config.keeps_disowned else tasks:
            processor.tasks.remove(task)
            processor.scheduler.finish(task, 0.0)

    def _give_up(self, partition: TopicPartition) -> None:
        processor = self.processor
        self._disowned(processor.scheduler.release([partition]), partition)
        self.invariants.released(processor, partition)
        del processor.positions[partition]
        processor.closing.discard(partition)
        processor.paused.discard(partition)
        if self.sent is not None and not self.sent.is_applied:
            self.sent.valid.discard(partition)

    def _shrink(self) -> None:
        """The broker no longer accepts metadata."""
        self.invariants.limited(self.processor)
        for owned in self.processor.scheduler.partitions.values():
            owned.offsets.capacity = 0

    def _apply(self) -> None:
        """The coordinator applies the commit for the partitions that the processor still owns."""
        assert self.sent is not None
        self.sent.is_applied = True
        offsets = {partition: at for partition, at in self.sent.offsets.items() if partition in self.sent.valid}
        self.committed |= offsets
        self.invariants.committed(offsets)

    def _answer(self) -> None:
        assert self.sent is not None
        sent, self.sent = self.sent, None
        self.processor.scheduler.committed({p: at for p, at in sent.offsets.items() if p in sent.valid})

    def check_end(self) -> None:
        """Check that no work is left: all records are finished and committed."""
        self.invariants.check_end(dict(zip(PARTITIONS, self.config.ends, strict=True)))

    # ---- states ----

    def key(self) -> Hashable:
        """Return a value that distinguishes this state from others."""
        processor = self.processor
        ownerships = list(self.invariants.owned(processor))
        fingerprint = _Fingerprint()
        # Which lanes took turns before matters only for the rule about turns.
        turns = [] if self.config.faults else [(one.overtaken, one.others) for one in ownerships]
        return fingerprint.of(
            [
                *(processor.scheduler, processor.positions, processor.closing, processor.paused, processor.tasks),
                *(self.committed, self.sent, self.failures, self.faults, self.leader_epoch, self.restarts_at),
                [(one.in_hand, one.waiting, one.due, one.end) for one in ownerships],
                turns,
            ]
        )


#: Attributes without an effect on later steps: times, counters, values for reports, and lanes without records.
_LEFT_OUT = frozenset({"last_error", "first_at", "began_at", "runner", "_numbers", "_spare"})
_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
#: A function that describes the objects of one type.
_Describe: TypeAlias = Callable[["_Fingerprint", Any], Hashable]
_DESCRIBE: dict[type, _Describe] = {}


class _Fingerprint:
    """Makes hashable values, equal for equal contents of objects; a repeated object becomes its number."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def of(self, value: Any) -> Hashable:
        """Describe this value."""
        kind = type(value)
        if kind in _PLAIN:
            return cast("Hashable", value)
        describe = _DESCRIBE.get(kind)
        if describe is None:
            describe = _DESCRIBE[kind] = _describer(kind)
        return describe(self, value)


def _describer(kind: type) -> _Describe:
    if issubclass(kind, Enum) or (is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        return lambda _, value: value
    if issubclass(kind, list | tuple | deque):
        return lambda fingerprint, value: tuple(map(fingerprint.of, value))
    if issubclass(kind, set):
        return lambda fingerprint, value: frozenset(map(fingerprint.of, value))
    if issubclass(kind, dict):
        return _of_dict
    slots = [name for base in kind.__mro__ for name in base.__dict__.get("__slots__", ())]
    return _of_object(tuple(name for name in slots if name not in _LEFT_OUT))


def _of_dict(fingerprint: _Fingerprint, value: dict[Any, Any]) -> Hashable:
    items = [(fingerprint.of(key), fingerprint.of(one)) for key, one in value.items()]
    # The order matters for running tasks only: it is the order in which they began.
    return tuple(items) if any(isinstance(key, Task) for key in value) else frozenset(items)


def _of_object(slots: tuple[str, ...]) -> _Describe:
    def describe(fingerprint: _Fingerprint, value: Any) -> Hashable:
        known = fingerprint.numbers.get(id(value))
        if known is not None:
            return "#", known
        fingerprint.numbers[id(value)] = len(fingerprint.numbers)
        if hasattr(value, "heap"):
            # The order in which equal values were added, without their numbers.
            return tuple((at, fingerprint.of(one)) for at, _, one in sorted(value.heap))
        fields = [getattr(value, name) for name in slots]
        fields += [one for name, one in getattr(value, "__dict__", {}).items() if name not in _LEFT_OUT]
        return tuple([one if type(one) in _PLAIN else fingerprint.of(one) for one in fields])

    return describe


class _Pickler(pickle.Pickler):
    """A pickler for copies of models, because the support of `itertools.count` for pickle is deprecated."""

    dispatch_table = {count: lambda counter: (count, (int(repr(counter)[6:-1]),))}  # noqa: RUF012 - pickle's interface


def _saved(model: Model) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(model)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an exploration; `steps` counts each kind of step."""

    states: int
    ends: int
    steps: Counter[str]
    violation: str | None = None
    trace: tuple[Step, ...] = ()


def explore(config: Configuration, parts: Parts | None = None) -> Outcome:
    """Visit each state of a small configuration once, breadth first; stop at the first violation."""
    first = Model(config, parts or Parts())
    parents: dict[Hashable, tuple[Hashable, Step] | None] = {(key := first.key()): None}
    waiting = deque([(key, _saved(first))])
    steps: Counter[str] = Counter()
    ends = 0

    def outcome(violation: Violation | None = None, *trace: Step) -> Outcome:
        message = None if violation is None else str(violation)
        return Outcome(states=len(parents), ends=ends, steps=steps, violation=message, trace=trace)

    while waiting:
        key, saved = waiting.popleft()
        model = pickle.loads(saved)  # noqa: S301 - this process pickled it
        good, faults = model.steps(), model.faults_now()
        is_end = True
        for step in (*good, *faults):
            model = pickle.loads(saved)  # noqa: S301 - this process pickled it
            try:
                model.take_step(step)
            except Violation as violation:
                return outcome(violation, *_way(parents, key), step)
            steps[step[0]] += 1
            reached = model.key()
            is_end &= reached == key or step in faults
            if reached not in parents:
                parents[reached] = (key, step)
                waiting.append((reached, _saved(model)))
        if is_end:
            ends += 1
            try:
                pickle.loads(saved).check_end()  # noqa: S301 - this process pickled it
            except Violation as violation:
                return outcome(violation, *_way(parents, key))
    return outcome()


def _way(parents: dict[Hashable, tuple[Hashable, Step] | None], key: Hashable) -> list[Step]:
    """Return the steps from the first state to this one."""
    way: list[Step] = []
    while (before := parents[key]) is not None:
        key, step = before
        way.append(step)
    return way[::-1]
