"""A handle that has lost its brokers is made anew, and nothing of what it fetched is lost or comes twice."""

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
    """Make the handle anew, whatever its condition."""
    consumer._session.fetcher.renew()  # type: ignore[union-attr]


def numbers(consumer: Consumer, count: int) -> list[tuple[int, int]]:
    """Partition and offset of so many records: a logical start costs a new handle half a second."""
    return [(message.partition() or 0, message.offset() or 0) for message in (record(consumer) for _ in range(count))]


def test_records_go_on_where_they_were(consumers: ConsumerFactory, topic: str) -> None:
    """What was delivered, what waits and what is still to come: each once, in order."""
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


def test_partitions_of_which_nothing_came_begin_where_they_were_to(consumers: ConsumerFactory, topic: str) -> None:
    """Numbers and logical offsets, and where a partition was sought."""
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


def test_what_is_held_back_stays_so(consumers: ConsumerFactory, topic: str) -> None:
    """By the application; and commits name what was consumed before and after."""
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
    """The watch as it is, quicker."""
    monkeypatch.setattr(handles, "BROKER_CHECK_AFTER_S", 0.2)
    monkeypatch.setattr(handles, "LOST_AFTER_ALONE_S", 1.0)


class ShuttingDown:
    """A broker that answers a metadata request with no brokers and hangs up with that very answer, when told to."""

    def __init__(self) -> None:
        self.is_going = False
        versions = {**NEWEST, PRODUCE: (3, 11), FETCH: (4, 16)}
        # The longer librdkafka reads the answer, the surer it has noticed the connection's end before it is done.
        topics = {name: Topic(uuid.uuid4(), [1] * 2000) for name in ("records", "a", "b", "c", "d")}
        self.broker = ScriptedBroker(self._answer, versions=versions, topics=topics)

    def _answer(self, request: Received) -> Answer:
        if request.api_key == FETCH:
            return DROP
        if request.api_key == METADATA and self.is_going:
            return Last(replace(self.broker.own_answer(request), brokers=(), controller_id=-1))
        return None

    def restart(self, consumer: Consumer) -> None:
        """Go and come back while this consumer asks for metadata."""
        self.is_going = True
        with suppress(KafkaException):  # the answer or the connection's end, whichever is noticed first
            consumer.list_topics(timeout=5)  # the race needs the answer, a second and more on a busy machine
        self.broker.stop_node(1)
        self.is_going = False
        self.broker.start_node(1)

    def fetched_from(self) -> int:
        """The offset that the last fetch request asked for."""
        (topic,) = self.broker.requests(FETCH)[-1].entity.topics
        (partition,) = topic.partitions
        return int(partition.fetch_offset)


@pytest.fixture
def shutting_down() -> Iterator[ShuttingDown]:
    """Such a broker."""
    going = ShuttingDown()
    with going.broker:
        yield going


def poll_until(consumer: ScriptedConsumer, condition: Callable[[], bool], what: str) -> None:
    """Poll, which must return no record, until the condition holds."""

    def poll() -> None:
        assert consumer.poll(0.05) is None

    wait_until(condition, what, between=poll)


def has_fetched(broker: ScriptedBroker, count: int) -> bool:
    """Whether the broker has received this many fetch requests."""
    return len(broker.requests(FETCH)) >= count


@pytest.mark.usefixtures("impatient")
def test_member_that_cannot_fetch_says_what_it_waits_for(shutting_down: ShuttingDown) -> None:
    """Settled by its heartbeats, with partitions, and nothing comes: the view tells why."""
    broker = shutting_down.broker
    with ScriptedConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}) as consumer:
        consumer.assign([PartitionOffset("records", 0, 0)])
        broker.wait_for(FETCH)
        assert consumer.membership().waits_for is None
        broker.stop_node(1)
        poll_until(consumer, lambda: consumer.membership().waits_for is not None, "the reason of the wait")
        view = consumer.membership()
        assert (view.waits_for, view.waits_until) == ("a broker that librdkafka can fetch from", None)
        assert view.waits_since is not None
        fetches = len(broker.requests(FETCH))
        broker.start_node(1)
        poll_until(consumer, lambda: consumer.membership().waits_for is None, "the end of the wait")
        broker.wait_for(FETCH, fetches + 1)


@pytest.mark.usefixtures("impatient")
def test_handle_that_lost_its_brokers_fetches_again(shutting_down: ShuttingDown) -> None:
    """Librdkafka's issue 5301; how often it strikes is a race inside librdkafka, so it gets several chances."""
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
        "no handle lost its brokers; if librdkafka has mended this, HandleWatch in runtime/application/handle.py can go"
    )
