"""What a group has committed."""

from __future__ import annotations

from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker


def committed(broker: Broker, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The committed offset of each partition, asked for without being a member."""
    reader = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    try:
        found = reader.committed([Partition(topic, p) for p in range(partitions)], timeout=20)
    finally:
        reader.close()
    return {p.partition: p.offset for p in found}
