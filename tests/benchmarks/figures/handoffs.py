"""The number of lost and repeated records while members join and leave cleanly."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.groups import Group, GroupMember, balanced_at, tally
from tests.benchmarks.processes import WorkerFailedError
from tests.benchmarks.samples import Series, at_most

if TYPE_CHECKING:
    import random

    from tests.benchmarks.bench import Bench, Side

_RECORDS, _QUICK_RECORDS = 60_000, 20_000
_RECORDS_PER_S = 2_000
_FIRST_MEMBERS = 2
_MOST_MEMBERS = 4
_PAUSE_S = (0.2, 2.0)
_BALANCE_S = 30.0
_SILENCE_S = 20.0
"""Longer than any rebalance of either side: records that have not arrived by then are lost."""

_LOST, _TWICE, _LEAVES, _JOINS, _MOVES = "lost", "twice", "leaves", "joins", "partitions that changed their owner"


def run(bench: Bench) -> Figure:
    """Count lost and repeated records by number, over joins and leaves at random moments."""
    sides = (bench.ours(), bench.raw())
    units = {_LOST: "records", _TWICE: "records", _JOINS: "members", _LEAVES: "members", _MOVES: "partitions"}
    series = {side: {what: side.series(what, unit) for what, unit in units.items()} for side in sides}
    rounds = bench.count(3, 1)
    # Both sides of a round have equal random generators and so the same schedule.
    for number in range(rounds):
        seed = bench.chance.random()
        turns = [partial(_round, bench, side, series[side], number, bench.own_random(seed)) for side in sides]
        for turn in turns if number % 2 == 0 else reversed(turns):
            turn()
    ours = series[sides[0]]
    records = _QUICK_RECORDS if bench.is_quick else _RECORDS
    checks = tuple(
        at_most(
            f"clean handoffs while {records:,} records flow: 0 {what}",
            max(ours[what].values) if ours[what].values else None,
            0,
            "records",
            [ours[what]],
        )
        for what in (_LOST, _TWICE)
    )
    return Figure(
        title=f"Clean handoffs: members leave and join while {records:,} records flow",
        series=tuple(one for pair in zip(*(series[side].values() for side in sides), strict=True) for one in pair),
        checks=checks,
        notes=("odd rounds consume by poll(), even rounds by consume(50); automatic commits of each side",),
    )


def _round(bench: Bench, side: Side, series: dict[str, Series], number: int, chance: random.Random) -> None:
    records = _QUICK_RECORDS if bench.is_quick else _RECORDS
    topic = bench.topic("handoffs")
    batch = 50 if number % 2 else 0
    with counted_in(*series.values()), Group(bench, side, topic, batch=batch) as group:
        members = [group.member() for _ in range(_FIRST_MEMBERS)]
        for one in members:
            one.subscribe()
        balanced_at(members, _BALANCE_S)
        gone: list[GroupMember] = []
        joins = 0
        spare = group.member()
        with bench.streaming(topic, _RECORDS_PER_S / PARTITIONS, total=records) as stream:
            while not stream.reports("streamed"):
                time.sleep(chance.uniform(*_PAUSE_S))
                if chance.random() < _chance_to_join(len(members)):
                    # The next process starts in advance, so that its start does not delay the joins.
                    spare.prepare()
                    spare.subscribe()
                    members.append(spare)
                    spare = group.spare()
                    joins += 1
                else:
                    leaver = members.pop(chance.randrange(len(members)))
                    leaver.leave()
                    gone.append(leaver)
        leaves = len(gone)
        _await_silence([*members], records - sum(len(one.handled) for one in gone))
        for one in members:
            one.leave()
        gone += members
        errors = [error for one in gone for error in one.errors]
        if errors:
            raise WorkerFailedError(f"members got errors: {errors[:5]}")
        counts = tally(([record.number for record in one.handled] for one in gone), records)
        moves = sum(one.moves for one in gone) - PARTITIONS
        if moves <= 0:
            raise WorkerFailedError("no partition changed its owner, so the round proves nothing")
        counted = (counts.lost, counts.duplicates, joins, leaves, moves)
        for what, value in zip((_LOST, _TWICE, _JOINS, _LEAVES, _MOVES), counted, strict=True):
            series[what].add(value)
        log(f"handoffs: {side.label} lost {counts.lost}, twice {counts.duplicates}, {joins} joins, {leaves} leaves")


def _chance_to_join(members: int) -> float:
    if members >= _MOST_MEMBERS:
        return 0.0
    return 1.0 if members == 1 else 0.5


def _await_silence(members: list[GroupMember], expected: int) -> None:
    """Return when all records were handled and no more arrive, or when none arrive for long."""
    count, changed_at = -1, time.monotonic()
    while time.monotonic() - changed_at < (2.0 if count >= expected else _SILENCE_S):
        now_count = sum(one.progress() for one in members)
        if now_count != count:
            count, changed_at = now_count, time.monotonic()
        time.sleep(0.1)
