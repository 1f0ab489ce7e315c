"""Builders of a coordinator's responses about groups."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.describe_configs.v4 import response as configs_v4
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5 import response as leave_v5
from kio.schema.offset_commit.v9 import response as commit_v9
from kio.schema.offset_fetch.v7 import response as fetch_v7
from kio.schema.offset_fetch.v9 import response as fetch_v9

from consumer_membership.types import TopicPartition
from tests.support.scripted_broker import ZERO

TOPIC_ID = UUID(int=0xA)


def module_of(api_key: int, version: int) -> Any:
    """Return the module of an API's response, which contains the nested classes."""
    return importlib.import_module(load_response_schema(api_key, version).__module__)


def consumer_member(member_id: str, *, version: int = 1, **fields: Any) -> Any:
    """Build a member of a ConsumerGroupDescribe response; assignments are partitions of topic `t`."""
    kind = module_of(69, version)

    def assignment(partitions: tuple[int, ...]) -> Any:
        topics = (kind.TopicPartitions(topic_id=TOPIC_ID, topic_name="t", partitions=partitions),) if partitions else ()
        return kind.Assignment(topic_partitions=topics)

    values: dict[str, Any] = {"member_epoch": 5, "client_id": "c", "client_host": "/10.0.0.1", **fields}
    values["assignment"] = assignment(values.get("assignment", ()))
    values["target_assignment"] = assignment(values.get("target_assignment", ()))
    return kind.Member(member_id=member_id, **values)


def consumer_group(*members: Any, version: int = 1, group: str = "g", **fields: Any) -> Any:
    """Build a ConsumerGroupDescribe response with one group; `code` and `message` make it an error."""
    kind = module_of(69, version)
    described = kind.DescribedGroup(
        error_code=ErrorCode(fields.get("code", 0)),
        error_message=fields.get("message"),
        group_id=group,
        group_state=fields.get("state", "Stable"),
        group_epoch=6,
        assignment_epoch=5,
        assignor_name="uniform",
        members=members,
    )
    return kind.ConsumerGroupDescribeResponse(throttle_time=ZERO, groups=(described,))


def classic_member(member_id: str, *, version: int = 6, **fields: Any) -> Any:
    """Build a member of a DescribeGroups response."""
    values: dict[str, Any] = {
        "client_id": "c",
        "client_host": "/10.0.0.1",
        "member_metadata": b"",
        "member_assignment": b"",
        **fields,
    }
    return module_of(15, version).DescribedGroupMember(member_id=member_id, **values)


def classic_group(*members: Any, version: int = 6, group: str = "g", **fields: Any) -> Any:
    """Build a DescribeGroups response with one group; `code` and `message` (version 6) make it an error."""
    kind = module_of(15, version)
    described = kind.DescribedGroup(
        error_code=ErrorCode(fields.get("code", 0)),
        group_id=group,
        group_state=fields.get("state", "Stable"),
        protocol_type=fields.get("protocol_type", "consumer"),
        protocol_data="range",
        members=members,
        **({"error_message": fields["message"]} if "message" in fields else {}),
    )
    return kind.DescribeGroupsResponse(throttle_time=ZERO, groups=(described,))


def leave_answer(*members: tuple[str, str | None, int], code: int = 0) -> leave_v5.LeaveGroupResponse:
    """Build a LeaveGroup response from member id, instance id and error code of each member."""
    return leave_v5.LeaveGroupResponse(
        throttle_time=ZERO,
        error_code=ErrorCode(code),
        members=tuple(
            leave_v5.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=ErrorCode(error))
            for member_id, instance_id, error in members
        ),
    )


def config_answer(
    settings: Mapping[str, str | None], *, code: int = 0, message: str | None = None, group: str = "g"
) -> configs_v4.DescribeConfigsResponse:
    """Build a DescribeConfigs response for one group."""
    return configs_v4.DescribeConfigsResponse(
        throttle_time=ZERO,
        results=(
            configs_v4.DescribeConfigsResult(
                error_code=ErrorCode(code),
                error_message=message,
                resource_type=32,
                resource_name=group,
                configs=tuple(
                    configs_v4.DescribeConfigsResourceResult(
                        name=name, value=value, read_only=False, is_sensitive=False, synonyms=(), documentation=None
                    )
                    for name, value in settings.items()
                ),
            ),
        ),
    )


def blob(partitions: Mapping[str, tuple[int, ...]], version: int = 3, tail: bytes = b"\xff\xff\xff\xff") -> bytes:
    """Build a ConsumerProtocolAssignment as clients write it; the tail is the user data, by default null."""
    data = version.to_bytes(2, "big") + len(partitions).to_bytes(4, "big")
    for topic, numbers in partitions.items():
        data += len(topic).to_bytes(2, "big") + topic.encode() + len(numbers).to_bytes(4, "big")
        data += b"".join(number.to_bytes(4, "big") for number in numbers)
    return data + tail


def commit_answer(codes: dict[TopicPartition, int]) -> commit_v9.OffsetCommitResponse:
    """Build a response with these codes and one topic entry for each partition."""
    return commit_v9.OffsetCommitResponse(
        throttle_time=ZERO,
        topics=tuple(
            commit_v9.OffsetCommitResponseTopic(
                name=topic,
                partitions=(
                    commit_v9.OffsetCommitResponsePartition(partition_index=partition, error_code=ErrorCode(code)),
                ),
            )
            for (topic, partition), code in codes.items()
        ),
    )


Fetched = dict[TopicPartition, tuple[int, int]]  # offset and error code


def fetch_answer_v7(fetched: Fetched, code: int = 0) -> fetch_v7.OffsetFetchResponse:
    """Build a response for one group in the form of versions 6 and 7."""
    return fetch_v7.OffsetFetchResponse(
        throttle_time=ZERO,
        topics=tuple(
            fetch_v7.OffsetFetchResponseTopic(
                name=topic,
                partitions=(
                    fetch_v7.OffsetFetchResponsePartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=3 if offset > 0 else -1,
                        metadata=None,
                        error_code=ErrorCode(error),
                    ),
                ),
            )
            for (topic, partition), (offset, error) in fetched.items()
        ),
        error_code=ErrorCode(code),
    )


def fetch_answer_v9(
    fetched: Fetched, code: int = 0, group: str = "g", metadata: str | None = None
) -> fetch_v9.OffsetFetchResponse:
    """Build a response for a batch of groups in the form of versions 8 and 9."""
    return fetch_v9.OffsetFetchResponse(
        throttle_time=ZERO,
        groups=(
            fetch_v9.OffsetFetchResponseGroup(
                group_id=group,
                topics=tuple(
                    fetch_v9.OffsetFetchResponseTopics(
                        name=topic,
                        partitions=(
                            fetch_v9.OffsetFetchResponsePartitions(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=3 if offset > 0 else -1,
                                metadata=metadata,
                                error_code=ErrorCode(error),
                            ),
                        ),
                    )
                    for (topic, partition), (offset, error) in fetched.items()
                ),
                error_code=ErrorCode(code),
            ),
        ),
    )


both_forms = pytest.mark.parametrize("answer", [fetch_answer_v7, fetch_answer_v9])
