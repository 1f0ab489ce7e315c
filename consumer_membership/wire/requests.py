# ruff: noqa: PLC0415
"""The domain's wishes as kio's request entities, in the version that was negotiated.

Each function takes the connection's `BrokerVersions` and returns a `Call`, or raises UnsupportedProtocolError where
the broker and this package have no version in common. kio's schemas are imported where they are used: each costs 4 to
9 ms to import (it makes its dataclasses then), and a process speaks a few of them. `schemas` has those of a member's
first requests imported before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast
from uuid import UUID

from kio.schema.types import BrokerId, GroupId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64
from kio.static.protocol import RequestPayload

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.membership.effects import CommitOffsets, Heartbeat
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, TopicPartition
from consumer_membership.wire.frames import Call
from consumer_membership.wire.versions import CONSUMER_COMMIT, METADATA_BY_ID, Api, BrokerVersions

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.request import TopicPartitions as HeartbeatPartitions
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindCoordinatorResponseV3
    from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse as FindCoordinatorResponseV4
    from kio.schema.list_offsets.v2.response import ListOffsetsResponse as ListOffsetsResponseV2
    from kio.schema.list_offsets.v7.response import ListOffsetsResponse as ListOffsetsResponseV7
    from kio.schema.metadata.v7.response import MetadataResponse as MetadataResponseV7
    from kio.schema.metadata.v12.response import MetadataResponse as MetadataResponseV12
    from kio.schema.metadata.v13.response import MetadataResponse as MetadataResponseV13
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as OffsetFetchResponseV7
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as OffsetFetchResponseV9

    FindCoordinatorResponse: TypeAlias = FindCoordinatorResponseV3 | FindCoordinatorResponseV4
    ListOffsetsResponse: TypeAlias = ListOffsetsResponseV2 | ListOffsetsResponseV7
    MetadataResponse: TypeAlias = MetadataResponseV7 | MetadataResponseV12 | MetadataResponseV13
    OffsetFetchResponse: TypeAlias = OffsetFetchResponseV7 | OffsetFetchResponseV9

KeyT = TypeVar("KeyT", str, UUID)

#: ListOffsets: the timestamp that asks for the end, and the one that asks for the start.
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2

#: FindCoordinator: the key is a group's id.
_GROUP_KEY = i8(0)
#: ListOffsets: the asker is a consumer, no replica.
_NO_REPLICA = BrokerId(-1)
_READ_UNCOMMITTED, _READ_COMMITTED = i8(0), i8(1)
#: ConsumerGroupHeartbeat: "unchanged since the last heartbeat".
_UNCHANGED_TIMEOUT = i32Timedelta.parse(timedelta(milliseconds=-1))
_MAX_TIMEOUT_S = (2**31 - 1) / 1000

#: From these versions on, OffsetFetch and FindCoordinator take several groups in one request.
BATCHED_OFFSET_FETCH = 8
_BATCHED_FIND_COORDINATOR = 4
#: The last version of OffsetFetch without require_stable.
_LAST_UNSTABLE = 6
#: The version from which Metadata has an error of its own.
_METADATA_WITH_ERROR = 13

#: Java's words.
_NO_PATTERNS = (
    "The cluster does not support regular expressions resolution on ConsumerGroupHeartbeat API version 0. It must be "
    "upgraded to use ConsumerGroupHeartbeat API version >= 1 to allow to subscribe to a SubscriptionPattern."
)


def consumer_group_heartbeat(
    versions: BrokerVersions, group_id: str, heartbeat: Heartbeat
) -> Call[ConsumerGroupHeartbeatResponse]:
    """A heartbeat with these fields, None as null.

    A broker that tells no names of topic ids (Metadata below 12) is refused: assignments name topics by id.
    """
    from kio.schema.consumer_group_heartbeat import v1

    if Api.METADATA.value in versions.ranges:
        versions.of(Api.METADATA, METADATA_BY_ID)
    layout: type[RequestPayload] = v1.ConsumerGroupHeartbeatRequest
    if versions.of(Api.CONSUMER_GROUP_HEARTBEAT) == 0:
        from kio.schema.consumer_group_heartbeat import v0

        if heartbeat.pattern:
            raise UnsupportedProtocolError(_NO_PATTERNS)
        layout = v0.ConsumerGroupHeartbeatRequest
    entity = v1.ConsumerGroupHeartbeatRequest(
        group_id=GroupId(group_id),
        member_id=heartbeat.member_id,
        member_epoch=i32(heartbeat.member_epoch),
        instance_id=heartbeat.instance_id,
        rack_id=heartbeat.rack_id,
        rebalance_timeout=_timeout(heartbeat.rebalance_timeout_s),
        subscribed_topic_names=cast("tuple[TopicName, ...] | None", heartbeat.topics),
        subscribed_topic_regex=heartbeat.pattern,
        server_assignor=heartbeat.assignor,
        topic_partitions=None if heartbeat.owned is None else _owned(heartbeat.owned),
    )
    return Call(entity=entity, layout=layout, response=v1.ConsumerGroupHeartbeatResponse)


def milliseconds(seconds: float) -> i32Timedelta:
    """A duration as the wire has it, in whole milliseconds; the longest that it can hold for a longer one."""
    return i32Timedelta.parse(timedelta(seconds=min(seconds, _MAX_TIMEOUT_S)))


def _timeout(seconds: float | None) -> i32Timedelta:
    if seconds is None:
        return _UNCHANGED_TIMEOUT
    return milliseconds(seconds)


def _owned(assignment: Iterable[tuple[UUID, int]]) -> tuple[HeartbeatPartitions, ...]:
    from kio.schema.consumer_group_heartbeat.v1.request import TopicPartitions

    return tuple(
        TopicPartitions(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in _by_topic(assignment).items()
    )


def _by_topic(partitions: Iterable[tuple[KeyT, int]]) -> Mapping[KeyT, tuple[i32, ...]]:
    """The partitions of each topic, sorted, so that equal wishes give equal bytes."""
    gathered: dict[KeyT, list[int]] = defaultdict(list)
    for topic, partition in partitions:
        gathered[topic].append(partition)
    # Partition numbers come from the broker: to check each against the bounds of an int32 would take 0.8 us.
    return {topic: cast("tuple[i32, ...]", tuple(sorted(gathered[topic]))) for topic in sorted(gathered)}


def offset_commit(
    versions: BrokerVersions, group_id: str, commit: CommitOffsets, *, is_classic: bool = False
) -> Call[OffsetCommitResponse]:
    """An OffsetCommit as this member (KIP-848: the epoch stands where the generation stood).

    `is_classic`: a member of the classic protocol, which older versions do for too.
    """
    from kio.schema.offset_commit import v9
    from kio.schema.offset_commit.v9 import request

    layout: type[RequestPayload] = v9.OffsetCommitRequest
    if versions.of(Api.OFFSET_COMMIT, 0 if is_classic else CONSUMER_COMMIT) < CONSUMER_COMMIT:
        from kio.schema.offset_commit import v8

        layout = v8.OffsetCommitRequest
    partitions: dict[str, list[request.OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in sorted(commit.offsets.items(), key=lambda item: item[0]):
        partitions[topic].append(
            request.OffsetCommitRequestPartition(
                partition_index=i32(partition),
                committed_offset=i64(offset.offset),
                committed_leader_epoch=i32(-1 if offset.leader_epoch is None else offset.leader_epoch),
                committed_metadata=offset.metadata,
            )
        )
    entity = v9.OffsetCommitRequest(
        group_id=GroupId(group_id),
        generation_id_or_member_epoch=i32(commit.member_epoch),
        member_id=commit.member_id,
        group_instance_id=commit.instance_id,
        topics=tuple(
            request.OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(of_topic))
            for topic, of_topic in partitions.items()
        ),
    )
    return Call(entity=entity, layout=layout, response=v9.OffsetCommitResponse)


def offset_fetch(
    versions: BrokerVersions,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    member_id: str = NO_MEMBER_ID,
    member_epoch: int = NO_EPOCH,
    require_stable: bool = True,
) -> Call[OffsetFetchResponse]:
    """An OffsetFetch, as this member where the version can say so, without member id as nobody's."""
    version = versions.of(Api.OFFSET_FETCH)
    by_topic = _by_topic(partitions)
    if version < BATCHED_OFFSET_FETCH:
        return offset_fetch_of_one(version, group_id, by_topic, require_stable=require_stable)
    from kio.schema.offset_fetch import v9
    from kio.schema.offset_fetch.v9 import request

    layout: type[RequestPayload] = v9.OffsetFetchRequest
    if version == BATCHED_OFFSET_FETCH:
        from kio.schema.offset_fetch import v8

        layout = v8.OffsetFetchRequest
    group = request.OffsetFetchRequestGroup(
        group_id=GroupId(group_id),
        member_id=member_id or None,
        member_epoch=i32(member_epoch if member_id else NO_EPOCH),
        topics=tuple(
            request.OffsetFetchRequestTopics(name=TopicName(topic), partition_indexes=numbers)
            for topic, numbers in by_topic.items()
        ),
    )
    entity = v9.OffsetFetchRequest(groups=(group,), require_stable=require_stable)
    return Call(entity=entity, layout=layout, response=v9.OffsetFetchResponse)


def offset_fetch_of_one(
    version: int, group_id: str, by_topic: Mapping[str, tuple[i32, ...]] | None, *, require_stable: bool
) -> Call[OffsetFetchResponseV7]:
    """An OffsetFetch below `BATCHED_OFFSET_FETCH` of these partitions (None: all that the group committed)."""
    from kio.schema.offset_fetch import v6, v7
    from kio.schema.offset_fetch.v7.request import OffsetFetchRequestTopic

    entity = v7.OffsetFetchRequest(
        group_id=GroupId(group_id),
        topics=None
        if by_topic is None
        else tuple(
            OffsetFetchRequestTopic(name=TopicName(topic), partition_indexes=numbers)
            for topic, numbers in by_topic.items()
        ),
        require_stable=require_stable,
    )
    layout: type[RequestPayload] = v6.OffsetFetchRequest if version == _LAST_UNSTABLE else v7.OffsetFetchRequest
    return Call(entity=entity, layout=layout, response=v7.OffsetFetchResponse)


def find_coordinator(versions: BrokerVersions, group_id: str) -> Call[FindCoordinatorResponse]:
    """A FindCoordinator for this group."""
    if versions.of(Api.FIND_COORDINATOR) < _BATCHED_FIND_COORDINATOR:
        from kio.schema.find_coordinator import v3

        return Call(
            entity=v3.FindCoordinatorRequest(key=group_id, key_type=_GROUP_KEY),
            layout=v3.FindCoordinatorRequest,
            response=v3.FindCoordinatorResponse,
        )
    from kio.schema.find_coordinator import v4

    return Call(
        entity=v4.FindCoordinatorRequest(key_type=_GROUP_KEY, coordinator_keys=(group_id,)),
        layout=v4.FindCoordinatorRequest,
        response=v4.FindCoordinatorResponse,
    )


def metadata_of_names(
    versions: BrokerVersions, names: Iterable[str] | None, *, may_create: bool = False
) -> Call[MetadataResponse]:
    """The brokers, and the topics with these names (None: all topics, empty: none)."""
    version = versions.of(Api.METADATA)
    wanted = None if names is None else [TopicName(name) for name in sorted(set(names))]
    if version >= METADATA_BY_ID:
        pairs = None if wanted is None else [(None, name) for name in wanted]
        return _metadata(version, pairs, may_create=may_create)
    from kio.schema.metadata import v7
    from kio.schema.metadata.v7.request import MetadataRequestTopic

    entity = v7.MetadataRequest(
        topics=None if wanted is None else tuple(MetadataRequestTopic(name=name) for name in wanted),
        allow_auto_topic_creation=may_create,
    )
    return Call(entity=entity, layout=v7.MetadataRequest, response=v7.MetadataResponse)


def metadata_of_ids(versions: BrokerVersions, topic_ids: Iterable[UUID]) -> Call[MetadataResponse]:
    """The brokers, and the topics with these ids (KIP-516), which brokers before Apache Kafka 3.0 cannot tell."""
    pairs = [(topic_id, None) for topic_id in sorted(set(topic_ids))]
    return _metadata(versions.of(Api.METADATA, METADATA_BY_ID), pairs, may_create=False)


def _metadata(
    version: int, topics: Sequence[tuple[UUID | None, TopicName | None]] | None, *, may_create: bool
) -> Call[MetadataResponse]:
    """One version's schemas only: each costs 8 to 14 ms to import."""
    if version < _METADATA_WITH_ERROR:
        from kio.schema.metadata import v12
        from kio.schema.metadata.v12.request import MetadataRequestTopic as TopicV12

        return Call(
            entity=v12.MetadataRequest(
                topics=None if topics is None else tuple(TopicV12(topic_id=i, name=name) for i, name in topics),
                allow_auto_topic_creation=may_create,
                include_topic_authorized_operations=False,
            ),
            layout=v12.MetadataRequest,
            response=v12.MetadataResponse,
        )
    from kio.schema.metadata import v13
    from kio.schema.metadata.v13.request import MetadataRequestTopic as TopicV13

    return Call(
        entity=v13.MetadataRequest(
            topics=None if topics is None else tuple(TopicV13(topic_id=i, name=name) for i, name in topics),
            allow_auto_topic_creation=may_create,
            include_topic_authorized_operations=False,
        ),
        layout=v13.MetadataRequest,
        response=v13.MetadataResponse,
    )


def list_offsets(
    versions: BrokerVersions, timestamps: Mapping[TopicPartition, int], *, read_committed: bool
) -> Call[ListOffsetsResponse]:
    """A ListOffsets to the leader of these partitions; the timestamps are in ms, or one of the two special ones."""
    from kio.schema.list_offsets import v7
    from kio.schema.list_offsets.v7 import request

    partitions: dict[str, list[request.ListOffsetsPartition]] = defaultdict(list)
    for (topic, partition), timestamp in sorted(timestamps.items()):
        partitions[topic].append(request.ListOffsetsPartition(partition_index=i32(partition), timestamp=i64(timestamp)))
    entity = v7.ListOffsetsRequest(
        replica_id=_NO_REPLICA,
        isolation_level=_READ_COMMITTED if read_committed else _READ_UNCOMMITTED,
        topics=tuple(
            request.ListOffsetsTopic(name=TopicName(topic), partitions=tuple(of_topic))
            for topic, of_topic in partitions.items()
        ),
    )
    if versions.of(Api.LIST_OFFSETS) < v7.ListOffsetsRequest.__version__:
        from kio.schema.list_offsets import v2

        return Call(entity=entity, layout=v2.ListOffsetsRequest, response=v2.ListOffsetsResponse)
    return Call(entity=entity, layout=v7.ListOffsetsRequest, response=v7.ListOffsetsResponse)
