"""Records counted in Python on Spark: ours beside spark-sql-kafka, in one session."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.bench import PARTITIONS, Figure, counted_in, tell
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
class Contest:
    """A comparison: our way and theirs, as text and for the worker, and how much faster ours must be."""

    ours: str
    theirs: str
    kind: str
    factor: float

    def way(self, side: Side) -> str:
        """A side's way, as the worker knows it."""
        return f"{'our' if side.is_ours else 'their'}-{self.kind}"

    def __str__(self) -> str:
        """Its name in tables."""
        return f"{self.ours} / {self.theirs}"


CONTESTS = (
    Contest(ours="drain, messages", theirs="foreachPartition", kind="messages", factor=5.0),
    Contest(ours="drain, Arrow", theirs="mapInArrow", kind="arrow", factor=4.0),
    Contest(ours="drain, Arrow, assign_at_once", theirs="mapInArrow again", kind="arrow-at-once", factor=4.0),
    Contest(ours="read_group, SQL", theirs="batch read, SQL", kind="sql", factor=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One side of a contest and how long it took."""

    side: Side
    contest: Contest
    wall: Series

    @classmethod
    def of(cls, side: Side, contest: Contest) -> Contestant:
        """No measurement yet."""
        label = f"{contest.ours if side.is_ours else contest.theirs}: {side.label}"
        return cls(side=side, contest=contest, wall=Series(label=label, unit="s", is_ours=side.is_ours))

    def count(self, wall_s: float, number: int, records: int) -> None:
        """Take a measurement; the first one is a warm-up."""
        tell(f"{NAME}: {self.wall.label} {wall_s:.3f} s{'' if number else ' (warm-up)'}")
        if number:
            self.wall.add(wall_s, round=number, records=records)


def run(bench: Bench) -> Figure:
    """Take the same topic in all ways in turns."""
    notes = (
        "the first turn of each way is a warm-up that is not counted; of ours each turn has a new group",
        "a ratio is of two turns that follow each other directly, in turns the one or the other first",
        (
            f"both with their defaults, but for assign_at_once, which is drain's own word for a setting of its"
            f" group; ours has {INSTANCES} members, theirs a task for each partition;"
            " foreachPartition gets all columns of theirs as rows, and is the same on a DataFrame and on its RDD;"
            " mapInArrow gets all of them, too; the records are counted one by one in Python, of Arrow batches the"
            " rows"
        ),
        "SQL: count(*) and sum(length(value)); read_group is asked for the column value, theirs prunes by itself",
    )
    return contested(bench, NAME, CONTESTS, notes)


def contested(bench: Bench, name: str, contests: Sequence[Contest], notes: Sequence[str]) -> Figure:
    """A figure of these contests, in one session."""
    records = _QUICK_RECORDS if bench.is_quick else _RECORDS
    sides = bench.ours(), bench.raw("spark-sql-kafka")
    pairs = [(Contestant.of(sides[0], contest), Contestant.of(sides[1], contest)) for contest in contests]
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
                        way, group = one.contest.way(one.side), bench.group(one.side)
                        turn = spark_turns.Turn(way=way, topic=topic, group=group, instances=INSTANCES)
                        one.count(take(worker, turn, records), number, records)
            worker.end()
    return Figure(
        title=f"Spark {MASTER}: {records:,} x {_BYTES} B from {PARTITIONS} partitions, counted",
        series=tuple(series),
        checks=tuple(check(*pair) for pair in pairs),
        notes=(
            f"pyspark {version}, spark-sql-kafka {CONNECTOR_VERSION}, one session for all of it",
            "seconds: on the driver, from the call to the result; planning, jobs, joins, commits, leaves are in it",
            *notes,
            *(_in_words(*pair) for pair in pairs),
        ),
    )


def take(worker: Worker, turn: spark_turns.Turn, records: int, timeout_s: float = _TIMEOUT_S) -> float:
    """Have a worker take one turn; how many seconds it took.

    Raises:
        WorkerFailedError: It did not, or not every record came once.
    """
    worker.order(turn.order())
    facts = worker.expect(turn.group, timeout_s).facts
    if facts["records"] != records:
        raise WorkerFailedError(f"{facts['records']} of {records} records came")
    return float(facts["wall_s"])


def check(ours: Contestant, theirs: Contestant) -> Check:
    """Whether ours is so many times as fast, in the median of rounds."""
    contest = ours.contest
    bound = f"{contest}: median of times as fast at least {contest.factor}"
    # Seconds: theirs by ours is how many times as fast ours is.
    ratios = paired_ratios(theirs.wall, ours.wall)
    return ratio_at_least(bound, ratios, contest.factor, [ours.wall, theirs.wall], unit="x as fast")


def _in_words(ours: Contestant, theirs: Contestant) -> str:
    ratios = paired_ratios(theirs.wall, ours.wall)
    rates = ", ".join(
        f"{one.side.label} {statistics.median(s.detail['records'] / s.value for s in one.wall.samples):,.0f} records/s"
        for one in (ours, theirs)
        if one.wall.samples
    )
    return f"{ours.contest}: {rates}; times as fast: {' '.join(format(one, '.2f') for one in ratios)}"
