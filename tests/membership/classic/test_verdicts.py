"""What the coordinator's errors do in each state (rules 4.7; the words of rules 5.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.types import BrokerError, LeaveOption, Subscription, TopicPartition
from tests.membership.classic.scene import (
    A0,
    A1,
    COORDINATOR,
    EAGER,
    MAX_POLL_S,
    OLD_GENERATION,
    REBALANCING,
    UNKNOWN,
    ClassicScene,
    Plan,
    at,
    joining,
    stable,
)

S = ClassicState
V = ex.ClassicVerdict

FENCED = BrokerError(code=82, name="FENCED_INSTANCE_ID")
FULL = BrokerError(code=81, name="GROUP_MAX_SIZE_REACHED")
LOADING = BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS")
ID_REQUIRED = BrokerError(code=79, name="MEMBER_ID_REQUIRED")
BROKEN = BrokerError(code=-150, name="_FATAL", message="ZeroDivisionError")
ME = {"m": MemberSubscription(topics=frozenset({"a"}))}


def said(scene: ClassicScene) -> tuple[str, set[object], int]:
    """Member id, owned partitions and generation of the latest JoinGroup."""
    ((_, words),) = scene.join.protocols
    return scene.join.member_id, set(words.owned), words.generation


def committing(scene: ClassicScene) -> ef.CommitOffsets:
    """The application commits; what goes out."""
    return scene.feed(ev.CommitRequested(commit_id=1, offsets=at(5, A0), timeout_s=60.0)).all(ef.CommitOffsets)[-1]


def refused(commit: ef.CommitOffsets, membership: V, error: BrokerError) -> ex.ClassicCommitAnswered:
    """The coordinator refuses this commit."""
    errors: dict[object, BrokerError | None] = dict.fromkeys(commit.offsets, error)
    answer = ev.CommitAnswered(commit_id=commit.commit_id, verdict=ev.CommitVerdict.FINAL, errors=errors)  # type: ignore[arg-type]  # partitions
    return ex.ClassicCommitAnswered(answer=answer, membership=membership)


# ---- sync -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "error", "member_id"), [(V.REJOIN, UNKNOWN, ""), (V.REJOIN_KEEP_ID, OLD_GENERATION, "m")]
)
def test_sync_that_is_refused_loses_what_a_cooperative_member_holds(
    verdict: V, error: BrokerError, member_id: str
) -> None:
    """Rules 5.6: sync illegal generation keeps the id, unknown member does not; lost, not revoked; then the join."""
    scene = stable(A0).rebalance().gather(2).sync_rejected(verdict, error)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    scene.finish()
    assert (scene.state, said(scene)) == (S.JOINING, (member_id, set(), -1))


def test_fenced_instance_in_join_and_in_sync_is_the_end() -> None:
    """Rules 5.6: fatal, always."""
    assert joining(instance_id="i").join_rejected(V.FATAL, FENCED).state is S.FATAL
    scene = stable(A0, instance_id="i").rebalance().gather(2).sync_rejected(V.FATAL, FENCED)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "LosePartitions"])


def test_full_group_is_the_end_at_once() -> None:
    """C19, KIP-389: the excess member fails; nothing is sent any more."""
    scene = joining().join_rejected(V.FATAL, FULL)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication"])
    assert scene.after(100.0).poll().kinds == []


def test_ownership_keeps_the_generation_of_its_share() -> None:
    """KIP-792: a JoinGroup without a SyncGroup makes nothing newer; else an old claim would beat or void a good one."""
    scene = stable(A0).rebalance().gather(2).sync_rejected(V.REJOIN_NOW, REBALANCING)
    assert (scene.protocol.generation, said(scene)) == (2, ("m", {A0}, 1))
    scene.gather(3).share(A0).settle()
    assert said(scene.rebalance()) == ("m", {A0}, 3)


def test_lost_share_is_not_remembered() -> None:
    """KIP-54: what was lost is nobody's former assignment, also after a join that led nowhere."""
    scene = stable(A0, assignors=(EAGER,)).beat_rejected(V.REJOIN, UNKNOWN).finish().gather(7)
    scene.sync_rejected(V.REJOIN_NOW, REBALANCING)
    ((_, words),) = scene.join.protocols
    assert (words.user_data, words.generation) == (b"['a'] 0 -1", -1)


def test_member_id_that_is_required_twice_is_no_storm() -> None:
    """No coordinator does that; the next JoinGroup waits for a backoff."""
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    scene.join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "other")
    assert (scene.state, scene.new(ex.SendJoin)) == (S.JOINING, [])
    assert [join.member_id for join in scene.after(0.2).new(ex.SendJoin)] == ["given"]


# ---- heartbeats -----------------------------------------------------------------------------------------------------


def leading() -> ClassicScene:
    """SYNCING: the assignor computes."""
    return joining().gather(1, leads=True, members=ME).described(a=1)


STATES: dict[str, Callable[[], ClassicScene]] = {
    "preparing": lambda: stable(A0, assignors=(EAGER,)).rebalance(),
    "syncing": lambda: joining().gather(1),
    "leading": leading,
    "reconcile": lambda: joining().gather(1).share(A0),
    "stable": lambda: stable(A0),
    "unsubscribing": lambda: stable(A0).leave(),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("verdict", [V.RETRY, V.REDISCOVER, V.REJOIN_LATER])
def test_heartbeat_that_is_refused_for_a_while_moves_nothing(name: str, verdict: V) -> None:
    """Rules 4.7: the heartbeat is repeated; what goes on, goes on, the leader's computation too."""
    scene = STATES[name]()
    state, joins = scene.state, len(scene.all(ex.SendJoin))
    scene.beat_rejected(verdict, LOADING)
    assert (scene.state, len(scene.all(ex.SendJoin)), scene.member.last_error) == (state, joins, LOADING)
    assert scene.context.coordinator.is_known is (verdict is not V.REDISCOVER)


@pytest.mark.parametrize("name", ["preparing", "syncing", "unsubscribing"])
def test_rebalance_is_ignored_while_one_is_under_way(name: str) -> None:
    """Rules 5.6: rebalance in progress is ignored while rebalancing."""
    scene = STATES[name]()
    state, joins = scene.state, len(scene.all(ex.SendJoin))
    assert (scene.rebalance().state, len(scene.all(ex.SendJoin))) == (state, joins)


def test_leader_that_hears_of_a_rebalance_stops_computing() -> None:
    """Its SyncGroup would be refused; a late result is dropped."""
    scene = leading().rebalance()
    assert scene.state is S.JOINING
    scene.computed(m=[A0])
    assert (scene.state, scene.all(ex.SendSync)) == (S.JOINING, [])


@pytest.mark.parametrize("name", STATES)
def test_unknown_member_is_out_in_every_state(name: str) -> None:
    """Rules 4.7: on_lost where something is held; then a join without an id, or the end of the leave."""
    scene = STATES[name]().beat_rejected(V.REJOIN, UNKNOWN)
    if scene.state is S.FENCED or scene.new(ef.LosePartitions):
        scene.finish()
    expected = S.UNSUBSCRIBED if name == "unsubscribing" else S.JOINING
    assert (scene.state, scene.protocol.member_id, scene.protocol.generation) == (expected, "", -1)


@pytest.mark.parametrize("name", STATES)
def test_fenced_instance_is_the_end_in_every_state(name: str) -> None:
    """KIP-345; a leave that is under way is over with it."""
    scene = STATES[name]().beat_rejected(V.FATAL, FENCED)
    assert (scene.state, bool(scene.new(ef.LeaveCompleted))) == (S.FATAL, name == "unsubscribing")


# ---- commits --------------------------------------------------------------------------------------------------------


def test_commit_of_a_fenced_instance_is_the_end() -> None:
    """Rules 5.6: FENCED_INSTANCE_ID, same generation; the commit's error first, then the member's."""
    scene = stable(A0, instance_id="i")
    scene.feed(refused(committing(scene), V.FATAL, FENCED))
    assert scene.kinds == ["CommitCompleted", "RaiseToApplication", "LosePartitions"]
    assert scene.state is S.FATAL


def test_commit_of_an_older_generation_is_no_verdict() -> None:
    """Rules 5.6: FENCED_INSTANCE_ID, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, new generation: the heartbeat will say."""
    scene = stable(A0, instance_id="i")
    commit = committing(scene)
    scene.rebalance().gather(2).share(A0).settle().feed(refused(commit, V.FATAL, FENCED))
    assert (scene.state, scene.kinds) == (S.STABLE, ["CommitCompleted", "SendClassicHeartbeat"])


@pytest.mark.parametrize(
    ("verdict", "error"), [(V.REJOIN, UNKNOWN), (V.REJOIN_KEEP_ID, OLD_GENERATION), (V.REJOIN_NOW, REBALANCING)]
)
def test_what_a_commit_says_of_the_membership_is_asked_of_a_heartbeat_at_once(verdict: V, error: BrokerError) -> None:
    """Rules 5.6: the commit fails with its error; a heartbeat, whose number is known, moves the member."""
    scene = stable(A0)
    scene.feed(refused(committing(scene), verdict, error))
    assert (scene.state, scene.kinds) == (S.STABLE, ["CommitCompleted", "SendClassicHeartbeat"])
    assert set(scene.new(ef.CommitCompleted)[0].errors.values()) == {error}


@pytest.mark.parametrize(("verdict", "error"), [(V.REJOIN_KEEP_ID, OLD_GENERATION), (V.REJOIN_NOW, REBALANCING)])
@pytest.mark.parametrize("gathers_first", [False, True], ids=["before it gathers", "after it has gathered"])
def test_commit_that_a_rebalance_overtook_is_made_by_the_next_generation(
    verdict: V,
    error: BrokerError,
    gathers_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Rules 5.6: ILLEGAL_GENERATION and REBALANCE_IN_PROGRESS, new generation; the member still has the partition."""
    scene = stable(A0)
    commit = committing(scene)
    scene.rebalance()
    scene = scene.gather(2).feed(refused(commit, verdict, error)) if gathers_first else scene
    scene = scene if gathers_first else scene.feed(refused(commit, verdict, error)).gather(2)
    assert scene.all(ef.CommitCompleted) == []
    scene.share(A0)
    assert [(one.member_epoch, one.offsets) for one in scene.all(ef.CommitOffsets)] == [
        (1, commit.offsets),
        (2, commit.offsets),
    ]


def test_commit_that_a_rebalance_overtook_is_over_where_the_partition_is_gone() -> None:
    """An eager member has given everything up: the next generation may be somebody else's."""
    scene = stable(A0, assignors=(EAGER,))
    commit = committing(scene)
    scene.rebalance().settle().feed(refused(commit, V.REJOIN_KEEP_ID, OLD_GENERATION))
    assert [set(done.errors.values()) for done in scene.all(ef.CommitCompleted)] == [{OLD_GENERATION}]


# ---- subscriptions, polls, leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gathers_first", [False, True], ids=["while joining", "while syncing"])
def test_subscription_that_changes_during_a_rebalance_is_told_in_the_next_one(gathers_first: bool) -> None:  # noqa: FBT001 - a parameter
    """C10: nothing is forgotten that was said while a request was out."""
    scene = joining()
    scene = scene.gather(1).subscribe("a", "b") if gathers_first else scene.subscribe("a", "b").gather(1)
    scene.share(A0).settle()
    assert (scene.state, scene.join.protocols[0][1].topics, scene.join.reason) == (
        S.JOINING,
        {"a", "b"},
        "the subscription changed",
    )


IN_GROUP: dict[str, Callable[..., ClassicScene]] = {
    "preparing": lambda **s: stable(A0, assignors=(EAGER,), **s).rebalance(),
    "joining": lambda **s: stable(A0, **s).rebalance(),
    "syncing": lambda **s: stable(A0, **s).rebalance().gather(2),
    "reconcile": lambda **s: stable(A0, **s).rebalance().gather(2).share(A0, A1),
    "stable": lambda **s: stable(A0, **s),
}


@pytest.mark.parametrize("name", IN_GROUP)
@pytest.mark.parametrize("instance_id", [None, "i"])
def test_missed_poll_in_every_state(name: str, instance_id: str | None) -> None:
    """C01: lost, and out; a dynamic member leaves, a static one keeps place and id; the next poll comes back."""
    scene = IN_GROUP[name](instance_id=instance_id).after(MAX_POLL_S)
    assert (scene.state, len(scene.all(ex.SendClassicLeave))) == (S.STALE, 0 if instance_id else 1)
    scene.finish()
    assert (scene.state, said(scene)) == (S.JOINING, ("m" if instance_id else "", set(), -1))


def test_late_answers_find_a_stale_member_unmoved() -> None:
    """The JoinGroup that was out is answered after the poll was missed."""
    scene = stable(A0).rebalance().after(MAX_POLL_S).gather(2)
    assert (scene.state, scene.protocol.generation) == (S.STALE, -1)


def test_second_leave_changes_nothing() -> None:
    """M102: one LeaveCompleted, with the first one's option."""
    scene = stable(A0).leave().leave(LeaveOption.REMAIN).finish().settle()
    assert (len(scene.all(ex.SendClassicLeave)), scene.all(ef.LeaveCompleted)) == (1, [])
    scene.feed(ex.ClassicLeft(request_id=scene.all(ex.SendClassicLeave)[-1].request_id, error=UNKNOWN))
    assert (scene.state, len(scene.all(ef.LeaveCompleted))) == (S.UNSUBSCRIBED, 1)


# ---- leading --------------------------------------------------------------------------------------------------------


def test_leader_whose_topic_disappears_makes_the_group_rebalance() -> None:
    """Rules 5.6: topic disappears."""
    scene = joining(classic={"session_timeout_s": 1e6}, max_poll_interval_s=1e6).gather(1, leads=True, members=ME)
    scene.described(a=1).computed(m=[A0]).share(A0).settle().after(301.0).described()
    assert (scene.state, scene.join.reason) == (S.JOINING, "the leader's topics have changed")


def test_leader_that_cannot_see_the_topics_asks_again() -> None:
    """Metadata failed: the group waits, the view says why."""
    scene = joining().gather(1, leads=True, members=ME)
    asked = scene.all(ex.DescribeTopics)[-1].request_id
    scene.feed(ex.TopicsNotDescribed(request_id=asked, error=LOADING))
    assert (scene.state, scene.member.last_error, scene.new(ex.DescribeTopics)) == (S.SYNCING, LOADING, [])
    assert len(scene.after(0.2).new(ex.DescribeTopics)) == 1


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_leader_whose_assignor_raises_leaves_a_static_one_too(instance_id: str | None) -> None:
    """It is FATAL, so that another one must lead: the others wait for its SyncGroup."""
    scene = joining(instance_id=instance_id).gather(1, leads=True, members=ME).described(a=1)
    scene.feed(ex.AssignmentFailed(generation=1, error=BROKEN))
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication"])


def test_deadline_that_has_come_is_never_named_again() -> None:
    """A leader whose look at the topics falls into a JoinGroup must not make its driver spin."""
    scene = joining(max_poll_interval_s=1e6).gather(1, leads=True, members=ME)
    scene.described(a=1).computed(m=[A0]).share(A0).settle().rebalance().after(1000.0)
    deadline = scene.member.next_deadline()
    assert deadline is not None
    assert deadline > scene.now


@dataclass(frozen=True)
class Broken(Plan):
    """An assignor whose user data cannot be had; `gives` None: it raises."""

    gives: object = None

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        del topics, owned, generation
        if self.gives is None:
            raise KeyError("the lag")
        return self.gives  # type: ignore[return-value]  # what a user may write


@pytest.mark.parametrize(
    ("broken", "words"),
    [(Broken(), "KeyError: 'the lag'"), (Broken(gives="text"), "it gave 'text'; give bytes, or None")],
)
def test_assignor_whose_user_data_fails_ends_the_member_with_the_reason(broken: Plan, words: str) -> None:
    """A user's own code may raise anything: the application is told, by the assignor's name, and no thread ends."""
    scene = ClassicScene(broken)
    scene.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"a"}))))
    scene.poll().feed(ev.CoordinatorFound(coordinator=COORDINATOR))
    (told,) = scene.all(ef.RaiseToApplication)
    assert (scene.state, told.problem) == (ClassicState.FATAL, ef.Problem.FATAL)
    assert told.error.message == f"user_data() of the assignor 'plan' failed: {words}"
    assert scene.all(ex.SendJoin) == []
