"""Builders of a classic member's requests and of its coordinator's responses."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership.classic.exchanges import SendClassicHeartbeat, SendClassicLeave, SendJoin, SendSync
from consumer_membership.types import TopicPartition
from tests.support.scripted_broker import NEWEST, ZERO

JOIN, CLASSIC_HEARTBEAT, LEAVE, SYNC = 11, 12, 13, 14
#: The versions that a 4.3 broker offers, including the APIs of the classic protocol.
OFFERED: Mapping[int, tuple[int, int]] = {**NEWEST, JOIN: (2, 9), CLASSIC_HEARTBEAT: (0, 4), SYNC: (0, 5)}
#: The versions of these APIs that librdkafka's mock cluster offers.
OFFERED_BY_MOCK: Mapping[int, tuple[int, int]] = {
    **OFFERED,
    JOIN: (0, 6),
    CLASSIC_HEARTBEAT: (0, 5),
    SYNC: (0, 4),
    LEAVE: (0, 4),
}

SUBSCRIBED = MemberSubscription(topics=frozenset({"t"}), owned=frozenset({TopicPartition("t", 1)}), generation=4)


def join_order(**changed: Any) -> SendJoin:
    """Build a JoinGroup order."""
    fields: dict[str, Any] = {
        "request_id": 7,
        "member_id": "m",
        "instance_id": None,
        "session_timeout_s": 45.0,
        "rebalance_timeout_s": 300.0,
        "protocols": (("cooperative-sticky", SUBSCRIBED), ("range", SUBSCRIBED)),
        "reason": "because",
    }
    return SendJoin(**(fields | changed))


def sync_order(**changed: Any) -> SendSync:
    """Build a follower's SyncGroup order."""
    fields: dict[str, Any] = {"request_id": 8, "generation": 5, "member_id": "m", "instance_id": None}
    return SendSync(**(fields | {"protocol_name": "range"} | changed))


def heartbeat_order(**changed: Any) -> SendClassicHeartbeat:
    """Build a Heartbeat order."""
    fields: dict[str, Any] = {"request_id": 9, "generation": 5, "member_id": "m", "instance_id": None}
    return SendClassicHeartbeat(**(fields | changed))


def leave_order(**changed: Any) -> SendClassicLeave:
    """Build a LeaveGroup order."""
    fields: dict[str, Any] = {
        "request_id": 10,
        "member_id": "m",
        "instance_id": None,
        "reason": "the consumer is being closed",
    }
    return SendClassicLeave(**(fields | changed))


def join_answer(*, code: int = 0, version: int = 9, members: Mapping[str, Any] | None = None, **changed: Any) -> Any:
    """Build a JoinGroup response; `members` maps each member to its bytes, or to instance id and bytes."""
    kind = importlib.import_module(load_response_schema(JOIN, version).__module__)
    pairs = {name: share if isinstance(share, tuple) else (None, share) for name, share in (members or {}).items()}
    fields: dict[str, Any] = {
        "throttle_time": ZERO,
        "error_code": ErrorCode(code),
        "generation_id": 5,
        "protocol_name": "range",
        "leader": "m",
        "member_id": "m",
        "members": tuple(
            kind.JoinGroupResponseMember(member_id=name, group_instance_id=instance_id, metadata=blob)
            for name, (instance_id, blob) in pairs.items()
        ),
    }
    if version == 9:
        fields |= {"protocol_type": "consumer", "skip_assignment": False}
    return kind.JoinGroupResponse(**(fields | changed))


def sync_answer(*, code: int = 0, version: int = 5, assignment: bytes = b"", **changed: Any) -> Any:
    """Build a SyncGroup response."""
    fields: dict[str, Any] = {"throttle_time": ZERO, "error_code": ErrorCode(code), "assignment": assignment}
    if version == 5:
        fields |= {"protocol_type": "consumer", "protocol_name": "range"}
    return load_response_schema(SYNC, version)(**(fields | changed))


def classic_heartbeat_answer(code: int = 0, version: int = 4) -> Any:
    """Build a Heartbeat response."""
    entity: Any = load_response_schema(CLASSIC_HEARTBEAT, version)
    return entity(throttle_time=ZERO, error_code=ErrorCode(code))
