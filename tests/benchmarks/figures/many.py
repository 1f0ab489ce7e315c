"""The costs of many idle consumers in one process: processor time, threads, files, and the duration of their start."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.processes import Worker, WorkerFailedError, share_of_core
from tests.benchmarks.samples import at_most, median_of
from tests.benchmarks.workers import many

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.samples import Check, Series

NAME = "many"

CELLS = {"50": 50, "150": 150, "500": 500}
CONSUMERS, QUICK_CONSUMERS = "150", "50"
CPU_FACTOR, MORE_THREADS, MORE_FILES = 1.5, 5, 10
IDLE_S, OFTEN_S = 1.0, 0.02
"""The time between two polls of each consumer: rare polls, and frequent polls."""

_SETTLE_S = 40.0
"""Also in a quick run: connections that only the start needs are closed after half a minute without requests."""

_WATCH_S, _QUICK_WATCH_S = 30.0, 10.0
_READY_S = 180.0
_SAME_WAIT = {"fetch_wait_max_ms": "500"}
"""librdkafka's default: with this package's default of 100, an idle consumer fetches ten times a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The series of one side."""

    idle: Series
    often: Series
    threads: Series
    files: Series
    ready: Series

    @classmethod
    def of(cls, side: Side, count: int) -> Costs:
        """Return five empty series."""
        return cls(
            idle=side.series(f"{count}, idle: share of a core", "%"),
            often=side.series(f"{count}, polled every {OFTEN_S * 1000:.0f} ms: share of a core", "%"),
            threads=side.series(f"{count}: threads", ""),
            files=side.series(f"{count}: file descriptors", ""),
            ready=side.series(f"{count}: all have their partitions", "s"),
        )

    @property
    def all(self) -> tuple[Series, ...]:
        """Return all series."""
        return self.idle, self.often, self.threads, self.files, self.ready


def run(bench: Bench) -> Figure:
    """Create the consumers of each side in turns, and read what their process uses."""
    counts = [CELLS[name] for name in bench.cells or (QUICK_CONSUMERS if bench.is_quick else CONSUMERS,)]
    figures = [_compared(bench, count) for count in counts]
    return Figure(
        title=f"{' and '.join(map(str, counts))} consumers of as many groups in one process, polled by one thread",
        series=tuple(series for all_series, _ in figures for series in all_series),
        checks=tuple(check for _, checks in figures for check in checks),
        notes=(f"idle: each is polled every {IDLE_S:g} s with poll(0); fetch.wait.max.ms=500 on all sides",),
    )


def _compared(bench: Bench, count: int) -> tuple[list[Series], list[Check]]:
    """Measure this number of consumers."""
    raw, ours = bench.raw(**_SAME_WAIT), bench.ours(membership_threads="shared", **_SAME_WAIT)
    sides = (ours, raw, bench.ours("own threads", membership_threads="own", **_SAME_WAIT))
    costs = {side: Costs.of(side, count) for side in sides}
    for _ in range(bench.count(3, 1)):
        for side in sides:
            for every_s in (IDLE_S, OFTEN_S):
                with counted_in(*costs[side].all):
                    _measure(bench, side, costs[side], count, every_s)
    mine, other = costs[ours], costs[raw]
    limits = (
        (f"idle: at most {CPU_FACTOR} x raw", mine.idle, CPU_FACTOR * (median_of(other.idle) or 0.0)),
        (f"threads: at most raw + {MORE_THREADS}", mine.threads, (median_of(other.threads) or 0.0) + MORE_THREADS),
        (f"file descriptors: at most raw + {MORE_FILES}", mine.files, (median_of(other.files) or 0.0) + MORE_FILES),
    )
    checks = [at_most(f"{count}, {what}", median_of(one), limit, one.unit, [one]) for what, one, limit in limits]
    return [series for one in costs.values() for series in one.all], checks


def _measure(bench: Bench, side: Side, costs: Costs, count: int, every_s: float) -> None:
    topic = bench.topic(NAME, partitions=1)
    config = bench.config(side)
    group = config.pop("group.id")
    job = many.Job(module=side.module, config=config, group=group, topic=topic, consumers=count, every_s=every_s)
    with Worker("many", job) as worker:
        ready = worker.expect("ready", _READY_S)
        if ready.facts["missing"]:
            raise WorkerFailedError(f"{ready.facts['missing']} of {count} consumers got no partition")
        time.sleep(_SETTLE_S)
        share = share_of_core(psutil.Process(worker.pid), _QUICK_WATCH_S if bench.is_quick else _WATCH_S)
        worker.order("count")
        counted = worker.expect("counted", _READY_S).facts
        worker.end(_READY_S)
    if every_s == IDLE_S:
        costs.idle.add(share)
        costs.ready.add(ready.facts["took_s"])
        costs.threads.add(counted["threads"])
        costs.files.add(counted["files"])
    else:
        costs.often.add(share)
    log(f"many: {costs.idle.label}, every {every_s:g} s: {share:.2f} % of a core, {counted}")
