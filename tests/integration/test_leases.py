"""Leases on a real broker: the session that they count, and the tokens of successive owners."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.errors import LeaseOverError
from tests.integration.polls import poll_until
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, unique
from tests.support.kinds import SHORT_SESSIONS
from tests.support.versions import NEWEST

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def quick_broker(broker_pool: RunBrokers) -> Broker:
    """A broker whose sessions end after 6 s."""
    return broker_pool.shared(NEWEST, properties=SHORT_SESSIONS)


@contextmanager
def member(broker: Broker, group: str, topic: str, **keys: object) -> Iterator[Consumer]:
    """A dynamic member with leases."""
    given = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**given, "ownership.lease.enable": True, **keys})
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def test_lease_of_a_dynamic_member_ends_before_the_session_of_its_group(quick_broker: Broker) -> None:
    """The broker's default session of 6 s is read from the group's configuration."""
    topic, group = create_topic(quick_broker.bootstrap_servers, unique("topic"), 1), unique("group")
    with member(quick_broker, group, topic, **{"group.protocol": "consumer"}) as consumer:
        poll_until(lambda: consumer.membership().session_timeout_s == 6.0, "the session timeout", consumer)
        poll_until(consumer.assignment, "the partition", consumer)
        lease, view = consumer.lease(Partition(topic, 0)), consumer.membership()
        assert not view.is_session_assumed
        assert 0 < lease.remaining <= 0.95 * 6.0
        with lease.guard(at_least_s=1.0) as guard:
            pass
        assert guard.held


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_token_grows_with_each_owner_of_a_partition(kafka: Broker, protocol: str) -> None:
    """Three members own the partition one after the other; the lease of a former owner is over."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 1), unique("group")
    tokens = []
    for _ in range(3):
        with member(kafka, group, topic, **{"group.protocol": protocol}) as consumer:
            poll_until(lambda: consumer.membership().owned, "the partition", consumer)
            lease = consumer.lease(Partition(topic, 0))
            tokens.append(lease.token)
        with pytest.raises(LeaseOverError, match="nothing was begun"), lease.guard():
            pytest.fail("the work began")
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_token_grows_when_a_partition_moves_to_a_living_member(kafka: Broker, protocol: str) -> None:
    """The new owner's epoch is that of the assignment that moved the partition, or a later one."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("topic"), 2), unique("group")
    keys: dict[str, object] = {"group.protocol": protocol}
    if protocol == "classic":
        keys["partition.assignment.strategy"] = "cooperative-sticky"
    with member(kafka, group, topic, **keys) as one:
        poll_until(lambda: len(one.membership().owned) == 2, "both partitions", one)
        before = {number: one.lease(Partition(topic, number)) for number in range(2)}
        with member(kafka, group, topic, **keys) as two:
            poll_until(lambda: len(one.membership().owned) == len(two.membership().owned) == 1, "a share", one, two)
            (moved,) = two.membership().owned
            assert two.lease(Partition(topic, moved.partition)).token > before[moved.partition].token
            assert (before[moved.partition].holds, before[1 - moved.partition].holds) == (False, True)
