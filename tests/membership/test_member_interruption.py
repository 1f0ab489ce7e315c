"""A reconciliation that something else cuts into (M70 to M77)."""

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


def test_commit_that_ends_out_of_reconcile_leads_nowhere() -> None:
    """M70: fenced while the commit before the revocation is pending: its answer calls no on_revoke."""
    scene = revoking().finish(at(5, A1)).fence()
    assert (scene.committed().kinds, scene.state) == (["CommitCompleted"], S.FENCED)


def test_commit_that_ends_after_a_rejoin_leads_nowhere() -> None:
    """M71: fenced and rejoined while the commit is pending: the old reconciliation is dropped."""
    scene = revoking().finish(at(5, A1)).fence().finish(step=None).answer(5, [A0, A1])
    assert scene.state is S.RECONCILE
    assert (scene.committed().kinds, scene.all(RevokePartitions)) == (["CommitCompleted"], [])


def test_on_revoke_that_ends_after_a_rejoin_leads_nowhere() -> None:
    """M72: the completion of an on_revoke of the last membership is dropped."""
    scene = revoking().finish()
    revoke = scene.step
    scene.fence().finish().answer(5, [A0, A1])
    assert scene.finish(step=revoke).last == ()


def test_on_assign_that_ends_after_a_rejoin_leads_nowhere() -> None:
    """M73: the completion of an on_assign of the last membership makes nothing owned and acknowledges nothing."""
    scene = adding()
    assign = scene.step
    scene.fence().finish().answer(5, [A0, A1])
    assert (scene.finish(step=assign).last, scene.owned) == ((), frozenset())


def test_same_target_after_a_fence_is_reconciled_in_full() -> None:
    """M74: fenced, rejoined, the same partitions again: on_assign is called for all of them."""
    scene = stable(A0, A1).fence().settle(answers=False).answer(5, [A0, A1]).settle()
    assert scene.all(AssignPartitions)[-1].offsets == dict.fromkeys(named(A0, A1), 0)
    assert (scene.state, scene.owned) == (S.STABLE, named(A0, A1))


def test_names_that_come_in_the_middle_do_not_interrupt() -> None:
    """M75: the running attempt ends with what it began with, is acknowledged, and the rest follows."""
    scene = stable(A0).target(2, A0, A1, B0).offsets().resolve(PAYMENTS).finish()
    assert [beat.owned for beat in scene.new_beats] == [{A0, A1}]
    scene.settle()
    assert (scene.state, scene.owned, scene.beats[-1].owned) == (S.STABLE, named(A0, A1, B0), {A0, A1, B0})


def test_newer_target_does_not_interrupt() -> None:
    """M76: a target that changes while a step runs: the first is finished and acknowledged, then the second."""
    scene = revoking().finish()
    revoke = scene.step
    scene.target(3, A0, A1, A2)
    assert (scene.new_steps, scene.state) == ([], S.RECONCILE)
    scene.finish(step=revoke)
    assert [beat.owned for beat in scene.new_beats] == [{A0}]
    assert scene.settle().owned == named(A0, A1, A2)


def test_newer_target_begins_as_soon_as_the_older_one_is_acknowledged() -> None:
    """M76: the newer target waits for no answer: its first step is ordered with the acknowledgement."""
    scene = adding().target(3, A0).finish()
    assert scene.kinds == ["StateChanged", "SendHeartbeat", "StateChanged", "PausePartitions"]


def test_there_and_back_again_is_acknowledged() -> None:
    """A -> B -> A while B was not begun: the same partitions are acknowledged once more (Java's local epoch)."""
    scene = stable(A0, A1, auto_commit=False)
    scene.target(2, A0).target(3, A0, A1).finish().finish().settle()
    assert (scene.state, scene.beats[-1].owned) == (S.STABLE, {A0, A1})


def test_leave_ends_a_running_reconciliation() -> None:
    """M77: unsubscribe in the middle drops the rest; what the application may hold is given up, old steps are void."""
    scene = adding()
    assign = scene.step
    scene.leave()
    assert (scene.kinds, scene.new_steps[0].partitions) == (["StateChanged", "PausePartitions"], None)  # type: ignore[union-attr]  # a pause
    assert scene.finish(step=assign).last == ()


def test_leave_during_the_commit_before_a_revocation_pauses_first() -> None:
    """M77: the end of the older attempt's commit does not stand for the pause of the newer one."""
    scene = revoking().finish(at(5, A1)).leave()
    scene.committed()
    assert (scene.kinds, scene.view.waits_for) == (
        ["CommitCompleted"],
        "the application's next poll, to pause what is revoked",
    )


def test_member_that_left_in_the_middle_joins_anew_without_remains() -> None:
    """M77: a later subscription begins from nothing, under the same member id."""
    scene = adding().leave().settle()
    assert scene.new(LeaveCompleted) == [LeaveCompleted()]
    scene.subscribe("orders").poll()
    assert (scene.beats[-1].member_epoch, scene.beats[-1].owned, scene.beats[-1].member_id) == (
        0,
        frozenset(),
        "member-1",
    )
    assert scene.answer(1, [A1]).settle().owned == named(A1)


def test_attempt_that_ends_too_late_acknowledges_nothing_after_the_rejoin() -> None:
    """on_assign ends when the poll interval is over: the new membership does not acknowledge for the old one."""
    scene = adding()
    scene.now += 301.0
    scene.finish()
    assert scene.state is S.STALE
    scene.finish().answer(4, [A0])
    assert (scene.state, scene.new_beats) == (S.RECONCILE, [])


def test_nothing_of_an_interrupted_attempt_is_left_to_do() -> None:
    """After a fence in each phase, exactly one step is outstanding: on_lost."""
    for scene in (revoking(), revoking().finish(), revoking().finish(at(5, A1)), adding()):
        scene.fence()
        assert [type(step).__name__ for step in scene.effects if isinstance(step, STEPS)][-1] == "LosePartitions"
        assert (scene.finish().state, scene.new_steps) == (S.JOINING, [])


def test_first_assignment_that_changes_before_it_is_taken_is_taken_once() -> None:
    """Two targets before the names are there: one on_assign, one acknowledgement."""
    scene = joining().answer(1, [A0]).target(2, A0, A1).settle()
    assert len(scene.all(AssignPartitions)) == 1
    assert (scene.state, scene.owned, scene.all(CommitOffsets)) == (S.STABLE, named(A0, A1), [])
