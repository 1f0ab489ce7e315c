"""Where a bounded run ends."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from consumer_membership.devbroker import Broker
from consumer_membership.spark.brokers import ends_now
from consumer_membership.spark.plan import planned
from tests.support.kafka import create_topic, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_ends_are_the_last_stable_offsets_for_read_committed(kafka: Broker) -> None:
    """The end for `read_committed` is the last stable offset; the end of an empty partition is 0."""
    topic = create_topic(kafka.bootstrap_servers, unique("spark"), 2)

    def ends(isolation: str) -> list[int]:
        config = {"bootstrap.servers": kafka.bootstrap_servers, "isolation.level": isolation}
        return [end for _, end in sorted(ends_now(planned(config, [topic], "reader")).items())]

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("transaction")})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush()
    assert (ends("read_committed"), ends("read_uncommitted")) == ([0, 0], [1, 0])
    producer.abort_transaction()
    # The marker is written after the call returns.
    wait_until(lambda: (ends("read_committed"), ends("read_uncommitted")) == ([2, 0], [2, 0]), "the marker")
