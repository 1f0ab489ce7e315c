"""A reconciliation that another event interrupts (M70 to M77)."""

from __future__ import annotations

from consumer_membership.membership.effects import AssignPartitions, CommitOffsets, LeaveCompleted, RevokePartitions
from consumer_membership.membership.states import MemberState
from tests.membership.builders import (
    A0,
    A1,
    A2,
    B0,
    PAYMENTS,
    STEPS,
    adding,
    at,
    joining,
    named,
    revoking,
    stable,
)

S = MemberState


def test_commit_that_ends_outside_reconcile_has_no_effect() -> None:
    """M70: After a fence the response to a pending commit does not call on_revoke."""
    scene = revoking().finish(at(5, A1)).fence()
    assert (scene.committed().kinds, scene.state) == (["CommitCompleted"], S.FENCED)


def test_commit_that_ends_after_a_rejoin_has_no_effect() -> None:
    """M71: If the member is fenced and rejoins while the commit is pending, the old reconciliation is dropped."""
    scene = revoking().finish(at(5, A1)).fence().finish(step=None).answer(5, [A0, A1])
    assert scene.state is S.RECONCILE
    assert (scene.committed().kinds, scene.all(RevokePartitions)) == (["CommitCompleted"], [])


def test_on_revoke_that_ends_after_a_rejoin_has_no_effect() -> None:
    """M72: The completion of a former membership's on_revoke is dropped."""
    scene = revoking().finish()
    revoke = scene.step
    scene.fence().finish().answer(5, [A0, A1])
    assert scene.finish(step=revoke).last == ()


def test_on_assign_that_ends_after_a_rejoin_has_no_effect() -> None:
    """M73: The completion of a former membership's on_assign adds no owned partition and sends no acknowledgement."""
    scene = adding()
    assign = scene.step
    scene.fence().finish().answer(5, [A0, A1])
    assert (scene.finish(step=assign).last, scene.owned) == ((), frozenset())


def test_same_target_after_a_fence_is_reconciled_in_full() -> None:
    """M74: After a fence and a rejoin on_assign receives all partitions again, even if they are the same."""
    scene = stable(A0, A1).fence().settle(answers=False).answer(5, [A0, A1]).settle()
    assert scene.all(AssignPartitions)[-1].offsets == dict.fromkeys(named(A0, A1), 0)
    assert (scene.state, scene.owned) == (S.STABLE, named(A0, A1))


def test_topic_names_during_a_reconciliation_do_not_interrupt_it() -> None:
    """M75: A running attempt ends with its own partitions and is acknowledged; the newly resolved partitions follow."""
    scene = stable(A0).target(2, A0, A1, B0).offsets().resolve(PAYMENTS).finish()
    assert [heartbeat.owned for heartbeat in scene.new_heartbeats] == [{A0, A1}]
    scene.settle()
    assert (scene.state, scene.owned, scene.heartbeats[-1].owned) == (S.STABLE, named(A0, A1, B0), {A0, A1, B0})


def test_newer_target_does_not_interrupt_a_running_step() -> None:
    """M76: If the target changes while a step runs, the first target is finished and acknowledged, then the second."""
    scene = revoking().finish()
    revoke = scene.step
    scene.target(3, A0, A1, A2)
    assert (scene.new_steps, scene.state) == ([], S.RECONCILE)
    scene.finish(step=revoke)
    assert [heartbeat.owned for heartbeat in scene.new_heartbeats] == [{A0}]
    assert scene.settle().owned == named(A0, A1, A2)


def test_newer_target_begins_as_soon_as_the_older_one_is_acknowledged() -> None:
    """M76: The first step of the newer target is ordered with the acknowledgement and waits for no response."""
    scene = adding().target(3, A0).finish()
    assert scene.kinds == ["StateChanged", "SendHeartbeat", "StateChanged", "PausePartitions"]


def test_target_that_changes_back_is_acknowledged_again() -> None:
    """A target that changes to B and back to A before B was started acknowledges A again (Java's local epoch)."""
    scene = stable(A0, A1, auto_commit=False)
    scene.target(2, A0).target(3, A0, A1).finish().finish().settle()
    assert (scene.state, scene.heartbeats[-1].owned) == (S.STABLE, {A0, A1})


def test_leave_ends_a_running_reconciliation() -> None:
    """M77: unsubscribe() drops the rest of the reconciliation.

    It releases the partitions that the application may hold and voids older steps.
    """
    scene = adding()
    assign = scene.step
    scene.leave()
    assert (scene.kinds, scene.new_steps[0].partitions) == (["StateChanged", "PausePartitions"], None)  # type: ignore[union-attr]  # a pause
    assert scene.finish(step=assign).last == ()


def test_leave_during_the_commit_before_a_revocation_pauses_first() -> None:
    """M77: A leave orders its own pause; the end of the older attempt's commit does not replace it."""
    scene = revoking().finish(at(5, A1)).leave()
    scene.committed()
    assert (scene.kinds, scene.view.waits_for) == (
        ["CommitCompleted"],
        "poll to revoke",
    )


def test_member_that_left_during_a_reconciliation_joins_without_leftovers() -> None:
    """M77: A later subscription starts from an empty state under the same member id."""
    scene = adding().leave().settle()
    assert scene.new(LeaveCompleted) == [LeaveCompleted()]
    scene.subscribe("orders").poll()
    assert (scene.heartbeats[-1].member_epoch, scene.heartbeats[-1].owned, scene.heartbeats[-1].member_id) == (
        0,
        frozenset(),
        "member-1",
    )
    assert scene.answer(1, [A1]).settle().owned == named(A1)


def test_attempt_that_ends_after_the_rejoin_acknowledges_nothing() -> None:
    """An on_assign that ends after the poll interval acknowledges nothing for the new membership."""
    scene = adding()
    scene.now += 301.0
    scene.finish()
    assert scene.state is S.STALE
    scene.finish().answer(4, [A0])
    assert (scene.state, scene.new_heartbeats) == (S.RECONCILE, [])


def test_fence_in_any_phase_leaves_only_on_lost_outstanding() -> None:
    """After a fence in any phase exactly one step is outstanding: on_lost."""
    for scene in (revoking(), revoking().finish(), revoking().finish(at(5, A1)), adding()):
        scene.fence()
        assert [type(step).__name__ for step in scene.effects if isinstance(step, STEPS)][-1] == "LosePartitions"
        assert (scene.finish().state, scene.new_steps) == (S.JOINING, [])


def test_first_assignment_that_changes_before_its_names_arrive_is_assigned_once() -> None:
    """Two targets before the topic names arrive give one on_assign and one acknowledgement."""
    scene = joining().answer(1, [A0]).target(2, A0, A1).settle()
    assert len(scene.all(AssignPartitions)) == 1
    assert (scene.state, scene.owned, scene.all(CommitOffsets)) == (S.STABLE, named(A0, A1), [])
