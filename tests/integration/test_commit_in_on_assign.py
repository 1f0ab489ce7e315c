"""Commits inside on_assign, beside confluent-kafka: where the partitions start under both protocols."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: Either consumer: the calls are the same.
AnyConsumer = Any

PROTOCOLS = {
    "consumer": {"group.protocol": "consumer"},
    "eager": {"group.protocol": "classic"},
    "cooperative": {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
}


Assign = Callable[[list[Partition]], object]
Habit = Callable[[AnyConsumer, list[Partition], Assign], None]


def at(offset: int, partitions: list[Partition]) -> list[Partition]:
    """The same partitions at this offset."""
    return [Partition(one.topic, one.partition, offset) for one in partitions]


def commit_and_wait(consumer: AnyConsumer, partitions: list[Partition], _: Assign) -> None:
    """Commit synchronously."""
    consumer.commit(offsets=at(7, partitions), asynchronous=False)


def commit_and_go_on(consumer: AnyConsumer, partitions: list[Partition], _: Assign) -> None:
    """Commit asynchronously."""
    consumer.commit(offsets=at(7, partitions))


def commit_one(consumer: AnyConsumer, partitions: list[Partition], _: Assign) -> None:
    """Commit one of the two partitions."""
    consumer.commit(offsets=at(7, partitions[:1]), asynchronous=False)


def commit_then_assign(consumer: AnyConsumer, partitions: list[Partition], assign: Assign) -> None:
    """Commit, then assign without offsets."""
    consumer.commit(offsets=at(7, partitions))
    assign(partitions)


def commit_then_assign_elsewhere(consumer: AnyConsumer, partitions: list[Partition], assign: Assign) -> None:
    """Commit, then assign another offset, which wins."""
    consumer.commit(offsets=at(7, partitions), asynchronous=False)
    assign(at(9, partitions))


def assign_then_commit(consumer: AnyConsumer, partitions: list[Partition], assign: Assign) -> None:
    """Assign first; the later commit has no effect on the start."""
    assign(partitions)
    consumer.commit(offsets=at(7, partitions), asynchronous=False)


HABITS: dict[Habit, dict[int, int]] = {
    commit_and_wait: {0: 7, 1: 7},
    commit_and_go_on: {0: 7, 1: 7},
    commit_one: {0: 7, 1: 0},
    commit_then_assign: {0: 7, 1: 7},
    commit_then_assign_elsewhere: {0: 9, 1: 9},
    assign_then_commit: {0: 0, 1: 0},
}


def starts(kind: Callable[..., AnyConsumer], config: dict[str, Any], topic: str, habit: Habit) -> tuple[object, object]:
    """The first offset of each partition, and the partitions of `assignment()`."""
    found: dict[int, int] = {}
    is_eager = config.get("group.protocol") == "classic" and "partition.assignment.strategy" not in config
    with closing(kind({**config, "group.id": unique("group")})) as consumer:

        def on_assign(given: AnyConsumer, partitions: list[Partition]) -> None:
            # The method that confluent-kafka requires under the protocol.
            assign = given.assign if is_eager else given.incremental_assign
            habit(given, sorted(partitions, key=lambda one: one.partition), assign)

        consumer.subscribe([topic], on_assign=on_assign)

        def poll() -> None:
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None
                found.setdefault(message.partition(), message.offset())

        wait_until(lambda: len(found) == 2, "a record of each partition", between=poll, seen=lambda: found)
        shown = sorted((one.partition, one.offset) for one in consumer.assignment())
    return dict(sorted(found.items())), shown


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("habit", HABITS)
def test_commit_in_on_assign_starts_partitions_where_confluent_kafka_does(
    kafka: Broker, protocol: str, habit: Habit
) -> None:
    """Partitions start where confluent-kafka's do, for each order of commits and assignments in on_assign."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    produce(kafka.bootstrap_servers, topic, 40)
    config = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **PROTOCOLS[protocol],
    }
    theirs, ours = (starts(kind, config, topic, habit) for kind in (confluent_kafka.Consumer, Consumer))
    assert ours == theirs
    assert ours[0] == HABITS[habit]
