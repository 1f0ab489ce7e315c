"""Answers about the cluster as values of the domain: brokers, topics, leaders and their offsets."""

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
    """One partition: who leads it (None: nobody now) and who has copies of it."""

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic as the cluster describes it; `partitions` is empty where `error` says why.

    `topic_id` is None with brokers before Apache Kafka 3.0.
    """

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """The answer to one Metadata request. A topic that was asked for by id and is not known has no name: left out."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerAddress]
    #: The rack of each broker that tells one (KIP-36), by node id.
    racks: Mapping[int, str]
    topics: Mapping[str, TopicMetadata]


def cluster_metadata(message: Message) -> ClusterMetadata | BrokerError:
    """What a Metadata answer says, or the error of the whole request (version 13)."""
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
    """The topics of these names (None: all, internal ones too) as an assignor wants them, with racks (KIP-881).

    A topic that is not there, or of which nothing may be told, is absent. One that is only without a leader for a
    moment stays: who is assigned what does not hang on it, and a leader that left it out would take it from everybody.
    """
    told = {
        name: topic.partitions
        for name, topic in found.topics.items()
        if names is None or name in names
        if topic.partitions and (topic.error is None or is_retriable(topic.error.code))
    }
    racks = {
        TopicPartition(name, number): frozenset(found.racks[node] for node in one.replicas if node in found.racks)
        for name, partitions in told.items()
        for number, one in partitions.items()
        if found.racks
    }
    # Partitions are numbered from 0 on; one that a broker leaves out is there all the same.
    return Topics(partitions={name: max(partitions) + 1 for name, partitions in told.items()}, racks=racks)


#: What says that there is no such topic, as against one that has no leader yet.
_ABSENT = frozenset({ErrorCode.unknown_topic_or_partition.value, ErrorCode.invalid_topic_exception.value})


def present_of(found: ClusterMetadata) -> frozenset[str]:
    """The topics that are there, be it without a leader for a moment; one that may not be described is not known."""
    unknown = _ABSENT | {ErrorCode.topic_authorization_failed.value}
    return frozenset(
        name for name, topic in found.topics.items() if topic.error is None or topic.error.code not in unknown
    )


def refused_of(found: ClusterMetadata, names: frozenset[str] | None) -> Mapping[str, BrokerError]:
    """Those of these topics that the broker does not describe to this client, each with librdkafka's words and more."""
    words = "Broker: Topic authorization failed, so that nobody is assigned it; allow DESCRIBE and READ on it"
    return {
        name: broker_error(topic.error.code, words)
        for name, topic in found.topics.items()
        if names is not None and name in names
        if topic.error is not None and topic.error.code == ErrorCode.topic_authorization_failed
    }


def list_offsets(message: Message, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int | BrokerError]:
    """Each partition's offset, or its error. An offset of -1 is the broker's "none": no record is that young."""
    answered = by_partition(message.topics)

    def offset(partition: TopicPartition) -> int | BrokerError:
        found = answered.get(partition)
        if found is None:
            return left_out("this partition")
        return _error(found.error_code, f"{partition.topic} [{partition.partition}]") or int(found.offset)

    return {partition: offset(partition) for partition in partitions}
