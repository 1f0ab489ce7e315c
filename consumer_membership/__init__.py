"""A drop-in replacement for `confluent_kafka.Consumer` with its own group membership (KIP-848 and classic).

Change `from confluent_kafka import ...` to `from consumer_membership import ...`. The package exports every public name
of the installed confluent-kafka release; only `Consumer` and the classes that derive from it are its own. The guides
are in the folder `docs` of the repository: migration, configuration, static members, troubleshooting.
"""

# This import comes first, because the submodule `version` would otherwise take the name of the function `version`.
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
from consumer_membership.health.progress import PartitionHealth, PartitionWaitsFor
from consumer_membership.health.verdict import Health, HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.membership.waits import WaitsFor

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
    from consumer_membership.clients.group_member import GroupMember
    from consumer_membership.clients.replacement import install, uninstall
    from consumer_membership.config import ConsumerSettings as ConsumerSettings
    from consumer_membership.health.lifecycle import LifecycleEvent, LifecycleKind

# `ConsumerSettings` is left out because `import *` would then import pydantic; confluent-kafka's modules are left out
# also.
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
    "GroupMember",
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
    "PartitionWaitsFor",
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
    "WaitsFor",
    "__version__",
    "consistent",
    "fnv1a",
    "install",
    "libversion",
    "murmur2",
    "uninstall",
    "version",
]

if not TYPE_CHECKING:  # names that the installed release lacks are left out
    _given = {
        *globals(),
        "GroupMember",
        "LifecycleEvent",
        "LifecycleKind",
        "install",
        "uninstall",
        *names.public_names(),
    }
    __all__ = [name for name in __all__ if name in _given]

names.install_finder()


def __getattr__(name: str) -> object:
    """Return a name that is created on first access (PEP 562).

    `Consumer` is late because a tracer may have patched confluent-kafka by then. confluent-kafka's names come from the
    installed release. `ConsumerSettings` alone needs pydantic. `GroupMember`, the lifecycle types and `install` are
    needed by few programs.
    """
    if name == "Consumer":
        return names.consumer_class()
    if name == "ConsumerSettings":
        from consumer_membership.config import ConsumerSettings  # noqa: PLC0415

        return ConsumerSettings
    if name == "GroupMember":
        from consumer_membership.clients.group_member import GroupMember  # noqa: PLC0415

        return GroupMember
    if name in {"LifecycleEvent", "LifecycleKind"}:
        from consumer_membership.health import lifecycle  # noqa: PLC0415

        return getattr(lifecycle, name)
    if name in {"install", "uninstall"}:
        from consumer_membership.clients import replacement  # noqa: PLC0415

        return getattr(replacement, name)
    return names.attribute(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *names.public_names(), "ConsumerSettings"})
