"""The time without records of a static member that was killed and restarted at once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench import HEARTBEAT_S, PARTITIONS, Figure, counted_in, log
from tests.benchmarks.groups import owned_by
from tests.benchmarks.instances import Instance, Movement, StaticGroup, Steps
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Check, Series, at_most, median_above_at_most, median_of

if TYPE_CHECKING:
    import random

    from tests.benchmarks.bench import Bench, Side

MEMBERS = 3
RECORDS_PER_S = 500
#: The allowed difference from raw's classic member, because raw's member with the consumer protocol does not recover.
SLOWER_BY_S, WORST_S = 0.15, 0.6
CONSTRUCTOR_MEDIAN_S = 0.1
FROM_START = "process start to first record"
FROM_CONSTRUCTOR = "constructor to first record"

_GIVE_UP_S = 30.0
_BETWEEN_S = 1.0
_RAW_RECORD_S = 10.0
"""The time in which the replacement of a raw member may receive a record."""

_MOVED_S = 90.0
"""A session (45 s), the next heartbeats of the other members, and a reserve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The series of one side."""

    side: Side
    from_start: Series
    from_constructor: Series
    cpu: Series
    moved: Series
    callbacks: Series
    steps: list[Steps]

    @classmethod
    def of(cls, side: Side, circumstances: str = "") -> Recovery:
        """Return the series without a measurement."""

        def series(what: str, unit: str) -> Series:
            return side.series(f"{what}{circumstances}", unit)

        return cls(
            side=side,
            from_start=series(FROM_START, "s"),
            from_constructor=series(FROM_CONSTRUCTOR, "s"),
            cpu=series(f"CPU: {FROM_START}", "s"),
            moved=series("partitions that moved", "partitions"),
            callbacks=series("others' rebalance callbacks", "calls"),
            steps=[],
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.from_start, self.from_constructor, self.cpu, self.moved, self.callbacks)

    def add(self, steps: Steps, movement: Movement) -> None:
        """Add the recovery of one instance, and its effects on the other members."""
        self.steps.append(steps)
        self.from_start.add(steps.first_record, **asdict(steps))
        self.from_constructor.add(steps.from_constructor)
        self.cpu.add(steps.cpu_s)
        self.moved.add(len(movement.partitions), partitions=sorted(movement.partitions))
        self.callbacks.add(movement.callbacks)

    def nothing_moved(self, what: str) -> tuple[Check, Check]:
        """Return the bounds for the effects on the other members."""
        return (
            at_most(f"{what}: others' partitions that moved: 0", most(self.moved), 0, "partitions", [self.moved]),
            at_most(f"{what}: others' rebalance callbacks: 0", most(self.callbacks), 0, "calls", [self.callbacks]),
        )

    def timeline(self) -> str:
        """Return as text the medians of the steps of the recovery."""
        names = ("running", "constructing", "constructed", "assigned", "first_record")
        medians = []
        for name in names:
            one = Series(label=name, unit="s")
            for steps in self.steps:
                one.add(getattr(steps, name))
            median = median_of(one)
            medians.append(f"{name.replace('_', ' ')} {'?' if median is None else format(median, '.3f')}")
        return f"{self.from_start.label}: medians in seconds since the process was started: {', '.join(medians)}"


def most(series: Series) -> float | None:
    """Return the largest value, if there is one."""
    return max(series.values, default=None)


def run(bench: Bench) -> Figure:
    """Kill one of three members at random times, repeatedly; then measure raw with the consumer protocol."""
    topic = bench.topic("crash")
    with_proof = bench.ours("takeover-when-dead", group_instance_id_conflict_policy="takeover-when-dead")
    sides = (bench.ours(), with_proof, bench.raw("raw classic", group_protocol="classic"))
    ours, proven, classic = (Recovery.of(side) for side in sides)
    raw = _Refusal.of(bench.raw())
    with bench.streaming(topic, RECORDS_PER_S / PARTITIONS):
        errors = crash_in_turns(bench, topic, ours, proven, classic)
        rounds = min(bench.count(3, 1), 3)
        # These run at the same time, because they only wait.
        with ThreadPoolExecutor(rounds) as lanes:
            for done in [lanes.submit(_raw_crash, bench, raw, topic) for _ in range(rounds)]:
                done.result()
    return Figure(
        title="Crash: kill -9 of one of three static members, restarted at once",
        series=(*ours.series, *proven.series, *classic.series, raw.record, raw.error, raw.taken),
        checks=(*_checks(ours, classic), *proven.nothing_moved("crash, takeover-when-dead")),
        notes=(
            f"{RECORDS_PER_S} records a second into {PARTITIONS} partitions, automatic commits, default settings",
            f"each kill {_BETWEEN_S:.0f} to {_BETWEEN_S + HEARTBEAT_S:.0f} s after the last recovery",
            "moved: only the killed process or its replacement owns it, or another member's callback names it",
            "imports are part of the start; the workers hide hypothesis, which users do not have",
            "CPU: of the whole process; if it is much less than the duration, the machine ran other work",
            ours.timeline(),
            proven.timeline(),
            classic.timeline(),
            *raw.notes(),
            *errors,
        ),
    )


def _checks(ours: Recovery, classic: Recovery) -> tuple[Check, ...]:
    start, constructor = ours.from_start, ours.from_constructor
    return (
        median_above_at_most(
            f"{FROM_START}: median at most raw classic + {SLOWER_BY_S} s",
            start,
            classic.from_start,
            SLOWER_BY_S,
            "s more than raw classic",
        ),
        at_most(f"{FROM_START}: at worst {WORST_S} s", most(start), WORST_S, "s", [start]),
        at_most(
            f"{FROM_CONSTRUCTOR}: median at most {CONSTRUCTOR_MEDIAN_S} s",
            median_of(constructor),
            CONSTRUCTOR_MEDIAN_S,
            "s",
            [constructor],
        ),
        *ours.nothing_moved("crash"),
    )


def crash_in_turns(bench: Bench, topic: str, *sides: Recovery) -> list[str]:
    """Kill members of both groups in turns; return the errors that their members reported.

    Both groups run all the time, so that the load of the machine is equal for both.
    """
    seed = bench.chance.random()
    with ExitStack() as stack:
        groups = [stack.enter_context(StaticGroup(bench, recovery.side, topic, MEMBERS)) for recovery in sides]
        for group in groups:
            group.begin()
        time.sleep(bench.settle_s)
        turns = [
            partial(_crash, recovery, group, bench.own_random(seed))
            for recovery, group in zip(sides, groups, strict=True)
        ]
        bench.in_turns(bench.count(20, 4), *turns)
        return [
            f"{recovery.side.label}: {error}"
            for recovery, group in zip(sides, groups, strict=True)
            for error in group.errors()
        ]


def _crash(recovery: Recovery, group: StaticGroup, chance: random.Random) -> None:
    victim = chance.choice(group.instances)
    pause_s = _BETWEEN_S + chance.uniform(0, HEARTBEAT_S)
    with counted_in(*recovery.series):
        before = group.snapshot(victim)
        victim.process.kill()
        steps = victim.start().steps(_GIVE_UP_S)
        time.sleep(pause_s)
        movement = group.movement(before)
        recovery.add(steps, movement)
        times = f"{steps.first_record:.3f} s, from the constructor {steps.from_constructor:.3f} s"
        log(f"crash: {recovery.side.label} {times}, {len(movement.partitions)} moved")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refusal:
    """The outcome of raw's replacement with the same protocol."""

    side: Side
    record: Series
    error: Series
    taken: Series
    errors: list[str]

    @classmethod
    def of(cls, side: Side) -> _Refusal:
        """Return an outcome without a measurement."""
        return cls(
            side=side,
            record=Series(label=f"{FROM_START}, {side.label}", unit="s"),
            error=Series(label=f"constructor to fatal error, {side.label}", unit="s"),
            taken=Series(label=f"kill until the others own all partitions, {side.label}", unit="s"),
            errors=[],
        )

    def notes(self) -> list[str]:
        """Return the outcome as text."""
        return [f"{self.side.label}, {self.errors.count(error)} x: {error}" for error in sorted(set(self.errors))]


def _raw_crash(bench: Bench, refusal: _Refusal, topic: str) -> None:
    """Crash a member of a separate group, because the group does not recover."""
    with counted_in(refusal.record), StaticGroup(bench, refusal.side, topic, MEMBERS) as group:
        group.begin()
        time.sleep(bench.settle_s)
        victim, *others = group.instances
        killed_at = victim.process.kill()
        process = victim.start()
        time.sleep(_RAW_RECORD_S)
        fatal = process.fatal()
        if fatal:
            refusal.error.add(fatal[0].at - process.constructing_at)
            refusal.errors.append(f"{fatal[0].facts['name']}: {fatal[0].facts['message']}")
            log(f"crash: {refusal.side.label} {refusal.errors[-1]}")
        if not bench.is_quick:
            taken_at = _all_taken_at(others)
            refusal.taken.add(taken_at - killed_at)
            log(f"crash: {refusal.side.label} others have its partitions after {taken_at - killed_at:.1f} s")
        refusal.record.add(process.steps(0.0).first_record)


def _all_taken_at(others: list[Instance]) -> float:
    """Return the time since which these members own all partitions.

    Raises:
        WorkerFailedError: They do not own all partitions in time.
    """
    give_up_at = time.monotonic() + _MOVED_S
    while time.monotonic() < give_up_at:
        shares = [owned_by(one.process.callbacks()) for one in others]
        if sum(len(partitions) for partitions, _ in shares) == PARTITIONS:
            return max(since for _, since in shares)
        time.sleep(0.1)
    raise WorkerFailedError(f"the other members do not own all partitions after {_MOVED_S:.0f} s")
