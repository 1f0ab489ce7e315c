"""The time of a drain for several numbers of records and of tasks."""

from __future__ import annotations

import os
import statistics
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.figures.spark import START_TIMEOUT_S, run_turn
from tests.benchmarks.processes import Worker
from tests.benchmarks.samples import Series, at_most
from tests.benchmarks.workers import spark_turns

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench

NAME = "spark-growth"

TASKS = (1, 2, 4)
_MASTER = f"local[{max(TASKS)}]"
_MILLIONS = (1, 4, 16)
_QUICK_MILLION = 50_000
_BYTES = 20


def label(tasks: int, records: int) -> str:
    """Return the label of a series."""
    return f"{records:,} records, {tasks} {'task' if tasks == 1 else 'tasks'}"


def sizes(*, is_quick: bool) -> list[int]:
    """Return the numbers of records."""
    million = _QUICK_MILLION if is_quick else 1_000_000
    return [millions * million for millions in _MILLIONS]


def run(bench: Bench) -> Figure:
    """Drain topics of several sizes by several numbers of tasks, in turns."""
    grid = {
        (tasks, records): Series(label=label(tasks, records), unit="s", is_ours=True)
        for records in sizes(is_quick=bench.is_quick)
        for tasks in TASKS
    }
    version = "?"
    with counted_in(*grid.values()):
        topics = {
            records: bench.filled_topic("spark-growth", records, _BYTES) for records in sizes(is_quick=bench.is_quick)
        }
        job = spark_turns.Job(bootstrap=bench.bootstrap, master=_MASTER, jars=[])
        with Worker("spark_turns", job) as worker:
            version = worker.expect("ready", START_TIMEOUT_S).facts["pyspark"]
            least = min(topics)
            run_turn(worker, _turn(bench, topics[least], max(TASKS)), least)
            for _ in range(bench.count(3, 1)):
                for (tasks, records), series in grid.items():
                    wall_s = run_turn(worker, _turn(bench, topics[records], tasks), records)
                    series.add(wall_s, tasks=tasks, records=records)
                    log(f"{NAME}: {series.label} {wall_s:.3f} s")
            worker.end()
    return Figure(
        title=f"Spark {_MASTER}: drain of {_BYTES} B records, by records and tasks",
        series=tuple(grid.values()),
        checks=(
            at_most(
                "failed drains, which did not read each record once",
                sum(len(series.failures) for series in grid.values()),
                0,
                "drains",
                list(grid.values()),
            ),
        ),
        notes=(
            f"pyspark {version}; drain with its defaults, batches of messages, {PARTITIONS} partitions",
            "the first drain is a warm-up that is not counted; each drain has a new group",
            f"{os.cpu_count()} cores for all: broker, JVM and tasks; more tasks than cores share them",
            *(_as_text(grid, tasks) for tasks in TASKS),
        ),
    )


def _turn(bench: Bench, topic: str, tasks: int) -> spark_turns.Turn:
    return spark_turns.Turn(way="our-messages", topic=topic, group=bench.group(bench.ours()), instances=tasks)


def _as_text(grid: dict[tuple[int, int], Series], tasks: int) -> str:
    rates = [
        f"{records:,}: {records / statistics.median(series.values):,.0f}"
        for (of_tasks, records), series in grid.items()
        if of_tasks == tasks and series.samples
    ]
    return f"records a second, {tasks} {'task' if tasks == 1 else 'tasks'}: {'; '.join(rates) or 'not measured'}"
