"""What the recorder and the watch over partitions cost: records, an idle member, memory, and a question of health."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, tell
from tests.benchmarks.figures.throughput import SAME_FETCHING, paired_ratios
from tests.benchmarks.groups import Group, balanced_at
from tests.benchmarks.processes import WorkerFailedError, run_worker
from tests.benchmarks.samples import Series, at_most, difference, median_of, ratio_at_least
from tests.benchmarks.workers import drain, question

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

NAME = "recorder"

_RECORDS = 1_000_000
_BYTES = 100
_TIMEOUT_S = 90.0
_METHODS = {"consume(500)": 500, "poll()": 0}
_LEAST_RATIO = 0.99
_SETTLE_S, _QUICK_SETTLE_S = 20.0, 8.0
_WATCH_S, _QUICK_WATCH_S = 40.0, 20.0
_BALANCE_S = 30.0
_WATCHES = 3
"""A minute each, however many rounds are asked for."""

_MOST_CPU_PERCENT = 0.1
_MOST_MIB = 3.0
_MIB = 2**20
_ASKED_PARTITIONS, _ASKED = 100, 20_000
_MOST_US = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same measured with everything on, and with all of it off."""

    on: Series
    off: Series

    @classmethod
    def of(cls, what: str, unit: str) -> Pair:
        """Two new series."""
        return cls(on=Series(label=f"{what}, on", unit=unit, is_ours=True), off=Series(label=f"{what}, off", unit=unit))


def run(bench: Bench) -> Figure:
    """Drain a topic, idle, and ask, with the recorder and its watch on and off."""
    began_load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        on = bench.ours("on", recorder_directory=folder, **SAME_FETCHING)
        off = bench.ours("off", recorder_enable="false", **SAME_FETCHING)
        rates = {method: Pair.of(method, "msg/s") for method in _METHODS}
        topic = bench.filled_topic("recorder", _RECORDS, _BYTES)
        for number in range(bench.count(15, 1)):
            for method, pair in rates.items():
                turns = ((on, pair.on), (off, pair.off))
                for side, series in turns if number % 2 == 0 else reversed(turns):
                    _drain(bench, side, topic, method, number, series)
        share, weight = Pair.of("share of a core, idle", "%"), Pair.of("USS, idle", "MiB")
        for _ in range(min(bench.count(_WATCHES, 1), _WATCHES)):
            _idle(bench, (on, off), share, weight)
        asked = Series(label=f"health(), {_ASKED_PARTITIONS} partitions", unit="µs", is_ours=True)
        for _ in range(min(bench.count(_WATCHES, 1), _WATCHES)):
            _ask(bench, on, asked)
    return Figure(
        name=NAME,
        title="The recorder with its directory, and the watch over partitions: on and off",
        series=(*(series for pair in (*rates.values(), share, weight) for series in (pair.on, pair.off)), asked),
        checks=(
            *(
                ratio_at_least(
                    f"{method}: median of on / off at least {_LEAST_RATIO}",
                    paired_ratios(pair.on, pair.off),
                    _LEAST_RATIO,
                    [pair.on, pair.off],
                )
                for method, pair in rates.items()
            ),
            at_most(
                f"idle member: at most {_MOST_CPU_PERCENT} % of a core more",
                difference(median_of(share.on), median_of(share.off)),
                _MOST_CPU_PERCENT,
                "% more",
                [share.on, share.off],
            ),
            at_most(
                f"idle member: at most {_MOST_MIB:.0f} MiB more",
                difference(median_of(weight.on), median_of(weight.off)),
                _MOST_MIB,
                "MiB more",
                [weight.on, weight.off],
            ),
            at_most(f"health(): at most {_MOST_US:.0f} µs", median_of(asked), _MOST_US, "µs", [asked]),
        ),
        notes=(
            "on: recorder.directory is set, so that a thread looks at the partitions every two seconds",
            "within a round the two follow each other directly",
            *(
                f"{method}, on / off: {' '.join(format(one, '.3f') for one in paired_ratios(pair.on, pair.off))}"
                for method, pair in rates.items()
            ),
        ),
        began_load=began_load,
    )


def _drain(bench: Bench, side: Side, topic: str, method: str, number: int, series: Series) -> None:
    with counted_in(series):
        job = drain.Job(
            module=side.module,
            config=bench.config(side),
            topic=topic,
            expected=_RECORDS,
            batch=_METHODS[method],
            partitions=PARTITIONS,
        )
        facts = run_worker("drain", job, _TIMEOUT_S).facts
        if not facts["is_complete"]:
            raise WorkerFailedError(f"{_RECORDS} came, but not each record once: {facts}")
        series.add(facts["count"] / facts["wall_s"], round=number, **facts)
        tell(f"recorder: {series.label} {series.values[-1]:,.0f} msg/s")


def _idle(bench: Bench, sides: tuple[Side, Side], share: Pair, weight: Pair) -> None:
    """Two members at the same time, each with a topic's empty partitions."""
    topic = bench.topic("recorder-idle")
    series = ((share.on, weight.on), (share.off, weight.off))
    with ExitStack() as held:
        idlers = []
        for side in sides:
            member = held.enter_context(Group(bench, side, topic, poll_s=1.0)).member()
            member.subscribe()
            balanced_at([member], _BALANCE_S)
            idlers.append(psutil.Process(member.worker.pid))
        time.sleep(_QUICK_SETTLE_S if bench.is_quick else _SETTLE_S)
        before = [(time.monotonic(), sum(process.cpu_times()[:2])) for process in idlers]
        time.sleep(_QUICK_WATCH_S if bench.is_quick else _WATCH_S)
        for process, (began, used), (of_cpu, of_memory) in zip(idlers, before, series, strict=True):
            with counted_in(of_cpu, of_memory):
                of_cpu.add((sum(process.cpu_times()[:2]) - used) / (time.monotonic() - began) * 100)
                of_memory.add(process.memory_full_info().uss / _MIB)
                tell(f"recorder: {of_cpu.label} {of_cpu.values[-1]:.2f} %, {of_memory.values[-1]:.1f} MiB")


def _ask(bench: Bench, side: Side, asked: Series) -> None:
    with counted_in(asked):
        topic = bench.topic("recorder-asked", partitions=_ASKED_PARTITIONS)
        job = question.Job(config=bench.config(side), topic=topic, partitions=_ASKED_PARTITIONS, times=_ASKED)
        asked.add(run_worker("question", job, _TIMEOUT_S).facts["us"])
        tell(f"recorder: {asked.label} {asked.values[-1]:.2f} µs")
