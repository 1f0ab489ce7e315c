"""A drop-in for `confluent_kafka.Consumer` whose group membership is its own state machine on the wire.

Change `from confluent_kafka import ...` to `from consumer_membership import ...`: what a consuming program imports from
there is here too, and everything but `Consumer` is confluent-kafka's own. The folder `docs` beside this module has the
guides: migration, configuration, static members, troubleshooting, ...
"""

# First, or the module would take the name of `version`, the function.
from consumer_membership.version import __version__  # isort: skip

from typing import TYPE_CHECKING

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Node,
    Producer,
    SerializingProducer,
    ThrottleEvent,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    Uuid,
    libversion,
    version,
)

from consumer_membership.clients.consumer import Consumer
from consumer_membership.errors import (
    AssignmentError,
    AuthenticationError,
    CommitError,
    ConfigurationError,
    FatalGroupError,
    GroupError,
    InternalError,
    MembershipError,
    TransportError,
    UnsupportedProtocolError,
    UseError,
)
from consumer_membership.membership.classic.assignor import (
    Assigned,
    AssignmentObserver,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    Topics,
)
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView

if TYPE_CHECKING:
    from consumer_membership.config import ConsumerSettings as ConsumerSettings

# `ConsumerSettings` is not among them: `import *` would import pydantic.
__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "Assigned",
    "AssignmentError",
    "AssignmentObserver",
    "Assignor",
    "AuthenticationError",
    "CommitError",
    "ConfigurationError",
    "Consumer",
    "FatalGroupError",
    "GroupError",
    "InternalError",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "MemberState",
    "MemberSubscription",
    "MembershipError",
    "MembershipView",
    "Message",
    "Node",
    "Producer",
    "RebalanceProtocol",
    "SerializingProducer",
    "ThrottleEvent",
    "TopicCollection",
    "TopicPartition",
    "TopicPartitionInfo",
    "Topics",
    "TransportError",
    "UnsupportedProtocolError",
    "UseError",
    "Uuid",
    "__version__",
    "libversion",
    "version",
]


def __getattr__(name: str) -> object:
    """`ConsumerSettings`, which alone needs pydantic, when it is asked for (PEP 562)."""
    if name != "ConsumerSettings":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from consumer_membership.config import ConsumerSettings  # noqa: PLC0415

    return ConsumerSettings


def __dir__() -> list[str]:
    return sorted({*globals(), "ConsumerSettings"})
