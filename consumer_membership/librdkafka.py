"""librdkafka's own consumer, whatever stands in its place in `confluent_kafka`.

Tracers put a subclass of theirs there, in `confluent_kafka` or in `cimpl`, and `install` puts this package's. A handle
of such a class would be a second consumer to them; so all handles here are of the C type itself.

`PartitionOffset` is confluent-kafka's `TopicPartition`; `types.TopicPartition` explains which of the two is used
where.
"""

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition as PartitionOffset

if TYPE_CHECKING:
    from confluent_kafka.cimpl import Consumer as LibrdkafkaConsumer
else:
    from confluent_kafka import cimpl

    LibrdkafkaConsumer = cimpl.Consumer.__mro__[-2]

__all__ = ["LibrdkafkaConsumer", "PartitionOffset"]
