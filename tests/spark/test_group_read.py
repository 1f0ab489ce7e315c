"""`read_group` on a real broker: the rows that it returns and the offsets that the group has committed afterwards."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from pyspark import TaskContext
from pyspark.errors import PySparkException

from consumer_membership import Consumer
from consumer_membership.errors import ConfigurationError, FencedError, GroupError, TransportError, UseError
from consumer_membership.spark.group_read import GroupRead, read_group
from consumer_membership.spark.range_reader import LEAST_OFFSETS
from tests.support.acls import AUTHORIZER, forbid
from tests.support.compaction import (
    EAGER_CLEANER,
    create_compacted_topic,
    offsets_left,
    produce_segments,
)
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.waiting import PATIENCE_S, SOONER_THAN_A_SESSION_S, wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from consumer_membership.devbroker import Broker
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MOMENT_MS = 1_700_000_000_123
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def committed(kafka: Broker, group: str, topic: str, partitions: int = 1) -> list[int | None]:
    """The group's committed offset of each partition, read with confluent-kafka."""
    consumer = ConfluentConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], PATIENCE_S)
    finally:
        consumer.close()
    return [each.offset if each.offset >= 0 else None for each in found]


def stable_end(kafka: Broker, topic: str) -> int:
    """The last stable offset of partition 0, read with confluent-kafka."""
    consumer = ConfluentConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "none"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)[1]
    finally:
        consumer.close()


def members(kafka: Broker, group: str) -> int:
    """The number of members in the group."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return len(admin.describe_consumer_groups([group], request_timeout=PATIENCE_S)[group].result().members)


def values(frame: DataFrame) -> list[bytes]:
    """The values of all rows, in order."""
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbers(count: int, first: int = 0) -> list[bytes]:
    """The values that `produce(..., count)` writes, in order."""
    return sorted(str(number).encode() for number in range(first, first + count))


def config(kafka: Broker, **keys: object) -> dict[str, object]:
    """The configuration that a caller gives."""
    return {"bootstrap.servers": kafka.bootstrap_servers, **{key.replace("_", "."): keys[key] for key in keys}}


@contextmanager
def polling(kafka: Broker, group: str, topic: str) -> Iterator[Consumer]:
    """Another member of the group, which polls and never commits."""
    consumer = Consumer(config(kafka, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"))
    with ConsumerThread(consumer, [topic]):
        yield consumer


# ---- which rows ----


def test_row_has_every_column_of_its_record(kafka: Broker, spark: SparkSession) -> None:
    """A row has its record's key, value, place, timestamp and headers, and null where the record has none."""
    # Unlimited retention: the timestamps are of 2023, so the broker would delete the records within a minute.
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2, {"retention.ms": "-1"}), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"a", b"k", partition=0, timestamp=MOMENT_MS, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, b"gone", partition=1, timestamp=MOMENT_MS)
    assert producer.flush(PATIENCE_S) == 0
    with read_group(spark, config(kafka), [topic], group) as frame:
        rows = sorted(frame.collect(), key=lambda row: row.partition)
    assert [(row.key, row.value, row.topic, row.partition, row.offset) for row in rows] == [
        (bytearray(b"k"), bytearray(b"a"), topic, 0, 0),
        (bytearray(b"gone"), None, topic, 1, 0),
    ]
    assert [row.timestamp.astimezone(UTC) for row in rows] == [MOMENT, MOMENT]
    assert [[tuple(header) for header in row.headers] for row in rows] == [[("h", bytearray(b"1")), ("h", None)], []]


def test_second_read_returns_only_new_records(kafka: Broker, spark: SparkSession) -> None:
    """The end of the block commits the end of every partition, and the next read begins there."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 3), unique("group")
    produce(kafka.bootstrap_servers, topic, 30)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == numbers(30)
    assert committed(kafka, group, topic, 3) == [10, 10, 10]
    produce(kafka.bootstrap_servers, topic, 6)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == numbers(6)
    assert committed(kafka, group, topic, 3) == [12, 12, 12]


def test_every_action_reads_the_same_rows(kafka: Broker, spark: SparkSession) -> None:
    """The call fixes the offset ranges, so records that arrive later belong to the next read."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    with read_group(spark, config(kafka), [topic], group) as frame:
        first = values(frame)
        produce(kafka.bootstrap_servers, topic, 20)
        assert values(frame) == first == numbers(20)
        assert frame.count() == 20
    assert committed(kafka, group, topic, 2) == [10, 10]


def test_dataframe_has_only_the_requested_columns(kafka: Broker, spark: SparkSession) -> None:
    """The DataFrame has only the requested columns, in the requested order."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 1)
    with read_group(spark, config(kafka), [topic], unique("group"), columns=("offset", "value")) as frame:
        assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"0"))]
        assert frame.columns == ["offset", "value"]


def test_big_partition_is_read_by_several_tasks(kafka: Broker, spark: SparkSession) -> None:
    """Several tasks read a large partition, and each record is read once, also where the partition is cut."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    count = 3 * LEAST_OFFSETS + 7
    produce(kafka.bootstrap_servers, topic, count)
    with read_group(spark, config(kafka), [topic], unique("group"), columns=("offset",), tasks=3) as frame:
        assert frame.selectExpr("spark_partition_id()").distinct().count() == 3
        assert sorted(row.offset for row in frame.collect()) == list(range(count))


def test_until_ends_the_read_at_the_given_offsets(kafka: Broker, spark: SparkSession) -> None:
    """A partition that `until` does not name is neither read nor committed."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    with read_group(spark, config(kafka), [topic], group, until={(topic, 1): 4}) as frame:
        assert sorted((row.partition, row.offset) for row in frame.collect()) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert committed(kafka, group, topic, 2) == [None, 4]


def test_read_group_works_with_the_classic_protocol(kafka: Broker, spark: SparkSession) -> None:
    """The reader's member uses the group protocol of the configuration."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    with read_group(spark, config(kafka, group_protocol="classic"), [topic], group) as frame:
        assert values(frame) == numbers(10)
    assert committed(kafka, group, topic, 2) == [5, 5]


def test_callbacks_that_cannot_be_pickled_stay_on_the_driver(kafka: Broker, spark: SparkSession) -> None:
    """Callbacks and loggers are not sent to the tasks, so they do not have to be picklable."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 3)
    lock = Lock()

    def note(_: object) -> None:
        with lock:
            pass

    given = config(kafka) | {"error_cb": note, "logger": logging.getLogger("librdkafka")}
    with read_group(spark, given, [topic], unique("group")) as frame:
        assert values(frame) == numbers(3)


# ---- where partitions end ----


def test_empty_topic_returns_no_rows_and_is_committed(kafka: Broker, spark: SparkSession) -> None:
    """An empty topic returns no rows and no error, and the group commits offset 0."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert frame.count() == 0
        assert "value" in frame.columns
    assert committed(kafka, group, topic, 2) == [0, 0]


def test_read_ends_before_the_first_open_transaction(kafka: Broker, spark: SparkSession) -> None:
    """Markers and aborted records give no rows; records of an open transaction are read after its commit."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(PATIENCE_S)

    def begin(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0

    begin(b"committed")
    producer.commit_transaction(PATIENCE_S)
    begin(b"aborted")
    producer.abort_transaction(PATIENCE_S)
    # The markers are written after the call returns.
    wait_until(lambda: stable_end(kafka, topic) == 4, "the last stable offset")
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == [b"committed"]
    assert committed(kafka, group, topic) == [4]
    begin(b"open")
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == []
    with read_group(spark, config(kafka, isolation_level="read_uncommitted"), [topic], unique("group")) as frame:
        assert values(frame) == [b"aborted", b"committed", b"open"]
    producer.commit_transaction(PATIENCE_S)
    wait_until(lambda: stable_end(kafka, topic) == 6, "the last stable offset")
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == [b"open"]


def test_committed_offset_beyond_an_open_transaction_is_not_reset(kafka: Broker, spark: SparkSession) -> None:
    """A committed offset beyond the last stable offset, left by a read_uncommitted read, is kept and not reset."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(PATIENCE_S) == 0
    with read_group(spark, config(kafka, isolation_level="read_uncommitted"), [topic], group) as frame:
        assert frame.count() == 4
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert frame.count() == 0
    assert committed(kafka, group, topic) == [4]
    producer.abort_transaction(PATIENCE_S)


def test_range_that_ends_with_a_marker_is_read_to_its_end(kafka: Broker, spark: SparkSession) -> None:
    """A range whose last offset is a transaction marker is read to its end."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(PATIENCE_S)
    for value in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(PATIENCE_S)
    with read_group(spark, config(kafka), [topic], group, until={(topic, 0): 2}) as frame:
        assert values(frame) == [b"first"]
    assert committed(kafka, group, topic) == [2]


def test_compacted_partition_is_read_to_its_end(kafka_broker: BrokerFactory, spark: SparkSession) -> None:
    """Offsets without records, at the start of the range, within it and before its end, are skipped."""
    kafka = kafka_broker(properties=EAGER_CLEANER)
    topic, group = create_compacted_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce_segments(kafka.bootstrap_servers, topic, 0, [["a", "b", "a"], ["a"], ["c"]], MOMENT_MS)
    wait_until(lambda: offsets_left(kafka.bootstrap_servers, topic) == [1, 3, 4], "the compaction")
    with read_group(spark, config(kafka), [topic], unique("group")) as frame:
        assert sorted(row.offset for row in frame.select("offset").collect()) == [1, 3, 4]
    with read_group(spark, config(kafka), [topic], group, until={(topic, 0): 3}) as frame:
        assert [row.offset for row in frame.collect()] == [1]
    assert committed(kafka, group, topic) == [3]


# ---- where partitions start ----


def test_latest_read_commits_the_end_for_the_next_read(kafka: Broker, spark: SparkSession) -> None:
    """The first read with `latest` returns nothing but commits the end offsets, where the next read begins."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    latest = config(kafka, auto_offset_reset="latest")
    with read_group(spark, latest, [topic], group) as frame:
        assert frame.count() == 0
    produce(kafka.bootstrap_servers, topic, 3)
    with read_group(spark, latest, [topic], group) as frame:
        assert values(frame) == numbers(3)


def test_auto_offset_reset_error_refuses_missing_and_aged_out_offsets(kafka: Broker, spark: SparkSession) -> None:
    """With `auto.offset.reset=error`, a missing committed offset and one outside the log raise an error."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    strict = config(kafka, auto_offset_reset="error")
    with pytest.raises(
        ConfigurationError,
        match=rf"{topic}\[0\]: no offset is committed, .* log starts at offset 0 and ends at offset 5",
    ):
        read_group(spark, strict, [topic], group)
    with read_group(spark, config(kafka), [topic], group, until={(topic, 0): 1}) as frame:
        assert frame.count() == 1
    _delete_records(kafka, topic, 3)
    with pytest.raises(
        ConfigurationError, match=r"offset 1 is committed, and the log starts at offset 3 and ends at offset 5"
    ):
        read_group(spark, strict, [topic], group)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert sorted(row.offset for row in frame.collect()) == [3, 4]


def _delete_records(kafka: Broker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, 0, before)], request_timeout=PATIENCE_S).values():
        done.result()


# ---- what is committed ----


def test_failed_action_commits_nothing(kafka: Broker, spark: SparkSession) -> None:
    """After an exception in the block nothing is committed, and the next read returns the same rows."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)

    def fail(_: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        raise ValueError("of no use")

    with pytest.raises(PySparkException, match="of no use"), read_group(spark, config(kafka), [topic], group) as frame:
        frame.select("value").mapInArrow(fail, "value binary").collect()
    assert committed(kafka, group, topic, 2) == [None, None]
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == numbers(10)
    assert committed(kafka, group, topic, 2) == [5, 5]


def test_read_without_a_block_commits_only_on_commit(kafka: Broker, spark: SparkSession) -> None:
    """Without a `with` block, only `commit()` commits offsets; `close()` does not."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    read = read_group(spark, config(kafka), [topic], group)
    assert [(each.topic_partition, each.first, each.end) for each in read.ranges] == [((topic, 0), 0, 4)]
    assert read.dataframe.count() == 4
    read.close()
    assert committed(kafka, group, topic) == [None]
    with pytest.raises(UseError, match=r"commit before close\(\)"):
        read.commit()
    read = read_group(spark, config(kafka), [topic], group)
    read.commit()
    read.commit()
    assert committed(kafka, group, topic) == [4]
    read.close()
    read.close()


def test_killed_worker_is_replaced_and_rows_stay_the_same(kafka: Broker, spark: SparkSession) -> None:
    """A later attempt of a task reads its ranges again; no row is missing or duplicated."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    count = 2 * LEAST_OFFSETS + 2
    produce(kafka.bootstrap_servers, topic, count)

    def die_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    with read_group(spark, config(kafka), [topic], group, columns=("value",)) as frame:
        assert values(frame.mapInArrow(die_once, "value binary")) == numbers(count)
    assert committed(kafka, group, topic, 2) == [count // 2] * 2


# ---- other members ----


def test_read_group_reads_and_commits_only_owned_partitions(kafka: Broker, spark: SparkSession) -> None:
    """The reader reads and commits only the partitions that it owns; other members keep theirs."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 4), unique("group")
    produce(kafka.bootstrap_servers, topic, 40)
    with polling(kafka, group, topic) as other:
        wait_until(lambda: len(other.membership().owned) == 4, "four partitions")
        read = read_group(spark, config(kafka), [topic], group)
        with read as frame:
            mine = {each.partition for each in read.ranges}
            theirs = {partition for _, partition in other.membership().owned}
            assert (len(mine), len(theirs)) == (2, 2)
            assert mine | theirs == set(range(4))
            assert {row.partition for row in frame.select("partition").collect()} == mine
        assert committed(kafka, group, topic, 4) == [10 if number in mine else None for number in range(4)]


def test_commit_after_a_revocation_raises_fenced_error(kafka: Broker, spark: SparkSession) -> None:
    """A revoked partition fails the whole commit, because its new owner reads the same records."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    read = read_group(spark, config(kafka), [topic], group)
    try:
        with polling(kafka, group, topic) as other:
            wait_until(lambda: len(other.membership().owned) == 1, "one partition")
            (_, lost) = next(iter(other.membership().owned))
            with pytest.raises(FencedError, match=rf"lost {topic}\[{lost}\] during the read: nothing was committed"):
                read.commit()
        assert committed(kafka, group, topic, 2) == [None, None]
    finally:
        read.close()


def test_second_reader_of_a_pipeline_fences_the_first(kafka: Broker, spark: SparkSession) -> None:
    """If a driver is started twice, the newer reader reads and commits, and the older one is fenced."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    first = read_group(spark, config(kafka), [topic], group)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == numbers(10)
        with pytest.raises(FencedError, match="nothing was committed"):
            first.commit()
        assert committed(kafka, group, topic, 2) == [None, None]
    assert committed(kafka, group, topic, 2) == [5, 5]
    first.close()


def test_read_group_without_a_free_partition_raises_with_the_reason(kafka: Broker, spark: SparkSession) -> None:
    """A reader that gets no partition until its timeout raises an error with the reason."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    with polling(kafka, group, topic) as other:
        wait_until(lambda: len(other.membership().owned) == 1, "one partition")
        # A busy machine needs seconds for the join.
        with pytest.raises(TransportError, match="after 15 s: it is STABLE and waits for partitions: the coordinator"):
            read_group(spark, config(kafka), [topic], group, timeout_s=15)
    assert members(kafka, group) == 0


def test_garbage_collected_read_leaves_the_group(kafka: Broker, spark: SparkSession) -> None:
    """A read that is garbage collected leaves the group; its rows can still be read."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    frame = read_group(spark, config(kafka), [topic], group).dataframe
    gc.collect()
    wait_until(lambda: members(kafka, group) == 0, "the leave", SOONER_THAN_A_SESSION_S)
    assert frame.count() == 4


def test_failed_read_group_call_leaves_the_group(kafka: Broker, spark: SparkSession) -> None:
    """An error in the call itself leaves no member in the group."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    with pytest.raises(ConfigurationError):
        read_group(spark, config(kafka, auto_offset_reset="error"), [topic], group)
    assert members(kafka, group) == 0


# ---- faults and bad input ----


def test_offsets_deleted_after_the_call_fail_the_action_by_name(kafka: Broker, spark: SparkSession) -> None:
    """A range that is no longer in the log fails the action, with partition and offsets."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    read = read_group(spark, config(kafka), [topic], group)
    _delete_records(kafka, topic, 5)
    with pytest.raises(
        PySparkException, match=rf"{topic}\[0\] from offset 0 to before 10 \(read up to 0\).*not in the log"
    ):
        _in_block(read)
    assert committed(kafka, group, topic) == [None]


def test_topic_deleted_after_the_call_fails_the_action_by_name(kafka: Broker, spark: SparkSession) -> None:
    """A deleted topic fails the action with the reason, long before its timeout."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    read = read_group(spark, config(kafka), [topic], group, timeout_s=1000)
    delete_topic(kafka.bootstrap_servers, topic)
    with pytest.raises(PySparkException, match=rf"{topic}\[0\] from offset 0 to before 10 .*deleted during the read"):
        _in_block(read)


def _in_block(read: GroupRead) -> None:
    with read as frame:
        frame.count()


def test_tasks_need_no_right_to_a_group(kafka_broker: BrokerFactory, spark: SparkSession) -> None:
    """The tasks' group id is only a name for librdkafka, so tasks need READ on the topic and no right to a group."""
    kafka = kafka_broker(properties=AUTHORIZER)
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    forbid(kafka.bootstrap_servers, ResourceType.GROUP, f"{group}-reader-task", AclOperation.ALL)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == numbers(10)
    assert committed(kafka, group, topic, 2) == [5, 5]


def test_read_group_without_the_right_to_its_group_raises_group_error(
    kafka_broker: BrokerFactory, spark: SparkSession
) -> None:
    """If the coordinator refuses access to the group, the call raises `GroupError`."""
    kafka = kafka_broker(properties=AUTHORIZER)
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    forbid(kafka.bootstrap_servers, ResourceType.GROUP, group, AclOperation.READ)

    def is_refused() -> bool:
        # The broker applies the rule after a moment.
        try:
            read_group(spark, config(kafka), [topic], group).close()
        except GroupError as refused:
            return re.search(f"the reader of group '{group}' is not authorized: .*authori", str(refused)) is not None
        return False

    wait_until(is_refused, "a refusal")


@pytest.mark.parametrize(
    ("keys", "arguments", "pattern"),
    [
        ({}, {"columns": ("value", "size")}, "columns=.*key, value, topic"),
        ({}, {"columns": "value"}, "columns='value'"),
        ({}, {"tasks": 0}, "tasks=0"),
        ({}, {"timeout_s": 0}, "timeout_s=0"),
        ({}, {"until": "tomorrow"}, "until='tomorrow'"),
        ({"group_instance_id": "a"}, {}, "group.instance.id='a'.*<pipeline>-reader"),
        ({"enable_auto_commit": True}, {}, "enable.auto.commit=True.*commit()"),
        ({"group_id": "other"}, {}, "group.id='other'"),
        ({"isolation_level": "nearly"}, {}, "isolation.level='nearly'"),
    ],
)
def test_read_group_refuses_invalid_arguments_and_keys_by_name(
    kafka: Broker, spark: SparkSession, keys: dict[str, object], arguments: dict[str, object], pattern: str
) -> None:
    """Before anything is opened, the error names the parameter or key, its value and the remedy."""
    with pytest.raises(ConfigurationError, match=pattern):
        read_group(spark, config(kafka, **keys), ["t"], "g", **arguments)  # type: ignore[arg-type]


def test_unknown_topic_is_named_without_waiting_for_the_timeout(kafka: Broker, spark: SparkSession) -> None:
    """The call names an unknown topic at once and does not wait for its timeout."""
    topic, group = unique("topic"), unique("group")
    with pytest.raises(ConfigurationError, match=f"topics='{topic}'.*create the topic"):
        read_group(spark, config(kafka), [topic], group)
