"""Spark Connect sessions: they have no SparkContext, no RDD, and no driver that a task can call."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.errors import DrainError, SinkError
from consumer_membership.spark import check, read_group, register
from tests.spark.clusters import (
    CONNECT,
    SPARK_S,
    Ground,
    SessionProcess,
    a_connect_server,
    a_run,
    a_session,
    drained,
    reported,
    started,
    stopped,
)
from tests.spark.recorders import Recorder
from tests.spark.source.comparison import OURS, batch_rows
from tests.support.kafka import produce
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from consumer_membership.devbroker import Broker
    from consumer_membership.spark import SinkContext

#: A test may wait until another test has ended pyspark's own server, because these servers use the same port.
pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=["own", "apart"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionProcess]:
    """A Spark Connect client that starts its server or uses a separate one, with two slots and three attempts."""
    with ExitStack() as stack:
        server = "local[2,3]"
        if request.param == "apart":
            server = stack.enter_context(a_connect_server(tmp_path_factory.mktemp("server"), server))
        yield stack.enter_context(a_session(f"{CONNECT}{server}"))


class Refusing:
    """A sink that raises for each batch."""

    def __call__(self, _: object, __: SinkContext) -> None:
        """Raise."""
        raise ValueError("not today")


@dataclass(frozen=True, slots=True)
class Slow:
    """A sink that reports its start and then exceeds each timeout."""

    folder: Path

    def __call__(self, _: object, context: SinkContext) -> None:
        """Wait."""
        (self.folder / f"began-{context.instance}").touch()
        threading.Event().wait(600)


def failed(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, sink: object, **options: object
) -> tuple[str, str]:
    """The class and the text of a drain's error."""
    with pytest.raises((SinkError, DrainError)) as raised:
        drained(spark, config, topic, group, sink, **options)
    return type(raised.value).__name__, str(raised.value)


def drained_into_a_module(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, folder: Path
) -> int:
    """Drain into a sink of a module that is sent as an artifact; return the number of records."""
    spark.addArtifact(str(folder / "artifact_sink.py"), pyfile=True)
    sys.path.append(str(folder))
    return drained(spark, config, topic, group, importlib.import_module("artifact_sink").sink).records


def read(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> int:
    """Read the group with `read_group`, commit, and return the number of records."""
    with read_group(spark, config, [topic], group) as frame:
        return frame.count()


def streamed(spark: SparkSession, /, options: Mapping[str, str], group: str) -> int:
    """Return the number of records of a query over the available records; `foreachBatch` would run on the server."""
    register(spark)
    records = spark.readStream.format("kafka-group").options(**options, **{"group.id": group}).load()
    with tempfile.TemporaryDirectory() as folder:
        writing = records.writeStream.format("memory").queryName("streamed").option("checkpointLocation", folder)
        writing.trigger(availableNow=True).start().awaitTermination()
    return spark.table("streamed").count()


def found(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> str:
    """Return the findings of `check`."""
    return str(check(spark, config, [topic], group, instances=2))


def test_drain_delivers_each_record_once(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """A drain with two members delivers each record once and leaves no member; a second drain delivers nothing."""
    ground = Ground(kafka, 4, 400)
    result = session.ask(drained, ground.config, ground.topic, ground.group, Recorder(tmp_path))
    assert (result.records, [part.records for part in result.partitions]) == (400, [100] * 4)
    assert ground.committed() == [100] * 4
    assert ground.members() == []
    assert session.ask(drained, ground.config, ground.topic, ground.group, Recorder(tmp_path)).records == 0


def test_drain_raises_the_error_of_a_failed_sink(kafka: Broker, session: SessionProcess) -> None:
    """A drain raises the sink's error with partition and offsets, taken from the server's exception."""
    ground = Ground(kafka, 1, 5)
    kind, text = session.ask(failed, ground.config, ground.topic, ground.group, Refusing(), sink_attempts=1)
    assert kind == "SinkError"
    assert "not today" in text
    assert f"{ground.topic}-0@0..4" in text
    assert ground.members() == []


def test_sink_of_a_client_module_is_sent_as_an_artifact(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """A sink of a module that the executors lack travels as a Spark Connect artifact."""
    ground = Ground(kafka, 1, 5)
    (tmp_path / "artifact_sink.py").write_text("def sink(batch, context):\n    pass\n")
    assert session.ask(drained_into_a_module, ground.config, ground.topic, ground.group, tmp_path) == 5


def test_drain_beyond_its_timeout_is_interrupted_and_its_members_removed(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """A drain beyond its timeout is interrupted by its tag and its members are removed.

    Other jobs of the session go on.
    """
    ground = Ground(kafka, 2, 10)
    kind, text = session.ask(failed, ground.config, ground.topic, ground.group, Slow(tmp_path), timeout_s=8.0)
    assert (kind, "not drained within 8.0 s" in text) == ("DrainError", True)
    wait_until(lambda: ground.members() == [], "a group without members", SPARK_S)
    assert session.ask(read, ground.config, ground.topic, ground.group) == 10


def test_run_consumes_new_records_until_it_is_stopped(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """The members of a run report progress, consume new records, and leave the group on stop."""
    ground, recorder = Ground(kafka, 4, 400), Recorder(tmp_path)
    with a_run(session, ground, recorder):
        wait_until(
            lambda: [len(member.owned) for member in session.ask(reported, ground.group)] == [2, 2],
            "two partitions with each member",
            SPARK_S,
        )
        produce(ground.bootstrap, ground.topic, 400)
        wait_until(
            lambda: sum(member.records for member in session.ask(reported, ground.group)) == 800, "all records", SPARK_S
        )
        result = session.ask(stopped, ground.group)
    assert result is not None
    assert (result.records, len(result.members)) == (800, 2)
    assert (set(recorder.counts().values()), ground.committed(), ground.members()) == ({1}, [200] * 4, [])


def test_cancelled_run_leaves_no_member(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """A run that is cancelled by its tag leaves no member, whatever its tasks are doing."""
    ground = Ground(kafka, 2, 10)
    with a_run(session, ground, Slow(tmp_path)):
        wait_until(lambda: any(tmp_path.glob("began-*")), "the first batch", SPARK_S)
    # A task that is just starting notices the cancellation only after its start.
    wait_until(lambda: ground.members() == [], "a group without members", SPARK_S)


def test_run_cancelled_before_its_start_ends(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """A run that is cancelled before the server has started it ends."""
    ground = Ground(kafka, 2, 10)
    with a_run(session, ground, Slow(tmp_path)):
        pass
    assert session.ask(read, ground.config, ground.topic, ground.another_group().group) == 10


def test_run_ends_after_its_client_is_killed(kafka: Broker, tmp_path: Path) -> None:
    """One minute after their client was killed, the tasks commit and leave the group."""
    ground, recorder = Ground(kafka, 2, 10), Recorder(tmp_path)
    with a_connect_server(tmp_path, "local[2]") as server:
        with a_session(f"{CONNECT}{server}") as client:
            client.ask(started, ground.config, ground.topic, ground.group, recorder)
            wait_until(lambda: len(recorder.counts()) == 10, "all records", SPARK_S)
            client.kill()
        wait_until(lambda: ground.members() == [], "a group without members", SPARK_S)
    assert (set(recorder.counts().values()), ground.committed()) == ({1}, [5, 5])


def test_read_group_streams_and_check_work_with_connect(kafka: Broker, session: SessionProcess) -> None:
    """`read_group`, `format("kafka-group")` and `check` work with Spark Connect."""
    ground = Ground(kafka, 2, 20)
    options = {"kafka.bootstrap.servers": ground.bootstrap, "subscribe": ground.topic, "startingOffsets": "earliest"}
    assert len(session.ask(batch_rows, OURS, options)) == 20
    assert session.ask(streamed, options, ground.group) == 20
    assert session.ask(read, ground.config, ground.topic, ground.group) == 20
    assert ground.committed() == [10, 10]
    text = session.ask(found, ground.config, ground.topic, ground.group)
    assert "Spark Connect" in text
    # A finding of tasks, from the hosts on which they ran.
    assert f"broker {ground.bootstrap} can be reached from" in re.sub(" +", " ", text)
    assert "on the client" in text
