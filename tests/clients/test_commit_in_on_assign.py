"""What an application commits inside its on_assign is where the partition starts, as with confluent-kafka.

Beside confluent-kafka, on a real broker: `tests/integration/test_commit_in_on_assign.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_STORED
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.membership.events import CommitRequested, StepFinished
from consumer_membership.types import BrokerError
from tests.clients.application import Called, at, drain, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread


def started(consumers: ConsumerFactory, topic: str, in_on_assign: Callable[[Consumer], object]) -> ScriptedConsumer:
    """A consumer that was given partitions 0 and 1 at offset 40, and does this in its on_assign."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls, lambda name, given: name == "assign" and in_on_assign(given))  # type: ignore[arg-type]  # nobody looks at it
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 40))
    return consumer


def firsts(consumer: ScriptedConsumer, count: int) -> dict[int, int]:
    """The first offset of each partition, of so many records at least."""
    found: dict[int, int] = {}
    for partition, value in drain(consumer, count):
        found.setdefault(partition, value)
    return found


def test_partition_starts_at_what_is_committed_synchronously(consumers: ConsumerFactory, topic: str) -> None:
    """The other one starts where the group left off."""
    consumer = started(
        consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)], asynchronous=False)
    )
    assert firsts(consumer, 15) == {0: 45, 1: 40}


def test_partition_starts_at_what_is_committed_asynchronously(consumers: ConsumerFactory, topic: str) -> None:
    """Its answer is waited for: the coordinator may refuse it."""
    consumer = started(consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)]))
    consumer.member.answers_commits = False
    polling = Thread(lambda: firsts(consumer, 15))
    (request,) = consumer.member.wait_for(CommitRequested)
    assert not consumer.member.steps
    consumer.member.answer_commit(request)
    consumer.member.wait_for(StepFinished)
    assert polling.outcome() == {0: 45, 1: 40}


def test_refused_commit_moves_nothing(consumers: ConsumerFactory, topic: str) -> None:
    """The partition starts where the group left off."""
    consumer = started(consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)]))
    consumer.member.commit_error = BrokerError(code=12, name="OFFSET_METADATA_TOO_LARGE")
    assert firsts(consumer, 20) == {0: 40, 1: 40}


@pytest.mark.slow
def test_unanswered_commit_is_where_the_application_wants_to_start(consumers: ConsumerFactory, topic: str) -> None:
    """A coordinator that is away does not hold up the poll for longer than a few seconds."""
    consumer = started(consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)]))
    consumer.member.answers_commits = False
    assert firsts(consumer, 15) == {0: 45, 1: 40}


def test_assigning_what_was_committed_starts_there(consumers: ConsumerFactory, topic: str) -> None:
    """Inside on_assign: commit, then assign without offsets, which mean what the group has committed by then."""

    def in_on_assign(given: Consumer) -> None:
        given.commit(offsets=[PartitionOffset(topic, 0, 45)])
        given.incremental_assign([PartitionOffset(topic, 0), PartitionOffset(topic, 1, OFFSET_STORED)])

    consumer = started(consumers, topic, in_on_assign)
    assert firsts(consumer, 15) == {0: 45, 1: 40}
    assert [one.offset for one in consumer.assignment()] == [OFFSET_STORED, OFFSET_STORED]


def test_offset_that_is_assigned_wins(consumers: ConsumerFactory, topic: str) -> None:
    """Over the one that is committed beside it."""

    def in_on_assign(given: Consumer) -> None:
        given.commit(offsets=[PartitionOffset(topic, 0, 45)], asynchronous=False)
        given.assign([PartitionOffset(topic, 0, 48), PartitionOffset(topic, 1)])

    assert firsts(started(consumers, topic, in_on_assign), RECORDS - 48) == {0: 48, 1: 40}


def test_commit_of_an_earlier_time_moves_nothing(consumers: ConsumerFactory, topic: str) -> None:
    """The partition was another member's meanwhile: what the group has committed since is good."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.commit(offsets=[PartitionOffset(topic, 0, 45)], asynchronous=False)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    assert firsts(consumer, 2) == {0: 48}
