"""Application code for tests: subscribe with recorded callbacks, poll, drain."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import OFFSET_INVALID, Message
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.types import OffsetAndMetadata, TopicPartition
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.waiting import PATIENCE_S

Called = list[tuple[str, list[int]]]

#: How long nothing must come for a drain to be over, once it has what must come.
SILENCE_S = 0.2


def at(topic: str, *partitions: int) -> list[TopicPartition]:
    """Partitions of a topic, as the member identifies them."""
    return [TopicPartition(topic, partition) for partition in partitions]


def offset(value: int) -> OffsetAndMetadata:
    """An offset as it is reported for a record of the mock cluster."""
    return OffsetAndMetadata(offset=value, leader_epoch=0)


def subscribed(
    consumers: ConsumerFactory,
    topic: str,
    calls: Called,
    then: Callable[[str, Consumer], None] | None = None,
    **config: object,
) -> ScriptedConsumer:
    """A consumer that subscribed, polled, and records its callbacks; `then` runs inside each of them."""
    consumer = consumers(**config)

    def note(name: str) -> Callable[[Consumer, list[PartitionOffset]], None]:
        def callback(given: Consumer, partitions: list[PartitionOffset]) -> None:
            assert given is consumer
            assert {partition.offset for partition in partitions} <= {OFFSET_INVALID}
            calls.append((name, [partition.partition for partition in partitions]))
            if then is not None:
                then(name, given)

        return callback

    consumer.subscribe([topic], on_assign=note("assign"), on_revoke=note("revoke"), on_lost=note("lost"))
    assert consumer.poll(0) is None
    return consumer


def record(consumer: Consumer) -> Message:
    """Return the next record."""
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    assert message.error() is None
    return message


def drain(consumer: Consumer, count: int = 0) -> list[tuple[int, int]]:
    """Partition and offset of everything that comes until nothing does for a while.

    Args:
        consumer: A consumer with an assignment.
        count: How many records must come before silence is the end: a new handle's first fetch may take longer.
    """
    messages = [record(consumer) for _ in range(count)]
    while (message := consumer.poll(SILENCE_S)) is not None:
        assert message.error() is None
        messages.append(message)
    return [(message.partition() or 0, message.offset() or 0) for message in messages]


def held(consumer: Consumer) -> list[int]:
    """Return the numbers of the assigned partitions."""
    return [partition.partition for partition in consumer.assignment()]
