"""The built-in sinks in the tasks of a drain: pickled, called, closed, and with each record written once."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from pyarrow import dataset
from pyspark.sql import SparkSession

from consumer_membership.admin import GroupAdmin
from consumer_membership.devbroker import Broker
from consumer_membership.errors import ConfigurationError, GroupError
from consumer_membership.spark import drain, member_task
from consumer_membership.spark.sinks import KafkaSink, OutRecord, ParquetSink, PostgresSink
from tests.support.kafka import create_topic, produce, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS, PARTITIONS = 200, 4
EXPECTED = {(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)}


@pytest.fixture
def topic(kafka: Broker) -> str:
    """A topic with records."""
    name = create_topic(kafka.bootstrap_servers, unique("in"), PARTITIONS)
    produce(kafka.bootstrap_servers, name, RECORDS)
    return name


def drained(spark: SparkSession, kafka: Broker, topic: str, sink: object, batch_format: str = "messages") -> int:
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
