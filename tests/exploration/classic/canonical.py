"""Rewrites classic processes, so that processes with equal behavior in equal states have equal keys.

Generations are not renamed, because each of them costs budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from consumer_membership.membership.classic.exchanges import ComputeAssignment
from consumer_membership.membership.classic.heartbeat import ClassicHeartbeats
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.effects import CommitOffsets, FetchCommitted
from tests.exploration import canonical
from tests.exploration.canonical import STALE, later
from tests.exploration.moves import RETRY_S
from tests.simulation import internals

if TYPE_CHECKING:
    from consumer_membership.membership.member import MemberCore
    from tests.exploration.process import Process

_S = ClassicState
EXCHANGE, CLASSIC_HEARTBEAT, LEAVE, TOPICS = 1, 2, 3, 4
#: The times until the next heartbeat, and until the leader checks held-back partitions and its topics.
HEARTBEAT_S = 20.0
REPAIR_S = 60.0
REFRESH_S = 250.0
#: The states in which a leader uses the data of its group.
_LEADS = frozenset({_S.SYNCING, _S.RECONCILE, _S.STABLE})
_REASON = "a rebalance"


def canonicalise(process: Process) -> None:
    """Rewrite this process, whose member handled its last event at `context.event.now`."""
    member = process.member
    now = member.context.event.now
    _rename_requests(process)
    canonical.canonicalise(process)
    ownership = member.context.ownership
    ownership.version = 0
    ownership.owned = dict.fromkeys(ownership.owned, 0)
    ownership._changed()
    _place_member(member, now)
    _place_leader(member, now)
    _place_heartbeats(internals.classic(member).heartbeats, now)
    _place_static(process, now)
    member.context.event.now = 0.0


def _rename_requests(process: Process) -> None:
    member, context, protocol = process.member, process.member.context, internals.classic(process.member)
    leader = protocol.leader
    numbers = {
        protocol.requests.in_flight: EXCHANGE,
        internals.classic(member).heartbeats.in_flight: CLASSIC_HEARTBEAT,
        context.leave.request: LEAVE,
        leader._request: TOPICS,
    }
    numbers.pop(None, None)
    protocol.requests.in_flight = EXCHANGE if protocol.requests.is_waiting else None
    internals.classic(member).heartbeats.in_flight = (
        None if internals.classic(member).heartbeats.in_flight is None else CLASSIC_HEARTBEAT
    )
    context.leave.request = None if context.leave.request is None else LEAVE
    leader._request = None if leader._request is None else TOPICS
    context.event._last_request_id = TOPICS
    if process.exchange is not None:
        process.exchange = process.exchange._replace(order=_renamed(process.exchange.order, numbers))
    process.calls = [one._replace(order=_renamed(one.order, numbers)) for one in process.calls]
    process.tasks = [_renamed(task, numbers) for task in process.tasks]
    process.abandoned_orders = [_renamed(order, {}) for order in process.abandoned_orders]
    process.late = [_renamed(event, {}) for event in process.late]


def _renamed(one: Any, numbers: Mapping[int | None, int]) -> Any:
    """Return this order or event with the number by which the member awaits it, or with a number without a waiter."""
    if isinstance(one, CommitOffsets | FetchCommitted | ComputeAssignment) or not hasattr(one, "request_id"):
        return one
    changes: dict[str, Any] = {"request_id": numbers.get(one.request_id, STALE)}
    if hasattr(one, "reason"):
        changes["reason"] = _REASON
    return replace(one, **changes)


def _place_member(member: MemberCore, now: float) -> None:
    protocol, requests = internals.classic(member), internals.classic(member).requests
    is_joining = protocol.state is _S.JOINING
    requests.join_at = (later(requests.join_at, now, RETRY_S) or 0.0) if is_joining else 0.0
    protocol.rejoins_because = None if protocol.rejoins_because is None else _REASON
    if internals.classic(member).state is not _S.RECONCILE:
        protocol.assignment.revokes = False


def _place_leader(member: MemberCore, now: float) -> None:
    leader = internals.classic(member).leader
    if internals.classic(member).state in _LEADS:
        leader._check_at = later(leader._check_at, now, REFRESH_S)
        leader._repair_at = later(leader._repair_at, now, REPAIR_S)
        return
    # The next generation has its own value.
    leader.is_leading, internals.classic(member).assignment.assignor = False, ""
    leader._members, leader._unreadable, leader._topics = {}, {}, None
    leader._request = leader._check_at = leader._repair_at = None


def _place_static(process: Process, now: float) -> None:
    """Remove the values that only the holder of an instance id reads."""
    member = process.member
    confirmed_at = internals.classic(member).heartbeats.confirmed_at
    is_recent = confirmed_at is not None and now - confirmed_at < internals.classic(member).classic.session_timeout_s
    internals.classic(member).heartbeats.confirmed_at = 0.0 if is_recent and member.settings.is_static else None
    if not member.settings.is_static:
        former = internals.classic(member).former_member
        former._is_newest = former._is_unwritten = False


def _place_heartbeats(heartbeats: ClassicHeartbeats, now: float) -> None:
    heartbeats._sent_at = heartbeats._session_since = 0.0
    heartbeats._sent_at = HEARTBEAT_S
    heartbeats._not_before = later(heartbeats._not_before, now, RETRY_S) or 0.0
    heartbeats.pace._sent = 0
    heartbeats.pace._round_trips._latest.clear()
    heartbeats._is_urgent = False
    heartbeats._backoff.failures = 0
