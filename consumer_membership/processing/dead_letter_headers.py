"""The headers of dead letters: how they describe a failed record, and how they are read again.

A dead letter has the headers of Spring Kafka (`DeadLetterPublishingRecoverer`, names in `KafkaHeaders`: numbers are
big-endian, texts are UTF-8) and those of Kafka Connect (`DeadLetterQueueReporter`: every value is text), so that the
tools of both read it. Letters of Spring and of Connect are read as well. This module is pure: it does no I/O.

Two Spring headers have a meaning that depends on Java: Spring wraps each exception of a listener, so its
`exception-fqcn` is the wrapper's class and `exception-cause-fqcn` the class of the listener's own exception. Here
`exception-fqcn` is the class of the handler's exception, and `exception-cause-fqcn` the class of its `__cause__`, or
again its own class if it has none.
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias, TypeVar

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from confluent_kafka.error import KeyDeserializationError, ValueDeserializationError

from consumer_membership.text import message_of

RawHeader: TypeAlias = tuple[str, bytes | None]
_T = TypeVar("_T")

#: The prefixes of the headers that describe a failure.
SPRING, CONNECT = "kafka_dlt-", "__connect.errors."
ORIGINAL_TOPIC = f"{SPRING}original-topic"
ORIGINAL_PARTITION = f"{SPRING}original-partition"
ORIGINAL_OFFSET = f"{SPRING}original-offset"
ORIGINAL_TIMESTAMP = f"{SPRING}original-timestamp"
ORIGINAL_TIMESTAMP_TYPE = f"{SPRING}original-timestamp-type"
ORIGINAL_GROUP = f"{SPRING}original-consumer-group"
#: Spring's header with the number of attempts.
ATTEMPTS = "kafka_deliveryAttempt"
#: The header of this package that a replay adds to the original record: how often it was replayed, as text.
REPLAYS = "consumer-membership-replays"

_CONNECT_STACK, _CONNECT_MESSAGE = f"{CONNECT}exception.stacktrace", f"{CONNECT}exception.message"
#: Connect's stages (`Stage`) for a failed handler and for records that cannot be deserialized.
_TASK, _KEY_CONVERTER, _VALUE_CONVERTER = "TASK_PUT", "KEY_CONVERTER", "VALUE_CONVERTER"
#: The names of Java's `TimestampType`.
_TIMESTAMP_TYPES: Mapping[int, str] = {
    TIMESTAMP_NOT_AVAILABLE: "NoTimestampType",
    TIMESTAMP_CREATE_TIME: "CreateTime",
    TIMESTAMP_LOG_APPEND_TIME: "LogAppendTime",
}
_NO_TIMESTAMP_MS = -1

#: The most bytes of a record that are neither key, value nor headers: the head of a batch with one record (61), and the
#: lengths and deltas of that record.
RECORD_OVERHEAD = 61 + 36
#: The most bytes of a header beside its name and value: two variable-length integers.
_HEADER_OVERHEAD = 10
#: The digits of a number that fits in an int64.
_LONGEST_NUMBER = 18
#: A text that would be shortened to less than this is left out.
_SHORTEST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _StyleOfKey:
    """The parts of Spring's header names that depend on whether the key or the value could not be deserialized."""

    exception: str
    message: str
    stack: str


_OF_VALUE = _StyleOfKey(
    exception=f"{SPRING}exception-fqcn", message=f"{SPRING}exception-message", stack=f"{SPRING}exception-stacktrace"
)
_OF_KEY = _StyleOfKey(
    exception=f"{SPRING}key-exception-fqcn",
    message=f"{SPRING}key-exception-message",
    stack=f"{SPRING}key-exception-stacktrace",
)
_CAUSE = f"{SPRING}exception-cause-fqcn"
#: What is shortened if the record would be too large, in this order: the second copy of the stack first.
_TEXTS = (_CONNECT_STACK, _OF_VALUE.stack, _OF_KEY.stack, _CONNECT_MESSAGE, _OF_VALUE.message, _OF_KEY.message)
_STACKS = frozenset({_CONNECT_STACK, _OF_VALUE.stack, _OF_KEY.stack})


# ---- writing ---------------------------------------------------------------------------------------------------------


def headers_of(
    record: Message, error: BaseException, attempts: int, group: str, *, most_bytes: int | None = None
) -> tuple[RawHeader, ...]:
    """Return the record's headers with those of a dead letter.

    The record's own headers come first and are unchanged. Headers of an earlier failure keep their original topic,
    partition and offset, as in Spring, where the last header of a name counts; their exception is replaced.

    Args:
        record: The failed record.
        error: The exception of the last attempt.
        attempts: The number of attempts.
        group: The consumer group.
        most_bytes: The greatest size of the whole record; longer stacks and messages are shortened. None: no limit.
    """
    of_failure = _failure_headers(record, error, attempts, group)
    replaced = of_failure.keys() - _APPENDED
    kept = [(name, value) for name, value in headers_in(record) if name not in replaced]
    if most_bytes is not None:
        of_record = RECORD_OVERHEAD + len(raw(record.key()) or b"") + len(raw(record.value()) or b"")
        _shorten(of_failure, most_bytes - of_record - _size(kept))
    return (*kept, *of_failure.items())


#: The headers that describe where a record was first, which are appended to those of an earlier failure.
_APPENDED = frozenset(
    {
        *(ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET),
        *(ORIGINAL_TIMESTAMP, ORIGINAL_TIMESTAMP_TYPE, ORIGINAL_GROUP),
        *(f"{CONNECT}topic", f"{CONNECT}partition", f"{CONNECT}offset", f"{CONNECT}connector.name"),
    }
)


def _failure_headers(record: Message, error: BaseException, attempts: int, group: str) -> dict[str, bytes | None]:
    kind, timestamp_ms = record.timestamp()
    topic, partition, offset = record.topic() or "", record.partition() or 0, record.offset() or 0
    is_key = isinstance(error, KeyDeserializationError)
    style = _OF_KEY if is_key else _OF_VALUE
    cause = error.__cause__ or error
    message, stack = message_of(error), "".join(traceback.format_exception(error))
    stage = _KEY_CONVERTER if is_key else _VALUE_CONVERTER if isinstance(error, ValueDeserializationError) else _TASK
    return {
        ORIGINAL_TOPIC: _bytes(topic),
        ORIGINAL_PARTITION: struct.pack(">i", partition),
        ORIGINAL_OFFSET: struct.pack(">q", offset),
        ORIGINAL_TIMESTAMP: struct.pack(">q", timestamp_ms if kind != TIMESTAMP_NOT_AVAILABLE else _NO_TIMESTAMP_MS),
        ORIGINAL_TIMESTAMP_TYPE: _bytes(_TIMESTAMP_TYPES[kind]),
        ORIGINAL_GROUP: _bytes(group),
        ATTEMPTS: struct.pack(">i", attempts),
        style.exception: _bytes(class_name(error)),
        _CAUSE: _bytes(class_name(cause)),
        style.message: _bytes(message),
        style.stack: _bytes(stack),
        f"{CONNECT}topic": _bytes(topic),
        f"{CONNECT}partition": b"%d" % partition,
        f"{CONNECT}offset": b"%d" % offset,
        f"{CONNECT}connector.name": _bytes(group),
        f"{CONNECT}stage": _bytes(stage),
        f"{CONNECT}exception.class.name": _bytes(class_name(error)),
        _CONNECT_MESSAGE: _bytes(message),
        _CONNECT_STACK: _bytes(stack),
    }


def class_name(error: BaseException) -> str:
    """Return the name of the exception's class with its module, which is left out for built-in classes."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _size(headers: Iterable[RawHeader]) -> int:
    return sum(len(name.encode()) + len(value or b"") + _HEADER_OVERHEAD for name, value in headers)


def _shorten(headers: dict[str, bytes | None], most_bytes: int) -> None:
    """Shorten the exception's texts, then drop Connect's headers, until the headers have at most `most_bytes` bytes."""
    for name in (*_TEXTS, *(name for name in headers if name.startswith(CONNECT))):
        excess = _size(headers.items()) - most_bytes
        if excess <= 0:
            return
        value = headers.pop(name, None)
        if value is not None and name in _TEXTS:
            shorter = _shortened(value, len(value) - excess, keeps_end=name in _STACKS)
            if shorter is not None:
                headers[name] = shorter


def _shortened(value: bytes, size: int, *, keeps_end: bool) -> bytes | None:
    """Return the end of a stack, where Python has the error, or the beginning of a message; None if it is too short."""
    mark = b"[... %d bytes omitted ...]" % (len(value) - size)
    left = size - len(mark) - 1
    if left < _SHORTEST:
        return None
    # A character may be cut in the middle; the rest of it is dropped.
    kept = (value[-left:] if keeps_end else value[:left]).decode(errors="ignore").encode()
    return mark + b"\n" + kept if keeps_end else kept + b" " + mark


# ---- reading ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic, with the failure that its headers describe; None: there is no such header.

    Attributes:
        topic: The dead-letter topic.
        partition: The partition in the dead-letter topic.
        offset: The offset in the dead-letter topic.
        timestamp_ms: The record's timestamp in milliseconds since 1970.
        key: The key of the original record.
        value: The value of the original record.
        headers: All headers, in the order of the record.
        original_topic: The topic of the original record.
        original_partition: The partition of the original record.
        original_offset: The offset of the original record.
        original_timestamp_ms: The timestamp of the original record; Spring's style only.
        group: The consumer group, or the name of the connector.
        exception: The class of the exception.
        cause: The class of the exception's cause; Spring's style only.
        message: The text of the exception.
        stack: The stack trace.
        attempts: How often the record was tried.
        stage: The stage of the connector that failed; Connect's style only.
        replays: How often the record was replayed before it failed again.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[RawHeader, ...]
    original_topic: str | None
    original_partition: int | None
    original_offset: int | None
    original_timestamp_ms: int | None
    group: str | None
    exception: str | None
    cause: str | None
    message: str | None
    stack: str | None
    attempts: int | None
    stage: str | None
    replays: int

    @classmethod
    def of(cls, record: Message) -> DeadLetter:
        """Return the dead letter that this record is; a header in an unknown format counts as absent."""
        headers = headers_in(record)
        last = dict(headers)  # as in Spring, the last header of a name counts
        kind, timestamp_ms = record.timestamp()

        def first(read: Callable[[bytes], _T | None], *names: str) -> _T | None:
            values = (last.get(name) for name in names)
            return next((found for value in values if value is not None and (found := read(value)) is not None), None)

        def number(spring: str, connect: str, size: str) -> int | None:
            found = first(lambda value: _packed(size, value), spring)
            return found if found is not None else first(_decimal, connect)

        return cls(
            topic=record.topic() or "",
            partition=record.partition() or 0,
            offset=record.offset() or 0,
            timestamp_ms=None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp_ms,
            key=raw(record.key()),
            value=raw(record.value()),
            headers=headers,
            original_topic=first(_text, ORIGINAL_TOPIC, f"{CONNECT}topic"),
            original_partition=number(ORIGINAL_PARTITION, f"{CONNECT}partition", ">i"),
            original_offset=number(ORIGINAL_OFFSET, f"{CONNECT}offset", ">q"),
            original_timestamp_ms=first(lambda value: _packed(">q", value), ORIGINAL_TIMESTAMP),
            group=first(_text, ORIGINAL_GROUP, f"{CONNECT}connector.name"),
            exception=first(_text, _OF_VALUE.exception, _OF_KEY.exception, f"{CONNECT}exception.class.name"),
            cause=first(_text, _CAUSE),
            message=first(_text, _OF_VALUE.message, _OF_KEY.message, _CONNECT_MESSAGE),
            stack=first(_text, _OF_VALUE.stack, _OF_KEY.stack, _CONNECT_STACK),
            attempts=first(lambda value: _packed(">i", value), ATTEMPTS),
            stage=first(_text, f"{CONNECT}stage"),
            replays=first(_decimal, REPLAYS) or 0,
        )

    @property
    def identity(self) -> bytes | None:
        """A digest that is equal for the dead letters of one record, and different for others; None: it is unknown.

        It contains the record itself, because a topic that was deleted and created again has the same offsets.
        """
        place = (self.original_topic, self.original_partition, self.original_offset)
        if None in place:
            return None
        content = (*place, self.original_timestamp_ms, self.key, self.value)
        return blake2b(repr(content).encode(), digest_size=16).digest()

    def original_headers(self) -> tuple[RawHeader, ...]:
        """Return the headers of the original record: those that do not describe the failure or count replays."""
        return tuple((name, value) for name, value in self.headers if not _describes_failure(name))

    def replayed_headers(self) -> tuple[RawHeader, ...]:
        """Return the headers of the replayed record: the original ones, and the number of replays with this one."""
        return (*self.original_headers(), (REPLAYS, b"%d" % (self.replays + 1)))


def _describes_failure(name: str) -> bool:
    return name.startswith((SPRING, CONNECT)) or name in (ATTEMPTS, REPLAYS)


def _packed(size: str, value: bytes) -> int | None:
    if len(value) != struct.calcsize(size):
        return None
    number: int = struct.unpack(size, value)[0]
    return number if number >= 0 else None  # a missing timestamp is -1


def _decimal(value: bytes) -> int | None:
    return int(value) if value.isdigit() and len(value) <= _LONGEST_NUMBER else None


def _text(value: bytes) -> str | None:
    return value.decode(errors="backslashreplace")


# ---- both ------------------------------------------------------------------------------------------------------------


def headers_in(record: Message) -> tuple[RawHeader, ...]:
    """Return the record's headers as bytes."""
    headers = record.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple((name, raw(value)) for name, value in pairs)


def raw(value: str | bytes | None) -> bytes | None:
    """Return the bytes of a key, a value or a header."""
    return value.encode() if isinstance(value, str) else value
