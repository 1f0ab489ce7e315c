"""Records between librdkafka's handle and the application, on a real broker."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as PartitionOffset
from confluent_kafka.admin import AdminClient

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.clients.interrupts import read_in_storm
from tests.support.kafka import create_topic, produce, unique
from tests.support.seeds import seed_for
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PARTITIONS = 4
RECORDS = 300_000
INTERRUPTS = 2_000


def test_frequent_interrupts_lose_no_record_and_commit_only_returned_records(broker: Broker) -> None:
    """C18: Each record comes once, in order, whenever a handler raises. Commits cover only returned records."""
    topic, group = unique("storm"), unique("group")
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    written = produce(broker.bootstrap_servers, topic, RECORDS)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    interrupts: list[None] = []
    found = read_in_storm(consumer, interrupts, lambda: len(interrupts) >= INTERRUPTS, seed_for("storm"))
    consumer.close()
    assert sum(map(len, found.values())) < sum(written.values()), "the storm is longer than the topic"
    next_ = {number: len(offsets) for number, offsets in found.items()}
    assert found == {number: list(range(count)) for number, count in next_.items()}
    with_group = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    committed = with_group.committed([PartitionOffset(topic, number) for number in sorted(next_)], PATIENCE_S)
    with_group.close()
    assert {one.partition: one.offset for one in committed} == dict(sorted(next_.items()))


def test_resume_returns_buffered_records_that_the_broker_deleted(broker: Broker) -> None:
    """`pause` keeps the buffered records, and `resume` returns them although the broker has deleted them."""
    topic = unique("deleted")
    create_topic(broker.bootstrap_servers, topic, 1)
    produce(broker.bootstrap_servers, topic, 100)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": unique("group"), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    first = consumer.poll(PATIENCE_S)
    assert first is not None
    while not consumer._ready:
        first = consumer.poll(PATIENCE_S)
        assert first is not None
    buffered = [message.offset() for message in consumer._ready]
    consumer.pause(consumer.assignment())
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([PartitionOffset(topic, 0, 99)]).values():
        deleted.result(PATIENCE_S)
    consumer.resume(consumer.assignment())
    found = [consumer.poll(PATIENCE_S) for _ in buffered]
    consumer.close()
    assert [message.offset() for message in found if message is not None] == buffered
