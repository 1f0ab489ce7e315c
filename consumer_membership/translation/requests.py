"""Requests as calls in the negotiated version, for members of both protocols and for other callers.

Each function receives the connection's `BrokerVersions` and returns a `Call`, or raises UnsupportedProtocolError if the
broker and this package have no version in common. A call has the fields of all supported versions; the version of the
call uses its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.classic.exchanges import (
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
)
from consumer_membership.membership.effects import CommitOffsets, Heartbeat
from consumer_membership.translation.consumer_protocol import NEWEST_VERSION, encode_assignment, encode_subscription
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, TopicPartition
from consumer_membership.wire.codec import Call, Fields
from consumer_membership.wire.versions import CONSUMER_COMMIT, METADATA_BY_ID, Api, BrokerVersions

KeyT = TypeVar("KeyT", str, UUID)

#: The protocol type of groups of consumers, with any assignor.
PROTOCOL_TYPE = "consumer"

#: ListOffsets: the timestamps for the end and for the start.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

#: The settings of a group's own configuration that concern its members (KIP-848).
SESSION_TIMEOUT_KEY = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_KEY = "consumer.heartbeat.interval.ms"
GROUP_CONFIG_KEYS = (SESSION_TIMEOUT_KEY, HEARTBEAT_INTERVAL_KEY)

#: FindCoordinator: the key is a group id.
_GROUP_KEY = 0
#: From this version on, FindCoordinator has several groups (KIP-699).
_FIRST_WITH_BATCHES = 4
#: DescribeConfigs: the resource is a group.
_GROUP_RESOURCE = 32
#: ListOffsets: the caller is a consumer, not a replica.
_NO_REPLICA = -1
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
#: ConsumerGroupHeartbeat: "unchanged since the last heartbeat".
_UNCHANGED_TIMEOUT = -1
_MAX_TIMEOUT_MS = 2**31 - 1
#: Java's limit (JoinGroupRequest.maybeTruncateReason); the coordinator keeps no longer reason.
_MAX_REASON = 255

#: Java's message.
_NO_PATTERNS = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It must be "
    "upgraded to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a SubscriptionPattern."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """A member to remove: a member id, an instance id (any holder), or both, which must then belong together."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None


# ---- of a member of the consumer protocol ---------------------------------------------------------------------------


def consumer_group_heartbeat(versions: BrokerVersions, group_id: str, heartbeat: Heartbeat) -> Call:
    """Return a heartbeat with these fields, None as null.

    A broker that reports no names of topic ids (Metadata below 12) is rejected, because assignments name topics by id.
    """
    if Api.METADATA.value in versions.ranges:
        versions.of(Api.METADATA, METADATA_BY_ID)
    version = versions.of(Api.CONSUMER_GROUP_HEARTBEAT)
    if version == 0 and heartbeat.pattern:
        raise UnsupportedProtocolError(_NO_PATTERNS)
    timeout_s = heartbeat.rebalance_timeout_s
    return Call(
        api=Api.CONSUMER_GROUP_HEARTBEAT,
        version=version,
        fields={
            "group_id": group_id,
            "member_id": heartbeat.member_id,
            "member_epoch": heartbeat.member_epoch,
            "instance_id": heartbeat.instance_id,
            "rack_id": heartbeat.rack_id,
            "rebalance_timeout_ms": _UNCHANGED_TIMEOUT if timeout_s is None else _milliseconds(timeout_s),
            "subscribed_topic_names": heartbeat.topics,
            "subscribed_topic_regex": heartbeat.pattern,
            "server_assignor": heartbeat.assignor,
            "topic_partitions": None
            if heartbeat.owned is None
            else [
                {"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in _numbers(heartbeat.owned).items()
            ],
        },
    )


def offset_commit(versions: BrokerVersions, group_id: str, commit: CommitOffsets, *, is_classic: bool = False) -> Call:
    """Return an OffsetCommit of this member (KIP-848: the epoch replaces the generation).

    `is_classic`: a member of the classic protocol, which may also use older versions.
    """

    def row(partition: TopicPartition) -> Fields:
        offset = commit.offsets[partition]
        return {
            "partition_index": partition.partition,
            "committed_offset": offset.offset,
            "committed_leader_epoch": -1 if offset.leader_epoch is None else offset.leader_epoch,
            "committed_metadata": offset.metadata,
        }

    return Call(
        api=Api.OFFSET_COMMIT,
        version=versions.of(Api.OFFSET_COMMIT, 0 if is_classic else CONSUMER_COMMIT),
        fields={
            "group_id": group_id,
            "generation_id_or_member_epoch": commit.member_epoch,
            "member_id": commit.member_id,
            "group_instance_id": commit.instance_id,
            "topics": _topics(commit.offsets, row),
        },
    )


# ---- of a member of the classic protocol ----------------------------------------------------------------------------


def join_group(versions: BrokerVersions, group_id: str, order: SendJoin) -> Call:
    """Return a JoinGroup with one entry per assignor, in the order of preference."""
    return Call(
        api=Api.JOIN_GROUP,
        version=versions.of(Api.JOIN_GROUP),
        fields={
            "group_id": group_id,
            "session_timeout_ms": _milliseconds(order.session_timeout_s),
            "rebalance_timeout_ms": _milliseconds(order.rebalance_timeout_s),
            "member_id": order.member_id,
            "group_instance_id": order.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [
                {"name": name, "metadata": encode_subscription(subscription)} for name, subscription in order.protocols
            ],
            "reason": order.reason[:_MAX_REASON],
        },
    )


def sync_group(versions: BrokerVersions, group_id: str, order: SendSync) -> Call:
    """Return a SyncGroup; a leader's has each member's assignment, in the version that the member uses."""

    def assignment(member_id: str) -> bytes:
        version = order.versions.get(member_id, NEWEST_VERSION)
        return encode_assignment(order.assignments[member_id], order.user_data.get(member_id), version)

    return Call(
        api=Api.SYNC_GROUP,
        version=versions.of(Api.SYNC_GROUP),
        fields={
            "group_id": group_id,
            "generation_id": order.generation,
            "member_id": order.member_id,
            "group_instance_id": order.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": order.protocol_name,
            "assignments": [
                {"member_id": member_id, "assignment": assignment(member_id)} for member_id in sorted(order.assignments)
            ],
        },
    )


def classic_heartbeat(versions: BrokerVersions, group_id: str, order: SendClassicHeartbeat) -> Call:
    """Return a Heartbeat."""
    return Call(
        api=Api.HEARTBEAT,
        version=versions.of(Api.HEARTBEAT),
        fields={
            "group_id": group_id,
            "generation_id": order.generation,
            "member_id": order.member_id,
            "group_instance_id": order.instance_id,
        },
    )


def leave_group(versions: BrokerVersions, group_id: str, order: SendClassicLeave) -> Call:
    """Return a LeaveGroup of this member alone."""
    return remove_members(versions, group_id, (leaver(order),), order.reason)


def leaver(order: SendClassicLeave) -> MemberIdentity:
    """Return the leaving member. The coordinator checks that a static member's two ids belong together."""
    return MemberIdentity(member_id=order.member_id, instance_id=order.instance_id)


# ---- about a group, by any client -----------------------------------------------------------------------------------


def find_coordinator(versions: BrokerVersions, group_id: str) -> Call:
    """Return a FindCoordinator for this group alone, or (from version 4 on) for a batch of one."""
    (call,) = find_coordinators(versions, (group_id,))
    return call


def find_coordinators(versions: BrokerVersions, group_ids: Sequence[str]) -> tuple[Call, ...]:
    """Return one FindCoordinator for all these groups, or before version 4 one for each of them (KIP-699)."""
    version = versions.of(Api.FIND_COORDINATOR)
    batches = [tuple(group_ids)] if version >= _FIRST_WITH_BATCHES else [(group_id,) for group_id in group_ids]
    return tuple(
        Call(
            api=Api.FIND_COORDINATOR,
            version=version,
            fields={"key_type": _GROUP_KEY, "key": batch[0], "coordinator_keys": batch},
        )
        for batch in batches
    )


def offset_fetch(
    versions: BrokerVersions,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    member_id: str = NO_MEMBER_ID,
    member_epoch: int = NO_EPOCH,
    require_stable: bool = True,
) -> Call:
    """Return an OffsetFetch of these partitions (None: of all committed offsets of the group).

    It names this member if the version supports that (9); without a member id, it is anonymous. With `require_stable`,
    offsets of open transactions are errors (7).
    """
    topics = None
    if partitions is not None:
        topics = topics_with_numbers(partitions)
    one = {"group_id": group_id, "topics": topics}
    asker = {"member_id": member_id or None, "member_epoch": member_epoch if member_id else NO_EPOCH}
    return Call(
        api=Api.OFFSET_FETCH,
        version=versions.of(Api.OFFSET_FETCH),
        # versions below 8 have one group in the request itself
        fields={**one, "groups": [{**one, **asker}], "require_stable": require_stable},
    )


def all_committed(versions: BrokerVersions, group_id: str) -> Call:
    """Return an anonymous OffsetFetch of all committed offsets; offsets of open transactions do not count."""
    return offset_fetch(versions, group_id, None, require_stable=False)


def describe_consumer_group(versions: BrokerVersions, group_id: str) -> Call:
    """Return a ConsumerGroupDescribe of this group for its coordinator (KIP-848)."""
    return Call(
        api=Api.CONSUMER_GROUP_DESCRIBE,
        version=versions.of(Api.CONSUMER_GROUP_DESCRIBE),
        fields={"group_ids": (group_id,), "include_authorized_operations": False},
    )


def describe_classic_group(versions: BrokerVersions, group_id: str) -> Call:
    """Return a DescribeGroups of this group for its coordinator."""
    return Call(
        api=Api.DESCRIBE_GROUPS,
        version=versions.of(Api.DESCRIBE_GROUPS),
        fields={"groups": (group_id,), "include_authorized_operations": False},
    )


def remove_members(
    versions: BrokerVersions, group_id: str, members: Iterable[MemberIdentity], reason: str | None
) -> Call:
    """Return a LeaveGroup on behalf of these members (KIP-345; of any kind of member on Kafka 4.0 and later)."""
    reason_sent = None if reason is None else reason[:_MAX_REASON]
    return Call(
        api=Api.LEAVE_GROUP,
        version=versions.of(Api.LEAVE_GROUP),
        fields={
            "group_id": group_id,
            "members": [
                {"member_id": member.member_id, "group_instance_id": member.instance_id, "reason": reason_sent}
                for member in members
            ],
        },
    )


def describe_group_config(versions: BrokerVersions, group_id: str) -> Call:
    """Return a DescribeConfigs of this group's `GROUP_CONFIG_KEYS` for any broker; the result includes its defaults.

    The group need not exist.
    """
    group = {"resource_type": _GROUP_RESOURCE, "resource_name": group_id, "configuration_keys": GROUP_CONFIG_KEYS}
    return Call(
        api=Api.DESCRIBE_CONFIGS,
        version=versions.of(Api.DESCRIBE_CONFIGS),
        fields={"resources": [group], "include_synonyms": False, "include_documentation": False},
    )


# ---- about the cluster ----------------------------------------------------------------------------------------------


def metadata_of_names(versions: BrokerVersions, names: Iterable[str] | None, *, may_create: bool = False) -> Call:
    """Return a Metadata request for the brokers and the topics with these names (None: all topics, empty: none)."""
    topics = None if names is None else [{"topic_id": None, "name": name} for name in sorted(set(names))]
    return _metadata(versions.of(Api.METADATA), topics, may_create=may_create)


def metadata_of_ids(versions: BrokerVersions, topic_ids: Iterable[UUID]) -> Call:
    """Return a Metadata request for the brokers and the topics with these ids (KIP-516), from Apache Kafka 3.0 on."""
    topics = [{"topic_id": topic_id, "name": None} for topic_id in sorted(set(topic_ids))]
    return _metadata(versions.of(Api.METADATA, METADATA_BY_ID), topics, may_create=False)


def _metadata(version: int, topics: object, *, may_create: bool) -> Call:
    return Call(
        api=Api.METADATA,
        version=version,
        fields={
            "topics": topics,
            "allow_auto_topic_creation": may_create,
            "include_topic_authorized_operations": False,
        },
    )


def list_offsets(versions: BrokerVersions, timestamps: Mapping[TopicPartition, int], *, read_committed: bool) -> Call:
    """Return a ListOffsets for the leader of these partitions; timestamps are in ms, or one of the two special ones."""
    return Call(
        api=Api.LIST_OFFSETS,
        version=versions.of(Api.LIST_OFFSETS),
        fields={
            "replica_id": _NO_REPLICA,
            "isolation_level": _READ_COMMITTED if read_committed else _READ_UNCOMMITTED,
            "topics": _topics(timestamps, lambda one: {"partition_index": one.partition, "timestamp": timestamps[one]}),
        },
    )


# ---- parts ----------------------------------------------------------------------------------------------------------


def _milliseconds(seconds: float) -> int:
    """Return a duration in milliseconds, limited to the greatest that the protocol can hold."""
    return round(min(seconds * 1000, _MAX_TIMEOUT_MS))


def _numbers(partitions: Iterable[tuple[KeyT, int]]) -> Mapping[KeyT, tuple[int, ...]]:
    """Return the partitions of each topic, sorted, so that equal requests have equal bytes."""
    gathered: dict[KeyT, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        gathered[topic].append(partition)
    return {topic: tuple(sorted(gathered[topic])) for topic in sorted(gathered)}


def topics_with_numbers(partitions: Iterable[TopicPartition]) -> list[Fields]:
    """Return the partitions by topic, for requests without further data per partition."""
    return [{"name": topic, "partition_indexes": numbers} for topic, numbers in _numbers(partitions).items()]


def _topics(partitions: Iterable[TopicPartition], row: Callable[[TopicPartition], Fields]) -> list[Fields]:
    """Return the rows of these partitions, by topic and sorted."""
    gathered: dict[str, list[Fields]] = defaultdict(list)
    for partition in sorted(partitions):
        gathered[partition.topic].append(row(partition))
    return [{"name": topic, "partitions": rows} for topic, rows in gathered.items()]
