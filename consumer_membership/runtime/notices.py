"""What the member tells the application, as the message with an error that confluent-kafka's users expect."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from consumer_membership.membership.effects import Problem, RaiseToApplication
from consumer_membership.types import BrokerError


def fatal_words(error: BrokerError) -> str:
    """The error that ended the membership, and what helps where that is known."""
    return str(error)


def kafka_error(error: BrokerError) -> KafkaError:
    """The error with the broker's own code and words."""
    return KafkaError(error.code, error.words)


def error_message(notice: RaiseToApplication) -> Message:
    """The message that `poll()` returns for this."""
    if notice.problem is Problem.FATAL:
        return Message(error=KafkaError(notice.error.code, fatal_words(notice.error), fatal=True))
    return Message(error=kafka_error(notice.error))
