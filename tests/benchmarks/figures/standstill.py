"""The time for which a partition stalls when it changes its owner."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tests.benchmarks.bench import HEARTBEAT_S, Figure, counted_in, log
from tests.benchmarks.figures.scale_out import BALANCE_S, STREAM_TICKS_PER_S
from tests.benchmarks.groups import Group, GroupMember, Record, balanced_at, handovers
from tests.benchmarks.samples import Series, at_most, p90_of

if TYPE_CHECKING:
    import random

    from tests.benchmarks.bench import Bench, Side

CHANGES = ("scale-out", "clean leave")

_LANES = 4
_FLOWING_S = 3.0
LIMIT_S = 0.4


def run(bench: Bench) -> Figure:
    """Measure every partition that moves, in scale-outs and clean leaves at random phases, with default settings."""
    topic = bench.topic("standstill")
    sides = (bench.ours(), bench.raw())
    series = {
        side: [side.series(change, "s") for change in (*CHANGES, *(f"oldest record at {change}" for change in CHANGES))]
        for side in sides
    }
    rounds = bench.count(20, 4)
    per_lane = bench.lanes(rounds, _LANES)
    with bench.streaming(topic, STREAM_TICKS_PER_S), ThreadPoolExecutor(len(sides) * _LANES) as lanes:
        done = [
            lanes.submit(_lane, bench, side, topic, series[side], count, bench.own_random(seed))
            for count, seed in per_lane
            for side in sides
        ]
        for lane in done:
            lane.result()
    ours = series[sides[0]]
    checks = tuple(
        at_most(f"standstill of a moved partition, {change}: p90 at most {LIMIT_S} s", p90_of(one), LIMIT_S, "s", [one])
        for change, one in zip(CHANGES, ours, strict=False)
    )
    return Figure(
        title="Standstill of a moved partition: last record at the old owner to first record at the new one",
        series=tuple(one for pair in zip(*series.values(), strict=True) for one in pair),
        checks=checks,
        notes=(
            f"{rounds} scale-outs and as many clean leaves on each side, 6 partitions each, default settings",
            (
                f"{STREAM_TICKS_PER_S:.0f} records a second for each partition: {1000 / STREAM_TICKS_PER_S:.0f} ms of a"
                " standstill are due to the stream"
            ),
            f"the groups were stable for {bench.settle_s:.0f} s and up to {HEARTBEAT_S:.0f} s more before each change",
        ),
    )


def _lane(bench: Bench, side: Side, topic: str, series: list[Series], rounds: int, chance: random.Random) -> None:
    """Measure one group in which a second member joins and leaves repeatedly.

    The first member reports its handled records at its end, so the rounds are evaluated then.
    """
    scale_outs: list[tuple[GroupMember, frozenset[int]]] = []
    with counted_in(*series), Group(bench, side, topic) as group:
        owner = group.member()
        owner.subscribe()
        balanced_at([owner], BALANCE_S)
        for _ in range(rounds):
            newcomer = group.member()
            time.sleep(bench.settle_s + chance.uniform(0, HEARTBEAT_S))
            newcomer.subscribe()
            balanced_at([owner, newcomer], BALANCE_S)
            moved, _ = newcomer.owned()
            time.sleep(bench.settle_s + chance.uniform(0, HEARTBEAT_S))
            newcomer.leave()
            balanced_at([owner], BALANCE_S)
            time.sleep(_FLOWING_S)
            scale_outs.append((newcomer, moved))
        owner.leave()
        for newcomer, moved in scale_outs:
            _evaluate(owner.handled, newcomer, moved, series)


def _evaluate(owner: list[Record], newcomer: GroupMember, moved: frozenset[int], series: list[Series]) -> None:
    with counted_in(*series):
        middle = (newcomer.subscribed_at + newcomer.leaving_at) / 2
        before = [record for record in owner if record.handled_at < middle]
        after = [record for record in owner if record.handled_at >= middle]
        came = handovers(before, newcomer.handled, moved)
        went = handovers(newcomer.handled, after, moved)
        for changes, standstill, oldest in ((came, series[0], series[2]), (went, series[1], series[3])):
            for change in changes:
                standstill.add(change.standstill_s, partition=change.partition)
                oldest.add(change.oldest_s, partition=change.partition)
            worst = max(change.standstill_s for change in changes)
            log(f"standstill: {standstill.label} {worst:.3f} s (the longest of {len(changes)})")
