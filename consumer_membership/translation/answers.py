"""Responses about a group as facts of the domain, for members of the consumer protocol and for other callers.

A code other than 0 never becomes a success, and an entry that is missing in a response is an error of that entry, never
an empty result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from consumer_membership.membership.events import CommitAnswered, HeartbeatAnswered, HeartbeatRejected
from consumer_membership.translation.remedies import with_remedy
from consumer_membership.translation.requests import MemberIdentity
from consumer_membership.translation.verdicts import (
    broker_error,
    commit_verdict,
    group_error,
    heartbeat_error,
    heartbeat_verdict,
)
from consumer_membership.types import (
    Assignment,
    BrokerAddress,
    BrokerError,
    CommittedOffsets,
    OffsetAndMetadata,
    TopicIdPartition,
    TopicPartition,
)
from consumer_membership.wire.codec import Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api

#: "Static member M with instance id I cannot join the group because the instance id is owned by O member."
_HOLDER = re.compile(r"the instance id is owned by (?P<holder>\S+) member")

_SUCCESS = ErrorCode.none.value
_NOWHERE = ErrorCode.unknown_topic_or_partition.value


def left_out(what: str) -> BrokerError:
    """Return the error of an entry that is missing in the response."""
    return broker_error(ErrorCode.unknown_server_error, f"the broker's response has no entry for {what}")


_LEFT_OUT = left_out("this partition")


def consumer_group_heartbeat(
    message: Message, request_id: int, group_id: str, member_epoch: int = 0
) -> HeartbeatAnswered | HeartbeatRejected:
    """Return the response to heartbeat `request_id` with this epoch: a success, or a rejection with its verdict."""
    code = int(message.error_code)
    if code != _SUCCESS:
        found = _HOLDER.search(message.error_message or "") if code == ErrorCode.unreleased_instance_id else None
        return HeartbeatRejected(
            request_id=request_id,
            verdict=heartbeat_verdict(code),
            error=heartbeat_error(code, message.error_message, group_id, is_member=member_epoch > 0),
            holder=found["holder"] if found else None,
        )
    return HeartbeatAnswered(
        request_id=request_id,
        member_epoch=message.member_epoch,
        heartbeat_interval_s=message.heartbeat_interval_ms / 1000,
        assignment=None if message.assignment is None else _assignment(message.assignment),
    )


def _assignment(message: Message) -> Assignment:
    return frozenset(
        TopicIdPartition(topic.topic_id, partition)
        for topic in message.topic_partitions
        if topic.topic_id is not None
        for partition in topic.partitions
    )


def offset_commit(
    message: Message, commit_id: int, group_id: str, partitions: Iterable[TopicPartition]
) -> CommitAnswered:
    """Return the response to the commit of these partitions."""
    codes = {partition: int(found.error_code) for partition, found in by_partition(message.topics).items()}
    errors: dict[TopicPartition, BrokerError | None] = {}
    for partition in partitions:
        code = codes.get(partition)
        if code is None:
            errors[partition] = _LEFT_OUT
        else:
            text = f"{partition.topic} [{partition.partition}] does not exist" if code == _NOWHERE else None
            errors[partition] = None if code == _SUCCESS else group_error(code, text, group_id)
    return CommitAnswered(commit_id=commit_id, verdict=commit_verdict(frozenset(codes.values())), errors=errors)


def by_partition(topics: Iterable[Message]) -> Mapping[TopicPartition, Message]:
    """Return the entry of each partition in a response."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in topics
        for partition in topic.partitions
    }


# ---- committed offsets ----------------------------------------------------------------------------------------------


def offset_fetch(
    message: Message, group_id: str, partitions: Iterable[TopicPartition]
) -> Mapping[TopicPartition, OffsetAndMetadata | None] | BrokerError:
    """Return the committed offset of each of these partitions (None: no committed offset), or the first error."""
    answered = _fetched(message, group_id)
    if isinstance(answered, BrokerError):
        return with_remedy(Api.OFFSET_FETCH, answered)
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for partition in partitions:
        found = answered.get(partition)
        if found is None:
            return _LEFT_OUT
        offset = _offset(found, group_id, f"{partition.topic} [{partition.partition}]")
        if isinstance(offset, BrokerError):
            return with_remedy(Api.OFFSET_FETCH, offset)
        offsets[partition] = offset
    return offsets


def offset_fetch_by_partition(
    message: Message, group_id: str, partitions: Iterable[TopicPartition]
) -> CommittedOffsets | BrokerError:
    """Like `offset_fetch`, but return the error of each partition, or the error of the whole group."""
    answered = _fetched(message, group_id)
    if isinstance(answered, BrokerError):
        return answered
    return {
        partition: _offset(answered[partition], group_id) if partition in answered else _LEFT_OUT
        for partition in partitions
    }


def all_committed(
    message: Message, group_id: str
) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError] | BrokerError:
    """Return all committed offsets of the group, with each partition's error; those without an offset are absent."""
    answered = _fetched(message, group_id)
    if isinstance(answered, BrokerError):
        return answered
    offsets = {partition: _offset(found, group_id) for partition, found in answered.items()}
    return {partition: offset for partition, offset in offsets.items() if offset is not None}


def _fetched(message: Message, group_id: str) -> Mapping[TopicPartition, Message] | BrokerError:
    """Return the entry of each partition in an OffsetFetch response of any version, or the error of the whole group."""
    # versions below 8 are about one group
    found = message if hasattr(message, "topics") else of_group(message.groups, group_id)
    if found is None:
        return left_out(f"group {group_id}")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), None, group_id)
    return by_partition(found.topics)


def of_group(groups: Iterable[Message], group_id: str) -> Message | None:
    """Return the entry of this group in a response about several groups."""
    return next((group for group in groups if group.group_id == group_id), None)


def _offset(found: Message, group_id: str, text: str | None = None) -> OffsetAndMetadata | BrokerError | None:
    """Return the committed offset (None: no committed offset), or the error."""
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), text, group_id)
    if found.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        offset=found.committed_offset,
        leader_epoch=None if found.committed_leader_epoch < 0 else found.committed_leader_epoch,
        metadata=found.metadata or "",
    )


# ---- about a group, to any client -----------------------------------------------------------------------------------


def find_coordinator(message: Message, group_id: str) -> BrokerAddress | BrokerError:
    """Return the group's coordinator, or the error."""
    found: Message | None = message
    if hasattr(message, "coordinators"):
        found = next((one for one in message.coordinators if one.key == group_id), None)
    if found is None:
        return broker_error(
            ErrorCode.coordinator_not_available, f"the broker's response has no entry for group {group_id}"
        )
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), found.error_message, group_id)
    return BrokerAddress(node_id=found.node_id, host=found.host, port=found.port)


def removals(
    message: Message, group_id: str, members: Sequence[MemberIdentity]
) -> tuple[BrokerError | None, ...] | BrokerError:
    """Return the result for each of these members in their order (None: removed), or the error of the whole request."""
    if int(message.error_code) != _SUCCESS:
        return group_error(int(message.error_code), None, group_id)
    return tuple(_removal(message.members, group_id, member) for member in members)


def _removal(answers: Sequence[Message], group_id: str, member: MemberIdentity) -> BrokerError | None:
    found = next((answer for answer in answers if _is_about(answer, member)), None)
    if found is None:
        return left_out("this member")
    return None if int(found.error_code) == _SUCCESS else group_error(int(found.error_code), None, group_id)


def _is_about(answer: Message, member: MemberIdentity) -> bool:
    # A coordinator may add the missing half of the identity.
    if member.member_id:
        return bool(answer.member_id == member.member_id)
    return bool(answer.group_instance_id == member.instance_id)


def group_config(message: Message, group_id: str) -> Mapping[str, str] | BrokerError:
    """Return the group's settings by key, with the broker's defaults; keys that the broker does not know are absent."""
    found = next((result for result in message.results if result.resource_name == group_id), None)
    if found is None:
        return left_out(f"group {group_id}")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), found.error_message, group_id)
    return {setting.name: setting.value for setting in found.configs if setting.value is not None}
