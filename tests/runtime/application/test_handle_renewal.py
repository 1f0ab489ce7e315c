"""A handle that has lost its brokers is replaced, and no fetched record is lost or delivered twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.runtime.application import handle as handles
from tests.clients.application import at, drain, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.scripted_broker import DROP, NEWEST, Answer, Last, Received, ScriptedBroker, Topic
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

PRODUCE, FETCH, METADATA = 0, 1, 3


def renew(consumer: Consumer) -> None:
    """Replace the handle, whatever its state."""
    consumer._session.fetcher.renew()  # type: ignore[union-attr]


def numbers(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Return partition and offset of this many records. A logical start of a new handle takes half a second."""
    return [(message.partition() or 0, message.offset() or 0) for message in (record(consumer) for _ in range(count))]


def test_renewed_handle_continues_at_the_positions(consumers: ConsumerFactory, topic: str) -> None:
    """Delivered, buffered and future records are returned once each, in order."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 5), PartitionOffset(topic, 1, -2)])
    seen = numbers(consumer, 7)
    positions = [p.offset for p in consumer.position([PartitionOffset(topic, 0), PartitionOffset(topic, 1)])]
    renew(consumer)
    assert [p.offset for p in consumer.position([PartitionOffset(topic, 0), PartitionOffset(topic, 1)])] == positions
    seen += numbers(consumer, 2 * RECORDS - 5 - 7)
    assert [at for partition, at in seen if partition == 0] == list(range(5, RECORDS))
    assert [at for partition, at in seen if partition == 1] == list(range(RECORDS))
    renew(consumer)
    assert [p.offset for p in consumer.position([PartitionOffset(topic, 0), PartitionOffset(topic, 1)])] == [
        RECORDS,
        RECORDS,
    ]
    assert drain(consumer) == []


def test_renewed_handle_starts_undelivered_partitions_at_their_start(consumers: ConsumerFactory, topic: str) -> None:
    """Numeric starts, logical starts and seeks of partitions without a delivered record are kept."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 40), PartitionOffset(topic, 1, -2), PartitionOffset(topic, 2, 0)])
    consumer.pause([PartitionOffset(topic, partition) for partition in (0, 1, 2)])
    consumer.seek(PartitionOffset(topic, 2, 45))
    renew(consumer)
    assert drain(consumer) == []
    renew(consumer)
    consumer.resume([PartitionOffset(topic, partition) for partition in (0, 1, 2)])
    found = numbers(consumer, 10 + RECORDS + 5)
    assert drain(consumer) == []
    firsts = [min(at for number, at in found if number == partition) for partition in (0, 1, 2)]
    assert firsts == [40, 0, 45]


def test_renewed_handle_keeps_paused_partitions_and_commits(consumers: ConsumerFactory, topic: str) -> None:
    """Partitions that the application paused stay paused, and commits cover records before and after the renewal."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    seen = numbers(consumer, 1)
    consumer.pause([PartitionOffset(topic, 0)])
    renew(consumer)
    others = numbers(consumer, RECORDS - sum(partition == 1 for partition, _ in seen))
    assert {partition for partition, _ in others} == {1}
    assert drain(consumer) == []
    consumer.resume([PartitionOffset(topic, 0)])
    seen += others + numbers(consumer, 2 * RECORDS - len(seen) - len(others))
    assert sorted(seen) == [(partition, at) for partition in (0, 1) for at in range(RECORDS)]
    committed = consumer.commit(asynchronous=False)
    assert committed is not None
    assert {(p.partition, p.offset) for p in committed} == {(0, RECORDS), (1, RECORDS)}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the times of the watch."""
    monkeypatch.setattr(handles, "BROKER_CHECK_AFTER_S", 0.2)
    monkeypatch.setattr(handles, "LOST_AFTER_ALONE_S", 1.0)


class ShuttingDown:
    """A broker that, on request, answers metadata with an empty broker list and then closes the connection."""

    def __init__(self) -> None:
        self.is_going = False
        versions = {**NEWEST, PRODUCE: (3, 11), FETCH: (4, 16)}
        # A long response keeps librdkafka busy, so that it is likely to notice the end of the connection meanwhile.
        topics = {name: Topic(uuid.uuid4(), [1] * 2000) for name in ("records", "a", "b", "c", "d")}
        self.broker = ScriptedBroker(self._answer, versions=versions, topics=topics)

    def _answer(self, request: Received) -> Answer:
        if request.api_key == FETCH:
            return DROP
        if request.api_key == METADATA and self.is_going:
            return Last(replace(self.broker.own_answer(request), brokers=(), controller_id=-1))
        return None

    def restart(self, consumer: Consumer) -> None:
        """Stop and start again while this consumer requests metadata."""
        self.is_going = True
        with suppress(KafkaException):  # the response or the end of the connection may come first
            consumer.list_topics(timeout=5)  # the race needs the response, which may take seconds
        self.broker.stop_node(1)
        self.is_going = False
        self.broker.start_node(1)

    def fetched_from(self) -> int:
        """Return the offset of the last fetch request."""
        (topic,) = self.broker.requests(FETCH)[-1].entity.topics
        (partition,) = topic.partitions
        return int(partition.fetch_offset)


@pytest.fixture
def shutting_down() -> Iterator[ShuttingDown]:
    """A running `ShuttingDown` broker."""
    going = ShuttingDown()
    with going.broker:
        yield going


def poll_until(consumer: ScriptedConsumer, condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds; no poll may return a record."""

    def poll() -> None:
        assert consumer.poll(0.05) is None

    wait_until(condition, what, between=poll)


def has_fetched(broker: ScriptedBroker, count: int) -> bool:
    """Return whether the broker has received this many fetch requests."""
    return len(broker.requests(FETCH)) >= count


@pytest.mark.usefixtures("impatient")
def test_membership_view_names_the_wait_of_a_member_that_cannot_fetch(shutting_down: ShuttingDown) -> None:
    """The view gives the reason when a stable member with partitions receives no records."""
    broker = shutting_down.broker
    with ScriptedConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}) as consumer:
        consumer.assign([PartitionOffset("records", 0, 0)])
        broker.wait_for(FETCH)
        assert consumer.membership().waits_for is None
        broker.stop_node(1)
        poll_until(consumer, lambda: consumer.membership().waits_for is not None, "the reason of the wait")
        view = consumer.membership()
        assert (view.waits_for, view.waits_until) == ("broker connection", None)
        assert view.waits_since is not None
        fetches = len(broker.requests(FETCH))
        broker.start_node(1)
        poll_until(consumer, lambda: consumer.membership().waits_for is None, "the end of the wait")
        broker.wait_for(FETCH, fetches + 1)


@pytest.mark.usefixtures("impatient")
def test_handle_that_lost_its_brokers_fetches_again(shutting_down: ShuttingDown) -> None:
    """Librdkafka's issue 5301 is a race inside librdkafka, so the test makes several attempts."""
    broker = shutting_down.broker
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "group", "log_level": 0}
    for start in range(10, 40):
        with ScriptedConsumer(settings) as consumer:
            handle = consumer._session.fetcher.handle  # type: ignore[union-attr]
            consumer.assign([PartitionOffset("records", 0, start)])
            broker.wait_for(FETCH, len(broker.requests(FETCH)) + 1)
            shutting_down.restart(consumer)
            fetches = len(broker.requests(FETCH))
            poll_until(consumer, partial(has_fetched, broker, fetches + 1), "another fetch")
            assert shutting_down.fetched_from() == start
            if consumer._session.fetcher.handle is not handle:  # type: ignore[union-attr]
                return
    pytest.fail(
        "no handle lost its brokers; if librdkafka has fixed this, remove HandleWatch from application/handle.py"
    )
