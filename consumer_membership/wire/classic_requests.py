# ruff: noqa: PLC0415
"""A classic member's orders as kio's request entities: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

As in `requests`: each function returns a `Call` in the version that was negotiated, or raises UnsupportedProtocolError,
and kio's schemas are imported where they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from kio.schema.types import GroupId
from kio.static.primitive import i32

from consumer_membership.membership.classic.exchanges import (
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
)
from consumer_membership.wire.consumer_protocol import NEWEST_VERSION, encode_assignment, encode_subscription
from consumer_membership.wire.frames import Call
from consumer_membership.wire.group_requests import MAX_REASON, MemberIdentity, remove_members
from consumer_membership.wire.requests import milliseconds
from consumer_membership.wire.versions import Api, BrokerVersions

if TYPE_CHECKING:
    from kio.schema.heartbeat.v3.response import HeartbeatResponse as HeartbeatResponseV3
    from kio.schema.heartbeat.v4.response import HeartbeatResponse as HeartbeatResponseV4
    from kio.schema.join_group.v5.response import JoinGroupResponse as JoinGroupResponseV5
    from kio.schema.join_group.v9.response import JoinGroupResponse as JoinGroupResponseV9
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.sync_group.v3.response import SyncGroupResponse as SyncGroupResponseV3
    from kio.schema.sync_group.v5.response import SyncGroupResponse as SyncGroupResponseV5

    JoinGroupResponse: TypeAlias = JoinGroupResponseV5 | JoinGroupResponseV9
    SyncGroupResponse: TypeAlias = SyncGroupResponseV3 | SyncGroupResponseV5
    HeartbeatResponse: TypeAlias = HeartbeatResponseV3 | HeartbeatResponseV4

#: What groups of consumers call their protocol, whichever assignor they agree on.
PROTOCOL_TYPE = "consumer"


def join_group(versions: BrokerVersions, group_id: str, effect: SendJoin) -> Call[JoinGroupResponse]:
    """A JoinGroup with one entry for each assignor, in the order of preference."""
    from kio.schema.join_group import v9
    from kio.schema.join_group.v9.request import JoinGroupRequestProtocol

    entity = v9.JoinGroupRequest(
        group_id=GroupId(group_id),
        session_timeout=milliseconds(effect.session_timeout_s),
        rebalance_timeout=milliseconds(effect.rebalance_timeout_s),
        member_id=effect.member_id,
        group_instance_id=effect.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=tuple(
            JoinGroupRequestProtocol(name=name, metadata=encode_subscription(subscription))
            for name, subscription in effect.protocols
        ),
        reason=effect.reason[:MAX_REASON],
    )
    if versions.of(Api.JOIN_GROUP) < v9.JoinGroupRequest.__version__:
        from kio.schema.join_group import v5

        return Call(entity=entity, layout=v5.JoinGroupRequest, response=v5.JoinGroupResponse)
    return Call(entity=entity, layout=v9.JoinGroupRequest, response=v9.JoinGroupResponse)


def sync_group(versions: BrokerVersions, group_id: str, effect: SendSync) -> Call[SyncGroupResponse]:
    """A SyncGroup; a leader's with each member's assignment, in the version that the member wants."""
    from kio.schema.sync_group import v5
    from kio.schema.sync_group.v5.request import SyncGroupRequestAssignment

    entity = v5.SyncGroupRequest(
        group_id=GroupId(group_id),
        generation_id=i32(effect.generation),
        member_id=effect.member_id,
        group_instance_id=effect.instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=effect.protocol_name,
        assignments=tuple(
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_assignment(
                    effect.assignments[member_id],
                    effect.user_data.get(member_id),
                    effect.versions.get(member_id, NEWEST_VERSION),
                ),
            )
            for member_id in sorted(effect.assignments)
        ),
    )
    if versions.of(Api.SYNC_GROUP) < v5.SyncGroupRequest.__version__:
        from kio.schema.sync_group import v3

        return Call(entity=entity, layout=v3.SyncGroupRequest, response=v3.SyncGroupResponse)
    return Call(entity=entity, layout=v5.SyncGroupRequest, response=v5.SyncGroupResponse)


def heartbeat(versions: BrokerVersions, group_id: str, effect: SendClassicHeartbeat) -> Call[HeartbeatResponse]:
    """A Heartbeat."""
    from kio.schema.heartbeat import v4

    entity = v4.HeartbeatRequest(
        group_id=GroupId(group_id),
        generation_id=i32(effect.generation),
        member_id=effect.member_id,
        group_instance_id=effect.instance_id,
    )
    if versions.of(Api.HEARTBEAT) < v4.HeartbeatRequest.__version__:
        from kio.schema.heartbeat import v3

        return Call(entity=entity, layout=v3.HeartbeatRequest, response=v3.HeartbeatResponse)
    return Call(entity=entity, layout=v4.HeartbeatRequest, response=v4.HeartbeatResponse)


def leave_group(versions: BrokerVersions, group_id: str, effect: SendClassicLeave) -> Call[LeaveGroupResponse]:
    """A LeaveGroup of this member alone."""
    return remove_members(versions, group_id, (leaver(effect),), effect.reason)


def leaver(effect: SendClassicLeave) -> MemberIdentity:
    """Who leaves. The coordinator checks that a static member's two ids belong together."""
    return MemberIdentity(member_id=effect.member_id, instance_id=effect.instance_id)
