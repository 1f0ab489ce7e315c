"""`kafka-group` in comparison with spark-sql-kafka, with the same options and topics: same columns and same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from consumer_membership.cli import main
from tests.benchmarks.spark_jars import connector_jars
from tests.spark.clusters import SessionProcess, a_session
from tests.spark.source.comparison import OURS, THEIRS, batch_rows, columns, counts_by_value, stream_rows
from tests.support.compaction import (
    EAGER_CLEANER,
    create_compacted_topic,
    offsets_left,
    produce_segments,
)
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from consumer_membership.devbroker import Broker
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

MOMENT_MS = 1_700_000_000_123
HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None), ("g", b"")]


@pytest.fixture(scope="module")
def session() -> Iterator[SessionProcess]:
    """A session with both sources."""
    with a_session("local[2]", {"spark.jars": ",".join(connector_jars())}) as process:
        yield process


def read_both(session: SessionProcess, options: Mapping[str, str]) -> list[str]:
    """Assert that both sources return the same rows in a batch read; return the rows."""
    ours, theirs = (session.ask(batch_rows, source, options) for source in (OURS, THEIRS))
    assert ours == theirs
    return ours


def subscribed(kafka: Broker, topic: str, **more: str) -> dict[str, str]:
    """The options of a read; underscores stand for dots."""
    named = {key.replace("_", "."): value for key, value in more.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **named}


def test_batch_read_has_the_columns_and_rows_of_spark_sql_kafka(kafka: Broker, session: SessionProcess) -> None:
    """Keys, nulls, empty values, repeated or null headers, and both kinds of timestamps are equal."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2, {"retention.ms": "-1"})
    stamped = create_topic(kafka.bootstrap_servers, unique("topic"), 1, {"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(
        topic, b"a", b"k", partition=0, timestamp=MOMENT_MS, headers=[("h", b"1"), ("h", None), ("g", b"")]
    )
    producer.produce(topic, None, b"gone", partition=1, timestamp=1)
    producer.produce(topic, b"", None, partition=1, timestamp=MOMENT_MS + 1)
    producer.produce(stamped, b"b", partition=0, headers={"x": b"y"})
    assert producer.flush(PATIENCE_S) == 0
    for headers in ("false", "true"):
        options = subscribed(kafka, f"{topic},{stamped}", includeHeaders=headers)
        assert session.ask(columns, OURS, options) == session.ask(columns, THEIRS, options)
        assert len(read_both(session, options)) == 4


@pytest.mark.parametrize(
    "more",
    [
        {"startingOffsets": '{"TOPIC":{"0":5,"1":-2,"2":0}}', "endingOffsets": '{"TOPIC":{"0":9,"1":-1,"2":0}}'},
        {"startingTimestamp": str(MOMENT_MS + 20)},
        {"startingOffsetsByTimestamp": '{"TOPIC":{"0":1700000000140,"1":0,"2":1700000000150}}'},
        {"startingTimestamp": str(MOMENT_MS + 10), "endingTimestamp": str(MOMENT_MS + 30)},
        {"minPartitions": "11"},
        {"maxRecordsPerPartition": "7"},
    ],
    ids=["offsets", "time", "times", "between", "min", "max"],
)
def test_offset_time_and_partition_options_read_the_same_rows(
    kafka: Broker, session: SessionProcess, more: dict[str, str]
) -> None:
    """Bounds by offset or time and a cut into ranges give the same rows."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 3, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(60):
        producer.produce(topic, b"%d" % number, partition=number % 3, timestamp=MOMENT_MS + number)
    assert producer.flush(PATIENCE_S) == 0
    given = {key: value.replace("TOPIC", topic) for key, value in more.items()}
    assert read_both(session, {**subscribed(kafka, topic), **given})


def test_subscribe_pattern_and_assign_read_the_same_rows(kafka: Broker, session: SessionProcess) -> None:
    """A pattern matches anywhere in a name, and partitions can be assigned one by one."""
    name = unique("topic")
    for topic in (f"{name}.a", f"{name}.b", f"x{name}.a"):
        produce(kafka.bootstrap_servers, create_topic(kafka.bootstrap_servers, topic, 2), 6)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    assert len(read_both(session, {**servers, "subscribePattern": f"{name}[.]."})) == 18
    assert len(read_both(session, {**servers, "subscribePattern": f"^{name}[.]"})) == 12
    assert len(read_both(session, {**servers, "assign": f'{{"{name}.a":[1],"{name}.b":[0,1]}}'})) == 9


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactional_topics_read_the_same_rows(kafka: Broker, session: SessionProcess, isolation: str) -> None:
    """Only `read_uncommitted` returns records of aborted and open transactions, and neither level returns markers."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    # The last transaction stays open until Spark has read twice.
    settings = {"transactional.id": unique("id"), "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **settings})
    producer.init_transactions(PATIENCE_S)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
        if end is not None:
            end(PATIENCE_S)
    rows = read_both(session, subscribed(kafka, topic, kafka_isolation_level=isolation))
    assert len(rows) == (5 if isolation == "read_committed" else 15)
    producer.abort_transaction(PATIENCE_S)


def test_compacted_topics_read_the_same_rows(kafka_broker: BrokerFactory, session: SessionProcess) -> None:
    """Offsets without records, at the start and within the log, are skipped."""
    kafka = kafka_broker(properties=EAGER_CLEANER)
    topic = create_compacted_topic(kafka.bootstrap_servers, unique("topic"))
    produce_segments(kafka.bootstrap_servers, topic, 0, [["a", "b", "a"], ["a"], ["c"]], MOMENT_MS)
    wait_until(lambda: offsets_left(kafka.bootstrap_servers, topic) == [1, 3, 4], "the compaction")
    assert len(read_both(session, subscribed(kafka, topic, minPartitions="3"))) == 3


def test_stream_has_the_batches_of_spark_sql_kafka(kafka: Broker, session: SessionProcess) -> None:
    """The batches are equal, also after partitions were added."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    produce(kafka.bootstrap_servers, topic, 20)
    options = subscribed(kafka, topic, startingOffsets="earliest")
    assert session.ask(stream_rows, OURS, options) == session.ask(stream_rows, THEIRS, options)


def test_query_keeps_its_checkpoint_when_it_switches_to_kafka_group(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """After a change of the format only, the query continues from the checkpoint and reads each record once."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    options = subscribed(kafka, topic, startingOffsets="earliest")
    produce(kafka.bootstrap_servers, topic, 10)
    (before,) = session.ask(stream_rows, THEIRS, options, str(tmp_path))
    produce(kafka.bootstrap_servers, topic, 6)
    after = session.ask(stream_rows, OURS, options, str(tmp_path))
    assert len(before) == 10
    assert [len(rows) for rows in after] == [6]
    assert sorted([*before, *after[0]]) == read_both(session, subscribed(kafka, topic))


def test_checkpoint_to_kafka_moves_a_stateful_query_back_in_place(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """A stateful query moves to `kafka-group` and back, keeps its state, and counts each record once."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    options, folder = subscribed(kafka, topic, startingOffsets="earliest"), str(tmp_path)
    back = ["checkpoint", "to-kafka", folder, "-b", kafka.bootstrap_servers, "--execute"]
    produce(kafka.bootstrap_servers, topic, 10)
    assert session.ask(counts_by_value, THEIRS, options, folder) == {str(number): 1 for number in range(10)}
    produce(kafka.bootstrap_servers, topic, 6)
    grouped = {**options, "group.id": group}
    assert session.ask(counts_by_value, OURS, grouped, folder) == {str(number): 2 for number in range(6)}
    produce(kafka.bootstrap_servers, topic, 4)
    # The query's next batch is planned by `kafka-group`, and completed by spark-sql-kafka.
    assert session.ask(counts_by_value, OURS, grouped, folder, is_failing=True).keys() == {"0", "1", "2", "3"}
    assert main(back) == 0
    assert session.ask(counts_by_value, THEIRS, options, folder) == {str(number): 3 for number in range(4)}
    produce(kafka.bootstrap_servers, topic, 3)
    assert session.ask(counts_by_value, THEIRS, options, folder) == {str(number): 4 for number in range(3)}
    produce(kafka.bootstrap_servers, topic, 2)
    assert session.ask(counts_by_value, OURS, grouped, folder) == {str(number): 5 for number in range(2)}


def test_checkpoint_to_kafka_keeps_the_start_of_an_unfinished_first_batch(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """spark-sql-kafka repeats the unfinished first batch from the offsets at which `kafka-group` began it."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    options, folder = subscribed(kafka, topic), str(tmp_path)
    produce(kafka.bootstrap_servers, topic, 10)
    grouped = {**options, "group.id": group, "startingOffsets": f'{{"{topic}":{{"0":7}}}}'}
    seen = session.ask(counts_by_value, OURS, grouped, folder, is_failing=True)
    assert seen == {"7": 1, "8": 1, "9": 1}
    assert main(["checkpoint", "to-kafka", folder, "-b", kafka.bootstrap_servers, "--execute"]) == 0
    assert session.ask(counts_by_value, THEIRS, {**options, "startingOffsets": "latest"}, folder) == seen


@pytest.mark.parametrize("source", [OURS, THEIRS])
def test_checkpoint_from_a_group_and_back_reads_each_record_once(
    kafka: Broker, session: SessionProcess, tmp_path: Path, source: str
) -> None:
    """A query continues from a group's offsets, and a group from the query's, and each record is read once."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    words = ["-b", kafka.bootstrap_servers, "-g", group, "--execute"]
    options = subscribed(kafka, topic, startingOffsets="earliest")
    (before,) = session.ask(stream_rows, source, options, str(tmp_path / "first"))
    wait_until(
        lambda: main(["checkpoint", "to-group", str(tmp_path / "first"), *words]) == 0, "the group's offsets", 60
    )
    produce(kafka.bootstrap_servers, topic, 6)
    assert main(["checkpoint", "from-group", str(tmp_path / "second"), *words]) == 0
    after = [row for rows in session.ask(stream_rows, source, options, str(tmp_path / "second")) for row in rows]
    assert (len(before), len(after)) == (10, 6)
    assert sorted([*before, *after]) == read_both(session, subscribed(kafka, topic))
