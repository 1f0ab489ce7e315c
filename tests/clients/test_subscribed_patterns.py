"""What `subscribe` makes of patterns, and which ones it refuses, with the reason and what to do instead."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from consumer_membership.clients.arguments import subscription_of
from consumer_membership.config import ConsumerConfig, SubscriptionSettings

MUST_BE = {"bootstrap.servers": "broker", "group.id": "g"}


def settings(**config: object) -> SubscriptionSettings:
    """What a consumer of this configuration takes."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    return ConsumerConfig.from_mapping({**MUST_BE, **keys}).subscription_settings()


def told(*topics: str, **config: object) -> str | None:
    """What the broker is told."""
    return subscription_of(list(topics), settings(**config)).pattern


def refusal(*topics: str, **config: object) -> str:
    """The words of the refusal; its code is confluent-kafka's."""
    with pytest.raises(KafkaException) as refused:
        told(*topics, **config)
    error = refused.value.args[0]
    assert error.code() == KafkaError._INVALID_ARG
    return str(error.str())


@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "auto"}, {"group_protocol": "classic"}])
def test_patterns_mean_what_they_mean_to_librdkafka(protocol: dict[str, object]) -> None:
    """They need not reach the end of a name: brokers match whole names, so that they are told of the rest."""
    assert told("^orders-", "plain", **protocol) == "^orders-.*"


def test_with_the_consumer_protocol_brokers_are_told_what_is_written() -> None:
    """As librdkafka with group.protocol=consumer; the broker is the judge of them, too."""
    assert told("^orders-", group_protocol="consumer") == "^orders-"
    assert told("^a(", group_protocol="consumer") == "^a("


def test_pool_makes_no_other_language_of_patterns() -> None:
    """It needs the consumer protocol; the application wrote `auto`, and librdkafka's patterns."""
    assert told("^orders-", group_instance_id_pool="i-{0..2}") == "^orders-.*"


@pytest.mark.parametrize("text", ["^abc(?i).*", "^(?:a|b)$", "^[[:word:]]+"])
def test_what_re2j_alone_reads_is_told_as_it_is(text: str) -> None:
    """What librdkafka refuses, the broker may read."""
    assert told(text) == text


@pytest.mark.parametrize("text", ["^a(", "^[", "^a{2,1}", "^*", "^a\\", "^a{99999999999999999999}"])
@pytest.mark.parametrize("protocol", [{}, {"group_protocol": "classic"}])
def test_what_is_no_pattern_to_anybody_is_refused(text: str, protocol: dict[str, object]) -> None:
    """As librdkafka refuses it, in words."""
    words = refusal("good", text, **protocol)
    assert words.startswith("Failed to set subscription: Local: Invalid argument or configuration (")
    assert repr(text) in words


def test_back_reference_is_refused_where_a_broker_may_have_to_match() -> None:
    """RE2/J has none: the reason and the remedy."""
    words = refusal(r"^(a)\1")
    assert "RE2/J has no back references" in words
    assert "set group.protocol=classic" in words
    assert told(r"^(a)\1", group_protocol="classic") is None


def test_member_of_classic_groups_reads_no_re2j() -> None:
    """No broker ever matches for it; what Python means by it as well is taken."""
    assert "'^abc(?i)'" in refusal("^abc(?i)", group_protocol="classic")
    (pattern,) = subscription_of(["^(?!internal)"], settings(group_protocol="classic")).patterns
    assert pattern.member == "^(?!internal)"


# ---- topic.blacklist ----


def test_blacklisted_names_are_asked_of_nobody() -> None:
    """Anywhere in a name, as librdkafka matches; what is kept out is known, to be told of."""
    given = subscription_of(["orders-1", "orders-2", "x-abc"], settings(topic_blacklist="orders-1,abc"))
    assert (given.topics, given.blacklisted, bool(given)) == ({"orders-2"}, {"orders-1", "x-abc"}, True)


def test_blacklist_beside_a_pattern_is_refused_where_the_broker_matches() -> None:
    """It would assign what nobody reads; the reason and the remedies."""
    words = refusal("^orders-.*", group_protocol="consumer", topic_blacklist="^orders-1$")
    assert "cannot be told what to leave out" in words
    assert "set group.protocol=classic" in words
    assert subscription_of(["a"], settings(group_protocol="consumer", topic_blacklist="b")).topics == {"a"}


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_blacklist_beside_a_pattern_is_for_classic_members(protocol: str) -> None:
    """Auto is classic with it: the member itself finds what matches."""
    assert told("^orders-", group_protocol=protocol, topic_blacklist="^orders-1$") == "^orders-.*"
