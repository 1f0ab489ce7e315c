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

#: A drain ends when no record has arrived for this time.
SILENCE_S = 0.2


def at(topic: str, *partitions: int) -> list[TopicPartition]:
    """Return partitions of a topic as the member identifies them."""
    return [TopicPartition(topic, partition) for partition in partitions]


def offset(value: int) -> OffsetAndMetadata:
    """Return an offset with the leader epoch that the mock cluster's records have."""
    return OffsetAndMetadata(offset=value, leader_epoch=0)


def subscribed(
    consumers: ConsumerFactory,
    topic: str,
    calls: Called,
    then: Callable[[str, Consumer], None] | None = None,
    **config: object,
) -> ScriptedConsumer:
    """Return a consumer that has subscribed and polled, and records its callbacks; `then` runs inside each callback."""
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
    """Return partition and offset of each record until no record has arrived for `SILENCE_S`.

    Args:
        consumer: A consumer with an assignment.
        count: The number of records to wait for without that limit: a new handle's first fetch may take longer.
    """
    messages = [record(consumer) for _ in range(count)]
    while (message := consumer.poll(SILENCE_S)) is not None:
        assert message.error() is None
        messages.append(message)
    return [(message.partition() or 0, message.offset() or 0) for message in messages]


def held(consumer: Consumer) -> list[int]:
    """Return the numbers of the assigned partitions."""
    return [partition.partition for partition in consumer.assignment()]
