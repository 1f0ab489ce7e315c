"""Consumers with `membership.threads=shared` on a real broker: one thread, and each with its own group and records."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 20


def shared_threads() -> int:
    """How many shared membership threads this process has."""
    return [thread.name for thread in threading.enumerate()].count("membership")


@pytest.fixture
def topic(kafka: Broker) -> str:
    """A topic with some records in two partitions."""
    made = create_topic(kafka.bootstrap_servers, unique("topic"), 2)
    produce(kafka.bootstrap_servers, made, RECORDS)
    return made


@pytest.fixture(params=["consumer", "classic"])
def consumers(kafka: Broker, topic: str, request: pytest.FixtureRequest) -> Iterator[list[Consumer]]:
    """Four consumers of two groups, which read this topic."""
    groups = unique("group"), unique("group")
    with ExitStack() as closing:
        made = [
            closing.enter_context(
                Consumer(
                    {
                        "bootstrap.servers": kafka.bootstrap_servers,
                        "group.id": group,
                        "group.protocol": request.param,
                        "auto.offset.reset": "earliest",
                        "heartbeat.interval.ms": 200,
                        "membership.threads": "shared",
                    }
                )
            )
            for group in groups * 2
        ]
        for consumer in made:
            consumer.subscribe([topic])
        yield made
    assert shared_threads() == 0


def test_consumers_on_a_shared_thread_read_commit_and_leave_by_themselves(consumers: list[Consumer]) -> None:
    """Each group receives all records once; when a consumer closes, its group continues, and no other one notices."""
    received: dict[str, set[tuple[int, int]]] = {}

    def poll() -> None:
        for consumer in consumers:
            record = consumer.poll(0.01)
            if record is not None:
                assert record.error() is None
                place = record.partition() or 0, record.offset() or 0
                assert place not in received.setdefault(consumer.membership().group_id, set())
                received[consumer.membership().group_id].add(place)

    def owned() -> list[int]:
        return [len(consumer.membership().owned) for consumer in consumers]

    wait_until(lambda: owned() == [1, 1, 1, 1], "one partition each", between=poll, seen=owned)
    wait_until(lambda: [len(places) for places in received.values()] == [RECORDS, RECORDS], "all records", between=poll)
    assert shared_threads() == 1
    for consumer in consumers:
        assigned = consumer.assignment()
        for partition in assigned:
            partition.offset = 1
        consumer.commit(offsets=assigned, asynchronous=False)
    epochs = [consumer.membership().member_epoch for consumer in consumers]
    consumers.pop(0).close()  # its group is that of the third one
    wait_until(lambda: owned() == [1, 2, 1], "both partitions with the remaining member", between=poll, seen=owned)
    assert [consumers[index].membership().member_epoch for index in (0, 2)] == [epochs[1], epochs[3]]
    assert shared_threads() == 1
