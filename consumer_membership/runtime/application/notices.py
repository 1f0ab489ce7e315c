"""What the member tells the application, as the message with an error that confluent-kafka's users expect."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from consumer_membership.membership.effects import Problem, RaiseToApplication
from consumer_membership.types import BrokerError

#: What librdkafka's messages without a timestamp have.
_NO_TIMESTAMP = (TIMESTAMP_NOT_AVAILABLE, -1)


def kafka_error(error: BrokerError) -> KafkaError:
    """The error with the broker's own code and words; librdkafka's words where the broker said none."""
    if error.message or error.remedy:
        return KafkaError(error.code, error.words)
    known = KafkaError(error.code)
    return known if known.name() == error.name else KafkaError(error.code, error.name)


def error_message(notice: RaiseToApplication) -> Message:
    """The message that `poll()` returns for this, with the fields that librdkafka gives its own.

    Its value is the words: a message without one is false, and `if not message: continue` would pass over it.
    """
    if notice.problem is Problem.FATAL:
        error = KafkaError(notice.error.code, str(notice.error), fatal=True)
    else:
        error = kafka_error(notice.error)
    words = error.str().encode()
    return Message(topic=notice.topic, partition=0, value=words, error=error, timestamp=_NO_TIMESTAMP)
