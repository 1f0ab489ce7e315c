"""Responses to a classic member as facts of the domain; no code other than 0 becomes a success."""

from __future__ import annotations

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.light_dataclasses import replace
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
from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.membership.events import CommitVerdict
from consumer_membership.translation import answers
from consumer_membership.translation.consumer_protocol import MemberAssignment, decode_assignment, decode_subscription
from consumer_membership.translation.remedies import with_remedy
from consumer_membership.translation.requests import PROTOCOL_TYPE, leaver
from consumer_membership.translation.verdicts import broker_error, classic_verdict, commit_membership, group_error
from consumer_membership.types import BrokerError
from consumer_membership.wire.codec import MalformedError, Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import Api

_E = ErrorCode
_SUCCESS = _E.none.value


def join_group(message: Message, group_id: str, order: SendJoin) -> JoinAnswered | JoinRejected:
    """Return the response to this JoinGroup; a protocol that was not offered is rejected by this client."""
    code = int(message.error_code)
    if code != _SUCCESS:
        return JoinRejected(
            request_id=order.request_id,
            verdict=classic_verdict(Api.JOIN_GROUP, code),
            error=with_remedy(Api.JOIN_GROUP, _why_not_joined(code, group_id, order)),
            member_id=message.member_id if code == _E.member_id_required else "",
        )
    mismatch = _mismatch(group_id, message, [name for name, _ in order.protocols])
    if mismatch is not None or message.protocol_name is None:
        error = mismatch or _inconsistent(group_id, "the coordinator selected no protocol")
        return JoinRejected(request_id=order.request_id, verdict=ClassicVerdict.FATAL, error=error)
    members: dict[str, MemberSubscription] = {}
    unreadable: dict[str, str] = {}
    for member in message.members:
        try:
            members[member.member_id] = decode_subscription(member.metadata, member.group_instance_id)
        except MalformedError as error:
            unreadable[member.member_id] = f"the subscription of member {member.member_id} cannot be decoded ({error})"
    return JoinAnswered(
        request_id=order.request_id,
        generation=message.generation_id,
        member_id=message.member_id,
        leader_id=message.leader,
        protocol_name=message.protocol_name,
        members=members,
        unreadable=unreadable,
        # versions below 9 skip nothing
        skip_assignment=getattr(message, "skip_assignment", False),
    )


def _mismatch(group_id: str, message: Message, offered: list[str]) -> BrokerError | None:
    """Return the error of the protocol in a response, as Java's client checks it, or None.

    JoinGroup has the protocol type from version 7 on, SyncGroup the type and the name from version 5 on.
    """
    kind, name = getattr(message, "protocol_type", None), getattr(message, "protocol_name", None)
    if kind is not None and kind != PROTOCOL_TYPE:
        return _inconsistent(group_id, f"its protocol type is {kind!r}, not {PROTOCOL_TYPE!r}")
    if name is not None and name not in offered:
        return _inconsistent(
            group_id, f"the coordinator selected {name!r}, but this member offered {', '.join(offered)}"
        )
    return None


def _inconsistent(group_id: str, what: str) -> BrokerError:
    return broker_error(_E.inconsistent_group_protocol, f"Group {group_id} does not match this member: {what}.")


def _why_not_joined(code: int, group_id: str, order: SendJoin) -> BrokerError:
    """Return a JoinGroup's error with a message that has the key and the value, because the broker sends no message."""
    text = ""
    match code:
        case _E.group_max_size_reached:
            # Java's message.
            text = f"Consumer group {group_id} already has the configured maximum number of members."
        case _E.inconsistent_group_protocol:
            offered = ", ".join(name for name, _ in order.protocols)
            text = (
                f"Group {group_id} has no assignor in common with this member ({offered}), or it uses the consumer "
                "protocol and accepts no classic members (the broker's group.consumer.migration.policy)."
            )
        case _E.invalid_session_timeout:
            text = (
                f"session.timeout.ms={order.session_timeout_s * 1000:.0f} is outside the broker's "
                "group.min.session.timeout.ms and group.max.session.timeout.ms."
            )
        case _E.unsupported_version if order.instance_id is not None:
            text = f"The broker does not support static members, but group.instance.id is '{order.instance_id}'."
        case _:
            return _why_refused(code, group_id, order.instance_id)
    return broker_error(code, text)


def _why_refused(code: int, group_id: str, instance_id: str | None) -> BrokerError:
    if code == _E.fenced_instance_id:
        text = f"group.instance.id '{instance_id}' is held by another member of group {group_id}."
        return broker_error(code, text)
    return group_error(code, None, group_id)


def sync_group(message: Message, group_id: str, order: SendSync) -> SyncAnswered | SyncRejected:
    """Return the response to this SyncGroup; an undecodable assignment is an empty one with a note."""
    code = int(message.error_code)
    if code != _SUCCESS:
        error = with_remedy(Api.SYNC_GROUP, _why_refused(code, group_id, order.instance_id))
        return SyncRejected(request_id=order.request_id, verdict=classic_verdict(Api.SYNC_GROUP, code), error=error)
    mismatch = _mismatch(group_id, message, [order.protocol_name])
    if mismatch is not None:
        return SyncRejected(request_id=order.request_id, verdict=ClassicVerdict.FATAL, error=mismatch)
    try:
        assigned = decode_assignment(message.assignment)
    except MalformedError as error:
        assigned = MemberAssignment(note=f"the assignment of member {order.member_id} cannot be decoded ({error})")
    return SyncAnswered(
        request_id=order.request_id,
        assignment=assigned.partitions,
        user_data=assigned.user_data,
        protocol_name=getattr(message, "protocol_name", None),
        note=assigned.note,
    )


def heartbeat(
    message: Message, group_id: str, order: SendClassicHeartbeat
) -> ClassicHeartbeatAnswered | ClassicHeartbeatRejected:
    """Return the response to this Heartbeat."""
    code = int(message.error_code)
    if code == _SUCCESS:
        return ClassicHeartbeatAnswered(request_id=order.request_id)
    error = with_remedy(Api.HEARTBEAT, _why_refused(code, group_id, order.instance_id))
    return ClassicHeartbeatRejected(
        request_id=order.request_id, verdict=classic_verdict(Api.HEARTBEAT, code), error=error
    )


def leave_group(message: Message, group_id: str, order: SendClassicLeave) -> ClassicLeft:
    """Return the response to this LeaveGroup: the error of the whole request, or this member's."""
    removed = answers.removals(message, group_id, (leaver(order),))
    error = removed if isinstance(removed, BrokerError) else removed[0]
    verdict = ClassicVerdict.FATAL if error is None else classic_verdict(Api.LEAVE_GROUP, error.code)
    return ClassicLeft(request_id=order.request_id, error=error, verdict=verdict)


def offset_commit(message: Message, group_id: str, order: CommitOffsets) -> ClassicCommitAnswered:
    """Return the response to this commit, with its meaning for the membership."""

    def explained(error: BrokerError) -> BrokerError:
        explained_error = error if error.message else _why_refused(error.code, group_id, order.instance_id)
        return with_remedy(Api.OFFSET_COMMIT, explained_error)

    answer = answers.offset_commit(message, order.commit_id, group_id, order.offsets)
    membership = commit_membership(frozenset(error.code for error in answer.errors.values() if error is not None))
    errors = {partition: None if error is None else explained(error) for partition, error in answer.errors.items()}
    verdict = answer.verdict if membership is None else CommitVerdict.FINAL
    return ClassicCommitAnswered(answer=replace(answer, verdict=verdict, errors=errors), membership=membership)
