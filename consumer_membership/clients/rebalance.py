"""An application's rebalance callbacks as its session calls them: with its consumer, in the front end's terms."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, TopicPartition

from consumer_membership.clients.arguments import listener_callback
from consumer_membership.runtime.application.listener import RebalanceCallback, RebalanceListener
from consumer_membership.types import TopicPartition as Partition

ConsumerT = TypeVar("ConsumerT")


def listener_of(consumer: object, *, on_assign: object, on_revoke: object, on_lost: object) -> RebalanceListener:
    """What `subscribe` was given, to be called with this consumer.

    Raises:
        TypeError: something is no callable.
    """
    me = weakref.ref(consumer)  # a consumer that nobody refers to any more must not be kept by its own callbacks
    return RebalanceListener(
        on_assign=_plain(me, listener_callback(on_assign, "on_assign")),
        on_revoke=_plain(me, listener_callback(on_revoke, "on_revoke")),
        on_lost=_plain(me, listener_callback(on_lost, "on_lost")),
    )


def _plain(me: weakref.ref[ConsumerT], callback: Callable[..., object] | None) -> RebalanceCallback | None:
    """The same callback as the session calls it."""
    if callback is None:
        return None

    def call(partitions: list[Partition]) -> None:
        consumer = me()
        if consumer is not None:
            callback(consumer, [TopicPartition(p.topic, p.partition, OFFSET_INVALID) for p in partitions])

    return call
