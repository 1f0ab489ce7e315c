"""The messages in which `poll` and `consume` report errors of the membership.

Since confluent-kafka 2.13, Python code can create a `Message`. With an older release, a class of this package replaces
it: it has the same methods and values, but is not a `Message` for `isinstance`.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

#: The timestamp of librdkafka's messages without a timestamp.
_NO_TIMESTAMP = (TIMESTAMP_NOT_AVAILABLE, -1)


class ErrorMessage:
    """A message with an error, for releases of confluent-kafka whose `Message` Python code cannot create.

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
        """The error."""
        return self._error

    def topic(self) -> str | None:
        """The topic of the error; None if it has none, or several."""
        return self._topic

    def partition(self) -> int:
        """0, as in librdkafka's error messages."""
        return 0

    def value(self) -> Sized | None:
        """The text of the error."""
        return self._value

    def key(self) -> object:
        """None, unless a key was set."""
        return self._key

    def headers(self) -> object:
        """None, unless headers were set."""
        return self._headers

    def offset(self) -> None:
        """None: there is no record."""

    def leader_epoch(self) -> None:
        """None: there is no record."""

    def latency(self) -> None:
        """None: no record was produced."""

    def timestamp(self) -> tuple[int, int]:
        """The value for a missing timestamp."""
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
    """Create the message for this error, with the fields that librdkafka gives its own.

    Its value is the text: a message without a value is false, and `if not message: continue` would skip it.
    """
    message = error.str().encode()
    if not CAN_BE_MADE:
        return cast("Message", ErrorMessage(topic, message, error))
    return Message(topic=topic, partition=0, value=message, error=error, timestamp=_NO_TIMESTAMP)


def _can_be_made() -> bool:
    try:
        Message()
    except TypeError:
        return False
    return True


#: Whether Python code can create messages of the installed release.
CAN_BE_MADE = _can_be_made()
