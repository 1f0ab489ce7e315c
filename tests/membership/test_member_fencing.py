"""Fenced: everything is declared lost, then the member joins anew (M80 to M88)."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import CommitOffsets, LeaveCompleted, LosePartitions, PausePartitions
from consumer_membership.membership.events import CommitFailed, CommitVerdict, CoordinatorLost, Verdict
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError
from tests.membership.builders import (
    A0,
    A1,
    FENCED_EPOCH,
    LOADING,
    UNKNOWN_MEMBER,
    adding,
    fenced,
    joining,
    leaving,
    named,
    revoking,
    stable,
    unsubscribing,
)
from tests.membership.outcomes import errors_of

S = MemberState


@pytest.mark.parametrize("error", [FENCED_EPOCH, UNKNOWN_MEMBER], ids=lambda error: error.name)
def test_fenced_member_loses_partitions_before_rejoining(error: BrokerError) -> None:
    """M80: STABLE -> FENCED -> on_lost -> JOINING."""
    scene = stable(A0).fence(error)
    assert (scene.kinds, scene.state, scene.owned) == (["StateChanged", "LosePartitions"], S.FENCED, frozenset())
    assert (scene.finish().state, scene.new_beats[0].member_epoch) == (S.JOINING, 0)


def test_fence_drops_a_running_reconciliation() -> None:
    """M81: fenced in the middle of a revocation: on_lost takes the place of what was left to do."""
    scene = revoking().finish()
    attempt = scene.step.attempt
    scene.fence()
    assert [(type(step), step.attempt) for step in scene.new_steps] == [(LosePartitions, attempt + 1)]
    assert scene.finish().state is S.JOINING


def test_fence_while_giving_up_partitions_ends_the_membership() -> None:
    """M82: fenced while on_revoke of a leave runs: no rejoin; what is still held is lost, not revoked."""
    scene = unsubscribing().finish().fence()
    assert (scene.state, scene.kinds) == (
        S.UNSUBSCRIBED,
        ["LosePartitions", "StateChanged", "LeaveCompleted"],
    )
    assert scene.finish().poll().state is S.UNSUBSCRIBED


def test_fence_while_giving_up_partitions_completes_the_leave() -> None:
    """M83: the leave is over, and no leave heartbeat is sent."""
    scene = unsubscribing().fence()
    assert scene.new(LeaveCompleted) == [LeaveCompleted()]
    assert [beat for beat in scene.beats if beat.is_leave] == []


def test_subscription_after_a_fenced_leave_joins_again() -> None:
    """M83: the on_lost that was still to come does not keep the member out of its next group membership."""
    scene = unsubscribing().fence().subscribe("orders").poll()
    assert scene.state is S.UNSUBSCRIBED
    assert scene.finish().poll().state is S.JOINING


def test_fence_while_the_leave_is_in_flight_ends_the_membership() -> None:
    """M84: an older heartbeat's fence after the leave was sent: UNSUBSCRIBED, nothing lost, no second leave."""
    scene = unsubscribing().in_touch()
    ordinary = scene.request_id
    scene.finish().finish()
    assert scene.beats[-1].is_leave
    scene.reject(Verdict.REJOIN, FENCED_EPOCH, request_id=ordinary)
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBED, ["StateChanged", "LeaveCompleted"])


def test_fence_without_partitions_calls_nothing() -> None:
    """M85: a member that holds nothing rejoins at once, without on_lost."""
    scene = stable().fence()
    assert (scene.all(LosePartitions), scene.state, scene.new_beats[0].member_epoch) == ([], S.JOINING, 0)


def test_fence_in_the_middle_of_the_first_on_assign_loses_what_it_may_have_taken() -> None:
    """M85: the application may hold what on_assign is being called for."""
    scene = joining().answer(1, [A0]).resolve(A0.topic_id).offsets().fence()
    assert scene.kinds == ["StateChanged", "LosePartitions"]


def test_rejoin_follows_on_lost() -> None:
    """M86: nothing is sent before on_lost ended, and the join at once when it did."""
    scene = fenced().after(60.0).poll()
    assert (scene.state, scene.beats[-1].member_epoch) == (S.FENCED, 1)
    assert scene.finish().kinds == ["StateChanged", "SendHeartbeat"]


def test_rejoin_follows_an_on_lost_that_raised() -> None:
    """M87: an on_lost that raises does not keep the member out."""
    assert fenced().finish(failed=True).state is S.JOINING


def test_fence_orders_the_loss_of_everything_before_anything_else() -> None:
    """M88: the fence's first order is to stop delivering (`LosePartitions` does so before on_lost is called)."""
    scene = adding().fence()
    assert scene.kinds == ["StateChanged", "LosePartitions"]
    assert scene.all(PausePartitions) == []


def test_commit_that_waits_is_lost_with_the_partitions() -> None:
    """A commit that was not sent yet ends with ASSIGNMENT_LOST at the fence."""
    scene = stable(A0).in_touch().feed(CoordinatorLost(reason="closed")).commit(5, A0).fence()
    assert errors_of(scene) == {1: ASSIGNMENT_LOST}


def test_commit_that_was_refused_before_the_fence_keeps_that_error() -> None:
    """A commit between two tries ends at the fence with what the coordinator said of it."""
    scene = stable(A0).in_touch().commit(5, A0).committed(CommitVerdict.RETRY, LOADING).fence()
    assert errors_of(scene) == {1: LOADING}


def test_commit_in_flight_at_a_fence_is_not_sent_again() -> None:
    """An old commit must not undo the commits of who owned the partition meanwhile."""
    scene = stable(A0).commit(5, A0).fence().finish().answer(5, [A0])
    scene.committed(CommitVerdict.STALE_EPOCH, LOADING)
    assert (errors_of(scene), len(scene.all(CommitOffsets))) == ({1: LOADING}, 1)


def test_commit_without_answer_at_a_fence_is_not_sent_again() -> None:
    """Likewise one whose connection breaks."""
    scene = stable(A0).commit(5, A0).fence()
    scene.feed(CommitFailed(commit_id=1, reason="disconnected"))
    assert {number: error.name for number, error in errors_of(scene).items() if error} == {1: "_FAIL"}


def test_leave_sent_after_a_fence_in_flight_is_none() -> None:
    """Who was fenced while leaving has nothing to leave; a late answer to the leave changes nothing."""
    scene = leaving()
    request = scene.request_id
    scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, scene.answer(-1, request_id=request).last) == (S.UNSUBSCRIBED, ())


def test_owned_is_empty_from_the_fence_on() -> None:
    """The view names nothing as owned that another member may own."""
    assert (stable(A0, A1).owned, stable(A0, A1).fence().owned) == (named(A0, A1), frozenset())
