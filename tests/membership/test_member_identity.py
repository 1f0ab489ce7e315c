"""Who a member is: its id, its epoch, its instance id, and who is told of them (M01 to M12)."""

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


def test_configured_assignor_goes_with_the_join() -> None:
    """M01: a configured remote assignor is stated, without one the broker's default is taken."""
    assert joining(assignor="range").beats[0].assignor == "range"
    assert joining().beats[0].assignor is None


def test_member_without_instance_id_is_dynamic() -> None:
    """M02: without an instance id the member is dynamic, and nothing fails."""
    scene = stable(A0)
    assert (scene.view.instance_id, scene.member.settings.is_static) == (None, False)
    assert {beat.instance_id for beat in scene.beats} == {None}


def test_instance_id_goes_with_every_heartbeat() -> None:
    """The instance id is in every heartbeat of a static member, the leave too (protocol 2.2)."""
    scene = stable(A0, instance_id="i").leave().settle()
    assert {beat.instance_id for beat in scene.beats} == {"i"}


def test_rack_id_goes_with_the_join_and_is_absent_by_default() -> None:
    """M03: a configured rack is stated in the join; the default is none."""
    assert joining(rack_id="r1").beats[0].rack_id == "r1"
    assert joining().beats[0].rack_id is None


def test_fence_resets_the_epoch_and_keeps_the_member_id() -> None:
    """M05: a fence sets the epoch to 0; the member id stays, and the owner of nothing says so."""
    scene = fenced().finish()
    beat = scene.new_beats[0]
    assert (beat.member_id, beat.member_epoch, beat.owned) == ("member-1", 0, frozenset())


def test_repeatedly_fenced_dynamic_member_takes_a_new_id() -> None:
    """A broker that refuses epoch 0 of an id it still knows does not fence a member for ever (KAFKA-19233)."""
    scene = joining()
    for _ in range(3):
        scene.fence()
    assert scene.next_beat().member_id == "member-2"


def test_former_member_id_leaves() -> None:
    """The broker that still knows it would keep its partitions for it until its session ends."""
    scene = joining()
    for _ in range(2):
        scene.fence()
    assert not any(beat.is_leave for beat in scene.beats)
    leaves = [beat for beat in scene.fence().beats if beat.is_leave]
    assert [(beat.member_id, beat.member_epoch) for beat in leaves] == [("member-1", LEAVE_EPOCH)]


def test_repeatedly_fenced_static_member_keeps_its_id() -> None:
    """A static member's id is what the broker knows its instance by."""
    scene = joining(instance_id="i")
    for _ in range(4):
        scene.fence()
    assert scene.next_beat().member_id == "member-1"


def test_repeated_fences_are_spaced_by_a_backoff() -> None:
    """The first rejoin comes at once, the second and third after growing pauses: no fence storm."""
    scene, waited = joining(), []
    for _ in range(3):
        scene.fence()
        fenced_at = scene.now
        scene.in_touch()
        waited.append(round(scene.now - fenced_at, 3))
    assert waited == [0.0, 0.2, 0.4]


def test_same_epoch_twice_is_one_change() -> None:
    """M06: an answer that repeats the epoch changes nothing that anybody sees, nor hurries the next heartbeat."""
    scene = stable(A0)
    before = scene.view
    scene.after(5.0).answer(1)
    assert (scene.view.member_epoch, scene.view.owned, scene.view.transitions) == (1, before.owned, before.transitions)


def test_new_epoch_reaches_the_next_commit() -> None:
    """M06: an epoch that changed is what the next commit carries."""
    scene = stable(A0).in_touch().answer(7).commit(3, A0)
    assert scene.new(CommitOffsets)[0].member_epoch == 7


def test_nothing_is_committed_as_a_fatally_refused_member() -> None:
    """M07: FATAL ends the epoch for commits: they fail with the cause, and nothing is sent."""
    scene = fatal().commit(3, A0)
    assert (scene.new(CommitOffsets), errors_of(scene)) == ([], {1: GROUP_FULL})


def test_nothing_is_committed_after_the_leave_was_sent() -> None:
    """M08: with the leave on its way the epoch is over: a commit is not sent, and fails when the member left."""
    scene = leaving().commit(3, A0)
    assert scene.new(CommitOffsets) == []
    assert errors_of(scene.answer(-1)) == {1: ASSIGNMENT_LOST}


def test_view_shows_no_epoch_after_leaving() -> None:
    """M08: who has left has no epoch."""
    assert leaving().answer(-1).view.member_epoch == 0


def test_leave_epoch_tells_static_from_dynamic() -> None:
    """M09: a dynamic member leaves with -1, a static one with -2."""
    assert leaving().beats[-1].member_epoch == -1
    assert leaving(instance_id="i").beats[-1].member_epoch == -2


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
    """M10, H24: KIP-1092's table of leave epochs; a dynamic member that remains sends nothing."""
    scene = stable(A0, instance_id=instance_id).leave(option).settle()
    assert [beat.member_epoch for beat in scene.beats if beat.is_leave] == epochs
    assert scene.state is MemberState.UNSUBSCRIBED


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.REDISCOVER, Verdict.REPORT])
def test_refused_heartbeat_changes_neither_epoch_nor_interval_nor_target(verdict: Verdict) -> None:
    """M11: an error answer is never read as a success."""
    scene = stable(A0)
    before = scene.view
    after = scene.in_touch().reject(verdict, LOADING).view
    assert (after.member_epoch, after.heartbeat_interval_s, after.target, after.owned, after.state) == (
        before.member_epoch,
        before.heartbeat_interval_s,
        before.target,
        before.owned,
        before.state,
    )


def test_view_counts_assigned_partitions() -> None:
    """M12: how many partitions are assigned can be read, at any time."""
    assert len(Scene().view.owned) == 0
    assert stable(A0, A1).view.owned == dict.fromkeys(named(A0, A1), 1)


def test_view_tells_the_epoch_at_which_each_partition_was_taken() -> None:
    """A partition keeps the epoch it was taken at while the member's own grows (KIP-1251)."""
    scene = stable(A0).target(4, A0, A1).settle()
    assert {p.partition: epoch for p, epoch in scene.view.owned.items()} == {0: 1, 1: 4}


def test_epoch_zero_request_is_full_and_owns_nothing() -> None:
    """Every epoch-0 request is complete and owns an empty list, never null (also the repeated one)."""
    scene = joining().drop().found()
    repeated = scene.next_beat()
    assert [(beat.member_epoch, beat.is_full, beat.owned) for beat in (scene.beats[0], repeated)] == [
        (0, True, frozenset()),
        (0, True, frozenset()),
    ]


def test_fence_while_leaving_ends_the_membership_without_an_id_change() -> None:
    """The id is kept over leave and fence: the process has one."""
    scene = unsubscribing().in_touch().reject(Verdict.REJOIN, FENCED_EPOCH)
    assert (scene.state, scene.view.member_id) == (MemberState.UNSUBSCRIBED, "member-1")
