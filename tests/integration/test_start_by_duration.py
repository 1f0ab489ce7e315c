"""`auto.offset.reset=by_duration` on a broker: records of given times, and where a consumer starts among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from time import time

import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DAY_S = 86_400
#: How old the records of a topic are, in days.
AGES = (5.0, 3.0, 0.5, 0.25)


def topic_of(broker: Broker, ages: Sequence[float] = AGES, partitions: int = 1) -> str:
    """A topic with a record of each of these ages in each partition: offsets 0, 1, 2, ..."""
    topic = create_topic(broker.bootstrap_servers, unique("topic"), partitions, {"retention.ms": "-1"})
    append(broker, topic, ages, partitions)
    return topic


def append(broker: Broker, topic: str, ages: Sequence[float], partitions: int = 1) -> None:
    """Write one more record of each of these ages to each partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for age in ages:
        for partition in range(partitions):
            moment = int((time() - age * DAY_S) * 1000)
            producer.produce(topic, str(age).encode(), partition=partition, timestamp=moment)
    assert producer.flush(PATIENCE_S) == 0


@pytest.fixture(params=["consumer", "classic"])
def consumer(kafka: Broker, request: pytest.FixtureRequest) -> Iterator[Consumer]:
    """A consumer of either protocol that starts with what is at most a day old."""
    with closing(consumer_of(kafka, str(request.param))) as made:
        yield made


def consumer_of(broker: Broker, protocol: str = "consumer", reset: str = "by_duration:P1D") -> Consumer:
    """A consumer in a group of its own."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("group"),
            "group.protocol": protocol,
            "auto.offset.reset": reset,
        }
    )


def taken(consumer: Consumer, count: int) -> list[Message]:
    """So many records."""
    found: list[Message] = []

    def consume() -> None:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message)

    wait_until(lambda: len(found) == count, f"{count} records", between=consume, seen=lambda: places(found))
    return found


def places(messages: Sequence[Message]) -> list[tuple[int | None, int | None]]:
    """Partition and offset of each."""
    return sorted((message.partition(), message.offset()) for message in messages)


def test_groups_partitions_start_at_the_first_record_that_is_not_older(kafka: Broker, consumer: Consumer) -> None:
    """Each partition that has no committed offset, by Java's rule: now minus the duration."""
    topic = topic_of(kafka, partitions=2)
    consumer.subscribe([topic])
    assert places(taken(consumer, 4)) == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_partitions_assigned_by_hand_start_there_too(kafka: Broker, consumer: Consumer) -> None:
    """Without an offset, and beside one that has an offset of its own."""
    topic = topic_of(kafka, partitions=2)
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1, 1)])
    assert places(taken(consumer, 5)) == [(0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_partition_without_a_record_that_young_starts_at_its_end(
    kafka: Broker, consumer: Consumer, *, is_by_hand: bool
) -> None:
    """As with `latest`: nothing of what is there, and what comes next."""
    topic, marks = topic_of(kafka, (5.0, 3.0)), topic_of(kafka, (0.0,))
    if is_by_hand:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(marks, 0)])
        (mark,) = taken(consumer, 1)
        assert mark.topic() == marks
    else:
        consumer.subscribe([topic, marks])
        (mark,) = taken(consumer, 1)
        assert mark.topic() == marks
    append(kafka, topic, (0.0,))
    (message,) = taken(consumer, 1)
    assert (message.topic(), message.offset()) == (topic, 2)


def test_position_that_retention_took_is_reset_by_the_same_rule(kafka: Broker, consumer: Consumer) -> None:
    """In the middle of reading: what was given is not lost, nothing is an error, and the commit goes on."""
    topic = topic_of(kafka)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert places(taken(consumer, 4)) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    append(kafka, topic, (4.0, 0.1, 0.0))
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([TopicPartition(topic, 0, 5)])[TopicPartition(topic, 0)].result()
    consumer.seek(TopicPartition(topic, 0, 1))
    assert places(taken(consumer, 2)) == [(0, 5), (0, 6)]
    (committed,) = consumer.commit(asynchronous=False)
    assert (committed.offset, committed.error) == (7, None)


def test_offset_behind_the_end_is_reset(kafka: Broker, consumer: Consumer) -> None:
    """A committed offset may be that of an older topic of the same name."""
    topic = topic_of(kafka)
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    assert places(taken(consumer, 2)) == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("reset", "offsets"),
    [("by_duration:P99999D", [0, 1, 2, 3]), ("by_duration:PT8H", [3]), ("BY_DURATION:p4d", [1, 2, 3])],
)
def test_duration_says_how_far_back(kafka: Broker, reset: str, offsets: list[int]) -> None:
    """One longer than time itself means everything."""
    topic = topic_of(kafka)
    with closing(consumer_of(kafka, reset=reset)) as made:
        made.subscribe([topic])
        assert [message.offset() for message in taken(made, len(offsets))] == offsets
