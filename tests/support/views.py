"""A member's view for tests: without partitions, coordinator and heartbeats."""

from __future__ import annotations

from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView
from consumer_membership.types import GroupProtocol


def view_of(state: MemberState, *, group_id: str = "g", member_id: str = "m", epoch: int = 0) -> MembershipView:
    """Return the view of a consumer protocol member in this state; use `dataclasses.replace` for other attributes."""
    return MembershipView(
        state=state,
        protocol=GroupProtocol.CONSUMER,
        group_id=group_id,
        member_id=member_id,
        instance_id=None,
        member_epoch=epoch,
        owned={},
        target=frozenset(),
        unresolved=0,
        pending_revocation=frozenset(),
        waits_for=None,
        waits_since=None,
        waits_until=None,
        coordinator=None,
        heartbeat_interval_s=None,
        session_timeout_s=None,
        last_heartbeat_at=None,
        last_error=None,
        transitions=(),
    )
