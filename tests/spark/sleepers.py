"""Tasks whose processes pause for longer than their session, and wake: a frozen machine, or a stopped worker.

    python -m tests.spark.sleepers [--sink parquet postgres kafka] [--way run drain member_task] [--asleep 1 2]
                                   [--sessions 1 2 3] [--protocol consumer classic]

It runs every combination of these options, with its own broker and a session whose tasks have one attempt each. For
each combination it prints whether a record was lost or duplicated, or a task replaced. One or both of the two members
are stopped (SIGSTOP) at an arbitrary point for this number of sessions; meanwhile the other member, if it runs, owns
their partitions, and more records arrive.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Message
from pyarrow import dataset
from pyspark.sql import SparkSession

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker, start
from consumer_membership.errors import GroupError
from consumer_membership.spark import (
    KafkaSink,
    OutRecord,
    ParquetSink,
    PostgresSink,
    SinkContext,
    drain,
    member_task,
    run,
)
from consumer_membership.types import OffsetAndMetadata
from tests.spark.clusters import SPARK_S, session_of
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.postgres import postgres
from tests.support.waiting import wait_until

SINKS = ("parquet", "postgres", "kafka")
WAYS = ("run", "drain", "member_task")
PARTITIONS, RECORDS, BATCH = 4, 6000, 40
#: The broker's session timeout (`SHORT_SESSIONS`).
SESSION_S = 6.0
#: The pause in each batch: long enough that a stop finds most members inside their sinks, but not all of them.
PAUSE_S = 0.03

Place = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """One combination of the options."""

    sink: str
    way: str
    asleep: int = 1
    sessions: float = 1.0
    protocol: str = "consumer"

    def __str__(self) -> str:
        return f"{self.way}, {self.sink}, {self.asleep} of 2 for {self.sessions:g} sessions, {self.protocol}"


class Target(Protocol):
    """The destination of the records, and its contents at the end."""

    sink: Callable[..., None]

    def written(self) -> Counter[Place]:
        """The number of times that each record is there, by partition and offset."""
        ...


@dataclass(frozen=True)
class Marked:
    """A sink that notes attempt and process in a folder, pauses briefly, and passes the batch to another sink."""

    sink: Callable[..., None]
    folder: Path

    @property
    def commits_offsets(self) -> bool:
        """Whether the other sink commits offsets."""
        return bool(getattr(self.sink, "commits_offsets", False))

    def prepare(self, instance: int, instance_id: str) -> None:
        """Prepare the other sink."""
        prepare = getattr(self.sink, "prepare", None)
        if prepare is not None:
            prepare(instance, instance_id)

    def close(self) -> None:
        """Close the other sink."""
        close = getattr(self.sink, "close", None)
        if close is not None:
            close()

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Note attempt and process, and write."""
        with (self.folder / f"{context.instance}.{context.attempt}.{os.getpid()}").open("a") as file:
            file.write(".")
        threading.Event().wait(PAUSE_S)
        self.sink(batch, context)

    def attempts(self) -> list[int]:
        """The instances of the attempts that received batches, in order."""
        return sorted(int(file.name.split(".")[0]) for file in self.folder.iterdir())

    def pids(self, batches: int) -> dict[int, int]:
        """The processes that received this number of batches, by instance."""
        files = [file for file in self.folder.iterdir() if file.stat().st_size >= batches]
        return {int(instance): int(pid) for instance, _, pid in (file.name.split(".") for file in files)}


# ---- targets ---------------------------------------------------------------------------------------------------------


class Files:
    """A folder of Parquet files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "files"
        self.sink: Callable[..., None] = ParquetSink(self._folder)

    def written(self) -> Counter[Place]:
        """Count the rows of the files."""
        found = dataset.dataset(self._folder, format="parquet").to_table()
        return Counter(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True))


class Table:
    """A table in PostgreSQL."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._name = unique("t").replace("-", "_")
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {self._name} (part int, record_offset bigint)")
        self.sink: Callable[..., None] = PostgresSink.rows(
            conninfo, self._name, ["part", "record_offset"], lambda m: (m.partition(), m.offset())
        )

    def written(self) -> Counter[Place]:
        """Count the rows of the table."""
        with psycopg.connect(self._conninfo) as connection:
            rows = connection.execute(f"SELECT part, record_offset FROM {self._name}")  # noqa: S608 - a test's table
            return Counter((int(part), int(offset)) for part, offset in rows)


class Topic:
    """A topic, written in transactions."""

    def __init__(self, broker: Broker) -> None:
        self._servers = broker.bootstrap_servers
        out = self._name = create_topic(self._servers, unique("out"), 1)
        self.sink: Callable[..., None] = KafkaSink(
            {"bootstrap.servers": self._servers},
            lambda m: [OutRecord(topic=out, value=f"{m.partition()}:{m.offset()}")],
        )

    def written(self) -> Counter[Place]:
        """Count the committed records up to the end of the topic."""
        found: Counter[Place] = Counter()
        consumer = RawConsumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": unique("reader"),
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.subscribe([self._name])
        try:
            while True:
                message = consumer.poll(SPARK_S)
                assert message is not None, "no answer from the topic"
                if message.error() is not None:
                    return found
                partition, offset = (message.value() or b"").decode().split(":")
                found[int(partition), int(offset)] += 1
        finally:
            consumer.close()


def target_of(course: Course, broker: Broker, conninfo: str, folder: Path) -> Target:
    """A new target."""
    match course.sink:
        case "parquet":
            return Files(folder)
        case "postgres":
            return Table(conninfo)
        case _:
            return Topic(broker)


# ---- the work --------------------------------------------------------------------------------------------------------


class Work:
    """Two members on Spark, in one of the three ways, while the test stops and wakes their processes."""

    def __init__(self, spark: SparkSession, broker: Broker, course: Course, sink: Marked) -> None:
        self.servers = broker.bootstrap_servers
        self.topic = create_topic(self.servers, unique("spark"), PARTITIONS)
        self.group = unique("group")
        self._records = 0
        self.more()
        self._admin = GroupAdmin({"bootstrap.servers": self.servers})
        self._spark = spark
        self._course = course
        self._sink = sink
        self._config: dict[str, object] = {"bootstrap.servers": self.servers, "group.protocol": course.protocol}
        if course.protocol == "classic":
            self._config |= {"session.timeout.ms": int(SESSION_S * 1000), "heartbeat.interval.ms": 500}
        self._is_over = threading.Event()

    def more(self) -> None:
        """Write more records."""
        produce(self.servers, self.topic, RECORDS)
        self._records += RECORDS

    def expected(self) -> Counter[Place]:
        """Each record once; a bounded way (`drain`, `member_task`) reads only the records that existed at its start."""
        records = self._records if self._course.way == "run" else RECORDS
        each = range(records // PARTITIONS)
        return Counter(itertools.product(range(PARTITIONS), each))

    def do(self) -> None:
        """Do the work to its end; a run ends on the stop order."""
        asked = (self._config, [self.topic], self.group, self._sink)
        match self._course.way:
            case "run":
                with run(self._spark, *asked, 2, batch_size=BATCH, show_progress=False) as handle:
                    while handle.is_running and not self._is_over.wait(0.1):
                        handle.wait(0.0)
                    assert handle.stop(SPARK_S) is not None
            case "drain":
                drain(self._spark, *asked, 2, batch_size=BATCH, show_progress=False, timeout_s=SPARK_S)
            case _:
                config, topics, group, sink = asked
                task = member_task(config, topics, sink, group=group, batch_size=BATCH)
                self._spark.range(2).repartition(2).foreachPartition(task)

    def end(self) -> None:
        """Stop a run."""
        self._is_over.set()

    @property
    def is_committed(self) -> bool:
        """Return whether all records are committed."""
        committed = self._admin.committed(self.group).values()
        return sum(at.offset for at in committed if isinstance(at, OffsetAndMetadata)) >= sum(self.expected().values())

    def members(self) -> set[str]:
        """The instance ids in the group."""
        try:
            return {member.instance_id or "" for member in self._admin.describe(self.group).group.members}
        except GroupError:
            return set()


@contextmanager
def asleep(pids: Sequence[int]) -> Iterator[None]:
    """Stop these processes for the duration of the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def slept(spark: SparkSession, broker: Broker, conninfo: str, folder: Path, course: Course) -> str:
    """Run a course to its end; return the problems of the written records, "" for none."""
    marks = folder / "marks"
    marks.mkdir()
    target = target_of(course, broker, conninfo, folder)
    sink = Marked(target.sink, marks)
    work = Work(spark, broker, course, sink)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work.do)
        try:
            wait_until(lambda: done.done() or len(sink.pids(3)) == 2, "three records of each of two tasks", SPARK_S)
            sleepers = {instance: pid for instance, pid in sink.pids(3).items() if instance < course.asleep}
            assert len(sleepers) == course.asleep, f"the work ended before anybody slept: {outcome(done)}"
            began = time.monotonic()
            with asleep(list(sleepers.values())):
                away = {f"{work.group}-{instance}" for instance in sleepers}
                wait_until(lambda: not away & work.members(), "the end of the sleepers' membership", SPARK_S)
                work.more()
                wait_until(
                    lambda: time.monotonic() - began >= course.sessions * SESSION_S, "the end of the sessions", SPARK_S
                )
            if course.way == "run":
                wait_until(lambda: done.done() or work.is_committed, "everything committed", SPARK_S)
        finally:
            work.end()
        done.result(SPARK_S)
    return judged(work.expected(), target.written(), sink.attempts())


def judged(expected: Counter[Place], written: Counter[Place], attempts: Sequence[int]) -> str:
    """Return the problems, "" for none."""
    lost, twice = expected - written, written - expected
    wrong = [f"{sum(lost.values())} lost"] if lost else []
    wrong += [f"{sum(twice.values())} twice"] if twice else []
    wrong += [f"attempts of the instances {attempts}"] if list(attempts) != [0, 1] else []
    return ", ".join(wrong)


def outcome(done: Future[None]) -> str:
    """Return the outcome as text."""
    return repr(done.exception()) if done.done() else "it goes on"


# ---- all combinations ------------------------------------------------------------------------------------------------


def main(words: Sequence[str]) -> int:
    """Run all combinations; return 1 if any record was lost or duplicated or a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.sleepers")
    parser.add_argument("--sink", nargs="+", choices=SINKS, default=SINKS)
    parser.add_argument("--way", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--asleep", nargs="+", type=int, choices=(1, 2), default=(1, 2))
    parser.add_argument("--sessions", nargs="+", type=float, default=(1.0, 2.0, 3.0))
    parser.add_argument("--protocol", nargs="+", choices=("consumer", "classic"), default=("consumer",))
    asked = parser.parse_args(words)
    combinations = itertools.product(asked.sink, asked.way, asked.asleep, asked.sessions, asked.protocol)
    failures = 0
    with ExitStack() as stack:
        broker = stack.enter_context(start(properties=SHORT_SESSIONS))
        conninfo = stack.enter_context(postgres()) if "postgres" in asked.sink else ""
        # Spark 4.0 creates its folder `artifacts` in the current folder.
        stack.enter_context(chdir(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))))
        spark = session_of("local[2]", {})
        stack.callback(spark.stop)
        for sink, way, count, sessions, protocol in combinations:
            course = Course(sink=sink, way=way, asleep=count, sessions=sessions, protocol=protocol)
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                try:
                    wrong = slept(spark, broker, conninfo, Path(folder), course)
                except Exception as failed:  # noqa: BLE001 - the next combination still runs
                    wrong = f"{type(failed).__name__}: {failed}"
            failures += bool(wrong)
            print(
                f"{course}: {wrong or '0 lost, 0 twice, nobody replaced'} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
