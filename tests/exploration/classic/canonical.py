"""Rewrites a classic process to one that behaves alike and looks the same whenever it stands in the same place.

Generations are not renamed: each of them costs budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from consumer_membership.membership.classic.heartbeat import ClassicHeartbeats
from consumer_membership.membership.classic.leadership import ComputeAssignment
from consumer_membership.membership.classic.member import ClassicMember
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.effects import CommitOffsets, FetchCommitted
from tests.exploration import canonical
from tests.exploration.canonical import STALE, later
from tests.exploration.moves import RETRY_S

if TYPE_CHECKING:
    from tests.exploration.classic.process import ClassicProcess

_S = ClassicState
EXCHANGE, BEAT, LEAVE, TOPICS = 1, 2, 3, 4
#: When the next heartbeat is due, and when the leader looks after partitions that were held back, and at its topics.
BEAT_S = 20.0
REPAIR_S = 60.0
REFRESH_S = 250.0
#: The states in which a leader's knowledge is used.
_LEADS = frozenset({_S.SYNCING, _S.RECONCILE, _S.STABLE})
_REASON = "a rebalance"


def canonicalise(process: ClassicProcess) -> None:
    """Rewrite this process, whose member handled its last event at `member._now`."""
    member = process.member
    now = member._now
    _rename_requests(process)
    canonical.canonicalise(process)
    ownership = member.ownership
    ownership.statement = 0
    ownership.owned = dict.fromkeys(ownership.owned, 0)
    ownership._changed()
    _place_member(member, now)
    _place_leader(member, now)
    _place_heartbeats(member.heartbeats, now)
    _place_static(process, now)
    member._now = 0.0


def _rename_requests(process: ClassicProcess) -> None:
    member = process.member
    numbers = {
        member._exchange: EXCHANGE,
        member.heartbeats.in_flight: BEAT,
        member._leave_request: LEAVE,
        member._topics_request: TOPICS,
    }
    numbers.pop(None, None)
    member._exchange = None if member._exchange is None else EXCHANGE
    member.heartbeats.in_flight = None if member.heartbeats.in_flight is None else BEAT
    member._leave_request = None if member._leave_request is None else LEAVE
    member._topics_request = None if member._topics_request is None else TOPICS
    member._last_request_id = TOPICS
    if process.exchange is not None:
        process.exchange = process.exchange._replace(order=_renamed(process.exchange.order, numbers))
    process.calls = [one._replace(order=_renamed(one.order, numbers)) for one in process.calls]
    process.tasks = [_renamed(task, numbers) for task in process.tasks]
    process.zombies = [_renamed(order, {}) for order in process.zombies]
    process.late = [_renamed(event, {}) for event in process.late]


def _renamed(one: Any, numbers: Mapping[int | None, int]) -> Any:  # noqa: ANN401 - orders and events with a number
    """This order or event with the number by which the member awaits it, or with one that nobody awaits."""
    if isinstance(one, CommitOffsets | FetchCommitted | ComputeAssignment) or not hasattr(one, "request_id"):
        return one
    changes: dict[str, Any] = {"request_id": numbers.get(one.request_id, STALE)}
    if hasattr(one, "reason"):
        changes["reason"] = _REASON
    return replace(one, **changes)


def _place_member(member: ClassicMember, now: float) -> None:
    is_joining = member.state is _S.JOINING
    member._join_not_before = (later(member._join_not_before, now, RETRY_S) or 0.0) if is_joining else 0.0
    member.rejoins_because = None if member.rejoins_because is None else _REASON
    if member.state is not _S.RECONCILE:
        member._gives_up = False


def _place_leader(member: ClassicMember, now: float) -> None:
    if member.state in _LEADS:
        member._topics_at = later(member._topics_at, now, REFRESH_S)
        member._repair_at = later(member._repair_at, now, REPAIR_S)
        return
    # The next generation has its own.
    member.is_leader, member._protocol_name = False, ""
    member._members, member._unreadable, member._topics = {}, {}, None
    member._topics_request = member._topics_at = member._repair_at = None


def _place_static(process: ClassicProcess, now: float) -> None:
    """What only the holder of an instance id asks for."""
    member = process.member
    confirmed_at = member.heartbeats.confirmed_at
    is_recent = confirmed_at is not None and now - confirmed_at < member.classic.session_timeout_s
    member.heartbeats.confirmed_at = 0.0 if is_recent and member.settings.is_static else None
    if not member.settings.is_static:
        member.place._is_newest = False


def _place_heartbeats(heartbeats: ClassicHeartbeats, now: float) -> None:
    heartbeats._sent_at = heartbeats._session_since = 0.0
    heartbeats._sent_at = BEAT_S
    # For the application's thread alone.
    heartbeats._gathered_at = None
    heartbeats._not_before = later(heartbeats._not_before, now, RETRY_S) or 0.0
    heartbeats._beats_since_stir = 0
    heartbeats._round_trips.clear()
    heartbeats._is_urgent = False
    heartbeats._backoff.failures = 0
