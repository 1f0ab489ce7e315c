"""Whom a removal means, and what became of each: decided from descriptions and answers, without asking anybody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from consumer_membership.admin import arguments
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.network.group_client import GroupDescription, MemberDescription, MemberIdentity
from consumer_membership.types import UNKNOWN_MEMBER_CODE, BrokerError, GroupProtocol

#: Java's words; the coordinator logs them.
_REASON = "member was removed by an admin"

_STOP_FIRST = "to evict it for good, stop its process first"
_AWAY = "it was away (closed, its place kept for its return): its partitions go to the others at once"
_STATIC = (
    "it was in session: if its process still runs, the next heartbeat tells it. A consumer of this package ends with a "
    "fatal error and stays away until its program makes a new one; other clients (librdkafka, Java) join again as a "
    f"new member of the same instance id: {_STOP_FIRST}"
)
_DYNAMIC = (
    "it was in session: if its process still runs, the next heartbeat tells it, and it comes back by itself; "
    f"{_STOP_FIRST}"
)
_NOT_DESCRIBED = (
    f"if its process still runs, it may come back by itself at its next heartbeat; {_STOP_FIRST}. Who it was is not "
    "known, because describing the group is not allowed to this client"
)
_GONE = "it had left before it could be removed"
_TOO_OLD = (
    "this broker removes members of the classic protocol only; those of the consumer protocol (KIP-848) can be removed "
    "from Apache Kafka 4.0 on. Stop its process instead: its place is free when its session ends"
)


class RemovalOutcome(Enum):
    """What became of one member that was to be removed."""

    REMOVED = "removed"
    #: Of a dry run.
    WOULD_BE_REMOVED = "would be removed"
    #: It was there when the group was described, and left by itself, or by an attempt whose answer was lost.
    ALREADY_GONE = "already gone"
    #: The group has no such member.
    UNKNOWN = "unknown"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """One member that was to be removed: how it was asked for, who that was, and what became of it.

    `member` is None where the group has no such member, or where it may not be described. `message` says what follows,
    or what to do.
    """

    asked: MemberIdentity
    member: MemberDescription | None
    outcome: RemovalOutcome
    message: str

    @property
    def succeeded(self) -> bool:
        """Whether the member is not in the group any more, or, of a dry run, would not be."""
        return self.outcome not in (RemovalOutcome.UNKNOWN, RemovalOutcome.REFUSED)


def chosen(instance_ids: Iterable[str], member_ids: Iterable[str], *, everyone: bool) -> tuple[MemberIdentity, ...]:
    """The members that are asked for by id, each once; none for everyone.

    Raises:
        ConfigurationError: nobody is asked for, or both ids and everyone, or an id cannot be one.
    """
    identities = {
        **{MemberIdentity(instance_id=one): None for one in arguments.ids("instance_ids", instance_ids)},
        **{MemberIdentity(member_id=one): None for one in arguments.ids("member_ids", member_ids)},
    }
    if everyone and identities:
        raise ConfigurationError("everyone", everyone, "ids are given too; give either the ids or everyone")
    if not everyone and not identities:
        raise ConfigurationError("member_ids", (), "nobody is to be removed; give instance_ids, member_ids or everyone")
    return tuple(identities)


def full_reason(reason: str | None) -> str:
    """What the coordinator is told, as Java's admin client tells it."""
    return f"{_REASON}: {reason}" if reason else _REASON


def identity_of(member: MemberDescription) -> MemberIdentity:
    """How one of everyone is asked for: as in Java, a static member by its instance id, whoever holds it by then."""
    if member.instance_id is not None:
        return MemberIdentity(instance_id=member.instance_id)
    return MemberIdentity(member_id=member.member_id)


def found(asked: MemberIdentity, group: GroupDescription | None) -> MemberDescription | None:
    """The member that is meant, if the group has it (and may be described)."""
    members = () if group is None else group.members
    return next((member for member in members if _is_meant(asked, member)), None)


def _is_meant(asked: MemberIdentity, member: MemberDescription) -> bool:
    if asked.member_id:
        return member.member_id == asked.member_id
    return member.instance_id == asked.instance_id


def without_doubles(
    asked: Sequence[MemberIdentity], group: GroupDescription | None
) -> Mapping[MemberIdentity, MemberIdentity]:
    """For each member that is asked for, the identity that goes to the coordinator.

    Who is asked for by instance id and by member id goes once: the second time there would be no such member.
    """
    by_member: dict[str, MemberIdentity] = {}
    sent: dict[MemberIdentity, MemberIdentity] = {}
    for identity in asked:
        member = found(identity, group)
        sent[identity] = identity if member is None else by_member.setdefault(member.member_id, identity)
    return sent


def foreseen(asked: MemberIdentity, group: GroupDescription) -> Removal:
    """What a removal would lead to."""
    member = found(asked, group)
    if member is None:
        return _unknown(asked, group)
    return Removal(asked=asked, member=member, outcome=RemovalOutcome.WOULD_BE_REMOVED, message=_afterwards(member))


def concluded(
    asked: MemberIdentity,
    error: BrokerError | None,
    before: GroupDescription | None,
    after: GroupDescription | None,
) -> Removal:
    """What became of this member; `after` is the group as it is now, if that had to be looked up."""
    member = found(asked, before)
    if error is None:
        message = _NOT_DESCRIBED if before is None else "" if member is None else _afterwards(member)
        return Removal(asked=asked, member=member, outcome=RemovalOutcome.REMOVED, message=message)
    if error.code != UNKNOWN_MEMBER_CODE:
        return Removal(asked=asked, member=member, outcome=RemovalOutcome.REFUSED, message=str(error))
    if member is None:
        return _unknown(asked, after or before)
    if found(asked, after) is None:
        return Removal(asked=asked, member=member, outcome=RemovalOutcome.ALREADY_GONE, message=_GONE)
    # The coordinator shows it and does not know it.
    message = _TOO_OLD if member.protocol is GroupProtocol.CONSUMER else str(error)
    return Removal(asked=asked, member=member, outcome=RemovalOutcome.REFUSED, message=message)


def _afterwards(member: MemberDescription) -> str:
    if member.is_away:
        return _AWAY
    return _DYNAMIC if member.instance_id is None else _STATIC


def _unknown(asked: MemberIdentity, group: GroupDescription | None) -> Removal:
    return Removal(asked=asked, member=None, outcome=RemovalOutcome.UNKNOWN, message=_who_else(asked, group))


def _who_else(asked: MemberIdentity, group: GroupDescription | None) -> str:
    kind, given = ("member id", asked.member_id) if asked.member_id else ("instance id", asked.instance_id or "")
    absent = f"the group has no member with the {kind} {given!r}"
    if group is None:
        return absent
    member_ids = {member.member_id for member in group.members}
    instance_ids = {member.instance_id for member in group.members if member.instance_id is not None}
    other, others = ("instance id", instance_ids) if asked.member_id else ("member id", member_ids)
    if given in others:
        return f"{absent}; it is the {other} of one: give it as that"
    known = sorted(member_ids if asked.member_id else instance_ids)
    if not known:
        return f"{absent}; it has {'no members' if not group.members else f'no member with an {kind}'}"
    return f"{absent}; its {kind}s: {', '.join(known)}"
