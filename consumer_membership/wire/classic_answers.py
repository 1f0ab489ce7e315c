"""kio's answers to a classic member as facts of the domain, and what each error code means for it.

Five tables (rules 4.7), one for each request that may be refused; a code that they lack, known to kio or not,
is FATAL ("unexpected error" in Java's client), and no code other than 0 becomes a success.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicLeft,
    ClassicVerdict,
    JoinAnswered,
    JoinRejected,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    SyncAnswered,
    SyncRejected,
)
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.membership.events import CommitVerdict
from consumer_membership.types import BrokerError
from consumer_membership.wire import group_answers, responses
from consumer_membership.wire.classic_requests import PROTOCOL_TYPE, leaver
from consumer_membership.wire.consumer_protocol import MemberAssignment, decode_assignment, decode_subscription
from consumer_membership.wire.reader import MalformedError
from consumer_membership.wire.remedies import Request, with_remedy
from consumer_membership.wire.verdicts import broker_error, group_error

if TYPE_CHECKING:
    from kio.schema.join_group.v9.response import JoinGroupResponse as JoinGroupResponseV9
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.sync_group.v5.response import SyncGroupResponse as SyncGroupResponseV5

    from consumer_membership.wire.classic_requests import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse

_E = ErrorCode
_SUCCESS = _E.none.value

_JOIN: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: ClassicVerdict.RETRY,
        _E.coordinator_not_available: ClassicVerdict.REDISCOVER,
        _E.not_coordinator: ClassicVerdict.REDISCOVER,
        _E.unknown_member_id: ClassicVerdict.REJOIN,
        _E.member_id_required: ClassicVerdict.MEMBER_ID_REQUIRED,
        # The coordinator could not write the group down in time; Java's client joins again at once.
        _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
    }
)

_SYNC: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        # Java's client raises "unexpected error" (rules 4.10); the group is there once it is loaded.
        _E.coordinator_load_in_progress: ClassicVerdict.REJOIN_LATER,
        _E.coordinator_not_available: ClassicVerdict.REDISCOVER,
        _E.not_coordinator: ClassicVerdict.REDISCOVER,
        _E.unknown_member_id: ClassicVerdict.REJOIN,
        _E.illegal_generation: ClassicVerdict.REJOIN_KEEP_ID,
        _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
    }
)

_HEARTBEAT: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: ClassicVerdict.RETRY,
        _E.coordinator_not_available: ClassicVerdict.REDISCOVER,
        _E.not_coordinator: ClassicVerdict.REDISCOVER,
        _E.unknown_member_id: ClassicVerdict.REJOIN,
        _E.illegal_generation: ClassicVerdict.REJOIN_KEEP_ID,
        _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
    }
)

_LEAVE: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        _E.coordinator_load_in_progress: ClassicVerdict.RETRY,
        _E.coordinator_not_available: ClassicVerdict.REDISCOVER,
        _E.not_coordinator: ClassicVerdict.REDISCOVER,
        _E.unknown_member_id: ClassicVerdict.REJOIN,
    }
)

#: OffsetCommit, where it says something of the membership; the first counts where partitions differ.
_COMMIT: Mapping[int, ClassicVerdict] = MappingProxyType(
    {
        _E.fenced_instance_id: ClassicVerdict.FATAL,
        _E.group_authorization_failed: ClassicVerdict.FATAL,
        _E.unknown_member_id: ClassicVerdict.REJOIN,
        _E.illegal_generation: ClassicVerdict.REJOIN_KEEP_ID,
        _E.rebalance_in_progress: ClassicVerdict.REJOIN_NOW,
    }
)


def join_verdict(code: int) -> ClassicVerdict:
    """What a JoinGroup's error code means; FATAL unless the table says otherwise."""
    return _JOIN.get(code, ClassicVerdict.FATAL)


def sync_verdict(code: int) -> ClassicVerdict:
    """What a SyncGroup's error code means; FATAL unless the table says otherwise."""
    return _SYNC.get(code, ClassicVerdict.FATAL)


def heartbeat_verdict(code: int) -> ClassicVerdict:
    """What a Heartbeat's error code means; FATAL unless the table says otherwise."""
    return _HEARTBEAT.get(code, ClassicVerdict.FATAL)


def leave_verdict(code: int) -> ClassicVerdict:
    """What a LeaveGroup's error code means for who has its ghost removed; FATAL unless the table says otherwise."""
    return _LEAVE.get(code, ClassicVerdict.FATAL)


def commit_membership(codes: frozenset[int]) -> ClassicVerdict | None:
    """What the error codes of a commit's partitions say of the membership; None: nothing."""
    return next((verdict for code, verdict in _COMMIT.items() if code in codes), None)


# ---- JoinGroup ------------------------------------------------------------------------------------------------------


def join_group(entity: JoinGroupResponse, group_id: str, effect: SendJoin) -> JoinAnswered | JoinRejected:
    """The answer to this JoinGroup; a protocol that was not offered is a refusal of ours."""
    code = int(entity.error_code)
    if code != _SUCCESS:
        is_new = code == _E.member_id_required
        return JoinRejected(
            request_id=effect.request_id,
            verdict=join_verdict(code),
            error=_join_error(code, group_id, effect),
            member_id=entity.member_id if is_new else "",
        )
    # Below version 7 there is no protocol type, below 9 nothing is skipped.
    newest = cast("JoinGroupResponseV9", entity) if hasattr(entity, "skip_assignment") else None
    told = _mismatch(group_id, None if newest is None else newest.protocol_type, entity.protocol_name, effect)
    if told is not None or entity.protocol_name is None:
        error = told or _inconsistent(group_id, "the coordinator chose no protocol")
        return JoinRejected(request_id=effect.request_id, verdict=ClassicVerdict.FATAL, error=error)
    members: dict[str, MemberSubscription] = {}
    unreadable: dict[str, str] = {}
    for member in entity.members:
        try:
            members[member.member_id] = decode_subscription(member.metadata, member.group_instance_id)
        except MalformedError as error:
            unreadable[member.member_id] = f"the subscription of member {member.member_id} cannot be read ({error})"
    return JoinAnswered(
        request_id=effect.request_id,
        generation=entity.generation_id,
        member_id=entity.member_id,
        leader_id=entity.leader,
        protocol_name=entity.protocol_name,
        members=members,
        unreadable=unreadable,
        skip_assignment=newest is not None and newest.skip_assignment,
    )


def _mismatch(group_id: str, kind: str | None, name: str | None, effect: SendJoin | SendSync) -> BrokerError | None:
    """What is wrong with the protocol that an answer names, as Java's client checks it; None: nothing, or not named."""
    offered = [effect.protocol_name] if isinstance(effect, SendSync) else [name for name, _ in effect.protocols]
    if kind is not None and kind != PROTOCOL_TYPE:
        return _inconsistent(group_id, f"its protocol type is {kind!r}, and not {PROTOCOL_TYPE!r}")
    if name is not None and name not in offered:
        return _inconsistent(group_id, f"the coordinator chose {name!r}, and this member offered {', '.join(offered)}")
    return None


def _inconsistent(group_id: str, what: str) -> BrokerError:
    return broker_error(_E.inconsistent_group_protocol, f"Group {group_id} is not this member's kind of group: {what}.")


def _join_error(code: int, group_id: str, effect: SendJoin) -> BrokerError:
    """A JoinGroup's error in words that name the thing and the remedy; the protocol brings none of the broker's."""
    return with_remedy(Request.JOIN, _why_not_joined(code, group_id, effect))


def _why_not_joined(code: int, group_id: str, effect: SendJoin) -> BrokerError:
    if code == _E.group_max_size_reached:
        # Java's words.
        return broker_error(code, f"Consumer group {group_id} already has the configured maximum number of members.")
    if code == _E.inconsistent_group_protocol:
        offered = ", ".join(name for name, _ in effect.protocols)
        return broker_error(
            code,
            f"No assignor of this member ({offered}) is one that all members of group {group_id} have, or the group is "
            "of the consumer protocol and takes no classic members (the broker's group.consumer.migration.policy).",
        )
    if code == _E.invalid_session_timeout:
        return broker_error(
            code,
            f"session.timeout.ms {effect.session_timeout_s * 1000:.0f} is outside the broker's "
            "group.min.session.timeout.ms and group.max.session.timeout.ms.",
        )
    if code == _E.unsupported_version and effect.instance_id is not None:
        return broker_error(
            code,
            f"The broker does not support static members, and this one has group.instance.id '{effect.instance_id}'.",
        )
    return _why_refused(code, group_id, effect.instance_id)


def _member_error(request: Request, code: int, group_id: str, instance_id: str | None) -> BrokerError:
    return with_remedy(request, _why_refused(code, group_id, instance_id))


def _why_refused(code: int, group_id: str, instance_id: str | None) -> BrokerError:
    if code == _E.fenced_instance_id:
        return broker_error(
            code,
            f"group.instance.id '{instance_id}' is held by another member of group {group_id} by now.",
        )
    return group_error(code, None, group_id)


# ---- SyncGroup ------------------------------------------------------------------------------------------------------


def sync_group(entity: SyncGroupResponse, group_id: str, effect: SendSync) -> SyncAnswered | SyncRejected:
    """The answer to this SyncGroup; an assignment that cannot be read is an empty one with a note."""
    code = int(entity.error_code)
    if code != _SUCCESS:
        error = _member_error(Request.SYNC, code, group_id, effect.instance_id)
        return SyncRejected(request_id=effect.request_id, verdict=sync_verdict(code), error=error)
    # Below version 5 the protocol is not told.
    newest = cast("SyncGroupResponseV5", entity) if hasattr(entity, "protocol_name") else None
    name = None if newest is None else newest.protocol_name
    told = _mismatch(group_id, None if newest is None else newest.protocol_type, name, effect)
    if told is not None:
        return SyncRejected(request_id=effect.request_id, verdict=ClassicVerdict.FATAL, error=told)
    try:
        assigned = decode_assignment(entity.assignment)
    except MalformedError as error:
        assigned = MemberAssignment(note=f"the assignment of member {effect.member_id} cannot be read ({error})")
    return SyncAnswered(
        request_id=effect.request_id,
        assignment=assigned.partitions,
        user_data=assigned.user_data,
        protocol_name=name,
        note=assigned.note,
    )


# ---- Heartbeat, LeaveGroup, OffsetCommit ----------------------------------------------------------------------------


def heartbeat(
    entity: HeartbeatResponse, group_id: str, effect: SendClassicHeartbeat
) -> ClassicHeartbeatAnswered | ClassicHeartbeatRejected:
    """The answer to this Heartbeat."""
    code = int(entity.error_code)
    if code == _SUCCESS:
        return ClassicHeartbeatAnswered(request_id=effect.request_id)
    error = _member_error(Request.CLASSIC_HEARTBEAT, code, group_id, effect.instance_id)
    return ClassicHeartbeatRejected(request_id=effect.request_id, verdict=heartbeat_verdict(code), error=error)


def leave_group(entity: LeaveGroupResponse, group_id: str, effect: SendClassicLeave) -> ClassicLeft:
    """The answer to this LeaveGroup: the whole request's error, or this member's."""
    removed = group_answers.removals(entity, group_id, (leaver(effect),))
    error = removed if isinstance(removed, BrokerError) else removed[0]
    verdict = ClassicVerdict.FATAL if error is None else leave_verdict(error.code)
    return ClassicLeft(request_id=effect.request_id, error=error, verdict=verdict)


def _commit_error(error: BrokerError, group_id: str, instance_id: str | None) -> BrokerError:
    said = error if error.message else _why_refused(error.code, group_id, instance_id)
    return with_remedy(Request.CLASSIC_COMMIT, said)


def offset_commit(entity: OffsetCommitResponse, group_id: str, effect: CommitOffsets) -> ClassicCommitAnswered:
    """The answer to this commit, and what it says of the membership."""
    answer = responses.offset_commit(entity, effect.commit_id, group_id, effect.offsets)
    membership = commit_membership(frozenset(error.code for error in answer.errors.values() if error is not None))
    errors = {
        partition: None if error is None else _commit_error(error, group_id, effect.instance_id)
        for partition, error in answer.errors.items()
    }
    verdict = answer.verdict if membership is None else CommitVerdict.FINAL
    return ClassicCommitAnswered(answer=replace(answer, verdict=verdict, errors=errors), membership=membership)
