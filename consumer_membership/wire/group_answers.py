"""kio's answers to what is asked about a group from outside: removals, its configuration, what it committed.

A code other than 0 never becomes a success, and what a broker left out of an answer is an error of that part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from consumer_membership.types import BrokerError, OffsetAndMetadata, TopicPartition
from consumer_membership.wire import responses
from consumer_membership.wire.group_requests import MemberIdentity
from consumer_membership.wire.verdicts import broker_error, group_error

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
    from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

    from consumer_membership.wire.requests import OffsetFetchResponse

_SUCCESS = ErrorCode.none.value


def removals(
    entity: LeaveGroupResponse, group_id: str, members: Sequence[MemberIdentity]
) -> tuple[BrokerError | None, ...] | BrokerError:
    """What became of each of these members, in their order (None: removed); or why the whole request was refused."""
    if int(entity.error_code) != _SUCCESS:
        return group_error(int(entity.error_code), None, group_id)
    return tuple(_removal(entity.members, group_id, member) for member in members)


def _removal(answers: Sequence[MemberResponse], group_id: str, member: MemberIdentity) -> BrokerError | None:
    found = next((answer for answer in answers if _is_about(answer, member)), None)
    if found is None:
        return broker_error(ErrorCode.unknown_server_error, "the broker's answer leaves this member out")
    return None if int(found.error_code) == _SUCCESS else group_error(int(found.error_code), None, group_id)


def _is_about(answer: MemberResponse, member: MemberIdentity) -> bool:
    # A coordinator may complete the half of the identity that it was not given.
    if member.member_id:
        return answer.member_id == member.member_id
    return answer.group_instance_id == member.instance_id


def group_config(entity: DescribeConfigsResponse, group_id: str) -> Mapping[str, str] | BrokerError:
    """The group's settings by key, the broker's defaults where none is set; keys that it does not know are absent."""
    found = next((result for result in entity.results if result.resource_name == group_id), None)
    if found is None:
        return broker_error(ErrorCode.unknown_server_error, f"the broker's answer leaves group {group_id} out")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), found.error_message, group_id)
    return {setting.name: setting.value for setting in found.configs if setting.value is not None}


def all_committed(
    entity: OffsetFetchResponse, group_id: str
) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError] | BrokerError:
    """Everything that the group committed, a partition's error in its place; partitions without offset are absent."""
    answered = responses.fetched(entity, group_id)
    if isinstance(answered, BrokerError):
        return answered
    offsets: dict[TopicPartition, OffsetAndMetadata | BrokerError] = {}
    for partition, found in answered.items():
        offset = responses.committed(found)
        if int(found.error_code) != _SUCCESS:
            offsets[partition] = group_error(int(found.error_code), None, group_id)
        elif offset is not None:
            offsets[partition] = offset
    return offsets
