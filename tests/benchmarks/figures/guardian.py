"""The time for which the partitions of a killed process stall, with a guardian and without one."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import HEARTBEAT_S, Figure, counted_in, log
from tests.benchmarks.figures.scale_out import BALANCE_S, STREAM_TICKS_PER_S
from tests.benchmarks.groups import Group, balanced_at
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Check, Series, at_most

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.groups import Record

MEMBERS = 3
#: One heartbeat interval, and a second for all other steps.
LIMIT_S = HEARTBEAT_S + 1.0
QUICK_LIMIT_S = 2.0
#: A session (45 s), the next heartbeats of the other members, and a reserve.
_TAKEN_S = 90.0
_FLOWING_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredSide:
    """One side, its series, and the number of its measurements."""

    side: Side
    series: Series
    rounds: int
    chance: random.Random


def run(bench: Bench) -> Figure:
    """Kill one of three members at random times, repeatedly, on all sides at the same time."""
    topic = bench.topic("guardian")
    guarded = {"crash_guardian_enable": "true"}
    # A round without a guardian takes more than a session (45 s), and its results hardly vary.
    often, seldom = bench.count(12, 4), bench.rounds or (1 if bench.is_quick else 4)
    sides = [
        _MeasuredSide(
            side=side,
            series=Series(label=side.label, unit="s", is_ours=side.is_ours),
            rounds=rounds,
            chance=bench.own_random(bench.chance.random()),
        )
        for side, rounds in (
            (bench.ours("ours, guardian", **guarded), often),
            (bench.ours("ours, guardian, heartbeat.interval.ms=200", heartbeat_interval_ms="200", **guarded), often),
            (bench.ours("ours, no guardian"), seldom),
            (bench.raw(), seldom),
        )
    ]
    with bench.streaming(topic, STREAM_TICKS_PER_S), ThreadPoolExecutor(len(sides)) as lanes:
        for lane in [lanes.submit(_lane, bench, measured, topic) for measured in sides]:
            lane.result()
    default, quick, *_ = (measured.series for measured in sides)
    return Figure(
        title="kill -9 of one of three members: the kill to the others' first record from each of its partitions",
        series=tuple(measured.series for measured in sides),
        checks=(
            _check(f"default settings: at most one heartbeat interval + 1 s = {LIMIT_S:.0f} s", default, LIMIT_S),
            _check(f"heartbeat.interval.ms=200: at most {QUICK_LIMIT_S:.0f} s", quick, QUICK_LIMIT_S),
        ),
        notes=(
            f"{often} kills on a side with a guardian, {seldom} on each other side; killed members owned 4 partitions",
            f"{STREAM_TICKS_PER_S:.0f} records a second for each partition: every member's heartbeats are active ones",
            f"the groups were stable for {bench.settle_s:.0f} s and up to {HEARTBEAT_S:.0f} s more before each kill",
        ),
    )


def _check(bound: str, series: Series, limit_s: float) -> Check:
    return at_most(f"guardian, {bound}", max(series.values, default=None), limit_s, "s at most", [series])


def _lane(bench: Bench, measured: _MeasuredSide, topic: str) -> None:
    """Measure each kill with a new group, because the survivors report their handled records at their end."""
    for _ in range(measured.rounds):
        with counted_in(measured.series), Group(bench, measured.side, topic) as group:
            spares = [group.spare() for _ in range(MEMBERS)]
            for spare in spares:
                spare.prepare()
                spare.subscribe()
            balanced_at(spares, BALANCE_S)
            time.sleep(bench.settle_s + measured.chance.uniform(0, HEARTBEAT_S))
            victim, *survivors = spares
            orphans, _ = victim.owned()
            killed_at = time.monotonic()
            os.kill(victim.worker.pid, signal.SIGKILL)
            balanced_at(survivors, _TAKEN_S)
            time.sleep(_FLOWING_S)
            for survivor in survivors:
                survivor.leave()
            handled = [record for survivor in survivors for record in survivor.handled]
            waits = waits_after(killed_at, orphans, handled)
            for partition, wait_s in sorted(waits.items()):
                measured.series.add(wait_s, partition=partition)
            log(f"guardian: {measured.side.label} {max(waits.values()):.3f} s (the longest of {len(waits)})")


def waits_after(killed_at: float, orphans: Iterable[int], handled: Iterable[Record]) -> Mapping[int, float]:
    """Return for each orphaned partition the time from the kill to the first record that a survivor handled.

    Raises:
        WorkerFailedError: The survivors handled no record of one of the partitions.
    """
    first: dict[int, float] = {}
    for record in handled:
        if record.handled_at >= killed_at:
            first[record.partition] = min(record.handled_at, first.get(record.partition, record.handled_at))
    silent = sorted(set(orphans) - first.keys())
    if silent:
        raise WorkerFailedError(f"no member handled a record of partitions {silent} after the kill")
    return {partition: first[partition] - killed_at for partition in orphans}
