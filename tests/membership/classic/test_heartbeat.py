"""When a classic member sends heartbeats: how soon it learns of a rebalance, and at what cost."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.heartbeat import FIRST_S, ClassicHeartbeats
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.pace import QUICK_HEARTBEATS, QUICK_S, REMEMBERED_ROUND_TRIPS
from consumer_membership.types import BrokerError
from tests.membership.classic.scene import A0, EAGER, ClassicScene, joining, stable

S = ClassicState
V = ex.ClassicVerdict
INTERVAL_S = 1.5
ILLEGAL = BrokerError(code=22, name="ILLEGAL_GENERATION")
LOADING = BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS")


def calm(**settings: Any) -> ClassicScene:
    """STABLE, with heartbeats on the interval again after the frequent ones that follow a change."""
    scene = stable(A0, **settings)
    for _ in range(20):
        scene.poll().heartbeat_answered()
    return scene


def gaps(scene: ClassicScene, number: int, *, delivered: bool = False) -> list[float]:
    """Return the seconds between this many heartbeats, each answered immediately."""
    found = []
    for _ in range(number):
        before = scene.poll(delivered=delivered).now
        scene.heartbeat_answered()
        found.append(round(scene.now - before, 3))
    return found


def test_idle_member_heartbeats_on_the_interval() -> None:
    """An idle member heartbeats at `heartbeat.interval.ms`."""
    assert gaps(calm(), 3) == [INTERVAL_S] * 3


def test_delivered_records_speed_up_the_heartbeat() -> None:
    """While records are delivered, heartbeats follow at `active_heartbeat_interval_s`.

    Without records, heartbeats follow at `heartbeat.interval.ms` again; the value 0 disables the faster heartbeats.
    """
    scene = calm()
    assert gaps(scene, 3, delivered=True) == [0.25] * 3
    assert gaps(scene, 2) == [INTERVAL_S] * 2
    assert gaps(calm(active_heartbeat_interval_s=0.0), 2, delivered=True) == [INTERVAL_S] * 2


def test_configured_interval_is_an_upper_limit() -> None:
    """If the configured interval is shorter than the faster intervals, it replaces them."""
    scene = stable(A0, classic={"heartbeat_interval_s": 0.1})
    assert gaps(scene, len(FIRST_S) + 3) == [*FIRST_S, 0.1, 0.1, 0.1]
    assert gaps(scene, 3, delivered=True) == [0.1] * 3


def test_member_heartbeats_often_after_a_change() -> None:
    """After a change heartbeats are frequent and then slow down, to notice a cooperative rebalance's second round."""
    seen = gaps(stable(A0), 25)
    assert seen[: len(FIRST_S) + QUICK_HEARTBEATS] == [*FIRST_S] + [QUICK_S] * QUICK_HEARTBEATS
    assert (sorted(seen), seen[-1]) == (seen, INTERVAL_S)


def test_slow_coordinator_receives_heartbeats_less_often() -> None:
    """Heartbeats use a twentieth of the member's time at most."""
    scene = calm().poll(delivered=True)
    for _ in range(REMEMBERED_ROUND_TRIPS):
        heartbeat = scene.heartbeat()
        scene.now += 0.05
        scene.poll(delivered=True).feed(ex.ClassicHeartbeatAnswered(request_id=heartbeat.request_id))
    assert gaps(scene, 1, delivered=True) == [0.95]


def test_member_that_knows_of_the_rebalance_heartbeats_on_the_interval() -> None:
    """During a revocation for a rebalance heartbeats only keep the session alive."""
    scene = calm(assignors=(EAGER,)).poll(delivered=True).rebalance()
    before = scene.now
    scene.heartbeat()
    assert (scene.state, scene.now - before) == (S.PREPARING, INTERVAL_S)


def test_heartbeats_are_sent_while_the_leader_computes() -> None:
    """Rules 5.6: A leader heartbeats in COMPLETING_REBALANCE while its assignor computes."""
    scene = joining().gather(1)
    before = scene.now
    assert (scene.state, scene.heartbeat().generation, scene.now - before) == (S.SYNCING, 1, INTERVAL_S)


def test_no_heartbeat_is_sent_while_a_member_without_partitions_joins() -> None:
    """Rules 4.3: A member without partitions sends no heartbeat while its JoinGroup is pending."""
    scene = stable(A0, assignors=(EAGER,)).rebalance().settle()
    sent = len(scene.all(ex.SendClassicHeartbeat))
    scene.after(30.0)
    assert (scene.state, len(scene.all(ex.SendClassicHeartbeat))) == (S.JOINING, sent)


def test_heartbeats_are_sent_while_a_member_that_keeps_partitions_joins() -> None:
    """Rules 4.3: During a pending JoinGroup a member that keeps partitions heartbeats in its former generation."""
    scene = stable(A0).rebalance()
    before = scene.now
    heartbeat = scene.heartbeat()
    assert (scene.state, heartbeat.generation, scene.now - before) == (S.JOINING, 1, INTERVAL_S)
    scene.join_rejected(V.RETRY, LOADING)
    assert scene.member.next_deadline() == scene.protocol.requests.join_at


def test_heartbeat_that_is_answered_after_the_join_is_ignored() -> None:
    """A refusal for the former generation does not apply to the member."""
    scene = stable(A0).rebalance()
    heartbeat = scene.heartbeat()
    scene.gather(2)
    scene.feed(ex.ClassicHeartbeatRejected(request_id=heartbeat.request_id, verdict=V.REJOIN_KEEP_ID, error=ILLEGAL))
    assert (scene.state, scene.protocol.generation, scene.owned) == (S.SYNCING, 2, {A0})


@pytest.mark.parametrize("answered", [True, False])
def test_failed_heartbeat_is_repeated_after_a_backoff(answered: bool) -> None:  # noqa: FBT001 - a parameter
    """Rules 4.3: A failed heartbeat is repeated after retry.backoff.ms, not after the interval, and the state stays."""
    scene = calm()
    request_id = scene.heartbeat().request_id
    if answered:
        scene.feed(ex.ClassicHeartbeatRejected(request_id=request_id, verdict=V.RETRY, error=LOADING))
    else:
        scene.feed(ex.ExchangeFailed(request_id=request_id, reason="disconnected")).found()
    assert scene.new(ex.SendClassicHeartbeat) == []
    assert (len(scene.after(0.2).new(ex.SendClassicHeartbeat)), scene.state, scene.owned) == (1, S.STABLE, {A0})


def test_member_has_one_heartbeat_in_flight() -> None:
    """A late response delays the next heartbeat."""
    scene = calm()
    scene.heartbeat()
    assert scene.after(10.0).new(ex.SendClassicHeartbeat) == []


def test_heartbeat_spacing_stays_finite_after_many_heartbeats() -> None:
    """Five thousand heartbeats leave the spacing at the interval."""
    scene = calm()
    for _ in range(5000):
        scene.protocol.heartbeats.send(generation=1, member_id="m", instance_id=None)
        scene.protocol.heartbeats.confirmed(scene.now, is_undisturbed=True)
    assert isinstance(scene.protocol.heartbeats, ClassicHeartbeats)
    assert scene.protocol.heartbeats.spacing_s(is_attentive=True) == INTERVAL_S
