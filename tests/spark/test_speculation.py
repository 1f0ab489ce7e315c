"""Speculative copies of tasks, which Spark starts beside slow originals, on a cluster of two hosts.

In a stage of members no task ends early, so Spark's usual measure, a multiple of the other tasks' time, finds no slow
task: here `spark.speculation.task.duration.threshold` starts the copies. A copy goes to a host that never had the task,
so each task has at most one copy.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyarrow import parquet
from pyspark import TaskContext

from consumer_membership.devbroker import Broker
from consumer_membership.errors import FencedError
from consumer_membership.spark import ParquetSink, SinkContext
from tests.spark.clusters import (
    SPARK_S,
    Ground,
    Here,
    SessionProcess,
    a_run,
    a_session,
    a_standalone_cluster,
    drained,
    reported,
    stopped,
)
from tests.support.kafka import produce
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS, RECORDS = 4, 2000
EAGER = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.task.duration.threshold": "1s",
    # Spark applies the threshold only to stages whose tasks all fit into one executor.
    "spark.executor.cores": "2",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the sink; `number` is Spark's attempt number, 0 for the original, and `attempt` the fence's."""

    kind: str
    pid: int
    instance: int
    number: int
    attempt: int
    epoch: int
    partitions: tuple[int, ...]


class Plot(StrEnum):
    """What an original waits for in its sink, and what a copy waits for before it unpickles its sink."""

    #: The original waits until others have written its records; the copy waits until an original has records.
    OVERTAKEN = "overtaken"
    #: The original waits forever; the copy waits as for OVERTAKEN.
    STUCK = "stuck"
    #: The original waits for its copy; the copy waits forever.
    FIRST = "first"


@dataclass(frozen=True, slots=True)
class Slow:
    """A sink that writes files and notes its calls; an original is slow, and its copy starts in time."""

    folder: Path
    plot: Plot

    def __reduce__(self) -> tuple[object, ...]:
        """Call `_sent` to unpickle, before a task contacts the driver or the group; a copy waits in this call."""
        return (_sent, (self.folder, self.plot))

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Wait if the plot orders it, write, and note the call."""
        number = _attempt_number()
        if number == 0:
            self._tell("held", number, context)
            match self.plot:
                case Plot.OVERTAKEN:
                    wait_until(
                        lambda: {one.partition for one in context.ranges} <= self._written_by_others(context),
                        "the other copy's records",
                        SPARK_S,
                    )
                case Plot.STUCK:
                    signal.pause()
                case Plot.FIRST:
                    wait_until(self.mark(context.instance).exists, "the mark of the other copy", SPARK_S)
        try:
            ParquetSink(self.files)(batch, context)
        except FencedError:
            self._tell("fenced", number, context)
            raise
        self._tell("written", number, context)

    def mark(self, instance: int) -> Path:
        """The file that exists when this task has a copy; it holds the copy's process id."""
        return self.folder / f"copy-{instance}"

    def copies(self) -> set[int]:
        """The process ids of all copies."""
        return {int(mark.read_text()) for mark in self.folder.glob("copy-*")}

    @property
    def files(self) -> Path:
        """The folder of the written files."""
        return self.folder / "files"

    def calls(self, kind: str) -> list[Call]:
        """The calls that had this outcome."""
        words = [json.loads(line) for file in self.folder.glob("*.jsonl") for line in file.read_text().splitlines()]
        calls = [Call(**{**one, "partitions": tuple(one["partitions"])}) for one in words]
        return [call for call in calls if call.kind == kind]

    def offsets(self) -> Counter[tuple[int, int]]:
        """The number of times that each record is in the files, by partition and offset."""
        read = (parquet.read_table(file, columns=["partition", "offset"]) for file in self.files.glob("part-*"))
        return Counter((row["partition"], row["offset"]) for table in read for row in table.to_pylist())

    def _written_by_others(self, context: SinkContext) -> set[int]:
        return {
            number for call in self.calls("written") if call.attempt != context.attempt for number in call.partitions
        }

    def _tell(self, kind: str, number: int, context: SinkContext) -> None:
        call = Call(
            kind=kind,
            pid=os.getpid(),
            instance=context.instance,
            number=number,
            attempt=context.attempt,
            epoch=max(fence.epoch for fence in context.fences),
            partitions=tuple(one.partition for one in context.ranges),
        )
        with (self.folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(asdict(call)) + "\n")


def _attempt_number() -> int:
    running = TaskContext.get()
    return running.attemptNumber() if running is not None else 0


def _sent(folder: Path, plot: Plot) -> Slow:
    sink, running = Slow(folder, plot), TaskContext.get()
    if running is not None and running.attemptNumber() > 0:
        written = folder / f"pid-{os.getpid()}"
        written.write_text(str(os.getpid()))
        written.rename(sink.mark(running.partitionId()))
        if plot is Plot.FIRST:
            signal.pause()
        wait_until(lambda: bool(sink.calls("held")), "a copy that holds", SPARK_S)
    return sink


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    """Two hosts with two cores each, and a session that starts copies."""
    folder = tmp_path_factory.mktemp("cluster")
    with (
        a_standalone_cluster(folder, [Here(), Here("127.0.0.2")], cores=2) as master,
        a_session(master, EAGER) as session,
    ):
        yield session


@pytest.fixture
def ground(kafka: Broker) -> Ground:
    """2,000 records in 4 partitions."""
    return Ground(kafka, PARTITIONS, RECORDS)


def is_alive(pid: int) -> bool:
    """Return whether this process exists."""
    return Path(f"/proc/{pid}").exists()


def is_over(pid: int) -> bool:
    """Return whether this process has ended."""
    return not Path(f"/proc/{pid}").exists()


def test_speculative_copies_take_over_and_originals_write_nothing(
    cluster: SessionProcess, ground: Ground, tmp_path: Path
) -> None:
    """A run continues in the copies; an original that wakes in its sink is fenced, and each record is written once."""
    sink = Slow(tmp_path, Plot.OVERTAKEN)
    with a_run(cluster, ground, sink, allow_speculation=True):
        wait_until(lambda: len(sink.offsets()) == RECORDS, "all records", SPARK_S)
        wait_until(
            lambda: len(sink.calls("fenced")) == len(sink.calls("held")) > 0,
            "the fence of each copy that held",
            SPARK_S,
        )
        # An original without a copy would wait for its copy with the records that are produced next.
        wait_until(lambda: len(sink.copies()) == 2, "two copies", SPARK_S)
        wait_until(
            lambda: {member.pid for member in cluster.ask(reported, ground.group)} == sink.copies(),
            "the copies' reports",
            SPARK_S,
        )
        produce(ground.bootstrap, ground.topic, 400)
        wait_until(lambda: len(sink.offsets()) == RECORDS + 400, "400 more records", SPARK_S)
        assert cluster.ask(stopped, ground.group) is not None
    assert ({call.number for call in sink.calls("written")}, set(sink.offsets().values())) == ({1}, {1})
    assert (ground.committed(), ground.members()) == ([600] * PARTITIONS, [])


def test_drain_ends_when_the_speculative_copy_finishes_first(
    cluster: SessionProcess, ground: Ground, tmp_path: Path
) -> None:
    """Spark kills the original in its sink; the drain returns its counts and leaves no member."""
    sink = Slow(tmp_path, Plot.STUCK)
    result = cluster.ask(drained, ground.config, ground.topic, ground.group, sink, allow_speculation=True)
    assert (result.records, len(sink.offsets()), set(sink.offsets().values())) == (RECORDS, RECORDS, {1})
    assert {call.number for call in sink.calls("written")} == {1}
    assert (ground.committed(), ground.members()) == ([500] * PARTITIONS, [])
    wait_until(
        lambda: all(is_over(call.pid) for call in sink.calls("held")), "the end of the copies that held", SPARK_S
    )


def test_drain_ends_when_the_original_finishes_before_its_copy(
    cluster: SessionProcess, ground: Ground, tmp_path: Path
) -> None:
    """Spark kills the copy before the copy joins the group."""
    sink = Slow(tmp_path, Plot.FIRST)
    result = cluster.ask(drained, ground.config, ground.topic, ground.group, sink, allow_speculation=True)
    assert (result.records, len(sink.offsets()), set(sink.offsets().values())) == (RECORDS, RECORDS, {1})
    assert {call.number for call in sink.calls("written")} == {0}
    assert (ground.committed(), ground.members()) == ([500] * PARTITIONS, [])
    wait_until(lambda: all(is_over(pid) for pid in sink.copies()), "the end of the copies", SPARK_S)
