"""An interrupted offset reset makes librdkafka repeat records; this package's consumer returns each record once.

Groups of several clients therefore commit: their record check (`tests.integration.partners`) reports each duplicate.
"""

from __future__ import annotations

from contextlib import closing
from itertools import takewhile

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka import Consumer as Confluent

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import LIST_OFFSETS, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.integration

_COUNT, _COMMITTED = 20, 8
#: A position that is not in the log.
_GONE = 1_000


def test_librdkafka_resets_a_newly_assigned_offset_after_an_interrupted_reset(kafka: Broker) -> None:
    """A reset response for a revoked partition starts a 0.5 s timer in librdkafka, which later resets the partition.

    Two rebalances cause it in a group: without committed offsets, `auto.offset.reset` starts an offset lookup; the
    partition moves to a member that commits, and comes back.
    """
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, _COUNT)
    with Proxy(kafka.bootstrap_servers) as network:
        consumer = Confluent({"bootstrap.servers": network.address, "group.id": unique("group")})
        cut_short(consumer, network, topic, OFFSET_BEGINNING)
        given: list[int | None] = []

        def has_begun_anew() -> bool:
            given.extend(offsets(consumer))
            return 0 in given

        wait_until(has_begun_anew, "the first record")
        consumer.close()
    before = list(takewhile(lambda offset: offset != 0, given))
    assert before == list(range(_COMMITTED, _COMMITTED + len(before)))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_interrupted_reset_does_not_move_the_position_of_a_newly_assigned_offset(kafka: Broker, reset: str) -> None:
    """After an interrupted reset, a partition assigned at another offset returns each record once and skips none.

    librdkafka alone, on the same network, shows how long the fault would take: it has reset the partition by then.
    """
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    for _ in range(_COUNT):
        produce(kafka.bootstrap_servers, topic, 1)
    group = {"group.id": unique("group")}
    # Few records per fetch, so that most of them are still to be fetched when the timer expires.
    slow = {"queued.min.messages": 3, "fetch.message.max.bytes": 100}
    with (
        Proxy(kafka.bootstrap_servers) as network,
        Proxy(kafka.bootstrap_servers) as its,
        closing(Confluent({**group, "bootstrap.servers": its.address, "auto.offset.reset": "earliest"})) as alone,
        closing(Consumer({**group, **slow, "bootstrap.servers": network.address, "auto.offset.reset": reset})) as own,
    ):
        cut_short(own, network, topic)
        cut_short(alone, its, topic)
        wait_until(lambda: 0 in offsets(alone), "the first record")
        given: list[int | None] = []

        def is_at_the_end() -> bool:
            given.extend(offsets(own))
            return _COUNT - 1 in given

        wait_until(is_at_the_end, "the last record")
        given.extend(offsets(own))
    assert given == list(range(_COMMITTED, _COUNT))


def cut_short(consumer: Confluent | Consumer, network: Proxy, topic: str, start: int = _GONE) -> None:
    """Assign the partition so that its offset must be looked up, and assign it again during the lookup."""
    # After this request the consumer knows the partition's leader, and looks up the offset at once.
    consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    network.hold_from(LIST_OFFSETS)
    consumer.assign([TopicPartition(topic, 0, start)])
    network.wait(lambda: network.held[LIST_OFFSETS] > 0, "the start being looked up")
    consumer.unassign()
    consumer.assign([TopicPartition(topic, 0, _COMMITTED)])
    network.heal()


def offsets(consumer: Confluent | Consumer) -> list[int | None]:
    """The offsets of the next records."""
    return [message.offset() for message in consumer.consume(_COUNT, 0.1)]
