"""No record of a subscription is returned after its end, although the group revokes its partitions later.

`tests/integration/test_given_up_subscription.py` compares both clients on a real broker.
"""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.membership.effects import LeaveCompleted
from consumer_membership.membership.events import Step
from consumer_membership.membership.states import MemberState
from tests.clients.application import SILENCE_S, Called, at, drain, held, record, subscribed
from tests.clients.conftest import PARTITIONS, RECORDS, ConsumerFactory, filled
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.mock_cluster import MockCluster


@pytest.fixture(scope="session")
def other(cluster: MockCluster) -> str:
    """Another topic."""
    return filled(cluster, "others")


def holding(consumers: ConsumerFactory, topic: str, calls: Called, **config: Any) -> ScriptedConsumer:
    """A consumer that owns partitions 0 and 1, returned one record, and has the rest in its buffer or its handle."""
    consumer = subscribed(consumers, topic, calls, **config)
    consumer.member.confirms_leaves = False
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    record(consumer)
    return consumer


def left(consumer: ScriptedConsumer) -> None:
    """Simulate the end of a leave."""
    consumer.member.pause(None)
    consumer.member.revoke(None)
    consumer.member.order(LeaveCompleted())
    consumer.member.in_state(MemberState.UNSUBSCRIBED)


def test_poll_and_consume_return_no_record_after_unsubscribe(consumers: ConsumerFactory, topic: str) -> None:
    """No record comes from the buffer or the handle, and on_revoke is called as usual."""
    calls: Called = []
    consumer = holding(consumers, topic, calls)
    consumer.unsubscribe()
    assert consumer.poll(0) is None
    assert consumer.consume(1000, SILENCE_S) == []
    assert held(consumer) == [0, 1]
    left(consumer)
    assert consumer.poll(SILENCE_S) is None
    assert (calls, held(consumer)) == ([("assign", [0, 1]), ("revoke", [0, 1])], [])


@pytest.mark.parametrize("stores", [True, False])
def test_unsubscribe_commits_only_returned_records(consumers: ConsumerFactory, topic: str, *, stores: bool) -> None:
    """Buffered records do not count as consumed."""
    calls: Called = []
    consumer = holding(consumers, topic, calls, enable_auto_offset_store=stores)
    read = {
        one.partition: 1
        for one in consumer.position([PartitionOffset(topic, 0), PartitionOffset(topic, 1)])
        if one.offset == 1
    }
    assert len(read) == 1
    if not stores:
        consumer.store_offsets(offsets=[PartitionOffset(topic, 0, 1)])
    consumer.unsubscribe()
    consumer.poll(0)
    left(consumer)
    consumer.poll(0)
    (pause, _) = (step for step in consumer.member.steps if step.step in (Step.PAUSE, Step.REVOKE))
    expected = read if stores else {0: 1}
    assert {partition.partition: value.offset for partition, value in pause.offsets.items()} == expected


def test_immediate_resubscribe_returns_no_record_of_the_former_subscription(
    consumers: ConsumerFactory, topic: str, other: str
) -> None:
    """For the same topic or another one, records start where the next assignment starts."""
    for following in (topic, other):
        calls: Called = []
        consumer = holding(consumers, topic, calls)
        consumer.unsubscribe()
        consumer.subscribe([following])
        assert consumer.poll(SILENCE_S) is None
        left(consumer)
        assert consumer.poll(SILENCE_S) is None
        consumer.member.assign(dict.fromkeys(at(following, 0), 48))
        assert drain(consumer, 2) == [(0, 48), (0, 49)]


def test_subscription_to_other_topics_stops_records_of_dropped_topics(
    consumers: ConsumerFactory, topic: str, other: str
) -> None:
    """KAFKA-19356: Records of a dropped topic stop although the member still owns it; other topics continue."""
    consumer = holding(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(other, 3), 40))
    consumer.subscribe([other])
    assert drain(consumer, 10) == [(3, value) for value in range(40, RECORDS)]
    assert [one.topic for one in consumer.assignment()] == [other, topic, topic]


def test_resubscribe_before_the_revocation_returns_the_withheld_records(
    consumers: ConsumerFactory, topic: str, other: str
) -> None:
    """The group has not revoked the partitions yet: withheld records come in order, and none is repeated."""
    consumer = subscribed(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(topic, *range(PARTITIONS)), 0))
    first = record(consumer)
    consumer.subscribe([other])
    assert consumer.poll(SILENCE_S) is None
    consumer.subscribe([topic])
    rest = drain(consumer, PARTITIONS * RECORDS - 1)
    came = [(first.partition(), first.offset()), *rest]
    assert sorted(came) == [(partition, value) for partition in range(PARTITIONS) for value in range(RECORDS)]
    for number in range(PARTITIONS):
        assert [value for partition, value in came if partition == number] == list(range(RECORDS))


def test_assignment_that_arrives_after_unsubscribe_returns_no_record(consumers: ConsumerFactory, topic: str) -> None:
    """The assignment was in flight: on_assign is called, and no record is returned."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.confirms_leaves = False
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    consumer.unsubscribe()
    assert consumer.poll(SILENCE_S) is None
    assert (calls, held(consumer)) == ([("assign", [0, 1])], [0, 1])


def test_unsubscribe_inside_on_assign_returns_no_record(consumers: ConsumerFactory, topic: str) -> None:
    """An `unsubscribe` inside on_assign has the same effect as one after it."""
    consumer = subscribed(consumers, topic, [], lambda name, given: name == "assign" and given.unsubscribe())  # type: ignore[arg-type]  # not used
    consumer.member.confirms_leaves = False
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    assert consumer.poll(SILENCE_S) is None


def test_pattern_subscription_returns_records_of_all_assigned_topics(consumers: ConsumerFactory, topic: str) -> None:
    """The group decides which topics a pattern matches."""
    consumer = holding(consumers, topic, [])
    consumer.subscribe([f"^{topic[:3]}.*"])
    assert len(drain(consumer, 2 * RECORDS - 1)) == 2 * RECORDS - 1


def test_pause_resume_and_seek_return_no_record_of_a_dropped_topic(consumers: ConsumerFactory, topic: str) -> None:
    """A partition that is withheld for two reasons returns records only after both have ended."""
    consumer = holding(consumers, topic, [])
    consumer.subscribe(["elsewhere"])
    consumer.pause([PartitionOffset(topic, 0)])
    consumer.resume([PartitionOffset(topic, 0), PartitionOffset(topic, 1)])
    consumer.seek(PartitionOffset(topic, 1, 30))
    assert consumer.poll(SILENCE_S) is None
    consumer.pause([PartitionOffset(topic, 0)])
    consumer.subscribe([topic])
    assert drain(consumer, 20) == [(1, value) for value in range(30, RECORDS)]
    consumer.resume([PartitionOffset(topic, 0)])
    rest = drain(consumer, RECORDS - 1)
    assert {partition for partition, _ in rest} == {0}
    assert [value for _, value in rest] == list(range(RECORDS))[-len(rest) :]


def test_unsubscribe_keeps_manually_assigned_partitions(consumers: ConsumerFactory, topic: str) -> None:
    """A subscription neither assigns nor revokes manually assigned partitions."""
    consumer = subscribed(consumers, "elsewhere", [])
    consumer.incremental_assign([PartitionOffset(topic, 0, 45)])
    consumer.unsubscribe()
    assert drain(consumer, 5) == [(0, value) for value in range(45, RECORDS)]


def test_unsubscribe_stops_records_of_a_poll_in_another_thread(consumers: ConsumerFactory, topic: str) -> None:
    """No poll returns a record after `unsubscribe` has returned in another thread."""
    consumer = holding(consumers, topic, [])
    Thread(consumer.unsubscribe).outcome()
    assert consumer.poll(SILENCE_S) is None
