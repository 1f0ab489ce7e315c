"""Rewrites KIP-848 processes, so that processes with equal behavior in equal states have equal keys."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from consumer_membership.membership.consumer.claim import NEWEST_FOR_S, Age
from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.consumer.protocol import FENCES_BEFORE_NEW_ID
from consumer_membership.membership.consumer.session_timeout import LONGEST_SESSION_S
from consumer_membership.membership.effects import DescribeGroup
from consumer_membership.membership.events import HeartbeatAnswered, HeartbeatRejected
from consumer_membership.membership.states import SILENT
from consumer_membership.types import ConflictPolicy, Subscription
from tests.exploration import canonical
from tests.exploration.canonical import STALE, later, ranks
from tests.exploration.consumer import hand_over
from tests.exploration.consumer.hand_over import LONG_AGO, OF_RESERVATIONS
from tests.exploration.moves import RETRY_S
from tests.simulation import internals

if TYPE_CHECKING:
    from consumer_membership.membership.member import MemberCore
    from tests.exploration.process import Process

AWAITED = 1
LEAVE = 2


def canonicalise(process: Process) -> None:
    """Rewrite this process, whose member handled its last event at `context.event.now`."""
    member = process.member
    now = member.context.event.now
    _rename_requests(process)
    _rename_statements(member)
    canonical.canonicalise(process)
    _place_member(member, now)
    _place_heartbeats(internals.consumer(member).heartbeats, now)
    _place_instance(member, now)
    if member.settings.conflict_policy is ConflictPolicy.HAND_OVER:
        hand_over.canonicalise(process, now)
    if not member.settings.is_static:
        # Only the holder of an instance id reads these values.
        heartbeats = internals.consumer(member).heartbeats
        heartbeats.broker_interval_s = heartbeats.confirmed_at = None
        internals.consumer(member).claim.age, process.invariants.is_newest = Age.OLDER, False
    member.context.event.now = 0.0


# ---- numbers ----


def _rename_requests(process: Process) -> None:
    member = process.member
    heartbeats = internals.consumer(member).heartbeats
    names = {member.context.leave.request: LEAVE, heartbeats.in_flight: AWAITED}
    names.pop(None, None)
    process.heartbeats = [one._replace(number=names.get(one.number, STALE)) for one in process.heartbeats]
    process.late = [_restale(event) for event in process.late]
    heartbeats._open_joins = {AWAITED if one == heartbeats.in_flight else STALE for one in heartbeats._open_joins}
    heartbeats.in_flight = None if heartbeats.in_flight is None else AWAITED
    leave = member.context.leave
    leave.request = None if leave.request is None else LEAVE
    member.context.event._last_request_id = OF_RESERVATIONS
    instance = internals.consumer(member).claim
    process.calls = [
        one._replace(
            order=replace(one.order, request_id=AWAITED if one.order.request_id == instance._awaited else STALE)
        )
        if isinstance(one.order, DescribeGroup)
        else one
        for one in process.calls
    ]
    instance._awaited = None if instance._awaited is None else AWAITED


def _restale(event: object) -> object:
    if isinstance(event, HeartbeatAnswered | HeartbeatRejected) and event.request_id != STALE:
        return replace(event, request_id=STALE)
    return event


def _rename_statements(member: MemberCore) -> None:
    sent = internals.consumer(member).heartbeats._sent
    protocol = internals.consumer(member)
    place = ranks((member.context.ownership.version, protocol._acknowledged, sent.ownership_version))
    member.context.ownership.version = place[member.context.ownership.version]
    protocol._acknowledged = place[protocol._acknowledged]
    if sent.ownership_version is not None:
        internals.consumer(member).heartbeats._sent = replace(sent, ownership_version=place[sent.ownership_version])


# ---- times ----


def _place_member(member: MemberCore, now: float) -> None:
    confirmed_at = internals.consumer(member).heartbeats.confirmed_at
    recent = confirmed_at is not None and now - confirmed_at < internals.consumer(member).heartbeats.interval_s
    internals.consumer(member).heartbeats.confirmed_at = 0.0 if recent else None
    if internals.consumer(member).state in SILENT:
        # A join contains the current subscription.
        internals.consumer(member)._sent_subscription, internals.consumer(member)._has_news = Subscription(), False
    internals.consumer(member)._leave_backoff.failures = 0
    internals.consumer(member)._fences.failures = min(internals.consumer(member)._fences.failures, FENCES_BEFORE_NEW_ID)


def _place_heartbeats(heartbeats: Heartbeats, now: float) -> None:
    heartbeats._sent_at = 0.0
    heartbeats._not_before = later(heartbeats._not_before, now, RETRY_S) or 0.0
    heartbeats.pace._sent = 0
    heartbeats.pace._round_trips._latest.clear()
    heartbeats.joined_at = None
    heartbeats._backoff.failures = 0


def _place_instance(member: MemberCore, now: float) -> None:
    instance = internals.consumer(member).claim
    instance.session._away_since = None
    instance.session._requested_at = None if instance.session._requested_at is None else 0.0
    subscribed_at = internals.subscribed_at(member)
    instance._subscribed_at = LONG_AGO if subscribed_at is not None and now - subscribed_at > NEWEST_FOR_S else 0.0
    attempt = instance._attempt
    attempt.look_up_at = later(attempt.look_up_at, now, RETRY_S) or 0.0
    if attempt.waits_since is not None:
        is_over = now - attempt.waits_since > LONGEST_SESSION_S
        attempt.waits_since = LONG_AGO if is_over else 0.0
    attempt.own_releases = min(attempt.own_releases, 2)
    instance._backoff.failures = 0
    instance._watch.begin()
    instance._watch._round_trips._latest.clear()
    instance._watch._requested_at = instance._watch._changed_at = 0.0
