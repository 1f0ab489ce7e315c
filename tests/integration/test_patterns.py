"""Subscribed patterns on a real broker, beside librdkafka's own members with the same configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import confluent_kafka
import pytest
from confluent_kafka import KafkaException

import consumer_membership
from consumer_membership.devbroker import Broker
from consumer_membership.types import GroupProtocol
from tests.integration.polls import AnyConsumer
from tests.support.kafka import create_topic, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_NO_LOG = {"log_level": 0}


@pytest.fixture(scope="module")
def prefix(kafka: Broker) -> str:
    """Topics whose names have a common prefix."""
    name = unique("pattern")
    for ending in ("-1", "-2", "-d", "-1x", ".eu", "_a"):
        create_topic(kafka.bootstrap_servers, f"{name}{ending}", 1)
    create_topic(kafka.bootstrap_servers, f"x{name}-1", 1)
    create_topic(kafka.bootstrap_servers, f"{name}", 1)
    return name


def assigned(client: Callable[..., AnyConsumer], broker: Broker, topics: list[str], **config: object) -> set[str]:
    """The topics that a group's only member is assigned, once all expected ones are there."""
    keys: Mapping[str, object] = {key.replace("_", "."): value for key, value in config.items()}
    consumer = client({"bootstrap.servers": broker.bootstrap_servers, "group.id": unique("group"), **_NO_LOG, **keys})
    given: set[str] = set()
    try:
        consumer.subscribe(topics, on_assign=lambda _, partitions: given.update(one.topic for one in partitions))
        # A KIP-848 broker looks for the topics of a new pattern within a heartbeat or two.
        wait_until(lambda: given, "an assignment", between=lambda: consumer.poll(0.1))
    finally:
        consumer.close()
    return given


PATTERNS = ["^{}-", "^{}-[[:digit:]]$", "^{}|^x{}", r"^{}\.", "^{}(-[0-9])?$", r"^{}-\d", "^{}-1|_a$"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_pattern_matches_the_topics_that_librdkafka_matches(kafka: Broker, prefix: str, pattern: str) -> None:
    """Three members match the same topics: librdkafka's default, ours by default, and ours as a classic member."""
    topics = [pattern.replace("{}", prefix)]
    raw = assigned(confluent_kafka.Consumer, kafka, topics)
    ours = assigned(consumer_membership.Consumer, kafka, topics)
    classic = assigned(consumer_membership.Consumer, kafka, topics, group_protocol="classic")
    assert (ours, classic) == (raw, raw)
    assert raw


def test_default_protocol_of_the_compared_member_is_consumer(kafka: Broker, prefix: str) -> None:
    """The comparison above includes a member of the consumer protocol."""
    with consumer_membership.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}
    ) as consumer:
        consumer.subscribe([f"^{prefix}-"])
        consumer.poll(0)
        assert consumer.membership().protocol is GroupProtocol.CONSUMER


def test_consumer_protocol_sends_patterns_to_the_broker_unchanged(kafka: Broker, prefix: str) -> None:
    r"""As with librdkafka's group.protocol=consumer, patterns are RE2/J (`\d` is a digit) and match whole names.

    `^name-` is not a prefix.
    """
    topics = [rf"^{prefix}-\d", f"^{prefix}"]
    raw = assigned(confluent_kafka.Consumer, kafka, topics, group_protocol="consumer")
    ours = assigned(consumer_membership.Consumer, kafka, topics, group_protocol="consumer")
    assert ours == raw
    assert raw <= {f"{prefix}-1", f"{prefix}-2", prefix}


def test_pattern_that_only_re2j_accepts_is_sent_to_the_broker(kafka: Broker, prefix: str) -> None:
    """A pattern that librdkafka refuses under both protocols is sent; the broker matches whole names."""
    topics = [f"^{prefix}-D(?i)|^{prefix}-(?i)D"]
    for protocol in ("classic", "consumer"):
        with pytest.raises(KafkaException):
            assigned(confluent_kafka.Consumer, kafka, topics, group_protocol=protocol)
    for config in ({}, {"group_protocol": "consumer"}):
        assert assigned(consumer_membership.Consumer, kafka, topics, **config) == {f"{prefix}-d"}


def test_pattern_matches_internal_topics(kafka: Broker, prefix: str) -> None:
    """`^.*` matches all topics under both protocols, as with librdkafka."""
    topics = ["^__consumer_off"]
    assigned(consumer_membership.Consumer, kafka, [prefix])  # so that the topic is there
    raw = assigned(confluent_kafka.Consumer, kafka, topics)
    assert raw == {"__consumer_offsets"}
    assert assigned(consumer_membership.Consumer, kafka, topics) == raw
    assert assigned(consumer_membership.Consumer, kafka, topics, group_protocol="classic") == raw


def test_topic_blacklist_excludes_the_topics_that_librdkafka_excludes(kafka: Broker, prefix: str) -> None:
    """Topics of `topic.blacklist` are neither assigned nor lost.

    With auto, our member is classic, as librdkafka's is.
    """
    topics = [f"^{prefix}-", f"{prefix}_a", f"{prefix}.eu"]
    blacklist = f"{prefix}-1,^{prefix}_,^nobody"
    raw = assigned(confluent_kafka.Consumer, kafka, topics, topic_blacklist=blacklist)
    ours = assigned(consumer_membership.Consumer, kafka, topics, topic_blacklist=blacklist)
    assert ours == raw == {f"{prefix}-2", f"{prefix}-d", f"{prefix}.eu"}


def test_blacklisted_names_are_not_sent_to_the_broker(kafka: Broker, prefix: str) -> None:
    """With group.protocol=consumer, librdkafka subscribes to blacklisted names also, and no member reads them.

    This package's consumer subscribes only to the other names.
    """
    config = {"group_protocol": "consumer", "topic_blacklist": f"{prefix}-1$"}
    topics = [f"{prefix}-1", f"{prefix}-2"]
    raw = assigned(confluent_kafka.Consumer, kafka, topics, **config)
    assert assigned(consumer_membership.Consumer, kafka, topics, **config) == raw == {f"{prefix}-2"}
    with pytest.raises(KafkaException, match=r"topic\.blacklist"):
        assigned(consumer_membership.Consumer, kafka, [f"^{prefix}-.*"], **config)


def test_subscription_of_only_blacklisted_topics_reports_the_reason(kafka: Broker, prefix: str) -> None:
    """A member without any topic to subscribe to waits in its group and reports the reason."""
    keys = {"group.protocol": "consumer", "topic.blacklist": prefix, "group.id": unique("group")}
    with consumer_membership.Consumer({"bootstrap.servers": kafka.bootstrap_servers, **keys}) as consumer:
        consumer.subscribe([f"{prefix}-1"])
        message = wait_until(lambda: consumer.poll(0.1), "an error")
        error = message.error()
        assert error is not None
        assert (message.topic(), error.code()) == (f"{prefix}-1", 3)
        words = f"subscribed topics: topic '{prefix}-1' is excluded by topic.blacklist"

        def poll() -> None:
            assert consumer.poll(0.1) is None

        wait_until(lambda: consumer.membership().waits_for_text == words, words, between=poll, seen=consumer.membership)
