"""STALE: the application exceeded max.poll.interval.ms (M120 to M127)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumer_membership.membership.effects import LosePartitions
from consumer_membership.membership.events import CoordinatorLost
from consumer_membership.membership.states import MemberState
from consumer_membership.types import POLL_TIMEOUT_CODE
from tests.membership.builders import (
    A0,
    MAX_POLL_S,
    Scene,
    acknowledging,
    adding,
    joining,
    named,
    stable,
    stale,
    unsubscribing,
)
from tests.membership.outcomes import raised

S = MemberState


def expired(scene: Scene) -> tuple[MemberState, list[int]]:
    """Return the state after the poll interval, and the epochs of the heartbeats that the timeout caused."""
    scene.after(MAX_POLL_S)
    return scene.state, [heartbeat.member_epoch for heartbeat in scene.new_heartbeats]


def test_poll_timeout_while_reconciling_leaves() -> None:
    """M120: An exceeded poll interval makes a RECONCILE member leave and become STALE."""
    assert expired(adding()) == (S.STALE, [-1])


def test_poll_timeout_while_joining_leaves() -> None:
    """M121: A JOINING member leaves before it becomes STALE, because the coordinator may know it already."""
    assert expired(joining()) == (S.STALE, [-1])


def test_poll_timeout_while_stable_leaves() -> None:
    """M122: A STABLE member leaves and becomes STALE; a static one leaves with epoch -2, which keeps its partitions."""
    assert expired(stable(A0)) == (S.STALE, [-1])
    assert expired(stable(A0, instance_id="i")) == (S.STALE, [-2])


def test_poll_timeout_while_acknowledging_leaves() -> None:
    """M123: An ACK member leaves and becomes STALE, even if another heartbeat is in flight."""
    assert expired(acknowledging()) == (S.STALE, [-1])


def test_poll_timeout_of_a_member_without_an_epoch_sends_nothing() -> None:
    """A fenced member whose on_lost exceeds the poll interval sends no leave, because it has already left."""
    scene = stable(A0).fence()
    scene.now += MAX_POLL_S
    scene.finish()
    assert (scene.state, scene.new_heartbeats) == (S.STALE, [])


def test_stale_member_sends_nothing_until_it_recovers() -> None:
    """M124: A STALE member sends no heartbeat; the application's next poll joins again at epoch 0."""
    scene = stale()
    before = len(scene.heartbeats)
    scene.after(50.0)
    assert (len(scene.heartbeats), scene.member.next_deadline()) == (before, None)
    scene.finish()
    assert (scene.state, scene.new_heartbeats[0].member_epoch) == (S.JOINING, 0)


def test_stale_member_without_partitions_rejoins_at_the_next_poll() -> None:
    """M125: A STALE member without partitions loses nothing and rejoins at the next poll."""
    scene = stable().after(MAX_POLL_S)
    assert (scene.state, scene.all(LosePartitions)) == (S.STALE, [])
    assert scene.poll().state is S.JOINING


def test_stale_member_waits_for_on_lost_before_it_rejoins() -> None:
    """M126: A poll does not rejoin while on_lost is outstanding. The end of on_lost, inside a poll, does."""
    scene = stale().poll()
    assert scene.state is S.STALE
    assert scene.finish(failed=True).state is S.JOINING


def test_rejoin_after_on_lost_counts_as_a_poll() -> None:
    """M126: on_lost ran inside a poll, so the poll interval starts again when it ends."""
    scene = stale().after(1000.0).finish()
    assert scene.member.next_deadline() == scene.now + MAX_POLL_S


def test_poll_timeout_orders_the_loss_of_everything() -> None:
    """M127: An exceeded poll interval orders leave, error, state change and loss for one event, in this order."""
    scene = stale()
    assert scene.kinds == ["SendHeartbeat", "RaiseToApplication", "StateChanged", "LosePartitions"]
    assert scene.owned == frozenset()


def test_poll_timeout_leaves_once_and_raises_librdkafkas_code() -> None:
    """H17: An exceeded poll interval sends one leave and raises librdkafka's code with the fix in its message.

    The next poll rejoins.
    """
    scene = stale()
    assert [
        (error.code, "Application maximum poll interval (300000ms) exceeded by 0ms: " in error.message)
        for error in raised(scene)
    ] == [(POLL_TIMEOUT_CODE, True)]
    assert scene.finish().answer(4, [A0]).settle().owned == named(A0)


def test_poll_timeout_does_not_affect_a_leaving_member() -> None:
    """H18: A leaving member does not become STALE, however long its callbacks take."""
    scene = unsubscribing()
    for _ in range(70):
        scene.after(10.0)
        if scene.new_heartbeats:
            scene.answer()
    assert scene.state is S.UNSUBSCRIBING


def test_poll_timeout_without_a_coordinator_makes_the_member_stale() -> None:
    """A member without a coordinator still releases its partitions and becomes STALE."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    assert expired(scene) == (S.STALE, [])


def test_late_answer_to_the_leave_of_a_stale_member_is_ignored() -> None:
    """The -1 of a late leave answer does not become the epoch of a member that has rejoined."""
    scene = stale()
    leave = scene.request_id
    scene.finish().answer(-1, request_id=leave)
    assert (scene.state, scene.view.member_epoch, scene.last) == (S.JOINING, 0, ())


@pytest.mark.parametrize("build", [adding, acknowledging, lambda: stable(A0)], ids=["reconcile", "ack", "stable"])
def test_polls_keep_the_member_in_its_group(build: Callable[[], Scene]) -> None:
    """The poll interval counts from the last poll."""
    scene = build().after(MAX_POLL_S - 1).poll().after(MAX_POLL_S - 1)
    assert S.STALE not in {new for _, new in scene.edges}
