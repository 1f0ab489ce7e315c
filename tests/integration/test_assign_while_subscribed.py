"""`assign` beside a subscription: how confluent-kafka handles it, and what replaces it in this package."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Either consumer: the calls are the same.
AnyConsumer = Any

PROTOCOLS = {
    "consumer": {"group.protocol": "consumer"},
    "eager": {"group.protocol": "classic"},
    "cooperative": {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
}
STATE = -172


@pytest.fixture
def topic(kafka: Broker) -> str:
    """One partition with 40 records."""
    name = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    produce(kafka.bootstrap_servers, name, 40)
    return name


def made(kind: type[AnyConsumer], kafka: Broker, protocol: str) -> AnyConsumer:
    """A consumer of its own new group."""
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": unique("group"),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    return kind({**config, **PROTOCOLS[protocol]})


def offsets(consumer: AnyConsumer, count: int) -> list[int]:
    """The offsets of the next records."""
    found: list[int] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            found.append(message.offset())

    wait_until(lambda: len(found) == count, f"{count} records", between=poll, seen=lambda: found)
    return found


def code_of_assign(consumer: AnyConsumer, topic: str) -> int | None:
    """Return the error code that `assign` raises, or None if it succeeds."""
    try:
        consumer.assign([Partition(topic, 0, 30)])
    except KafkaException as refused:
        return refused.args[0].code()
    return None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_assign_while_subscribed_is_refused_under_both_protocols(kafka: Broker, topic: str, protocol: str) -> None:
    """`assign` raises an error while a subscription exists, before and after the join, under both protocols.

    confluent-kafka refuses it under one of them. In a classic group it accepts the assignment, which holds until the
    next rebalance; with a cooperative strategy, that rebalance fails with "already part of the current assignment".
    """
    with (
        closing(made(Consumer, kafka, protocol)) as ours,
        closing(made(confluent_kafka.Consumer, kafka, protocol)) as raw,
    ):
        codes = []
        for consumer in (ours, raw):
            consumer.subscribe([topic])
            codes.append(code_of_assign(consumer, topic))
        assert codes == [STATE, STATE if protocol == "consumer" else None]
        assert offsets(ours, 2) == [0, 1]
        with pytest.raises(KafkaException, match=r"seek\(\)"):
            ours.assign([Partition(topic, 0, 30)])
        with pytest.raises(KafkaException, match="Failed to remove assignment"):
            ours.unassign()
        assert offsets(ours, 38) == list(range(2, 40))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_seek_and_on_assign_offset_replace_assign_with_both_clients(kafka: Broker, topic: str, protocol: str) -> None:
    """`seek` after the assignment and an offset in on_assign start elsewhere with both clients."""
    for kind in (confluent_kafka.Consumer, Consumer):
        with closing(made(kind, kafka, protocol)) as consumer:
            consumer.subscribe([topic])
            assert offsets(consumer, 1) == [0]
            consumer.seek(Partition(topic, 0, 30))
            assert offsets(consumer, 10) == list(range(30, 40))
        with closing(made(kind, kafka, protocol)) as consumer:

            def take(given: AnyConsumer, partitions: list[Partition]) -> None:
                for one in partitions:
                    one.offset = 30
                (given.assign if protocol == "eager" else given.incremental_assign)(partitions)

            consumer.subscribe([topic], on_assign=take)
            assert offsets(consumer, 10) == list(range(30, 40))
