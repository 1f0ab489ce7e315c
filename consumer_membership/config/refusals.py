"""Keys that are refused, each with what to do instead, and keys that librdkafka must not see.

A key that asks for something which this version does not do is refused, never ignored: a consumer that silently leaves
out encryption, or an assignor, is worse than one that does not start.
"""

from __future__ import annotations

from collections.abc import Mapping

_PLAINTEXT_ONLY = (
    "this version connects in plaintext only; remove the key, or keep confluent_kafka.Consumer for this cluster"
)

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

_SECURITY_PREFIXES = ("sasl.", "ssl.", "https.", "enable.sasl.", "enable.ssl.")
_SECRET_WORDS = ("password", "secret", "passphrase", "key.pem", "private.key", "sasl.oauthbearer.config", "jaas")

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
    if key.startswith(_SECURITY_PREFIXES) or key == "oauth_cb":
        return _PLAINTEXT_ONLY
    if key.startswith("test.mock."):
        return (
            "the mock cluster would live inside the fetching handle, where the member cannot reach it; start it with a "
            "Producer and give its address as bootstrap.servers"
        )
    return None


def is_secret(key: str) -> bool:
    """Whether the key's value must never be printed."""
    return any(word in key for word in _SECRET_WORDS)
