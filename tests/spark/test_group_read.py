"""`read_group` on a real broker: which rows there are, and what the group has committed afterwards."""

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
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from consumer_membership.devbroker import Broker
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow]

MOMENT_MS = 1_700_000_000_123
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def committed(kafka: Broker, group: str, topic: str, partitions: int = 1) -> list[int | None]:
    """What the group has committed of each partition, as confluent-kafka is told."""
    consumer = ConfluentConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], 20)
    finally:
        consumer.close()
    return [each.offset if each.offset >= 0 else None for each in found]


def stable_end(kafka: Broker, topic: str) -> int:
    """Where partition 0 ends for who reads committed records only, as confluent-kafka is told."""
    consumer = ConfluentConsumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "none"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), 20)[1]
    finally:
        consumer.close()


def members(kafka: Broker, group: str) -> int:
    """How many members the group has."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return len(admin.describe_consumer_groups([group], request_timeout=20)[group].result().members)


def values(frame: DataFrame) -> list[bytes]:
    """The values of all rows, in order."""
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def numbers(count: int, first: int = 0) -> list[bytes]:
    """What `produce(..., count)` writes, in order."""
    return sorted(str(number).encode() for number in range(first, first + count))


def config(kafka: Broker, **keys: object) -> dict[str, object]:
    """The configuration that a caller gives."""
    return {"bootstrap.servers": kafka.bootstrap_servers, **{key.replace("_", "."): keys[key] for key in keys}}


@contextmanager
def polling(kafka: Broker, group: str, topic: str) -> Iterator[Consumer]:
    """Another member of the group, which polls and commits nothing."""
    consumer = Consumer(config(kafka, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest"))
    with ConsumerThread(consumer, [topic]):
        yield consumer


# ---- which rows ----


def test_row_has_every_column_of_its_record(kafka: Broker, spark: SparkSession) -> None:
    """Key, value, place, time and headers; null where the record has none."""
    # Kept for ever: the records are of 2023, and the broker's retention deletes such within a minute.
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2, {"retention.ms": "-1"}), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(topic, b"a", b"k", partition=0, timestamp=MOMENT_MS, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic, None, b"gone", partition=1, timestamp=MOMENT_MS)
    assert producer.flush(20) == 0
    with read_group(spark, config(kafka), [topic], group) as frame:
        rows = sorted(frame.collect(), key=lambda row: row.partition)
    assert [(row.key, row.value, row.topic, row.partition, row.offset) for row in rows] == [
        (bytearray(b"k"), bytearray(b"a"), topic, 0, 0),
        (bytearray(b"gone"), None, topic, 1, 0),
    ]
    assert [row.timestamp.astimezone(UTC) for row in rows] == [MOMENT, MOMENT]
    assert [[tuple(header) for header in row.headers] for row in rows] == [[("h", bytearray(b"1")), ("h", None)], []]


def test_second_read_has_only_what_is_new(kafka: Broker, spark: SparkSession) -> None:
    """The block's end commits every partition's end, and the next read begins there."""
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
    """The ranges are settled by the call: what arrives later belongs to the next read."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    with read_group(spark, config(kafka), [topic], group) as frame:
        first = values(frame)
        produce(kafka.bootstrap_servers, topic, 20)
        assert values(frame) == first == numbers(20)
        assert frame.count() == 20
    assert committed(kafka, group, topic, 2) == [10, 10]


def test_only_the_columns_asked_for_are_there(kafka: Broker, spark: SparkSession) -> None:
    """In the order in which they were asked for."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 1)
    with read_group(spark, config(kafka), [topic], unique("group"), columns=("offset", "value")) as frame:
        assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"0"))]
        assert frame.columns == ["offset", "value"]


def test_big_partition_is_read_by_several_tasks(kafka: Broker, spark: SparkSession) -> None:
    """Each record is read once, at the cuts too."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    count = 3 * LEAST_OFFSETS + 7
    produce(kafka.bootstrap_servers, topic, count)
    with read_group(spark, config(kafka), [topic], unique("group"), columns=("offset",), tasks=3) as frame:
        assert frame.selectExpr("spark_partition_id()").distinct().count() == 3
        assert sorted(row.offset for row in frame.collect()) == list(range(count))


def test_until_ends_the_read_at_given_offsets(kafka: Broker, spark: SparkSession) -> None:
    """A partition that is not named is neither read nor committed."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 20)
    with read_group(spark, config(kafka), [topic], group, until={(topic, 1): 4}) as frame:
        assert sorted((row.partition, row.offset) for row in frame.collect()) == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert committed(kafka, group, topic, 2) == [None, 4]


def test_group_of_the_classic_protocol_is_read(kafka: Broker, spark: SparkSession) -> None:
    """The member speaks what the configuration asks for."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    with read_group(spark, config(kafka, group_protocol="classic"), [topic], group) as frame:
        assert values(frame) == numbers(10)
    assert committed(kafka, group, topic, 2) == [5, 5]


def test_callbacks_stay_with_the_driver(kafka: Broker, spark: SparkSession) -> None:
    """What cannot be pickled is no obstacle: the tasks have no use for it."""
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


def test_empty_topic_has_no_rows(kafka: Broker, spark: SparkSession) -> None:
    """No records are no error; that the group was here is committed."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert frame.count() == 0
        assert "value" in frame.columns
    assert committed(kafka, group, topic, 2) == [0, 0]


def test_transactions_end_the_read_before_the_first_open_one(kafka: Broker, spark: SparkSession) -> None:
    """Markers and aborted records take offsets and give no rows; what is open is read when it is committed."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(20)

    def begin(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(20) == 0

    begin(b"committed")
    producer.commit_transaction(20)
    begin(b"aborted")
    producer.abort_transaction(20)
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
    producer.commit_transaction(20)
    wait_until(lambda: stable_end(kafka, topic) == 6, "the last stable offset")
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == [b"open"]


def test_what_was_committed_within_an_open_transaction_is_not_read_again(kafka: Broker, spark: SparkSession) -> None:
    """A group that read uncommitted records before may be further than the first open transaction; that is no reset."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(20) == 0
    with read_group(spark, config(kafka, isolation_level="read_uncommitted"), [topic], group) as frame:
        assert frame.count() == 4
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert frame.count() == 0
    assert committed(kafka, group, topic) == [4]
    producer.abort_transaction(20)


def test_range_that_ends_with_a_marker_is_read_to_its_end(kafka: Broker, spark: SparkSession) -> None:
    """The last offset of a range may have no record although the log goes on behind it."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")})
    producer.init_transactions(20)
    for value in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.commit_transaction(20)
    with read_group(spark, config(kafka), [topic], group, until={(topic, 0): 2}) as frame:
        assert values(frame) == [b"first"]
    assert committed(kafka, group, topic) == [2]


def test_compacted_partition_is_read_to_its_end(kafka_broker: BrokerFactory, spark: SparkSession) -> None:
    """Offsets without records, at the start, between and before the end, are passed over."""
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


def test_latest_reads_from_the_first_read_on(kafka: Broker, spark: SparkSession) -> None:
    """The first read of a group has nothing, but keeps the place from which the next one goes on."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    latest = config(kafka, auto_offset_reset="latest")
    with read_group(spark, latest, [topic], group) as frame:
        assert frame.count() == 0
    produce(kafka.bootstrap_servers, topic, 3)
    with read_group(spark, latest, [topic], group) as frame:
        assert values(frame) == numbers(3)


def test_offsets_out_of_the_log_are_an_error_if_that_is_asked_for(kafka: Broker, spark: SparkSession) -> None:
    """`auto.offset.reset=error`: neither nothing committed nor a committed offset that aged out is passed over."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 5)
    strict = config(kafka, auto_offset_reset="error")
    with pytest.raises(ConfigurationError, match=rf"{topic}\[0\]: nothing is committed and the log has 0 to before 5"):
        read_group(spark, strict, [topic], group)
    with read_group(spark, config(kafka), [topic], group, until={(topic, 0): 1}) as frame:
        assert frame.count() == 1
    _delete_records(kafka, topic, 3)
    with pytest.raises(ConfigurationError, match=r"offset 1 is committed and the log has 3 to before 5"):
        read_group(spark, strict, [topic], group)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert sorted(row.offset for row in frame.collect()) == [3, 4]


def _delete_records(kafka: Broker, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(topic, 0, before)], request_timeout=20).values():
        done.result()


# ---- what is committed ----


def test_failed_action_commits_nothing(kafka: Broker, spark: SparkSession) -> None:
    """An exception leaves the group where it was, and the next read has the same rows."""
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


def test_commit_is_the_callers_without_a_block(kafka: Broker, spark: SparkSession) -> None:
    """Nothing is committed before `commit()`, and nothing by `close()`."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    read = read_group(spark, config(kafka), [topic], group)
    assert [(each.place, each.first, each.end) for each in read.ranges] == [((topic, 0), 0, 4)]
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


def test_worker_that_is_killed_is_replaced_and_the_rows_are_the_same(kafka: Broker, spark: SparkSession) -> None:
    """A later attempt of a task reads its ranges anew; none of the rows is missing or there twice."""
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


def test_other_members_keep_their_partitions(kafka: Broker, spark: SparkSession) -> None:
    """The rows are those of the partitions that the reader owns, and only these are committed."""
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


def test_partition_that_was_revoked_meanwhile_fails_the_commit(kafka: Broker, spark: SparkSession) -> None:
    """Its new owner reads the same records; nothing is committed, not of the partitions either that are still owned."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    read = read_group(spark, config(kafka), [topic], group)
    try:
        with polling(kafka, group, topic) as other:
            wait_until(lambda: len(other.membership().owned) == 1, "one partition")
            (_, lost) = next(iter(other.membership().owned))
            with pytest.raises(FencedError, match=rf"lost {topic}\[{lost}\] while it was read: nothing was committed"):
                read.commit()
        assert committed(kafka, group, topic, 2) == [None, None]
    finally:
        read.close()


def test_second_reader_of_a_pipeline_takes_the_firsts_place(kafka: Broker, spark: SparkSession) -> None:
    """A driver that was started twice does not commit twice: the newer one reads, the older one is fenced."""
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


def test_group_without_a_free_partition_says_what_it_waits_for(kafka: Broker, spark: SparkSession) -> None:
    """A reader that gets nothing does not wait for ever, nor read nothing in silence."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    with polling(kafka, group, topic) as other:
        wait_until(lambda: len(other.membership().owned) == 1, "one partition")
        with pytest.raises(TransportError, match="after 5 s: it is STABLE and waits for partitions: the coordinator"):
            read_group(spark, config(kafka), [topic], group, timeout_s=5)
    assert members(kafka, group) == 0


def test_read_that_is_forgotten_leaves_the_group(kafka: Broker, spark: SparkSession) -> None:
    """Its rows can still be read; what it owned is free for others."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 4)
    frame = read_group(spark, config(kafka), [topic], group).dataframe
    gc.collect()
    assert members(kafka, group) == 0
    assert frame.count() == 4


def test_group_is_left_when_the_plan_fails(kafka: Broker, spark: SparkSession) -> None:
    """An error in the call itself leaves no member behind."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    with pytest.raises(ConfigurationError):
        read_group(spark, config(kafka, auto_offset_reset="error"), [topic], group)
    assert members(kafka, group) == 0


# ---- faults and bad input ----


def test_offsets_that_aged_out_meanwhile_are_named(kafka: Broker, spark: SparkSession) -> None:
    """A range that is not in the log any more fails the action, with partition and offsets."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    read = read_group(spark, config(kafka), [topic], group)
    _delete_records(kafka, topic, 5)
    with pytest.raises(
        PySparkException, match=rf"{topic}\[0\] from offset 0 to before 10 \(read up to 0\).*not in the log"
    ):
        _in_block(read)
    assert committed(kafka, group, topic) == [None]


def test_topic_that_was_deleted_meanwhile_is_named(kafka: Broker, spark: SparkSession) -> None:
    """The action fails and says so, long before it would give up waiting."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    read = read_group(spark, config(kafka), [topic], group, timeout_s=1000)
    delete_topic(kafka.bootstrap_servers, topic)
    with pytest.raises(PySparkException, match=rf"{topic}\[0\] from offset 0 to before 10 .*deleted meanwhile"):
        _in_block(read)


def _in_block(read: GroupRead) -> None:
    with read as frame:
        frame.count()


def test_tasks_need_the_right_to_read_the_topic_only(kafka_broker: BrokerFactory, spark: SparkSession) -> None:
    """What a task calls its group is a name for librdkafka: no right on it is needed."""
    kafka = kafka_broker(properties=AUTHORIZER)
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    produce(kafka.bootstrap_servers, topic, 10)
    forbid(kafka.bootstrap_servers, ResourceType.GROUP, f"{group}-reader-task", AclOperation.ALL)
    with read_group(spark, config(kafka), [topic], group) as frame:
        assert values(frame) == numbers(10)
    assert committed(kafka, group, topic, 2) == [5, 5]


def test_reader_without_the_right_to_its_group_is_told(kafka_broker: BrokerFactory, spark: SparkSession) -> None:
    """The coordinator's refusal is an error of the call."""
    kafka = kafka_broker(properties=AUTHORIZER)
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic")), unique("group")
    forbid(kafka.bootstrap_servers, ResourceType.GROUP, group, AclOperation.READ)

    def is_refused() -> bool:
        # The broker does not keep to the rule at once.
        try:
            read_group(spark, config(kafka), [topic], group).close()
        except GroupError as refused:
            return re.search(f"the reader of group '{group}' lacks a right: .*authori", str(refused)) is not None
        return False

    wait_until(is_refused, "a refusal")


@pytest.mark.parametrize(
    ("keys", "arguments", "said"),
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
def test_what_cannot_work_is_refused_by_name(
    kafka: Broker, spark: SparkSession, keys: dict[str, object], arguments: dict[str, object], said: str
) -> None:
    """Before anything is opened: the parameter or key, its value, what to do."""
    with pytest.raises(ConfigurationError, match=said):
        read_group(spark, config(kafka, **keys), ["t"], "g", **arguments)  # type: ignore[arg-type]


def test_topic_that_does_not_exist_is_named(kafka: Broker, spark: SparkSession) -> None:
    """Not waited for until the time is over."""
    topic, group = unique("topic"), unique("group")
    with pytest.raises(ConfigurationError, match=f"topics='{topic}'.*create it"):
        read_group(spark, config(kafka), [topic], group)
