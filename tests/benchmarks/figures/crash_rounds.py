"""The lost and repeated records of static members that are killed repeatedly under load."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.figures.crash import MEMBERS, most
from tests.benchmarks.instances import StaticGroup
from tests.benchmarks.ledgers import Account, Ledger, account, read
from tests.benchmarks.samples import Check, Series, at_most

if TYPE_CHECKING:
    import random

    from tests.benchmarks.bench import Bench
    from tests.benchmarks.instances import Instance, Snapshot

RECOVERY = "kill to first record at the replacement"
TWICE = "records handled twice because of a kill"
EVERYTHING = "kill to first records of all its partitions"
IN_FLIGHT = "records in flight at a kill"
BATCH = 100
_RECORDS_PER_S = 5_000
_TICKS_PER_S = 1.1 * _RECORDS_PER_S / PARTITIONS
"""The stream does not catch up delayed ticks, so it needs more ticks than this number of records requires."""

_PAUSE_S = (0.2, 2.0)
_STARTING_S = (0.0, 0.8)
"""About the duration of a start, so that some replacements are killed while they start."""

_CHANCE_TO_KILL_TWICE = 0.15
_GIVE_UP_S = 30.0
_QUIET_S = 2.0
_SILENCE_S = 20.0
"""Longer than any recovery here: records that have not arrived by then are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """The series of the figure, in the order of the table."""

    recovery: Series
    everything: Series
    lost: Series
    twice: Series
    unexplained: Series
    in_flight: Series
    moved: Series

    @classmethod
    def of(cls) -> _Counted:
        """Return the series without a measurement."""

        def series(label: str, unit: str) -> Series:
            return Series(label=label, unit=unit, is_ours=True)

        return cls(
            recovery=series(RECOVERY, "s"),
            everything=series(EVERYTHING, "s"),
            lost=series("records lost", "records"),
            twice=series(TWICE, "records"),
            unexplained=series("records handled twice that no killed member had in flight", "records"),
            in_flight=series(IN_FLIGHT, "records"),
            moved=series("partitions that moved", "partitions"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (
            self.recovery,
            self.everything,
            self.lost,
            self.twice,
            self.unexplained,
            self.in_flight,
            self.moved,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The objects that all rounds share."""

    group: StaticGroup
    counted: _Counted
    chance: random.Random


def run(bench: Bench) -> Figure:
    """Kill and restart members at random times while records flow; then count the records of all ledgers."""
    topic = bench.topic("crash-rounds")
    counted = _Counted.of()
    rounds = bench.count(50, 5)
    notes: list[str] = []
    with (
        counted_in(counted.lost, counted.unexplained),
        StaticGroup(
            bench, bench.ours(enable_auto_commit="false"), topic, MEMBERS, kind="committer", batch=BATCH
        ) as group,
    ):
        shared = _Run(group=group, counted=counted, chance=bench.own_random(bench.chance.random()))
        with bench.streaming(topic, _TICKS_PER_S) as stream:
            group.begin()
            time.sleep(bench.settle_s)
            _rounds(shared, rounds)
        streamed = stream.reports("streamed")[-1].facts
        _count(counted, *_audit(group, int(streamed["count"])))
        kills = sum(process.killed_at is not None for process in group.processes())
        notes += [
            f"{streamed['count']:,} records, {streamed['count'] / streamed['wall_s']:,.0f} a second; {kills} kills",
            *(f"error: {error}" for error in group.errors()),
        ]
        for instance in group.instances:
            instance.process.leave()
    return Figure(
        title=f"Crash rounds: {rounds} x kill -9 of one of three static members under {_RECORDS_PER_S:,} records/s",
        series=counted.series,
        checks=_checks(counted, rounds),
        notes=(
            f"consume({BATCH}), 10 ms for the entries in the ledger, commit(asynchronous=False); no automatic commits",
            (
                f"the next kill: {_PAUSE_S[0]} to {_PAUSE_S[1]} s after the last member had recovered; or, once in"
                f" {1 / _CHANCE_TO_KILL_TWICE:.0f} rounds, of the replacement itself, up to {_STARTING_S[1]} s after"
                " its start: the recovery of such a round is not measured separately"
            ),
            *notes,
        ),
    )


def _checks(counted: _Counted, rounds: int) -> tuple[Check, ...]:
    what = f"{rounds} crashes"
    return (
        at_most(f"{what}: 0 lost", most(counted.lost), 0, "records", [counted.lost, counted.recovery]),
        at_most(f"{what}: each repeats at most its batch", most(counted.twice), BATCH, "records", [counted.twice]),
        at_most(
            f"{what}: handled twice but not from a killed member's uncommitted batch: 0",
            most(counted.unexplained),
            0,
            "records",
            [counted.unexplained],
        ),
        at_most(f"{what}: others' partitions that moved: 0", most(counted.moved), 0, "partitions", [counted.moved]),
    )


def _rounds(shared: _Run, rounds: int) -> None:
    """Kill and restart members this many times; some are killed again before they have recovered."""
    counted, chance = shared.counted, shared.chance
    done = 0
    while done < rounds:
        victim = chance.choice(shared.group.instances)
        pause_s = chance.uniform(*_PAUSE_S)
        with counted_in(counted.recovery, counted.everything, counted.moved):
            before = shared.group.snapshot(victim)
            killed_at = _kill(victim)
            done += 1
            while done < rounds and chance.random() < _CHANCE_TO_KILL_TWICE:
                time.sleep(chance.uniform(*_STARTING_S))
                killed_at = _kill(victim)
                done += 1
                log(f"crash-rounds: {done}/{rounds} {victim.name} killed again during its start")
            recovery_s = _recovered(shared, before, killed_at, done)
            time.sleep(pause_s)
            movement = shared.group.movement(before)
            counted.moved.add(len(movement.partitions), partitions=sorted(movement.partitions))
            moved = f"{len(movement.partitions)} moved"
            log(f"crash-rounds: {done}/{rounds} {victim.name} recovered after {recovery_s:.3f} s, {moved}")


def _kill(victim: Instance) -> float:
    killed_at = victim.process.kill()
    victim.start()
    return killed_at


def _recovered(shared: _Run, before: Snapshot, killed_at: float, number: int) -> float:
    """Wait until all partitions of the killed member have records again; return the time of the recovery."""
    process = before.instance.process
    steps = process.steps(_GIVE_UP_S)
    recovery_s = process.started_at + steps.first_record - killed_at
    shared.counted.recovery.add(recovery_s, round=number, instance=before.instance.name, **asdict(steps))
    process.worker.until(
        lambda: process.firsts().keys() >= before.owned, _GIVE_UP_S, f"records of {sorted(before.owned)}"
    )
    last_at = max(process.firsts()[partition] for partition in before.owned)
    shared.counted.everything.add(last_at - killed_at, round=number)
    return recovery_s


def _audit(group: StaticGroup, total: int) -> tuple[list[Ledger], Account]:
    """Return the ledgers and their outcome when all records were handled or no more records arrive."""
    size, changed_at = -1, time.monotonic()
    while True:
        time.sleep(0.2)
        now_size = sum(path.stat().st_size for path in group.ledgers.iterdir())
        if now_size != size:
            size, changed_at = now_size, time.monotonic()
        quiet_s = time.monotonic() - changed_at
        if quiet_s > _QUIET_S:
            ledgers = [read(Path(process.job.ledger), process.killed_at) for process in group.processes()]
            result = account(ledgers, total)
            if result.lost <= 0 or quiet_s > _SILENCE_S:
                return ledgers, result


def _count(counted: _Counted, ledgers: list[Ledger], result: Account) -> None:
    counted.lost.add(result.lost)
    counted.unexplained.add(result.unexplained)
    killed = sorted(
        (ledger.killed_at, ledger.in_flight, twice)
        for ledger, twice in zip(ledgers, result.twice, strict=True)
        if ledger.killed_at is not None
    )
    for number, (_, in_flight, twice) in enumerate(killed, 1):
        counted.in_flight.add(in_flight, round=number)
        counted.twice.add(twice, round=number)
