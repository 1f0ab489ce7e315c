# both kinds of consumers
"""Incidents of KAFKA-21582: a static librdkafka member converts a classic group during a rebalance or topic growth.

Its join replaces the classic member of its instance id, and the coordinator treats the group's assignment as settled.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

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
    """Cause a rebalance, wait for this state of the group, and replace its static member with a member of this kind.

    `happens` causes the rebalance; it receives the member that may leave. The two other members do not poll meanwhile,
    so that the rebalance does not end. Return the replacement and the classic member that stays.
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
    """No member ever receives the two partitions of the leaving member."""
    converted(stage, group, stack, stage.topic(6), ConsumerThread.stop)
    stage.settled(group, 2)
    return nothing


@incident(Cause.STALE_TARGET, registry=CONVERSIONS)
def group_is_converted_while_one_joins(stage: Stage, group: str, stack: ExitStack) -> Between:
    """The new member never receives a partition."""
    topic = stage.topic(6)

    def happens(_: ConsumerThread[Any]) -> None:
        app(stage, stack, RAW, group, topic)

    converted(stage, group, stack, topic, happens)
    stage.settled(group, 4)
    return nothing


def grown(stage: Stage, topic: str, _: ConsumerThread[Any]) -> None:
    """Increase the topic to nine partitions; no member has received the new partitions yet."""
    stage.grow(topic, 9)
    # Coordinators learn of the partitions later than brokers serve them; wait until another group has all nine.
    with application(RAW, stage.servers, unique("another"), topic, group_protocol="consumer") as another:
        another.has(9)


@incident(Cause.STALE_TARGET, registry=CONVERSIONS)
def group_is_converted_before_it_sees_its_topic_grow(stage: Stage, group: str, stack: ExitStack) -> Between:
    """No member receives the new partitions."""
    topic = stage.topic(6)
    converted(stage, group, stack, topic, partial(grown, stage, topic), state="Stable")
    stage.settled(group, 3)
    return nothing
