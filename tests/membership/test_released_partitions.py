"""Commits of partitions that the member has released: the client refuses them, because another member may own them.

A coordinator accepts such a commit while the member is in its group, and it would move the new owner's committed offset
back (rules 3.6).
"""

from __future__ import annotations

import pytest

from consumer_membership.membership import events as ev
from consumer_membership.membership.effects import CommitCompleted, CommitOffsets
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.types import BrokerError, TopicPartition
from tests.membership.builders import A0, A1, B0, Scene, at, fenced, named, revoking, stable
from tests.membership.classic import scene as classic


def released(**settings: object) -> Scene:
    """STABLE with A0, after the release of A1."""
    return stable(A0, A1, **settings).target(2, A0).settle()


def sent(scene: Scene | classic.ClassicScene) -> list[set[TopicPartition]]:
    """Return the partitions of each commit that was sent."""
    return [set(order.offsets) for order in scene.all(CommitOffsets)]


def errors(scene: Scene | classic.ClassicScene) -> dict[TopicPartition, BrokerError | None]:
    """Return the errors of the only commit that has completed."""
    (completed,) = scene.all(CommitCompleted)
    return dict(completed.errors)


# ---- refused --------------------------------------------------------------------------------------------------------


def test_commit_of_a_released_partition_is_refused_at_once() -> None:
    """No request is sent, and the commit ends with ASSIGNMENT_LOST."""
    scene = released().commit(5, A1)
    assert (sent(scene), errors(scene)) == ([], dict.fromkeys(named(A1), ASSIGNMENT_LOST))


def test_commit_of_a_released_and_an_owned_partition_commits_the_owned_one() -> None:
    """The request contains the owned partition; the result has an error for the other one only."""
    scene = released().commit(5, A0, A1).committed()
    assert sent(scene) == [named(A0)]
    assert errors(scene) == dict.fromkeys(named(A0)) | dict.fromkeys(named(A1), ASSIGNMENT_LOST)


def test_commit_of_a_lost_partition_is_refused_while_the_member_joins_again() -> None:
    """After a fence another member may own the partition, also if this member gets it back with its next epoch."""
    scene = fenced().finish().commit(5, A0)
    assert errors(scene) == dict.fromkeys(named(A0), ASSIGNMENT_LOST)
    assert sent(scene.with_heartbeat_in_flight().answer(7, [A0]).settle()) == []


def test_commit_in_the_on_revoke_of_a_leave_that_was_overtaken_by_a_fence_is_refused() -> None:
    """The member is outside its group. A commit without a member id would succeed in an empty group."""
    scene = stable(A0, auto_commit=False).leave().finish().fence().commit(5, A0)
    assert (sent(scene), errors(scene)) == ([], dict.fromkeys(named(A0), ASSIGNMENT_LOST))


def test_commit_after_the_on_lost_of_a_leave_that_was_overtaken_by_a_fence_is_refused() -> None:
    """A worker thread of the application may not know yet that on_lost was called."""
    scene = stable(A0, auto_commit=False).leave().finish().fence().finish().commit(5, A0)
    assert (sent(scene), errors(scene)) == ([], dict.fromkeys(named(A0), ASSIGNMENT_LOST))


def test_commit_of_a_partition_whose_on_assign_ran_before_a_fence_is_refused() -> None:
    """The application may have received records of the partition, because on_assign was ordered."""
    scene = stable(A0).target(2, A0, A1).offsets().fence().finish()
    scene.with_heartbeat_in_flight().answer(7, [A0]).settle().commit(5, A1)
    assert (sent(scene), errors(scene)) == ([], dict.fromkeys(named(A1), ASSIGNMENT_LOST))


# ---- accepted -------------------------------------------------------------------------------------------------------


def test_commit_while_on_revoke_runs_is_sent() -> None:
    """The member owns the partition until it acknowledges the revocation."""
    scene = revoking(auto_commit=False).finish().commit(5, A1)
    assert sent(scene) == [named(A1)]


def test_commit_of_a_regained_partition_is_sent() -> None:
    """The coordinator assigned the partition to this member again, so no other member owns it."""
    scene = released().target(3, A0, A1).settle().commit(5, A1)
    assert sent(scene) == [named(A1)]


def test_commit_of_a_partition_that_returns_is_refused_before_on_assign() -> None:
    """The commit belongs to the earlier assignment; an owner in between may have committed newer offsets."""
    scene = released().target(3, A0, A1).commit(5, A1)
    assert (sent(scene), errors(scene)) == ([], dict.fromkeys(named(A1), ASSIGNMENT_LOST))


def test_commit_inside_the_on_assign_of_a_regained_partition_is_sent() -> None:
    """An application may commit the start of a partition in on_assign."""
    scene = released().target(3, A0, A1).offsets().commit(5, A1)
    assert sent(scene) == [named(A1)]


def test_commit_of_a_partition_that_the_member_never_owned_is_sent() -> None:
    """Programs may commit offsets on behalf of their group; the coordinator decides."""
    assert sent(released().commit(5, B0)) == [named(B0)]


def test_commit_of_a_released_partition_that_is_assigned_manually_is_sent() -> None:
    """The application assigned the partition manually in addition to its subscription."""
    offsets = at(5, A1)
    scene = released()
    scene.feed(ev.CommitRequested(commit_id=1, offsets=offsets, timeout_s=60.0, by_hand=frozenset(offsets)))
    assert sent(scene) == [named(A1)]


def test_commit_of_a_released_partition_is_sent_if_the_configuration_allows_it() -> None:
    """With `allow.commit.revoked` the coordinator decides, as with confluent-kafka."""
    assert sent(released(may_commit_revoked=True).commit(5, A1)) == [named(A1)]


def test_commit_between_on_revoke_and_the_leave_is_sent() -> None:
    """The coordinator assigns a leaving member's partitions to others only after the leave."""
    scene = stable(A0, auto_commit=False).commit(4, A0, commit_id=9).leave().finish().finish().commit(5, A0)
    assert sent(scene) == [named(A0), named(A0)]


def test_commit_after_a_leave_is_sent_without_member() -> None:
    """A consumer outside a group may commit any partition; the coordinator refuses this while the group has members."""
    scene = released().leave().settle().commit(5, A1)
    assert [order.member_id for order in scene.all(CommitOffsets)] == [""]


# ---- the classic protocol -------------------------------------------------------------------------------------------


def late(scene: classic.ClassicScene, *partitions: TopicPartition) -> classic.ClassicScene:
    """A worker thread commits these partitions."""
    return scene.feed(ev.CommitRequested(commit_id=1, offsets=classic.at(5, *partitions), timeout_s=60.0))


def test_classic_commit_of_a_released_partition_is_refused() -> None:
    """A cooperative member released the partition, and its next generation has begun."""
    scene = classic.stable(classic.A0, classic.A1).rebalance().gather(2).share(classic.A0).settle().gather(3)
    scene.share(classic.A0).settle()
    late(scene, classic.A1)
    assert (sent(scene), errors(scene)) == ([], {classic.A1: ASSIGNMENT_LOST})


@pytest.mark.parametrize(
    ("share", "outcome"),
    [(classic.A0, [{classic.A0}]), (classic.A1, [])],
    ids=["assigned again", "assigned to another member"],
)
def test_classic_commit_after_an_eager_revocation_waits_for_the_assignment(
    share: TopicPartition, outcome: list[set[TopicPartition]]
) -> None:
    """An eager member revokes everything before each join; only the assignment shows which partitions it released."""
    scene = classic.stable(classic.A0, assignors=(classic.EAGER,)).rebalance().settle()
    late(scene, classic.A0)
    assert sent(scene) == []
    scene.gather(2).share(share).settle()
    assert sent(scene) == outcome
