"""Copies of records that can be changed or sent to another process, with every release of confluent-kafka.

A `confluent_kafka.Message` can be created and pickled since release 2.13. With older releases a `Record` takes its
place, which has the same methods.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

#: Whether messages can be created and pickled.
_IS_COMPLETE = "__reduce__" in vars(Message)


def portable(record: Message) -> Message:
    """Return the record in a form that can be pickled."""
    return record if _IS_COMPLETE else Record(record)  # type: ignore[return-value]  # it has the same methods


def copy_of(record: Message) -> Message:
    """Return a copy of the record that can be changed."""
    if not _IS_COMPLETE:
        return Record(record)  # type: ignore[return-value]  # it has the same methods
    copy = Message(
        topic=record.topic(),
        partition=record.partition(),
        offset=record.offset(),
        headers=record.headers(),
        timestamp=record.timestamp(),
        leader_epoch=record.leader_epoch(),
    )
    copy.set_key(record.key())
    copy.set_value(record.value())
    return copy


class Record:
    """A record with the methods of `confluent_kafka.Message`, for releases that cannot create or pickle messages."""

    __slots__ = (
        "_headers",
        "_key",
        "_latency",
        "_leader_epoch",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
    )

    def __init__(self, message: Message) -> None:
        self._topic = message.topic()
        self._partition = message.partition()
        self._offset = message.offset()
        self._key: object = message.key()
        self._value: object = message.value()
        self._headers = message.headers()
        self._timestamp = message.timestamp()
        self._leader_epoch = message.leader_epoch()
        self._latency = message.latency()

    def topic(self) -> str | None:
        """Return the topic."""
        return self._topic

    def partition(self) -> int | None:
        """Return the partition."""
        return self._partition

    def offset(self) -> int | None:
        """Return the offset."""
        return self._offset

    def key(self) -> object:
        """Return the key: bytes, or the value of the deserializer."""
        return self._key

    def value(self) -> object:
        """Return the value: bytes, or the value of the deserializer."""
        return self._value

    def headers(self) -> object:
        """Return the headers as a list of names and values; None: the record has no headers."""
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        """Return the type of the timestamp, and the timestamp in milliseconds."""
        return self._timestamp

    def leader_epoch(self) -> int | None:
        """Return the epoch of the partition's leader."""
        return self._leader_epoch

    def latency(self) -> float | None:
        """Return None: only produced messages have a latency."""
        return self._latency

    def error(self) -> KafkaError | None:
        """Return None: handlers receive no errors."""
        return None

    def set_key(self, key: object) -> None:
        """Replace the key."""
        self._key = key

    def set_value(self, value: object) -> None:
        """Replace the value."""
        self._value = value

    def set_headers(self, headers: object) -> None:
        """Replace the headers."""
        self._headers = headers  # type: ignore[assignment]  # as they were given, like Message

    def __len__(self) -> int:
        return len(self._value) if isinstance(self._value, bytes | str) else 0
