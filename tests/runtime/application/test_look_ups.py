"""An interrupted offset lookup of librdkafka does not move a partition that has received another start since.

`integration/test_cut_short_resets.py` tests librdkafka's own reaction to the late response, and resets of a position
that no longer exists, which the mock cluster reports differently from a broker.
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
#: librdkafka's partition number for an unknown partition.
_UNKNOWN = -190


@pytest.fixture
def network(cluster: MockCluster) -> Iterator[Proxy]:
    """The network between the mock cluster and this package's consumer."""
    with Proxy(cluster.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def librdkafka_network(cluster: MockCluster) -> Iterator[Proxy]:
    """The network of a librdkafka consumer without this package, so that neither lookup delays the other."""
    with Proxy(cluster.bootstrap_servers) as proxy:
        yield proxy


def by_group(consumer: ScriptedConsumer, topic: str) -> None:
    """The group revokes the partition and assigns it again with a committed offset."""
    consumer.member.pause(at(topic, 0))
    consumer.member.revoke(at(topic, 0))
    consumer.poll(0)
    assert consumer.assignment() == []
    consumer.member.assign({at(topic, 0)[0]: _COMMITTED})


def by_seek(consumer: ScriptedConsumer, topic: str) -> None:
    """The application seeks."""
    consumer.seek(PartitionOffset(topic, 0, _COMMITTED))


@pytest.mark.parametrize("begins_elsewhere", [by_group, by_seek])
def test_partition_starts_at_its_new_offset_despite_a_late_offset_lookup(
    consumers: ConsumerFactory,
    network: Proxy,
    librdkafka_network: Proxy,
    topic: str,
    begins_elsewhere: Callable[[ScriptedConsumer, str], None],
) -> None:
    """Every record is delivered once.

    With the same delay, librdkafka without this package starts again at the first record.
    """
    alone = Confluent({"bootstrap.servers": librdkafka_network.address, "group.id": "alone", "log_level": 0})
    consumer = subscribed(consumers, topic, [], bootstrap_servers=network.address)
    for each in (alone, consumer):
        each.get_watermark_offsets(PartitionOffset(topic, 0), PATIENCE_S)
    for each_network in (network, librdkafka_network):
        each_network.hold_from(LIST_OFFSETS)
    alone.assign([PartitionOffset(topic, 0, OFFSET_BEGINNING)])
    # The network thread orders this start for a partition whose leader does not return the start offset.
    consumer.member.assign({at(topic, 0)[0]: OFFSET_BEGINNING})
    consumer.poll(0)
    network.wait(lambda: network.held[LIST_OFFSETS] == 1, "a lookup of the start offset by this package's consumer")
    librdkafka_network.wait(
        lambda: librdkafka_network.held[LIST_OFFSETS] == 1, "a lookup of the start offset by librdkafka alone"
    )
    alone.unassign()
    alone.assign([PartitionOffset(topic, 0, _COMMITTED)])
    begins_elsewhere(consumer, topic)
    # No record can arrive yet.
    assert consumer.poll(0) is None
    network.heal()
    librdkafka_network.heal()
    given = [record(consumer).offset() for _ in range(RECORDS - _COMMITTED)]
    wait_until(lambda: restarts_at_the_first_record(alone), "the first record at librdkafka alone", PATIENCE_S)
    alone.close()
    assert given == list(range(_COMMITTED, RECORDS))
    assert drain(consumer) == []


def restarts_at_the_first_record(alone: Confluent) -> bool:
    """Return whether the consumer returns the first record again."""
    return 0 in [message.offset() for message in alone.consume(RECORDS, 0.1)]


def test_reassigned_idle_partition_is_fetched_by_the_same_handle(consumers: ConsumerFactory, topic: str) -> None:
    """A partition with a numeric offset from the group needs no lookup, whether or not a record arrived before."""
    consumer = subscribed(consumers, topic, [])
    handle = consumer._session.fetcher.handle  # type: ignore[union-attr]
    consumer.member.assign(dict.fromkeys(at(topic, 0), RECORDS))
    assert drain(consumer) == []
    by_group(consumer, topic)
    assert drain(consumer, RECORDS - _COMMITTED) == [(0, offset) for offset in range(_COMMITTED, RECORDS)]
    assert consumer._session.fetcher.handle is handle  # type: ignore[union-attr]


class Handle:
    """A substitute for librdkafka's handle that knows this end of each partition; None means an unknown partition."""

    def __init__(self, end: int | None) -> None:
        self.end = end

    def get_watermark_offsets(self, partition: PartitionOffset, *, cached: bool) -> tuple[int, int]:
        """Return the end offset that the handle knows without a request."""
        assert cached
        if self.end is None:
            raise KafkaException(KafkaError(_UNKNOWN, partition.topic))
        return self.end, self.end


PLACE = TopicPartition("t", 0)


def may_mislead(look_ups: LookUps, end: int | None) -> bool:
    """Return whether a late lookup may move the partition if it starts while this end is known."""
    look_ups.begins(cast("LibrdkafkaConsumer", Handle(end)), PLACE)
    return look_ups.has_stale_lookup


@pytest.mark.parametrize(("end", "does"), [(None, False), (OFFSET_INVALID, False), (-1, True), (0, False), (7, False)])
def test_look_ups_expect_a_reset_of_a_partition_that_starts_after_an_error(end: int | None, *, does: bool) -> None:
    """A broker returns no end with an error, such as a position that no longer exists."""
    assert may_mislead(LookUps(resets_by_itself=True), end) is does


def test_look_ups_expect_no_reset_if_the_handle_never_resets() -> None:
    """With `auto.offset.reset` set to `error` or to a duration, the handle starts no lookup after an error."""
    assert not may_mislead(LookUps(resets_by_itself=False), -1)


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
def test_look_ups_keep_an_abandoned_logical_start_until_the_partition_is_fetched(
    *, is_of_group: bool, end: int, does: bool
) -> None:
    """A start that the group assigned always counts, and only once; a new handle starts without lookups."""
    look_ups = LookUps(resets_by_itself=True)
    if is_of_group:
        look_ups.left_to_handle(PLACE)
    look_ups.cut_short(cast("LibrdkafkaConsumer", Handle(end)), PLACE, OFFSET_BEGINNING)
    assert not look_ups.has_stale_lookup
    assert may_mislead(look_ups, 7) is does
    look_ups.forget()
    assert not may_mislead(look_ups, 7)


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
def test_look_ups_without_automatic_reset_count_only_explicit_logical_starts(
    *, resets_by_itself: bool, start: int, does: bool
) -> None:
    """With `auto.offset.reset=error`, an application seeks after the error for a missing commit.

    The seek does not replace the handle.
    """
    look_ups = LookUps(resets_by_itself=resets_by_itself)
    look_ups.left_to_handle(PLACE)
    look_ups.cut_short(cast("LibrdkafkaConsumer", Handle(OFFSET_INVALID)), PLACE, start)
    assert may_mislead(look_ups, 7) is does
