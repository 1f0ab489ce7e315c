"""Leaving: the member releases its partitions, sends one leave and waits a bounded time (M100 to M111)."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import (
    CommitCompleted,
    CommitOffsets,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RaiseToApplication,
    RevokePartitions,
)
from consumer_membership.membership.events import (
    CommitVerdict,
    CoordinatorLookupFailed,
    CoordinatorLost,
    HeartbeatFailed,
    LeaveRequested,
    Verdict,
)
from consumer_membership.membership.leave import LEAVE_ANSWER_S
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, LeaveOption
from tests.membership.builders import (
    A0,
    A1,
    GROUP_FULL,
    GROUP_GONE,
    LOADING,
    MOVED,
    NOT_ALLOWED,
    UNKNOWN_MEMBER,
    Scene,
    at,
    fatal,
    fenced,
    joining,
    leaving,
    named,
    stable,
    stale,
    unsubscribing,
)
from tests.membership.outcomes import errors_of

S = MemberState
DONE = [LeaveCompleted()]


def test_stable_member_revokes_leaves_and_is_unsubscribed() -> None:
    """M100: The callbacks run, then the leave with -1 is sent, and its response makes the member UNSUBSCRIBED."""
    scene = stable(A0).leave().finish(at(3, A0)).committed().finish()
    assert (scene.state, scene.new_heartbeats[0].member_epoch, scene.new(LeaveCompleted)) == (S.UNSUBSCRIBING, -1, [])
    scene.answer(-1)
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBED, ["StateChanged", "LeaveCompleted"])


def test_leave_pauses_commits_and_revokes() -> None:
    """M101: A leave pauses, commits and revokes all partitions, in this order."""
    scene = stable(A0, A1).leave()
    assert scene.new(PausePartitions)[0].partitions is None
    assert scene.finish(at(3, A0)).new(CommitOffsets)[0].offsets == at(3, A0)
    assert scene.committed().new(RevokePartitions)[0].partitions is None


def test_leave_is_sent_after_on_revoke_raised() -> None:
    """M101: A member whose on_revoke raises still leaves the group."""
    scene = unsubscribing().finish().finish(failed=True)
    assert (scene.new_heartbeats[0].is_leave, scene.owned) == (True, frozenset())


def test_second_leave_changes_nothing() -> None:
    """M102: A repeated leave has one set of callbacks, one leave heartbeat and one completion."""
    scene = unsubscribing()
    assert scene.leave().last == ()
    scene.finish().finish().leave().answer(-1)
    assert (
        len(scene.all(RevokePartitions)),
        [heartbeat.member_epoch for heartbeat in scene.heartbeats if heartbeat.is_leave],
    ) == (1, [-1])
    assert scene.all(LeaveCompleted) == DONE


@pytest.mark.parametrize(
    ("verdict", "error"), [(Verdict.REJOIN, UNKNOWN_MEMBER), (Verdict.GROUP_GONE, GROUP_GONE)], ids=["member", "group"]
)
def test_leave_is_repeated_if_a_sent_join_has_no_answer(verdict: Verdict, error: BrokerError) -> None:
    """M111: An unanswered join may arrive after the leave, so a member that is reported as unknown leaves once more."""
    scene = joining().drop().found().leave()
    assert scene.new_heartbeats[0].is_leave
    assert scene.reject(verdict, error).new(LeaveCompleted) == []
    assert scene.until(lambda scene: bool(scene.new_heartbeats)).new_heartbeats[0].is_leave
    assert scene.answer(-1).new(LeaveCompleted) == DONE


def test_repeated_leave_completes_in_time() -> None:
    """M111: Repeated leaves take no longer than the wait for the response to a single leave."""
    scene = joining().drop().found().leave()
    since = scene.now
    while not scene.new(LeaveCompleted):
        if scene.new_heartbeats:
            scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)
        else:
            scene.until(lambda scene: bool(scene.last))
    assert scene.now - since == LEAVE_ANSWER_S
    assert 3 < sum(heartbeat.is_leave for heartbeat in scene.heartbeats) < 30


@pytest.mark.parametrize("is_sent", [True, False])
def test_leave_is_repeated_only_after_a_join_that_was_sent(is_sent: bool) -> None:  # noqa: FBT001
    """M111: A join that was withdrawn before it was written creates no member, so an unknown member has left."""
    scene = joining()
    join = scene.request_id
    scene.leave().feed(HeartbeatFailed(request_id=join, reason="withdrawn", is_sent=is_sent))
    assert (scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER).new(LeaveCompleted) == DONE) is not is_sent


@pytest.mark.parametrize("scene", [stable(A0), unsubscribing()], ids=["first", "during a leave"])
def test_leave_at_once_waits_for_no_callback_and_no_commit(scene: Scene) -> None:
    """An application whose close() was interrupted runs no callbacks, so the leave is sent without them."""
    scene.commit(3, A0).feed(LeaveRequested(at_once=True))
    assert [heartbeat.member_epoch for heartbeat in scene.new_heartbeats] == [-1]
    assert scene.answer(-1).new(LeaveCompleted) == DONE


def test_leave_at_once_is_sent_once() -> None:
    """A leave in flight is not repeated, and the member waits for its response."""
    scene = leaving().feed(LeaveRequested(at_once=True))
    assert (scene.new_heartbeats, scene.new(LeaveCompleted)) == ([], [])
    assert scene.answer(-1).new(LeaveCompleted) == DONE


def test_leave_after_an_answered_join_is_not_repeated() -> None:
    """M111: After the response to a join no join is in flight."""
    scene = joining().answer(1, []).leave().settle()
    scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, sum(heartbeat.is_leave for heartbeat in scene.heartbeats)) == (S.UNSUBSCRIBED, 1)


def test_leave_outside_the_group_completes_at_once() -> None:
    """M103: Nothing is sent, and the leave completes immediately."""
    assert Scene().leave().last == (LeaveCompleted(),)
    assert leaving().answer(-1).leave().last == (LeaveCompleted(),)


def test_fenced_member_that_leaves_does_not_rejoin() -> None:
    """M104: A FENCED member becomes UNSUBSCRIBED immediately.

    The end of on_lost changes nothing, and no heartbeat is sent.
    """
    scene = fenced().leave()
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBED, ["StateChanged", "LeaveCompleted"])
    scene.finish()
    assert (scene.state, scene.last) == (S.UNSUBSCRIBED, ())
    assert scene.poll().last == ()


def test_fenced_member_that_left_and_subscribed_joins_after_on_lost() -> None:
    """M104: A new subscription joins at a poll as soon as on_lost of the old membership has ended."""
    scene = fenced().leave().subscribe("orders").poll()
    assert scene.state is S.UNSUBSCRIBED
    assert scene.finish().poll().state is S.JOINING


def test_stale_member_leaves_without_a_heartbeat() -> None:
    """M105: A STALE member has already sent its leave, so unsubscribe() completes immediately."""
    scene = stale()
    before = len(scene.heartbeats)
    assert (scene.leave().new(LeaveCompleted), scene.state) == (DONE, S.UNSUBSCRIBED)
    assert (scene.finish().poll().state, len(scene.heartbeats)) == (S.UNSUBSCRIBED, before)


def test_answered_leave_completes() -> None:
    """M106: The coordinator's response completes the leave."""
    assert leaving().answer(-1).new(LeaveCompleted) == DONE


@pytest.mark.parametrize("error", [UNKNOWN_MEMBER, GROUP_GONE, LOADING, MOVED, GROUP_FULL], ids=lambda e: e.name)
@pytest.mark.parametrize("verdict", Verdict)
def test_refused_leave_completes(verdict: Verdict, error: BrokerError) -> None:
    """M107, H34: Any error response completes the leave, also UNKNOWN_MEMBER_ID, and nothing is raised."""
    scene = leaving().reject(verdict, error)
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBED, ["StateChanged", "LeaveCompleted"])


@pytest.mark.parametrize("retriable", [True, False])
def test_leave_with_a_broken_connection_completes(retriable: bool) -> None:  # noqa: FBT001
    """M107: A leave whose connection breaks is not repeated."""
    scene = leaving().drop(retriable=retriable)
    assert (scene.state, scene.new(LeaveCompleted), scene.new_heartbeats) == (S.UNSUBSCRIBED, DONE, [])


def test_leave_without_an_answer_completes_in_time() -> None:
    """M107: The member waits 5 s for the response to a leave."""
    scene = leaving()
    sent_at = scene.now
    scene.until(lambda s: s.state is S.UNSUBSCRIBED)
    assert (round(scene.now - sent_at, 3), scene.new(LeaveCompleted)) == (5.0, DONE)


@pytest.mark.parametrize(
    "build", [lambda: leaving().answer(-1), fenced, stale, fatal], ids=["left", "fenced", "stale", "fatal"]
)
def test_late_heartbeat_answer_outside_the_group_is_ignored(build: object) -> None:
    """M108: A response in UNSUBSCRIBED, FENCED, STALE or FATAL changes nothing."""
    scene: Scene = build()  # type: ignore[operator]  # one of the four above
    before = scene.view
    scene.answer(9, [A1])
    assert (scene.last, scene.view) == ((), before)


def test_late_leave_answer_does_not_affect_a_member_that_rejoined() -> None:
    """M109: The old leave's -1 does not become the epoch of the new membership (KAFKA-19335)."""
    scene = leaving()
    leave = scene.request_id
    scene.drop().subscribe("orders").poll().answer(-1, request_id=leave)
    assert (scene.state, scene.last, scene.view.member_epoch) == (S.JOINING, (), 0)


def test_new_target_is_ignored_while_leaving() -> None:
    """M110: A leaving member ignores new assignments, but adopts the epoch for its commits."""
    scene = stable(A0).with_heartbeat_in_flight().leave()
    scene.answer(6, [A0, A1])
    assert (scene.state, scene.view.target, scene.view.member_epoch) == (S.UNSUBSCRIBING, named(A0), 6)
    assert scene.finish(at(3, A0)).new(CommitOffsets)[0].member_epoch == 6


def test_leaving_member_heartbeats_while_its_callbacks_run() -> None:
    """A leaving member heartbeats on the interval with its current epoch until its leave is sent."""
    scene = unsubscribing()
    epochs = []
    for _ in range(3):
        epochs.append(scene.next_heartbeat().member_epoch)
        scene.answer()
    assert epochs == [1, 1, 1]


def test_member_that_sent_no_join_leaves_without_a_request() -> None:
    """A member that has not sent its join completes a leave without a request."""
    scene = Scene().subscribe("orders").poll().leave()
    assert (scene.state, scene.kinds, scene.heartbeats) == (
        S.UNSUBSCRIBED,
        ["StateChanged", "StateChanged", "LeaveCompleted"],
        [],
    )


def test_member_whose_join_is_in_flight_sends_a_leave() -> None:
    """The client creates the member id, so a leave before the join's response leaves no stale member (KIP-1082)."""
    scene = joining().leave()
    assert (scene.state, scene.new_heartbeats[0].member_epoch, scene.new_steps) == (S.UNSUBSCRIBING, -1, [])


def test_leave_is_sent_while_another_heartbeat_is_in_flight() -> None:
    """H21: The leave does not wait for a heartbeat in flight, whose response then changes nothing."""
    scene = stable(A0).with_heartbeat_in_flight()
    ordinary = scene.request_id
    scene.leave().finish().finish()
    assert scene.new_heartbeats[0].is_leave
    assert scene.answer(1, [A0, A1], request_id=ordinary).last == ()
    assert scene.state is S.UNSUBSCRIBING


def test_leave_waits_for_commits_of_the_membership() -> None:
    """The coordinator accepts no commits after the leave, so the leave waits for commits requested before it."""
    scene = stable(A0).commit(7, A0).leave().finish().finish()
    assert scene.new_heartbeats == []
    assert (scene.committed().new_heartbeats[0].is_leave, errors_of(scene)) == (True, {1: None})


def test_commit_that_is_retried_while_leaving_keeps_its_partitions() -> None:
    """No other member owns the partitions before the leave, so a retried commit still contains them."""
    scene = stable(A0).commit(7, A0).leave().finish().finish().committed(CommitVerdict.RETRY, LOADING)
    scene.until(lambda s: bool(s.new(CommitOffsets)))
    assert scene.new(CommitOffsets)[0].offsets == at(7, A0)


def test_leave_waits_a_bounded_time_for_commits() -> None:
    """The leave waits for an unanswered commit for `leave_timeout_s` at most."""
    scene = stable(A0, leave_timeout_s=3.0).commit(7, A0).leave()
    asked_at = scene.now
    scene.finish().finish().until(lambda s: any(heartbeat.is_leave for heartbeat in s.new_heartbeats))
    assert round(scene.now - asked_at, 3) == 3.0


def test_leave_without_coordinator_completes_in_time() -> None:
    """H23: The member searches for the coordinator during `leave_timeout_s`.

    If it is not found, the group removes the member when its session ends.
    """
    scene = stable(A0, leave_timeout_s=3.0)
    scene.feed(CoordinatorLost(reason="closed")).leave()
    asked_at = scene.now
    scene.finish().finish().until(lambda s: s.state is S.UNSUBSCRIBED)
    assert (round(scene.now - asked_at, 3), scene.new(LeaveCompleted), scene.new_heartbeats) == (3.0, DONE, [])


def test_leave_is_sent_as_soon_as_the_coordinator_is_found() -> None:
    """H23: If the coordinator is found in time, the leave is sent immediately."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed")).leave().finish().finish()
    assert scene.found().new_heartbeats[0].is_leave


def test_leave_does_not_wait_after_a_refused_lookup() -> None:
    """A member that may not look up the coordinator does not wait for it (KAFKA-19300)."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed")).leave().finish().finish()
    scene.feed(CoordinatorLookupFailed(error=NOT_ALLOWED))
    assert (scene.state, scene.new(LeaveCompleted)) == (S.UNSUBSCRIBED, DONE)


UNREACHABLE = BrokerError(code=-195, name="_TRANSPORT", message="No broker can be reached: h:1: connection refused")


def unreachable(scene: Scene) -> Scene:
    """Report that no broker can be reached any more."""
    return scene.feed(CoordinatorLost(reason="closed")).feed(CoordinatorLookupFailed(error=UNREACHABLE, is_final=False))


def leave_duration_s(scene: Scene) -> float:
    """Return how many seconds pass until the leave has completed."""
    started_at = scene.now
    scene.until(lambda s: bool(s.new(LeaveCompleted)))
    return round(scene.now - started_at, 3)


def test_leave_waits_one_second_for_unreachable_brokers() -> None:
    """If no broker can be reached and nothing has to be committed, closing takes one second."""
    scene = unreachable(stable(A0)).leave().finish().finish()
    assert (leave_duration_s(scene), scene.state, scene.all(CommitCompleted)) == (1.0, S.UNSUBSCRIBED, [])


def test_leave_waits_its_full_timeout_for_a_broker_that_answers() -> None:
    """If a broker responds but does not know the coordinator yet, the full timeout applies."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    scene.feed(CoordinatorLookupFailed(error=LOADING, is_final=False)).leave().finish().finish()
    assert leave_duration_s(scene) == 10.0


@pytest.mark.parametrize(("since_s", "expected"), [(0.0, 10.0), (6.0, 4.0), (60.0, 1.0)])
def test_commit_in_a_leave_counts_how_long_the_brokers_were_unreachable_before(since_s: float, expected: float) -> None:
    """The commit waits until ten seconds after the loss of the brokers, and at least one second.

    Then it fails with the cause, and the leave ends.
    """
    scene = unreachable(stable(A0)).after(since_s).leave().finish(at(3, A0))
    started_at = scene.now
    scene.until(lambda s: bool(s.new(CommitCompleted)))
    (error,) = scene.new(CommitCompleted)[0].errors.values()
    assert (round(scene.now - started_at, 3), error and error.name) == (expected, "_WAIT_COORD")
    assert "connection refused" in str(error)
    scene.finish()
    assert leave_duration_s(scene) == 0.0


def test_group_not_found_while_leaving_ends_the_membership() -> None:
    """H34: GROUP_ID_NOT_FOUND completes the leave, and nothing is raised."""
    scene = unsubscribing().with_heartbeat_in_flight().reject(Verdict.GROUP_GONE, GROUP_GONE)
    assert (scene.state, scene.new(LeaveCompleted), scene.new(RaiseToApplication)) == (S.UNSUBSCRIBED, DONE, [])


def test_dynamic_member_that_remains_revokes_its_partitions_and_sends_nothing() -> None:
    """H24: REMAIN ends the membership in the client only."""
    scene = stable(A0).leave(LeaveOption.REMAIN).finish().finish()
    assert (scene.state, scene.new(LeaveCompleted), scene.new_heartbeats) == (S.UNSUBSCRIBED, DONE, [])


def test_subscribe_during_a_leave_joins_after_it() -> None:
    """subscribe() and poll() during a leave take effect: the first poll after the leave joins."""
    scene = unsubscribing().subscribe("orders").poll().finish().finish().answer(-1)
    assert scene.state is S.UNSUBSCRIBED
    assert scene.poll().state is S.JOINING


def test_each_partition_ends_in_one_callback() -> None:
    """A partition that was revoked is not lost as well when the leave fails."""
    scene = leaving().drop()
    assert (len(scene.all(RevokePartitions)), scene.all(LosePartitions)) == (1, [])
    assert [done.errors for done in scene.all(CommitCompleted)] == []
