"""The picture of a classic member, in the form that members of both protocols have: `view_of(member)`."""

from __future__ import annotations

from consumer_membership.membership.classic.member import ClassicMember
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.classic.subscription import NO_GENERATION
from consumer_membership.membership.portrait import waiting
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import GroupProtocol, Instant

_S = ClassicState


def view_of(member: ClassicMember) -> MembershipView:
    """This member as it is now; its epoch is the generation. The same member later gives another view."""
    waits_for, waits_since = waiting(member, lambda: _words(member))
    is_static = member.settings.is_static
    return MembershipView(
        state=member.shown,
        protocol=GroupProtocol.CLASSIC,
        group_id=member.settings.group_id,
        member_id=member.member_id,
        instance_id=member.settings.instance_id,
        member_epoch=max(member.generation, 0),
        owned=member.ownership.named_owned,
        target=member.ownership.named_target,
        unresolved=0,
        pending_revocation=member.pending_revocation,
        waits_for=waits_for,
        waits_since=waits_since,
        waits_until=member.place.waits_until(),
        coordinator=member.coordinator.address,
        heartbeat_interval_s=member.classic.heartbeat_interval_s,
        session_timeout_s=member.classic.session_timeout_s if is_static else None,
        last_heartbeat_at=member.last_heartbeat_at,
        last_error=member.last_error,
        transitions=tuple(member.transitions),
        missing_topics=member.watch.missing,
        group_protocol=member.group_protocol if member.generation != NO_GENERATION else None,
        lease_until=member.lease_until,
    )


def _words(member: ClassicMember) -> tuple[str | None, Instant | None]:
    """What this protocol's member waits for, in words, and since when."""
    if not member.patterns.is_resolved and member.state in (_S.PREPARING, _S.JOINING, _S.STABLE):
        return "the list of topics, to see which ones match the pattern", member.patterns.waits_since
    match member.state:
        case _S.JOINING if (full := member.place.words()) is not None:
            return full, member.place.waits_since or member.since
        case _S.JOINING:
            words = "the group's other members to join, or the rebalance timeout"
        case _S.SYNCING if member.tells_assignor:
            words = "this member's assignor, which hears of the assignment"
        case _S.SYNCING if member.is_leader:
            words = "this member's assignor, which computes for the whole group"
        case _S.SYNCING:
            words = "the leader's assignment"
        case _S.STABLE if not member.ownership.owned:
            words = member.watch.words() or "partitions: the leader has assigned none"
        case _:
            return None, None
    return words, member.since
