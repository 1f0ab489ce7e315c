"""What the member tells the application, as the message with an error that confluent-kafka's users expect."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from consumer_membership.membership.effects import Problem, RaiseToApplication
from consumer_membership.types import BrokerError

#: What helps against an error that ends the membership, by Kafka's error code.
_REMEDIES = {
    24: "set a valid group.id",
    30: "grant READ on the group to this principal",
    35: "connect to brokers of Apache Kafka 4.0 or later, which offer the consumer protocol (KIP-848)",
    42: "the broker did not understand the join; look for a proxy or a broker before 4.0 in between",
    69: "the group is of another protocol; end its classic members or use another group.id",
    81: "raise group.consumer.max.size on the brokers, or run fewer members",
    82: "another member took over this group.instance.id; give each process its own id",
    112: "name one of the brokers' assignors (group.consumer.assignors) in group.remote.assignor, or leave it out",
    128: "write the pattern as RE2/J reads it, and subscribe again",
}


def fatal_words(error: BrokerError) -> str:
    """The error that ended the membership, and what helps where that is known."""
    remedy = _REMEDIES.get(error.code)
    return str(error) if remedy is None else f"{error}; {remedy}"


def kafka_error(error: BrokerError) -> KafkaError:
    """The error with the broker's own code and words."""
    return KafkaError(error.code, error.message or error.name)


def error_message(notice: RaiseToApplication) -> Message:
    """The message that `poll()` returns for this."""
    if notice.problem is Problem.FATAL:
        return Message(error=KafkaError(notice.error.code, fatal_words(notice.error), fatal=True))
    return Message(error=kafka_error(notice.error))
