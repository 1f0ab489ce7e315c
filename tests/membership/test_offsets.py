"""The application's commits and automatic commits (CommitRequestManagerTest; rules 3.6)."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import CollectPositions, CommitCompleted, CommitOffsets, RevokePartitions
from consumer_membership.membership.events import (
    AssignedByHand,
    CommitAnswered,
    CommitFailed,
    CommitVerdict,
    CoordinatorLookupFailed,
    CoordinatorLost,
    PositionsReported,
    SessionTimeoutLearned,
)
from consumer_membership.membership.offsets import ASSIGNMENT_LOST, TIMED_OUT, UNCONFIRMED
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, TopicIdPartition
from tests.membership.builders import (
    A0,
    A1,
    A2,
    LOADING,
    UNKNOWN_MEMBER,
    Scene,
    at,
    joining,
    named,
    revoking,
    stable,
)
from tests.membership.outcomes import errors_of

STALE = BrokerError(code=113, name="STALE_MEMBER_EPOCH")
NOWHERE = BrokerError(code=3, name="UNKNOWN_TOPIC_OR_PARTITION")
UNREACHABLE = BrokerError(code=-195, name="_TRANSPORT", message="No broker can be reached: h:1: connection refused")
TOO_LARGE = BrokerError(code=12, name="OFFSET_METADATA_TOO_LARGE")


def sent(scene: Scene) -> list[CommitOffsets]:
    """Return the OffsetCommit requests that the last event caused."""
    return scene.new(CommitOffsets)


def next_commit(scene: Scene) -> CommitOffsets:
    """Let time pass until the next OffsetCommit, while the member polls and heartbeats as usual."""
    before = len(scene.all(CommitOffsets))
    while len(scene.all(CommitOffsets)) == before:
        deadline = scene.member.next_deadline()
        assert deadline is not None
        scene.now = max(scene.now, deadline)
        scene.poll()
        if scene.new_heartbeats:
            orders = scene.all(CommitOffsets)
            scene.answer()
            if len(scene.all(CommitOffsets)) > len(orders):
                break
    return scene.all(CommitOffsets)[-1]


# ---- the identity in a commit ----


def test_commit_carries_the_member_epoch_and_instance_at_sending() -> None:
    """A commit carries the epoch at which it is sent, not the one at which it was requested."""
    scene = stable(A0, instance_id="i").feed(CoordinatorLost(reason="closed")).commit(5, A0)
    assert sent(scene) == []
    order = sent(scene.found())[0]
    assert (order.offsets, order.member_id, order.member_epoch, order.instance_id) == (at(5, A0), "member-1", 1, "i")


def test_commit_without_membership_carries_no_member() -> None:
    """A consumer that assigns manually commits with an empty member id and epoch -1."""
    order = sent(Scene().commit(5, A0).found())[0]
    assert (order.member_id, order.member_epoch, order.instance_id) == ("", -1, None)


def test_commit_waits_for_the_join() -> None:
    """At epoch 0 no member may commit, so the commit is sent with the first epoch."""
    scene = joining().commit(5, A0)
    assert sent(scene) == []
    assert sent(scene.answer(4, []))[0].member_epoch == 4


def test_commit_waits_for_the_coordinator() -> None:
    """An asynchronous commit is kept until the coordinator is found."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed")).commit(5, A0).after(2.0)
    assert sent(scene) == []
    assert len(sent(scene.found())) == 1


# ---- outcomes ----


def test_committed_offsets_complete_without_error() -> None:
    """A successful commit completes with a result for each partition."""
    scene = stable(A0, A1).commit(5, A0, A1).committed()
    assert scene.new(CommitCompleted) == [
        CommitCompleted(commit_id=1, offsets=at(5, A0, A1), errors=dict.fromkeys(named(A0, A1)))
    ]


def test_empty_commit_completes_without_a_request() -> None:
    """A commit without offsets completes immediately."""
    scene = stable(A0).commit(5)
    assert (scene.kinds, errors_of(scene)) == (["CommitCompleted"], {1: None})


def test_permanent_refusal_completes_with_the_broker_error() -> None:
    """A permanent error completes the commit immediately, with each partition's own error."""
    scene = stable(A0).commit(5, A0).committed(CommitVerdict.FINAL, TOO_LARGE)
    assert errors_of(scene) == {1: TOO_LARGE}


def test_unknown_member_fails_only_the_commit() -> None:
    """UNKNOWN_MEMBER_ID for a commit does not fence the member; the next heartbeat does."""
    scene = stable(A0).commit(5, A0).committed(CommitVerdict.FINAL, UNKNOWN_MEMBER)
    assert (errors_of(scene), scene.state) == ({1: UNKNOWN_MEMBER}, MemberState.STABLE)


def test_partitions_without_an_answer_are_not_committed() -> None:
    """A partition that a final response does not mention is not treated as committed."""
    scene = stable(A0, A1).commit(5, A0, A1)
    partition = next(iter(named(A0)))
    scene.feed(CommitAnswered(commit_id=1, verdict=CommitVerdict.FINAL, errors={partition: None}))
    assert scene.new(CommitCompleted)[0].errors == {partition: None, next(iter(named(A1))): UNCONFIRMED}


def test_retriable_refusal_is_retried_with_growing_backoff() -> None:
    """A commit is retried after 0.1, 0.2 and 0.4 s, and the application receives nothing until it ends."""
    scene, waited = stable(A0).commit(5, A0), []
    for _ in range(3):
        scene.committed(CommitVerdict.RETRY, LOADING)
        refused_at = scene.now
        next_commit(scene)
        waited.append(round(scene.now - refused_at, 3))
    assert (waited, scene.all(CommitCompleted)) == ([0.1, 0.2, 0.4], [])


def test_retry_carries_only_uncommitted_partitions() -> None:
    """A retry does not repeat partitions that are already committed."""
    scene = stable(A0, A1).commit(5, A0, A1)
    errors = dict.fromkeys(named(A0)) | dict.fromkeys(named(A1), LOADING)
    scene.feed(CommitAnswered(commit_id=1, verdict=CommitVerdict.RETRY, errors=errors))
    assert next_commit(scene).offsets == at(5, A1)
    assert errors_of(scene.committed()) == {1: None}


def test_retry_drops_partitions_revoked_since() -> None:
    """A retry drops revoked partitions, because another member may have committed newer offsets."""
    scene = stable(A0, A1).target(2, A0).commit(5, A0, A1)
    order = scene.all(CommitOffsets)[-1]
    scene.finish().finish().committed(CommitVerdict.RETRY, LOADING, order=order)
    assert next_commit(scene).offsets == at(5, A0)
    errors = scene.committed().new(CommitCompleted)[0].errors
    assert errors == dict.fromkeys(named(A0)) | dict.fromkeys(named(A1), ASSIGNMENT_LOST)


def test_commit_without_answer_is_retried_at_the_new_coordinator() -> None:
    """After a broken connection the member looks up the coordinator and repeats the commit."""
    scene = stable(A0).commit(5, A0).feed(CommitFailed(commit_id=1, reason="disconnected"))
    assert scene.kinds == ["FindCoordinator"]
    assert next_commit(scene.found()).offsets == at(5, A0)


def test_commit_with_a_permanent_transport_error_fails() -> None:
    """A transport error that is not retriable fails the commit."""
    scene = stable(A0).commit(5, A0).feed(CommitFailed(commit_id=1, reason="broken", retriable=False))
    assert [error.message for error in errors_of(scene).values() if error] == ["broken"]


@pytest.mark.parametrize("timeout_s", [0.0, 3.0])
def test_commit_fails_at_its_timeout(timeout_s: float) -> None:
    """The caller's timeout limits all attempts together."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    started_at = scene.now
    scene.commit(5, A0, timeout_s=timeout_s).until(lambda s: bool(s.new(CommitCompleted)))
    assert (round(scene.now - started_at, 3), errors_of(scene)) == (timeout_s, {1: TIMED_OUT})


def test_answer_after_the_timeout_changes_nothing() -> None:
    """A commit completes once; a response after its timeout changes nothing."""
    scene = stable(A0).commit(5, A0, timeout_s=1.0).after(1.0)
    assert scene.committed().last == ()


def test_answer_of_an_unknown_commit_changes_nothing() -> None:
    """A response with the number of an unknown commit changes nothing."""
    answer = CommitAnswered(commit_id=99, verdict=CommitVerdict.REDISCOVER, errors={})
    assert stable(A0).feed(answer).last == ()


def test_commit_outside_the_group_fails_at_once() -> None:
    """A fenced member's commit fails with ASSIGNMENT_LOST and is not sent."""
    scene = stable(A0).fence().commit(5, A0)
    assert (errors_of(scene), sent(scene)) == ({1: ASSIGNMENT_LOST}, [])


# ---- a stale epoch ----


def test_stale_commit_is_retried_with_the_next_epoch_at_once() -> None:
    """After STALE_MEMBER_EPOCH the commit waits for the next epoch and is then sent without a backoff."""
    scene = stable(A0).with_heartbeat_in_flight().commit(5, A0).committed(CommitVerdict.STALE_EPOCH, STALE)
    assert sent(scene) == []
    assert [(order.member_epoch, order.offsets) for order in sent(scene.answer(2))] == [(2, at(5, A0))]


def test_stale_commit_is_retried_without_a_new_epoch_after_a_pause() -> None:
    """If no new epoch arrives after STALE_MEMBER_EPOCH, the commit is retried after 0.5 s."""
    scene = stable(A0).commit(5, A0).committed(CommitVerdict.STALE_EPOCH, STALE)
    stale_at = scene.now
    next_commit(scene)
    assert round(scene.now - stale_at, 3) == 0.5


def test_stale_commit_drops_revoked_partitions() -> None:
    """A stale commit drops the partitions that were revoked while it waited.

    If none is left, it ends with ASSIGNMENT_LOST.
    """
    scene = revoking(auto_commit=False).commit(5, A1)
    order = scene.all(CommitOffsets)[-1]
    scene.finish().committed(CommitVerdict.STALE_EPOCH, STALE, order=order)
    scene.finish().with_heartbeat_in_flight().answer(3)
    assert [done.errors for done in scene.all(CommitCompleted)] == [dict.fromkeys(named(A1), ASSIGNMENT_LOST)]
    assert len(scene.all(CommitOffsets)) == 1


def test_stale_commit_fails_after_ten_attempts() -> None:
    """After ten stale attempts the commit completes with the error."""
    scene = stable(A0).commit(5, A0, timeout_s=1000.0)
    tries = 0
    while not scene.new(CommitCompleted):
        tries += 1
        scene.committed(CommitVerdict.STALE_EPOCH, STALE)
        if not scene.new(CommitCompleted):
            next_commit(scene)
    assert (tries, errors_of(scene)) == (10, {1: STALE})


# ---- before a revocation ----


@pytest.mark.parametrize(("verdict", "error"), [(CommitVerdict.RETRY, LOADING), (CommitVerdict.STALE_EPOCH, STALE)])
def test_commit_before_a_revocation_is_retried(verdict: CommitVerdict, error: BrokerError) -> None:
    """A retriable error or a stale epoch repeats the commit, and on_revoke waits for it."""
    scene = revoking().finish(at(5, A1)).committed(verdict, error)
    assert scene.new(RevokePartitions) == []
    assert next_commit(scene).offsets == at(5, A1)
    assert len(scene.committed().new(RevokePartitions)) == 1


def test_commit_to_an_unknown_topic_fails_after_three_attempts() -> None:
    """The member tries three times within 0.3 s, as librdkafka does. A coordinator may not know a new topic yet."""
    scene = stable(A0).commit(5, A0)
    started_at = scene.now
    for _ in range(2):
        scene.committed(CommitVerdict.RETRY_BRIEFLY, NOWHERE)
        assert scene.new(CommitCompleted) == []
        next_commit(scene)
    scene.committed(CommitVerdict.RETRY_BRIEFLY, NOWHERE)
    assert (errors_of(scene), round(scene.now - started_at, 3)) == ({1: NOWHERE}, 0.3)


def test_commit_is_retried_if_another_error_follows_an_unknown_topic() -> None:
    """The commit waits for a coordinator that loads its groups, even after an unknown topic."""
    scene = stable(A0).commit(5, A0)
    for verdict, error in ((CommitVerdict.RETRY_BRIEFLY, NOWHERE), *[(CommitVerdict.RETRY, LOADING)] * 5):
        scene.committed(verdict, error)
        assert scene.new(CommitCompleted) == []
        next_commit(scene)


# ---- without a coordinator ----


def absent(scene: Scene) -> Scene:
    """Report that no broker can be reached any more."""
    return scene.feed(CoordinatorLost(reason="closed")).feed(CoordinatorLookupFailed(error=UNREACHABLE, is_final=False))


@pytest.mark.parametrize(("session_s", "expected"), [(None, 45.0), (6.0, 6.0)])
def test_commit_waits_for_a_coordinator_as_long_as_the_session_lasts(session_s: float | None, expected: float) -> None:
    """The commit fails when the session has ended, because then its partitions may belong to another member.

    The error has librdkafka's code and names the cause.
    """
    scene = absent(stable(A0).feed(SessionTimeoutLearned(session_timeout_s=session_s)))
    started_at = scene.now
    scene.commit(5, A0).until(lambda s: bool(s.new(CommitCompleted)))
    error = errors_of(scene)[1]
    assert (round(scene.now - started_at, 3), error and error.code) == (expected, -180)
    assert "connection refused" in str(error)


def test_commit_without_membership_waits_for_a_coordinator_for_the_default_session() -> None:
    """A consumer without a session waits as long as the default session timeout."""
    scene = Scene().commit(5, A0)
    started_at = scene.now
    scene.feed(CoordinatorLookupFailed(error=UNREACHABLE, is_final=False)).until(lambda s: bool(s.new(CommitCompleted)))
    assert round(scene.now - started_at, 3) == 45.0


def test_commit_keeps_waiting_after_the_lookup_error_is_over() -> None:
    """The error of an earlier coordinator lookup does not limit the next one."""
    scene = (
        absent(stable(A0)).commit(5, A0).found().feed(CoordinatorLost(reason="closed")).after(44.0).poll().after(10.0)
    )
    assert (scene.context.coordinator.last_error, scene.new(CommitCompleted)) == (None, [])


def test_commit_without_answer_fails_with_the_last_reason() -> None:
    """If a known coordinator does not respond in time, the commit's error names the last failure."""
    scene = stable(A0).commit(5, A0, timeout_s=1.0)
    scene.feed(CommitFailed(commit_id=1, reason="h:9092: no answer within 10 s")).after(1.0)
    (error,) = errors_of(scene).values()
    assert error is not None
    assert (error.code, error.message) == (
        TIMED_OUT.code,
        "the commit was not answered in time: h:9092: no answer within 10 s",
    )


def test_commit_before_a_revocation_stops_after_three_retries() -> None:
    """A coordinator that is not ready delays a rebalance by three retries at most."""
    scene = revoking().finish(at(5, A1))
    tries = 0
    while not scene.new(RevokePartitions):
        tries += 1
        scene.committed(CommitVerdict.RETRY, LOADING)
        if not scene.new(RevokePartitions):
            next_commit(scene)
    assert tries == 4


def test_commit_before_a_revocation_does_not_wait_for_other_commits() -> None:
    """Neither the application's nor the interval's commit in flight delays the commit before a revocation."""
    scene = revoking().commit(3, A0).finish(at(5, A1))
    assert [order.offsets for order in sent(scene)] == [at(5, A1)]


# ---- on the interval ----


def interval(scene: Scene, *partitions: TopicIdPartition, offset: int = 5) -> Scene:
    """Let the interval pass, and report these positions."""
    number = request_for_positions(scene)
    return scene.feed(PositionsReported(commit_id=number, offsets=at(offset, *partitions)))


def request_for_positions(scene: Scene) -> int:
    """Let the interval pass until the member requests positions; return the number of the commit."""
    while not scene.new(CollectPositions):
        deadline = scene.member.next_deadline()
        assert deadline is not None
        scene.now = max(scene.now, deadline)
        scene.poll()
        if scene.new_heartbeats and not scene.new(CollectPositions):
            scene.answer()
    return scene.new(CollectPositions)[0].commit_id


def test_positions_are_committed_on_the_interval() -> None:
    """After auto.commit.interval.ms the member requests the application's positions and commits them with its epoch."""
    scene = stable(A0)
    started_at = scene.now
    order = sent(interval(scene, A0))[0]
    assert (round(scene.now - started_at, 3), order.offsets, order.member_epoch, order.commit_id < 0) == (
        5.0,
        at(5, A0),
        1,
        True,
    )


def test_without_positions_nothing_is_committed() -> None:
    """Empty positions send no request; the next interval follows."""
    scene = stable(A0)
    assert interval(scene).last == ()
    assert interval(scene.after(0.0), A0).new(CommitOffsets)[0].offsets == at(5, A0)


@pytest.mark.parametrize("delivered_meanwhile", [False, True])
def test_interval_pauses_until_another_record_is_delivered(*, delivered_meanwhile: bool) -> None:
    """An idle application receives no request for positions, unless a record was delivered while it reported them."""
    scene = stable(A0, auto_commit_interval_s=4.0)
    number = request_for_positions(scene)
    if delivered_meanwhile:
        scene.poll(delivered=True)
    scene.feed(PositionsReported(commit_id=number, offsets={}, until_next_record=True))
    for _ in range(10):
        scene.after(1.0).poll()
        if scene.new_heartbeats:
            scene.answer()
    assert len(scene.all(CollectPositions)) == 1 + delivered_meanwhile


def test_delivered_record_begins_the_interval_again() -> None:
    """The record's position is committed one interval after its delivery."""
    scene = stable(A0)
    number = request_for_positions(scene)
    scene.feed(PositionsReported(commit_id=number, offsets={}, until_next_record=True)).after(20.0)
    delivered_at = scene.poll(delivered=True).now
    assert sent(interval(scene, A0))[0].offsets == at(5, A0)
    assert round(scene.now - delivered_at, 3) == 5.0


def test_positions_have_one_request_in_flight() -> None:
    """The member does not request positions again before the application has reported them."""
    scene = stable(A0)
    for _ in range(30):
        scene.after(1.0).poll()
        if scene.new_heartbeats:
            scene.answer()
    assert len(scene.all(CollectPositions)) == 1


def test_interval_commit_has_one_request_in_flight() -> None:
    """The next interval commit is not sent before the coordinator has responded to the last one."""
    scene = interval(stable(A0, auto_commit_interval_s=1.0), A0)
    before = len(scene.all(CollectPositions))
    for _ in range(20):
        scene.after(0.5).poll()
    assert len(scene.all(CollectPositions)) == before
    assert len(scene.committed(order=scene.all(CommitOffsets)[-1]).new(CollectPositions)) == 1


def test_refused_interval_commit_does_not_stop_the_next() -> None:
    """A stale epoch or a permanent error ends one interval commit, and the next interval commits again."""
    scene = interval(stable(A0), A0).committed(CommitVerdict.FINAL, STALE)
    assert sent(interval(scene, A0, offset=9))[0].offsets == at(9, A0)


def test_positions_with_another_number_are_dropped() -> None:
    """A report with an unexpected number commits nothing."""
    scene = interval(stable(A0), A0)
    number = scene.all(CollectPositions)[-1].commit_id
    assert scene.feed(PositionsReported(commit_id=number, offsets=at(1, A0))).last == ()


def test_interval_restarts_after_a_reconciliation() -> None:
    """The interval restarts after a reconciliation, because the revocation has just committed."""
    scene = stable(A0).after(3.0).target(2, A0, A2).settle()
    settled_at = scene.now
    interval(scene, A0)
    assert round(scene.now - settled_at, 3) == 5.0


@pytest.mark.parametrize("build", [stable, lambda: stable(A0, auto_commit=False)], ids=["nothing held", "off"])
def test_interval_commits_nothing_without_partitions_or_auto_commit(build: object) -> None:
    """Without partitions, or with enable.auto.commit=false, the member does not request positions."""
    scene: Scene = build()  # type: ignore[operator]  # one of the two above
    for _ in range(20):
        scene.after(1.0).poll()
    assert scene.all(CollectPositions) == []


def test_manually_assigned_partitions_are_committed_on_the_interval() -> None:
    """Without a membership the interval runs as long as the application holds partitions."""
    scene = Scene().feed(AssignedByHand(holds=True)).found()
    assert sent(interval(scene, A0))[0].member_epoch == -1
    scene.committed().feed(AssignedByHand(holds=False))
    assert scene.member.next_deadline() is None


def test_manual_unassign_keeps_the_interval_of_the_group() -> None:
    """Partitions that the group assigned are still committed on the interval."""
    scene = stable(A0).feed(AssignedByHand(holds=False))
    assert len(sent(interval(scene, A0))) == 1


def test_interval_ends_with_the_membership() -> None:
    """A member that has left has nothing to commit."""
    scene = stable(A0).leave().settle()
    assert scene.member.next_deadline() is None
