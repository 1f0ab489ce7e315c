"""Responses about the cluster as values of the domain: brokers, topics, leaders and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from consumer_membership.assignors.assignor import Topics
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.translation.answers import by_partition, left_out
from consumer_membership.translation.verdicts import broker_error, is_retriable
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from consumer_membership.wire.codec import Message
from consumer_membership.wire.error_codes import ErrorCode

_SUCCESS = ErrorCode.none.value


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition: its leader (None: none now) and its replicas."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic as the cluster describes it; `partitions` is empty if there is an `error`.

    `topic_id` is None with brokers before Apache Kafka 3.0.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """A Metadata response. A topic that was requested by id and is unknown has no name and is left out."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerAddress]
    #: The rack of each broker that reports one (KIP-36), by node id.
    racks: Mapping[int, str]
    topics: Mapping[str, TopicMetadata]


def cluster_metadata(message: Message) -> ClusterMetadata | BrokerError:
    """Return the content of a Metadata response, or the error of the whole request (version 13)."""
    code = int(getattr(message, "error_code", _SUCCESS))
    if code != _SUCCESS:
        return broker_error(code)
    return ClusterMetadata(
        cluster_id=message.cluster_id,
        controller_id=None if message.controller_id < 0 else message.controller_id,
        brokers={
            broker.node_id: BrokerAddress(node_id=broker.node_id, host=broker.host, port=broker.port)
            for broker in message.brokers
        },
        racks={broker.node_id: broker.rack for broker in message.brokers if broker.rack},
        topics={topic.name: _topic(topic.name, topic) for topic in message.topics if topic.name is not None},
    )


def _topic(name: str, message: Message) -> TopicMetadata:
    return TopicMetadata(
        name=name,
        topic_id=getattr(message, "topic_id", None),
        is_internal=message.is_internal,
        partitions={partition.partition_index: _partition(partition) for partition in message.partitions},
        error=_error(message.error_code, name),
    )


def _partition(message: Message) -> PartitionMetadata:
    return PartitionMetadata(
        partition=message.partition_index,
        leader=None if message.leader_id < 0 else message.leader_id,
        leader_epoch=None if message.leader_epoch < 0 else message.leader_epoch,
        replicas=message.replica_nodes,
        in_sync_replicas=message.isr_nodes,
        error=_error(message.error_code),
    )


def _error(code: int, what: str = "") -> BrokerError | None:
    return None if code == _SUCCESS else broker_error(code, what)


def topics_of(found: ClusterMetadata, names: frozenset[str] | None) -> Topics:
    """Return the topics with these names (None: all, including internal ones) for an assignor, with racks (KIP-881).

    A topic that does not exist or cannot be described is absent. A topic that has temporarily no leader is present: an
    assignment does not depend on leaders, and its absence would revoke its partitions from all members.
    """
    described = {
        name: topic.partitions
        for name, topic in found.topics.items()
        if names is None or name in names
        if topic.partitions and (topic.error is None or is_retriable(topic.error.code))
    }
    racks = {
        TopicPartition(name, number): frozenset(found.racks[node] for node in one.replicas if node in found.racks)
        for name, partitions in described.items()
        for number, one in partitions.items()
        if found.racks
    }
    # Partitions are numbered from 0; one that a broker omits exists nevertheless.
    return Topics(partitions={name: max(partitions) + 1 for name, partitions in described.items()}, racks=racks)


#: The errors of topics that do not exist, in contrast to topics without a leader.
_ABSENT = frozenset({ErrorCode.unknown_topic_or_partition.value, ErrorCode.invalid_topic_exception.value})


def present_of(found: ClusterMetadata) -> frozenset[str]:
    """Return the existing topics, also without a leader; topics that cannot be described are unknown."""
    unknown = _ABSENT | {ErrorCode.topic_authorization_failed.value}
    return frozenset(
        name for name, topic in found.topics.items() if topic.error is None or topic.error.code not in unknown
    )


def refused_of(found: ClusterMetadata, names: frozenset[str] | None) -> Mapping[str, BrokerError]:
    """Return the topics of `names` that the broker does not describe to this client, with the error."""
    message = "Broker: Topic authorization failed, so its partitions are not assigned; grant DESCRIBE and READ on it"
    return {
        name: broker_error(topic.error.code, message)
        for name, topic in found.topics.items()
        if names is not None and name in names
        if topic.error is not None and topic.error.code == ErrorCode.topic_authorization_failed
    }


def list_offsets(message: Message, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int | BrokerError]:
    """Return each partition's offset, or its error. The offset -1 means "none": no record has a later timestamp."""
    answered = by_partition(message.topics)

    def offset(partition: TopicPartition) -> int | BrokerError:
        found = answered.get(partition)
        if found is None:
            return left_out("this partition")
        return _error(found.error_code, f"{partition.topic} [{partition.partition}]") or int(found.offset)

    return {partition: offset(partition) for partition in partitions}
