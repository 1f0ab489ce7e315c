"""`auto.offset.reset=by_duration` on a broker: records of given ages, and the record at which a consumer starts."""

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
    """A consumer of either protocol that starts with records that are at most a day old."""
    with closing(consumer_of(kafka, str(request.param))) as made:
        yield made


def consumer_of(broker: Broker, protocol: str = "consumer", reset: str = "by_duration:P1D") -> Consumer:
    """A consumer in its own group."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("group"),
            "group.protocol": protocol,
            "auto.offset.reset": reset,
            # An automatic commit would leave nothing to commit, which is an error.
            "enable.auto.commit": False,
        }
    )


def taken(consumer: Consumer, count: int) -> list[Message]:
    """Poll this many records."""
    found: list[Message] = []

    def consume() -> None:
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(message)

    wait_until(lambda: len(found) == count, f"{count} records", between=consume, seen=lambda: places(found))
    return found


def places(messages: Sequence[Message]) -> list[tuple[int | None, int | None]]:
    """The partition and offset of each record."""
    return sorted((message.partition(), message.offset()) for message in messages)


def test_by_duration_starts_assigned_partitions_at_the_first_young_enough_record(
    kafka: Broker, consumer: Consumer
) -> None:
    """Each partition without a committed offset starts there, by Java's rule: now minus the duration."""
    topic = topic_of(kafka, partitions=2)
    consumer.subscribe([topic])
    assert places(taken(consumer, 4)) == [(0, 2), (0, 3), (1, 2), (1, 3)]


def test_by_duration_starts_manually_assigned_partitions_without_an_offset(kafka: Broker, consumer: Consumer) -> None:
    """A partition without an offset starts by the duration, beside a partition that has its own offset."""
    topic = topic_of(kafka, partitions=2)
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1, 1)])
    assert places(taken(consumer, 5)) == [(0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_by_duration_starts_at_the_end_without_a_young_enough_record(
    kafka: Broker, consumer: Consumer, *, is_by_hand: bool
) -> None:
    """As with `latest`, existing records are skipped and the next record is returned."""
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


def test_by_duration_resets_a_position_that_retention_deleted(kafka: Broker, consumer: Consumer) -> None:
    """The reset happens during reading. Returned records are not lost, no error is raised, and commits continue."""
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


def test_by_duration_resets_an_offset_beyond_the_end(kafka: Broker, consumer: Consumer) -> None:
    """A committed offset may come from an older topic of the same name."""
    topic = topic_of(kafka)
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    assert places(taken(consumer, 2)) == [(0, 2), (0, 3)]


@pytest.mark.parametrize(
    ("reset", "offsets"),
    [("by_duration:P99999D", [0, 1, 2, 3]), ("by_duration:PT8H", [3]), ("BY_DURATION:p4d", [1, 2, 3])],
)
def test_by_duration_accepts_durations_of_any_length(kafka: Broker, reset: str, offsets: list[int]) -> None:
    """A duration longer than the epoch's age starts with all records."""
    topic = topic_of(kafka)
    with closing(consumer_of(kafka, reset=reset)) as made:
        made.subscribe([topic])
        assert [message.offset() for message in taken(made, len(offsets))] == offsets
