# ruff: noqa: PLC0415
"""Requests about a group by somebody who is no member of it: describe it, remove members, read its configuration.

As in `requests`: each function returns a `Call` in the version that was negotiated, or raises UnsupportedProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kio.schema.types import GroupId
from kio.static.primitive import i8
from kio.static.protocol import RequestPayload

from consumer_membership.types import NO_MEMBER_ID
from consumer_membership.wire.frames import Call
from consumer_membership.wire.requests import BATCHED_OFFSET_FETCH, offset_fetch_of_one
from consumer_membership.wire.versions import Api, BrokerVersions

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v0.response import ConsumerGroupDescribeResponse as ConsumerDescribedV0
    from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse as ConsumerDescribedV1
    from kio.schema.describe_configs.v4.response import DescribeConfigsResponse
    from kio.schema.describe_groups.v5.response import DescribeGroupsResponse as DescribeGroupsResponseV5
    from kio.schema.describe_groups.v6.response import DescribeGroupsResponse as DescribeGroupsResponseV6
    from kio.schema.leave_group.v5.response import LeaveGroupResponse

    from consumer_membership.wire.requests import OffsetFetchResponse

    ConsumerGroupDescribeResponse: TypeAlias = ConsumerDescribedV0 | ConsumerDescribedV1
    DescribeGroupsResponse: TypeAlias = DescribeGroupsResponseV5 | DescribeGroupsResponseV6

#: What a group's own configuration says about its members (KIP-848).
SESSION_TIMEOUT_KEY = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_KEY = "consumer.heartbeat.interval.ms"
GROUP_CONFIG_KEYS = (SESSION_TIMEOUT_KEY, HEARTBEAT_INTERVAL_KEY)

#: DescribeConfigs: the resource is a group.
_GROUP_RESOURCE = i8(32)
#: Java's limit (JoinGroupRequest.maybeTruncateReason): the coordinator keeps no longer reason.
MAX_REASON = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdentity:
    """Whom to remove: a member id, an instance id (whoever holds it), or both, which then must belong together."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None


def describe_consumer_group(versions: BrokerVersions, group_id: str) -> Call[ConsumerGroupDescribeResponse]:
    """A ConsumerGroupDescribe of this group; its coordinator answers (KIP-848)."""
    from kio.schema.consumer_group_describe import v1

    entity = v1.ConsumerGroupDescribeRequest(group_ids=(GroupId(group_id),), include_authorized_operations=False)
    if versions.of(Api.CONSUMER_GROUP_DESCRIBE) == 0:
        from kio.schema.consumer_group_describe import v0

        return Call(entity=entity, layout=v0.ConsumerGroupDescribeRequest, response=v0.ConsumerGroupDescribeResponse)
    return Call(entity=entity, layout=v1.ConsumerGroupDescribeRequest, response=v1.ConsumerGroupDescribeResponse)


def describe_classic_group(versions: BrokerVersions, group_id: str) -> Call[DescribeGroupsResponse]:
    """A DescribeGroups of this group; its coordinator answers."""
    from kio.schema.describe_groups import v6

    entity = v6.DescribeGroupsRequest(groups=(GroupId(group_id),), include_authorized_operations=False)
    if versions.of(Api.DESCRIBE_GROUPS) < v6.DescribeGroupsRequest.__version__:
        from kio.schema.describe_groups import v5

        return Call(entity=entity, layout=v5.DescribeGroupsRequest, response=v5.DescribeGroupsResponse)
    return Call(entity=entity, layout=v6.DescribeGroupsRequest, response=v6.DescribeGroupsResponse)


def remove_members(
    versions: BrokerVersions, group_id: str, members: Iterable[MemberIdentity], reason: str | None
) -> Call[LeaveGroupResponse]:
    """A LeaveGroup on behalf of these members (KIP-345; of any kind of member on Kafka 4.0 and later)."""
    from kio.schema.leave_group import v5
    from kio.schema.leave_group.v5.request import MemberIdentity as IdentityEntity

    layout: type[RequestPayload] = v5.LeaveGroupRequest
    if versions.of(Api.LEAVE_GROUP) < v5.LeaveGroupRequest.__version__:
        from kio.schema.leave_group import v4

        layout = v4.LeaveGroupRequest
    said = None if reason is None else reason[:MAX_REASON]
    entity = v5.LeaveGroupRequest(
        group_id=GroupId(group_id),
        members=tuple(
            IdentityEntity(member_id=member.member_id, group_instance_id=member.instance_id, reason=said)
            for member in members
        ),
    )
    return Call(entity=entity, layout=layout, response=v5.LeaveGroupResponse)


def describe_group_config(versions: BrokerVersions, group_id: str) -> Call[DescribeConfigsResponse]:
    """A DescribeConfigs of this group's `GROUP_CONFIG_KEYS`; any broker answers, with its defaults where none is set.

    The group need not exist.
    """
    from kio.schema.describe_configs import v4
    from kio.schema.describe_configs.v4.request import DescribeConfigsResource

    versions.of(Api.DESCRIBE_CONFIGS)
    group = DescribeConfigsResource(
        resource_type=_GROUP_RESOURCE, resource_name=group_id, configuration_keys=GROUP_CONFIG_KEYS
    )
    entity = v4.DescribeConfigsRequest(resources=(group,), include_synonyms=False, include_documentation=False)
    return Call(entity=entity, layout=v4.DescribeConfigsRequest, response=v4.DescribeConfigsResponse)


def all_committed(versions: BrokerVersions, group_id: str) -> Call[OffsetFetchResponse]:
    """An OffsetFetch, as nobody, of everything that the group committed; offsets of open transactions do not count."""
    version = versions.of(Api.OFFSET_FETCH)
    if version < BATCHED_OFFSET_FETCH:
        return offset_fetch_of_one(version, group_id, None, require_stable=False)
    from kio.schema.offset_fetch import v9
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequestGroup

    layout: type[RequestPayload] = v9.OffsetFetchRequest
    if version == BATCHED_OFFSET_FETCH:
        from kio.schema.offset_fetch import v8

        layout = v8.OffsetFetchRequest
    entity = v9.OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=None),), require_stable=False
    )
    return Call(entity=entity, layout=layout, response=v9.OffsetFetchResponse)
