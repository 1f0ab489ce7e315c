"""Positions, pause, resume and seek over a buffer whose records the handle has already fetched."""

from __future__ import annotations

import pytest
from confluent_kafka import OFFSET_INVALID
from confluent_kafka import TopicPartition as PartitionOffset

from tests.clients.application import drain, record
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow


def position(consumer: object, topic: str, partition: int = 0) -> int:
    """Return the consumer's position in this partition."""
    return consumer.position([PartitionOffset(topic, partition)])[0].offset  # type: ignore[attr-defined]


def test_position_is_the_first_undelivered_record(consumers: ConsumerFactory, topic: str) -> None:
    """C06: librdkafka's own position would be after the whole batch."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 5)])
    assert position(consumer, topic) == OFFSET_INVALID
    assert [record(consumer).offset() for _ in range(3)] == [5, 6, 7]
    assert position(consumer, topic) == 8
    drain(consumer, RECORDS - 8)
    assert position(consumer, topic) == RECORDS


@pytest.mark.parametrize("start", [0, -2], ids=["number", "beginning"])
def test_position_of_a_partition_without_a_delivered_record_is_invalid(
    consumers: ConsumerFactory, topic: str, start: int
) -> None:
    """The position is -1001 as in confluent-kafka, although the partition's records wait in the buffer."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, partition, start) for partition in (0, 1)])
    first = record(consumer)
    other = 1 - (first.partition() or 0)
    session = consumer._session
    assert session is not None
    wait_until(
        lambda: len(session.buffer.ready) == 2 * RECORDS - 1,
        "all records except one in the buffer",
        between=lambda: session.fetcher.fill(0.1),
    )
    assert position(consumer, topic, first.partition() or 0) == 1
    assert position(consumer, topic, other) == OFFSET_INVALID


def test_resume_returns_the_buffered_records_of_a_paused_partition_first(
    consumers: ConsumerFactory, topic: str
) -> None:
    """Dropping them would lose them, because librdkafka's handle has already fetched them."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0), PartitionOffset(topic, 1, 0)])
    delivered = [record(consumer)]
    consumer.pause([PartitionOffset(topic, 0)])
    before = sum(message.partition() == 0 for message in delivered)
    paused = drain(consumer, RECORDS - (len(delivered) - before))
    assert {partition for partition, _ in paused} == {1}
    assert position(consumer, topic) == (before or OFFSET_INVALID)
    consumer.resume([PartitionOffset(topic, 0)])
    assert drain(consumer, RECORDS - before) == [(0, value) for value in range(before, RECORDS)]


def test_resume_delivers_at_once_and_keeps_the_position(consumers: ConsumerFactory, topic: str) -> None:
    """On its own, librdkafka takes up to 0.6 s to fetch a resumed partition."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    drained = len(consumer.consume(10, PATIENCE_S))
    consumer.pause([PartitionOffset(topic, 0)])
    assert consumer.consume(1, 0.1) == []
    consumer.resume([PartitionOffset(topic, 0)])
    assert position(consumer, topic) == drained
    assert record(consumer).offset() == drained
    assert position(consumer, topic) == drained + 1


def test_seek_drops_fetched_records_and_returns_the_sought_one(consumers: ConsumerFactory, topic: str) -> None:
    """C06: the next record is the sought one, also backwards, and the position is unknown until it arrives."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    record(consumer)
    consumer.seek(PartitionOffset(topic, 0, 30))
    assert position(consumer, topic) == OFFSET_INVALID
    assert record(consumer).offset() == 30
    consumer.seek(PartitionOffset(topic, 0, 2))
    assert drain(consumer, RECORDS - 2) == [(0, value) for value in range(2, RECORDS)]


def test_seek_of_a_paused_partition_applies_on_resume(consumers: ConsumerFactory, topic: str) -> None:
    """The buffered records of the paused partition are not delivered any more."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    record(consumer)
    consumer.pause([PartitionOffset(topic, 0)])
    consumer.seek(PartitionOffset(topic, 0, 45))
    assert drain(consumer) == []
    consumer.resume([PartitionOffset(topic, 0)])
    assert drain(consumer, RECORDS - 45) == [(0, value) for value in range(45, RECORDS)]


def test_commit_after_a_seek_commits_the_position_before_the_seek(consumers: ConsumerFactory, topic: str) -> None:
    """As in librdkafka, a seek alone does not change the offset that a commit sends."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    record(consumer)
    record(consumer)
    consumer.seek(PartitionOffset(topic, 0, 30))
    assert [(p.partition, p.offset) for p in consumer.commit(asynchronous=False) or []] == [(0, 2)]


def test_fetcher_reduces_the_batch_size_for_large_records(consumers: ConsumerFactory, topic: str) -> None:
    """The buffer is bounded by bytes, because it needs memory in addition to librdkafka's queue."""
    from consumer_membership.runtime.application import fetcher  # noqa: PLC0415

    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    inner = consumer._session.fetcher  # type: ignore[union-attr]
    record(consumer)
    assert inner._batch == fetcher.BATCH_RECORDS
    inner.fetch = lambda limit, _: [b"x" * (fetcher.BATCH_BYTES // 3)] * limit  # type: ignore[method-assign, list-item]  # only sizes matter
    inner.fill(0)
    assert inner._batch == 3
    consumer._session.buffer.ready.clear()  # type: ignore[union-attr]


def test_assign_replaces_and_incremental_calls_add_and_remove(consumers: ConsumerFactory, topic: str) -> None:
    """Without a group, `assign` replaces the assignment and drops fetched records; incremental calls add and remove."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 48)])
    record(consumer)
    consumer.assign([PartitionOffset(topic, 1, 49)])
    assert drain(consumer, 1) == [(1, 49)]
    consumer.incremental_assign([PartitionOffset(topic, 2, 49)])
    assert drain(consumer, 1) == [(2, 49)]
    consumer.incremental_unassign([PartitionOffset(topic, 1)])
    assert [partition.partition for partition in consumer.assignment()] == [2]
    consumer.unassign()
    assert consumer.assignment() == []


def test_incremental_unassign_rejects_duplicates(consumers: ConsumerFactory, topic: str) -> None:
    """Duplicates abort the process inside librdkafka.

    Here they raise `_INVALID_ARG`, and the assignment does not change.
    """
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    with pytest.raises(Exception, match="Duplicate records \\[0\\]") as caught:
        consumer.incremental_unassign([PartitionOffset(topic, 0), PartitionOffset(topic, 0)])
    assert caught.value.args[0].code() == -186
    assert len(consumer.assignment()) == 1


def test_consume_returns_the_end_of_a_partition_as_a_message(consumers: ConsumerFactory, topic: str) -> None:
    """With enable.partition.eof, the event keeps its place among the records and does not change positions."""
    consumer = consumers(enable_partition_eof=True)
    consumer.assign([PartitionOffset(topic, 0, 48)])
    messages = consumer.consume(3, PATIENCE_S)
    codes = [error.code() if (error := message.error()) is not None else None for message in messages]
    assert codes == [None, None, -191]
    assert position(consumer, topic) == RECORDS
