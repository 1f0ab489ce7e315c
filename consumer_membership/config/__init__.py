"""Configuration: what the caller wrote, checked, and cut into what each room needs.

`ConsumerConfig` reads librdkafka's dotted keys (and environment variables); its exits give the member, the connection
and the fetcher their settings. Keys that are none of this package's go to librdkafka, which refuses the unknown ones.
This room opens nothing and imports no Kafka client.
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
    """`ConsumerSettings`, which alone needs pydantic, when it is asked for (PEP 562)."""
    if name != "ConsumerSettings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from consumer_membership.config.consumer_settings import ConsumerSettings

    return ConsumerSettings


def __dir__() -> list[str]:
    return sorted({*globals(), "ConsumerSettings"})
