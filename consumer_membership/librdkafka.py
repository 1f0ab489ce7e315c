"""librdkafka's own consumer, whatever stands in its place in `confluent_kafka`.

Tracers put a subclass of theirs there, in `confluent_kafka` or in `cimpl`, and `install` puts this package's. A handle
of such a class would be a second consumer to them; so all handles here are of the C type itself.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka.cimpl import Consumer as LibrdkafkaConsumer
else:
    from confluent_kafka import cimpl

    LibrdkafkaConsumer = cimpl.Consumer.__mro__[-2]

__all__ = ["LibrdkafkaConsumer"]
