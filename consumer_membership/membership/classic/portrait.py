"""The picture of a classic member, in the form that members of both protocols have: `view_of(member)`."""

from __future__ import annotations

from consumer_membership.membership.classic.member import ClassicMember
from consumer_membership.membership.classic.states import IN_GROUP, SHOWN, ClassicState
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import GroupProtocol, Instant, TopicPartition

_S = ClassicState


def view_of(member: ClassicMember) -> MembershipView:
    """This member as it is now; its epoch is the generation. The same member later gives another view."""
    waits_for, waits_since = _waiting(member)
    is_static = member.settings.is_static
    return MembershipView(
        state=SHOWN[member.state],
        protocol=GroupProtocol.CLASSIC,
        group_id=member.settings.group_id,
        member_id=member.member_id,
        instance_id=member.settings.instance_id,
        member_epoch=max(member.generation, 0),
        owned=member.ownership.named_owned,
        target=member.ownership.named_target,
        unresolved=0,
        pending_revocation=_pending_revocation(member),
        waits_for=waits_for,
        waits_since=waits_since,
        waits_until=None,
        coordinator=member.coordinator.address,
        heartbeat_interval_s=member.classic.heartbeat_interval_s,
        session_timeout_s=member.classic.session_timeout_s if is_static else None,
        last_heartbeat_at=member.last_heartbeat_at,
        last_error=member.last_error,
        transitions=tuple(member.transitions),
    )


def _pending_revocation(member: ClassicMember) -> frozenset[TopicPartition]:
    revoking, ownership = member.reconciler.revoking, member.ownership
    if revoking is None:
        return frozenset(ownership.named_owned)
    return ownership.named(revoking & ownership.owned.keys()) if revoking else frozenset()


def _waiting(member: ClassicMember) -> tuple[str | None, Instant | None]:
    """What the member waits for, in words, and since when."""
    needs_coordinator = member.state in IN_GROUP or member.state is _S.UNSUBSCRIBING
    if needs_coordinator and not member.coordinator.is_known:
        return "the group's coordinator to be found", member.coordinator.searching_since
    if member.reconciler.phase is not Phase.IDLE:
        return member.reconciler.phase.value, member.reconciler.since
    if not member.pattern.is_resolved and member.state in (_S.PREPARING, _S.JOINING, _S.STABLE):
        return "the list of topics, to see which ones match the pattern", member.pattern.waits_since
    words = _words(member)
    return words, member.since if words is not None else None


def _words(member: ClassicMember) -> str | None:
    match member.state:
        case _S.UNSUBSCRIBED if member.subscription:
            return "the application's next poll, to join"
        case _S.STALE:
            return "the application's next poll, to rejoin"
        case _S.JOINING:
            return "the group's other members to join, or the rebalance timeout"
        case _S.SYNCING if member.is_leader:
            return "this member's assignor, which computes for the whole group"
        case _S.SYNCING:
            return "the leader's assignment"
        case _S.UNSUBSCRIBING:
            return "the coordinator's answer to the leave"
        case _S.STABLE if not member.ownership.owned:
            return "partitions: the leader has assigned none"
        case _:
            return None
