"""confluent-kafka's `aio` with this package's consumer: `AIOConsumer` for asyncio, and the classes that derive from it.

`AIOGroupMember` is an addition: membership without fetching.

All other names are those of the installed confluent-kafka release.
"""

from typing import TYPE_CHECKING

import confluent_kafka.aio as _theirs

from consumer_membership.aio.consumer import AIOConsumer as AIOConsumer
from consumer_membership.aio.group_member import AIOGroupMember as AIOGroupMember
from consumer_membership.aio.names import on_ours
from consumer_membership.clients.names import lookup

if TYPE_CHECKING:
    from confluent_kafka.aio import AIOProducer as AIOProducer
    from confluent_kafka.aio import AsyncDeserializingConsumer as AsyncDeserializingConsumer
    from confluent_kafka.aio import AsyncSerializingProducer as AsyncSerializingProducer

__all__ = list(_theirs.__all__)  # the names of the installed release


def __getattr__(name: str) -> object:
    """Return another name of confluent-kafka's `aio`; consumer classes are derived from this package's (PEP 562)."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return on_ours(lookup(_theirs, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
