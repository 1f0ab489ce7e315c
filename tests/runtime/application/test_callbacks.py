"""When rebalance callbacks are eager: they receive the whole assignment instead of the difference."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership.membership.events import AssignedIncrementally, Subscribed
from consumer_membership.types import TopicPartition
from tests.clients.conftest import ConsumerFactory
from tests.clients.scripted import ScriptedConsumer

COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


def requests_eager_callbacks(consumer: ScriptedConsumer) -> bool:
    """Return whether the subscription requested eager callbacks from the member."""
    return consumer.member.of(Subscribed)[-1].is_eager


def ignore(*_: object) -> None:
    """A callback that does nothing."""


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
def test_subscribe_requests_eager_callbacks_according_to_the_configuration(
    consumers: ConsumerFactory,
    config: dict[str, object],
    is_eager: bool,  # noqa: FBT001
) -> None:
    """`rebalance.callbacks` decides; without it, callbacks are eager if they would be in confluent-kafka."""
    consumer = consumers(**config)
    consumer.subscribe(["t"], on_assign=ignore)
    assert requests_eager_callbacks(consumer) is is_eager


@pytest.mark.parametrize("name", ["on_assign", "on_revoke", "on_lost"])
def test_subscribe_with_any_one_callback_requests_eager_callbacks(consumers: ConsumerFactory, name: str) -> None:
    """Any one of the three callbacks makes the subscription eager."""
    consumer = consumers()
    consumer.subscribe(["t"], **{name: ignore})
    assert requests_eager_callbacks(consumer)


@pytest.mark.parametrize(("config", "is_eager"), [({}, False), ({"rebalance_callbacks": "eager"}, True)])
def test_subscribe_without_callbacks_keeps_retained_partitions(
    consumers: ConsumerFactory,
    config: dict[str, object],
    is_eager: bool,  # noqa: FBT001
) -> None:
    """Without callbacks, retained partitions are not revoked unless the key requests it.

    A later subscription with callbacks is eager.
    """
    consumer = consumers(**config)
    consumer.subscribe(["t"])
    assert requests_eager_callbacks(consumer) is is_eager
    consumer.subscribe(["t"], on_revoke=ignore)
    assert requests_eager_callbacks(consumer)


def test_incremental_assign_inside_on_assign_makes_callbacks_incremental(
    consumers: ConsumerFactory, topic: str
) -> None:
    """The member is informed once, and later subscriptions also use incremental callbacks."""
    consumer = consumers()
    consumer.subscribe([topic], on_assign=lambda own, parts: own.incremental_assign(parts))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    consumer.member.assign({TopicPartition(topic, 1): 0})
    consumer.poll(0)
    assert len(consumer.member.of(AssignedIncrementally)) == 1
    consumer.subscribe([topic], on_assign=ignore)
    assert not requests_eager_callbacks(consumer)


def test_incremental_unassign_inside_on_revoke_makes_callbacks_incremental(
    consumers: ConsumerFactory, topic: str
) -> None:
    """The member is informed once that the application unassigns incrementally."""
    consumer = consumers()
    consumer.subscribe([topic], on_revoke=lambda own, parts: own.incremental_unassign(parts))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    consumer.member.pause([TopicPartition(topic, 0)])
    consumer.member.revoke([TopicPartition(topic, 0)])
    consumer.poll(0)
    assert len(consumer.member.of(AssignedIncrementally)) == 1


@pytest.mark.parametrize("config", [{"rebalance_callbacks": "eager"}, {"group_protocol": "consumer"}])
def test_incremental_assign_inside_on_assign_keeps_configured_callbacks(
    consumers: ConsumerFactory, topic: str, config: dict[str, object]
) -> None:
    """Incremental calls change nothing if the key is set or callbacks are incremental already."""
    consumer = consumers(**config)
    consumer.subscribe([topic], on_assign=lambda own, parts: own.incremental_assign(parts))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0)
    assert consumer.member.of(AssignedIncrementally) == []


def test_incremental_assign_outside_callbacks_keeps_callbacks(consumers: ConsumerFactory, topic: str) -> None:
    """Outside callbacks, incremental calls change manual assignments only, so the callbacks stay as they are."""
    consumer = consumers()
    consumer.incremental_assign([PartitionOffset(topic, 0)])
    consumer.incremental_unassign([PartitionOffset(topic, 0)])
    assert consumer.member.of(AssignedIncrementally) == []
