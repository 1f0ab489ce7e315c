"""Whose callbacks are told of the whole, and when that ends."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.membership.events import AssignedIncrementally, Subscribed
from consumer_membership.types import TopicPartition
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


def told(consumer: ScriptedConsumer) -> bool:
    """Whether the member was asked to tell of the whole."""
    return consumer.member.of(Subscribed)[-1].is_eager


def ignore(*_: object) -> None:
    """A callback."""


@pytest.mark.parametrize(
    ("config", "is_eager"),
    [
        ({}, True),
        ({"group_protocol": "auto"}, True),
        ({"group_protocol": "classic"}, True),
        ({"group_protocol": "consumer"}, False),
        ({"group_instance_id_pool": "a,b"}, False),
        (COOPERATIVE, False),
        ({"partition_assignment_strategy": "cooperative-sticky,range"}, True),
        ({"rebalance_callbacks": "incremental"}, False),
        ({"group_protocol": "consumer", "rebalance_callbacks": "eager"}, True),
        (COOPERATIVE | {"rebalance_callbacks": "Eager"}, True),
    ],
)
def test_configuration_says_what_callbacks_are_told(
    consumers: ConsumerFactory,
    config: dict[str, object],
    is_eager: bool,  # noqa: FBT001
) -> None:
    """The key, or else what confluent-kafka would do with the same configuration."""
    consumer = consumers(**config)
    consumer.subscribe(["t"], on_assign=ignore)
    assert told(consumer) is is_eager


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_one_callback_is_enough(consumers: ConsumerFactory, name: str) -> None:
    """Whichever it is."""
    consumer = consumers()
    consumer.subscribe(["t"], **{name: ignore})
    assert told(consumer)


@pytest.mark.parametrize(("config", "is_eager"), [({}, False), ({"rebalance_callbacks": "eager"}, True)])
def test_without_callbacks_nobody_is_told(
    consumers: ConsumerFactory,
    config: dict[str, object],
    is_eager: bool,  # noqa: FBT001
) -> None:
    """What stays goes on, unless the other is asked for; a later subscription may have callbacks."""
    consumer = consumers(**config)
    consumer.subscribe(["t"])
    assert told(consumer) is is_eager
    consumer.subscribe(["t"], on_revoke=ignore)
    assert told(consumer)


def test_on_assign_that_assigns_by_differences_is_found_out(consumers: ConsumerFactory, topic: str) -> None:
    """Told once; later subscriptions are told of differences, too."""
    consumer = consumers()
    consumer.subscribe([topic], on_assign=lambda own, parts: own.incremental_assign(parts))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    consumer.member.assign({TopicPartition(topic, 1): 0})
    consumer.poll(0)
    assert len(consumer.member.of(AssignedIncrementally)) == 1
    consumer.subscribe([topic], on_assign=ignore)
    assert not told(consumer)


def test_on_revoke_that_gives_up_by_differences_is_found_out(consumers: ConsumerFactory, topic: str) -> None:
    """Likewise."""
    consumer = consumers()
    consumer.subscribe([topic], on_revoke=lambda own, parts: own.incremental_unassign(parts))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    consumer.member.pause([TopicPartition(topic, 0)])
    consumer.member.revoke([TopicPartition(topic, 0)])
    consumer.poll(0)
    assert len(consumer.member.of(AssignedIncrementally)) == 1


@pytest.mark.parametrize("config", [{"rebalance_callbacks": "eager"}, {"group_protocol": "consumer"}])
def test_who_was_asked_for_stays(consumers: ConsumerFactory, topic: str, config: dict[str, object]) -> None:
    """Differences assigned by a program that set the key, or that is told of them anyway, change nothing."""
    consumer = consumers(**config)
    consumer.subscribe([topic], on_assign=lambda own, parts: own.incremental_assign(parts))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    assert consumer.member.of(AssignedIncrementally) == []


def test_incremental_assignment_by_hand_means_nothing(consumers: ConsumerFactory, topic: str) -> None:
    """Outside callbacks it is how partitions are read beside the group's."""
    consumer = consumers()
    consumer.incremental_assign([PartitionOffset(topic, 0)])
    consumer.incremental_unassign([PartitionOffset(topic, 0)])
    assert consumer.member.of(AssignedIncrementally) == []
