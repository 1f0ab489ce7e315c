"""Loops around the poll of either client: the calls are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import confluent_kafka
from confluent_kafka import Message

from consumer_membership import Consumer
from tests.support.waiting import PATIENCE_S, wait_until

#: The client that a test compares, and ours.
AnyConsumer: TypeAlias = "confluent_kafka.Consumer | Consumer"
FoundT = TypeVar("FoundT")


def poll_until(
    look: Callable[[], FoundT | None],
    what: str,
    *consumers: AnyConsumer,
    seen: Callable[[], object] | None = None,
    patience_s: float = PATIENCE_S,
) -> FoundT:
    """Poll these consumers in turn until `look` is true, and return what it found; what they return is dropped."""

    def poll() -> None:
        for consumer in consumers:
            consumer.poll(0.02)

    return wait_until(look, what, patience_s, between=poll, seen=seen)


def by_poll(consumer: AnyConsumer) -> Message:
    """The next error, as the commonest loop gets it."""

    def look() -> Message | None:
        message = consumer.poll(0.2)
        return message if message and message.error() else None

    return wait_until(look, "an error")


def by_consume(consumer: AnyConsumer) -> Message:
    """The next error, out of `consume`."""
    return wait_until(lambda: [message for message in consumer.consume(1, 0.2) if message.error()], "an error")[0]
