"""What a group has committed, as a real broker tells a consumer: for both protocols, and beside confluent-kafka."""

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
from tests.integration.grounds import EVERY, Ground, on
from tests.support.kafka import create_topic, unique
from tests.support.proxy import OFFSET_FETCH, Proxy
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Lengths at which librdkafka's text, which has no end, is read together with what stands behind it in memory.
LENGTHS = range(1, 65)
TEXTS = ["größer ✓", "дальше", "次", "\U0001f409", "é" * 12]

Shown = tuple[int, str | None, int | None, KafkaError | None]


def shown(partitions: list[Partition]) -> list[Shown]:
    """What a program may look at."""
    return [(one.offset, one.metadata, one.leader_epoch, one.error) for one in partitions]


@pytest.fixture
def topic(kafka: Broker) -> str:
    """Four partitions."""
    return create_topic(kafka.bootstrap_servers, unique("topic"), 4)


@pytest.fixture
def consumer(kafka: Broker) -> Iterator[Consumer]:
    """Of a new group, and no member of it."""
    with Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}) as made:
        yield made


@pytest.mark.parametrize("text", [*("x" * length for length in LENGTHS), *TEXTS], ids=ascii)
def test_text_is_the_one_that_was_committed(consumer: Consumer, topic: str, text: str) -> None:
    """Of any length and in any letters: nothing of what stands behind it in memory, and no UnicodeDecodeError."""
    consumer.commit(offsets=[Partition(topic, 0, 5, text)], asynchronous=False)
    assert shown(consumer.committed([Partition(topic, 0)], PATIENCE_S)) == [(5, text, None, None)]


def test_answer_is_confluent_kafka_s(kafka: Broker, consumer: Consumer, topic: str) -> None:
    """What it committed itself: offset, leader epoch, text, an empty text and none; nothing; what does not exist."""
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


def test_consumer_with_partitions_by_hand_asks(kafka: Broker, topic: str) -> None:
    """It is no member. Its own asynchronous commits are in the answer: they go out before, once there was an answer."""
    with Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}) as consumer:
        consumer.assign([Partition(topic, 0, 0)])
        consumer.commit(offsets=[Partition(topic, 0, 0)], asynchronous=False)
        for offset in range(1, 20):
            consumer.commit(offsets=[Partition(topic, 0, offset, str(offset))])
            assert shown(consumer.committed([Partition(topic, 0)], PATIENCE_S)) == [(offset, str(offset), None, None)]


@on(*EVERY)
def test_member_asks_before_it_joins_while_it_is_one_and_when_it_has_left(ground: Ground) -> None:
    """For each protocol on both brokers, in callbacks too, while another member makes its epoch move on."""
    topic, group = ground.topic(4), unique("group")
    asked = [Partition(topic, number) for number in range(4)]
    answers: list[list[Shown]] = []

    def ask(_: str, consumer: Consumer, __: list[Partition]) -> None:
        answers.append(shown(consumer.committed(asked, PATIENCE_S)))

    with Consumer({"bootstrap.servers": ground.bootstrap_servers, "group.id": group}) as stranger:
        stranger.commit(offsets=[Partition(topic, 0, 7, "by a stranger")], asynchronous=False)
        expected: list[Shown] = [(7, "by a stranger", None, None), *[(-1001, None, None, None)] * 3]
        assert shown(stranger.committed(asked, PATIENCE_S)) == expected
        with ExitStack() as stack:
            one = stack.enter_context(ground.member(group, [topic], ask, enable_auto_commit=False))
            one.settled(4)
            two = stack.enter_context(ground.member(group, [topic], ask, enable_auto_commit=False))
            while len(two.consumer.membership().owned) < 2:
                assert shown(one.consumer.committed(asked, PATIENCE_S)) == expected
            one.settled(2)
            two.settled(2)
            assert shown(two.consumer.committed(asked, PATIENCE_S)) == expected
        assert answers
        assert [answer for answer in answers if answer != expected] == []
        assert shown(stranger.committed(asked, PATIENCE_S)) == expected


def test_coordinator_that_is_away_is_a_timeout(kafka: Broker, topic: str) -> None:
    """`_TIMED_OUT` when the time is over, and the answer as soon as the network is back."""
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
