"""What librdkafka does with a look-up of the beginning that was cut short: why groups of many clients have commits.

The books on groups of many clients (`tests.integration.partners`) call each record that comes twice a fault.
"""

from __future__ import annotations

from itertools import takewhile

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from consumer_membership.devbroker import Broker
from tests.integration.partners import PATIENCE_S
from tests.runtime.guardian.processes import wait_until
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import LIST_OFFSETS, Proxy

pytestmark = pytest.mark.integration

_COUNT, _COMMITTED = 20, 8


def test_librdkafka_begins_anew_where_it_was_assigned_an_offset_after_a_reset_that_was_cut_short(kafka: Broker) -> None:
    """The answer that finds the partition given up makes a timer of 0.5 s, which nobody stops, and asks again.

    A group does it by two rebalances: `auto.offset.reset` has the beginning looked up, since nothing is committed, and
    the partition goes to somebody who commits, and comes back.
    """
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, _COUNT)
    with Proxy(kafka.bootstrap_servers) as network:
        consumer = Consumer({"bootstrap.servers": network.address, "group.id": unique("group")})
        # It knows the partition's leader then, and asks at once.
        consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
        network.hold_from(LIST_OFFSETS)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        network.wait(lambda: network.held[LIST_OFFSETS] > 0, "the beginning being looked up")
        consumer.unassign()
        consumer.assign([TopicPartition(topic, 0, _COMMITTED)])
        network.heal()
        given: list[int | None] = []

        def has_begun_anew() -> bool:
            given.extend(message.offset() for message in consumer.consume(_COUNT, 0.1))
            return 0 in given

        wait_until(has_begun_anew, "the first record", PATIENCE_S)
        consumer.close()
    before = list(takewhile(lambda offset: offset != 0, given))
    assert before == list(range(_COMMITTED, _COMMITTED + len(before)))
