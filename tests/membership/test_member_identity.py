"""A member's identity: its id, epoch and instance id, and which requests carry them (M01 to M12)."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.offsets import ASSIGNMENT_LOST
from consumer_membership.membership.states import MemberState
from consumer_membership.types import LEAVE_EPOCH, LeaveOption
from tests.membership.builders import (
    A0,
    A1,
    FENCED_EPOCH,
    GROUP_FULL,
    LOADING,
    Scene,
    fatal,
    fenced,
    joining,
    leaving,
    named,
    stable,
    unsubscribing,
)
from tests.membership.outcomes import errors_of


def test_configured_assignor_is_sent_with_the_join() -> None:
    """M01: The join names the configured remote assignor. Without one, the broker uses its default."""
    assert joining(assignor="range").heartbeats[0].assignor == "range"
    assert joining().heartbeats[0].assignor is None


def test_member_without_instance_id_is_dynamic() -> None:
    """M02: A member without an instance id is dynamic."""
    scene = stable(A0)
    assert (scene.view.instance_id, scene.member.settings.is_static) == (None, False)
    assert {heartbeat.instance_id for heartbeat in scene.heartbeats} == {None}


def test_instance_id_is_sent_with_every_heartbeat() -> None:
    """Every heartbeat of a static member carries the instance id, also the leave (protocol 2.2)."""
    scene = stable(A0, instance_id="i").leave().settle()
    assert {heartbeat.instance_id for heartbeat in scene.heartbeats} == {"i"}


def test_rack_id_is_sent_with_the_join_and_absent_by_default() -> None:
    """M03: The join carries the configured rack; by default there is none."""
    assert joining(rack_id="r1").heartbeats[0].rack_id == "r1"
    assert joining().heartbeats[0].rack_id is None


def test_fence_resets_the_epoch_and_keeps_the_member_id() -> None:
    """M05: A fence resets the epoch to 0 and keeps the member id; the next join owns an empty list."""
    scene = fenced().finish()
    heartbeat = scene.new_heartbeats[0]
    assert (heartbeat.member_id, heartbeat.member_epoch, heartbeat.owned) == ("member-1", 0, frozenset())


def test_repeatedly_fenced_dynamic_member_takes_a_new_id() -> None:
    """A dynamic member that is fenced repeatedly takes a new member id.

    A broker that refuses epoch 0 of a known id would otherwise fence it forever (KAFKA-19233).
    """
    scene = joining()
    for _ in range(3):
        scene.fence()
    assert scene.next_heartbeat().member_id == "member-2"


def test_former_member_id_leaves_the_group() -> None:
    """The member leaves with its former id, whose partitions the broker would otherwise keep until the session ends."""
    scene = joining()
    for _ in range(2):
        scene.fence()
    assert not any(heartbeat.is_leave for heartbeat in scene.heartbeats)
    leaves = [heartbeat for heartbeat in scene.fence().heartbeats if heartbeat.is_leave]
    assert [(heartbeat.member_id, heartbeat.member_epoch) for heartbeat in leaves] == [("member-1", LEAVE_EPOCH)]


def test_repeatedly_fenced_static_member_keeps_its_id() -> None:
    """A static member keeps its id over repeated fences, because the broker identifies the instance by this id."""
    scene = joining(instance_id="i")
    for _ in range(4):
        scene.fence()
    assert scene.next_heartbeat().member_id == "member-1"


def test_repeated_fences_are_spaced_by_a_backoff() -> None:
    """A fenced member rejoins immediately the first time, then after growing backoffs."""
    scene, waited = joining(), []
    for _ in range(3):
        scene.fence()
        fenced_at = scene.now
        scene.with_heartbeat_in_flight()
        waited.append(round(scene.now - fenced_at, 3))
    assert waited == [0.0, 0.2, 0.4]


def test_repeated_epoch_changes_nothing() -> None:
    """M06: A response that repeats the epoch changes nothing visible and does not advance the next heartbeat."""
    scene = stable(A0)
    before = scene.view
    scene.after(5.0).answer(1)
    assert (scene.view.member_epoch, scene.view.owned, scene.view.transitions) == (1, before.owned, before.transitions)


def test_new_epoch_is_sent_with_the_next_commit() -> None:
    """M06: The next commit carries the new epoch."""
    scene = stable(A0).with_heartbeat_in_flight().answer(7).commit(3, A0)
    assert scene.new(CommitOffsets)[0].member_epoch == 7


def test_commit_of_a_fatal_member_fails_with_the_cause() -> None:
    """M07: FATAL ends the epoch for commits: they fail with the cause, and nothing is sent."""
    scene = fatal().commit(3, A0)
    assert (scene.new(CommitOffsets), errors_of(scene)) == ([], {1: GROUP_FULL})


def test_commit_after_the_leave_was_sent_fails() -> None:
    """M08: A commit that is requested after the leave was sent is not sent; it fails when the member has left."""
    scene = leaving().commit(3, A0)
    assert scene.new(CommitOffsets) == []
    assert errors_of(scene.answer(-1)) == {1: ASSIGNMENT_LOST}


def test_view_shows_no_epoch_after_leaving() -> None:
    """M08: A member that has left has no epoch."""
    assert leaving().answer(-1).view.member_epoch == 0


def test_leave_epoch_distinguishes_static_from_dynamic() -> None:
    """M09: A dynamic member leaves with -1, a static one with -2."""
    assert leaving().heartbeats[-1].member_epoch == -1
    assert leaving(instance_id="i").heartbeats[-1].member_epoch == -2


@pytest.mark.parametrize(
    ("instance_id", "option", "epochs"),
    [
        (None, LeaveOption.DEFAULT, [-1]),
        (None, LeaveOption.LEAVE, [-1]),
        (None, LeaveOption.REMAIN, []),
        ("i", LeaveOption.DEFAULT, [-2]),
        ("i", LeaveOption.LEAVE, [-1]),
        ("i", LeaveOption.REMAIN, [-2]),
    ],
)
def test_leave_epoch_of_each_option(instance_id: str | None, option: LeaveOption, epochs: list[int]) -> None:
    """M10, H24: Each leave option has the leave epoch of KIP-1092; a dynamic member that remains sends nothing."""
    scene = stable(A0, instance_id=instance_id).leave(option).settle()
    assert [heartbeat.member_epoch for heartbeat in scene.heartbeats if heartbeat.is_leave] == epochs
    assert scene.state is MemberState.UNSUBSCRIBED


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.REDISCOVER, Verdict.REPORT])
def test_refused_heartbeat_changes_neither_epoch_nor_interval_nor_target(verdict: Verdict) -> None:
    """M11: An error response changes neither epoch nor interval nor target."""
    scene = stable(A0)
    before = scene.view
    after = scene.with_heartbeat_in_flight().reject(verdict, LOADING).view
    assert (after.member_epoch, after.heartbeat_interval_s, after.target, after.owned, after.state) == (
        before.member_epoch,
        before.heartbeat_interval_s,
        before.target,
        before.owned,
        before.state,
    )


def test_view_counts_assigned_partitions() -> None:
    """M12: The view always shows how many partitions are assigned."""
    assert len(Scene().view.owned) == 0
    assert stable(A0, A1).view.owned == dict.fromkeys(named(A0, A1), 1)


def test_view_shows_the_epoch_at_which_each_partition_was_assigned() -> None:
    """A partition keeps the epoch at which it was assigned while the member's own epoch grows (KIP-1251)."""
    scene = stable(A0).target(4, A0, A1).settle()
    assert {p.partition: epoch for p, epoch in scene.view.owned.items()} == {0: 1, 1: 4}


def test_epoch_zero_request_is_full_and_owns_nothing() -> None:
    """Every request at epoch 0, also a repeated one, is complete and owns an empty list, never null."""
    scene = joining().drop().found()
    repeated = scene.next_heartbeat()
    assert [
        (heartbeat.member_epoch, heartbeat.is_full, heartbeat.owned) for heartbeat in (scene.heartbeats[0], repeated)
    ] == [
        (0, True, frozenset()),
        (0, True, frozenset()),
    ]


def test_fence_while_leaving_ends_the_membership_without_an_id_change() -> None:
    """A fence during a leave ends the membership, and the member keeps its id."""
    scene = unsubscribing().with_heartbeat_in_flight().reject(Verdict.REJOIN, FENCED_EPOCH)
    assert (scene.state, scene.view.member_id) == (MemberState.UNSUBSCRIBED, "member-1")
