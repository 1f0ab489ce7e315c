"""Stopped Spark sessions, classic and Connect: calls with a stopped session, and jobs whose session is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.errors import MembershipError
from consumer_membership.spark import OffsetMirror, check, drain, read_group, register, run
from tests.spark.clusters import CONNECT, SPARK_S, Ground, SessionProcess, a_session
from tests.spark.recorders import Recorder
from tests.support.kafka import produce
from tests.support.waiting import SOONER_THAN_A_SESSION_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from consumer_membership.devbroker import Broker

#: A test may wait until another test has ended pyspark's own server, because these servers use the same port.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

RECORDS = 10


@pytest.fixture(params=["local[2,3]", f"{CONNECT}local[2,3]"], ids=["classic", "connect"])
def session(request: pytest.FixtureRequest) -> Iterator[SessionProcess]:
    """A session for one test, which the test stops."""
    with a_session(request.param) as session:
        yield session


def refusals(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> dict[str, str]:
    """The error's class and text of each call with a stopped session."""
    spark.stop()
    asked: dict[str, Callable[[], object]] = {
        "run": lambda: run(spark, config, [topic], group, print),
        "drain": lambda: drain(spark, config, [topic], group, print),
        "read_group": lambda: read_group(spark, config, [topic], group),
        "check": lambda: check(spark, config, [topic], group),
        "register": lambda: register(spark),
        "OffsetMirror": lambda: OffsetMirror(spark, group_ids={"query": group}, config=config),
    }
    return {name: error_of(ask) for name, ask in asked.items()}


def error_of(ask: Callable[[], object]) -> str:
    """The class and text of the error that this call raises."""
    try:
        ask()
    except MembershipError as refused:
        return f"{type(refused).__name__}: {refused}"
    return "nothing"


def run_without(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, recorder: Recorder
) -> str:
    """The error of a run whose session is stopped while it runs."""
    handle = run(spark, config, [topic], group, recorder, 2)
    wait_until(lambda: len(recorder.counts()) == RECORDS, "all records", SPARK_S)
    spark.stop()
    return error_of(lambda: handle.wait(SPARK_S))


def query_begun(spark: SparkSession, /, options: Mapping[str, str], folder: str) -> None:
    """Start a query without an end."""
    register(spark)
    records = spark.readStream.format("kafka-group").options(**options).load()
    writing = records.writeStream.format("noop").option("checkpointLocation", folder)
    writing.trigger(processingTime="100 milliseconds").start()


def ended(spark: SparkSession, /) -> None:
    """Stop the session."""
    spark.stop()


def test_stopped_session_is_refused_by_every_call(kafka: Broker, session: SessionProcess) -> None:
    """Each call that takes a session raises the same error for a stopped session, and no member joins."""
    ground = Ground(kafka, 2, RECORDS)
    answers = session.ask(refusals, ground.config, ground.topic, ground.group)
    assert {name: text.partition(";")[0] for name, text in answers.items()} == dict.fromkeys(
        answers, "ConfigurationError: spark='a stopped session': it cannot run a job"
    )
    assert ground.committed() == []


def test_run_ends_when_its_session_is_stopped(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """The run raises this package's error and leaves no member; records in its sinks are committed or redelivered."""
    ground, recorder = Ground(kafka, 2, RECORDS), Recorder(tmp_path)
    text = session.ask(run_without, ground.config, ground.topic, ground.group, recorder)
    assert text.startswith("MembershipError: the session was stopped while the job ran")
    wait_until(lambda: ground.members() == [], "a group without members", SOONER_THAN_A_SESSION_S)
    assert set(recorder.counts().values()) == {1}


def test_query_leaves_its_group_after_its_session_is_stopped(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """The query leaves at its next batch at the latest: a classic query continues until new records arrive."""
    ground = Ground(kafka, 2, RECORDS)
    least = {"kafka.bootstrap.servers": ground.bootstrap, "subscribe": ground.topic, "group.id": ground.group}
    session.ask(query_begun, {**least, "startingOffsets": "earliest"}, str(tmp_path))
    wait_until(lambda: ground.committed() == [RECORDS // 2] * 2, "half of the records committed", SPARK_S)
    session.ask(ended)
    produce(ground.bootstrap, ground.topic, 2)
    wait_until(lambda: ground.members() == [], "a group without members", SOONER_THAN_A_SESSION_S)
    assert ground.committed() == [RECORDS // 2] * 2
