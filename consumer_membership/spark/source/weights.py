"""The size of records, for `maxBytesPerTrigger`: brokers report the number of offsets, but not of bytes."""

from __future__ import annotations

from time import monotonic

from confluent_kafka import Message, TopicPartition

from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.spark.range_reader import task_config
from consumer_membership.spark.source.offsets import OffsetsByPartition
from consumer_membership.spark.source.options import SourceOptions

#: The number of records in a sample, its largest number of partitions, its timeout, and the interval of samples.
_RECORDS, _PARTITIONS, _WAIT_S, _WEIGHED_AGAIN_S = 500, 8, 2.0, 30.0


class RecordWeights:
    """Estimates the size of the next records from a sample: uncompressed keys and values."""

    def __init__(self, options: SourceOptions) -> None:
        self._most_bytes = options.max_bytes
        self._config = task_config(options.config, f"{options.group}")
        self._mean = 0.0
        self._weighed_at = 0.0

    def most(self, begin: OffsetsByPartition, ends: OffsetsByPartition) -> int | None:
        """Return how many of these offsets have `maxBytesPerTrigger` bytes; None: no limit."""
        backlog = [(end - begin[partition], partition) for partition, end in ends.items() if end > begin[partition]]
        if self._most_bytes is None or not backlog:
            return None
        if not self._mean or monotonic() - self._weighed_at > _WEIGHED_AGAIN_S:
            largest = sorted(backlog, reverse=True)[:_PARTITIONS]
            self._weigh([TopicPartition(*partition, begin[partition]) for _, partition in largest])
        return max(1, int(self._most_bytes / self._mean)) if self._mean else 1

    def _weigh(self, partitions: list[TopicPartition]) -> None:
        consumer = LibrdkafkaConsumer({**self._config, "enable.partition.eof": False})
        try:
            consumer.assign(partitions)
            found = [each for each in consumer.consume(_RECORDS, _WAIT_S) if each.error() is None]
        finally:
            consumer.close()
        if found:
            self._mean = max(1.0, sum(map(_weight, found)) / len(found))
            self._weighed_at = monotonic()


def _weight(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")
