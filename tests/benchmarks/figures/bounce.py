"""The time without records of each static member, if the members are closed and restarted one after the other."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.figures.crash import FROM_CONSTRUCTOR, FROM_START, Recovery, most
from tests.benchmarks.instances import StaticGroup
from tests.benchmarks.samples import Check, Series, at_most, median_of, quotient

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.benchmarks.bench import Bench, Side

FACTOR = 2.0
_GIVE_UP_S = 30.0
_CALM_S = (0.5, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a group, the rate of its records, and the number of restarts."""

    members: int
    partitions: int
    ticks_per_s: float
    rounds: int
    quick: int

    def __str__(self) -> str:
        """The name in tables."""
        return f"{self.members} members"


SIZES = (
    Size(members=3, partitions=12, ticks_per_s=40.0, rounds=12, quick=3),
    Size(members=20, partitions=60, ticks_per_s=10.0, rounds=20, quick=4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounced:
    """The series of one side in a group of one size."""

    recovery: Recovery
    out_of_service: Series

    @classmethod
    def of(cls, side: Side, size: Size) -> Bounced:
        """Return the series without a measurement."""
        label = f"close to first record, {size}, {side.label}"
        return cls(
            recovery=Recovery.of(side, f", {size}"),
            out_of_service=Series(label=label, unit="s", is_ours=side.is_ours),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (*self.recovery.series, self.out_of_service)


def run(bench: Bench) -> Figure:
    """Restart one member after the other in groups of both sides, in turns."""
    sides = (bench.ours(), bench.raw())
    notes: list[str] = []
    series: list[Series] = []
    checks: list[Check] = []
    for size in SIZES:
        bounced = [Bounced.of(side, size) for side in sides]
        errors = _one_size(bench, size, bounced)
        series += [one for both in zip(*(each.series for each in bounced), strict=True) for one in both]
        checks += _checks(size, *bounced)
        notes += [each.recovery.timeline() for each in bounced] + errors
    return Figure(
        title="Rolling bounce: each static member is closed and restarted at once, one after the other",
        series=tuple(series),
        checks=tuple(checks),
        notes=(
            *(
                f"{size}: {size.partitions} partitions, {size.partitions * size.ticks_per_s:.0f} records a second"
                for size in SIZES
            ),
            "both groups run all the time; default settings, automatic commits; a close keeps the member's partitions",
            "imports are part of the start; the workers hide hypothesis, which users do not have",
            "CPU: of the whole process; if it is much less than the duration, the machine ran other work",
            *notes,
        ),
    )


def _checks(size: Size, ours: Bounced, raw: Bounced) -> list[Check]:
    pairs = (
        (FROM_START, ours.recovery.from_start, raw.recovery.from_start),
        (FROM_CONSTRUCTOR, ours.recovery.from_constructor, raw.recovery.from_constructor),
    )
    ratios = [
        at_most(
            f"{size}, {what}: {name} at most {FACTOR} x raw",
            quotient(of(mine), of(theirs)),
            FACTOR,
            "x raw",
            [mine, theirs],
        )
        for what, mine, theirs in pairs
        for name, of in (("median", median_of), ("worst", most))
    ]
    return [*ours.recovery.nothing_moved(str(size)), *ratios]


def _one_size(bench: Bench, size: Size, bounced: list[Bounced]) -> list[str]:
    """Measure groups of one size; return the errors that their members reported."""
    topic = bench.topic("bounce", size.partitions)
    seed = bench.chance.random()
    with ExitStack() as stack:
        stack.enter_context(bench.streaming(topic, size.ticks_per_s, partitions=size.partitions))
        groups = [
            stack.enter_context(StaticGroup(bench, each.recovery.side, topic, size.members, partitions=size.partitions))
            for each in bounced
        ]
        for group in groups:
            group.begin()
        log(f"bounce: {size}: both groups are balanced")
        time.sleep(bench.settle_s)
        turns = [
            _turns_of(each, group, size, bench.own_random(seed)) for each, group in zip(bounced, groups, strict=True)
        ]
        bench.in_turns(bench.count(size.rounds, size.quick), *turns)
        return [
            f"{each.recovery.side.label}, {size}: {error}"
            for each, group in zip(bounced, groups, strict=True)
            for error in group.errors()
        ]


def _turns_of(bounced: Bounced, group: StaticGroup, size: Size, chance: random.Random) -> Callable[[], None]:
    """Return a turn that restarts the next member each time."""
    numbers = iter(range(10**6))
    return lambda: _bounce(bounced, group, next(numbers) % size.members, size, chance)


def _bounce(bounced: Bounced, group: StaticGroup, number: int, size: Size, chance: random.Random) -> None:
    instance = group.instances[number]
    calm_s = chance.uniform(*_CALM_S)
    with counted_in(*bounced.series):
        before = group.snapshot(instance)
        leaving_at = instance.process.leave()
        process = instance.start()
        steps = process.steps(_GIVE_UP_S)
        out_s = process.started_at + steps.first_record - leaving_at
        time.sleep(calm_s)
        movement = group.movement(before)
        bounced.recovery.add(steps, movement)
        bounced.out_of_service.add(out_s)
        times = f"{steps.first_record:.3f} s, from the constructor {steps.from_constructor:.3f} s"
        log(f"bounce: {size}, {bounced.recovery.side.label} {times}, {len(movement.partitions)} moved")
