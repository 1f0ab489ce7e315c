"""With a session of Spark Connect: what has no SparkContext, no RDD, and no driver that a task could call."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from consumer_membership.errors import ConfigurationError, DrainError, SinkError
from consumer_membership.spark import check, read_group, register, run
from tests.spark.clusters import CONNECT, Ground, SessionProcess, a_session, drained, until
from tests.spark.recorders import Recorder
from tests.spark.source.beside import OURS, batch_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from consumer_membership.devbroker import Broker
    from consumer_membership.spark import SinkContext

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def session() -> Iterator[SessionProcess]:
    """A server of Spark Connect with two slots and three attempts of each task, and a client."""
    with a_session(f"{CONNECT}local[2,3]") as process:
        yield process


class Refusing:
    """A sink that refuses everything."""

    def __call__(self, _: object, __: SinkContext) -> None:
        """Refuse."""
        raise ValueError("not today")


class Slow:
    """A sink that takes longer than anybody waits."""

    def __call__(self, _: object, __: SinkContext) -> None:
        """Wait."""
        threading.Event().wait(600)


def refused(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> str:
    """What `run` says."""
    with pytest.raises(ConfigurationError) as said:
        run(spark, config, [topic], group, Refusing())
    return str(said.value)


def failed(
    spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str, sink: object, **options: object
) -> tuple[str, str]:
    """The class and the text of a drain's error."""
    with pytest.raises((SinkError, DrainError)) as said:
        drained(spark, config, topic, group, sink, **options)
    return type(said.value).__name__, str(said.value)


def read(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> int:
    """How many records `read_group` has, which are committed then."""
    with read_group(spark, config, [topic], group) as frame:
        return frame.count()


def streamed(spark: SparkSession, /, options: Mapping[str, str], group: str) -> int:
    """How many records a query has that reads what is there; `foreachBatch` would run on the server."""
    register(spark)
    records = spark.readStream.format("kafka-group").options(**options, **{"group.id": group}).load()
    with tempfile.TemporaryDirectory() as folder:
        writing = records.writeStream.format("memory").queryName("streamed").option("checkpointLocation", folder)
        writing.trigger(availableNow=True).start().awaitTermination()
    return spark.table("streamed").count()


def found(spark: SparkSession, /, config: Mapping[str, object], topic: str, group: str) -> str:
    """What `check` says."""
    return str(check(spark, config, [topic], group, instances=2))


def test_drain_takes_each_record_once(kafka: Broker, session: SessionProcess, tmp_path: Path) -> None:
    """By two members, each of whose tasks says what it did; nobody is left, and a second drain has nothing to do."""
    ground = Ground(kafka, 4, 400)
    result = session.ask(drained, ground.config, ground.topic, ground.group, Recorder(tmp_path))
    assert (result.records, [part.records for part in result.partitions]) == (400, [100] * 4)
    assert ground.committed() == [100] * 4
    assert ground.members() == []
    assert session.ask(drained, ground.config, ground.topic, ground.group, Recorder(tmp_path)).records == 0


def test_sink_that_gives_up_is_told_in_its_words(kafka: Broker, session: SessionProcess) -> None:
    """Out of the server's exception, with partition and offsets; nobody is left."""
    ground = Ground(kafka, 1, 5)
    kind, text = session.ask(failed, ground.config, ground.topic, ground.group, Refusing(), sink_attempts=1)
    assert kind == "SinkError"
    assert "not today" in text
    assert f"{ground.topic}[0]" in text
    assert ground.members() == []


def test_drain_that_takes_too_long_is_interrupted(kafka: Broker, session: SessionProcess) -> None:
    """By its tag; what its tasks leave in the group is removed, and other jobs of the session go on."""
    ground = Ground(kafka, 2, 10)
    kind, text = session.ask(failed, ground.config, ground.topic, ground.group, Slow(), timeout_s=8.0)
    assert (kind, "not drained within 8.0 s" in text) == ("DrainError", True)
    until(lambda: ground.members() == [])
    assert session.ask(read, ground.config, ground.topic, ground.group) == 10


def test_run_is_refused(kafka: Broker, session: SessionProcess) -> None:
    """With what to take instead."""
    ground = Ground(kafka, 1, 1)
    assert "use drain" in session.ask(refused, ground.config, ground.topic, ground.group)


def test_reads_streams_and_the_doctor(kafka: Broker, session: SessionProcess) -> None:
    """`read_group`, `format("kafka-group")`, `check`."""
    ground = Ground(kafka, 2, 20)
    options = {"kafka.bootstrap.servers": ground.bootstrap, "subscribe": ground.topic, "startingOffsets": "earliest"}
    assert len(session.ask(batch_rows, OURS, options)) == 20
    assert session.ask(streamed, options, ground.group) == 20
    assert session.ask(read, ground.config, ground.topic, ground.group) == 20
    assert ground.committed() == [10, 10]
    assert "Spark Connect" in session.ask(found, ground.config, ground.topic, ground.group)
