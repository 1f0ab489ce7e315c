"""The memory of a process with its first consumer, and with each further one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import psutil

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.processes import Worker, WorkerFailedError
from tests.benchmarks.samples import Series, median_above_at_most
from tests.benchmarks.workers import footprint

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Side

_RECORDS = 12_000
_CONSUMERS = 10
_MIB = 2**20
FIRST_MIB, FURTHER_MIB = 14.0, 2.0
_TIMEOUT_S = 90.0
_KINDS = ("RSS", "USS")


def run(bench: Bench) -> Figure:
    """Measure ten consumers in one process, each with 12 partitions and after 12,000 records."""
    topic = bench.filled_topic("memory", _RECORDS)
    sides = (bench.ours(), bench.raw())
    steps = ("imported", "first consumer", "each further consumer")
    series = {
        (side, step, kind): side.series(f"{kind}, {step}", "MiB") for kind in _KINDS for step in steps for side in sides
    }
    turns = [
        partial(_measure, bench, side, topic, [[series[side, step, kind] for step in steps] for kind in _KINDS])
        for side in sides
    ]
    bench.in_turns(bench.count(4, 1), *turns)
    ours, raw = sides
    checks = []
    for step, limit in (("first consumer", FIRST_MIB), ("each further consumer", FURTHER_MIB)):
        for kind in _KINDS:
            left, right = series[ours, step, kind], series[raw, step, kind]
            bound = f"{step}, {kind}: at most raw + {limit:.0f} MiB"
            checks.append(median_above_at_most(bound, left, right, limit, "MiB more than raw"))
    return Figure(
        title="Memory of a process: imports, first consumer, each of nine further ones",
        series=tuple(series.values()),
        checks=tuple(checks),
        notes=("read from outside, each consumer in its own group, a second after its last record",),
    )


def _measure(bench: Bench, side: Side, topic: str, series: list[list[Series]]) -> None:
    with counted_in(*(one for kind in series for one in kind)):
        config = {name: value for name, value in bench.config(side).items() if name != "group.id"}
        job = footprint.Job(
            module=side.module,
            config=config,
            group=bench.group(side),
            topic=topic,
            expected=_RECORDS,
            consumers=_CONSUMERS,
        )
        with Worker("footprint", job) as worker:
            worker.expect("imported", _TIMEOUT_S)
            sizes = [_memory(worker.pid)]
            for number in range(1, _CONSUMERS + 1):
                worker.order("another")
                worker.until(lambda number=number: len(worker.reports("settled")) == number, _TIMEOUT_S, "'settled'")
                facts = worker.reports("settled")[-1].facts
                if facts != {"received": _RECORDS, "partitions": PARTITIONS}:
                    raise WorkerFailedError(f"consumer {number} received {facts}")
                sizes.append(_memory(worker.pid))
            worker.end()
        for kind, (imported, first, further) in enumerate(series):
            imported.add(sizes[0][kind])
            first.add(sizes[1][kind])
            further.add((sizes[-1][kind] - sizes[1][kind]) / (_CONSUMERS - 1), sizes=sizes)
        log(f"memory: {side.label} {[f'{rss:.1f}' for rss, _ in sizes]} MiB RSS")


def _memory(pid: int) -> tuple[float, float]:
    memory = psutil.Process(pid).memory_full_info()
    return memory.rss / _MIB, memory.uss / _MIB
