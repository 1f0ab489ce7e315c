"""The rate of handled records: a `Processor` beside Parallel Consumer, a thread pool loop and FastStream."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.figures.throughput import paired_ratios
from tests.benchmarks.handler_programs import FASTSTREAM, PARALLEL_CONSUMER, Task, measured_runs, side_of
from tests.benchmarks.samples import Series, at_most, ratio_at_least
from tests.benchmarks.workers.handlers import BATCH, Program

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

KEYS = 100
_WAITING, _WAIT_S, _WAITING_CONCURRENCY = 10_000, 0.002, 100
_EMPTY, _FEW_EMPTY, _EMPTY_CONCURRENCY = 1_000_000, 10_000, 16
_RUNS = 3
"""The number of runs of waiting handlers in one process: the first run is cold, and the last run counts."""

_TIMEOUT_S = 180.0
FACTOR = 1.0
PROGRAMS = (Program.THREADS, Program.COROUTINES, PARALLEL_CONSUMER, Program.POOL, FASTSTREAM)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MeasuredProgram:
    """One program and its measurements."""

    side: Side
    cold: Series
    warm: Series
    waiting_cpu: Series
    disordered: Series
    rate: Series
    cpu: Series

    @classmethod
    def of(cls, side: Side) -> _MeasuredProgram:
        return cls(
            side=side,
            cold=side.series("waiting handlers, first run of the process", "msg/s"),
            warm=side.series("waiting handlers", "msg/s"),
            waiting_cpu=side.series("CPU: waiting handlers", "s"),
            disordered=side.series("records out of order within their key", "records"),
            rate=side.series("empty handlers", "msg/s"),
            cpu=side.series("CPU: empty handlers", "µs/msg"),
        )

    @property
    def series(self) -> tuple[Series, ...]:
        """Return all series."""
        return (self.cold, self.warm, self.waiting_cpu, self.disordered, self.rate, self.cpu)


def run(bench: Bench) -> Figure:
    """Run all programs in turns, each time in new processes."""
    waiting = Task(
        topic=bench.filled_topic("handlers-waiting", _WAITING, keys=KEYS),
        records=_WAITING,
        wait_s=_WAIT_S,
        concurrency=_WAITING_CONCURRENCY,
        runs=_RUNS,
    )
    empty = Task(
        topic=bench.filled_topic("handlers-empty", _EMPTY, keys=KEYS), records=_EMPTY, concurrency=_EMPTY_CONCURRENCY
    )
    few = replace(empty, topic=bench.filled_topic("handlers-few", _FEW_EMPTY, keys=KEYS), records=_FEW_EMPTY)
    programs = [_MeasuredProgram.of(side_of(bench, label)) for label in PROGRAMS]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(bench.count(7, 1)):
            start = number % len(programs)
            for one in (*programs[start:], *programs[:start]):
                _wait(bench, one, waiting, Path(folder), number)
            for one in (*programs[start:], *programs[:start]):
                _count(bench, one, few if one.side.label == FASTSTREAM else empty, Path(folder), number)
    by_label = {one.side.label: one for one in programs}
    ours, java = by_label[Program.THREADS], by_label[PARALLEL_CONSUMER]
    orders = (by_label[label].disordered for label in (Program.THREADS, Program.COROUTINES))
    return Figure(
        title=f"Handlers: {_WAITING:,} that wait {_WAIT_S * 1000:.0f} ms, {_EMPTY:,} empty ones",
        series=tuple(series for kind in zip(*(one.series for one in programs), strict=True) for series in kind),
        checks=(
            ratio_at_least(
                f"waiting handlers: median of {Program.THREADS} / {PARALLEL_CONSUMER} at least {FACTOR}",
                paired_ratios(ours.warm, java.warm),
                FACTOR,
                [ours.warm, java.warm],
                "x Parallel Consumer",
            ),
            *(at_most(f"{one.label}: none", max(one.values, default=None), 0, "records", [one]) for one in orders),
        ),
        notes=(
            f"{KEYS} keys, {PARTITIONS} partitions, 100 B; from the first handler's begin to the last one's end",
            f"waiting handlers: {_WAITING_CONCURRENCY} at the same time; each process runs {_RUNS} times",
            "the first run is reported separately; the last one counts, so that Java has compiled its code",
            f"empty handlers: {_EMPTY_CONCURRENCY} at the same time; {_FEW_EMPTY:,} records for FastStream",
            "out of order: records that began before an earlier one of their key had ended, or after a later one",
            f"{Program.POOL}: consume({BATCH}), submit each record, wait for all, commit; one slow record delays all",
            "each program committed the end of each partition when it stopped",
            "CPU: user and system time of the whole process in the same span",
        ),
    )


def _wait(bench: Bench, one: _MeasuredProgram, task: Task, folder: Path, number: int) -> None:
    with counted_in(one.cold, one.warm, one.waiting_cpu, one.disordered):
        runs = measured_runs(bench, one.side, task, folder, _TIMEOUT_S)
        first, last = runs[0], runs[-1]
        one.cold.add(first["count"] / first["wall_s"], round=number, **first)
        one.warm.add(last["count"] / last["wall_s"], round=number, **last)
        one.waiting_cpu.add(last["cpu_s"], round=number)
        one.disordered.add(max(facts["disordered"] for facts in runs), round=number)
        log(f"handlers: {one.warm.label} {one.warm.values[-1]:,.0f} msg/s ({one.cold.values[-1]:,.0f} cold)")


def _count(bench: Bench, one: _MeasuredProgram, task: Task, folder: Path, number: int) -> None:
    with counted_in(one.rate, one.cpu):
        (facts,) = measured_runs(bench, one.side, task, folder, _TIMEOUT_S)
        rate, cost = facts["count"] / facts["wall_s"], facts["cpu_s"] / facts["count"] * 1e6
        one.rate.add(rate, round=number, **facts)
        one.cpu.add(cost, round=number)
        log(f"handlers: {one.rate.label} {rate:,.0f} msg/s, {cost:.2f} µs/msg")
