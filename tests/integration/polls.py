"""Loops around `poll` and `consume`, for the consumers of this package and of confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import confluent_kafka
from confluent_kafka import Message

from consumer_membership import Consumer
from tests.support.waiting import PATIENCE_S, wait_until

#: The consumers of confluent-kafka and of this package, which have the same calls.
AnyConsumer: TypeAlias = "confluent_kafka.Consumer | Consumer"
FoundT = TypeVar("FoundT")


def poll_until(
    find: Callable[[], FoundT | None],
    what: str,
    *consumers: AnyConsumer,
    seen: Callable[[], object] | None = None,
    patience_s: float = PATIENCE_S,
) -> FoundT:
    """Poll these consumers in turn until `find` returns a true value, and return it; received records are dropped."""

    def poll() -> None:
        for consumer in consumers:
            consumer.poll(0.02)

    return wait_until(find, what, patience_s, between=poll, seen=seen)


def next_error_of_poll(consumer: AnyConsumer) -> Message:
    """Return the next error that `poll` returns."""

    def find() -> Message | None:
        message = consumer.poll(0.2)
        return message if message and message.error() else None

    return wait_until(find, "an error")


def next_error_of_consume(consumer: AnyConsumer) -> Message:
    """Return the next error that `consume` returns."""
    return wait_until(lambda: [message for message in consumer.consume(1, 0.2) if message.error()], "an error")[0]
