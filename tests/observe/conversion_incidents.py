# both kinds of consumers
"""Incidents of KAFKA-21582: a static member of librdkafka's that converts a classic group at the wrong moment.

Its join replaces the classic member of its instance id, and the coordinator takes the group's assignment for settled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient, NewPartitions

from consumer_membership.observe.findings import Cause
from tests.observe.incidents import RAW, Between, Incident, Stage, app, application, incident, nothing
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import unique

CONVERSIONS: list[Incident] = []

STATIC = "the-static-one"


def converted(
    stage: Stage,
    group: str,
    stack: ExitStack,
    topic: str,
    happens: Callable[[ConsumerThread[Any]], None],
    *,
    state: str = "PreparingRebalance",
    kind: Any = RAW,
) -> tuple[ConsumerThread[Any], ConsumerThread[Any]]:
    """Have something happen, wait for the group's state, and have its static member replaced, which is of this kind.

    `happens` is given the member that may leave; the two others do not poll meanwhile, so that no rebalance ends.
    Returns the replacement, and the classic member that stays.
    """
    classic = {"partition_assignment_strategy": "range"}
    static = app(stage, stack, RAW, group, topic, group_instance_id=STATIC, **classic).has(6)
    stays, leaves = (app(stage, stack, RAW, group, topic, **classic) for _ in range(2))
    for member in (static, stays, leaves):
        member.has(2)
    stage.settled(group, 3)
    static.freeze()
    stays.freeze()
    happens(leaves)
    stage.until(group, lambda one: one.state == state)
    replacement = app(stage, stack, kind, group, topic, group_instance_id=STATIC, group_protocol="consumer")
    stays.thaw()
    return replacement, stays


@incident(Cause.STALE_TARGET, registry=CONVERSIONS)
def group_is_converted_while_one_leaves(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Its two partitions are nobody's for ever."""
    converted(stage, group, stack, stage.topic(6), ConsumerThread.stop)
    stage.settled(group, 2)
    return nothing


@incident(Cause.STALE_TARGET, registry=CONVERSIONS)
def group_is_converted_while_one_joins(stage: Stage, group: str, stack: ExitStack) -> Between:
    """It never has a partition."""
    topic = stage.topic(6)

    def happens(_: ConsumerThread[Any]) -> None:
        app(stage, stack, RAW, group, topic)

    converted(stage, group, stack, topic, happens)
    stage.settled(group, 4)
    return nothing


def grown(stage: Stage, topic: str, _: ConsumerThread[Any]) -> None:
    """The topic has nine partitions, which no member has seen yet."""
    admin = AdminClient({"bootstrap.servers": stage.servers})
    admin.create_partitions([NewPartitions(topic, 9)])[topic].result()
    # The coordinators hear of it later than brokers answer for it: another group of theirs has all nine by then.
    with application(RAW, stage.servers, unique("another"), topic, group_protocol="consumer") as another:
        another.has(9)


@incident(Cause.STALE_TARGET, registry=CONVERSIONS)
def group_is_converted_before_it_sees_its_topic_grow(stage: Stage, group: str, stack: ExitStack) -> Between:
    """Nobody is given the new partitions."""
    topic = stage.topic(6)
    converted(stage, group, stack, topic, partial(grown, stage, topic), state="Stable")
    stage.settled(group, 3)
    return nothing
