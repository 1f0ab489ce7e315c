"""librdkafka's own consumer class, even if another class replaces it in `confluent_kafka`.

Tracers put their subclass there, in `confluent_kafka` or in `cimpl`, and `install` puts this package's. They would
treat a handle of such a class as a second consumer, so all handles here are of the C type itself.

`PartitionOffset` is confluent-kafka's `TopicPartition`; `types.TopicPartition` explains when each is used.
"""

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition as PartitionOffset

if TYPE_CHECKING:
    from confluent_kafka.cimpl import Consumer as LibrdkafkaConsumer
else:
    from confluent_kafka import cimpl

    LibrdkafkaConsumer = cimpl.Consumer.__mro__[-2]

__all__ = ["LibrdkafkaConsumer", "PartitionOffset"]
