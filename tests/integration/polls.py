"""Loops around the poll of either client: the calls are the same."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeAlias

import confluent_kafka
from confluent_kafka import Message
from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

from consumer_membership import Consumer
from tests.integration.worker import PATIENCE_S

#: The client that a test compares, and ours.
AnyConsumer: TypeAlias = "confluent_kafka.Consumer | Consumer"


def until(is_so: Callable[[], bool]) -> None:
    """Wait, within bounds."""
    Retrying(retry=retry_if_not_result(bool), wait=wait_fixed(0.02), stop=stop_after_delay(PATIENCE_S))(is_so)


def by_poll(consumer: AnyConsumer) -> Message:
    """The next error, as the commonest loop gets it."""
    deadline = threading.Event()
    timer = threading.Timer(PATIENCE_S, deadline.set)
    timer.start()
    try:
        while not deadline.is_set():
            message = consumer.poll(0.2)
            if not message:
                continue
            if message.error():
                assert isinstance(message, Message)
                return message
    finally:
        timer.cancel()
    raise AssertionError("no error came")


def by_consume(consumer: AnyConsumer) -> Message:
    """The next error, out of `consume`."""
    found: list[Message] = []

    def is_found() -> bool:
        found.extend(message for message in consumer.consume(1, 0.2) if message.error())
        return bool(found)

    until(is_found)
    return found[0]
