"""Eager callbacks: on_revoke and on_assign receive all partitions while the member itself rebalances incrementally."""

from __future__ import annotations

from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitCompleted,
    CommitOffsets,
    FetchCommitted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from consumer_membership.membership.events import AssignedIncrementally, CommitVerdict, StartOffsetsFailed
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError
from tests.membership.builders import A0, A1, A2, LOADING, STEPS, Scene, at, named, stable

S = MemberState
STALE = BrokerError(code=113, name="STALE_MEMBER_EPOCH")


def eager(*owned: object, **settings: object) -> Scene:
    """Return a STABLE member with these partitions and eager callbacks."""
    return stable(*owned, **settings).subscribe("orders", "payments", is_eager=True)  # type: ignore[arg-type]


def steps(scene: Scene, since: int = 0) -> list[tuple[str, frozenset[object]]]:
    """Return the application's steps since this effect, in order, with their partitions."""
    found: list[tuple[str, frozenset[object]]] = []
    for effect in scene.effects[since:]:
        match effect:
            case PausePartitions() | RevokePartitions():
                found.append((type(effect).__name__, effect.partitions or frozenset()))
            case AssignPartitions():
                found.append((type(effect).__name__, frozenset(effect.offsets)))
            case _:
                pass
    return found


def test_eager_callbacks_revoke_and_assign_all_partitions_when_one_is_added() -> None:
    """A0 stays and A1 is added: on_revoke receives A0, and on_assign receives both with their committed offsets."""
    scene = eager(A0)
    since = len(scene.effects)
    scene.target(2, A0, A1).finish(at(5, A0))
    assert scene.all(CommitOffsets)[-1].offsets == at(5, A0)
    scene.committed().settle()
    assert steps(scene, since) == [
        ("PausePartitions", named(A0)),
        ("RevokePartitions", named(A0)),
        ("AssignPartitions", named(A0, A1)),
    ]
    assert scene.all(FetchCommitted)[-1].partitions == named(A0, A1)
    assert (scene.state, scene.owned) == (S.STABLE, named(A0, A1))


def test_eager_callbacks_assign_the_rest_when_a_partition_is_removed() -> None:
    """The acknowledgement, which releases A1 to other members, waits for both callbacks."""
    scene = eager(A0, A1)
    since = len(scene.effects)
    scene.target(2, A0).finish().finish()
    assert scene.new_heartbeats == []
    scene.offsets(7)
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A0), 7)
    scene.finish()
    assert [heartbeat.owned for heartbeat in scene.new_heartbeats] == [{A0}]
    assert steps(scene, since) == [
        ("PausePartitions", named(A0, A1)),
        ("RevokePartitions", named(A0, A1)),
        ("AssignPartitions", named(A0)),
    ]


def test_eager_callbacks_receive_an_empty_assignment() -> None:
    """A member without partitions calls on_assign with an empty list, so that the application clears its own."""
    scene = eager(A0)
    since = len(scene.effects)
    scene.target(2).settle()
    assert steps(scene, since)[1:] == [("RevokePartitions", named(A0)), ("AssignPartitions", frozenset())]


def test_retained_partitions_stay_claimed_between_eager_callbacks() -> None:
    """A complete heartbeat between the callbacks claims A0, and the view shows it as owned."""
    scene = eager(A0, A1).target(2, A0).finish().finish()
    assert (scene.owned, scene.view.pending_revocation) == (named(A0), frozenset())
    assert scene.with_heartbeat_in_flight().drop().found().next_heartbeat().owned == {A0}


def test_pending_revocation_is_everything_until_eager_on_revoke_returns() -> None:
    """The pending revocation contains all partitions until on_revoke has returned."""
    assert eager(A0, A1).target(2, A0).view.pending_revocation == named(A0, A1)


def test_same_target_calls_no_eager_callback() -> None:
    """A rebalance that does not change this member's partitions calls no callback."""
    scene = eager(A0, A1)
    scene.with_heartbeat_in_flight().answer(2, [A1, A0])
    assert (scene.state, scene.new_steps) == (S.STABLE, [])


def test_raising_eager_on_assign_is_called_again_with_all_partitions() -> None:
    """The retained partitions were revoked from the application, so on_assign receives them again."""
    scene = eager(A0).target(2, A0, A1).finish().finish().offsets().finish(failed=True)
    assert (scene.owned, scene.view.pending_revocation) == (named(A0), frozenset())
    since = len(scene.effects)
    scene.poll().settle()
    assert steps(scene, since) == [("AssignPartitions", named(A0, A1))]
    assert scene.owned == named(A0, A1)


def test_retained_partitions_are_assigned_again_if_the_target_changes_back() -> None:
    """If on_assign raised and the target no longer contains A1, the next poll assigns A0 again."""
    scene = eager(A0).target(2, A0, A1).finish().finish().offsets().finish(failed=True).target(3, A0)
    since = len(scene.effects)
    scene.poll().settle()
    assert steps(scene, since) == [("AssignPartitions", named(A0))]


def test_raising_eager_on_revoke_is_called_again_with_all_partitions() -> None:
    """If on_revoke raises, nothing is released, and the next poll repeats it with all partitions."""
    scene = eager(A0, A1).target(2, A0).finish().finish(failed=True)
    since = len(scene.effects)
    scene.poll().settle()
    assert steps(scene, since)[1:] == [("RevokePartitions", named(A0, A1)), ("AssignPartitions", named(A0))]


def test_newer_target_removes_revoked_partitions_without_on_revoke() -> None:
    """If A0 is removed between the two callbacks, on_assign receives an empty list and on_revoke is not repeated."""
    scene = eager(A0, A1).target(2, A0).finish().finish()
    since = len(scene.effects)
    scene.with_heartbeat_in_flight().answer(3, [])
    attempt = scene.all(FetchCommitted)[-1].attempt
    scene.feed(StartOffsetsFailed(attempt=attempt, error=LOADING, retriable=True)).settle()
    assert [step for step in steps(scene, since) if step[0] == "AssignPartitions"] == [
        ("AssignPartitions", frozenset())
    ]
    assert (scene.owned, scene.state) == (frozenset(), S.STABLE)


def test_leave_between_eager_callbacks_completes() -> None:
    """A leave after on_revoke completes; the application holds no partition that the leave could revoke."""
    scene = eager(A0, A1).target(2, A0).finish().finish().leave().settle()
    assert scene.state is S.UNSUBSCRIBED


def test_fence_between_eager_callbacks_loses_everything() -> None:
    """A fence after on_revoke loses everything, and the next membership assigns all its partitions."""
    scene = eager(A0, A1).target(2, A0).finish().finish().fence()
    assert scene.new(LosePartitions)
    scene.settle(answers=False).answer(3, [A0, A2]).settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A0, A2)
    assert scene.owned == named(A0, A2)


def test_incremental_assign_in_a_callback_ends_eager_callbacks() -> None:
    """A callback that calls incremental_assign() receives only the changed partitions from now on."""
    scene = eager(A0).feed(AssignedIncrementally()).target(2, A0, A1).settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A1)
    assert scene.all(RevokePartitions) == []


def test_attempt_that_began_with_eager_callbacks_ends_with_them() -> None:
    """If on_revoke turns eager callbacks off, the same attempt still assigns the partitions that it revoked."""
    scene = eager(A0).target(2, A0, A1).finish().feed(AssignedIncrementally()).finish().settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A0, A1)
    scene.target(3, A0, A1, A2).settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A2)


def test_eager_callbacks_of_one_change_share_one_attempt_number() -> None:
    """All steps of a change have the same attempt number."""
    scene = eager(A0)
    since = len(scene.effects)
    scene.target(2, A0, A1).settle()
    numbers = {step.attempt for step in scene.effects[since:] if isinstance(step, STEPS)}
    assert len(numbers) == 1


def test_older_commit_is_not_retried_after_the_start_offsets_were_fetched() -> None:
    """Retained partitions start at the fetched offsets.

    If an older commit succeeded later, the next commit would overwrite it with an older offset.
    """
    scene = eager(A0).commit(44, A0, commit_id=8).target(2, A0, A1).finish().finish()
    sent = len(scene.all(CommitOffsets))
    scene.committed(CommitVerdict.STALE_EPOCH, STALE)
    assert len(scene.all(CommitOffsets)) == sent
    (over,) = scene.new(CommitCompleted)
    assert over.commit_id == 8
    assert over.errors.keys() == named(A0)
    assert None not in over.errors.values()
