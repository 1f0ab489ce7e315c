"""The costs of a `Processor` compared with the plain loop: time per record, asyncio waits, memory, start and stop."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import Figure, counted_in, log
from tests.benchmarks.figures.throughput import SAME_FETCHING, paired_ratios
from tests.benchmarks.handler_programs import Task, measured_runs, side_of
from tests.benchmarks.processes import Worker, WorkerFailedError, worker_command
from tests.benchmarks.samples import (
    Check,
    median_above_at_most,
    ratio_at_least,
)
from tests.benchmarks.workers import stuck_key
from tests.benchmarks.workers.handlers import Program

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side
    from tests.benchmarks.samples import Series

_KEYS = 100
_RECORDS = 1_000_000
MORE_US = 5.0
"""The allowed additional time of a record with one handler at a time, compared with a poll loop."""

_IN_FLIGHT = 1_000
_WAITS = {0.01: 100_000, 0.1: 20_000}
"""The numbers of records, and how long their handlers wait."""

SHARE = 0.9
_FEW = 1_200
MORE_MIB = 48.0
"""The allowed additional memory of a `Processor` with a stuck key, compared with a poll loop with a stuck handler."""

_MIB = 2**20
_TIMEOUT_S = 180.0


def run(bench: Bench) -> Figure:
    """Measure each cost in turns with its comparison."""
    topic = bench.filled_topic("handlers-costs", _RECORDS, keys=_KEYS)
    rounds = bench.count(7, 1)
    with tempfile.TemporaryDirectory() as folder:
        one = _one_at_a_time(bench, topic, Path(folder), rounds)
        waits = [_waits(bench, Path(folder), rounds, wait_s, records) for wait_s, records in _WAITS.items()]
        edges = _edges(bench, Path(folder), rounds)
    memory = _memory(bench, bench.count(3, 1))
    parts = (one, *waits, edges, memory)
    return Figure(
        title="Handlers: the costs of a Processor",
        series=tuple(series for part, _ in parts for series in part),
        checks=tuple(check for _, checks in parts for check in checks),
        notes=(
            f"one at a time: {_RECORDS:,} x 100 B, concurrency 1; from the first empty handler to the last one",
            f"coroutines: {_IN_FLIGHT:,} at the same time; ideal: {_IN_FLIGHT:,} divided by the wait",
            f"{Program.ASYNCIO}: the same handler and coroutines without Kafka",
            "start: constructor to first handler; stop: `stop()` to the return of `run()`, or `close()`",
            f"stuck key: {_RECORDS:,} records in one partition; RSS when no more handlers end",
        ),
    )


Part = tuple[tuple["Series", ...], tuple[Check, ...]]


def _one_at_a_time(bench: Bench, topic: str, folder: Path, rounds: int) -> Part:
    """Measure a `Processor` with one handler at a time, compared with a poll loop."""
    task = Task(topic=topic, records=_RECORDS, concurrency=1, config=_config(SAME_FETCHING))
    sides = [side_of(bench, Program.THREADS), replace(bench.ours(Program.POLL), is_ours=False)]
    wall = [side.series("one at a time", "µs/msg") for side in sides]
    cpu = [side.series("CPU: one at a time", "µs/msg") for side in sides]

    def turn(place: int) -> None:
        with counted_in(wall[place], cpu[place]):
            (facts,) = measured_runs(bench, sides[place], task, folder, _TIMEOUT_S)
            wall[place].add(facts["wall_s"] / facts["count"] * 1e6, **facts)
            cpu[place].add(facts["cpu_s"] / facts["count"] * 1e6)
            log(f"handlers-costs: {wall[place].label} {wall[place].values[-1]:.2f} µs/msg")

    bench.in_turns(rounds, partial(turn, 0), partial(turn, 1))
    bound = f"one at a time: median at most {Program.POLL} + {MORE_US:.0f} µs"
    return (*wall, *cpu), (median_above_at_most(bound, *wall, MORE_US, "µs/msg more"),)


def _waits(bench: Bench, folder: Path, rounds: int, wait_s: float, records: int) -> Part:
    """Measure coroutines that wait, with Kafka and without."""
    topic = bench.filled_topic("handlers-asyncio", records, keys=10 * _IN_FLIGHT)
    task = Task(
        topic=topic,
        records=records,
        wait_s=wait_s,
        concurrency=_IN_FLIGHT,
        is_checked=False,
        runs=2,
        config=_config(SAME_FETCHING),
    )
    what = f"coroutines that wait {wait_s * 1000:.0f} ms"
    sides = [side_of(bench, Program.COROUTINES), side_of(bench, Program.ASYNCIO)]
    rates = [side.series(what, "msg/s") for side in sides]
    cpu = [side.series(f"CPU: {what}", "µs/msg") for side in sides]

    def turn(place: int, number: int) -> None:
        with counted_in(rates[place], cpu[place]):
            facts = measured_runs(bench, sides[place], task, folder, _TIMEOUT_S)[-1]
            rates[place].add(facts["count"] / facts["wall_s"], round=number, **facts)
            cpu[place].add(facts["cpu_s"] / facts["count"] * 1e6)
            log(f"handlers-costs: {rates[place].label} {rates[place].values[-1]:,.0f} msg/s")

    for number in range(rounds):
        for place in (number % 2, 1 - number % 2):
            turn(place, number)
    ours, alone = rates
    ideal = [value * wait_s / _IN_FLIGHT for value in ours.values]
    return (*rates, *cpu), (
        ratio_at_least(f"{what}: median at least {SHARE} of the ideal", ideal, SHARE, [ours], "of the ideal"),
        ratio_at_least(
            f"{what}: median at least {SHARE} of {Program.ASYNCIO}",
            paired_ratios(ours, alone),
            SHARE,
            [ours, alone],
            f"of {Program.ASYNCIO}",
        ),
    )


def _edges(bench: Bench, folder: Path, rounds: int) -> Part:
    """Measure the start and the stop, compared with those of a consumer."""
    task = Task(topic=bench.filled_topic("handlers-start", _FEW, keys=_KEYS), records=_FEW, runs=4)
    sides = [side_of(bench, Program.THREADS), replace(bench.ours(Program.POLL), is_ours=False)]
    starts = [side.series("start", "s") for side in sides]
    stops = [side.series("stop", "s") for side in sides]

    def turn(place: int) -> None:
        with counted_in(starts[place], stops[place]):
            for facts in measured_runs(bench, sides[place], task, folder, _TIMEOUT_S)[1:]:
                starts[place].add(facts["first_s"])
                stops[place].add(facts["stop_s"])

    bench.in_turns(rounds, partial(turn, 0), partial(turn, 1))
    return (*starts, *stops), ()


def _memory(bench: Bench, rounds: int) -> Part:
    """Measure the memory of a process with a stuck handler."""
    topics = {keys: bench.filled_topic("handlers-stuck", _RECORDS, partitions=1, keys=keys) for keys in (1, _KEYS)}
    sides = [side_of(bench, Program.THREADS), replace(bench.ours(Program.POLL), is_ours=False)]
    series: list[Series] = []
    checks: list[Check] = []
    for keys, topic in topics.items():
        what = f"stuck key of {keys}"
        after = [side.series(f"RSS, {what}", "MiB") for side in sides]
        grown = [side.series(f"RSS, growth since its beginning, {what}", "MiB") for side in sides]
        turns = [partial(_measure_memory, bench, *pair, topic) for pair in zip(sides, after, grown, strict=True)]
        bench.in_turns(rounds, *turns)
        series += [*after, *grown]
        bound = f"{what}: at most {Program.POLL} + {MORE_MIB:.0f} MiB"
        checks.append(median_above_at_most(bound, *after, MORE_MIB, "MiB more"))
    return tuple(series), tuple(checks)


def _measure_memory(bench: Bench, side: Side, after: Series, grown: Series, topic: str) -> None:
    with counted_in(after, grown):
        config = bench.config(side)
        job = stuck_key.Job(program=side.label, config=config, topic=topic, expected=_RECORDS)
        with Worker(side.label, command=worker_command("stuck_key", job)) as worker:
            worker.expect("begun", _TIMEOUT_S)
            begun = _rss(worker.pid)
            handled = worker.expect("settled", _TIMEOUT_S).facts["handled"]
            settled = _rss(worker.pid)
            worker.order(stuck_key.RELEASE)
            if worker.expect("measured", _TIMEOUT_S).facts["handled"] != _RECORDS:
                raise WorkerFailedError("not every record was handled after the release")
            worker.wait()
        after.add(settled, handled=handled)
        grown.add(settled - begun)
        log(f"handlers-costs: {after.label} {begun:.1f} -> {settled:.1f} MiB, {handled:,} handled meanwhile")


def _rss(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / _MIB


def _config(settings: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.replace("_", "."), value) for name, value in settings.items())
