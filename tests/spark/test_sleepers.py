"""A run survives the pauses of its workers: a member paused beyond its session drops its batch and joins again.

This file runs one combination for each sink and each way; `python -m tests.spark.sleepers` runs all of them.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Message
from pyspark.sql import SparkSession

from consumer_membership.spark import SinkContext, run
from consumer_membership.spark.control import SILENT_MEMBER
from tests.spark.clusters import SPARK_S
from tests.spark.sleepers import SESSION_S, Course, slept
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.postgres import postgres
from tests.support.versions import NEWEST
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.mark.parametrize(
    "course",
    [
        Course(sink="parquet", way="run", sessions=1.5),
        Course(sink="kafka", way="drain", sessions=1.5),
        Course(sink="postgres", way="member_task", asleep=2),
    ],
    ids=lambda course: f"{course.way}-{course.sink}-{course.asleep}",
)
def test_task_paused_beyond_its_session_rejoins_and_goes_on(
    spark: SparkSession, broker_pool: RunBrokers, tmp_path: Path, course: Course
) -> None:
    """Whether or not its partitions moved to another member, no record is lost or duplicated and no attempt fails."""
    broker = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    if course.sink != "postgres":
        assert slept(spark, broker, "", tmp_path, course) == ""
        return
    with postgres() as conninfo:
        assert slept(spark, broker, conninfo, tmp_path, course) == ""


def test_progress_shows_a_member_paused_beyond_its_session_as_silent(
    spark: SparkSession, broker_pool: RunBrokers
) -> None:
    """Progress shows the paused member as silent and without its moved partitions, and as before after it wakes."""
    broker = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    config = {"bootstrap.servers": broker.bootstrap_servers}
    topic = create_topic(broker.bootstrap_servers, unique("silent"), 4)
    with run(spark, config, [topic], unique("group"), unused, 2) as handle:
        wait_until(lambda: [len(one.owned) for one in handle.progress()] == [2, 2], "two partitions each", SPARK_S)
        asleep = handle.progress()[0].pid
        os.kill(asleep, signal.SIGSTOP)
        try:
            wait_until(
                lambda: (
                    [(one.state, len(one.owned)) for one in handle.progress()] == [(SILENT_MEMBER, 0), ("STABLE", 4)]
                ),
                "all partitions with the second",
                SPARK_S,
            )
            silent = handle.progress()[0]
            assert (silent.rate, silent.lag, silent.silent_s > silent.session_s == SESSION_S) == (0.0, 0, True)
        finally:
            os.kill(asleep, signal.SIGCONT)
        wait_until(
            lambda: [(one.state, len(one.owned)) for one in handle.progress()] == [("STABLE", 2)] * 2,
            "two partitions each",
            SPARK_S,
        )


@dataclass(frozen=True)
class StoppingSink:
    """A sink that appends records to a file of its process after guarded work; the first task stops in that work."""

    folder: Path

    def __call__(self, batch: list[Message], context: SinkContext) -> None:
        """Work under the leases, then write."""
        with context.guard():
            stopped = self.folder / "stopped"
            if context.instance == 0 and not stopped.exists():
                stopped.with_name("new").write_text(str(os.getpid()))
                stopped.with_name("new").rename(stopped)
                os.kill(os.getpid(), signal.SIGSTOP)
        with (self.folder / f"{os.getpid()}.written").open("a") as file:
            file.writelines(f"{record.partition()} {record.offset()}\n" for record in batch)

    def written(self) -> list[str]:
        """Return the lines of all processes."""
        return [line for file in self.folder.glob("*.written") for line in file.read_text().splitlines()]


def test_task_with_leases_that_was_stopped_in_its_sink_writes_nothing_of_its_former_partitions(
    spark: SparkSession, broker_pool: RunBrokers, tmp_path: Path
) -> None:
    """The next owner has written its batch, so a sink that only appends has each record once."""
    broker = broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)
    config = {"bootstrap.servers": broker.bootstrap_servers, "ownership.lease.enable": True}
    topic, sink = create_topic(broker.bootstrap_servers, unique("leases"), 4), StoppingSink(tmp_path)
    with run(spark, config, [topic], unique("group"), sink, 2, show_progress=False) as handle:
        wait_until(lambda: [len(one.owned) for one in handle.progress()] == [2, 2], "two partitions each", SPARK_S)
        produce(broker.bootstrap_servers, topic, 400)
        stopped = tmp_path / "stopped"
        wait_until(stopped.exists, "the stop of the first task", SPARK_S)
        try:
            wait_until(lambda: len(sink.written()) == 400, "all records from the second task", SPARK_S)
        finally:
            os.kill(int(stopped.read_text()), signal.SIGCONT)
        wait_until(lambda: [len(one.owned) for one in handle.progress()] == [2, 2], "two partitions each", SPARK_S)
        produce(broker.bootstrap_servers, topic, 400)
        wait_until(lambda: len(set(sink.written())) == 800, "all records", SPARK_S)
    assert len(sink.written()) == 800


def unused(_: list[Message], __: SinkContext) -> None:
    """A sink that keeps nothing."""
