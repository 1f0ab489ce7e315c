"""Commits, the application's and the automatic ones (CommitRequestManagerTest; rules 3.6)."""

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
    """The commits that the last event had."""
    return scene.new(CommitOffsets)


def next_commit(scene: Scene) -> CommitOffsets:
    """Let time pass until the next OffsetCommit, the member polling and heartbeating as it should."""
    before = len(scene.all(CommitOffsets))
    while len(scene.all(CommitOffsets)) == before:
        deadline = scene.member.next_deadline()
        assert deadline is not None
        scene.now = max(scene.now, deadline)
        scene.poll()
        if scene.new_beats:
            orders = scene.all(CommitOffsets)
            scene.answer()
            if len(scene.all(CommitOffsets)) > len(orders):
                break
    return scene.all(CommitOffsets)[-1]


# ---- who commits ----


def test_commit_carries_member_epoch_and_instance_of_the_moment_it_is_sent() -> None:
    """The last epoch is stamped, not that of the request's making."""
    scene = stable(A0, instance_id="i").feed(CoordinatorLost(reason="closed")).commit(5, A0)
    assert sent(scene) == []
    order = sent(scene.found())[0]
    assert (order.offsets, order.member_id, order.member_epoch, order.instance_id) == (at(5, A0), "member-1", 1, "i")


def test_commit_without_membership_carries_no_member() -> None:
    """A consumer that assigns by hand commits with the empty id and epoch -1."""
    order = sent(Scene().commit(5, A0).found())[0]
    assert (order.member_id, order.member_epoch, order.instance_id) == ("", -1, None)


def test_commit_waits_for_the_join() -> None:
    """At epoch 0 nobody may commit: it is sent with the first epoch."""
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
    """Each partition is answered for."""
    scene = stable(A0, A1).commit(5, A0, A1).committed()
    assert scene.new(CommitCompleted) == [
        CommitCompleted(commit_id=1, offsets=at(5, A0, A1), errors=dict.fromkeys(named(A0, A1)))
    ]


def test_empty_commit_sends_nothing_and_is_over() -> None:
    """Nothing to commit is done at once."""
    scene = stable(A0).commit(5)
    assert (scene.kinds, errors_of(scene)) == (["CommitCompleted"], {1: None})


def test_final_refusal_completes_with_the_broker_error() -> None:
    """What is final is told at once, for each partition its own."""
    scene = stable(A0).commit(5, A0).committed(CommitVerdict.FINAL, TOO_LARGE)
    assert errors_of(scene) == {1: TOO_LARGE}


def test_unknown_member_fails_the_commit_and_not_the_membership() -> None:
    """UNKNOWN_MEMBER_ID for a commit does not fence; the heartbeat will."""
    scene = stable(A0).commit(5, A0).committed(CommitVerdict.FINAL, UNKNOWN_MEMBER)
    assert (errors_of(scene), scene.state) == ({1: UNKNOWN_MEMBER}, MemberState.STABLE)


def test_partitions_without_an_answer_are_not_committed() -> None:
    """What a final answer does not mention is never read as success."""
    scene = stable(A0, A1).commit(5, A0, A1)
    partition = next(iter(named(A0)))
    scene.feed(CommitAnswered(commit_id=1, verdict=CommitVerdict.FINAL, errors={partition: None}))
    assert scene.new(CommitCompleted)[0].errors == {partition: None, next(iter(named(A1))): UNCONFIRMED}


def test_retriable_refusal_is_retried_after_a_growing_backoff() -> None:
    """0.1, 0.2, 0.4 s; the application learns nothing meanwhile."""
    scene, waited = stable(A0).commit(5, A0), []
    for _ in range(3):
        scene.committed(CommitVerdict.RETRY, LOADING)
        refused_at = scene.now
        next_commit(scene)
        waited.append(round(scene.now - refused_at, 3))
    assert (waited, scene.all(CommitCompleted)) == ([0.1, 0.2, 0.4], [])


def test_retry_carries_only_what_is_not_committed_yet() -> None:
    """A partition that was committed is not committed again."""
    scene = stable(A0, A1).commit(5, A0, A1)
    errors = dict.fromkeys(named(A0)) | dict.fromkeys(named(A1), LOADING)
    scene.feed(CommitAnswered(commit_id=1, verdict=CommitVerdict.RETRY, errors=errors))
    assert next_commit(scene).offsets == at(5, A1)
    assert errors_of(scene.committed()) == {1: None}


def test_retry_drops_what_was_revoked_meanwhile() -> None:
    """Another member may have committed further: an old offset must not come after."""
    scene = stable(A0, A1).target(2, A0).commit(5, A0, A1)
    order = scene.all(CommitOffsets)[-1]
    scene.finish().finish().committed(CommitVerdict.RETRY, LOADING, order=order)
    assert next_commit(scene).offsets == at(5, A0)
    errors = scene.committed().new(CommitCompleted)[0].errors
    assert errors == dict.fromkeys(named(A0)) | dict.fromkeys(named(A1), ASSIGNMENT_LOST)


def test_commit_without_answer_is_retried_at_the_coordinator_that_is_found() -> None:
    """A broken connection: look up, then again."""
    scene = stable(A0).commit(5, A0).feed(CommitFailed(commit_id=1, reason="disconnected"))
    assert scene.kinds == ["FindCoordinator"]
    assert next_commit(scene.found()).offsets == at(5, A0)


def test_commit_that_the_transport_refuses_for_good_fails() -> None:
    """What no retry mends ends the commit."""
    scene = stable(A0).commit(5, A0).feed(CommitFailed(commit_id=1, reason="broken", retriable=False))
    assert [error.message for error in errors_of(scene).values() if error] == ["broken"]


@pytest.mark.parametrize("timeout_s", [0.0, 3.0])
def test_commit_is_given_up_when_its_time_is_over(timeout_s: float) -> None:
    """The caller's timeout bounds all tries together."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    begun = scene.now
    scene.commit(5, A0, timeout_s=timeout_s).until(lambda s: bool(s.new(CommitCompleted)))
    assert (round(scene.now - begun, 3), errors_of(scene)) == (timeout_s, {1: TIMED_OUT})


def test_answer_after_the_timeout_changes_nothing() -> None:
    """A commit is over once."""
    scene = stable(A0).commit(5, A0, timeout_s=1.0).after(1.0)
    assert scene.committed().last == ()


def test_answer_of_an_unknown_commit_changes_nothing() -> None:
    """Nobody waits for it."""
    answer = CommitAnswered(commit_id=99, verdict=CommitVerdict.REDISCOVER, errors={})
    assert stable(A0).feed(answer).last == ()


def test_commit_in_a_silent_state_fails_at_once() -> None:
    """A fenced member's commit ends with ASSIGNMENT_LOST, and nothing is sent."""
    scene = stable(A0).fence().commit(5, A0)
    assert (errors_of(scene), sent(scene)) == ({1: ASSIGNMENT_LOST}, [])


# ---- a stale epoch ----


def test_stale_commit_is_retried_with_the_next_epoch_at_once() -> None:
    """STALE_MEMBER_EPOCH waits for the next epoch, and not for a backoff once it is there."""
    scene = stable(A0).in_touch().commit(5, A0).committed(CommitVerdict.STALE_EPOCH, STALE)
    assert sent(scene) == []
    assert [(order.member_epoch, order.offsets) for order in sent(scene.answer(2))] == [(2, at(5, A0))]


def test_stale_commit_is_retried_after_a_while_without_a_new_epoch() -> None:
    """An epoch that came before the answer is not waited for again."""
    scene = stable(A0).commit(5, A0).committed(CommitVerdict.STALE_EPOCH, STALE)
    stale_at = scene.now
    next_commit(scene)
    assert round(scene.now - stale_at, 3) == 0.5


def test_stale_commit_drops_revoked_partitions() -> None:
    """What was revoked while the commit waited is dropped from it; with nothing left it ends as lost."""
    scene = revoking(auto_commit=False).commit(5, A1)
    order = scene.all(CommitOffsets)[-1]
    scene.finish().committed(CommitVerdict.STALE_EPOCH, STALE, order=order)
    scene.finish().in_touch().answer(3)
    assert [done.errors for done in scene.all(CommitCompleted)] == [dict.fromkeys(named(A1), ASSIGNMENT_LOST)]
    assert len(scene.all(CommitOffsets)) == 1


def test_stale_commit_is_bounded() -> None:
    """Ten times, then the application learns of it."""
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
    """Retriable errors and a stale epoch are tried again; on_revoke waits meanwhile."""
    scene = revoking().finish(at(5, A1)).committed(verdict, error)
    assert scene.new(RevokePartitions) == []
    assert next_commit(scene).offsets == at(5, A1)
    assert len(scene.committed().new(RevokePartitions)) == 1


def test_commit_of_partitions_that_do_not_exist_ends_soon() -> None:
    """Three tries within 0.3 s, as librdkafka: a coordinator that has not heard of a new topic yet is given that."""
    scene = stable(A0).commit(5, A0)
    begun = scene.now
    for _ in range(2):
        scene.committed(CommitVerdict.RETRY_BRIEFLY, NOWHERE)
        assert scene.new(CommitCompleted) == []
        next_commit(scene)
    scene.committed(CommitVerdict.RETRY_BRIEFLY, NOWHERE)
    assert (errors_of(scene), round(scene.now - begun, 3)) == ({1: NOWHERE}, 0.3)


def test_commit_that_meets_worse_than_an_unknown_topic_goes_on() -> None:
    """A coordinator that loads its groups is waited for, whatever else it said before."""
    scene = stable(A0).commit(5, A0)
    for verdict, error in ((CommitVerdict.RETRY_BRIEFLY, NOWHERE), *[(CommitVerdict.RETRY, LOADING)] * 5):
        scene.committed(verdict, error)
        assert scene.new(CommitCompleted) == []
        next_commit(scene)


# ---- without a coordinator ----


def absent(scene: Scene) -> Scene:
    """No broker can be reached any more."""
    return scene.feed(CoordinatorLost(reason="closed")).feed(CoordinatorLookupFailed(error=UNREACHABLE, is_final=False))


@pytest.mark.parametrize(("session_s", "expected"), [(None, 45.0), (6.0, 6.0)])
def test_commit_waits_for_a_coordinator_as_long_as_the_session_lasts(session_s: float | None, expected: float) -> None:
    """Afterwards its partitions are another's; the error has librdkafka's code and names the cause."""
    scene = absent(stable(A0).feed(SessionTimeoutLearned(session_timeout_s=session_s)))
    begun = scene.now
    scene.commit(5, A0).until(lambda s: bool(s.new(CommitCompleted)))
    error = errors_of(scene)[1]
    assert (round(scene.now - begun, 3), error and error.code) == (expected, -180)
    assert "connection refused" in str(error)


def test_commit_of_no_member_waits_for_a_coordinator_no_longer() -> None:
    """It has no session of its own: the usual one counts."""
    scene = Scene().commit(5, A0)
    begun = scene.now
    scene.feed(CoordinatorLookupFailed(error=UNREACHABLE, is_final=False)).until(lambda s: bool(s.new(CommitCompleted)))
    assert round(scene.now - begun, 3) == 45.0


def test_commit_waits_on_where_the_cause_is_gone() -> None:
    """What kept the coordinator from being found says nothing about the next search."""
    scene = (
        absent(stable(A0)).commit(5, A0).found().feed(CoordinatorLost(reason="closed")).after(44.0).poll().after(10.0)
    )
    assert (scene.context.coordinator.last_error, scene.new(CommitCompleted)) == (None, [])


def test_commit_that_gets_no_answer_ends_with_the_reason() -> None:
    """The coordinator is known, and silent: the time is over, and what happened last is named."""
    scene = stable(A0).commit(5, A0, timeout_s=1.0)
    scene.feed(CommitFailed(commit_id=1, reason="h:9092: no answer within 10 s")).after(1.0)
    (error,) = errors_of(scene).values()
    assert error is not None
    assert (error.code, error.message) == (
        TIMED_OUT.code,
        "the commit was not answered in time: h:9092: no answer within 10 s",
    )


def test_commit_before_a_revocation_gives_up_on_what_does_not_mend() -> None:
    """A coordinator that is not ready must not hold a rebalance up: three tries."""
    scene = revoking().finish(at(5, A1))
    tries = 0
    while not scene.new(RevokePartitions):
        tries += 1
        scene.committed(CommitVerdict.RETRY, LOADING)
        if not scene.new(RevokePartitions):
            next_commit(scene)
    assert tries == 4


def test_commit_before_a_revocation_does_not_wait_for_others() -> None:
    """Neither the application's commit nor the interval's in flight holds it up."""
    scene = revoking().commit(3, A0).finish(at(5, A1))
    assert [order.offsets for order in sent(scene)] == [at(5, A1)]


# ---- on the interval ----


def interval(scene: Scene, *partitions: TopicIdPartition, offset: int = 5) -> Scene:
    """Let the interval pass, and report these positions."""
    while not scene.new(CollectPositions):
        deadline = scene.member.next_deadline()
        assert deadline is not None
        scene.now = max(scene.now, deadline)
        scene.poll()
        if scene.new_beats and not scene.new(CollectPositions):
            scene.answer()
    number = scene.new(CollectPositions)[0].commit_id
    return scene.feed(PositionsReported(commit_id=number, offsets=at(offset, *partitions)))


def test_positions_are_committed_on_the_interval() -> None:
    """After auto.commit.interval.ms the application is asked for its positions, which are committed as the member's."""
    scene = stable(A0)
    begun = scene.now
    order = sent(interval(scene, A0))[0]
    assert (round(scene.now - begun, 3), order.offsets, order.member_epoch, order.commit_id < 0) == (
        5.0,
        at(5, A0),
        1,
        True,
    )


def test_without_positions_nothing_is_committed() -> None:
    """Empty offsets are no request; the next interval follows."""
    scene = stable(A0)
    assert interval(scene).last == ()
    assert interval(scene.after(0.0), A0).new(CommitOffsets)[0].offsets == at(5, A0)


def test_positions_are_asked_for_once_at_a_time() -> None:
    """An application that does not answer is not asked again."""
    scene = stable(A0)
    for _ in range(30):
        scene.after(1.0).poll()
        if scene.new_beats:
            scene.answer()
    assert len(scene.all(CollectPositions)) == 1


def test_one_interval_commit_is_in_flight() -> None:
    """A slow coordinator is not sent the next one before it answered."""
    scene = interval(stable(A0, auto_commit_interval_s=1.0), A0)
    before = len(scene.all(CollectPositions))
    for _ in range(20):
        scene.after(0.5).poll()
    assert len(scene.all(CollectPositions)) == before
    assert len(scene.committed(order=scene.all(CommitOffsets)[-1]).new(CollectPositions)) == 1


def test_refused_interval_commit_does_not_stop_the_next() -> None:
    """A stale or final refusal ends that commit; the interval goes on."""
    scene = interval(stable(A0), A0).committed(CommitVerdict.FINAL, STALE)
    assert sent(interval(scene, A0, offset=9))[0].offsets == at(9, A0)


def test_positions_of_another_interval_are_dropped() -> None:
    """A report whose number is not awaited commits nothing."""
    scene = interval(stable(A0), A0)
    number = scene.all(CollectPositions)[-1].commit_id
    assert scene.feed(PositionsReported(commit_id=number, offsets=at(1, A0))).last == ()


def test_interval_counts_anew_after_a_reconciliation() -> None:
    """What was just committed for a revocation is not committed again at once."""
    scene = stable(A0).after(3.0).target(2, A0, A2).settle()
    settled_at = scene.now
    interval(scene, A0)
    assert round(scene.now - settled_at, 3) == 5.0


@pytest.mark.parametrize("build", [stable, lambda: stable(A0, auto_commit=False)], ids=["nothing held", "off"])
def test_nothing_is_committed_on_the_interval(build: object) -> None:
    """No partitions, or enable.auto.commit=false: the application is not asked."""
    scene: Scene = build()  # type: ignore[operator]  # one of the two above
    for _ in range(20):
        scene.after(1.0).poll()
    assert scene.all(CollectPositions) == []


def test_partitions_assigned_by_hand_are_committed_on_the_interval() -> None:
    """Without a group membership the interval runs as long as the application holds something."""
    scene = Scene().feed(AssignedByHand(holds=True)).found()
    assert sent(interval(scene, A0))[0].member_epoch == -1
    scene.committed().feed(AssignedByHand(holds=False))
    assert scene.member.next_deadline() is None


def test_giving_up_partitions_by_hand_keeps_the_interval_of_the_group() -> None:
    """What the group assigned is still committed."""
    scene = stable(A0).feed(AssignedByHand(holds=False))
    assert len(sent(interval(scene, A0))) == 1


def test_interval_ends_with_the_membership() -> None:
    """A member that left holds nothing to commit."""
    scene = stable(A0).leave().settle()
    assert scene.member.next_deadline() is None
