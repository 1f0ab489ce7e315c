"""The messages in which `poll` and `consume` tell errors of the membership.

confluent-kafka 2.13 was the first whose `Message` can be made by others than librdkafka. With an older one a message of
this package's own takes its place: the same methods with the same answers, though it is no `Message` for `isinstance`.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

#: What librdkafka's messages without a timestamp have.
_NO_TIMESTAMP = (TIMESTAMP_NOT_AVAILABLE, -1)


class ErrorMessage:
    """A message with an error, for releases of confluent-kafka whose own cannot be made.

    Its value, key and headers can be set, as deserializers do.
    """

    __slots__ = ("_error", "_headers", "_key", "_topic", "_value")

    def __init__(self, topic: str | None, value: Sized | None, error: KafkaError) -> None:
        self._topic = topic
        self._value = value
        self._error = error
        self._key: object = None
        self._headers: object = None

    def error(self) -> KafkaError:
        """What there is to tell."""
        return self._error

    def topic(self) -> str | None:
        """The topic that it is about; None: none, or several."""
        return self._topic

    def partition(self) -> int:
        """0, as in librdkafka's."""
        return 0

    def value(self) -> Sized | None:
        """The error's words."""
        return self._value

    def key(self) -> object:
        """None, unless one was set."""
        return self._key

    def headers(self) -> object:
        """None, unless some were set."""
        return self._headers

    def offset(self) -> None:
        """None: there is no record."""

    def leader_epoch(self) -> None:
        """None, likewise."""

    def latency(self) -> None:
        """None: nothing was produced."""

    def timestamp(self) -> tuple[int, int]:
        """That there is none."""
        return _NO_TIMESTAMP

    def set_value(self, value: Sized | None) -> None:
        """Replace the value."""
        self._value = value

    def set_key(self, key: object) -> None:
        """Replace the key."""
        self._key = key

    def set_headers(self, headers: object) -> None:
        """Replace the headers."""
        self._headers = headers

    def __len__(self) -> int:
        return 0 if self._value is None else len(self._value)


def error_message(topic: str | None, error: KafkaError) -> Message:
    """The message for this error, with the fields that librdkafka gives its own.

    Its value is the words: a message without one is false, and `if not message: continue` would pass over it.
    """
    words = error.str().encode()
    if not CAN_BE_MADE:
        return cast("Message", ErrorMessage(topic, words, error))
    return Message(topic=topic, partition=0, value=words, error=error, timestamp=_NO_TIMESTAMP)


def _can_be_made() -> bool:
    try:
        Message()
    except TypeError:
        return False
    return True


#: Whether the installed release's messages can be made.
CAN_BE_MADE = _can_be_made()
