"""Loops of real programs with confluent_kafka.Consumer and with this package's, field by field in one run."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka import Producer

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.integration.idioms import PARTITIONS, PROGRAMS, VALUES, Program
from tests.support.kafka import create_topic, unique

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> str:
    """A topic whose partitions have the same records: keys, headers, tombstones and empty values among them."""
    name = create_topic(kafka.bootstrap_servers, unique("idioms"), PARTITIONS)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, value in enumerate(VALUES):
        for partition in range(PARTITIONS):
            key = b"key-%d" % number if number % 2 else None
            producer.produce(name, value, key, partition, headers={"number": b"%d" % number} if number % 3 else None)
    assert producer.flush(60) == 0
    return name


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_sees_the_same_with_either_consumer(kafka: Broker, topic: str, program: Program, protocol: str) -> None:
    """Records with all their fields, results, callbacks, committed offsets and exceptions are equal."""
    settings: dict[str, object] = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
    }
    theirs = program(confluent_kafka.Consumer, settings | {"group.id": unique("raw")}, topic)
    ours = program(Consumer, settings | {"group.id": unique("ours")}, topic)
    assert ours == theirs
