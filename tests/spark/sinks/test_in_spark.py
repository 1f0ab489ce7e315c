"""The built-in sinks in the tasks of a drain: pickled, called, closed, and with each record written once."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from functools import partial
from pathlib import Path

import psycopg
import pytest
import tenacity
from confluent_kafka import Message
from pyarrow import dataset
from pyspark.sql import SparkSession

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, GroupError, SinkError
from consumer_membership.spark import HandlerSink, drain, member_task
from consumer_membership.spark.sinks import KafkaSink, OutRecord, ParquetSink, PostgresSink
from tests.support.kafka import create_topic, produce, read_committed, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS, PARTITIONS = 200, 4
EXPECTED = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)}


@pytest.fixture
def topic(kafka: Broker) -> str:
    """A topic with records."""
    name = create_topic(kafka.bootstrap_servers, unique("in"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, RECORDS)
    return name


def drained(
    spark: SparkSession,
    kafka: Broker,
    topic: str,
    sink: object,
    batch_format: str = "messages",
    batch_size: int = 10_000,
) -> int:
    """Drain the topic with two tasks; return the number of records of the result."""
    result = drain(
        spark,
        {"bootstrap.servers": kafka.bootstrap_servers},
        [topic],
        unique("g"),
        sink,
        instances=2,
        show_progress=False,
        timeout_s=120,
        batch_format=batch_format,
        batch_size=batch_size,
    )
    return sum(part.records for part in result.partitions)


def test_postgres_rows_sink_writes_each_record_once_in_a_drain(
    spark: SparkSession, kafka: Broker, topic: str, conninfo: str
) -> None:
    """`PostgresSink.rows` writes by COPY, with a row function that exists only on the driver."""
    table = unique("t").replace("-", "_")
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (part int, record_offset bigint)")
        sink = PostgresSink.rows(conninfo, table, ["part", "record_offset"], lambda m: (m.partition(), m.offset()))
        assert drained(spark, kafka, topic, sink) == RECORDS
        rows = connection.execute(f"SELECT part, record_offset FROM {table}").fetchall()  # noqa: S608
    assert len(rows) == RECORDS
    assert set(rows) == EXPECTED


def test_invalid_use_of_a_sink_is_refused_before_the_job(
    spark: SparkSession, kafka: Broker, topic: str, conninfo: str
) -> None:
    """`drain` and `member_task` raise `ConfigurationError` on the driver: no task starts, and no member joins."""
    group = unique("g")
    sink = PostgresSink.rows(conninfo, "nowhere", ["part"], lambda m: (m.partition(),))
    asked = {"bootstrap.servers": kafka.bootstrap_servers}
    with pytest.raises(ConfigurationError, match="use batch_format='messages'"):
        drain(spark, asked, [topic], group, sink, batch_format="arrow", show_progress=False)
    with pytest.raises(ConfigurationError, match="use batch_format='messages'"):
        member_task(asked, [topic], sink, group=group, batch_format="arrow")
    with pytest.raises(GroupError, match="the cluster has no group with this id"):
        GroupAdmin(asked).describe(group)


def test_parquet_sink_writes_each_record_once_in_a_drain(
    spark: SparkSession, kafka: Broker, topic: str, tmp_path: Path
) -> None:
    """`ParquetSink` writes the Arrow batches of a drain without a conversion."""
    assert drained(spark, kafka, topic, ParquetSink(tmp_path), batch_format="arrow") == RECORDS
    found = dataset.dataset(tmp_path, format="parquet").to_table()
    assert found.num_rows == RECORDS
    assert set(zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)) == EXPECTED


def test_kafka_sink_commits_offsets_that_the_drain_reads(spark: SparkSession, kafka: Broker, topic: str) -> None:
    """The sink's transactions commit the offsets, and the drain reads them; its output is drained in turn."""
    out = create_topic(kafka.bootstrap_servers, unique("out"), 1)
    sink = KafkaSink({"bootstrap.servers": kafka.bootstrap_servers}, lambda m: [OutRecord(topic=out, value=m.value())])
    assert drained(spark, kafka, topic, sink) == RECORDS
    assert drained(spark, kafka, out, lambda _batch, _context: None) == RECORDS


# ---- handlers --------------------------------------------------------------------------------------------------------

HANDLED, KEYS, POISON = 1000, 20, 123


@pytest.fixture
def keyed_topic(kafka: Broker) -> str:
    """A topic with 50 records of each of 20 keys; the values are numbers."""
    name = create_topic(kafka.bootstrap_servers, unique("in"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, ((f"{n % KEYS}", f"{n}") for n in range(HANDLED)))
    return name


def number_of(record: Message) -> int:
    """The number in the value of a record."""
    value = record.value()
    assert isinstance(value, bytes)
    return int(value)


def handled(record: Message, *, out: str) -> OutRecord:
    """Copy a record; one record is poison."""
    if number_of(record) == POISON:
        raise ValueError("poison")
    return OutRecord(topic=out, key=record.key(), value=record.value())


def handler_sink(out: str, dead_letter: str | None) -> HandlerSink:
    """A sink with two attempts for each record."""
    retry = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())
    return HandlerSink(partial(handled, out=out), retry=retry, dead_letter=dead_letter)


def test_handler_sink_passes_a_poison_record_in_a_drain(spark: SparkSession, kafka: Broker, keyed_topic: str) -> None:
    """The poison record is in the dead-letter topic, all others are handled once, in the order of each key."""
    out = create_topic(kafka.bootstrap_servers, unique("out"), PARTITIONS)
    dead = create_topic(kafka.bootstrap_servers, unique("dead"), 1)
    assert drained(spark, kafka, keyed_topic, handler_sink(out, dead)) == HANDLED
    found: dict[str | bytes | None, list[int]] = defaultdict(list)
    for record in read_committed(kafka.bootstrap_servers, out):
        found[record.key()].append(number_of(record))
    assert found == {
        f"{key}".encode(): [number for number in range(key, HANDLED, KEYS) if number != POISON] for key in range(KEYS)
    }
    (letter,) = read_committed(kafka.bootstrap_servers, dead)
    assert number_of(letter) == POISON
    headers = dict(letter.headers() or [])
    assert headers["kafka_dlt-original-topic"] == keyed_topic.encode()
    assert headers["kafka_dlt-exception-message"] == b"poison"


def test_handler_sink_without_a_target_names_the_poison_record(
    spark: SparkSession, kafka: Broker, keyed_topic: str
) -> None:
    """The job fails with topic, partition, offset and cause of the record, which is not committed."""
    out = create_topic(kafka.bootstrap_servers, unique("out"), PARTITIONS)
    place = f"offset {POISON // PARTITIONS} of {keyed_topic}-{POISON % PARTITIONS}"
    with pytest.raises(SinkError, match=f"{place} after 2 attempts: ValueError: poison.*not committed"):
        drained(spark, kafka, keyed_topic, handler_sink(out, None))


class KilledOnce:
    """A handler that notes each record in a file of its process, and kills the first process that reaches a record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, record: Message) -> None:
        """Handle a record."""
        number = number_of(record)
        if number == POISON:
            raise ValueError("poison")
        with (self._folder / f"{os.getpid()}.handled").open("a") as file:
            file.write(f"{number}\n")
        if number == HANDLED // 2:
            try:
                (self._folder / "killed").touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def handled(self) -> list[list[int]]:
        """The numbers that each process has handled, except for a line that the kill cut off."""
        files = self._folder.glob("*.handled")
        return [[int(line) for line in file.read_text().splitlines(keepends=True) if "\n" in line] for file in files]


def test_killed_handler_loses_no_record_and_keeps_the_order_of_each_key(
    spark: SparkSession, kafka: Broker, keyed_topic: str, tmp_path: Path
) -> None:
    """Records of the unfinished batch are handled again; the dead letter is stored at least once."""
    dead = create_topic(kafka.bootstrap_servers, unique("dead"), 1)
    handler = KilledOnce(tmp_path)
    sink = HandlerSink(handler, retry=tenacity.Retrying(stop=tenacity.stop_after_attempt(1)), dead_letter=dead)
    assert drained(spark, kafka, keyed_topic, sink, batch_size=100) == HANDLED
    processes = handler.handled()
    numbers = [number for process in processes for number in process]
    assert set(numbers) == set(range(HANDLED)) - {POISON}
    assert len(numbers) - len(set(numbers)) <= 100
    for key in range(KEYS):
        in_order = [[number for number in process if number % KEYS == key] for process in processes]
        assert in_order == [sorted(one) for one in in_order]
    assert {number_of(letter) for letter in read_committed(kafka.bootstrap_servers, dead)} == {POISON}


@pytest.mark.classic
def test_missing_dead_letter_topic_is_refused_before_the_job(
    spark: SparkSession, kafka: Broker, keyed_topic: str
) -> None:
    """The driver checks the dead-letter topic with the connection of the job."""
    with pytest.raises(ConfigurationError, match=r"dead_letter='nowhere'.*create the topic"):
        drained(spark, kafka, keyed_topic, handler_sink("out", "nowhere"))
