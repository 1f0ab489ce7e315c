"""kio's response entities about a group as facts of the domain.

A code other than 0 never becomes a success, and what a broker left out of an answer is an error of that part, never an
empty result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias, cast

from kio.schema.errors import ErrorCode

from consumer_membership.membership.events import CommitAnswered, HeartbeatAnswered, HeartbeatRejected
from consumer_membership.types import (
    Assignment,
    BrokerAddress,
    BrokerError,
    CommittedOffsets,
    OffsetAndMetadata,
    TopicIdPartition,
    TopicPartition,
)
from consumer_membership.wire.remedies import Request, with_remedy
from consumer_membership.wire.verdicts import (
    broker_error,
    commit_verdict,
    group_error,
    heartbeat_error,
    heartbeat_verdict,
)

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.response import Assignment as AssignmentEntity
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
    from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindCoordinatorResponseV3
    from kio.schema.find_coordinator.v4.response import Coordinator
    from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse as FindCoordinatorResponseV4
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as OffsetFetchResponseV7
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition as FetchedPartitionV7
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup as FetchedGroup
    from kio.schema.offset_fetch.v9.response import OffsetFetchResponsePartitions as FetchedPartitionV9

    from consumer_membership.wire.requests import FindCoordinatorResponse, OffsetFetchResponse

    FetchedPartition: TypeAlias = FetchedPartitionV7 | FetchedPartitionV9

#: "Static member M with instance id I cannot join the group because the instance id is owned by O member."
_HOLDER = re.compile(r"the instance id is owned by (?P<holder>\S+) member")

_SUCCESS = ErrorCode.none.value
_NOWHERE = ErrorCode.unknown_topic_or_partition.value
_LEFT_OUT = broker_error(ErrorCode.unknown_server_error, "the broker's answer leaves this partition out")


def consumer_group_heartbeat(
    entity: ConsumerGroupHeartbeatResponse, request_id: int, group_id: str
) -> HeartbeatAnswered | HeartbeatRejected:
    """The answer to heartbeat `request_id`: a success, or a refusal with its verdict."""
    code = int(entity.error_code)
    if code != _SUCCESS:
        return HeartbeatRejected(
            request_id=request_id,
            verdict=heartbeat_verdict(code),
            error=heartbeat_error(code, entity.error_message, group_id),
            holder=_holder(entity.error_message) if code == ErrorCode.unreleased_instance_id else None,
        )
    return HeartbeatAnswered(
        request_id=request_id,
        member_epoch=entity.member_epoch,
        heartbeat_interval_s=entity.heartbeat_interval.total_seconds(),
        assignment=None if entity.assignment is None else _assignment(entity.assignment),
    )


def _assignment(entity: AssignmentEntity) -> Assignment:
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for topic in entity.topic_partitions
        if topic.topic_id is not None
        for partition in topic.partitions
    )


def _holder(message: str | None) -> str | None:
    found = _HOLDER.search(message or "")
    return found["holder"] if found else None


def offset_commit(
    entity: OffsetCommitResponse, commit_id: int, group_id: str, partitions: Iterable[TopicPartition]
) -> CommitAnswered:
    """The answer to the commit of these partitions."""
    codes = {
        TopicPartition(topic.name, partition.partition_index): int(partition.error_code)
        for topic in entity.topics
        for partition in topic.partitions
    }
    errors: dict[TopicPartition, BrokerError | None] = {}
    for partition in partitions:
        code = codes.get(partition)
        if code is None:
            errors[partition] = _LEFT_OUT
        else:
            words = f"there is no {partition.topic} [{partition.partition}]" if code == _NOWHERE else None
            errors[partition] = None if code == _SUCCESS else group_error(code, words, group_id)
    return CommitAnswered(commit_id=commit_id, verdict=commit_verdict(frozenset(codes.values())), errors=errors)


def offset_fetch(
    entity: OffsetFetchResponse, group_id: str, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, OffsetAndMetadata | None] | BrokerError:
    """The committed offset of each of these partitions, None where nothing is committed; or the first error."""
    answered = fetched(entity, group_id)
    if isinstance(answered, BrokerError):
        return with_remedy(Request.FETCH, answered)
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for partition in partitions:
        found = answered.get(partition)
        if found is None:
            return _LEFT_OUT
        if int(found.error_code) != _SUCCESS:
            error = group_error(int(found.error_code), f"{partition.topic} [{partition.partition}]", group_id)
            return with_remedy(Request.FETCH, error)
        offsets[partition] = committed(found)
    return offsets


def offset_fetch_by_partition(
    entity: OffsetFetchResponse, group_id: str, partitions: Iterable[TopicPartition]
) -> CommittedOffsets | BrokerError:
    """As `offset_fetch`, each partition's error in its place; or the error of the whole group."""
    answered = fetched(entity, group_id)
    if isinstance(answered, BrokerError):
        return answered
    offsets: dict[TopicPartition, OffsetAndMetadata | BrokerError | None] = {}
    for partition in partitions:
        found = answered.get(partition)
        if found is None:
            offsets[partition] = _LEFT_OUT
        elif int(found.error_code) != _SUCCESS:
            offsets[partition] = group_error(int(found.error_code), None, group_id)
        else:
            offsets[partition] = committed(found)
    return offsets


def fetched(entity: OffsetFetchResponse, group_id: str) -> Mapping[TopicPartition, FetchedPartition] | BrokerError:
    """What an OffsetFetch of any version says of each partition, or the error of the whole group."""
    found: OffsetFetchResponseV7 | FetchedGroup | None
    if hasattr(entity, "topics"):
        found = cast("OffsetFetchResponseV7", entity)
    else:
        found = next((group for group in entity.groups if group.group_id == group_id), None)
    if found is None:
        return broker_error(ErrorCode.unknown_server_error, f"the broker's answer leaves group {group_id} out")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), None, group_id)
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in found.topics
        for partition in topic.partitions
    }


def committed(found: FetchedPartition) -> OffsetAndMetadata | None:
    """The committed offset, None where nothing is committed."""
    if found.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        offset=found.committed_offset,
        leader_epoch=None if found.committed_leader_epoch < 0 else found.committed_leader_epoch,
        metadata=found.metadata or "",
    )


def find_coordinator(entity: FindCoordinatorResponse, group_id: str) -> BrokerAddress | BrokerError:
    """The group's coordinator, or why there is none."""
    found: FindCoordinatorResponseV3 | Coordinator | None
    if hasattr(entity, "coordinators"):
        batch = cast("FindCoordinatorResponseV4", entity).coordinators
        found = next((one for one in batch if one.key == group_id), None)
    else:
        found = entity
    if found is None:
        return broker_error(ErrorCode.coordinator_not_available, f"the broker's answer leaves group {group_id} out")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), found.error_message, group_id)
    return BrokerAddress(node_id=found.node_id, host=found.host, port=found.port)
