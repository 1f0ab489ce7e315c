"""Subscribed topics that do not exist, beside librdkafka's classic consumer and in the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

import consumer_membership
from consumer_membership.devbroker import Broker
from tests.integration.polls import AnyConsumer
from tests.support.kafka import create_topic, delete_topic, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROTOCOLS = pytest.mark.parametrize("protocol", ["consumer", "classic"])


def make(client: Callable[..., AnyConsumer], broker: Broker, **config: object) -> AnyConsumer:
    """A consumer of its own group that refreshes its topics twice a second."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    return client(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("group"),
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
            **keys,
        }
    )


def next_error(consumer: AnyConsumer) -> Message:
    """The next error that `poll` returns; records before it are skipped."""

    def look() -> Message | None:
        message = consumer.poll(0.1)
        return message if message is not None and message.error() is not None else None

    return wait_until(look, "an error")


def fields(message: Message) -> dict[str, object]:
    """All fields of the message that a program can read."""
    error = message.error()
    assert error is not None
    return {
        "is true": bool(message),
        "length": len(message),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "value": message.value(),
        "key": message.key(),
        "code": error.code(),
        "name": error.name(),
        "words": error.str(),
        "fatal": error.fatal(),
        "retriable": error.retriable(),
    }


@PROTOCOLS
def test_missing_topic_error_has_librdkafka_s_fields(kafka: Broker, protocol: str) -> None:
    """Each field equals the classic librdkafka consumer's; librdkafka's consumer protocol reports no error at all."""
    topic = unique("no-such")
    raw, ours = (
        make(confluent_kafka.Consumer, kafka),
        make(consumer_membership.Consumer, kafka, group_protocol=protocol),
    )
    try:
        for consumer in (raw, ours):
            consumer.subscribe([topic])
        assert fields(next_error(ours)) == fields(next_error(raw))
    finally:
        raw.close()
        ours.close()


@PROTOCOLS
def test_each_missing_name_and_unmatched_pattern_is_reported_once(kafka: Broker, protocol: str) -> None:
    """The existing topic of the subscription is consumed, and each missing name or pattern is reported once."""
    there, missing = create_topic(kafka.bootstrap_servers, unique("there"), 1), unique("no-such")
    produce(kafka.bootstrap_servers, there, 5)
    topics = [there, missing, f"^{missing}-x"]
    topics_of_errors: dict[str, set[str | None]] = {}
    for name, consumer in (
        ("raw", make(confluent_kafka.Consumer, kafka)),
        ("ours", make(consumer_membership.Consumer, kafka, group_protocol=protocol)),
    ):
        consumer.subscribe(topics)
        topics_of_errors[name] = {next_error(consumer).topic(), next_error(consumer).topic()}
        if isinstance(consumer, consumer_membership.Consumer):
            assert consumer.membership().missing_topics == {missing, f"^{missing}-x"}
        consumer.close()
    assert topics_of_errors == {"raw": {missing, f"^{missing}-x"}, "ours": {missing, f"^{missing}-x"}}


def read_three(consumer: AnyConsumer) -> None:
    """Return when the topic's three records are read."""
    found: list[Message] = []

    def consume() -> None:
        found.extend(one for one in consumer.consume(3, 0.1) if one.error() is None)

    wait_until(lambda: len(found) == 3, "three records", between=consume)


def poll_until_nothing_is_missing(consumer: consumer_membership.Consumer) -> None:
    """Poll until the view has no missing topic: the first records may come before the member has its metadata."""
    wait_until(
        lambda: not consumer.membership().missing_topics, "no missing topic", between=lambda: consumer.consume(1, 0.05)
    )


@PROTOCOLS
def test_created_topic_is_read_and_reported_again_after_its_deletion(kafka: Broker, protocol: str) -> None:
    """A missing topic is read as soon as it exists, without another call, as with librdkafka's classic consumer."""
    for consumer in (
        make(confluent_kafka.Consumer, kafka),
        make(consumer_membership.Consumer, kafka, group_protocol=protocol),
    ):
        topic = unique("later")
        consumer.subscribe([topic])
        assert next_error(consumer).topic() == topic
        create_topic(kafka.bootstrap_servers, topic, 1)
        produce(kafka.bootstrap_servers, topic, 3)
        read_three(consumer)
        if isinstance(consumer, consumer_membership.Consumer):
            poll_until_nothing_is_missing(consumer)
        delete_topic(kafka.bootstrap_servers, topic)
        gone = next_error(consumer)
        error = gone.error()
        assert error is not None
        assert (gone.topic(), error.code()) == (topic, 3)
        consumer.close()


@PROTOCOLS
def test_allow_auto_create_topics_creates_a_subscribed_topic(
    kafka_broker: Callable[..., Broker], protocol: str
) -> None:
    """`allow.auto.create.topics` works on a broker that creates topics.

    confluent-kafka 2.16.1 requests none on subscribe.
    """
    broker = kafka_broker(properties={"auto.create.topics.enable": "true"})
    forbidden, allowed = unique("auto"), unique("auto")
    with make(consumer_membership.Consumer, broker, group_protocol=protocol) as consumer:
        consumer.subscribe([forbidden])
        assert next_error(consumer).topic() == forbidden
    given: list[str] = []
    with make(consumer_membership.Consumer, broker, group_protocol=protocol, allow_auto_create_topics=True) as consumer:
        consumer.subscribe([allowed], on_assign=lambda _, partitions: given.extend(one.topic for one in partitions))
        wait_until(lambda: given, "the new topic", between=lambda: consumer.poll(0.1))
    assert given == [allowed]
    assert (
        forbidden
        not in AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=PATIENCE_S).topics
    )


@pytest.mark.parametrize("what", ["consumer", "classic"])
def test_consume_command_reports_a_missing_topic(kafka: Broker, what: str) -> None:
    """The command `consume` writes the error to stderr and exits with a code other than 0."""
    topic = unique("no-such")
    words = ["-b", kafka.bootstrap_servers, "-g", topic, "-t", topic, "-c", f"group.protocol={what}", "--timeout", "60"]
    done = subprocess.run(
        [sys.executable, "-m", "consumer_membership", "consume", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"Subscribed topic not available: {topic}: Broker: Unknown topic or partition" in done.stderr
    assert f"error: topic {topic} does not exist" in done.stderr
