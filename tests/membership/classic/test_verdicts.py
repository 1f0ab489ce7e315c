"""The effect of each coordinator error in each state (rules 4.7, in the terms of rules 5.6)."""

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


def sent(scene: ClassicScene) -> tuple[str, set[object], int]:
    """Return member id, owned partitions and generation of the latest JoinGroup."""
    ((_, subscription),) = scene.join.protocols
    return scene.join.member_id, set(subscription.owned), subscription.generation


def committing(scene: ClassicScene) -> ef.CommitOffsets:
    """The application commits; return the request."""
    return scene.feed(ev.CommitRequested(commit_id=1, offsets=at(5, A0), timeout_s=60.0)).all(ef.CommitOffsets)[-1]


def refused(commit: ef.CommitOffsets, membership: V, error: BrokerError) -> ex.ClassicCommitAnswered:
    """Return the coordinator's refusal of this commit."""
    errors: dict[object, BrokerError | None] = dict.fromkeys(commit.offsets, error)
    answer = ev.CommitAnswered(commit_id=commit.commit_id, verdict=ev.CommitVerdict.FINAL, errors=errors)  # type: ignore[arg-type]  # partitions
    return ex.ClassicCommitAnswered(answer=answer, membership=membership)


# ---- sync -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "error", "member_id"), [(V.REJOIN, UNKNOWN, ""), (V.REJOIN_KEEP_ID, OLD_GENERATION, "m")]
)
def test_refused_sync_loses_the_partitions_of_a_cooperative_member(
    verdict: V, error: BrokerError, member_id: str
) -> None:
    """Rules 5.6: ILLEGAL_GENERATION for a sync keeps the member id, UNKNOWN_MEMBER_ID does not.

    Partitions are lost, not revoked, before the join.
    """
    scene = stable(A0).rebalance().gather(2).sync_rejected(verdict, error)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    scene.finish()
    assert (scene.state, sent(scene)) == (S.JOINING, (member_id, set(), -1))


def test_refused_generation_of_a_join_drops_the_owned_partitions_and_keeps_the_member_id() -> None:
    """KIP-792: ILLEGAL_GENERATION for a JoinGroup keeps the member id; the next JoinGroup claims no partition.

    If the coordinator refuses that one also, the member waits for a backoff.
    """
    scene = stable(A0).rebalance()
    assert sent(scene) == ("m", {A0}, 1)
    scene.join_rejected(V.REJOIN_KEEP_ID, OLD_GENERATION)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    scene.finish()
    assert (scene.state, sent(scene)) == (S.JOINING, ("m", set(), -1))
    assert scene.join_rejected(V.REJOIN_KEEP_ID, OLD_GENERATION).new(ex.SendJoin) == []
    assert [join.member_id for join in scene.after(0.2).new(ex.SendJoin)] == ["m"]


def test_fenced_instance_in_join_and_sync_is_fatal() -> None:
    """Rules 5.6: FENCED_INSTANCE_ID is always fatal."""
    assert joining(instance_id="i").join_rejected(V.FATAL, FENCED).state is S.FATAL
    scene = stable(A0, instance_id="i").rebalance().gather(2).sync_rejected(V.FATAL, FENCED)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "LosePartitions"])


def test_full_group_is_fatal_at_once() -> None:
    """C19, KIP-389: GROUP_MAX_SIZE_REACHED is fatal, and the member sends nothing more."""
    scene = joining().join_rejected(V.FATAL, FULL)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication"])
    assert scene.after(100.0).poll().kinds == []


def test_ownership_keeps_the_generation_of_its_assignment() -> None:
    """KIP-792: A JoinGroup without a SyncGroup does not renew a claim.

    A renewed old claim could invalidate a valid one.
    """
    scene = stable(A0).rebalance().gather(2).sync_rejected(V.REJOIN_NOW, REBALANCING)
    assert (scene.protocol.generation, sent(scene)) == (2, ("m", {A0}, 1))
    scene.gather(3).share(A0).settle()
    assert sent(scene.rebalance()) == ("m", {A0}, 3)


def test_lost_assignment_is_not_in_the_user_data() -> None:
    """KIP-54: A lost assignment is not a former assignment, also after a join that failed."""
    scene = stable(A0, assignors=(EAGER,)).heartbeat_rejected(V.REJOIN, UNKNOWN).finish().gather(7)
    scene.sync_rejected(V.REJOIN_NOW, REBALANCING)
    ((_, subscription),) = scene.join.protocols
    assert (subscription.user_data, subscription.generation) == (b"['a'] 0 -1", -1)


def test_member_id_required_twice_waits_for_a_backoff() -> None:
    """A coordinator that requires a member id twice causes no join storm."""
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    scene.join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "other")
    assert (scene.state, scene.new(ex.SendJoin)) == (S.JOINING, [])
    assert [join.member_id for join in scene.after(0.2).new(ex.SendJoin)] == ["given"]


# ---- heartbeats -----------------------------------------------------------------------------------------------------


def leading() -> ClassicScene:
    """SYNCING, while the assignor computes."""
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
def test_retriable_heartbeat_error_changes_no_state(name: str, verdict: V) -> None:
    """Rules 4.7: The heartbeat is repeated, and everything else continues, also the leader's computation."""
    scene = STATES[name]()
    state, joins = scene.state, len(scene.all(ex.SendJoin))
    scene.heartbeat_rejected(verdict, LOADING)
    assert (scene.state, len(scene.all(ex.SendJoin)), scene.member.last_error) == (state, joins, LOADING)
    assert scene.context.coordinator.is_known is (verdict is not V.REDISCOVER)


@pytest.mark.parametrize("name", ["preparing", "syncing", "unsubscribing"])
def test_rebalance_is_ignored_during_a_rebalance(name: str) -> None:
    """Rules 5.6: REBALANCE_IN_PROGRESS is ignored while the member is rebalancing."""
    scene = STATES[name]()
    state, joins = scene.state, len(scene.all(ex.SendJoin))
    assert (scene.rebalance().state, len(scene.all(ex.SendJoin))) == (state, joins)


def test_leader_drops_its_computation_at_a_rebalance() -> None:
    """The leader's SyncGroup would be refused, so it joins again and drops a late result."""
    scene = leading().rebalance()
    assert scene.state is S.JOINING
    scene.computed(m=[A0])
    assert (scene.state, scene.all(ex.SendSync)) == (S.JOINING, [])


@pytest.mark.parametrize("name", STATES)
def test_unknown_member_rejoins_in_every_state(name: str) -> None:
    """Rules 4.7: Owned partitions are lost; then the member joins without an id, or its leave completes."""
    scene = STATES[name]().heartbeat_rejected(V.REJOIN, UNKNOWN)
    if scene.state is S.FENCED or scene.new(ef.LosePartitions):
        scene.finish()
    expected = S.UNSUBSCRIBED if name == "unsubscribing" else S.JOINING
    assert (scene.state, scene.protocol.member_id, scene.protocol.generation) == (expected, "", -1)


@pytest.mark.parametrize("name", STATES)
def test_fenced_instance_is_fatal_in_every_state(name: str) -> None:
    """KIP-345: FENCED_INSTANCE_ID is fatal in every state, and completes a leave."""
    scene = STATES[name]().heartbeat_rejected(V.FATAL, FENCED)
    assert (scene.state, bool(scene.new(ef.LeaveCompleted))) == (S.FATAL, name == "unsubscribing")


# ---- commits --------------------------------------------------------------------------------------------------------


def test_commit_of_a_fenced_instance_is_fatal() -> None:
    """Rules 5.6: FENCED_INSTANCE_ID in the same generation ends the commit first, then the member."""
    scene = stable(A0, instance_id="i")
    scene.feed(refused(committing(scene), V.FATAL, FENCED))
    assert scene.kinds == ["CommitCompleted", "RaiseToApplication", "LosePartitions"]
    assert scene.state is S.FATAL


def test_commit_error_of_an_older_generation_does_not_affect_the_member() -> None:
    """Rules 5.6: In a new generation an older commit's error only triggers a heartbeat.

    This holds for FENCED_INSTANCE_ID, ILLEGAL_GENERATION and UNKNOWN_MEMBER_ID.
    """
    scene = stable(A0, instance_id="i")
    commit = committing(scene)
    scene.rebalance().gather(2).share(A0).settle().feed(refused(commit, V.FATAL, FENCED))
    assert (scene.state, scene.kinds) == (S.STABLE, ["CommitCompleted", "SendClassicHeartbeat"])


@pytest.mark.parametrize(
    ("verdict", "error"), [(V.REJOIN, UNKNOWN), (V.REJOIN_KEEP_ID, OLD_GENERATION), (V.REJOIN_NOW, REBALANCING)]
)
def test_commit_error_about_the_membership_triggers_a_heartbeat(verdict: V, error: BrokerError) -> None:
    """Rules 5.6: The commit fails with its error. The heartbeat, whose number is known, changes the member's state."""
    scene = stable(A0)
    scene.feed(refused(committing(scene), verdict, error))
    assert (scene.state, scene.kinds) == (S.STABLE, ["CommitCompleted", "SendClassicHeartbeat"])
    assert set(scene.new(ef.CommitCompleted)[0].errors.values()) == {error}


@pytest.mark.parametrize(("verdict", "error"), [(V.REJOIN_KEEP_ID, OLD_GENERATION), (V.REJOIN_NOW, REBALANCING)])
@pytest.mark.parametrize("gathers_first", [False, True], ids=["before it gathers", "after it has gathered"])
def test_commit_interrupted_by_a_rebalance_is_repeated_in_the_next_generation(
    verdict: V,
    error: BrokerError,
    gathers_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Rules 5.6: The member repeats the commit if it keeps the partition.

    The errors are ILLEGAL_GENERATION and REBALANCE_IN_PROGRESS.
    """
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


def test_commit_interrupted_by_a_rebalance_fails_if_the_partition_is_revoked() -> None:
    """An eager member has revoked everything, and another member may own the partition in the next generation."""
    scene = stable(A0, assignors=(EAGER,))
    commit = committing(scene)
    scene.rebalance().settle().feed(refused(commit, V.REJOIN_KEEP_ID, OLD_GENERATION))
    assert [set(done.errors.values()) for done in scene.all(ef.CommitCompleted)] == [{OLD_GENERATION}]


# ---- subscriptions, polls, leaving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("gathers_first", [False, True], ids=["while joining", "while syncing"])
def test_subscription_that_changes_during_a_rebalance_is_sent_in_the_next_one(gathers_first: bool) -> None:  # noqa: FBT001 - a parameter
    """C10: A subscription that changes while a request is in flight is sent in the next JoinGroup."""
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
def test_missed_poll_loses_everything_in_every_state(name: str, instance_id: str | None) -> None:
    """C01: The member loses its partitions.

    A dynamic member leaves. A static member keeps its place and its id. The next poll rejoins.
    """
    scene = IN_GROUP[name](instance_id=instance_id).after(MAX_POLL_S)
    assert (scene.state, len(scene.all(ex.SendClassicLeave))) == (S.STALE, 0 if instance_id else 1)
    scene.finish()
    assert (scene.state, sent(scene)) == (S.JOINING, ("m" if instance_id else "", set(), -1))


def test_late_answers_do_not_affect_a_stale_member() -> None:
    """A response to a JoinGroup that was in flight when the poll was missed changes nothing."""
    scene = stable(A0).rebalance().after(MAX_POLL_S).gather(2)
    assert (scene.state, scene.protocol.generation) == (S.STALE, -1)


def test_second_leave_changes_nothing() -> None:
    """M102: Two leaves give one LeaveCompleted, with the option of the first."""
    scene = stable(A0).leave().leave(LeaveOption.REMAIN).finish().settle()
    assert (len(scene.all(ex.SendClassicLeave)), scene.all(ef.LeaveCompleted)) == (1, [])
    scene.feed(ex.ClassicLeft(request_id=scene.all(ex.SendClassicLeave)[-1].request_id, error=UNKNOWN))
    assert (scene.state, len(scene.all(ef.LeaveCompleted))) == (S.UNSUBSCRIBED, 1)


# ---- leading --------------------------------------------------------------------------------------------------------


def test_deleted_topic_makes_the_leader_rejoin() -> None:
    """Rules 5.6: If one of its topics is deleted, the leader makes the group rebalance."""
    scene = joining(classic={"session_timeout_s": 1e6}, max_poll_interval_s=1e6).gather(1, leads=True, members=ME)
    scene.described(a=1).computed(m=[A0]).share(A0).settle().after(301.0).described()
    assert (scene.state, scene.join.reason) == (S.JOINING, "the leader's topics have changed")


def test_leader_without_metadata_requests_it_again() -> None:
    """While Metadata fails, the group waits and the view shows the error."""
    scene = joining().gather(1, leads=True, members=ME)
    asked = scene.all(ex.DescribeTopics)[-1].request_id
    scene.feed(ex.TopicsNotDescribed(request_id=asked, error=LOADING))
    assert (scene.state, scene.member.last_error, scene.new(ex.DescribeTopics)) == (S.SYNCING, LOADING, [])
    assert len(scene.after(0.2).new(ex.DescribeTopics)) == 1


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_leader_whose_assignor_raises_leaves_even_if_static(instance_id: str | None) -> None:
    """The other members wait for the leader's SyncGroup, so the FATAL leader leaves and another member leads."""
    scene = joining(instance_id=instance_id).gather(1, leads=True, members=ME).described(a=1)
    scene.feed(ex.AssignmentFailed(generation=1, error=BROKEN))
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication"])


def test_deadline_is_not_in_the_past_for_a_leader_that_joins() -> None:
    """A topic refresh that is due while a JoinGroup is in flight does not make the runtime spin."""
    scene = joining(max_poll_interval_s=1e6).gather(1, leads=True, members=ME)
    scene.described(a=1).computed(m=[A0]).share(A0).settle().rebalance().after(1000.0)
    deadline = scene.member.next_deadline()
    assert deadline is not None
    assert deadline > scene.now


@dataclass(frozen=True)
class Broken(Plan):
    """An assignor whose user_data() raises, or returns the wrong type if `gives` is set."""

    gives: object = None

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        del topics, owned, generation
        if self.gives is None:
            raise KeyError("the lag")
        return self.gives  # type: ignore[return-value]  # users make this mistake


@pytest.mark.parametrize(
    ("broken", "reason"),
    [(Broken(), "KeyError: 'the lag'"), (Broken(gives="text"), "it returned 'text'; return bytes or None")],
)
def test_assignor_whose_user_data_raises_ends_the_member_with_the_reason(broken: Plan, reason: str) -> None:
    """The application receives any exception of a user's assignor by name, and the network thread continues."""
    scene = ClassicScene(broken)
    scene.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"a"}))))
    scene.poll().feed(ev.CoordinatorFound(coordinator=COORDINATOR))
    (raised,) = scene.all(ef.RaiseToApplication)
    assert (scene.state, raised.problem) == (ClassicState.FATAL, ef.Problem.FATAL)
    assert raised.error.message == f"user_data() of the assignor 'plan' failed: {reason}"
    assert scene.all(ex.SendJoin) == []
