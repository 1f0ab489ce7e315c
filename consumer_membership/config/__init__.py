"""Configuration: check the caller's keys and derive the settings of each package from them.

`ConsumerConfig` reads librdkafka's dotted keys and environment variables; its methods return the settings of the
member, the connections and the fetcher. Keys that this package does not define are passed to librdkafka, which rejects
unknown ones. This package opens nothing and imports no Kafka client.
"""

from typing import TYPE_CHECKING

from consumer_membership.config.model import ConsumerConfig
from consumer_membership.config.settings import (
    AddressFamily,
    ByDuration,
    CallbackSettings,
    ConnectionSettings,
    LogSettings,
    OffsetReset,
    RebalanceCallbacks,
    SaslMechanism,
    SaslSettings,
    SecurityProtocol,
    StartSettings,
    SubscriptionSettings,
    TlsSettings,
    Token,
)

if TYPE_CHECKING:
    from consumer_membership.config.consumer_settings import ConsumerSettings as ConsumerSettings

__all__ = [
    "AddressFamily",
    "ByDuration",
    "CallbackSettings",
    "ConnectionSettings",
    "ConsumerConfig",
    "LogSettings",
    "OffsetReset",
    "RebalanceCallbacks",
    "SaslMechanism",
    "SaslSettings",
    "SecurityProtocol",
    "StartSettings",
    "SubscriptionSettings",
    "TlsSettings",
    "Token",
]


def __getattr__(name: str) -> object:
    """Import `ConsumerSettings` on first access (PEP 562), because it alone needs pydantic."""
    if name != "ConsumerSettings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from consumer_membership.config.consumer_settings import ConsumerSettings

    return ConsumerSettings


def __dir__() -> list[str]:
    return sorted({*globals(), "ConsumerSettings"})
