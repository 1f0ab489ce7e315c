"""The time to count records in Python on Spark, with this package and with spark-sql-kafka, in one session."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, log
from tests.benchmarks.figures.throughput import paired_ratios
from tests.benchmarks.processes import Worker, WorkerFailedError
from tests.benchmarks.samples import Check, Series, ratio_at_least
from tests.benchmarks.spark_jars import CONNECTOR_VERSION, connector_jars
from tests.benchmarks.workers import spark_turns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.bench import Bench, Side

NAME = "spark"

MASTER = "local[2]"
INSTANCES = 2
START_TIMEOUT_S = 300.0
_RECORDS, _QUICK_RECORDS = 1_000_000, 50_000
_BYTES = 100
_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison of two ways: their labels, their name in the worker, and the required ratio."""

    ours: str
    theirs: str
    kind: str
    factor: float

    def way(self, side: Side) -> str:
        """Return the worker's name of a side's way."""
        return f"{'our' if side.is_ours else 'their'}-{self.kind}"

    def __str__(self) -> str:
        """The name in tables."""
        return f"{self.ours} / {self.theirs}"


COMPARISONS = (
    Comparison(ours="drain, messages", theirs="foreachPartition", kind="messages", factor=5.0),
    Comparison(ours="drain, Arrow", theirs="mapInArrow", kind="arrow", factor=4.0),
    Comparison(ours="drain, Arrow, assign_at_once", theirs="mapInArrow again", kind="arrow-at-once", factor=4.0),
    Comparison(ours="read_group, SQL", theirs="batch read, SQL", kind="sql", factor=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSide:
    """One side of a comparison, and its durations."""

    side: Side
    comparison: Comparison
    wall: Series

    @classmethod
    def of(cls, side: Side, comparison: Comparison) -> MeasuredSide:
        """Return the side without a measurement."""
        label = f"{comparison.ours if side.is_ours else comparison.theirs}: {side.label}"
        return cls(side=side, comparison=comparison, wall=Series(label=label, unit="s", is_ours=side.is_ours))

    def count(self, wall_s: float, number: int, records: int) -> None:
        """Add a measurement, except for the first one, which is a warm-up."""
        log(f"{NAME}: {self.wall.label} {wall_s:.3f} s{'' if number else ' (warm-up)'}")
        if number:
            self.wall.add(wall_s, round=number, records=records)


def run(bench: Bench) -> Figure:
    """Read one topic in all ways in turns."""
    notes = (
        "the first turn of each way is a warm-up that is not counted; each turn of ours has a new group",
        "a ratio compares two consecutive turns; their order alternates",
        (
            f"both with their defaults, except for drain's argument assign_at_once; ours has {INSTANCES} members,"
            " spark-sql-kafka a task for each partition; foreachPartition receives all columns as rows, on a DataFrame"
            " as on its RDD; mapInArrow also receives all columns; Python counts messages one by one, and the rows of"
            " Arrow batches"
        ),
        "SQL: count(*) and sum(length(value)); read_group reads only the column value; spark-sql-kafka prunes columns",
    )
    return compared(bench, NAME, COMPARISONS, notes)


def compared(bench: Bench, name: str, comparisons: Sequence[Comparison], notes: Sequence[str]) -> Figure:
    """Measure these comparisons in one session."""
    records = _QUICK_RECORDS if bench.is_quick else _RECORDS
    sides = bench.ours(), bench.raw("spark-sql-kafka")
    pairs = [
        (MeasuredSide.of(sides[0], comparison), MeasuredSide.of(sides[1], comparison)) for comparison in comparisons
    ]
    series = [one.wall for pair in pairs for one in pair]
    version = "?"
    with counted_in(*series):
        topic = bench.filled_topic(name, records, _BYTES)
        job = spark_turns.Job(bootstrap=bench.bootstrap, master=MASTER, jars=connector_jars())
        with Worker("spark_turns", job) as worker:
            version = worker.expect("ready", START_TIMEOUT_S).facts["pyspark"]
            for number in range(bench.count(7, 2) + 1):
                for pair in pairs:
                    for one in pair if number % 2 == 0 else reversed(pair):
                        way, group = one.comparison.way(one.side), bench.group(one.side)
                        turn = spark_turns.Turn(way=way, topic=topic, group=group, instances=INSTANCES)
                        one.count(run_turn(worker, turn, records), number, records)
            worker.end()
    return Figure(
        title=f"Spark {MASTER}: {records:,} x {_BYTES} B from {PARTITIONS} partitions, counted",
        series=tuple(series),
        checks=tuple(check(*pair) for pair in pairs),
        notes=(
            f"pyspark {version}, spark-sql-kafka {CONNECTOR_VERSION}, one session for all turns",
            "seconds: on the driver, from the call to the result; with planning, jobs, joins, commits and leaves",
            *notes,
            *(_as_text(*pair) for pair in pairs),
        ),
    )


def run_turn(worker: Worker, turn: spark_turns.Turn, records: int, timeout_s: float = _TIMEOUT_S) -> float:
    """Order a worker to run one turn; return its duration in seconds.

    Raises:
        WorkerFailedError: The turn failed, or did not read each record once.
    """
    worker.order(turn.order())
    facts = worker.expect(turn.group, timeout_s).facts
    if facts["records"] != records:
        raise WorkerFailedError(f"{facts['records']} of {records} records were read")
    return float(facts["wall_s"])


def check(ours: MeasuredSide, theirs: MeasuredSide) -> Check:
    """Check the median of the ratios of all rounds."""
    comparison = ours.comparison
    bound = f"{comparison}: median of times as fast at least {comparison.factor}"
    # The values are seconds, so theirs / ours is how many times as fast ours is.
    ratios = paired_ratios(theirs.wall, ours.wall)
    return ratio_at_least(bound, ratios, comparison.factor, [ours.wall, theirs.wall], unit="x as fast")


def _as_text(ours: MeasuredSide, theirs: MeasuredSide) -> str:
    ratios = paired_ratios(theirs.wall, ours.wall)
    rates = ", ".join(
        f"{one.side.label} {statistics.median(s.detail['records'] / s.value for s in one.wall.samples):,.0f} records/s"
        for one in (ours, theirs)
        if one.wall.samples
    )
    return f"{ours.comparison}: {rates}; times as fast: {' '.join(format(one, '.2f') for one in ratios)}"
