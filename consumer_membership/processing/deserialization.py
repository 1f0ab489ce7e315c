"""The deserializers of a processor: `key.deserializer` and `value.deserializer`, as in `DeserializingConsumer`.

The consumer keeps returning raw records, so that a record that cannot be deserialized goes through retries and dead
letters like any other: it is deserialized on the worker, before the handler. The handler receives a copy with the
objects; the original keeps its bytes, because a dead letter has to be the record that was read.
"""

from __future__ import annotations

from confluent_kafka import Message
from confluent_kafka.error import KeyDeserializationError, ValueDeserializationError
from confluent_kafka.serialization import MessageField, SerializationContext

from consumer_membership.processing.records import copy_of
from consumer_membership.processing.settings import Deserializer


class Deserialized:
    """Returns records with deserialized key and value. It may be called by several threads.

    Args:
        key: The deserializer of keys; None: keys stay bytes.
        value: The deserializer of values; None: values stay bytes.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def __call__(self, record: Message) -> Message:
        """Return a copy of the record with deserialized key and value.

        The key is deserialized first, as in confluent-kafka: a key deserializer may leave data for the value
        deserializer in the headers. Both errors are permanent, so an attempt with the same bytes fails again.

        Raises:
            KeyDeserializationError: the deserializer of keys raised an exception, which is its `__cause__`.
            ValueDeserializationError: the deserializer of values raised an exception, which is its `__cause__`.
        """
        headers = record.headers()
        context = SerializationContext(record.topic() or "", MessageField.KEY, headers)
        key: object = record.key()
        if self._key is not None:
            try:
                key = self._key(record.key(), context)
            except Exception as error:  # a deserializer may raise anything
                raise KeyDeserializationError(exception=error, kafka_message=record) from error
        value: object = record.value()
        if self._value is not None:
            context.field = MessageField.VALUE
            try:
                value = self._value(record.value(), context)
            except Exception as error:  # a deserializer may raise anything
                raise ValueDeserializationError(exception=error, kafka_message=record) from error
        copy = copy_of(record)
        copy.set_key(key)
        copy.set_value(value)
        return copy
