"""A drop-in for `confluent_kafka.Consumer` whose group membership is its own state machine on the wire.

Change `from confluent_kafka import ...` to `from consumer_membership import ...`: what a consuming program imports from
there is here too, and everything but `Consumer` is confluent-kafka's own. The folder `docs` beside this module has the
guides: migration, configuration, static members, troubleshooting, ...
"""

# First, or the module would take the name of `version`, the function.
from consumer_membership.version import __version__  # isort: skip

from typing import TYPE_CHECKING

from confluent_kafka import version

from consumer_membership.assignors.assignor import (
    Assigned,
    AssignmentObserver,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    Topics,
)
from consumer_membership.clients import names
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
from consumer_membership.health.progress import PartitionHealth
from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView

if TYPE_CHECKING:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        OFFSET_END,
        OFFSET_INVALID,
        OFFSET_STORED,
        TIMESTAMP_CREATE_TIME,
        TIMESTAMP_LOG_APPEND_TIME,
        TIMESTAMP_NOT_AVAILABLE,
        AcknowledgeType,
        ConcurrentModificationException,
        ConsumerGroupState,
        ConsumerGroupTopicPartitions,
        ConsumerGroupType,
        DeserializingConsumer,
        DeserializingShareConsumer,
        ElectionType,
        IllegalStateException,
        IsolationLevel,
        KafkaError,
        KafkaException,
        Message,
        Messages,
        Node,
        Producer,
        SerializingProducer,
        ShareConsumer,
        ThrottleEvent,
        TopicCollection,
        TopicPartition,
        TopicPartitionInfo,
        Uuid,
        consistent,
        fnv1a,
        libversion,
        murmur2,
    )

    from consumer_membership.clients.consumer import Consumer
    from consumer_membership.clients.replacement import install, uninstall
    from consumer_membership.config import ConsumerSettings as ConsumerSettings
    from consumer_membership.health.lifecycle import LifecycleEvent, LifecycleKind

# `ConsumerSettings` is not among them: `import *` would import pydantic. Nor are modules of confluent-kafka's.
__all__ = [
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "TIMESTAMP_CREATE_TIME",
    "TIMESTAMP_LOG_APPEND_TIME",
    "TIMESTAMP_NOT_AVAILABLE",
    "AcknowledgeType",
    "Assigned",
    "AssignmentError",
    "AssignmentObserver",
    "Assignor",
    "AuthenticationError",
    "CommitError",
    "ConcurrentModificationException",
    "ConfigurationError",
    "Consumer",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "ElectionType",
    "FatalGroupError",
    "GroupError",
    "Health",
    "HealthVerdict",
    "IllegalStateException",
    "InternalError",
    "IsolationLevel",
    "KafkaError",
    "KafkaException",
    "LifecycleEvent",
    "LifecycleKind",
    "MemberState",
    "MemberSubscription",
    "MembershipError",
    "MembershipView",
    "Message",
    "Messages",
    "Node",
    "PartitionHealth",
    "Producer",
    "RebalanceProtocol",
    "SerializingProducer",
    "ShareConsumer",
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
    "consistent",
    "fnv1a",
    "install",
    "libversion",
    "murmur2",
    "uninstall",
    "version",
]

if not TYPE_CHECKING:  # what the installed release lacks is not here, either
    _given = {*globals(), "LifecycleEvent", "LifecycleKind", "install", "uninstall", *names.public_names()}
    __all__ = [name for name in __all__ if name in _given]

names.install_finder()


def __getattr__(name: str) -> object:
    """What is not made before it is asked for (PEP 562).

    `Consumer`, since a tracer may have patched confluent-kafka by then; confluent-kafka's names, of whichever release
    is installed; `ConsumerSettings`, which alone needs pydantic; what only programs with `on_event` name.
    """
    if name == "Consumer":
        return names.consumer_class()
    if name == "ConsumerSettings":
        from consumer_membership.config import ConsumerSettings  # noqa: PLC0415

        return ConsumerSettings
    if name in {"LifecycleEvent", "LifecycleKind"}:
        from consumer_membership.health import lifecycle  # noqa: PLC0415

        return getattr(lifecycle, name)
    if name in {"install", "uninstall"}:
        from consumer_membership.clients import replacement  # noqa: PLC0415

        return getattr(replacement, name)
    return names.attribute(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *names.public_names(), "ConsumerSettings"})
