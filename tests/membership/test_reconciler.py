"""From owned to target: the steps, their order, and what a raising callback does (M30 to M44)."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitOffsets,
    FetchCommitted,
    PausePartitions,
    RevokePartitions,
    SendHeartbeat,
)
from consumer_membership.membership.events import CommitVerdict, StartOffsetsFailed, StartOffsetsFetched
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, TopicPartition
from tests.membership.builders import (
    A0,
    A1,
    A2,
    B0,
    GROUP_FULL,
    LOADING,
    STEPS,
    Scene,
    adding,
    at,
    joining,
    named,
    revoking,
    stable,
)

S = MemberState
NOTHING: frozenset[TopicPartition] = frozenset()


def rebalance_steps(scene: Scene) -> list[str]:
    """What the scene ordered of a rebalance since its first acknowledgement, in order."""
    kinds = (PausePartitions, CommitOffsets, RevokePartitions, FetchCommitted, AssignPartitions, SendHeartbeat)
    return [
        "Acknowledge" if isinstance(effect, SendHeartbeat) else type(effect).__name__
        for effect in scene.effects
        if isinstance(effect, kinds) and not (isinstance(effect, SendHeartbeat) and effect.heartbeat.owned is None)
    ]


# ---- adding ----


def test_partitions_are_only_added_where_none_was_owned() -> None:
    """M30: a first target adds everything, pauses and revokes nothing."""
    scene = joining().answer(1, [A0, A1]).settle()
    assert rebalance_steps(scene) == ["Acknowledge", "FetchCommitted", "AssignPartitions", "Acknowledge"]
    assert scene.owned == named(A0, A1)


def test_only_the_difference_is_added_beside_owned_partitions() -> None:
    """M31: what is owned stays untouched; on_assign is called for the difference alone."""
    scene = stable(A0).target(2, A0, A1, A2).settle()
    assert scene.all(AssignPartitions)[-1].offsets == dict.fromkeys(named(A1, A2), 0)
    assert (scene.owned, scene.all(PausePartitions)) == (named(A0, A1, A2), [])


def test_same_target_again_is_no_reconciliation() -> None:
    """M32: the same assignment in a later answer calls nothing and leaves the member STABLE."""
    scene = stable(A0, A1)
    scene.in_touch().answer(1, [A1, A0])
    assert (scene.state, scene.last) == (S.STABLE, ())


def test_doubled_and_unsorted_partitions_are_one_assignment() -> None:
    """Assigned partitions are a set: neither order nor repetition counts."""
    scene = joining().answer(1, [A1, A0, A1]).settle()
    assert scene.owned == named(A0, A1)


def test_added_partition_is_not_owned_before_on_assign_ended() -> None:
    """M38: what on_assign is being called for is not owned yet.

    A complete heartbeat claims it all the same: without it, the coordinator would take it as revoked.
    """
    scene = adding()
    assert (scene.owned, scene.in_touch().drop().found().next_beat().owned) == (named(A0), {A0, A1})


def test_added_partition_stays_unowned_after_on_assign_raised() -> None:
    """M39: a failed on_assign leaves what it was called for unowned."""
    assert adding().finish(failed=True).owned == named(A0)


def test_raising_on_assign_leaves_the_member_reconciling_and_unacknowledged() -> None:
    """M42: an on_assign that raises leaves the member RECONCILE and acknowledges nothing."""
    scene = adding().finish(failed=True)
    assert (scene.state, scene.last) == (S.RECONCILE, ())
    assert scene.view.waits_for == "the application's next poll, because a callback raised"


def test_raising_on_assign_is_called_again_at_the_next_poll_with_the_same_partitions() -> None:
    """M42: the next poll tries the same partitions again (where Java calls on_assign with none)."""
    scene = adding().finish(failed=True).poll().offsets(7)
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A1), 7)
    assert scene.finish().state is S.STABLE


def test_offsets_of_a_raising_on_assign_do_not_outlive_its_target() -> None:
    """After a failed first on_assign an empty target assigns nothing: old start offsets must not come back."""
    scene = joining().answer(1, [A0]).resolve(A0.topic_id).offsets(5).finish(failed=True)
    scene.target(2).poll()
    assert (scene.new(AssignPartitions)[0].offsets, scene.finish().owned) == ({}, NOTHING)


def test_offsets_of_a_lost_assignment_do_not_come_back_after_the_rejoin() -> None:
    """Fenced in the middle of on_assign, then assigned nothing: the first assignment of the new membership is empty."""
    scene = joining().answer(1, [A0]).resolve(A0.topic_id).offsets(5).fence().finish()
    assert scene.answer(2, []).new(AssignPartitions)[0].offsets == {}


# ---- revoking ----


def test_revocation_without_auto_commit_goes_from_pause_to_on_revoke() -> None:
    """M33: without auto-commit nothing is committed, whatever positions the pause reports."""
    scene = revoking(auto_commit=False).finish(at(5, A1))
    assert (scene.kinds, scene.new(RevokePartitions)[0].partitions) == (["RevokePartitions"], named(A1))


def test_revocation_waits_for_the_commit() -> None:
    """M34: the positions that the pause reports are committed, and on_revoke is called after the answer."""
    scene = revoking().finish(at(5, A1))
    assert (scene.kinds, scene.new(CommitOffsets)[0].offsets) == (["CommitOffsets"], at(5, A1))
    assert scene.committed().kinds == ["CommitCompleted", "RevokePartitions"]


def test_failed_commit_does_not_stop_the_revocation() -> None:
    """M35: a commit that is refused is over; the revocation goes on."""
    scene = revoking().finish(at(5, A1)).committed(CommitVerdict.FINAL, GROUP_FULL)
    assert scene.kinds == ["CommitCompleted", "RevokePartitions"]


def test_commit_without_answer_holds_the_revocation_up_for_a_bounded_time() -> None:
    """M35: a coordinator that does not come back stops a revocation for 30 s at most."""
    scene = revoking().finish(at(5, A1))
    begun = scene.now
    scene.until(lambda s: bool(s.new(RevokePartitions)))
    assert round(scene.now - begun, 3) == 30.0


def test_revocation_comes_before_assignment_and_one_acknowledgement_ends_both() -> None:
    """M36: pause, commit, on_revoke, start offsets, on_assign, acknowledge: in one attempt and in this order."""
    scene = stable(A0, A1).target(2, A0, A2)
    attempt = scene.step.attempt
    scene.finish(at(5, A1)).committed().finish().offsets().finish()
    assert rebalance_steps(scene)[4:] == [
        "PausePartitions",
        "CommitOffsets",
        "RevokePartitions",
        "FetchCommitted",
        "AssignPartitions",
        "Acknowledge",
    ]
    assert (scene.step.attempt, scene.beats[-1].owned) == (attempt, {A0, A2})


def test_time_alone_never_commits_or_revokes() -> None:
    """M37: without the application's thread a revocation does not get past its pause, however long it takes."""
    scene = revoking()
    for _ in range(20):
        scene.after(1.0)
        if scene.new_beats:
            scene.answer()
    assert (scene.state, scene.all(CommitOffsets), scene.all(RevokePartitions)) == (S.RECONCILE, [], [])


def test_callbacks_come_one_after_the_other_and_the_acknowledgement_last() -> None:
    """M40: on_revoke, then on_assign once it ended, then the acknowledgement once that ended."""
    scene = stable(A0).target(2, A1).finish()
    assert (scene.kinds, scene.new_beats) == (["RevokePartitions"], [])
    assert scene.finish().kinds == ["FetchCommitted"]
    assert scene.offsets().kinds == ["AssignPartitions"]
    assert scene.finish().kinds[:2] == ["StateChanged", "SendHeartbeat"]


def test_what_on_revoke_stored_is_committed_before_the_acknowledgement() -> None:
    """Offsets that on_revoke stored are committed once more, before anybody else may read from there."""
    scene = revoking().finish().finish(at(9, A1))
    assert (scene.kinds, scene.new(CommitOffsets)[0].offsets) == (["CommitOffsets"], at(9, A1))
    assert scene.committed().new_beats[0].owned == {A0}


def test_what_a_slow_on_revoke_stored_is_still_committed() -> None:
    """The commit after on_revoke has its full time, however long the callback took."""
    scene = revoking().finish()
    for _ in range(60):
        scene.after(1.0).poll()
    assert scene.finish(at(9, A1)).new(CommitOffsets)[0].offsets == at(9, A1)


def test_raising_on_revoke_assigns_and_acknowledges_nothing() -> None:
    """M41: an on_revoke that raises leaves the member RECONCILE, assigns nothing and acknowledges nothing."""
    scene = stable(A0).target(2, A1).finish().finish(failed=True)
    assert (scene.state, scene.last, scene.owned) == (S.RECONCILE, (), named(A0))
    assert scene.in_touch().drop().found().next_beat().owned == {A0}


def test_raising_on_revoke_is_called_again_at_the_next_poll() -> None:
    """M41: the next poll runs the reconciliation again from its pause on, with a new attempt number."""
    scene = revoking().finish()
    first = scene.step
    scene.finish(failed=True).poll().finish()
    assert (scene.new(RevokePartitions)[0].partitions, scene.step.attempt) == (named(A1), first.attempt + 1)


def test_pause_ends_where_the_target_takes_the_partition_back_after_on_revoke_raised() -> None:
    """A pause whose revocation does not take place is taken back: else nobody would ever read on."""
    scene = revoking().finish().finish(failed=True).target(3, A0, A1).poll()
    assert scene.new(PausePartitions)[0].partitions == NOTHING
    assert (scene.finish().state, scene.owned) == (S.STABLE, named(A0, A1))


@pytest.mark.parametrize("step", ["pause", "revoke"])
def test_step_that_ends_in_any_exception_ends_the_attempt(step: str) -> None:
    """M43: whatever ended the step (an interrupt too), the attempt is over and the next poll begins a new one."""
    scene = revoking() if step == "pause" else revoking().finish()
    scene.finish(failed=True)
    assert (scene.view.waits_for, scene.view.pending_revocation) == (
        "the application's next poll, because a callback raised",
        NOTHING,
    )
    assert scene.poll().new(PausePartitions)[0].partitions == named(A1)


def test_interrupted_on_assign_ends_the_attempt() -> None:
    """M44: likewise on_assign; the next poll asks for the start offsets anew."""
    scene = adding().finish(failed=True).poll()
    assert scene.new(FetchCommitted)[0].partitions == named(A1)


# ---- attempts ----


def test_completion_of_another_attempt_is_dropped() -> None:
    """A stale attempt number changes nothing."""
    scene = revoking()
    old = scene.step
    scene.finish(failed=True).poll()
    assert scene.finish(step=old).last == ()


def test_doubled_completion_is_dropped() -> None:
    """A step is finished once."""
    scene = revoking()
    pause = scene.step
    scene.finish()
    assert scene.finish(step=pause).last == ()


def test_start_offsets_of_another_attempt_are_dropped() -> None:
    """An answer with another attempt's number is nobody's."""
    scene = stable(A0).target(2, A0, A1)
    assert scene.feed(StartOffsetsFetched(attempt=scene.context.reconciler.attempt - 1, offsets={})).last == ()


def test_attempt_numbers_grow() -> None:
    """Each attempt has a number of its own, greater than all before, across memberships too."""
    scene = stable(A0).target(2, A1).settle().fence().settle(answers=False).answer(1, [A0]).settle()
    attempts = [step.attempt for step in scene.effects if isinstance(step, STEPS)]
    assert attempts == [1, 2, 2, 2, 3, 4]


# ---- start offsets ----


def failed_fetch(
    scene: Scene, error: BrokerError = LOADING, *, retriable: bool = True, rediscover: bool = False
) -> Scene:
    """The start offsets that were asked for last could not be had."""
    attempt = scene.all(FetchCommitted)[-1].attempt
    return scene.feed(StartOffsetsFailed(attempt=attempt, error=error, retriable=retriable, rediscover=rediscover))


def test_failed_offset_fetch_is_never_no_offset() -> None:
    """A fetch that failed is asked again after a growing backoff; nothing is assigned meanwhile."""
    scene = stable(A0).target(2, A0, A1)
    asked_at, waited = scene.now, []
    for _ in range(3):
        failed_fetch(scene)
        assert scene.new(AssignPartitions) == []
        scene.until(lambda s: bool(s.new(FetchCommitted)))
        waited.append(round(scene.now - asked_at, 3))
        asked_at = scene.now
    assert waited == [0.1, 0.2, 0.4]


def test_offset_fetch_is_repeated_with_the_new_epoch() -> None:
    """A stale epoch is cured by the epoch that came meanwhile."""
    scene = failed_fetch(stable(A0).target(2, A0, A1).in_touch().answer(3))
    scene.until(lambda s: bool(s.new(FetchCommitted)))
    assert scene.new(FetchCommitted)[0].member_epoch == 3


def test_offset_fetch_is_not_repeated_by_who_is_no_member_any_more() -> None:
    """A fenced member asks for no offsets."""
    scene = failed_fetch(stable(A0).target(2, A0, A1).fence())
    assert (scene.last, scene.state) == ((), S.FENCED)


def test_offset_fetch_that_finds_the_coordinator_gone_looks_it_up() -> None:
    """NOT_COORDINATOR on an OffsetFetch starts the search."""
    assert failed_fetch(stable(A0).target(2, A0, A1), rediscover=True).kinds == ["FindCoordinator"]


def test_offset_fetch_that_is_refused_for_good_is_fatal() -> None:
    """What no retry mends ends FATAL, and what was held is lost."""
    scene = failed_fetch(stable(A0).target(2, A0, A1), GROUP_FULL, retriable=False)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "StateChanged", "LosePartitions"])


def test_incomplete_start_offsets_are_asked_for_again() -> None:
    """A partition without a start offset is not assigned, and not claimed as owned."""
    scene = stable(A0).target(2, A0, A1, A2)
    attempt = scene.all(FetchCommitted)[-1].attempt
    scene.feed(StartOffsetsFetched(attempt=attempt, offsets=dict.fromkeys(named(A1), 3)))
    assert (scene.last, scene.until(lambda s: bool(s.new(FetchCommitted))).owned) == ((), named(A0))


def test_start_offsets_of_partitions_that_nobody_asked_for_are_left_out() -> None:
    """Only what the attempt adds is assigned."""
    scene = stable(A0).target(2, A0, A1)
    attempt = scene.all(FetchCommitted)[-1].attempt
    scene.feed(StartOffsetsFetched(attempt=attempt, offsets=dict.fromkeys(named(A1, B0), 3)))
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A1), 3)


def test_attempt_that_cannot_get_its_offsets_gives_way_to_a_newer_target() -> None:
    """A topic that is gone does not hold up the target that says so."""
    scene = stable(A0).target(2, A0, A2).target(3, A0, A1)
    assert failed_fetch(scene).new(FetchCommitted)[0].partitions == named(A1)
