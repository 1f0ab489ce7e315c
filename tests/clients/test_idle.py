"""What a consumer does for which nothing comes: little, and it still hears of everything."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as Wanted

from tests.clients.application import at, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread

pytestmark = pytest.mark.slow


def idling(consumers: ConsumerFactory, topic: str) -> ScriptedConsumer:
    """A member that was given all but the last record of its partition, and whose slices are long."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign({at(topic, 0)[0]: RECORDS - 1})
    assert record(consumer).offset() == RECORDS - 1
    assert consumer.poll(0.3) is None
    return consumer


@pytest.mark.parametrize("timeout_s", [0.12, 0.2])
def test_poll_without_a_record_waits_in_whole_slices(consumers: ConsumerFactory, topic: str, timeout_s: float) -> None:
    """A slice of 50 ms, a beginning and an end: what librdkafka leaves of a millisecond is not waited for in a loop."""
    consumer = idling(consumers, topic)
    turns = consumer.member.progress()[0]
    assert consumer.poll(timeout_s) is None
    assert consumer.member.progress()[0] - turns <= timeout_s / 0.05 + 2


def test_idle_poll_performs_what_is_ordered(consumers: ConsumerFactory, topic: str) -> None:
    """A step that comes in the middle of a long poll; the records of what it assigned come out of that very poll."""
    consumer = idling(consumers, topic)
    turns = consumer.member.progress()[0]

    def assign() -> None:
        while consumer.member.progress()[0] < turns + 3:
            pass
        consumer.member.assign({at(topic, 1)[0]: 0})

    ordering = Thread(assign)
    message = record(consumer)
    assert (message.partition(), message.offset()) == (1, 0)
    ordering.outcome()


def test_idle_poll_is_a_sign_of_life(consumers: ConsumerFactory, topic: str) -> None:
    """max.poll.interval.ms: each slice counts, so that a poll that waits for ever is no missed one."""
    consumer = idling(consumers, topic)
    turns = consumer.member.progress()[0]
    polling = Thread(lambda: consumer.poll(0.5))
    seen = {consumer.member.progress()[0] for _ in iter(polling.is_alive, False)}
    polling.outcome()
    assert len({count for count in seen if count > turns}) > 3


@pytest.mark.parametrize("is_calm", [False, True])
def test_record_that_ends_a_calm_is_told(
    consumers: ConsumerFactory,
    topic: str,
    is_calm: bool,  # noqa: FBT001
) -> None:
    """The member's thread looks seldom then; so it is rung when there is something to see, and only then."""
    consumer = idling(consumers, topic)
    consumer.seek(Wanted(topic, 0, RECORDS - 1))
    if is_calm:
        consumer.member.calm_down()
    rings = consumer.member.rings
    assert record(consumer).offset() == RECORDS - 1
    assert consumer.member.rings - rings == is_calm
