"""A look-up of librdkafka's that was cut short does not move a partition that has another start by then.

What librdkafka makes of its late answer, and resets of a position that is gone, which the mock cluster reports
otherwise than a broker, are in `integration/test_cut_short_resets.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, OFFSET_STORED, KafkaError, KafkaException
from confluent_kafka import Consumer as Confluent
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.runtime.application.look_ups import LookUps
from consumer_membership.types import TopicPartition
from tests.clients.application import at, drain, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer
from tests.support.mock_cluster import MockCluster
from tests.support.proxy import LIST_OFFSETS, Proxy
from tests.support.waiting import PATIENCE_S, wait_until

_COMMITTED = 8
#: librdkafka's number for a partition that it does not know.
_UNKNOWN = -190


@pytest.fixture
def network(cluster: MockCluster) -> Iterator[Proxy]:
    """The network between the mock cluster and this package's consumer."""
    with Proxy(cluster.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def its_network(cluster: MockCluster) -> Iterator[Proxy]:
    """That of librdkafka alone: neither's look-up holds up the other one."""
    with Proxy(cluster.bootstrap_servers) as proxy:
        yield proxy


def by_group(consumer: ScriptedConsumer, topic: str) -> None:
    """The group takes the partition, and gives it again when somebody has committed."""
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    consumer.poll(0)
    assert consumer.assignment() == []
    consumer.member.assign({at(topic, 0)[0]: _COMMITTED})


def by_seek(consumer: ScriptedConsumer, topic: str) -> None:
    """The application goes elsewhere."""
    consumer.seek(PartitionOffset(topic, 0, _COMMITTED))


@pytest.mark.parametrize("begins_elsewhere", [by_group, by_seek])
def test_groups_partition_begins_where_it_was_given_or_sought(
    consumers: ConsumerFactory,
    network: Proxy,
    its_network: Proxy,
    topic: str,
    begins_elsewhere: Callable[[ScriptedConsumer, str], None],
) -> None:
    """And every record comes once; librdkafka alone, on a network that does the same, begins anew meanwhile."""
    alone = Confluent({"bootstrap.servers": its_network.address, "group.id": "alone", "log_level": 0})
    consumer = subscribed(consumers, topic, [], bootstrap_servers=network.address)
    for each in (alone, consumer):
        each.get_watermark_offsets(PartitionOffset(topic, 0), PATIENCE_S)
    for each_network in (network, its_network):
        each_network.hold_from(LIST_OFFSETS)
    alone.assign([PartitionOffset(topic, 0, OFFSET_BEGINNING)])
    # As the network says where a partition starts whose leader does not tell it.
    consumer.member.assign({at(topic, 0)[0]: OFFSET_BEGINNING})
    consumer.poll(0)
    network.wait(lambda: network.held[LIST_OFFSETS] == 1, "its beginning being looked up")
    its_network.wait(lambda: its_network.held[LIST_OFFSETS] == 1, "the other one's beginning being looked up")
    alone.unassign()
    alone.assign([PartitionOffset(topic, 0, _COMMITTED)])
    begins_elsewhere(consumer, topic)
    # Nothing can come yet.
    assert consumer.poll(0) is None
    network.heal()
    its_network.heal()
    given = [record(consumer).offset() for _ in range(RECORDS - _COMMITTED)]
    wait_until(lambda: begins_anew(alone), "librdkafka alone at the first record", PATIENCE_S)
    alone.close()
    assert given == list(range(_COMMITTED, RECORDS))
    assert drain(consumer) == []


def begins_anew(alone: Confluent) -> bool:
    """Whether it is at the first record."""
    return 0 in [message.offset() for message in alone.consume(RECORDS, 0.1)]


def test_idle_partition_that_comes_back_is_fetched_by_the_same_handle(consumers: ConsumerFactory, topic: str) -> None:
    """Nothing is looked up where the group gives numbers, whether a record came or not."""
    consumer = subscribed(consumers, topic, [])
    handle = consumer._session.fetcher.handle  # type: ignore[union-attr]
    consumer.member.assign(dict.fromkeys(at(topic, 0), RECORDS))
    assert drain(consumer) == []
    by_group(consumer, topic)
    assert drain(consumer, RECORDS - _COMMITTED) == [(0, offset) for offset in range(_COMMITTED, RECORDS)]
    assert consumer._session.fetcher.handle is handle  # type: ignore[union-attr]


class Handle:
    """Stands for librdkafka's: it has heard of this end of each partition; None: it does not know the partition."""

    def __init__(self, end: int | None) -> None:
        self.end = end

    def get_watermark_offsets(self, partition: PartitionOffset, *, cached: bool) -> tuple[int, int]:
        """What is known without asking."""
        assert cached
        if self.end is None:
            raise KafkaException(KafkaError(_UNKNOWN, partition.topic))
        return self.end, self.end


PLACE = TopicPartition("t", 0)


def mislead(look_ups: LookUps, end: int | None) -> bool:
    """Whether a look-up may mislead when the partition begins while this end is known."""
    look_ups.begins(cast("LibrdkafkaConsumer", Handle(end)), PLACE)
    return look_ups.has_stale_lookup


@pytest.mark.parametrize(("end", "does"), [(None, False), (OFFSET_INVALID, False), (-1, True), (0, False), (7, False)])
def test_partition_that_begins_after_an_error_may_be_being_reset(end: int | None, *, does: bool) -> None:
    """A broker tells no end with an error, such as that the position is gone."""
    assert mislead(LookUps(resets_by_itself=True), end) is does


def test_handle_that_never_resets_by_itself_looks_nothing_up_after_an_error() -> None:
    """`auto.offset.reset` is `error`, or a duration."""
    assert not mislead(LookUps(resets_by_itself=False), -1)


@pytest.mark.parametrize(
    ("is_of_group", "end", "does"),
    [
        (False, OFFSET_INVALID, True),
        (False, -1, True),
        (False, 7, False),
        (True, OFFSET_INVALID, True),
        (True, 7, True),
    ],
)
def test_logical_start_that_is_given_up_counts_until_the_partition_is_fetched(
    *, is_of_group: bool, end: int, does: bool
) -> None:
    """The group's counts always, and once: another handle knows nothing of it."""
    look_ups = LookUps(resets_by_itself=True)
    if is_of_group:
        look_ups.left_to_handle(PLACE)
    look_ups.cut_short(cast("LibrdkafkaConsumer", Handle(end)), PLACE, OFFSET_BEGINNING)
    assert not look_ups.has_stale_lookup
    assert mislead(look_ups, 7) is does
    look_ups.forget()
    assert not mislead(look_ups, 7)


@pytest.mark.parametrize(
    ("resets_by_itself", "start", "does"),
    [
        (True, OFFSET_STORED, True),
        (False, OFFSET_STORED, False),
        (False, OFFSET_INVALID, False),
        (False, OFFSET_BEGINNING, True),
        (False, OFFSET_END, True),
    ],
)
def test_handle_that_never_resets_by_itself_looks_up_what_it_is_told_alone(
    *, resets_by_itself: bool, start: int, does: bool
) -> None:
    """Under `auto.offset.reset=error` a program seeks when it hears that nothing is committed: that costs nothing."""
    look_ups = LookUps(resets_by_itself=resets_by_itself)
    look_ups.left_to_handle(PLACE)
    look_ups.cut_short(cast("LibrdkafkaConsumer", Handle(OFFSET_INVALID)), PLACE, start)
    assert mislead(look_ups, 7) is does
