"""Keys that are refused wherever they are given, each with what to do instead, and keys that librdkafka must not see.

A key that asks for something which this version does not do is refused, never ignored: a consumer that silently leaves
out encryption, or an assignor, is worse than one that does not start. What is refused for a security.protocol or a
mechanism only stands in `security.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

#: What the consumer protocol has no use for: confluent-kafka refuses these too when group.protocol=consumer is given.
NOT_OF_THE_CONSUMER_PROTOCOL: Mapping[str, str] = {
    "session.timeout.ms": (
        "Failed to create consumer: `session.timeout.ms` is not supported for `group.protocol=consumer` or share "
        "consumer. It is defined broker side: by group.consumer.session.timeout.ms, or consumer.session.timeout.ms for "
        "one group; remove the key"
    ),
    "partition.assignment.strategy": (
        "Failed to create consumer: `partition.assignment.strategy` is not supported for `group.protocol=consumer`. "
        "Use `group.remote.assignor` instead"
    ),
    "group.protocol.type": (
        "Failed to create consumer: `group.protocol.type` is not supported for `group.protocol=consumer` or share "
        "consumer; remove the key"
    ),
}

_SECRET_WORDS = ("password", "secret", "passphrase", "key.pem", "private.key", "sasl.oauthbearer.config", "jaas")
#: A callback may hold secrets (`functools.partial`), and who gives the token itself gives a secret.
_SECRET_KEYS = frozenset({"oauth_cb", "oauth.cb"})

_REFUSED: Mapping[str, str] = {
    # Java's, which librdkafka refuses in these words.
    "ssl.truststore.location": (
        "Java TrustStores are not supported, use `ssl.ca.location` and a certificate file instead. See "
        "https://github.com/confluentinc/librdkafka/wiki/Using-SSL-with-librdkafka for more information."
    ),
    "sasl.jaas.config": (
        "Java JAAS configuration is not supported, see "
        "https://github.com/confluentinc/librdkafka/wiki/Using-SASL-with-librdkafka for more information. Give "
        "sasl.mechanism, sasl.username and sasl.password"
    ),
    # What an environment variable for oauth_cb would be read as.
    "oauth.cb": "a callback cannot come from an environment variable; give oauth_cb in the program",
}

#: The membership's own, and what would make librdkafka a member beside ours; never handed to the fetcher.
KEPT_FROM_THE_FETCHER = frozenset(
    {
        "group.instance.id",
        "group.instance.id.pool",
        "group.instance.id.conflict.policy",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "partition.assignment.strategy",
        "session.timeout.ms",
        "heartbeat.interval.ms",
        "heartbeat.active.interval.ms",
        "max.poll.interval.ms",
        "enable.auto.commit",
        "auto.commit.interval.ms",
        "enable.auto.offset.store",
        "crash.guardian.enable",
    }
)


def refusal_of(key: str) -> str | None:
    """Why this version cannot honour the key, whatever its value; None if it can."""
    if key.startswith("test.mock."):
        return (
            "the mock cluster would live inside the fetching handle, where the member cannot reach it; start it with a "
            "Producer and give its address as bootstrap.servers"
        )
    return _REFUSED.get(key)


def is_secret(key: str) -> bool:
    """Whether the key's value must never be printed."""
    return key in _SECRET_KEYS or any(word in key for word in _SECRET_WORDS)
