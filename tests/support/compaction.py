"""Compacted partitions, from which the broker's log cleaner has removed records, and their remaining offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests.support.kafka import create_topic, unique

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Properties of a broker whose cleaner runs more often than every 15 s, the default.
EAGER_CLEANER = {"log.cleaner.backoff.ms": "100"}
#: Configuration of a topic: a segment for each second of the record times. All segments but the last one are cleaned.
_CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "100",
}
_BETWEEN_SEGMENTS_MS = 2000
_TIMEOUT_S = 20.0


def create_compacted_topic(bootstrap_servers: str, name: str, partitions: int = 1) -> str:
    """Create a topic that is compacted as soon as possible, and return its name."""
    return create_topic(bootstrap_servers, name, partitions, _CLEANED)


def produce_segments(
    bootstrap_servers: str, topic: str, partition: int, segments: Sequence[Sequence[str]], first_ms: int
) -> int:
    """Write records with these keys, each inner list to its own segment; the last segment is never cleaned.

    Returns:
        The record time for the next segment. The first segment has the time `first_ms`.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number, keys in enumerate(segments):
        for key in keys:
            time = first_ms + number * _BETWEEN_SEGMENTS_MS
            producer.produce(topic, b"of " + key.encode(), key.encode(), partition, timestamp=time)
        # Flushed, because a batch is in one segment.
        assert producer.flush(_TIMEOUT_S) == 0
    return first_ms + len(segments) * _BETWEEN_SEGMENTS_MS


def offsets_left(bootstrap_servers: str, topic: str, partition: int = 0) -> list[int]:
    """Return the offsets that still have records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "of-nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while (message := consumer.poll(_TIMEOUT_S)) is not None:
            error = message.error()
            if error is None:
                found.append(message.offset() or 0)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"the end of {topic}[{partition}] was not reached")


def offset_since(bootstrap_servers: str, topic: str, partition: int, time_ms: int) -> int:
    """Return the offset of the first record or transaction marker since this time; consumers never receive markers."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "of-nobody"})
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, time_ms)], _TIMEOUT_S)
    finally:
        consumer.close()
    return int(found.offset)


def produce_transactions(bootstrap_servers: str, topic: str, partition: int, key: str, times_ms: Sequence[int]) -> None:
    """Write a record with this key in a transaction at each of these times; the markers have the current time.

    One producer writes all of them. The cleaner keeps the empty batch of a producer's last transaction while the broker
    remembers the producer.
    """
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": unique("transaction")})
    producer.init_transactions(_TIMEOUT_S)
    for time_ms in times_ms:
        producer.begin_transaction()
        producer.produce(topic, b"of " + key.encode(), key.encode(), partition, timestamp=time_ms)
        producer.commit_transaction(_TIMEOUT_S)
