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
    """Topics whose names begin alike."""
    name = unique("pattern")
    for ending in ("-1", "-2", "-d", "-1x", ".eu", "_a"):
        create_topic(kafka.bootstrap_servers, f"{name}{ending}", 1)
    create_topic(kafka.bootstrap_servers, f"x{name}-1", 1)
    create_topic(kafka.bootstrap_servers, f"{name}", 1)
    return name


def assigned(client: Callable[..., AnyConsumer], broker: Broker, topics: list[str], **config: object) -> set[str]:
    """Which topics a group's only member is given, to the last of those that are wanted."""
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
def test_pattern_reads_what_librdkafka_reads(kafka: Broker, prefix: str, pattern: str) -> None:
    """Point by point: librdkafka's default, ours (which is a member of the consumer protocol), and ours as classic."""
    topics = [pattern.replace("{}", prefix)]
    raw = assigned(confluent_kafka.Consumer, kafka, topics)
    ours = assigned(consumer_membership.Consumer, kafka, topics)
    classic = assigned(consumer_membership.Consumer, kafka, topics, group_protocol="classic")
    assert (ours, classic) == (raw, raw)
    assert raw


def test_default_is_the_consumer_protocol(kafka: Broker, prefix: str) -> None:
    """What the comparison above compares."""
    with consumer_membership.Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")}
    ) as consumer:
        consumer.subscribe([f"^{prefix}-"])
        consumer.poll(0)
        assert consumer.membership().protocol is GroupProtocol.CONSUMER


def test_patterns_of_the_consumer_protocol_go_to_the_broker_as_they_are(kafka: Broker, prefix: str) -> None:
    r"""As librdkafka's with group.protocol=consumer: RE2/J (`\d` is a digit), whole names; `^name-` is no prefix."""
    topics = [rf"^{prefix}-\d", f"^{prefix}"]
    raw = assigned(confluent_kafka.Consumer, kafka, topics, group_protocol="consumer")
    ours = assigned(consumer_membership.Consumer, kafka, topics, group_protocol="consumer")
    assert ours == raw
    assert raw <= {f"{prefix}-1", f"{prefix}-2", prefix}


def test_what_re2j_alone_reads_is_sent(kafka: Broker, prefix: str) -> None:
    """What librdkafka refuses under either protocol; the broker matches whole names by it."""
    topics = [f"^{prefix}-D(?i)|^{prefix}-(?i)D"]
    for protocol in ("classic", "consumer"):
        with pytest.raises(KafkaException):
            assigned(confluent_kafka.Consumer, kafka, topics, group_protocol=protocol)
    for config in ({}, {"group_protocol": "consumer"}):
        assert assigned(consumer_membership.Consumer, kafka, topics, **config) == {f"{prefix}-d"}


def test_internal_topics_match(kafka: Broker, prefix: str) -> None:
    """As librdkafka's: `^.*` is everything, under both protocols."""
    topics = ["^__consumer_off"]
    assigned(consumer_membership.Consumer, kafka, [prefix])  # so that the topic is there
    raw = assigned(confluent_kafka.Consumer, kafka, topics)
    assert raw == {"__consumer_offsets"}
    assert assigned(consumer_membership.Consumer, kafka, topics) == raw
    assert assigned(consumer_membership.Consumer, kafka, topics, group_protocol="classic") == raw


def test_blacklist_keeps_out_what_librdkafka_keeps_out(kafka: Broker, prefix: str) -> None:
    """`topic.blacklist`: neither assigned nor lost; ours under auto is a classic member, as librdkafka's is."""
    topics = [f"^{prefix}-", f"{prefix}_a", f"{prefix}.eu"]
    blacklist = f"{prefix}-1,^{prefix}_,^nobody"
    raw = assigned(confluent_kafka.Consumer, kafka, topics, topic_blacklist=blacklist)
    ours = assigned(consumer_membership.Consumer, kafka, topics, topic_blacklist=blacklist)
    assert ours == raw == {f"{prefix}-2", f"{prefix}-d", f"{prefix}.eu"}


def test_blacklisted_names_are_not_told_to_the_broker(kafka: Broker, prefix: str) -> None:
    """With group.protocol=consumer: raw leaves them with the group, where nobody reads them; ours asks for the rest."""
    config = {"group_protocol": "consumer", "topic_blacklist": f"{prefix}-1$"}
    topics = [f"{prefix}-1", f"{prefix}-2"]
    raw = assigned(confluent_kafka.Consumer, kafka, topics, **config)
    assert assigned(consumer_membership.Consumer, kafka, topics, **config) == raw == {f"{prefix}-2"}
    with pytest.raises(KafkaException, match=r"topic\.blacklist"):
        assigned(consumer_membership.Consumer, kafka, [f"^{prefix}-.*"], **config)


def test_subscription_of_blacklisted_topics_alone_is_told(kafka: Broker, prefix: str) -> None:
    """A member with nothing to ask for waits in its group, and says why."""
    keys = {"group.protocol": "consumer", "topic.blacklist": prefix, "group.id": unique("group")}
    with consumer_membership.Consumer({"bootstrap.servers": kafka.bootstrap_servers, **keys}) as consumer:
        consumer.subscribe([f"{prefix}-1"])
        message = wait_until(lambda: consumer.poll(0.1), "an error")
        error = message.error()
        assert error is not None
        assert (message.topic(), error.code()) == (f"{prefix}-1", 3)
        words = f"topic '{prefix}-1', which is in topic.blacklist"

        def poll() -> None:
            assert consumer.poll(0.1) is None

        wait_until(lambda: consumer.membership().waits_for == words, words, between=poll, seen=consumer.membership)
