"""`committed()` on a real broker, for both protocols and beside confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer, TransportError
from consumer_membership.devbroker import Broker
from tests.integration.environments import EVERY, Environment, on
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import OFFSET_FETCH, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Lengths at which librdkafka's text, which has no terminating zero, is read with the bytes after it in memory.
LENGTHS = range(1, 65)
TEXTS = ["größer ✓", "дальше", "次", "\U0001f409", "é" * 12]

Shown = tuple[int, str | None, int | None, KafkaError | None]


def shown(partitions: list[Partition]) -> list[Shown]:
    """The fields that a program can read."""
    return [(one.offset, one.metadata, one.leader_epoch, one.error) for one in partitions]


@pytest.fixture
def topic(kafka: Broker) -> str:
    """Four partitions."""
    return create_topic(kafka.bootstrap_servers, unique("topic"), 4)


@pytest.fixture
def consumer(kafka: Broker) -> Iterator[Consumer]:
    """A consumer of a new group that has not joined it."""
    with Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}) as made:
        yield made


@pytest.mark.parametrize("text", [*("x" * length for length in LENGTHS), *TEXTS], ids=ascii)
def test_committed_returns_exactly_the_committed_metadata(consumer: Consumer, topic: str, text: str) -> None:
    """`committed` returns metadata of any length and script exactly: no memory behind it and no UnicodeDecodeError."""
    consumer.commit(offsets=[Partition(topic, 0, 5, text)], asynchronous=False)
    assert shown(consumer.committed([Partition(topic, 0)], PATIENCE_S)) == [(5, text, None, None)]


@pytest.mark.parametrize(
    ("client", "protocol"),
    [(Consumer, "consumer"), (Consumer, "classic"), (confluent_kafka.Consumer, "classic")],
    ids=["consumer", "classic", "confluent-kafka"],
)
def test_record_after_idle_intervals_is_committed_automatically(
    kafka: Broker, topic: str, client: type[confluent_kafka.Consumer], protocol: str
) -> None:
    """The interval of automatic commits pauses while nothing is consumed, and begins again with the next record."""
    config = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group"), "group.protocol": protocol}
    reader = client({**config, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 20})
    reader.subscribe([topic])
    everything = [Partition(topic, number) for number in range(4)]

    def committed() -> int:
        return sum(max(one.offset, 0) for one in reader.committed(everything, PATIENCE_S))

    try:
        for count in range(1, 5):
            produce(kafka.bootstrap_servers, topic, 1)
            wait_until(lambda: reader.poll(0.02) is not None, "the record", between=lambda: None)
            wait_until(lambda: committed() == count, "its automatic commit", between=lambda: reader.poll(0.02))  # noqa: B023 - called at once
            for _ in range(5):
                assert reader.poll(0.05) is None
    finally:
        reader.close()


def test_committed_returns_what_confluent_kafka_returns(kafka: Broker, consumer: Consumer, topic: str) -> None:
    """Both clients return the same offsets, leader epochs, metadata and errors.

    The cases include missing commits, topics and partitions.
    """
    group = consumer.membership().group_id
    theirs = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    asked = [Partition(topic, number) for number in (3, 0, 1, 2, 0, 99)]
    asked += [Partition(topic), Partition("nowhere", 1), Partition(topic, 0, 77, "asked")]
    try:
        assert shown(consumer.committed(asked, PATIENCE_S)) == shown(theirs.committed(asked, PATIENCE_S))
        offsets = [Partition(topic, 0, 5, "note", 3), Partition(topic, 1, 6, ""), Partition(topic, 2, 7)]
        theirs.commit(offsets=offsets, asynchronous=False)
        ours = consumer.committed(asked, PATIENCE_S)
        assert shown(ours) == shown(theirs.committed(asked, PATIENCE_S))
        assert [(one.topic, one.partition) for one in ours] == [(one.topic, one.partition) for one in asked]
        assert shown(ours)[1:3] == [(5, "note", 3, None), (6, "", None, None)]
        assert consumer.committed([], PATIENCE_S) == theirs.committed([], PATIENCE_S) == []
    finally:
        theirs.close()


def test_committed_of_a_manually_assigned_consumer_includes_its_async_commits(kafka: Broker, topic: str) -> None:
    """A consumer without a membership sends its async commits before the request, so the response includes them."""
    with Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}) as consumer:
        consumer.assign([Partition(topic, 0, 0)])
        consumer.commit(offsets=[Partition(topic, 0, 0)], asynchronous=False)
        for offset in range(1, 20):
            consumer.commit(offsets=[Partition(topic, 0, offset, str(offset))])
            assert shown(consumer.committed([Partition(topic, 0)], PATIENCE_S)) == [(offset, str(offset), None, None)]


@on(*EVERY)
def test_committed_works_before_the_join_as_a_member_and_after_the_leave(environment: Environment) -> None:
    """`committed` works in each phase, and in callbacks, while another member changes the epoch."""
    topic, group = environment.topic(4), unique("group")
    asked = [Partition(topic, number) for number in range(4)]
    answers: list[list[Shown]] = []

    def ask(_: str, consumer: Consumer, __: list[Partition]) -> None:
        answers.append(shown(consumer.committed(asked, PATIENCE_S)))

    with Consumer({"bootstrap.servers": environment.bootstrap_servers, "group.id": group}) as stranger:
        stranger.commit(offsets=[Partition(topic, 0, 7, "by a stranger")], asynchronous=False)
        expected: list[Shown] = [(7, "by a stranger", None, None), *[(-1001, None, None, None)] * 3]
        assert shown(stranger.committed(asked, PATIENCE_S)) == expected
        with ExitStack() as stack:
            one = stack.enter_context(environment.member(group, [topic], ask, enable_auto_commit=False))
            one.settled(4)
            two = stack.enter_context(environment.member(group, [topic], ask, enable_auto_commit=False))
            while len(two.consumer.membership().owned) < 2:
                assert shown(one.consumer.committed(asked, PATIENCE_S)) == expected
            one.settled(2)
            two.settled(2)
            assert shown(two.consumer.committed(asked, PATIENCE_S)) == expected
        assert answers
        assert [answer for answer in answers if answer != expected] == []
        assert shown(stranger.committed(asked, PATIENCE_S)) == expected


def test_committed_without_a_coordinator_raises_timed_out(kafka: Broker, topic: str) -> None:
    """`committed` raises `_TIMED_OUT` after its timeout, and returns as soon as the network is back."""
    config = {"group.id": unique("group"), "log_level": 0}
    with Proxy(kafka.bootstrap_servers) as proxy, Consumer({"bootstrap.servers": proxy.address, **config}) as consumer:
        consumer.commit(offsets=[Partition(topic, 0, 5, "note")], asynchronous=False)
        proxy.hold_from(OFFSET_FETCH)
        begun = time.monotonic()
        with pytest.raises(KafkaException) as caught:
            consumer.committed([Partition(topic, 0)], 1.0)
        assert time.monotonic() - begun >= 1.0
        assert isinstance(caught.value, TransportError)
        assert caught.value.args[0].code() == KafkaError._TIMED_OUT
        proxy.heal()
        assert shown(consumer.committed([Partition(topic, 0)], PATIENCE_S)) == [(5, "note", None, None)]
        proxy.cut()
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            consumer.committed([Partition(topic, 0)], 1.0)
        proxy.heal()
        assert shown(consumer.committed([Partition(topic, 0)])) == [(5, "note", None, None)]
