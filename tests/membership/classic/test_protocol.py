"""The classic member: joins, rebalances of both kinds, verdicts, leaving (rules 4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.states import PUBLIC_STATES, ClassicState
from consumer_membership.membership.states import MemberState
from consumer_membership.types import BrokerError, LeaveOption, Subscription, TopicPartition
from tests.membership.classic.scene import (
    A0,
    A1,
    A2,
    EAGER,
    MAX_POLL_S,
    OLD_GENERATION,
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
LOADING = BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS")
MOVED = BrokerError(code=16, name="NOT_COORDINATOR")
ID_REQUIRED = BrokerError(code=79, name="MEMBER_ID_REQUIRED")


# ---- the table ------------------------------------------------------------------------------------------------------


def test_every_state_has_its_public_state() -> None:
    """The view has a state for each of them, and no classic member acknowledges."""
    assert set(PUBLIC_STATES) == set(ClassicState)
    assert set(PUBLIC_STATES.values()) == set(MemberState) - {MemberState.ACK}


# ---- joining --------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_a_poll() -> None:
    """A rebalance never starts outside poll."""
    scene = ClassicScene().subscribe("a")
    assert (scene.state, scene.effects) == (S.UNSUBSCRIBED, [])


def test_join_says_what_the_member_wants() -> None:
    """Rules 4.1: one entry per assignor, each with the subscription as it wants it."""
    scene = joining(Plan(name="x"), Plan(name="y"), rack_id="r", instance_id="i")
    join = scene.join
    assert (join.member_id, join.instance_id, join.session_timeout_s, join.rebalance_timeout_s) == (
        "",
        "i",
        45.0,
        MAX_POLL_S,
    )
    assert [(name, said.topics, said.owned, said.generation, said.rack_id) for name, said in join.protocols] == [
        (name, frozenset({"a"}), frozenset(), -1, "r") for name in "xy"
    ]


def test_member_id_that_is_required_is_taken_and_joined_with_at_once() -> None:
    """KIP-394."""
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    assert [join.member_id for join in scene.new(ex.SendJoin)] == ["given"]


def test_join_without_an_answer_is_repeated_with_the_same_id() -> None:
    """The coordinator may have made the member already: another id would be a ghost."""
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    scene.feed(ex.ExchangeFailed(request_id=scene.join.request_id, reason="disconnected")).found().after(0.2)
    assert (scene.state, [join.member_id for join in scene.new(ex.SendJoin)]) == (S.JOINING, ["given"])


def test_follower_asks_for_its_share_and_takes_it() -> None:
    """SYNCING, RECONCILE, STABLE; on_assign with the share."""
    scene = joining().gather(1)
    assert (scene.state, scene.sync.generation, scene.sync.assignments) == (S.SYNCING, 1, {})
    scene.share(A0, A1).settle()
    assert (scene.state, scene.owned, scene.kinds[:1]) == (S.STABLE, {A0, A1}, [])
    assert [step.offsets.keys() for step in scene.all(ef.AssignPartitions)] == [{A0, A1}]


def test_late_answers_are_dropped() -> None:
    """An answer whose number is not the one that is waited for changes nothing."""
    scene = stable(A0)
    before = (scene.state, scene.protocol.generation, scene.owned)
    scene.feed(ex.SyncAnswered(request_id=1, assignment=frozenset({A1})))
    scene.feed(ex.JoinRejected(request_id=1, verdict=V.FATAL, error=UNKNOWN))
    scene.feed(ex.ClassicHeartbeatRejected(request_id=99, verdict=V.FATAL, error=FENCED))
    assert (scene.state, scene.protocol.generation, scene.owned) == before


# ---- leading --------------------------------------------------------------------------------------------------------


def others() -> dict[str, MemberSubscription]:
    """What two members tell."""
    return {"m": MemberSubscription(topics=frozenset({"a"})), "n": MemberSubscription(topics=frozenset({"b"}))}


def test_leader_looks_at_all_topics_and_has_the_assignor_compute() -> None:
    """Everybody's topics, then everybody's words; each member gets a share, an empty one too."""
    scene = joining().gather(1, leads=True, members=others())
    assert [asked.topics for asked in scene.new(ex.DescribeTopics)] == [{"a", "b"}]
    scene.described(a=2)
    (compute,) = scene.new(ex.ComputeAssignment)
    assert (compute.generation, compute.assignor, compute.members) == (1, "plan", others())
    scene.computed(m=[A0, A1])
    assert scene.sync.assignments == {"m": {A0, A1}, "n": frozenset()}


def test_result_for_an_older_generation_is_dropped() -> None:
    """The group has moved on while the assignor computed."""
    scene = joining().gather(1, leads=True, members=others()).described(a=2)
    scene.feed(ex.AssignmentComputed(generation=0, assignments={}))
    assert scene.all(ex.SendSync) == []


@pytest.mark.parametrize(("plan", "owned"), [(Plan(), {A1}), (EAGER, set())])
def test_returning_static_leader_syncs_without_computing(plan: Plan, owned: set[TopicPartition]) -> None:
    """KIP-814: skip_assignment; it watches the topics from now on, and disturbs nobody until one changes."""
    patient = {"session_timeout_s": 1e6}
    words = {"n": MemberSubscription(topics=frozenset({"a"}), owned=frozenset(owned), generation=4)}
    scene = joining(plan, instance_id="i", classic=patient).gather(4, leads=True, members=words, skip=True)
    assert (scene.all(ex.ComputeAssignment), scene.sync.assignments) == ([], {})
    scene.share(A0).settle().described(a=2)
    assert scene.poll().after(299.0).poll().after(2.0).described(a=2).state is S.STABLE
    scene.poll().after(299.0).poll().after(2.0).described(a=3).settle()
    assert scene.join.reason == "the leader's topics have changed"


def test_returning_cooperative_leader_sees_to_it_that_no_partition_is_with_nobody() -> None:
    """KIP-814 with KIP-429: who it replaces may have owed the group a JoinGroup, and what moved would be lost."""
    patient = {"session_timeout_s": 1e6}
    claims = {"n": MemberSubscription(topics=frozenset({"a"}), owned=frozenset({A1}), generation=4)}
    for partitions, reason in ((2, "initialized by the application's poll"), (3, "partitions may be with nobody")):
        scene = joining(instance_id="i", classic=patient).gather(4, leads=True, members=claims, skip=True)
        scene.share(A0).settle().described(a=partitions)
        assert scene.join.reason == reason


def test_leader_sees_to_it_that_what_was_held_back_is_given() -> None:
    """KIP-429: who gave it up should join again; if nobody does for a session, the leader does."""
    words = {"m": MemberSubscription(topics=frozenset({"a"}))}
    scene = joining().gather(1, leads=True, members=words).described(a=2).computed(m=[A0]).share(A0).settle()
    assert scene.after(44.0).state is S.STABLE
    assert (scene.after(1.1).state, scene.join.reason) == (
        S.JOINING,
        "partitions that were held back are still with nobody",
    )


def test_leader_whose_topics_change_makes_the_group_rebalance() -> None:
    """More partitions: the leader joins again."""
    scene = joining(classic={"session_timeout_s": 1e6}).gather(1, leads=True, members=others())
    scene.described(a=1).computed(m=[A0]).share(A0).settle()
    scene.poll().after(299.0).poll().after(2.0).described(a=1)
    assert scene.state is S.STABLE
    scene.poll().after(299.0).poll().after(2.0).described(a=2)
    assert (scene.state, scene.join.reason) == (S.JOINING, "the leader's topics have changed")


def test_assignor_that_fails_ends_the_leader_and_lets_another_lead() -> None:
    """The application is told; the group is left."""
    scene = joining().gather(1, leads=True, members=others()).described(a=2)
    scene.feed(ex.AssignmentFailed(generation=1, error=BrokerError(code=-150, name="_FATAL", message="ZeroDivision")))
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication"])


# ---- rebalances -----------------------------------------------------------------------------------------------------


def test_cooperative_member_keeps_what_it_has_while_the_group_gathers() -> None:
    """KIP-429: nothing is paused; the join says what is owned since which generation (KIP-792)."""
    scene = stable(A0, A1).rebalance()
    assert (scene.state, scene.owned, scene.kinds) == (S.JOINING, {A0, A1}, ["SendJoin"])
    (_, said), *_ = scene.join.protocols
    assert (said.owned, said.generation) == ({A0, A1}, 1)


def test_leader_tells_of_topics_that_may_not_be_described() -> None:
    """H15: nobody is assigned such a topic, so the application has to hear of it: once, until it was allowed."""
    scene = joining(classic={"session_timeout_s": 1e6}).gather(1, leads=True, members=others())
    forbidden = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED", message="the topic 'a'")

    def refused() -> ClassicScene:
        request_id = scene.all(ex.DescribeTopics)[-1].request_id
        refusals = {"a": forbidden, "z": forbidden}
        return scene.feed(ex.TopicsDescribed(request_id=request_id, topics=Topics(partitions={}), refused=refusals))

    refused().computed(m=[]).share().settle()
    for _ in range(2):
        scene.poll().after(299.0).poll().after(2.0)
        refused()
    told = [(raised.problem, raised.topic, raised.error.code) for raised in scene.all(ef.RaiseToApplication)]
    assert (scene.state, told) == (S.STABLE, [(ef.Problem.REFUSED, "a", 29)])


def test_cooperative_member_gives_up_what_its_share_lacks_and_joins_again() -> None:
    """Pause, on_revoke, on_assign, then one more generation with less owned, and on_assign of what is new: nothing."""
    scene = stable(A0, A1).rebalance().gather(2).share(A0, A2)
    assert scene.kinds == ["PausePartitions"]
    scene.settle()
    assert [sorted(step.partitions or ()) for step in scene.all(ef.RevokePartitions)] == [[A1]]
    assert (scene.state, scene.owned, scene.join.reason) == (
        S.JOINING,
        {A0, A2},
        "need to revoke partitions and re-join",
    )
    (_, said), *_ = scene.join.protocols
    assert (said.owned, said.generation) == ({A0, A2}, 2)
    scene.gather(3).share(A0, A2).settle()
    told = [set(step.offsets) for step in scene.all(ef.AssignPartitions)]
    assert (scene.state, told) == (S.STABLE, [{A0, A1}, {A2}, set()])


def test_static_member_that_missed_a_generation_has_lost_what_it_had() -> None:
    """The coordinator kept its place, and others were given what it owned: nothing of that is committed.

    They have read on; a commit of this member, in the new generation, would take the group back.
    """
    scene = stable(A0, A1, instance_id="i").rebalance().gather(3)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    assert scene.settle().all(ef.CommitOffsets) == []
    assert (scene.after(1.0).join.member_id, scene.join.instance_id) == ("m", "i")
    (_, said), *_ = scene.join.protocols
    assert (said.owned, said.generation) == (frozenset(), -1)
    scene.gather(4).share(A0).settle()
    assert (scene.state, scene.owned) == (S.STABLE, {A0})


@pytest.mark.parametrize(
    ("scene", "generation", "leader"),
    [
        pytest.param(lambda: stable(A0, A1, instance_id="i"), 2, "leader", id="the next generation"),
        pytest.param(lambda: stable(A0, A1), 3, "leader", id="a dynamic member, which would have been removed"),
        pytest.param(lambda: stable(A0, A1, instance_id="i"), 7, "", id="a consumer group's epoch"),
        pytest.param(lambda: stable(instance_id="i"), 3, "leader", id="nothing to lose"),
        pytest.param(
            lambda: stable(A0, A1, assignors=(EAGER,), instance_id="i"), 3, "leader", id="an eager one gave it up"
        ),
    ],
)
def test_member_that_missed_nothing_goes_on(scene: Callable[[], ClassicScene], generation: int, leader: str) -> None:
    """What it owns was its own all the time, or it owns nothing."""
    found = scene().rebalance().settle().gather(generation, leader=leader)
    assert found.state is S.SYNCING
    assert found.all(ef.LosePartitions) == []


def test_eager_member_gives_up_everything_before_it_joins() -> None:
    """Pause, commit, on_revoke of all; then the join owns nothing; then on_assign of everything."""
    scene = stable(A0, A1, assignors=(EAGER,)).rebalance()
    assert (scene.state, scene.kinds) == (S.PREPARING, ["PausePartitions"])
    scene.settle()
    assert (scene.state, scene.owned) == (S.JOINING, set())
    (_, said), *_ = scene.join.protocols
    assert (said.owned, said.generation) == (frozenset(), 1)
    scene.gather(2).share(A0).settle()
    assert (scene.state, scene.owned) == (S.STABLE, {A0})


def test_assignor_s_user_data_is_made_of_the_last_share() -> None:
    """Eager sticky remembers what it gave although nothing is owned at the join; a reset generation forgets it."""
    scene = stable(A0, A1, assignors=(EAGER,)).rebalance().settle()
    assert scene.join.protocols[0][1].user_data == b"['a'] 2 1"
    scene = stable(A0, A1).beat_rejected(V.REJOIN, UNKNOWN).finish()
    assert scene.join.protocols[0][1].user_data == b"['a'] 0 -1"


def test_eager_member_is_told_an_empty_share() -> None:
    """As confluent-kafka's applications are."""
    scene = stable(A0, assignors=(EAGER,)).rebalance().settle().gather(2).share().settle()
    assert [dict(step.offsets) for step in scene.all(ef.AssignPartitions)] == [{A0: 0}, {}]


def test_heartbeats_go_on_while_a_callback_takes_its_time() -> None:
    """The session must not end because on_revoke is slow."""
    scene = stable(A0, assignors=(EAGER,)).rebalance()
    assert (scene.state, scene.beat().generation) == (S.PREPARING, 1)


def test_raising_callback_is_called_again_at_the_next_poll() -> None:
    """Nothing is given up, nothing is joined."""
    scene = stable(A0, assignors=(EAGER,)).rebalance().finish().finish(failed=True)
    assert (scene.state, scene.owned) == (S.PREPARING, {A0})
    scene.poll().settle()
    assert (scene.state, len(scene.all(ef.RevokePartitions))) == (S.JOINING, 2)


def test_changed_subscription_makes_the_member_join_again() -> None:
    """Partitions of topics that are not subscribed any more are given up before the join."""
    scene = stable(A0).feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"b"})))).settle()
    assert (scene.state, scene.owned, scene.join.reason) == (S.JOINING, set(), "the subscription changed")


def test_share_of_a_topic_that_is_not_subscribed_any_more_is_not_applied() -> None:
    """Rules 4.5: rejoin."""
    scene = joining().gather(1)
    scene.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"b"})))).share(A0)
    assert (scene.state, scene.owned, scene.all(ef.AssignPartitions)) == (S.JOINING, set(), [])


def test_rebalance_during_a_takeover_waits_for_its_end() -> None:
    """Callbacks never nest."""
    scene = joining().gather(1).share(A0)
    fetch = scene.all(ef.FetchCommitted)[-1]
    scene.feed(ev.StartOffsetsFetched(attempt=fetch.attempt, offsets={A0: 0})).rebalance()
    assert (scene.state, len(scene.all(ex.SendJoin))) == (S.RECONCILE, 1)
    scene.finish()
    assert (scene.state, len(scene.all(ex.SendJoin))) == (S.JOINING, 2)


# ---- verdicts -------------------------------------------------------------------------------------------------------


def test_unknown_member_loses_everything_and_joins_without_an_id() -> None:
    """Rules 4.7: on_lost, member id and generation reset."""
    scene = stable(A0).beat_rejected(V.REJOIN, UNKNOWN)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    scene.finish()
    assert (scene.state, scene.join.member_id, scene.join.protocols[0][1].generation) == (S.JOINING, "", -1)


def test_illegal_generation_keeps_the_member_id() -> None:
    """KIP-792: generation and ownership are reset, the id stays; what was owned is lost, not revoked."""
    scene = stable(A0).beat_rejected(V.REJOIN_KEEP_ID, OLD_GENERATION).finish()
    assert (scene.state, scene.join.member_id, scene.join.protocols[0][1].owned) == (S.JOINING, "m", frozenset())
    assert scene.all(ef.RevokePartitions) == []


def test_rebalance_between_join_and_sync_joins_again_and_keeps_everything() -> None:
    """REBALANCE_IN_PROGRESS for the sync."""
    scene = stable(A0).rebalance().gather(2).sync_rejected(V.REJOIN_NOW, UNKNOWN)
    assert (scene.state, scene.owned, scene.join.member_id) == (S.JOINING, {A0}, "m")


@pytest.mark.parametrize(("verdict", "error"), [(V.RETRY, LOADING), (V.REJOIN_LATER, LOADING)])
def test_loading_coordinator_is_asked_again_after_a_backoff(verdict: V, error: BrokerError) -> None:
    """Neither joins nor syncs storm a coordinator that loads."""
    scene = joining().join_rejected(verdict, error)
    assert (scene.state, scene.new(ex.SendJoin)) == (S.JOINING, [])
    assert len(scene.after(0.2).new(ex.SendJoin)) == 1


def test_coordinator_that_moved_is_looked_up() -> None:
    """NOT_COORDINATOR, for a heartbeat and for a join."""
    scene = stable(A0).beat_rejected(V.REDISCOVER, MOVED)
    assert (scene.state, scene.kinds) == (S.STABLE, ["FindCoordinator"])
    scene = joining().join_rejected(V.REDISCOVER, MOVED)
    assert scene.kinds == ["FindCoordinator"]
    assert len(scene.found().after(0.2).all(ex.SendJoin)) == 2


def test_fenced_static_member_ends() -> None:
    """KIP-345: the newest wins; error first, then on_lost; nothing is sent any more."""
    scene = stable(A0, instance_id="i").beat_rejected(V.FATAL, FENCED)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "LosePartitions"])
    scene.finish().after(1000).poll().leave()
    assert (scene.kinds, scene.all(ex.SendClassicLeave)) == (["LeaveCompleted"], [])


def test_group_s_choice_that_the_member_lacks_is_fatal() -> None:
    """INCONSISTENT_GROUP_PROTOCOL, noticed here."""
    scene = joining().gather(1, protocol="other")
    assert (scene.state, "'other'" in str(scene.member.last_error)) == (S.FATAL, True)


def test_silent_coordinator_is_looked_up_when_a_session_is_over() -> None:
    """The coordinator decides whether the member is out; the member keeps its partitions until it says so."""
    scene = stable(A0)
    scene.beat()
    scene.feed(ex.ExchangeFailed(request_id=scene.all(ex.SendClassicHeartbeat)[-1].request_id, reason="silent"))
    assert (scene.kinds, scene.owned) == (["FindCoordinator"], {A0})


# ---- polls, commits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance_id", "leaves", "member_id"), [(None, 1, ""), ("i", 0, "m")])
def test_missed_poll(instance_id: str | None, leaves: int, member_id: str) -> None:
    """A dynamic member leaves; a static one keeps its place; both lose, and come back with the next poll."""
    scene = stable(A0, instance_id=instance_id).after(MAX_POLL_S)
    assert (scene.state, len(scene.all(ex.SendClassicLeave))) == (S.STALE, leaves)
    scene.finish()
    assert (scene.state, scene.join.member_id) == (S.JOINING, member_id)


def test_commit_waits_until_the_group_has_gathered() -> None:
    """While it gathers the coordinator would refuse it; afterwards it goes out with the new generation."""
    scene = stable(A0).rebalance().feed(ev.CommitRequested(commit_id=1, offsets=at(5, A0), timeout_s=60.0))
    assert scene.all(ef.CommitOffsets) == []
    scene.gather(2).share(A0)
    assert [commit.member_epoch for commit in scene.all(ef.CommitOffsets)] == [2]


# ---- leaving --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("instance_id", "option", "leaves"),
    [
        (None, LeaveOption.DEFAULT, 1),
        (None, LeaveOption.LEAVE, 1),
        (None, LeaveOption.REMAIN, 0),
        ("i", LeaveOption.DEFAULT, 0),
        ("i", LeaveOption.LEAVE, 1),
        ("i", LeaveOption.REMAIN, 0),
    ],
)
def test_leave_options(instance_id: str | None, option: LeaveOption, leaves: int) -> None:
    """KIP-1092's table: on_revoke first, then at most one LeaveGroup."""
    scene = stable(A0, instance_id=instance_id).leave(option).settle()
    assert (len(scene.all(ef.RevokePartitions)), len(scene.all(ex.SendClassicLeave))) == (1, leaves)
    if leaves:
        scene.feed(ex.ClassicLeft(request_id=scene.all(ex.SendClassicLeave)[-1].request_id))
    assert (scene.state, scene.kinds[-1]) == (S.UNSUBSCRIBED, "LeaveCompleted")


def test_static_member_keeps_its_id_over_an_unsubscribe() -> None:
    """KAFKA-20985: with an empty id it would fence itself when it comes back."""
    scene = stable(A0, instance_id="i").leave().settle().subscribe("a").poll()
    assert scene.join.member_id == "m"


def test_leave_without_an_answer_ends_in_time() -> None:
    """It is sent once."""
    scene = stable(A0).leave().settle().after(5.0)
    assert (scene.state, len(scene.all(ex.SendClassicLeave))) == (S.UNSUBSCRIBED, 1)


def test_pending_member_leaves() -> None:
    """Rules 5.6, KIP-394: the JoinGroup that is out may make a member; it leaves with the id that the answer brings."""
    scene = joining().leave()
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBING, [])
    scene.join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    assert [leave.member_id for leave in scene.new(ex.SendClassicLeave)] == ["given"]
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given").leave()
    assert scene.kinds == ["SendClassicLeave"]


def test_pending_member_s_leave_ends_in_time() -> None:
    """C17: with the answer that brings no id, without one, or when the time is over; at once before a join."""
    done = (S.UNSUBSCRIBED, ["LeaveCompleted"])
    scene = ClassicScene().subscribe("a").poll().leave()
    assert (scene.state, scene.kinds) == done
    scene = joining().leave().after(10.0)
    assert (scene.state, scene.kinds) == done
    scene = joining().leave().join_rejected(V.RETRY, LOADING)
    assert (scene.state, scene.kinds) == done
    scene = joining().leave()
    scene.feed(ex.ExchangeFailed(request_id=scene.join.request_id, reason="disconnected"))
    assert (scene.state, scene.kinds) == done
    scene = joining(instance_id="i").leave()
    assert (scene.state, scene.kinds) == done


# ---- removed by an administrator -------------------------------------------------------------------------------------


def removed(scene: ClassicScene) -> ClassicScene:
    """The coordinator does not know the member any more."""
    return scene.beat_rejected(V.REJOIN, UNKNOWN)


def test_static_member_that_was_removed_ends() -> None:
    """KIP-345's removal: the session cannot be over, so that somebody took it out for good."""
    scene = removed(stable(A0, instance_id="i").beat_answered())
    assert scene.state is S.FATAL
    (raised,) = scene.new(ef.RaiseToApplication)
    assert (raised.problem, raised.error.code) == (ef.Problem.FATAL, 25)
    assert "group.instance.id 'i' was removed from the group for good" in raised.error.message
    assert scene.finish().kinds == []
    assert scene.owned == set()


def test_static_member_that_was_removed_while_the_group_gathers_ends() -> None:
    """The coordinator answers the JoinGroup that waits with UNKNOWN_MEMBER_ID."""
    scene = stable(A0, instance_id="i").beat_answered().rebalance().settle()
    assert scene.state is S.JOINING
    assert scene.join_rejected(V.REJOIN, UNKNOWN).state is S.FATAL


def test_static_member_whose_session_may_be_over_rejoins() -> None:
    """The last heartbeat that was answered was sent a session ago; when its answer was read does not count."""
    scene = stable(A0, instance_id="i", classic={"session_timeout_s": 10.0}).beat_answered()
    request_id = scene.beat().request_id
    scene.now += 9.5
    scene.feed(ex.ClassicHeartbeatAnswered(request_id=request_id))
    scene.now += 0.5
    rejected = ex.ClassicHeartbeatRejected(
        request_id=scene.all(ex.SendClassicHeartbeat)[-1].request_id, verdict=V.REJOIN, error=UNKNOWN
    )
    assert scene.feed(rejected).state is S.FENCED


def test_static_member_that_had_no_share_yet_rejoins() -> None:
    """A coordinator that moved has not heard of who joined and was not written down yet."""
    scene = joining(instance_id="i").gather(1).beat_answered()
    assert (scene.state, removed(scene).state) == (S.SYNCING, S.JOINING)


def test_static_member_that_comes_back_from_a_missed_poll_rejoins() -> None:
    """It was in no generation any more: what became of its place meanwhile it cannot tell."""
    scene = stable(A0, instance_id="i", max_poll_interval_s=5.0).beat_answered()
    scene.after(5.0).finish().after(0.1)
    assert (scene.state, scene.join_rejected(V.REJOIN, UNKNOWN).state) == (S.JOINING, S.JOINING)


def test_static_member_of_a_consumer_group_may_have_joined_too_late() -> None:
    """A group of the consumer protocol removes who does not join in time; a calm member has nothing to be late for."""

    def member() -> ClassicScene:
        return joining(instance_id="i").gather(1, leader="").share(A0).settle().beat_answered()

    assert member().rebalance().settle().join_rejected(V.REJOIN, UNKNOWN).state is S.FENCED
    assert removed(member()).state is S.FATAL


def test_dynamic_member_that_was_removed_rejoins() -> None:
    """It comes back by itself, without its id."""
    scene = removed(stable(A0).beat_answered())
    assert (scene.state, scene.finish().join.member_id, scene.state) == (S.FENCED, "", S.JOINING)
