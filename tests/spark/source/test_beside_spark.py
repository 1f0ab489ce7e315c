"""Beside spark-sql-kafka, with the same options on the same topics: the same columns, and row by row the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from consumer_membership.cli import main
from tests.benchmarks.spark_jars import connector_jars
from tests.spark.clusters import SessionProcess, a_session
from tests.spark.source.beside import OURS, THEIRS, batch_rows, columns, counts_by_value, stream_rows
from tests.support.compaction import (
    EAGER_CLEANER,
    create_compacted_topic,
    offsets_left,
    produce_segments,
)
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from consumer_membership.devbroker import Broker
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

MOMENT_MS = 1_700_000_000_123
HEADERS: list[tuple[str, bytes | None]] = [("h", b"1"), ("h", None), ("g", b"")]


@pytest.fixture(scope="module")
def session() -> Iterator[SessionProcess]:
    """One that has both sources."""
    with a_session("local[2]", {"spark.jars": ",".join(connector_jars())}) as process:
        yield process


def read_both(session: SessionProcess, options: Mapping[str, str]) -> list[str]:
    """The rows of a batch read, which are the same; in the words of Python's Spark."""
    ours, theirs = (session.ask(batch_rows, source, options) for source in (OURS, THEIRS))
    assert ours == theirs
    return ours


def subscribed(kafka: Broker, topic: str, **more: str) -> dict[str, str]:
    """Options of a read; underscores stand for dots."""
    named = {key.replace("_", "."): value for key, value in more.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **named}


def test_columns_and_every_kind_of_record(kafka: Broker, session: SessionProcess) -> None:
    """Keys, nulls, empty values, headers that repeat or have no value, the producer's clock and the broker's."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2, {"retention.ms": "-1"})
    stamped = create_topic(kafka.bootstrap_servers, unique("topic"), 1, {"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(
        topic, b"a", b"k", partition=0, timestamp=MOMENT_MS, headers=[("h", b"1"), ("h", None), ("g", b"")]
    )
    producer.produce(topic, None, b"gone", partition=1, timestamp=1)
    producer.produce(topic, b"", None, partition=1, timestamp=MOMENT_MS + 1)
    producer.produce(stamped, b"b", partition=0, headers={"x": b"y"})
    assert producer.flush(20) == 0
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
def test_bounds_and_cuts(kafka: Broker, session: SessionProcess, more: dict[str, str]) -> None:
    """By offsets, by times, and cut into ranges."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 3, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(60):
        producer.produce(topic, b"%d" % number, partition=number % 3, timestamp=MOMENT_MS + number)
    assert producer.flush(20) == 0
    given = {key: value.replace("TOPIC", topic) for key, value in more.items()}
    assert read_both(session, {**subscribed(kafka, topic), **given})


def test_patterns_and_assignments(kafka: Broker, session: SessionProcess) -> None:
    """A pattern is looked for anywhere in a name, and partitions are assigned one by one."""
    name = unique("topic")
    for topic in (f"{name}.a", f"{name}.b", f"x{name}.a"):
        produce(kafka.bootstrap_servers, create_topic(kafka.bootstrap_servers, topic, 2), 6)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    assert len(read_both(session, {**servers, "subscribePattern": f"{name}[.]."})) == 18
    assert len(read_both(session, {**servers, "subscribePattern": f"^{name}[.]"})) == 12
    assert len(read_both(session, {**servers, "assign": f'{{"{name}.a":[1],"{name}.b":[0,1]}}'})) == 9


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transactions(kafka: Broker, session: SessionProcess, isolation: str) -> None:
    """What was aborted, and what is open; a marker at the end of a partition is no record."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("id")})
    producer.init_transactions(20)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        for number in range(5):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(20) == 0
        if end is not None:
            end(20)
    rows = read_both(session, subscribed(kafka, topic, kafka_isolation_level=isolation))
    assert len(rows) == (5 if isolation == "read_committed" else 15)
    producer.abort_transaction(20)


def test_compacted_topic(kafka_broker: BrokerFactory, session: SessionProcess) -> None:
    """Offsets that are no records any more, at the start and within the log."""
    kafka = kafka_broker(properties=EAGER_CLEANER)
    topic = create_compacted_topic(kafka.bootstrap_servers, unique("topic"))
    produce_segments(kafka.bootstrap_servers, topic, 0, [["a", "b", "a"], ["a"], ["c"]], MOMENT_MS)
    wait_until(lambda: offsets_left(kafka.bootstrap_servers, topic) == [1, 3, 4], "the compaction")
    assert len(read_both(session, subscribed(kafka, topic, minPartitions="3"))) == 3


def test_batches_of_a_stream(kafka: Broker, session: SessionProcess) -> None:
    """The same batches, and the same again when partitions were added."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    produce(kafka.bootstrap_servers, topic, 20)
    options = subscribed(kafka, topic, startingOffsets="earliest")
    assert session.ask(stream_rows, OURS, options) == session.ask(stream_rows, THEIRS, options)


def test_query_changes_its_source_and_keeps_its_checkpoint(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """One word is changed: it goes on where spark-sql-kafka was, and each record is read once."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    options = subscribed(kafka, topic, startingOffsets="earliest")
    produce(kafka.bootstrap_servers, topic, 10)
    (before,) = session.ask(stream_rows, THEIRS, options, str(tmp_path))
    produce(kafka.bootstrap_servers, topic, 6)
    after = session.ask(stream_rows, OURS, options, str(tmp_path))
    assert len(before) == 10
    assert [len(rows) for rows in after] == [6]
    assert sorted([*before, *after[0]]) == read_both(session, subscribed(kafka, topic))


def test_checkpoint_to_kafka_takes_a_query_with_state_back_to_spark_sql_kafka(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """A query with state goes to `kafka-group` and back in place; it counts each record once, and keeps its state."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    options, folder = subscribed(kafka, topic, startingOffsets="earliest"), str(tmp_path)
    back = ["checkpoint", "to-kafka", folder, "-b", kafka.bootstrap_servers, "--execute"]
    produce(kafka.bootstrap_servers, topic, 10)
    assert session.ask(counts_by_value, THEIRS, options, folder) == {str(number): 1 for number in range(10)}
    produce(kafka.bootstrap_servers, topic, 6)
    grouped = {**options, "group.id": group}
    assert session.ask(counts_by_value, OURS, grouped, folder) == {str(number): 2 for number in range(6)}
    produce(kafka.bootstrap_servers, topic, 4)
    # Its next batch is planned by `kafka-group`, and done by spark-sql-kafka.
    assert session.ask(counts_by_value, OURS, grouped, folder, is_failing=True).keys() == {"0", "1", "2", "3"}
    assert main(back) == 0
    assert session.ask(counts_by_value, THEIRS, options, folder) == {str(number): 3 for number in range(4)}
    produce(kafka.bootstrap_servers, topic, 3)
    assert session.ask(counts_by_value, THEIRS, options, folder) == {str(number): 4 for number in range(3)}
    produce(kafka.bootstrap_servers, topic, 2)
    assert session.ask(counts_by_value, OURS, grouped, folder) == {str(number): 5 for number in range(2)}


def test_checkpoint_to_kafka_keeps_where_the_first_batch_begins(
    kafka: Broker, session: SessionProcess, tmp_path: Path
) -> None:
    """spark-sql-kafka repeats a first batch that is not done from where `kafka-group` began it."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    options, folder = subscribed(kafka, topic), str(tmp_path)
    produce(kafka.bootstrap_servers, topic, 10)
    grouped = {**options, "group.id": group, "startingOffsets": f'{{"{topic}":{{"0":7}}}}'}
    seen = session.ask(counts_by_value, OURS, grouped, folder, is_failing=True)
    assert seen == {"7": 1, "8": 1, "9": 1}
    assert main(["checkpoint", "to-kafka", folder, "-b", kafka.bootstrap_servers, "--execute"]) == 0
    assert session.ask(counts_by_value, THEIRS, {**options, "startingOffsets": "latest"}, folder) == seen


@pytest.mark.parametrize("source", [OURS, THEIRS])
def test_query_goes_on_where_a_group_is(kafka: Broker, session: SessionProcess, tmp_path: Path, source: str) -> None:
    """From a checkpoint that was made of its offsets; and a group from the query's: each record once."""
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
