"""The picture of a member that people and programs see: `view_of(member)`."""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.membership.member import Member
from consumer_membership.membership.participant import OrderT, Participant
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import JOIN_EPOCH, GroupProtocol, Instant


def view_of(member: Member) -> MembershipView:
    """This member as it is now; the same member later gives another view."""
    ownership = member.ownership
    waits_for, waits_since = waiting(member, lambda: _words(member))
    unresolved = ownership.unresolved
    return MembershipView(
        state=member.state,
        protocol=GroupProtocol.CONSUMER,
        group_id=member.settings.group_id,
        member_id=member.member_id,
        instance_id=member.instance.id,
        member_epoch=member.member_epoch,
        owned=ownership.named_owned,
        target=ownership.named_target,
        unresolved=sum(1 for p in ownership.target or () if p.topic_id in unresolved) if unresolved else 0,
        pending_revocation=member.pending_revocation,
        waits_for=waits_for,
        waits_since=waits_since,
        waits_until=member.instance.waits_until(),
        coordinator=member.coordinator.address,
        heartbeat_interval_s=member.heartbeats.broker_interval_s,
        session_timeout_s=member.instance.session_timeout_s,
        last_heartbeat_at=member.last_heartbeat_at,
        last_error=member.last_error,
        transitions=tuple(member.transitions),
        missing_topics=member.watch.missing,
        group_protocol=GroupProtocol.CONSUMER if member.member_epoch > JOIN_EPOCH else None,
        lease_until=member.lease_until,
    )


def waiting(
    member: Participant[OrderT], words: Callable[[], tuple[str | None, Instant | None]]
) -> tuple[str | None, Instant | None]:
    """What a member of either protocol waits for, in words, and since when; `words` has the protocol's own."""
    coordinator = member.coordinator
    if member.needs_coordinator and not coordinator.is_known:
        return "the group's coordinator to be found", coordinator.searching_since
    if member.reconciler.phase is not Phase.IDLE:
        return member.reconciler.phase.value, member.reconciler.since
    said, since = words()
    if said is None:
        said, since = _shared_words(member), member.since
    return said, since if said is not None else None


def _shared_words(member: Participant[OrderT]) -> str | None:
    match member.shown:
        case MemberState.UNSUBSCRIBED if member.subscription:
            return "the application's next poll, to join"
        case MemberState.STALE:
            return "the application's next poll, to rejoin"
        case MemberState.UNSUBSCRIBING:
            return "the coordinator's answer to the leave"
        case _:
            return None


def _words(member: Member) -> tuple[str | None, Instant | None]:
    if member.ownership.unresolved:
        return "the names of assigned topic ids", member.since
    match member.state:
        case MemberState.JOINING if member.instance.is_waiting:
            return _waiting_for_instance(member), member.instance.waits_since
        case MemberState.JOINING:
            return "the coordinator's answer to the join", member.since
        case MemberState.STABLE if not member.ownership.owned:
            return member.watch.words() or "partitions: the coordinator has assigned none", member.since
        case _:
            return None, None


def _waiting_for_instance(member: Member) -> str:
    holder = member.instance.waits_for
    if member.instance.waits_until() is None:
        return "an id of group.instance.id.pool to become free"
    by = f"member {holder}" if holder is not None else "another member"
    return f"group.instance.id '{member.instance.id}', held by {by}: until it leaves or its session ends"
