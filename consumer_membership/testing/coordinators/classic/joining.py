"""Handle JoinGroup: admission, member ids, and the rebalance that follows (rules 3.4 and 4.9; GroupMetadataManager)."""

from __future__ import annotations

from dataclasses import replace

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.classic.group import ClassicGroup, GroupState
from consumer_membership.testing.coordinators.classic.roster import ClassicMember
from consumer_membership.testing.coordinators.exchanges import Answer, Join, Key, MemberIdRequired, Offer
from consumer_membership.testing.coordinators.journal import Replaced
from consumer_membership.testing.coordinators.rules import RequestRefusal
from consumer_membership.types import NO_MEMBER_ID, Instant


def join(group: ClassicGroup, key: Key, request: Join, now: Instant) -> Answer | None:
    """Return the response to a JoinGroup; None: it waits, or `group.released` has it. Raises RequestRefusal."""
    group.check_alive()
    if not _has_capacity(group, request.member_id):
        group.remove(request.member_id, "group full")
        raise RequestRefusal(code.GROUP_MAX_SIZE_REACHED)
    if not group.roster.supports(request.protocol_type, request.offers):
        raise RequestRefusal(code.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id == NO_MEMBER_ID:
        return _join_without_id(group, key, request, now)
    if request.member_id in group.roster.pending:
        if request.instance_id is not None:
            raise RequestRefusal(code.UNKNOWN_SERVER_ERROR)
        _add(group, key, request, request.member_id, now)
        return None
    member = group.roster.check(request.member_id, request.instance_id)
    return _rejoin(group, key, request, member, now)


def _has_capacity(group: ClassicGroup, member_id: str) -> bool:
    """Return whether the group has capacity for this member (KIP-389).

    In a join phase, members that have joined count towards the limit; in later phases, all current members count.
    """
    known = group.roster.members.get(member_id)
    match group.state:
        case GroupState.EMPTY | GroupState.DEAD:
            return True
        case GroupState.PREPARING_REBALANCE:
            is_in = known is not None and known.join is not None
            return is_in or len(group.roster.joined) < group.rules.max_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return known is not None or len(group.roster.members) < group.rules.max_size


# ---- members that have no id yet ----


def _join_without_id(group: ClassicGroup, key: Key, request: Join, now: Instant) -> Answer | None:
    group.ids_made += 1
    member_id = f"{request.instance_id or 'member'}-{group.ids_made}"
    if request.instance_id is None and request.version >= code.VERSION_OF_REQUIRED_ID:
        group.roster.pending[member_id] = now + request.session_timeout_s
        return MemberIdRequired(member_id=member_id)
    former_id = group.roster.instances.get(request.instance_id or "")
    if former_id is None:
        _add(group, key, request, member_id, now)
    else:
        _replace(group, key, request, group.roster.members[former_id], member_id, now)
    return None


def _add(group: ClassicGroup, key: Key, request: Join, member_id: str, now: Instant) -> None:
    """Add a new member; during the delay of a first rebalance, note that the join phase can be extended."""
    if group.initial_delay is not None:
        group.has_newcomer = True
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        offers=request.offers,
        session_timeout_s=request.session_timeout_s,
        rebalance_timeout_s=request.rebalance_timeout_s,
        join=key,
        is_new=True,
        session_ends_at=now + group.rules.new_member_join_timeout_s,
    )
    group.roster.add(member, request.protocol_type)
    group.prepare_or_complete(f"Adding new member {member_id}", now)


# ---- existing members ----


def _rejoin(group: ClassicGroup, key: Key, request: Join, member: ClassicMember, now: Instant) -> Answer | None:
    """Return the current generation if the member's metadata are unchanged; otherwise a rebalance follows.

    A leader that joins a stable group again always begins a rebalance: its metadata may not show the reason.
    """
    may_stay = group.state is GroupState.COMPLETING_REBALANCE or (
        group.state is GroupState.STABLE and member.member_id != group.roster.leader_id
    )
    if may_stay and member.offers == request.offers:
        return group.joined(member)
    member.store_join(request, key)
    group.prepare_or_complete(f"Member {member.member_id} joins again", now)
    return None


def _replace(group: ClassicGroup, key: Key, request: Join, former: ClassicMember, member_id: str, now: Instant) -> None:
    """Replace a static member by the newest process with its instance id (KIP-345).

    A stable group rebalances only if the selected assignor changes or, with `sees_returning_subscriptions`, the topics.
    """
    former_leader_id = group.roster.leader_id
    former_offers = former.offers
    group.fence(former)
    member = group.roster.replace(former, member_id)
    group.happened.append(
        Replaced(instance_id=request.instance_id or "", former_id=former.member_id, member_id=member_id)
    )
    member.start_session(now)
    member.store_join(request, key)
    if group.state is not GroupState.STABLE:
        # In COMPLETING_REBALANCE the leader may have received the former id already, and would assign partitions to it.
        group.prepare_or_complete(f"Updating metadata for static member {member_id}", now)
    elif group.roster.select_assignor() != group.assignor or _has_other_topics(group, former_offers, request.offers):
        group.prepare(f"Static member {member_id} joined with a change of protocol", now)
    else:
        group.write()
        _answer_returned(group, request, member, former_leader_id or "")


def _has_other_topics(group: ClassicGroup, before: tuple[Offer, ...], after: tuple[Offer, ...]) -> bool:
    def topics(offers: tuple[Offer, ...]) -> frozenset[str] | None:
        return next((offer.subscription.topics for offer in offers if offer.assignor == group.assignor), None)

    return group.rules.sees_returning_subscriptions and topics(before) != topics(after)


def _answer_returned(group: ClassicGroup, request: Join, member: ClassicMember, former_leader_id: str) -> None:
    if request.version >= code.VERSION_OF_SKIPPED_ASSIGNMENT:
        answer = group.joined(member, skip_assignment=True)
    else:
        # Before KIP-814: a member that receives its own id as leader id assigns, so it receives the former leader id.
        answer = replace(group.joined(member), leader_id=former_leader_id, members=())
    group.answer_join(member, answer)
