"""Converts between this package's partitions and offsets and confluent-kafka's partition type, `PartitionOffset`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID

from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.types import OffsetAndMetadata, TopicPartition

PartitionT = TypeVar("PartitionT", bound=PartitionOffset)


def key_of(given: PartitionOffset) -> TopicPartition:
    """The partition without its offset."""
    return TopicPartition(given.topic, given.partition)


def to_librdkafka(partitions: Iterable[TopicPartition]) -> list[PartitionOffset]:
    """The same partitions for librdkafka, without an offset."""
    return [PartitionOffset(partition.topic, partition.partition) for partition in partitions]


def domain_offset(offset: PartitionOffset) -> OffsetAndMetadata | None:
    """The offset to commit that a front end's TopicPartition contains; None if it has none."""
    if offset.offset < 0:
        return None
    epoch: int | None = offset.leader_epoch
    # With C's terminating zero, as confluent-kafka commits it: that distinguishes an empty text from none, and
    # confluent-kafka reads beyond the end of a text without it.
    text = "" if offset.metadata is None else offset.metadata + "\0"
    return OffsetAndMetadata(offset=offset.offset, leader_epoch=epoch, metadata=text)


def placed(kind: type[PartitionT], partition: TopicPartition, at: OffsetAndMetadata | None) -> PartitionT:
    """The partition with this offset as a front end's TopicPartition; -1001 if there is no offset.

    The C type's constructor accepts no None for metadata and leader epoch, and its attributes are read-only.
    """
    topic, number = partition
    if at is None:
        return kind(topic, number, OFFSET_INVALID)
    # confluent-kafka commits a text with C's terminating zero, also an empty one; without a zero there was no text.
    text = at.metadata.partition("\0")[0] if at.metadata else None
    if at.leader_epoch is None:
        return kind(topic, number, at.offset) if text is None else kind(topic, number, at.offset, text)
    if text is None:
        return kind(topic, number, at.offset, leader_epoch=at.leader_epoch)
    return kind(topic, number, at.offset, metadata=text, leader_epoch=at.leader_epoch)
