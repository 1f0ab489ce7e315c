"""From owned to target: the steps, their order, and the effect of a callback that raises (M30 to M44)."""

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
from consumer_membership.membership.events import (
    CommitVerdict,
    CoordinatorLost,
    StartOffsetsFailed,
    StartOffsetsFetched,
)
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
    """Return the steps and requests of the rebalance since the scene's first acknowledgement, in order."""
    kinds = (PausePartitions, CommitOffsets, RevokePartitions, FetchCommitted, AssignPartitions, SendHeartbeat)
    return [
        "Acknowledge" if isinstance(effect, SendHeartbeat) else type(effect).__name__
        for effect in scene.effects
        if isinstance(effect, kinds) and not (isinstance(effect, SendHeartbeat) and effect.heartbeat.owned is None)
    ]


# ---- adding ----


def test_first_target_adds_partitions_without_revoking() -> None:
    """M30: A first target adds all its partitions, and pauses and revokes nothing."""
    scene = joining().answer(1, [A0, A1]).settle()
    assert rebalance_steps(scene) == ["Acknowledge", "FetchCommitted", "AssignPartitions", "Acknowledge"]
    assert scene.owned == named(A0, A1)


def test_on_assign_receives_only_the_added_partitions() -> None:
    """M31: Owned partitions stay untouched; on_assign receives the added partitions only."""
    scene = stable(A0).target(2, A0, A1, A2).settle()
    assert scene.all(AssignPartitions)[-1].offsets == dict.fromkeys(named(A1, A2), 0)
    assert (scene.owned, scene.all(PausePartitions)) == (named(A0, A1, A2), [])


def test_repeated_target_starts_no_reconciliation() -> None:
    """M32: A response with the same assignment calls no callback and leaves the member STABLE."""
    scene = stable(A0, A1)
    scene.with_heartbeat_in_flight().answer(1, [A1, A0])
    assert (scene.state, scene.last) == (S.STABLE, ())


def test_repeated_and_unsorted_partitions_are_one_assignment() -> None:
    """An assignment is a set: the order and repetitions of its partitions have no effect."""
    scene = joining().answer(1, [A1, A0, A1]).settle()
    assert scene.owned == named(A0, A1)


def test_added_partition_is_not_owned_before_on_assign_ended() -> None:
    """M38: A partition is not owned while on_assign runs for it.

    A complete heartbeat claims it nevertheless: otherwise the coordinator would treat it as revoked.
    """
    scene = adding()
    assert (scene.owned, scene.with_heartbeat_in_flight().drop().found().next_heartbeat().owned) == (
        named(A0),
        {A0, A1},
    )


def test_added_partition_stays_unowned_after_on_assign_raised() -> None:
    """M39: If on_assign raises, its partitions stay unowned."""
    assert adding().finish(failed=True).owned == named(A0)


def test_raising_on_assign_leaves_the_member_reconciling_and_unacknowledged() -> None:
    """M42: An on_assign that raises leaves the member RECONCILE and acknowledges nothing."""
    scene = adding().finish(failed=True)
    assert (scene.state, scene.last) == (S.RECONCILE, ())
    assert scene.view.waits_for == "poll to retry callback"


def test_member_retries_at_poll_only_from_a_raising_callback_to_the_next_poll() -> None:
    """After a callback raised, polls are reported immediately, even if the view shows a wait that needs no poll."""
    scene = adding()
    found = [scene.member.retries_at_poll]
    scene.finish(failed=True).feed(CoordinatorLost(reason="broken"))
    found.append(scene.member.retries_at_poll)
    scene.poll()
    found.append(scene.member.retries_at_poll)
    assert (found, scene.view.waits_for) == ([False, True, False], "group coordinator")


def test_raising_on_assign_is_called_again_at_the_next_poll_with_the_same_partitions() -> None:
    """M42: The next poll calls on_assign with the same partitions again, whereas Java passes none."""
    scene = adding().finish(failed=True).poll().offsets(7)
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A1), 7)
    assert scene.finish().state is S.STABLE


def test_offsets_of_a_raising_on_assign_are_dropped_with_its_target() -> None:
    """After a failed first on_assign an empty target assigns nothing, and the old start offsets are dropped."""
    scene = joining().answer(1, [A0]).resolve(A0.topic_id).offsets(5).finish(failed=True)
    scene.target(2).poll()
    assert (scene.new(AssignPartitions)[0].offsets, scene.finish().owned) == ({}, NOTHING)


def test_offsets_of_a_lost_assignment_are_dropped_at_the_rejoin() -> None:
    """After a fence during on_assign an empty first assignment of the new membership assigns nothing."""
    scene = joining().answer(1, [A0]).resolve(A0.topic_id).offsets(5).fence().finish()
    assert scene.answer(2, []).new(AssignPartitions)[0].offsets == {}


# ---- revoking ----


def test_revocation_without_auto_commit_goes_from_pause_to_on_revoke() -> None:
    """M33: Without auto-commit nothing is committed, even if the pause reports positions."""
    scene = revoking(auto_commit=False).finish(at(5, A1))
    assert (scene.kinds, scene.new(RevokePartitions)[0].partitions) == (["RevokePartitions"], named(A1))


def test_revocation_waits_for_the_commit() -> None:
    """M34: The member commits the positions that the pause reports, and calls on_revoke after the response."""
    scene = revoking().finish(at(5, A1))
    assert (scene.kinds, scene.new(CommitOffsets)[0].offsets) == (["CommitOffsets"], at(5, A1))
    assert scene.committed().kinds == ["CommitCompleted", "RevokePartitions"]


def test_revocation_continues_after_a_failed_commit() -> None:
    """M35: A revocation continues after its commit was refused."""
    scene = revoking().finish(at(5, A1)).committed(CommitVerdict.FINAL, GROUP_FULL)
    assert scene.kinds == ["CommitCompleted", "RevokePartitions"]


def test_revocation_waits_a_bounded_time_for_a_commit_without_an_answer() -> None:
    """M35: A coordinator that does not respond delays a revocation by 30 s at most."""
    scene = revoking().finish(at(5, A1))
    started_at = scene.now
    scene.until(lambda s: bool(s.new(RevokePartitions)))
    assert round(scene.now - started_at, 3) == 30.0


def test_revocation_comes_before_assignment_and_one_acknowledgement_ends_both() -> None:
    """M36: One attempt pauses, commits, revokes, fetches offsets, assigns and acknowledges, in this order."""
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
    assert (scene.step.attempt, scene.heartbeats[-1].owned) == (attempt, {A0, A2})


def test_revocation_does_not_proceed_without_polls() -> None:
    """M37: Without the application's thread a revocation stays at its pause, however much time passes."""
    scene = revoking()
    for _ in range(20):
        scene.after(1.0)
        if scene.new_heartbeats:
            scene.answer()
    assert (scene.state, scene.all(CommitOffsets), scene.all(RevokePartitions)) == (S.RECONCILE, [], [])


def test_callbacks_run_one_after_the_other_before_the_acknowledgement() -> None:
    """M40: on_assign is called after on_revoke has ended, and the acknowledgement follows on_assign."""
    scene = stable(A0).target(2, A1).finish()
    assert (scene.kinds, scene.new_heartbeats) == (["RevokePartitions"], [])
    assert scene.finish().kinds == ["FetchCommitted"]
    assert scene.offsets().kinds == ["AssignPartitions"]
    assert scene.finish().kinds[:2] == ["StateChanged", "SendHeartbeat"]


def test_offsets_stored_in_on_revoke_are_committed_before_the_acknowledgement() -> None:
    """Offsets that on_revoke stored are committed before another member may read the partition."""
    scene = revoking().finish().finish(at(9, A1))
    assert (scene.kinds, scene.new(CommitOffsets)[0].offsets) == (["CommitOffsets"], at(9, A1))
    assert scene.committed().new_heartbeats[0].owned == {A0}


def test_offsets_stored_in_a_slow_on_revoke_are_committed() -> None:
    """The commit after on_revoke has its full time, however long the callback took."""
    scene = revoking().finish()
    for _ in range(60):
        scene.after(1.0).poll()
    assert scene.finish(at(9, A1)).new(CommitOffsets)[0].offsets == at(9, A1)


def test_raising_on_revoke_assigns_and_acknowledges_nothing() -> None:
    """M41: An on_revoke that raises leaves the member RECONCILE; nothing is assigned or acknowledged."""
    scene = stable(A0).target(2, A1).finish().finish(failed=True)
    assert (scene.state, scene.last, scene.owned) == (S.RECONCILE, (), named(A0))
    assert scene.with_heartbeat_in_flight().drop().found().next_heartbeat().owned == {A0}


def test_raising_on_revoke_is_called_again_at_the_next_poll() -> None:
    """M41: The next poll repeats the reconciliation from its pause, with a new attempt number."""
    scene = revoking().finish()
    first = scene.step
    scene.finish(failed=True).poll().finish()
    assert (scene.new(RevokePartitions)[0].partitions, scene.step.attempt) == (named(A1), first.attempt + 1)


def test_pause_ends_if_a_new_target_keeps_the_partition_after_on_revoke_raised() -> None:
    """If the revocation does not take place, the pause ends, so that delivery continues."""
    scene = revoking().finish().finish(failed=True).target(3, A0, A1).poll()
    assert scene.new(PausePartitions)[0].partitions == NOTHING
    assert (scene.finish().state, scene.owned) == (S.STABLE, named(A0, A1))


@pytest.mark.parametrize("step", ["pause", "revoke"])
def test_step_that_ends_in_any_exception_ends_the_attempt(step: str) -> None:
    """M43: Any exception in a step, also an interrupt, ends the attempt, and the next poll starts a new one."""
    scene = revoking() if step == "pause" else revoking().finish()
    scene.finish(failed=True)
    assert (scene.view.waits_for, scene.view.pending_revocation) == (
        "poll to retry callback",
        NOTHING,
    )
    assert scene.poll().new(PausePartitions)[0].partitions == named(A1)


def test_interrupted_on_assign_ends_the_attempt() -> None:
    """M44: Any exception in on_assign ends the attempt, and the next poll fetches the start offsets again."""
    scene = adding().finish(failed=True).poll()
    assert scene.new(FetchCommitted)[0].partitions == named(A1)


# ---- attempts ----


def test_completion_of_another_attempt_is_dropped() -> None:
    """The completion of a step with an old attempt number changes nothing."""
    scene = revoking()
    old = scene.step
    scene.finish(failed=True).poll()
    assert scene.finish(step=old).last == ()


def test_repeated_completion_is_dropped() -> None:
    """A second completion of a step changes nothing."""
    scene = revoking()
    pause = scene.step
    scene.finish()
    assert scene.finish(step=pause).last == ()


def test_start_offsets_of_another_attempt_are_dropped() -> None:
    """Start offsets with the number of another attempt change nothing."""
    scene = stable(A0).target(2, A0, A1)
    assert scene.feed(StartOffsetsFetched(attempt=scene.context.reconciler.attempt - 1, offsets={})).last == ()


def test_attempt_numbers_grow() -> None:
    """Each attempt has a greater number than all attempts before it, also across memberships."""
    scene = stable(A0).target(2, A1).settle().fence().settle(answers=False).answer(1, [A0]).settle()
    attempts = [step.attempt for step in scene.effects if isinstance(step, STEPS)]
    assert attempts == [1, 2, 2, 2, 3, 4]


# ---- start offsets ----


def failed_fetch(
    scene: Scene, error: BrokerError = LOADING, *, retriable: bool = True, rediscover: bool = False
) -> Scene:
    """The latest request for start offsets fails."""
    attempt = scene.all(FetchCommitted)[-1].attempt
    return scene.feed(StartOffsetsFailed(attempt=attempt, error=error, retriable=retriable, rediscover=rediscover))


def test_failed_offset_fetch_is_never_no_offset() -> None:
    """A failed offset fetch is repeated after a growing backoff, and nothing is assigned until it succeeds."""
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
    """An offset fetch that failed with a stale epoch is repeated with the new epoch."""
    scene = failed_fetch(stable(A0).target(2, A0, A1).with_heartbeat_in_flight().answer(3))
    scene.until(lambda s: bool(s.new(FetchCommitted)))
    assert scene.new(FetchCommitted)[0].member_epoch == 3


def test_offset_fetch_is_not_repeated_after_a_fence() -> None:
    """A fenced member does not repeat an offset fetch."""
    scene = failed_fetch(stable(A0).target(2, A0, A1).fence())
    assert (scene.last, scene.state) == ((), S.FENCED)


def test_offset_fetch_with_not_coordinator_looks_up_the_coordinator() -> None:
    """NOT_COORDINATOR for an OffsetFetch starts a coordinator lookup."""
    assert failed_fetch(stable(A0).target(2, A0, A1), rediscover=True).kinds == ["FindCoordinator"]


def test_offset_fetch_with_a_permanent_error_is_fatal() -> None:
    """A permanent error for an OffsetFetch ends FATAL, and owned partitions are lost."""
    scene = failed_fetch(stable(A0).target(2, A0, A1), GROUP_FULL, retriable=False)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "StateChanged", "LosePartitions"])


def test_incomplete_start_offsets_are_fetched_again() -> None:
    """A partition without a start offset is not assigned and not claimed as owned."""
    scene = stable(A0).target(2, A0, A1, A2)
    attempt = scene.all(FetchCommitted)[-1].attempt
    scene.feed(StartOffsetsFetched(attempt=attempt, offsets=dict.fromkeys(named(A1), 3)))
    assert (scene.last, scene.until(lambda s: bool(s.new(FetchCommitted))).owned) == ((), named(A0))


def test_start_offsets_of_other_partitions_are_ignored() -> None:
    """The attempt assigns only the partitions that it adds."""
    scene = stable(A0).target(2, A0, A1)
    attempt = scene.all(FetchCommitted)[-1].attempt
    scene.feed(StartOffsetsFetched(attempt=attempt, offsets=dict.fromkeys(named(A1, B0), 3)))
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A1), 3)


def test_attempt_without_start_offsets_yields_to_a_newer_target() -> None:
    """If the offsets of a deleted topic cannot be fetched, a newer target without it replaces the attempt."""
    scene = stable(A0).target(2, A0, A2).target(3, A0, A1)
    assert failed_fetch(scene).new(FetchCommitted)[0].partitions == named(A1)
