"""`format("kafka-group")` in Spark on a real broker: queries as users write them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming import DataStreamWriter

from consumer_membership.admin import GroupAdmin
from consumer_membership.errors import ConfigurationError, GroupError
from consumer_membership.spark import register
from tests.spark.clusters import SPARK_S
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from consumer_membership.devbroker import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: From pyspark 4.2 on, Spark also calls a source at the end, and a limited query with `availableNow` has many batches.
KNOWS_THE_END = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 2)
#: pyspark has this trigger from 4.1 on.
KNOWS_REAL_TIME = "realTime" in signature(DataStreamWriter.trigger).parameters


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    """A session in which the source is registered."""
    register(spark)
    return spark


def options(kafka: Broker, topic: str, group: str, **more: str) -> dict[str, str]:
    """The options of a stream from the earliest offset."""
    least = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "group.id": group}
    return {**least, "startingOffsets": "earliest", **more}


@dataclass(frozen=True, slots=True)
class Seen:
    """The records of each batch, in a file, because a server process of Spark Connect receives them.

    Each attempt of a batch counts separately.
    """

    folder: Path

    def __call__(self, frame: DataFrame, number: int) -> None:
        """Note a batch, as `foreachBatch` calls it."""
        values = sorted(int(bytes(row.value)) for row in frame.select("value").collect())
        refuses = self.folder / f"refuses-{number}"
        if refuses.exists():
            refuses.unlink()
            raise RuntimeError("the sink has refused")
        with (self.folder / "batches.jsonl").open("a") as file:
            file.write(json.dumps([number, values]) + "\n")

    def refuse(self, number: int) -> None:
        """Fail this batch once."""
        (self.folder / f"refuses-{number}").touch()

    @property
    def batches(self) -> list[tuple[int, list[int]]]:
        """The number and the values of each batch."""
        file = self.folder / "batches.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        return [(number, values) for number, values in map(json.loads, lines)]

    @property
    def values(self) -> list[int]:
        """The values of all batches."""
        return sorted(value for _, values in self.batches for value in values)


@pytest.fixture
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """An empty record of batches."""
    return Seen(tmp_path_factory.mktemp("seen"))


def ignored(_: DataFrame, __: int) -> None:
    """A sink that drops its batch."""


@contextmanager
def query(
    spark: SparkSession,
    given: Mapping[str, str],
    seen: Callable[[DataFrame, int], None],
    folder: Path,
    **trigger: object,
) -> Iterator[StreamingQuery]:
    """A query that is stopped at the end of the block."""
    records = spark.readStream.format("kafka-group").options(**given).load()
    writing = records.writeStream.foreachBatch(seen).option("checkpointLocation", str(folder))
    if trigger:
        writing = writing.trigger(**trigger)  # type: ignore[call-overload]  # a valid trigger
    started = writing.start()
    try:
        yield started
    finally:
        started.stop()


def drained(
    spark: SparkSession, given: Mapping[str, str], seen: Callable[[DataFrame, int], None], folder: Path
) -> None:
    """Run a query with `availableNow` to its end."""
    with query(spark, given, seen, folder, availableNow=True) as started:
        assert started.awaitTermination(int(SPARK_S))


def refusal(of: Callable[[], object]) -> str:
    """Spark's error on the driver."""
    with pytest.raises((PySparkException, ConfigurationError)) as refused:
        of()
    return str(refused.value)


def failure(spark: SparkSession, given: Mapping[str, str], folder: Path) -> str:
    """The error of a query that fails."""
    return refusal(lambda: drained(spark, given, ignored, folder))


# ---- queries ---------------------------------------------------------------------------------------------------------


def test_query_continues_from_its_checkpoint_and_shows_its_group(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """Each record is read once over a restart; the group shows member and lag, and is empty after the stop."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 3), unique("group")
    produce(kafka.bootstrap_servers, topic, 30)
    admin = GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers})
    with query(source, options(kafka, topic, group), seen, tmp_path):
        wait_until(lambda: seen.values == list(range(30)), "thirty records", SPARK_S)
        wait_until(lambda: admin.describe(group).lag == 0, "everything committed", SPARK_S)
        members = admin.describe(group).group.members
        assert [member.instance_id for member in members] == [f"{group}-source"]
        assert members[0].host
    wait_until(lambda: admin.describe(group).group.state == "Empty", "an empty group", SPARK_S)
    produce(kafka.bootstrap_servers, topic, 6)
    assert admin.describe(group).lag == 6
    with query(source, options(kafka, topic, group), seen, tmp_path, processingTime="100 milliseconds"):
        wait_until(lambda: len(seen.values) == 36, "36 records", SPARK_S)
    assert seen.values == sorted([*range(30), *range(6)])


def test_query_with_a_killed_source_process_names_group_source_and_cause(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """The exception replaces "Connection reset"; after a restart the query continues."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    given = options(kafka, topic, group)
    with query(source, given, seen, tmp_path) as started:
        wait_until(lambda: len(seen.values) == 10, "ten records", SPARK_S)
        (pid,) = source_processes(os.getpid())
        os.kill(pid, signal.SIGKILL)
        text = refusal(lambda: started.awaitTermination(int(SPARK_S)))
    assert f"group '{group}': the process of its source kafka-group (pid {pid} on " in text
    assert "was killed or crashed" in text
    assert "Connection reset" not in text
    produce(kafka.bootstrap_servers, topic, 5)
    with query(source, given, seen, tmp_path):
        wait_until(lambda: len(seen.values) == 15, "15 records", SPARK_S)
    # The watchdogs also end; the group's name is one of their arguments.
    wait_until(
        lambda: not any(group in command for _, command in processes().values()),
        "the end of the group's processes",
        SPARK_S,
    )


def processes() -> dict[int, tuple[int, str]]:
    """The parent and the command of each process."""
    found: dict[int, tuple[int, str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if state != "Z":
                # Another test may start a process with an argument that is not UTF-8.
                found[int(process.name)] = int(parent), (process / "cmdline").read_text(errors="replace")
    return found


def source_processes(above: int) -> list[int]:
    """The processes below this one that Spark runs for streaming sources."""
    found = processes()

    def is_below(pid: int) -> bool:
        return pid == above or (pid in found and is_below(found[pid][0]))

    return [pid for pid, (_, command) in found.items() if "python_streaming_source_runner" in command and is_below(pid)]


def test_failed_batch_is_repeated_with_the_same_offsets(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """This holds also for `startingOffsets=latest`, although the log has grown meanwhile."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    given = options(kafka, topic, group, startingOffsets="latest")
    produce(kafka.bootstrap_servers, topic, 4)
    with query(source, given, seen, tmp_path) as started:
        wait_until(lambda: started.lastProgress is not None, "the first batch", SPARK_S)
        seen.refuse(started.lastProgress["batchId"] + 1)  # type: ignore[index]  # not None here
        produce(kafka.bootstrap_servers, topic, 10)
        wait_until(lambda: not started.isActive, "the end of the query", SPARK_S)
    produce(kafka.bootstrap_servers, topic, 3)
    with query(source, given, seen, tmp_path):
        wait_until(lambda: len(seen.values) == 13, "13 records", SPARK_S)
    assert seen.values == sorted([*range(10), *range(3)])


def test_available_now_reads_the_available_records_and_ends(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """From pyspark 4.2 on, a limit splits the records into several batches; the next query reads only new records."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    limit = {"maxOffsetsPerTrigger": "8"} if KNOWS_THE_END else {}
    drained(source, options(kafka, topic, group, **limit), seen, tmp_path)
    assert seen.values == list(range(20))
    assert [len(values) for _, values in seen.batches] == ([8, 8, 4] if KNOWS_THE_END else [20])
    produce(kafka.bootstrap_servers, topic, 4)
    drained(source, options(kafka, topic, group, **limit), seen, tmp_path)
    assert seen.batches[-1][1] == list(range(4))
    if KNOWS_THE_END:
        assert GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).describe(group).lag == 0


def test_max_offsets_per_trigger_limits_each_batch(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """Each batch has this number of records until none is left."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    with query(source, options(kafka, topic, group, maxOffsetsPerTrigger="8"), seen, tmp_path):
        wait_until(lambda: len(seen.values) == 20, "20 records", SPARK_S)
    assert [len(values) for _, values in seen.batches if values] == [8, 8, 4]


def test_batch_read_joins_no_group(kafka: Broker, source: SparkSession) -> None:
    """`spark.read` returns the records between two bounds and commits nothing."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    produce(kafka.bootstrap_servers, topic, 20)
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, "minPartitions": "7"}
    bounds = {"startingOffsets": f'{{"{topic}":{{"0":3,"1":-2}}}}', "endingOffsets": f'{{"{topic}":{{"0":5,"1":4}}}}'}
    frame = source.read.format("kafka-group").options(**given, **bounds).load()
    assert sorted((row.partition, row.offset) for row in frame.collect()) == [
        (0, 3),
        (0, 4),
        *((1, n) for n in range(4)),
    ]
    pieces = source.read.format("kafka-group").options(**given).load().selectExpr("spark_partition_id()").distinct()
    assert pieces.count() == 8
    assert source.read.format("kafka-group").options(**given).load().where("partition = 1").count() == 10


# ---- refusals, on the driver -----------------------------------------------------------------------------------------


def test_invalid_options_are_refused_at_load(kafka: Broker, source: SparkSession) -> None:
    """The error names the option and the remedy, also for keys that librdkafka does not know."""
    given = options(kafka, "orders", "billing")
    for wrong, words in {
        "startingOffset": "there is no such option; did you mean startingOffsets?",
        "kafka.no.such.key": 'No such configuration property: "no.such.key"',
        "subscribePattern": "give exactly one of subscribe",
        "maxOffsetsPerTrigger": "give a whole number, 1 or more",
    }.items():
        reading = source.readStream.format("kafka-group").options(**given, **{wrong: "x"})
        # With Spark Connect, only `schema` sends a request to the server.
        text = refusal(lambda reading=reading: reading.load().schema)  # type: ignore[misc]  # mypy infers no default
        assert "ConfigurationError" in text, wrong
        assert words in text, wrong


def test_impossible_queries_end_with_an_error_and_leave_the_group(
    kafka: Broker, source: SparkSession, tmp_path: Path
) -> None:
    """Foreign schemas and checkpoints, unknown topics and brokers, and unsupported triggers raise an error."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 3)
    given = options(kafka, topic, group)
    drained(source, given, ignored, tmp_path / "billing")
    other = {**given, "group.id": unique("other")}
    assert f"it belongs to a query with group.id='{group}'" in failure(source, other, tmp_path / "billing")
    assert "there-is-none" in failure(source, {**given, "subscribe": "there-is-none"}, tmp_path / "none")
    away = {**given, "kafka.bootstrap.servers": "127.0.0.1:1"}
    assert "127.0.0.1:1" in failure(source, away, tmp_path / "away")
    frame = source.readStream.format("kafka-group").schema("value string").options(**given).load()
    writing = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "schema"))
    started = writing.start()
    text = refusal(lambda: started.awaitTermination(int(SPARK_S)))
    assert "leave .schema() out" in text
    continuous = source.readStream.format("kafka-group").options(**given).load().writeStream.format("noop")
    continuous = continuous.option("checkpointLocation", str(tmp_path / "continuous")).trigger(continuous="1 second")
    assert "ontinuous" in refusal(continuous.start)
    if KNOWS_REAL_TIME:
        frame = source.readStream.format("kafka-group").options(**given).load()
        writing = frame.writeStream.format("console").outputMode("update")
        writing = writing.option("checkpointLocation", str(tmp_path / "real-time")).trigger(realTime="5 seconds")  # type: ignore[call-overload]  # pyspark 4.1 has it
        text = refusal(lambda: writing.start().awaitTermination(int(SPARK_S)))
        assert "is not supported in Real-time Mode" in text
    wait_until(lambda: has_left(kafka, group), "an empty group", SPARK_S)


def has_left(kafka: Broker, group: str) -> bool:
    """Return whether the group has no member.

    Before pyspark 4.2, the only batch of a query with `availableNow` is not committed when the query ends. Such a group
    has no offsets, and the broker deletes it with its next cleanup (`offsets.retention.check.interval.ms`).
    """
    try:
        return GroupAdmin({"bootstrap.servers": kafka.bootstrap_servers}).describe(group).group.state == "Empty"
    except GroupError as missing:
        return "has no group with this id" in str(missing)


def test_data_loss_ends_the_query_unless_fail_on_data_loss_is_false(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """The error on the driver has partition and offsets; otherwise the query continues with the available records."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    given = options(kafka, topic, group)
    drained(source, given, seen, tmp_path)
    delete_topic(kafka.bootstrap_servers, topic)
    create_topic(kafka.bootstrap_servers, topic, 1)
    produce(kafka.bootstrap_servers, topic, 3)
    assert f"{topic}[0] ends at offset 3 and was read up to 5" in failure(source, given, tmp_path)
    drained(source, {**given, "failOnDataLoss": "false"}, seen, tmp_path)
    assert [values for _, values in seen.batches if values] == [[0, 1, 2, 3, 4], [0, 1, 2]]


def test_second_query_of_a_group_ends_the_first(
    kafka: Broker, source: SparkSession, seen: Seen, tmp_path: Path
) -> None:
    """Two queries with one group never both continue."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    given = options(kafka, topic, group)
    produce(kafka.bootstrap_servers, topic, 3)
    with query(source, given, ignored, tmp_path / "first") as first:
        wait_until(lambda: first.lastProgress is not None, "the first batch", SPARK_S)
        with query(source, given, seen, tmp_path / "second") as second:
            wait_until(lambda: not first.isActive, "the end of the query", SPARK_S)
            assert "the reader of group" in str(first.exception())
            wait_until(lambda: seen.values == [0, 1, 2], "three records", SPARK_S)
            assert second.isActive


def test_register_refuses_arguments_that_are_not_a_session() -> None:
    """`register` checks the type of its argument."""
    with pytest.raises(ConfigurationError, match="give the SparkSession"):
        register("spark")  # type: ignore[arg-type]
