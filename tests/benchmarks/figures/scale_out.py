"""The time from a second member's subscribe until both members own half of the partitions."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING

from tests.benchmarks.bench import HEARTBEAT_S, PARTITIONS, Figure, counted_in, log
from tests.benchmarks.groups import Group, balanced_at
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Check, Series, at_most, difference, median_of, p90_of

if TYPE_CHECKING:
    import random

    from tests.benchmarks.bench import Bench, Side

BALANCE_S = 30.0
STREAM_TICKS_PER_S = 50.0
_LANES = 2
SLOWER_BY_S = 0.5
QUICK_CADENCE_S = 0.8


def run(bench: Bench) -> Figure:
    """Measure idle groups and groups under load, at random phases of the first member's heartbeat."""
    sides = (bench.ours(), bench.raw(), bench.ours("ours, heartbeat.interval.ms=200", heartbeat_interval_ms="200"))
    classic = bench.raw(
        "raw classic, cooperative-sticky", group_protocol="classic", partition_assignment_strategy="cooperative-sticky"
    )
    idle = _measure(bench, "idle", (*sides, classic))
    loaded = _measure(bench, "under load", sides)
    checks = [check for measured in (idle, loaded) for check in _checks(*measured[:3])]
    return Figure(
        title="Scale-out 1 -> 2: second member's constructor and subscribe until both own 6 of 12 partitions",
        series=(*idle, *loaded),
        checks=tuple(checks),
        notes=(
            f"the first member was alone without changes for {bench.settle_s:.0f} s and up to {HEARTBEAT_S:.0f} s more",
            f"load: {STREAM_TICKS_PER_S:.0f} records a second for each partition",
        ),
    )


def _checks(ours: Series, raw: Series, quick: Series) -> list[Check]:
    circumstances = ours.label.split(", ", 1)[1]
    relative = [
        at_most(
            f"scale-out {circumstances}, default settings: {name} at most raw + {SLOWER_BY_S} s",
            difference(of(ours), of(raw)),
            SLOWER_BY_S,
            "s more than raw",
            [ours, raw],
        )
        for name, of in (("median", median_of), ("p90", p90_of))
    ]
    bound = f"scale-out {circumstances}, heartbeat.interval.ms=200: p90 at most {QUICK_CADENCE_S} s"
    return [*relative, at_most(bound, p90_of(quick), QUICK_CADENCE_S, "s", [quick])]


def _measure(bench: Bench, circumstances: str, sides: tuple[Side, ...]) -> tuple[Series, ...]:
    topic = bench.topic("scale-out")
    series = tuple(Series(label=f"{side.label}, {circumstances}", unit="s", is_ours=side.is_ours) for side in sides)
    rounds = bench.count(10, 4)
    per_lane = bench.lanes(rounds, _LANES)
    flow = bench.streaming(topic, STREAM_TICKS_PER_S) if circumstances == "under load" else nullcontext()
    # The lanes of all sides run at the same time, because a scale-out needs little processor time.
    with flow, ThreadPoolExecutor(len(sides) * _LANES) as lanes:
        done = [
            lanes.submit(_lane, bench, side, topic, one, count, bench.own_random(seed))
            for count, seed in per_lane
            for side, one in zip(sides, series, strict=True)
        ]
        for lane in done:
            lane.result()
    return series


def _lane(bench: Bench, side: Side, topic: str, series: Series, rounds: int, chance: random.Random) -> None:
    """Scale one group out and back repeatedly."""
    with counted_in(series), Group(bench, side, topic) as group:
        owner = group.member()
        owner.subscribe()
        balanced_at([owner], BALANCE_S)
        for _ in range(rounds):
            newcomer = group.member()
            time.sleep(bench.settle_s + chance.uniform(0, HEARTBEAT_S))
            newcomer.subscribe()
            both = [owner, newcomer]
            with counted_in(series):
                took_s = balanced_at(both, BALANCE_S) - newcomer.subscribed_at
                time.sleep(0.5)
                reported = [one.reported() for one in both]
                if sorted(reported[0] + reported[1]) != list(range(PARTITIONS)):
                    raise WorkerFailedError(f"assignment() differs from the callbacks: {reported}")
                series.add(took_s)
                log(f"scale-out: {series.label} {took_s:.3f} s")
            newcomer.leave()
            balanced_at([owner], BALANCE_S)
        owner.leave()
