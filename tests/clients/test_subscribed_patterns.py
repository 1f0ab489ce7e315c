"""The patterns that `subscribe` sends, and those that it refuses with the reason and a remedy."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer_membership.clients.arguments import subscription_of
from consumer_membership.config import ConsumerConfig, SubscriptionSettings

MUST_BE = {"bootstrap.servers": "broker", "group.id": "g"}


def settings(**config: object) -> SubscriptionSettings:
    """The settings of a consumer with this configuration."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    return ConsumerConfig.from_mapping({**MUST_BE, **keys}).subscription_settings()


def subscribed_pattern(*topics: str, **config: object) -> str | None:
    """The pattern that the broker receives."""
    return subscription_of(list(topics), settings(**config)).pattern


def refusal(*topics: str, **config: object) -> str:
    """The text of the error, whose code is confluent-kafka's."""
    with pytest.raises(KafkaException) as refused:
        subscribed_pattern(*topics, **config)
    error = refused.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG
    return str(error.str())


@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "auto"}, {"group_protocol": "classic"}])
def test_pattern_is_extended_to_match_whole_names_on_the_broker(protocol: dict[str, object]) -> None:
    """A librdkafka pattern need not reach the end of a name, but brokers match whole names."""
    assert subscribed_pattern("^orders-", "plain", **protocol) == "^orders-.*"


def test_pattern_with_the_consumer_protocol_is_sent_unchanged() -> None:
    """As with librdkafka and group.protocol=consumer, the broker also decides whether a pattern is valid."""
    assert subscribed_pattern("^orders-", group_protocol="consumer") == "^orders-"
    assert subscribed_pattern("^a(", group_protocol="consumer") == "^a("


def test_pattern_with_a_pool_keeps_librdkafka_s_meaning() -> None:
    """A pool requires the consumer protocol, but the application configured `auto` and uses librdkafka's patterns."""
    assert subscribed_pattern("^orders-", group_instance_id_pool="i-{0..2}") == "^orders-.*"


@pytest.mark.parametrize("text", ["^abc(?i).*", "^(?:a|b)$", "^[[:word:]]+"])
def test_pattern_that_only_re2j_accepts_is_sent_unchanged(text: str) -> None:
    """The broker may accept a pattern that librdkafka refuses."""
    assert subscribed_pattern(text) == text


@pytest.mark.parametrize("text", ["^a(", "^[", "^a{2,1}", "^*", "^a\\", "^a{99999999999999999999}"])
@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "classic"}])
def test_invalid_pattern_raises_librdkafka_s_error(text: str, protocol: dict[str, object]) -> None:
    """The text begins as librdkafka's and names the pattern."""
    message = refusal("good", text, **protocol)
    assert message.startswith("Failed to set subscription: Local: Invalid argument or configuration (")
    assert repr(text) in message


def test_back_reference_is_refused_if_a_broker_may_match_the_pattern() -> None:
    """RE2/J has no back references; the error has the reason and the remedy."""
    message = refusal(r"^(a)\1")
    assert "RE2/J has no back references" in message
    assert "set group.protocol=classic" in message
    assert subscribed_pattern(r"^(a)\1", group_protocol="classic") is None


def test_classic_member_refuses_re2j_syntax_and_accepts_python_s() -> None:
    """No broker matches for a classic member, so a pattern must mean the same in Python."""
    assert "'^abc(?i)'" in refusal("^abc(?i)", group_protocol="classic")
    (pattern,) = subscription_of(["^(?!internal)"], settings(group_protocol="classic")).patterns
    assert pattern.member == "^(?!internal)"


# ---- topic.blacklist ----


def test_blacklisted_names_are_not_subscribed_and_are_reported() -> None:
    """The blacklist matches anywhere in a name, as in librdkafka; the excluded names are kept for the report."""
    given = subscription_of(["orders-1", "orders-2", "x-abc"], settings(topic_blacklist="orders-1,abc"))
    assert (given.topics, given.blacklisted, bool(given)) == ({"orders-2"}, {"orders-1", "x-abc"}, True)


def test_blacklist_with_a_pattern_is_refused_if_the_broker_matches() -> None:
    """The broker would assign partitions that no member reads; the error has the reason and the remedies."""
    message = refusal("^orders-.*", group_protocol="consumer", topic_blacklist="^orders-1$")
    assert "the broker resolves patterns and does not know the blacklist" in message
    assert "set group.protocol=classic" in message
    assert subscription_of(["a"], settings(group_protocol="consumer", topic_blacklist="b")).topics == {"a"}


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_blacklist_with_a_pattern_is_accepted_for_classic_members(protocol: str) -> None:
    """With a blacklist `auto` is classic: the member itself matches the names."""
    assert subscribed_pattern("^orders-", group_protocol=protocol, topic_blacklist="^orders-1$") == "^orders-.*"
