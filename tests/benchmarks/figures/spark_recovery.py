"""The lost and duplicate rows, and the recovery, of members in Spark tasks that are killed under load."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.admin import GroupAdmin
from consumer_membership.types import OffsetAndMetadata
from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.figures.crash import most
from tests.benchmarks.figures.spark import START_TIMEOUT_S
from tests.benchmarks.processes import Worker, WorkerFailedError
from tests.benchmarks.samples import Check, Series, Verdict, amount, at_most
from tests.benchmarks.spark_stores import Store, store_of
from tests.benchmarks.workers.spark_marks import Mark, marks
from tests.benchmarks.workers.spark_run import EXECUTOR_FLAGS, KAFKA, PARQUET, POSTGRES, Job

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Sequence

    from tests.benchmarks.bench import Bench

NAME = "spark-recovery"

LIMIT_S = 2.0
INSTANCES = 2
PARTITIONS = 4
BEATS_PER_S = 250.0
_PAUSE_S = (0.5, 2.5)
_GIVE_UP_S = 60.0
_POLL_S = 0.02
_END_TIMEOUT_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The victim of the kills, Spark's master, and the sink of the records."""

    victim: str
    master: str
    sink: str

    def __str__(self) -> str:
        """The name in tables."""
        return f"{self.victim} killed, {self.sink}"

    def pid(self, mark: Mark) -> int:
        """Return the process to kill in this attempt."""
        return mark.pid if self.victim == WORKER else mark.executor


WORKER, EXECUTOR = "worker", "executor"
MASTERS = {WORKER: "local[2,100]", EXECUTOR: f"local-cluster[{INSTANCES},1,512]"}
CELLS = {
    f"{victim}-{sink.lower()}": Scenario(victim=victim, master=master, sink=sink)
    for victim, master in MASTERS.items()
    for sink in (PARQUET, POSTGRES, KAFKA)
}
"""Every victim with every sink, by the name that `--cell` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The measurements of one scenario."""

    scenario: Scenario
    recovery: Series
    outage: Series
    lost: Series
    twice: Series

    @classmethod
    def of(cls, scenario: Scenario) -> Counted:
        """Return the series without a measurement."""

        def series(what: str, unit: str) -> Series:
            return Series(label=f"{scenario}: {what}", unit=unit, is_ours=True)

        return cls(
            scenario=scenario,
            recovery=series("replacement's start to its first record", "s"),
            outage=series("kill to the replacement's first record", "s"),
            lost=series("records lost", "records"),
            twice=series("rows there twice", "rows"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.recovery, self.outage, self.lost, self.twice)

    def __str__(self) -> str:
        """One line: kills, lost and duplicate rows, the worst and the median recovery, and the verdict."""
        summary = self.recovery.summary
        kills = len(self.recovery.values)
        holds = all(check.verdict is Verdict.PASS for check in checks(self, kills))
        parts = [
            f"{kills} kills",
            *(
                f"{'?' if found is None else int(found)} {what}"
                for found, what in ((most(self.lost), "lost"), (most(self.twice), "twice"))
            ),
            "no recovery"
            if summary is None
            else f"recovery worst {amount(summary.most, 's')}, median {amount(summary.median, 's')}",
        ]
        return f"{self.scenario}: {', '.join(parts)}: {(Verdict.PASS if holds else Verdict.FAIL).value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The records of a sink compared with the records of the topic."""

    lost: int
    twice: int
    strangers: int


def audit(numbers: Iterable[int], total: int) -> Audit:
    """Compare a sink's records with the expected ones: each number below `total` once, and no others."""
    counts = Counter(numbers)
    known = {number for number in counts if 0 <= number < total}
    return Audit(
        lost=total - len(known),
        twice=sum(counts[number] - 1 for number in known),
        strangers=sum(times for number, times in counts.items() if number not in known),
    )


def replacement(found: Iterable[Mark], victim: Mark) -> Mark | None:
    """Return the first later attempt of the same member that received records."""
    later = [mark for mark in found if mark.instance == victim.instance and mark.attempt > victim.attempt]
    return min(later, key=lambda mark: mark.attempt, default=None)


def latest(found: Iterable[Mark]) -> dict[int, Mark]:
    """Return the latest attempt of each member."""
    return {mark.instance: mark for mark in sorted(found, key=lambda mark: mark.attempt)}


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Return the cells with these names in the order of the table, or all cells without names."""
    return [scenario for name, scenario in CELLS.items() if not names or name in names]


def run(bench: Bench) -> Figure:
    """Kill a member and wait for its replacement, repeatedly; then compare the sink with the written records."""
    rounds = bench.count(10, 2)
    # All cells have the same victims, and the same pauses before their kills.
    seed = bench.chance.random()
    counted = [Counted.of(scenario) for scenario in chosen(bench.cells)]
    notes: list[str] = []
    for one in counted:
        with counted_in(*one.series), store_of(one.scenario.sink, bench.bootstrap, PARTITIONS) as store:
            notes.append(_kill(bench, one, store, rounds, bench.own_random(seed)))
        log(f"{NAME}: {one}")
    return Figure(
        title=f"Spark: {rounds} x kill -9 of a task's Python worker, and of an executor, under load",
        series=tuple(series for one in counted for series in one.series),
        checks=tuple(check for one in counted for check in checks(one, rounds)),
        notes=(
            (
                "the replacement's start: when its function begins in the task, which first unpickles the sink; the"
                " time from the kill also includes the start of the process and the import of the package"
            ),
            (
                f"{INSTANCES} members, run() with its defaults, {PARTITIONS} partitions; the next kill"
                f" {_PAUSE_S[0]} to {_PAUSE_S[1]} s after the last replacement's first record"
            ),
            "rows in the sink are compared with the producer's numbers, each of which must occur once",
            f"executors' JVMs have {EXECUTOR_FLAGS}, which shortens the time from the kill to the replacement's start",
            "every cell has the same load, and the same victims with the same pauses",
            *(str(one) for one in counted),
            *notes,
        ),
    )


def _kill(bench: Bench, counted: Counted, store: Store, rounds: int, chance: random.Random) -> str:
    scenario = counted.scenario
    topic = bench.topic("spark-recovery", PARTITIONS)
    group = bench.group(bench.ours())
    with tempfile.TemporaryDirectory(prefix="bench-marks-") as folder:
        job = Job(
            bootstrap=bench.bootstrap,
            master=scenario.master,
            topic=topic,
            group=group,
            instances=INSTANCES,
            sink=scenario.sink,
            place=store.place,
            conninfo=store.conninfo,
            marks=folder,
        )
        with Worker("spark_run", job) as worker:
            worker.expect("running", START_TIMEOUT_S)
            with bench.streaming(topic, BEATS_PER_S, partitions=PARTITIONS) as stream:
                _until(lambda: len(latest(marks(Path(folder)))) == INSTANCES, worker, "records at all members")
                for number in range(1, rounds + 1):
                    _round(counted, Path(folder), worker, chance, number)
                time.sleep(chance.uniform(*_PAUSE_S))
            streamed = stream.reports("streamed")[-1].facts
            total = int(streamed["count"])
            _until(lambda: _committed(bench.bootstrap, group) >= total, worker, f"the commit of {total} records")
            worker.end(_END_TIMEOUT_S)
    found = audit(store.numbers(), total)
    counted.lost.add(found.lost)
    counted.twice.add(found.twice + found.strangers)
    rate = total / streamed["wall_s"]
    return f"{scenario}: {scenario.master}; {total:,} records, {rate:,.0f} a second"


def _round(counted: Counted, folder: Path, worker: Worker, chance: random.Random, number: int) -> None:
    time.sleep(chance.uniform(*_PAUSE_S))
    victim = latest(marks(folder))[chance.randrange(INSTANCES)]
    os.kill(counted.scenario.pid(victim), signal.SIGKILL)
    killed_at = time.monotonic()
    _until(lambda: replacement(marks(folder), victim) is not None, worker, f"a replacement of member {victim.instance}")
    came = replacement(marks(folder), victim)
    if came is None:
        raise WorkerFailedError("a mark is missing")
    recovery_s, outage_s = came.first_at - came.began_at, came.first_at - killed_at
    counted.recovery.add(recovery_s, round=number, instance=victim.instance)
    counted.outage.add(outage_s, round=number, instance=victim.instance)
    times = f"first record {recovery_s:.3f} s after its start, {outage_s:.3f} s after the kill"
    log(f"{NAME}: {counted.scenario} {number}: {times}")


def _until(holds: Callable[[], bool], worker: Worker, what: str) -> None:
    """Wait until a condition holds.

    Raises:
        WorkerFailedError: The condition does not hold in time.
    """
    give_up_at = time.monotonic() + _GIVE_UP_S
    while not holds():
        if time.monotonic() > give_up_at:
            raise WorkerFailedError(f"not within {_GIVE_UP_S:.0f} s: {what}: {worker.stderr_tail()}")
        time.sleep(_POLL_S)


def _committed(bootstrap: str, group: str) -> int:
    committed = GroupAdmin({"bootstrap.servers": bootstrap}).committed(group)
    return sum(at.offset for at in committed.values() if isinstance(at, OffsetAndMetadata))


def checks(counted: Counted, rounds: int) -> tuple[Check, ...]:
    """Check the bounds of one cell."""
    what = f"{counted.scenario}, {rounds} times"
    return (
        at_most(f"{what}: 0 lost", most(counted.lost), 0, "records", [counted.lost]),
        at_most(f"{what}: rows exactly once", most(counted.twice), 0, "rows twice", [counted.twice]),
        at_most(
            f"{what}: each replacement's first record after its start",
            most(counted.recovery),
            LIMIT_S,
            "s",
            [counted.recovery],
        ),
    )
