"""Buffered records are returned only while the member's session is certain.

After a long pause, the records wait for a heartbeat response.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import Message

from consumer_membership import Consumer
from consumer_membership.membership.waits import WaitsFor
from tests.clients.application import Called, at, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

BATCH = 10


def polled(consumer: Consumer) -> list[Message]:
    """Return the records of one short poll."""
    message = consumer.poll(0.01)
    return [] if message is None else [message]


def consumed(consumer: Consumer) -> list[Message]:
    """Return the records of one short consume."""
    return consumer.consume(BATCH, 0.01)


def lease(consumer: ScriptedConsumer, left_s: float) -> None:
    """Let the member's session last this much longer.

    A negative time ends it, and sets the wake-up as the member's thread does.
    """
    member = consumer.member
    member.view = replace(member.view, lease_until=time.monotonic() + left_s)
    if left_s < 0:
        consumer._use().line.wake_up.set()


def reading(consumers: ConsumerFactory, topic: str, calls: Called) -> ScriptedConsumer:
    """A member that received the first record of its partition; more records are buffered."""
    consumer = subscribed(consumers, topic, calls)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 0))
    lease(consumer, PATIENCE_S)
    assert record(consumer).offset() == 0
    return consumer


@pytest.mark.parametrize("take", [polled, consumed])
def test_poll_and_consume_withhold_buffered_records_until_a_heartbeat_response(
    consumers: ConsumerFactory, topic: str, take: Callable[[Consumer], list[Message]]
) -> None:
    """No call returns a record after the session's end; after a confirmation, records are returned in order."""
    consumer = reading(consumers, topic, [])
    lease(consumer, -1.0)
    assert [take(consumer) for _ in range(5)] == [[]] * 5
    assert consumer.membership().waits_for is WaitsFor.HEARTBEAT_RESPONSE
    lease(consumer, PATIENCE_S)
    seen: list[Message] = []
    while len(seen) < RECORDS - 1:
        seen += take(consumer)
    assert [message.offset() for message in seen] == list(range(1, RECORDS))
    assert consumer.membership().waits_for is None


@pytest.mark.parametrize("take", [polled, consumed])
def test_poll_and_consume_return_no_record_of_a_member_that_was_fenced(
    consumers: ConsumerFactory, topic: str, take: Callable[[Consumer], list[Message]]
) -> None:
    """The heartbeat response reports a loss: on_lost is called, and the buffered records are dropped."""
    calls: Called = []
    consumer = reading(consumers, topic, calls)
    lease(consumer, -1.0)
    assert take(consumer) == []
    consumer.member.lose()
    assert take(consumer) == []
    assert calls == [("assign", [0]), ("lost", [0])]


def test_poll_returns_a_withheld_record_when_the_session_is_confirmed(consumers: ConsumerFactory, topic: str) -> None:
    """The waiting poll itself returns the record."""
    consumer = reading(consumers, topic, [])
    lease(consumer, -1.0)
    polling = Thread(lambda: record(consumer).offset())
    lease(consumer, PATIENCE_S)
    assert polling.outcome() == 1


def test_poll_that_waits_for_a_heartbeat_response_ends_with_its_timeout(consumers: ConsumerFactory, topic: str) -> None:
    """Such a poll keeps its timeout; manually assigned partitions have no lease, so their records are returned."""
    consumer = reading(consumers, topic, [])
    lease(consumer, -1.0)
    started_at = time.monotonic()
    assert consumer.poll(0.05) is None
    assert consumer.poll(0) is None
    assert consumer.consume(1, 0) == []
    assert time.monotonic() - started_at < PATIENCE_S
    consumer.member.view = replace(consumer.member.view, lease_until=None)
    assert record(consumer).offset() == 1
