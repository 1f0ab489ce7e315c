"""max.poll.interval.ms: the application did not poll in time (M120 to M127)."""

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
    """The state after the poll interval, and the epochs of the heartbeats that this had."""
    scene.after(MAX_POLL_S)
    return scene.state, [beat.member_epoch for beat in scene.new_beats]


def test_expiry_while_reconciling_leaves() -> None:
    """M120: RECONCILE -> leave -> STALE."""
    assert expired(adding()) == (S.STALE, [-1])


def test_expiry_while_joining_leaves() -> None:
    """M121: JOINING -> leave -> STALE; the coordinator may know the member although it has not answered."""
    assert expired(joining()) == (S.STALE, [-1])


def test_expiry_while_stable_leaves() -> None:
    """M122: STABLE -> leave -> STALE; a static member says that it will be back."""
    assert expired(stable(A0)) == (S.STALE, [-1])
    assert expired(stable(A0, instance_id="i")) == (S.STALE, [-2])


def test_expiry_while_acknowledging_leaves() -> None:
    """M123: ACK -> leave -> STALE, although another heartbeat is in flight."""
    assert expired(acknowledging()) == (S.STALE, [-1])


def test_expiry_of_a_member_that_never_spoke_sends_nothing() -> None:
    """A fenced member whose on_lost took longer than the interval has nothing to leave."""
    scene = stable(A0).fence()
    scene.now += MAX_POLL_S
    scene.finish()
    assert (scene.state, scene.new_beats) == (S.STALE, [])


def test_stale_member_is_silent_until_it_recovers() -> None:
    """M124: no heartbeat in STALE; the application's next poll joins anew at epoch 0."""
    scene = stale()
    before = len(scene.beats)
    scene.after(50.0)
    assert (len(scene.beats), scene.member.next_deadline()) == (before, None)
    scene.finish()
    assert (scene.state, scene.new_beats[0].member_epoch) == (S.JOINING, 0)


def test_stale_member_without_partitions_rejoins_at_the_next_poll() -> None:
    """M125: nothing was held, so nothing is lost: the poll itself joins."""
    scene = stable().after(MAX_POLL_S)
    assert (scene.state, scene.all(LosePartitions)) == (S.STALE, [])
    assert scene.poll().state is S.JOINING


def test_stale_member_waits_for_on_lost_before_it_rejoins() -> None:
    """M126: a poll alone does not rejoin while on_lost has not been performed; its end, inside a poll, does."""
    scene = stale().poll()
    assert scene.state is S.STALE
    assert scene.finish(failed=True).state is S.JOINING


def test_rejoin_after_on_lost_counts_as_a_poll() -> None:
    """M126: the step was performed inside a poll: the interval counts anew from there."""
    scene = stale().after(1000.0).finish()
    assert scene.member.next_deadline() == scene.now + MAX_POLL_S


def test_expiry_orders_the_loss_of_everything() -> None:
    """M127: leave, error, state, and the order to stop delivering and call on_lost: all at once, in this order."""
    scene = stale()
    assert scene.kinds == ["SendHeartbeat", "RaiseToApplication", "StateChanged", "LosePartitions"]
    assert scene.owned == frozenset()


def test_expired_poll_interval_leaves_once_and_is_said() -> None:
    """H17: expiry sends the leave and raises librdkafka's code with the remedy in its words; the next poll rejoins."""
    scene = stale()
    assert [(error.code, "max.poll.interval.ms=300000" in error.message) for error in raised(scene)] == [
        (POLL_TIMEOUT_CODE, True)
    ]
    assert scene.finish().answer(4, [A0]).settle().owned == named(A0)


def test_expiry_does_not_touch_a_member_that_leaves() -> None:
    """H18: who leaves already is not made STALE, however long its callbacks take."""
    scene = unsubscribing()
    for _ in range(70):
        scene.after(10.0)
        if scene.new_beats:
            scene.answer()
    assert scene.state is S.UNSUBSCRIBING


def test_expiry_without_coordinator_makes_stale_all_the_same() -> None:
    """The partitions are given up on this side, whoever can be told."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    assert expired(scene) == (S.STALE, [])


def test_late_answer_to_the_leave_of_an_expired_member_is_ignored() -> None:
    """Its -1 must not become the epoch of the member that rejoined meanwhile."""
    scene = stale()
    leave = scene.request_id
    scene.finish().answer(-1, request_id=leave)
    assert (scene.state, scene.view.member_epoch, scene.last) == (S.JOINING, 0, ())


@pytest.mark.parametrize("build", [adding, acknowledging, lambda: stable(A0)], ids=["reconcile", "ack", "stable"])
def test_polls_keep_the_member_in_its_group(build: Callable[[], Scene]) -> None:
    """The interval counts from the last poll."""
    scene = build().after(MAX_POLL_S - 1).poll().after(MAX_POLL_S - 1)
    assert S.STALE not in {new for _, new in scene.edges}
