"""Configuration: what the caller wrote, checked, and cut into what each room needs.

`ConsumerConfig` reads librdkafka's dotted keys (and environment variables); its exits give the member, the connection
and the fetcher their settings. Keys that are none of this package's go to librdkafka, which refuses the unknown ones.
This room opens nothing and imports no Kafka client.
"""

from consumer_membership.config.model import ConsumerConfig
from consumer_membership.config.settings import (
    AddressFamily,
    ConnectionSettings,
    LogSettings,
    OffsetReset,
    SaslMechanism,
    SaslSettings,
    SecurityProtocol,
    StartSettings,
    SubscriptionSettings,
    TlsSettings,
    Token,
)

__all__ = [
    "AddressFamily",
    "ConnectionSettings",
    "ConsumerConfig",
    "LogSettings",
    "OffsetReset",
    "SaslMechanism",
    "SaslSettings",
    "SecurityProtocol",
    "StartSettings",
    "SubscriptionSettings",
    "TlsSettings",
    "Token",
]
