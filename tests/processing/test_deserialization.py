"""The deserializers of a processor return copies, so that the record keeps its bytes."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message
from confluent_kafka.error import KeyDeserializationError, ValueDeserializationError
from confluent_kafka.serialization import MessageField, SerializationContext, StringDeserializer

from consumer_membership.processing.deserialization import Deserialized


def record(key: bytes | None = b"key", value: bytes | None = b'{"a": 1}') -> Message:
    """Return a record as a consumer returns it."""
    return Message(
        topic="orders",
        partition=2,
        offset=7,
        key=key,
        value=value,
        headers=[("trace", b"1")],
        timestamp=(TIMESTAMP_CREATE_TIME, 5),
        leader_epoch=3,
    )


def of_json(value: bytes | None, _: SerializationContext) -> object:
    """Return the object that a JSON text describes."""
    return None if value is None else json.loads(value)


def test_copy_has_objects_and_record_keeps_bytes() -> None:
    """The copy has the objects and all other fields; the record is unchanged, so a dead letter has its bytes."""
    original = record()
    copy = Deserialized(StringDeserializer("utf_8"), of_json)(original)
    assert (copy.key(), copy.value()) == ("key", {"a": 1})
    assert (original.key(), original.value()) == (b"key", b'{"a": 1}')
    assert (copy.topic(), copy.partition(), copy.offset(), copy.leader_epoch()) == ("orders", 2, 7, 3)
    assert (copy.headers(), copy.timestamp(), copy.error()) == ([("trace", b"1")], (TIMESTAMP_CREATE_TIME, 5), None)


def test_missing_deserializer_keeps_bytes() -> None:
    """Without a deserializer, the key stays bytes; a null value reaches the deserializer, as in confluent-kafka."""
    copy = Deserialized(None, of_json)(record(value=None))
    assert (copy.key(), copy.value()) == (b"key", None)


def test_deserializers_receive_topic_field_and_headers() -> None:
    """The key is deserialized first, and both calls share the context."""
    calls: list[tuple[str, object, object]] = []

    def recording(value: bytes | None, context: SerializationContext) -> bytes | None:
        calls.append((context.topic, context.field, context.headers))
        return value

    Deserialized(recording, recording)(record())
    headers = [("trace", b"1")]
    assert calls == [("orders", MessageField.KEY, headers), ("orders", MessageField.VALUE, headers)]


def test_failed_deserializer_raises_confluent_errors_with_cause() -> None:
    """The exceptions are the same as those of DeserializingConsumer; their record keeps its bytes."""
    with pytest.raises(KeyDeserializationError) as of_key:
        Deserialized(StringDeserializer("utf_8"), of_json)(record(key=b"\xff"))
    assert of_key.value.__cause__ is not None
    with pytest.raises(ValueDeserializationError) as of_value:
        Deserialized(None, of_json)(record(value=b"{"))
    assert isinstance(of_value.value.__cause__, json.JSONDecodeError)
    assert of_value.value.kafka_message is not None
    assert of_value.value.kafka_message.value() == b"{"
