"""A partition starts at the offset that its application commits inside on_assign, as with confluent-kafka.

`tests/integration/test_commit_in_on_assign.py` compares both clients on a real broker.
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
    """Return a consumer that is assigned partitions 0 and 1 at offset 40, and calls `in_on_assign` in on_assign."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls, lambda name, given: name == "assign" and in_on_assign(given))  # type: ignore[arg-type]  # not used
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 40))
    return consumer


def firsts(consumer: ScriptedConsumer, count: int) -> dict[int, int]:
    """Return the first offset of each partition among at least this many records."""
    found: dict[int, int] = {}
    for partition, value in drain(consumer, count):
        found.setdefault(partition, value)
    return found


def test_synchronous_commit_in_on_assign_sets_the_start_offset(consumers: ConsumerFactory, topic: str) -> None:
    """The partition starts at the new commit; the other one starts at the group's committed offset."""
    consumer = started(
        consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)], asynchronous=False)
    )
    assert firsts(consumer, 15) == {0: 45, 1: 40}


def test_asynchronous_commit_in_on_assign_sets_the_start_offset(consumers: ConsumerFactory, topic: str) -> None:
    """The consumer waits for the response, because the coordinator may refuse the commit."""
    consumer = started(consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)]))
    consumer.member.answers_commits = False
    polling = Thread(lambda: firsts(consumer, 15))
    (request,) = consumer.member.wait_for(CommitRequested)
    assert not consumer.member.steps
    consumer.member.answer_commit(request)
    consumer.member.wait_for(StepFinished)
    assert polling.outcome() == {0: 45, 1: 40}


def test_refused_commit_in_on_assign_keeps_the_start_offset(consumers: ConsumerFactory, topic: str) -> None:
    """The partition starts at the group's committed offset."""
    consumer = started(consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)]))
    consumer.member.commit_error = BrokerError(code=12, name="OFFSET_METADATA_TOO_LARGE")
    assert firsts(consumer, 20) == {0: 40, 1: 40}


@pytest.mark.slow
def test_unanswered_commit_in_on_assign_sets_the_start_offset_after_seconds(
    consumers: ConsumerFactory, topic: str
) -> None:
    """An unreachable coordinator delays the poll by only a few seconds."""
    consumer = started(consumers, topic, lambda given: given.commit(offsets=[PartitionOffset(topic, 0, 45)]))
    consumer.member.answers_commits = False
    assert firsts(consumer, 15) == {0: 45, 1: 40}


def test_assign_without_offsets_in_on_assign_starts_at_the_new_commit(consumers: ConsumerFactory, topic: str) -> None:
    """After a commit, an assignment without offsets uses the offsets that the group has committed by then."""

    def in_on_assign(given: Consumer) -> None:
        given.commit(offsets=[PartitionOffset(topic, 0, 45)])
        given.incremental_assign([PartitionOffset(topic, 0), PartitionOffset(topic, 1, OFFSET_STORED)])

    consumer = started(consumers, topic, in_on_assign)
    assert firsts(consumer, 15) == {0: 45, 1: 40}
    assert [one.offset for one in consumer.assignment()] == [OFFSET_STORED, OFFSET_STORED]


def test_assigned_offset_in_on_assign_overrides_the_commit(consumers: ConsumerFactory, topic: str) -> None:
    """An explicit offset of `assign` takes precedence over a commit in the same callback."""

    def in_on_assign(given: Consumer) -> None:
        given.commit(offsets=[PartitionOffset(topic, 0, 45)], asynchronous=False)
        given.assign([PartitionOffset(topic, 0, 48), PartitionOffset(topic, 1)])

    assert firsts(started(consumers, topic, in_on_assign), RECORDS - 48) == {0: 48, 1: 40}


def test_commit_before_the_assignment_keeps_the_start_offset(consumers: ConsumerFactory, topic: str) -> None:
    """The group's later committed offset is used, because another member may have owned the partition meanwhile."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.commit(offsets=[PartitionOffset(topic, 0, 45)], asynchronous=False)
    consumer.member.assign(dict.fromkeys(at(topic, 0), 48))
    assert firsts(consumer, 2) == {0: 48}
