"""The records of a cluster inside the test process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias
from zlib import crc32

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, Message

from consumer_membership.types import TopicPartition

Headers: TypeAlias = list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeRecord:
    """A record without its partition and offset; `timestamp_ms` is in milliseconds since 1970."""

    value: bytes | None
    key: bytes | None
    headers: Headers | None
    timestamp_ms: int


class Log:
    """The partitions and their records. An entry of None is a transaction marker, which no consumer receives."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, list[FakeRecord | None]] = {}
        self._next: dict[str, int] = {}

    def create(self, topic: str, partitions: int) -> None:
        """Create the topic, or add partitions to it."""
        for number in range(partitions):
            self._partitions.setdefault(TopicPartition(topic, number), [])

    def delete(self, topic: str) -> None:
        """Delete the topic with its records."""
        for partition in self.partitions_of(topic):
            del self._partitions[partition]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic in order; empty if the topic does not exist."""
        return sorted(partition for partition in self._partitions if partition.topic == topic)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._partitions

    def choose(self, topic: str, key: bytes | None) -> TopicPartition:
        """Return a partition: by the CRC-32 of the key, as librdkafka does; without a key, each partition in turn."""
        count = len(self.partitions_of(topic))
        if key:
            return TopicPartition(topic, crc32(key) % count)
        turn = self._next.get(topic, 0)
        self._next[topic] = turn + 1
        return TopicPartition(topic, turn % count)

    def append(self, partition: TopicPartition, record: FakeRecord | None) -> int:
        """Append a record, or a marker (None), and return its offset."""
        records = self._partitions.get(partition)
        if records is None:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION, f"{partition.topic} has no such partition"))
        records.append(record)
        return len(records) - 1

    def end(self, partition: TopicPartition) -> int:
        """Return the offset of the next record; -1 if the partition does not exist."""
        return len(self._partitions[partition]) if partition in self._partitions else -1

    def read(self, partition: TopicPartition, offset: int, limit: int) -> tuple[list[Message], int]:
        """Return up to `limit` records from this offset on, and the offset after the last read entry."""
        records = self._partitions.get(partition, [])
        found: list[Message] = []
        while offset < len(records) and len(found) < limit:
            record = records[offset]
            if record is not None:
                found.append(message_of(partition, offset, record))
            offset += 1
        return found, offset

    def has_record(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether there is a record at this offset or after it."""
        return any(record is not None for record in self._partitions.get(partition, [])[max(offset, 0) :])

    def at_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the offset of the first record at or after this timestamp; None: no such record exists."""
        for offset, record in enumerate(self._partitions.get(partition, [])):
            if record is not None and record.timestamp_ms >= timestamp_ms:
                return offset
        return None

    def messages(self, topics: Iterable[TopicPartition]) -> list[Message]:
        """Return all records of these partitions, one partition after the other."""
        return [message for partition in topics for message in self.read(partition, 0, self.end(partition))[0]]


def message_of(partition: TopicPartition, offset: int, record: FakeRecord) -> Message:
    """Return a record as the message that a consumer receives."""
    return Message(
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        key=record.key,
        value=record.value,
        headers=record.headers,
        timestamp=(TIMESTAMP_CREATE_TIME, record.timestamp_ms),
        leader_epoch=0,
    )


def error_message(partition: TopicPartition, offset: int, error: KafkaError) -> Message:
    """Return a partition error as the message that a consumer receives."""
    return Message(topic=partition.topic, partition=partition.partition, offset=offset, error=error)
