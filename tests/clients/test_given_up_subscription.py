"""Nothing of a subscription is handed out after it was given up, although the group takes its partitions only later.

Beside confluent-kafka, on a real broker: `tests/integration/test_given_up_subscription.py`.
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
    """A consumer that holds partitions 0 and 1, was handed one record, and has the rest in its buffer or its handle."""
    consumer = subscribed(consumers, topic, calls, **config)
    consumer.member.confirms_leaves = False
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    record(consumer)
    return consumer


def left(consumer: ScriptedConsumer) -> None:
    """Play the end of a leave."""
    consumer.member.pause(None)
    consumer.member.revoke(None)
    consumer.member.order(LeaveCompleted())
    consumer.member.in_state(MemberState.UNSUBSCRIBED)


def test_nothing_comes_after_unsubscribe(consumers: ConsumerFactory, topic: str) -> None:
    """Neither from the buffer nor from the handle, by `poll` and by `consume`; the revocation is told as ever."""
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
def test_what_was_handed_out_is_what_is_committed(consumers: ConsumerFactory, topic: str, *, stores: bool) -> None:
    """The records that wait in the buffer do not count as consumed."""
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


def test_subscribing_again_at_once_brings_nothing_of_the_old_one(
    consumers: ConsumerFactory, topic: str, other: str
) -> None:
    """The same topic or another one: records come from where the next assignment starts."""
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


def test_other_topics_take_the_place_of_what_is_read(consumers: ConsumerFactory, topic: str, other: str) -> None:
    """KAFKA-19356: what is subscribed no more does not come, although the member still owns it; the rest goes on."""
    consumer = holding(consumers, topic, [])
    consumer.member.assign(dict.fromkeys(at(other, 3), 40))
    consumer.subscribe([other])
    assert drain(consumer, 10) == [(3, value) for value in range(40, RECORDS)]
    assert [one.topic for one in consumer.assignment()] == [other, topic, topic]


def test_change_of_mind_loses_nothing(consumers: ConsumerFactory, topic: str, other: str) -> None:
    """Subscribed again before the group took the partitions: what was held back comes, in order, and nothing twice."""
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


def test_what_still_arrives_for_it_is_held_back(consumers: ConsumerFactory, topic: str) -> None:
    """An assignment was on its way when the application unsubscribed: it is told, and nothing of it comes."""
    calls: Called = []
    consumer = subscribed(consumers, topic, calls)
    consumer.member.confirms_leaves = False
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    consumer.unsubscribe()
    assert consumer.poll(SILENCE_S) is None
    assert (calls, held(consumer)) == ([("assign", [0, 1])], [0, 1])


def test_unsubscribing_inside_on_assign(consumers: ConsumerFactory, topic: str) -> None:
    """As if it came behind it."""
    consumer = subscribed(consumers, topic, [], lambda name, given: name == "assign" and given.unsubscribe())  # type: ignore[arg-type]  # nobody looks at it
    consumer.member.confirms_leaves = False
    consumer.member.assign(dict.fromkeys(at(topic, 0, 1), 0))
    assert consumer.poll(SILENCE_S) is None


def test_pattern_hands_out_whatever_the_group_gives(consumers: ConsumerFactory, topic: str) -> None:
    """Which topics it means is the group's to say."""
    consumer = holding(consumers, topic, [])
    consumer.subscribe([f"^{topic[:3]}.*"])
    assert len(drain(consumer, 2 * RECORDS - 1)) == 2 * RECORDS - 1


def test_pause_and_seek_meanwhile_hand_out_nothing(consumers: ConsumerFactory, topic: str) -> None:
    """Held back for two reasons, a partition waits for the end of both."""
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


def test_partitions_by_hand_are_the_application_s(consumers: ConsumerFactory, topic: str) -> None:
    """No subscription gives them, and none takes them."""
    consumer = subscribed(consumers, "elsewhere", [])
    consumer.incremental_assign([PartitionOffset(topic, 0, 45)])
    consumer.unsubscribe()
    assert drain(consumer, 5) == [(0, value) for value in range(45, RECORDS)]


def test_another_thread_that_polls_gets_nothing_more(consumers: ConsumerFactory, topic: str) -> None:
    """When `unsubscribe` has returned."""
    consumer = holding(consumers, topic, [])
    Thread(consumer.unsubscribe).outcome()
    assert consumer.poll(SILENCE_S) is None
