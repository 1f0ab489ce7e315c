"""The committed offsets of a group."""

from __future__ import annotations

from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.waiting import PATIENCE_S

#: `offsets.topic.num.partitions` of the brokers that the tests start: a group's coordinator leads one of these.
SHARDS = 8


def shard(group: str) -> int:
    """Return the partition of the offsets topic that contains a group, by Java's hash of its id."""
    code = 0
    for letter in group:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return abs(code - (1 << 32) if code >= 1 << 31 else code) % SHARDS


def committed(broker: Broker, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Return the committed offset of each partition, requested by a client that is not a member."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        found = reader.committed([Partition(topic, p) for p in range(partitions)], timeout=PATIENCE_S)
    finally:
        reader.close()
    return {p.partition: p.offset for p in found}
