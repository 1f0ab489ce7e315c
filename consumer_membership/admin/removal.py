"""Determine which members a removal selects, and the result for each, from descriptions and responses alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from consumer_membership.admin import arguments
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.network.group_client import GroupDescription, MemberDescription, MemberIdentity
from consumer_membership.types import (
    FENCED_INSTANCE_CODE,
    NO_MEMBER_ID,
    UNKNOWN_MEMBER_CODE,
    BrokerError,
    GroupProtocol,
)

#: The wording of Java's admin client; the coordinator logs it.
_REASON = "member was removed by an admin"

_STOP_FIRST = "to remove it permanently, stop its process first"
_AWAY = "the static member was away; its partitions are assigned to other members immediately"
_STATIC = (
    "the session was active: if the process still runs, its next heartbeat fails. A consumer of this package then "
    "stops with a fatal error and does not join again; other clients (librdkafka, Java) join again with the same "
    f"instance id: {_STOP_FIRST}"
)
_DYNAMIC = (
    "the session was active: if the process still runs, its next heartbeat fails and it joins again automatically; "
    f"{_STOP_FIRST}"
)
_NOT_DESCRIBED = (
    f"if the process still runs, the member may join again at its next heartbeat; {_STOP_FIRST}. Details of the member "
    "are unknown, because describing the group is not allowed for this client"
)
_GONE = "the member left before it could be removed"
_TOO_OLD = (
    "this broker removes only members of the classic protocol; members of the consumer protocol (KIP-848) can be "
    "removed from Apache Kafka 4.0 on. Stop the process instead, and its session ends"
)


class RemovalOutcome(Enum):
    """The result of the removal of one member."""

    REMOVED = "removed"
    #: The result of a dry run.
    WOULD_BE_REMOVED = "would be removed"
    #: The member was described, but then left, or was removed by an attempt whose response was lost.
    ALREADY_GONE = "already gone"
    #: The group has no such member.
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """The result for one member: the requested identity, the member, the outcome and a message.

    `member` is None if the group has no such member or may not be described. `message` states consequences and fixes.
    """

    requested: MemberIdentity
    member: MemberDescription | None
    outcome: RemovalOutcome
    message: str

    @property
    def succeeded(self) -> bool:
        """Whether the member is no longer in the group; for a dry run, whether it would be removed."""
        return self.outcome not in (RemovalOutcome.UNKNOWN, RemovalOutcome.REFUSED)


def chosen(
    instance_ids: Iterable[str],
    member_ids: Iterable[str],
    static_members: Mapping[str, str] | None = None,
    *,
    all_members: bool,
) -> tuple[MemberIdentity, ...]:
    """Return the selected members, each once; an empty tuple with `all_members`.

    `static_members` has the member id that must hold each instance id.

    Raises:
        ConfigurationError: No member is selected, `all_members` is combined with ids, or an id is invalid.
    """
    identities = {
        **{MemberIdentity(instance_id=one): None for one in arguments.ids("instance_ids", instance_ids)},
        **{MemberIdentity(member_id=one): None for one in arguments.ids("member_ids", member_ids)},
        **dict.fromkeys(
            MemberIdentity(instance_id=instance_id, member_id=member_id)
            for instance_id, member_id in arguments.pairs("static_members", static_members or {}).items()
        ),
    }
    if all_members and identities:
        raise ConfigurationError("all_members", all_members, "all_members cannot be combined with ids; use one of them")
    if not all_members and not identities:
        raise ConfigurationError(
            "member_ids", (), "no member is selected; set instance_ids, member_ids, static_members or all_members"
        )
    return tuple(identities)


def full_reason(reason: str | None) -> str:
    """Return the reason in the format of Java's admin client."""
    return f"{_REASON}: {reason}" if reason else _REASON


def identity_of(member: MemberDescription) -> MemberIdentity:
    """Return the identity for a removal of all members: as in Java, the instance id of a static member."""
    if member.instance_id is not None:
        return MemberIdentity(instance_id=member.instance_id)
    return MemberIdentity(member_id=member.member_id)


def found(requested: MemberIdentity, group: GroupDescription | None) -> MemberDescription | None:
    """Return the member with this identity, or None if the group does not have it or may not be described."""
    members = () if group is None else group.members
    return next((member for member in members if _matches(requested, member)), None)


def _matches(requested: MemberIdentity, member: MemberDescription) -> bool:
    has_id = requested.member_id in (NO_MEMBER_ID, member.member_id)
    return has_id and requested.instance_id in (None, member.instance_id)


def without_doubles(
    requested: Sequence[MemberIdentity], group: GroupDescription | None
) -> Mapping[MemberIdentity, MemberIdentity]:
    """Return the identity that is sent to the coordinator for each requested identity.

    A member that is requested by instance id and by member id is sent once; a second removal would report it unknown.
    """
    by_member: dict[str, MemberIdentity] = {}
    sent: dict[MemberIdentity, MemberIdentity] = {}
    for identity in requested:
        member = found(identity, group)
        sent[identity] = identity if member is None else by_member.setdefault(member.member_id, identity)
    return sent


def foreseen(requested: MemberIdentity, group: GroupDescription) -> Removal:
    """Return the expected result of a removal."""
    member = found(requested, group)
    if member is None:
        return _other_holder(requested, group) or _unknown(requested, group)
    return Removal(
        requested=requested, member=member, outcome=RemovalOutcome.WOULD_BE_REMOVED, message=_afterwards(member)
    )


def concluded(
    requested: MemberIdentity,
    error: BrokerError | None,
    before: GroupDescription | None,
    after: GroupDescription | None,
) -> Removal:
    """Return the result for this member; `after` is the group after the removal, if it was described again."""
    member = found(requested, before)
    if error is None:
        message = _NOT_DESCRIBED if before is None else "" if member is None else _afterwards(member)
        return Removal(requested=requested, member=member, outcome=RemovalOutcome.REMOVED, message=message)
    if error.code == FENCED_INSTANCE_CODE and (refused := _other_holder(requested, after or before)) is not None:
        return refused
    if error.code != UNKNOWN_MEMBER_CODE:
        return Removal(requested=requested, member=member, outcome=RemovalOutcome.REFUSED, message=str(error))
    if member is None:
        return _unknown(requested, after or before)
    if found(requested, after) is None:
        return Removal(requested=requested, member=member, outcome=RemovalOutcome.ALREADY_GONE, message=_GONE)
    # The coordinator describes the member, but reports it as unknown.
    message = _TOO_OLD if member.protocol is GroupProtocol.CONSUMER else str(error)
    return Removal(requested=requested, member=member, outcome=RemovalOutcome.REFUSED, message=message)


def _other_holder(requested: MemberIdentity, group: GroupDescription | None) -> Removal | None:
    """Return the refusal of a pair whose instance id another member holds; None: there is no such member."""
    members = () if group is None or requested.member_id == NO_MEMBER_ID else group.members
    holder = next((one for one in members if one.instance_id == requested.instance_id is not None), None)
    if holder is None:
        return None
    message = (
        f"the instance id {requested.instance_id!r} is held by the member {holder.member_id!r}, not by "
        f"{requested.member_id!r}; no member was removed. To remove the present holder, request its member id"
    )
    return Removal(requested=requested, member=holder, outcome=RemovalOutcome.REFUSED, message=message)


def _afterwards(member: MemberDescription) -> str:
    if member.is_away:
        return _AWAY
    return _DYNAMIC if member.instance_id is None else _STATIC


def _unknown(requested: MemberIdentity, group: GroupDescription | None) -> Removal:
    return Removal(
        requested=requested, member=None, outcome=RemovalOutcome.UNKNOWN, message=_unknown_message(requested, group)
    )


def _unknown_message(requested: MemberIdentity, group: GroupDescription | None) -> str:
    by_member_id = requested.instance_id is None
    kind, given = ("member id", requested.member_id) if by_member_id else ("instance id", requested.instance_id or "")
    absent = f"the group has no member with the {kind} {given!r}"
    if group is None:
        return absent
    member_ids = {member.member_id for member in group.members}
    instance_ids = {member.instance_id for member in group.members if member.instance_id is not None}
    other, others = ("instance id", instance_ids) if by_member_id else ("member id", member_ids)
    if given in others:
        return f"{absent}; {given!r} is the {other} of a member: request it by {other}"
    known = sorted(member_ids if by_member_id else instance_ids)
    if not known:
        return f"{absent}; the group has {'no members' if not group.members else f'no member with an {kind}'}"
    return f"{absent}; existing {kind}s: {', '.join(known)}"
