"""FENCED: the member declares every partition lost, then joins again (M80 to M88)."""

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
    """M80: A fenced member calls on_lost before it joins again (STABLE -> FENCED -> on_lost -> JOINING)."""
    scene = stable(A0).fence(error)
    assert (scene.kinds, scene.state, scene.owned) == (["StateChanged", "LosePartitions"], S.FENCED, frozenset())
    assert (scene.finish().state, scene.new_heartbeats[0].member_epoch) == (S.JOINING, 0)


def test_fence_drops_a_running_reconciliation() -> None:
    """M81: A fence during a revocation replaces the remaining steps with on_lost."""
    scene = revoking().finish()
    attempt = scene.step.attempt
    scene.fence()
    assert [(type(step), step.attempt) for step in scene.new_steps] == [(LosePartitions, attempt + 1)]
    assert scene.finish().state is S.JOINING


def test_fence_while_giving_up_partitions_ends_the_membership() -> None:
    """M82: A fence while on_revoke of a leave runs ends the membership.

    The member does not rejoin, and the partitions that it still holds are lost, not revoked.
    """
    scene = unsubscribing().finish().fence()
    assert (scene.state, scene.kinds) == (
        S.UNSUBSCRIBED,
        ["LosePartitions", "StateChanged", "LeaveCompleted"],
    )
    assert scene.finish().poll().state is S.UNSUBSCRIBED


def test_fence_while_giving_up_partitions_completes_the_leave() -> None:
    """M83: A fence before the leave is sent completes the leave without a leave heartbeat."""
    scene = unsubscribing().fence()
    assert scene.new(LeaveCompleted) == [LeaveCompleted()]
    assert [heartbeat for heartbeat in scene.heartbeats if heartbeat.is_leave] == []


def test_subscription_after_a_fenced_leave_joins_again() -> None:
    """M83: A member that was fenced during a leave joins again after the outstanding on_lost."""
    scene = unsubscribing().fence().subscribe("orders").poll()
    assert scene.state is S.UNSUBSCRIBED
    assert scene.finish().poll().state is S.JOINING


def test_fence_while_the_leave_is_in_flight_ends_the_membership() -> None:
    """M84: If an older heartbeat is fenced after the leave was sent, the member becomes UNSUBSCRIBED.

    No partition is lost, and no second leave is sent.
    """
    scene = unsubscribing().with_heartbeat_in_flight()
    ordinary = scene.request_id
    scene.finish().finish()
    assert scene.heartbeats[-1].is_leave
    scene.reject(Verdict.REJOIN, FENCED_EPOCH, request_id=ordinary)
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBED, ["StateChanged", "LeaveCompleted"])


def test_fence_without_partitions_rejoins_without_on_lost() -> None:
    """M85: A fenced member without partitions rejoins immediately, without on_lost."""
    scene = stable().fence()
    assert (scene.all(LosePartitions), scene.state, scene.new_heartbeats[0].member_epoch) == ([], S.JOINING, 0)


def test_fence_during_the_first_on_assign_loses_the_partitions_being_assigned() -> None:
    """M85: A fence during on_assign loses the partitions being assigned. The application may hold them already."""
    scene = joining().answer(1, [A0]).resolve(A0.topic_id).offsets().fence()
    assert scene.kinds == ["StateChanged", "LosePartitions"]


def test_fenced_member_sends_its_join_only_after_on_lost() -> None:
    """M86: A fenced member sends nothing before on_lost has returned, and joins as soon as it has."""
    scene = fenced().after(60.0).poll()
    assert (scene.state, scene.heartbeats[-1].member_epoch) == (S.FENCED, 1)
    assert scene.finish().kinds == ["StateChanged", "SendHeartbeat"]


def test_fenced_member_rejoins_after_on_lost_raised() -> None:
    """M87: A fenced member rejoins even if on_lost raises."""
    assert fenced().finish(failed=True).state is S.JOINING


def test_fence_orders_the_loss_before_anything_else() -> None:
    """M88: The first order after a fence stops delivery (`LosePartitions` does so before on_lost is called)."""
    scene = adding().fence()
    assert scene.kinds == ["StateChanged", "LosePartitions"]
    assert scene.all(PausePartitions) == []


def test_unsent_commit_fails_with_assignment_lost_at_a_fence() -> None:
    """A fence ends an unsent commit with ASSIGNMENT_LOST."""
    scene = stable(A0).with_heartbeat_in_flight().feed(CoordinatorLost(reason="closed")).commit(5, A0).fence()
    assert errors_of(scene) == {1: ASSIGNMENT_LOST}


def test_refused_commit_keeps_its_error_at_a_fence() -> None:
    """A commit that waits for its next attempt ends at the fence with the coordinator's error."""
    scene = stable(A0).with_heartbeat_in_flight().commit(5, A0).committed(CommitVerdict.RETRY, LOADING).fence()
    assert errors_of(scene) == {1: LOADING}


def test_commit_in_flight_at_a_fence_is_not_sent_again() -> None:
    """A commit that was in flight at the fence is not retried, so that it cannot overwrite a later owner's commit."""
    scene = stable(A0).commit(5, A0).fence().finish().answer(5, [A0])
    scene.committed(CommitVerdict.STALE_EPOCH, LOADING)
    assert (errors_of(scene), len(scene.all(CommitOffsets))) == ({1: LOADING}, 1)


def test_commit_without_answer_at_a_fence_is_not_sent_again() -> None:
    """A commit that lost its connection at the fence is not retried."""
    scene = stable(A0).commit(5, A0).fence()
    scene.feed(CommitFailed(commit_id=1, reason="disconnected"))
    assert {number: error.name for number, error in errors_of(scene).items() if error} == {1: "_FAIL"}


def test_leaving_member_that_is_fenced_ignores_the_leave_answer() -> None:
    """A member that is fenced while it leaves has left; a late response to its leave changes nothing."""
    scene = leaving()
    request = scene.request_id
    scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, scene.answer(-1, request_id=request).last) == (S.UNSUBSCRIBED, ())


def test_owned_is_empty_after_a_fence() -> None:
    """After a fence the view lists no partition as owned, because another member may own it."""
    assert (stable(A0, A1).owned, stable(A0, A1).fence().owned) == (named(A0, A1), frozenset())
