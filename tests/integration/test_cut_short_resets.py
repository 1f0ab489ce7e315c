"""What librdkafka does with a look-up of the beginning that was cut short, and that this package's consumer does not.

It is why groups of many clients have commits: their books (`tests.integration.partners`) call each record that comes
twice a fault.
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


def test_librdkafka_begins_anew_where_it_was_assigned_an_offset_after_a_reset_that_was_cut_short(kafka: Broker) -> None:
    """The answer that finds the partition given up makes a timer of 0.5 s, which nobody stops, and asks again.

    A group does it by two rebalances: `auto.offset.reset` has the beginning looked up, since nothing is committed, and
    the partition goes to somebody who commits, and comes back.
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
def test_reset_that_was_cut_short_does_not_move_what_this_package_reads(kafka: Broker, reset: str) -> None:
    """A position that is gone, and the partition begins elsewhere: each record comes once, and none is passed over.

    librdkafka alone, on the same network, shows when that would show: it begins anew by then.
    """
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    for _ in range(_COUNT):
        produce(kafka.bootstrap_servers, topic, 1)
    group = {"group.id": unique("group")}
    # Record by record, so that most are still to be fetched when the timer comes.
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
    """Assign the partition where it must be looked up, and anew while it is."""
    # It knows the partition's leader then, and asks at once.
    consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    network.hold_from(LIST_OFFSETS)
    consumer.assign([TopicPartition(topic, 0, start)])
    network.wait(lambda: network.held[LIST_OFFSETS] > 0, "the start being looked up")
    consumer.unassign()
    consumer.assign([TopicPartition(topic, 0, _COMMITTED)])
    network.heal()


def offsets(consumer: Confluent | Consumer) -> list[int | None]:
    """Those of the records that come now."""
    return [message.offset() for message in consumer.consume(_COUNT, 0.1)]
