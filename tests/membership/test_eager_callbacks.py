"""Callbacks that are told of a change as under the eager protocol, by a member that takes the difference only."""

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
    """STABLE with these partitions; from now on its callbacks are told of the whole."""
    return stable(*owned, **settings).subscribe("orders", "payments", is_eager=True)  # type: ignore[arg-type]


def steps(scene: Scene, since: int = 0) -> list[tuple[str, frozenset[object]]]:
    """What the application was told, in order."""
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


def test_whole_is_revoked_and_assigned_when_a_partition_comes() -> None:
    """A0 stays, A1 comes: on_revoke has A0, on_assign both, from what is committed by then."""
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


def test_whole_is_revoked_and_the_rest_assigned_when_a_partition_goes() -> None:
    """The acknowledgement, which gives A1 to others, waits for both callbacks."""
    scene = eager(A0, A1)
    since = len(scene.effects)
    scene.target(2, A0).finish().finish()
    assert scene.new_beats == []
    scene.offsets(7)
    assert scene.new(AssignPartitions)[0].offsets == dict.fromkeys(named(A0), 7)
    scene.finish()
    assert [beat.owned for beat in scene.new_beats] == [{A0}]
    assert steps(scene, since) == [
        ("PausePartitions", named(A0, A1)),
        ("RevokePartitions", named(A0, A1)),
        ("AssignPartitions", named(A0)),
    ]


def test_empty_assignment_is_told() -> None:
    """Who is left with nothing hears so: its list is to be empty, too."""
    scene = eager(A0)
    since = len(scene.effects)
    scene.target(2).settle()
    assert steps(scene, since)[1:] == [("RevokePartitions", named(A0)), ("AssignPartitions", frozenset())]


def test_group_never_hears_that_what_stays_was_given_up() -> None:
    """A complete heartbeat in the middle claims A0 all the while; the view shows it as owned."""
    scene = eager(A0, A1).target(2, A0).finish().finish()
    assert (scene.owned, scene.view.pending_revocation) == (named(A0), frozenset())
    assert scene.in_touch().drop().found().next_beat().owned == {A0}


def test_what_will_be_taken_is_everything() -> None:
    """Until on_revoke has returned."""
    assert eager(A0, A1).target(2, A0).view.pending_revocation == named(A0, A1)


def test_same_target_again_calls_nothing() -> None:
    """A rebalance that changes nothing for this member is not told."""
    scene = eager(A0, A1)
    scene.in_touch().answer(2, [A1, A0])
    assert (scene.state, scene.new_steps) == (S.STABLE, [])


def test_raising_on_assign_is_called_again_with_the_whole() -> None:
    """What stayed with the member is not with the application: it comes again, and nothing is revoked twice."""
    scene = eager(A0).target(2, A0, A1).finish().finish().offsets().finish(failed=True)
    assert (scene.owned, scene.view.pending_revocation) == (named(A0), frozenset())
    since = len(scene.effects)
    scene.poll().settle()
    assert steps(scene, since) == [("AssignPartitions", named(A0, A1))]
    assert scene.owned == named(A0, A1)


def test_what_the_application_does_not_have_is_given_back_although_the_target_came_back() -> None:
    """A1 was to come, on_assign raised, and A1 is not to come any more: A0 is assigned again."""
    scene = eager(A0).target(2, A0, A1).finish().finish().offsets().finish(failed=True).target(3, A0)
    since = len(scene.effects)
    scene.poll().settle()
    assert steps(scene, since) == [("AssignPartitions", named(A0))]


def test_raising_on_revoke_is_called_again_with_the_whole() -> None:
    """As without eager callbacks: the next poll begins anew, and nothing was given up."""
    scene = eager(A0, A1).target(2, A0).finish().finish(failed=True)
    since = len(scene.effects)
    scene.poll().settle()
    assert steps(scene, since)[1:] == [("RevokePartitions", named(A0, A1)), ("AssignPartitions", named(A0))]


def test_newer_target_takes_what_the_application_does_not_have() -> None:
    """The start offsets cannot be had, and A0 is to go: nothing is left to revoke, and the empty rest is told."""
    scene = eager(A0, A1).target(2, A0).finish().finish()
    since = len(scene.effects)
    scene.in_touch().answer(3, [])
    attempt = scene.all(FetchCommitted)[-1].attempt
    scene.feed(StartOffsetsFailed(attempt=attempt, error=LOADING, retriable=True)).settle()
    assert [told for told in steps(scene, since) if told[0] == "AssignPartitions"] == [
        ("AssignPartitions", frozenset())
    ]
    assert (scene.owned, scene.state) == (frozenset(), S.STABLE)


def test_leave_in_the_middle_gives_up_what_the_application_has() -> None:
    """After on_revoke it has nothing: the leave revokes nothing of it (the order is there, and names nobody)."""
    scene = eager(A0, A1).target(2, A0).finish().finish().leave().settle()
    assert scene.state is S.UNSUBSCRIBED


def test_fence_in_the_middle_loses_everything() -> None:
    """And the next membership begins with nothing withheld."""
    scene = eager(A0, A1).target(2, A0).finish().finish().fence()
    assert scene.new(LosePartitions)
    scene.settle(answers=False).answer(3, [A0, A2]).settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A0, A2)
    assert scene.owned == named(A0, A2)


def test_callback_that_assigned_by_differences_is_told_differences() -> None:
    """It shows that it was not written for the whole."""
    scene = eager(A0).feed(AssignedIncrementally()).target(2, A0, A1).settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A1)
    assert scene.all(RevokePartitions) == []


def test_attempt_begun_with_the_whole_ends_with_it() -> None:
    """The word comes out of on_revoke: what that took away is given back by the same attempt."""
    scene = eager(A0).target(2, A0, A1).finish().feed(AssignedIncrementally()).finish().settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A0, A1)
    scene.target(3, A0, A1, A2).settle()
    assert scene.all(AssignPartitions)[-1].offsets.keys() == named(A2)


def test_one_attempt_tells_one_change() -> None:
    """All steps of a change have one number."""
    scene = eager(A0)
    since = len(scene.effects)
    scene.target(2, A0, A1).settle()
    numbers = {step.attempt for step in scene.effects[since:] if isinstance(step, STEPS)}
    assert len(numbers) == 1


def test_commit_of_before_is_not_repeated_after_the_start_offsets_were_asked_for() -> None:
    """What stays is read from there: an older commit that succeeded later would be taken back by the next one."""
    scene = eager(A0).commit(44, A0, commit_id=8).target(2, A0, A1).finish().finish()
    sent = len(scene.all(CommitOffsets))
    scene.committed(CommitVerdict.STALE_EPOCH, STALE)
    assert len(scene.all(CommitOffsets)) == sent
    (over,) = scene.new(CommitCompleted)
    assert over.commit_id == 8
    assert over.errors.keys() == named(A0)
    assert None not in over.errors.values()
