"""What is buffered is handed out only while the member's session surely lasts: after a long pause it is asked first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Message

from consumer_membership import Consumer
from consumer_membership.runtime.application.session import WAITS_FOR_LEASE
from tests.clients.application import Called, at, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

BATCH = 10


def polled(consumer: Consumer) -> list[Message]:
    """What one short poll gives."""
    message = consumer.poll(0.01)
    return [] if message is None else [message]


def consumed(consumer: Consumer) -> list[Message]:
    """What one short consume gives."""
    return consumer.consume(BATCH, 0.01)


def lease(consumer: ScriptedConsumer, left_s: float) -> None:
    """The member's session lasts so much longer; where it is over, its thread has noticed that."""
    member = consumer.member
    member.view = replace(member.view, lease_until=time.monotonic() + left_s)
    if left_s < 0:
        consumer._wake_up.set()


def reading(consumers: ConsumerFactory, topic: str, calls: Called) -> ScriptedConsumer:
    """A member that was given the first record of its partition; others are buffered."""
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    lease(consumer, PATIENCE_S)
    assert record(consumer).offset() == 0
    return consumer


@pytest.mark.parametrize("take", [polled, consumed])
def test_buffered_records_wait_for_the_coordinator_s_word(
    consumers: ConsumerFactory, topic: str, take: Callable[[Consumer], list[Message]]
) -> None:
    """Nothing of them comes after the session's end, by no way; when it goes on they come in their order."""
    consumer = reading(consumers, topic, [])
    lease(consumer, -1.0)
    assert [take(consumer) for _ in range(5)] == [[]] * 5
    assert consumer.membership().waits_for == WAITS_FOR_LEASE
    lease(consumer, PATIENCE_S)
    seen: list[Message] = []
    while len(seen) < RECORDS - 1:
        seen += take(consumer)
    assert [message.offset() for message in seen] == list(range(1, RECORDS))
    assert consumer.membership().waits_for is None


@pytest.mark.parametrize("take", [polled, consumed])
def test_member_that_was_fenced_meanwhile_hands_out_nothing(
    consumers: ConsumerFactory, topic: str, take: Callable[[Consumer], list[Message]]
) -> None:
    """The word is that it lost them: on_lost, and what was buffered is dropped."""
    calls: Called = []
    consumer = reading(consumers, topic, calls)
    lease(consumer, -1.0)
    assert take(consumer) == []
    consumer.member.lose()
    assert take(consumer) == []
    assert calls == [("assign", [0]), ("lost", [0])]


def test_poll_that_waits_gets_the_record_when_the_word_comes(consumers: ConsumerFactory, topic: str) -> None:
    """It need not come back for it."""
    consumer = reading(consumers, topic, [])
    lease(consumer, -1.0)
    polling = Thread(lambda: record(consumer).offset())
    lease(consumer, PATIENCE_S)
    assert polling.outcome() == 1


def test_poll_that_waits_for_a_word_serves_callbacks_and_ends_with_its_time(
    consumers: ConsumerFactory, topic: str
) -> None:
    """It is an ordinary poll in all other things: what was asked for by hand is no member's, and goes on."""
    consumer = reading(consumers, topic, [])
    lease(consumer, -1.0)
    begun = time.monotonic()
    assert consumer.poll(0.05) is None
    assert consumer.poll(0) is None
    assert consumer.consume(1, 0) == []
    assert time.monotonic() - begun < PATIENCE_S
    consumer.member.view = replace(consumer.member.view, lease_until=None)
    assert record(consumer).offset() == 1
