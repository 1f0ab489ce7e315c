"""Commits that cannot succeed, with both clients: which error they raise, and how soon.

Each client gets the same arguments; the exception's fields that programs read are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.integration.polls import AnyConsumer
from tests.support.kafka import create_topic, produce, unique
from tests.support.ports import unused_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CLIENTS: tuple[Callable[[dict[str, object]], AnyConsumer], ...] = (confluent_kafka.Consumer, Consumer)
Committed: TypeAlias = "tuple[KafkaError | None, list[Partition]]"


def refusal(consumer: AnyConsumer, *partitions: Partition) -> KafkaError:
    """The exception of a synchronous commit of these offsets."""
    with pytest.raises(KafkaException) as caught:
        consumer.commit(offsets=list(partitions), asynchronous=False)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("make", CLIENTS, ids=["confluent-kafka", "ours"])
def test_commit_of_a_missing_topic_or_partition_fails_before_the_timeout(
    kafka: Broker, make: Callable[[dict[str, object]], AnyConsumer], protocol: str
) -> None:
    """Commits of a missing topic or partition fail with UNKNOWN_TOPIC_OR_PART long before the timeout.

    Both the exception and on_commit have the code.
    """
    outcomes: list[Committed] = []
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 1)
    produce(kafka.bootstrap_servers, topic, 1)
    consumer = make(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": unique("group"),
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "on_commit": lambda error, partitions: outcomes.append((error, partitions)),
            "enable.auto.commit": False,
            # A commit that waits for this timeout fails the test after five minutes.
            "socket.timeout.ms": 300_000,
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1), "the record")
    for partition in (Partition("nowhere", 0, 5), Partition(topic, 99, 5)):
        assert refusal(consumer, partition).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.commit(offsets=[Partition("nowhere", 0, 5)], asynchronous=True)
    wait_until(lambda: outcomes, "the commit's outcome", between=lambda: consumer.poll(0.1))
    ((error, partitions),) = outcomes
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert [one.error.code() for one in partitions if one.error is not None] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    consumer.close()


@pytest.mark.parametrize("make", CLIENTS, ids=["confluent-kafka", "ours"])
def test_commit_to_an_unreachable_broker_raises_wait_coord_after_the_session(
    make: Callable[[dict[str, object]], AnyConsumer],
) -> None:
    """The commit raises _WAIT_COORD after the session timeout.

    This package's error also names the address and the cause.
    """
    with unused_port() as port:
        consumer = make(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": unique("group"),
                "group.protocol": "classic",
                "session.timeout.ms": 2000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        error = refusal(consumer, Partition("topic", 0, 5))
        consumer.close()
    assert error.code() == KafkaError._WAIT_COORD
    if make is Consumer:
        assert f"127.0.0.1:{port}" in error.str()
        assert "connection refused" in error.str()
