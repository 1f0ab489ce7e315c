"""Leases in every state of both protocols: no event extends a lease beyond the session that the coordinator confirmed.

With `ownership.lease.enable`, records of a partition are delivered only until the send time of the last acknowledged
heartbeat plus the session timeout, minus a margin. The view passes this limit to the runtime as `lease_until`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, get_args

import pytest
from hypothesis import given, settings, strategies

from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.consumer.protocol import SESSION_INTERVALS
from consumer_membership.membership.protocol import DEFAULT_SESSION_S
from consumer_membership.membership.settings import LEASE_MARGIN
from consumer_membership.membership.states import MemberState
from consumer_membership.types import JOIN_EPOCH, ConflictPolicy, Instant
from tests.membership import sample_events
from tests.membership.builders import (
    A0,
    Scene,
    acknowledging,
    adding,
    fatal,
    fenced,
    joining,
    requested,
    revoking,
    stable,
    stale,
    unsubscribing,
)
from tests.membership.classic import sample_events as classic_sample_events
from tests.membership.classic import scene as classic_scenes
from tests.membership.classic.scene import EAGER, ClassicScene

S, C = MemberState, ClassicState
#: Sums of times as floats are not exact.
ROUNDING_S = 1e-6
LEASES: Mapping[str, Any] = {"has_leases": True}
STATIC: Mapping[str, Any] = {"has_leases": True, "instance_id": "i", "conflict_policy": ConflictPolicy.HAND_OVER}


def static_with_leases() -> Scene:
    """STABLE, after the epoch has increased for this static member."""
    return joining(**STATIC).answer(7, {A0}).answer(8, ()).answer(-1).answer(9, {A0}).settle()


def handing_over_with_leases() -> Scene:
    """UNSUBSCRIBING, because a successor takes over the member's place."""
    return requested(static_with_leases().until(lambda s: bool(s.all(ef.ReadAnnouncements))))


#: A scene in each state of a KIP-848 member, and several scenes for states in which it may hold partitions.
SCENES: Mapping[str, Callable[[], Scene]] = {
    "UNSUBSCRIBED": lambda: Scene(**LEASES).subscribe("orders"),
    "JOINING": lambda: joining(**LEASES),
    "RECONCILE, adding": lambda: adding(**LEASES),
    "RECONCILE, revoking": lambda: revoking(**LEASES),
    "ACK": lambda: acknowledging(**LEASES),
    "STABLE": lambda: stable(A0, **LEASES),
    "STABLE, static": static_with_leases,
    "RECONCILE, static": lambda: stable(A0, **STATIC),
    "FENCED": lambda: fenced(**LEASES),
    "STALE": lambda: stale(**LEASES),
    "UNSUBSCRIBING": lambda: unsubscribing(**LEASES),
    "UNSUBSCRIBING, hand-over": handing_over_with_leases,
    "FATAL": lambda: fatal(**LEASES),
}
#: A scene in each state of a classic member, and several for JOINING.
CLASSIC_SCENES: Mapping[str, Callable[[], ClassicScene]] = {
    "UNSUBSCRIBED": lambda: ClassicScene(**LEASES).subscribe("a"),
    "PREPARING": lambda: classic_scenes.stable(classic_scenes.A0, assignors=(EAGER,), **LEASES).rebalance(),
    "JOINING": lambda: classic_scenes.joining(**LEASES),
    "JOINING, with partitions": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES).rebalance(),
    "SYNCING": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES).rebalance().gather(2),
    "RECONCILE": lambda: classic_scenes.joining(**LEASES).gather(1).share(classic_scenes.A0),
    "STABLE": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES),
    "FENCED": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES).heartbeat_rejected(
        ex.ClassicVerdict.REJOIN, classic_scenes.UNKNOWN
    ),
    "STALE": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES).after(classic_scenes.MAX_POLL_S),
    "UNSUBSCRIBING": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES).leave(),
    "FATAL": lambda: classic_scenes.stable(classic_scenes.A0, **LEASES).heartbeat_rejected(
        ex.ClassicVerdict.FATAL, classic_sample_events.FENCED
    ),
}


class LeaseChecker(ABC):
    """Feeds a scene and checks its lease after each event. Requests before the first event count as acknowledged.

    The checker records when the member sent each request, and which requests the coordinator acknowledged.
    """

    def __init__(self, scene: Scene | ClassicScene) -> None:
        self.scene: Any = scene
        self._sent_at: dict[int, Instant] = {}
        self._acknowledged_at: Instant = scene.now
        self._note_requests(scene.effects)

    @abstractmethod
    def request_of(self, effect: object) -> int | None:
        """Return the number of a request that proves the membership if it is acknowledged."""

    @abstractmethod
    def acknowledged(self, event: object) -> int | None:
        """Return the number of the request that this event acknowledges."""

    @property
    @abstractmethod
    def session_s(self) -> float:
        """The session timeout that the lease may assume."""

    def feed(self, event: object) -> None:
        """Pass an event to the member, and check its lease."""
        number = self.acknowledged(event)
        if number is not None:
            self._acknowledged_at = max(self._acknowledged_at, self._sent_at.get(number, self._acknowledged_at))
        if isinstance(event, ev.Suspended):
            # The session continued during the suspension, but this clock did not.
            self._acknowledged_at -= event.seconds
            self._sent_at = {one: at - event.seconds for one, at in self._sent_at.items()}
        self.scene.feed(event)
        self._note_requests(self.scene.last)
        self._check(event)

    def after(self, seconds: float) -> None:
        """Let this much time pass."""
        self.scene.now += seconds
        self.feed(ev.TimePassed())

    def _note_requests(self, effects: Any) -> None:
        for effect in effects:
            number = self.request_of(effect)
            if number is not None:
                self._sent_at.setdefault(number, self.scene.now)

    def _check(self, event: object) -> None:
        view = self.scene.view
        if not view.owned:
            return
        assert view.lease_until is not None, f"{view.state} owns partitions without a lease after {event}"
        limit = self._acknowledged_at + self.session_s * (1 - LEASE_MARGIN) + ROUNDING_S
        assert view.lease_until <= limit, f"{view.state}: {view.lease_until} is later than {limit} after {event}"


class ConsumerLeaseChecker(LeaseChecker):
    """The leases of a KIP-848 member: only its own heartbeats count, not those on behalf of other members."""

    def request_of(self, effect: object) -> int | None:
        """Return the request number of a heartbeat of this member."""
        if not isinstance(effect, ef.SendHeartbeat) or effect.heartbeat.is_leave:
            return None
        is_own = effect.heartbeat.member_id == self.scene.protocol.member_id
        return effect.request_id if is_own else None

    def acknowledged(self, event: object) -> int | None:
        """Return the request number of a heartbeat that succeeded."""
        if isinstance(event, ev.HeartbeatAnswered) and event.member_epoch > JOIN_EPOCH:
            return event.request_id
        return None

    @property
    def session_s(self) -> float:
        """The reported session timeout, or else two heartbeat intervals: every session lasts at least that long."""
        view = self.scene.view
        if view.session_timeout_s is not None or view.heartbeat_interval_s is None:
            return view.session_timeout_s or DEFAULT_SESSION_S
        return min(DEFAULT_SESSION_S, SESSION_INTERVALS * view.heartbeat_interval_s)


class ClassicLeaseChecker(LeaseChecker):
    """The leases of a classic member: joins, syncs and heartbeats count, including heartbeats during a rebalance."""

    def request_of(self, effect: object) -> int | None:
        """Return the request number of a JoinGroup, SyncGroup or Heartbeat."""
        return effect.request_id if isinstance(effect, ex.SendJoin | ex.SendSync | ex.SendClassicHeartbeat) else None

    def acknowledged(self, event: object) -> int | None:
        """Return the request number of a successful response."""
        match event:
            case ex.JoinAnswered() | ex.SyncAnswered() | ex.ClassicHeartbeatAnswered():
                return event.request_id
            case ex.ClassicHeartbeatRejected(verdict=ex.ClassicVerdict.REJOIN_NOW):
                return event.request_id
            case _:
                return None

    @property
    def session_s(self) -> float:
        """The member's own session timeout, which it sent with its JoinGroup."""
        return float(self.scene.member.classic.session_timeout_s)


def test_scenes_cover_every_state_of_both_protocols() -> None:
    """Each state has at least one scene."""
    assert {make().state for make in SCENES.values()} == set(MemberState)
    assert {make().state for make in CLASSIC_SCENES.values()} == set(ClassicState)


def test_plausible_events_cover_every_event_of_both_protocols() -> None:
    """Each event of both protocols has a plausible form, so the tests below cover it."""
    assert set(sample_events.PLAUSIBLE) == set(get_args(ev.Event))
    assert set(classic_sample_events.plausible(CLASSIC_SCENES["STABLE"]())) == set(classic_sample_events.EVENTS)


def test_lease_beyond_the_last_acknowledged_heartbeat_is_reported() -> None:
    """The checker fails if a lease is too long: this checker did not receive the response that extended the lease."""
    checker = ConsumerLeaseChecker(SCENES["STABLE"]())
    checker.after(3.0)
    checker.scene.with_heartbeat_in_flight().answer()
    with pytest.raises(AssertionError, match="is later than"):
        checker.feed(ev.TimePassed())


@pytest.mark.parametrize("name", SCENES)
def test_no_event_extends_the_lease_of_a_member_without_an_acknowledged_heartbeat(name: str) -> None:
    """The test feeds each event, plausible or hostile, in each scene, and lets half an interval pass after each."""
    events = [
        *(make(SCENES[name]()) for make in sample_events.PLAUSIBLE.values()),
        *sample_events.hostile(SCENES[name]()),
    ]
    for event in events:
        checker = ConsumerLeaseChecker(SCENES[name]())
        checker.after(1.0)
        checker.feed(event)
        checker.after(2.5)
        checker.feed(event)


@pytest.mark.parametrize("name", CLASSIC_SCENES)
def test_no_event_extends_the_lease_of_a_classic_member_without_an_acknowledged_request(name: str) -> None:
    """The test feeds each event of the classic protocol in each scene, and lets time pass after each."""
    make = CLASSIC_SCENES[name]
    for event in (*classic_sample_events.plausible(make()).values(), *classic_sample_events.hostile(make())):
        checker = ClassicLeaseChecker(make())
        checker.after(1.0)
        checker.feed(event)
        checker.after(2.5)
        checker.feed(event)


CHOICES = strategies.lists(strategies.tuples(strategies.integers(0, 10**6), strategies.booleans()), max_size=20)
MANY = settings(max_examples=25, derandomize=True, deadline=None, database=None)


@pytest.mark.slow
@MANY
@given(name=strategies.sampled_from(sorted(SCENES)), choices=CHOICES)
def test_events_in_any_order_keep_the_lease_of_a_member(name: str, choices: list[tuple[int, bool]]) -> None:
    """Mostly plausible and some hostile events, with time between them."""
    checker = ConsumerLeaseChecker(SCENES[name]())
    for number, is_hostile in choices:
        scene = checker.scene
        events = (
            sample_events.hostile(scene) if is_hostile else [make(scene) for make in sample_events.PLAUSIBLE.values()]
        )
        checker.feed(events[number % len(events)])
        checker.after((number % 4) * 1.0)


@pytest.mark.slow
@MANY
@given(name=strategies.sampled_from(sorted(CLASSIC_SCENES)), choices=CHOICES)
def test_events_in_any_order_keep_the_lease_of_a_classic_member(name: str, choices: list[tuple[int, bool]]) -> None:
    """Mostly plausible and some hostile events, with time between them."""
    checker = ClassicLeaseChecker(CLASSIC_SCENES[name]())
    for number, is_hostile in choices:
        scene = checker.scene
        events = (
            classic_sample_events.hostile(scene)
            if is_hostile
            else list(classic_sample_events.plausible(scene).values())
        )
        checker.feed(events[number % len(events)])
        checker.after((number % 4) * 1.0)
