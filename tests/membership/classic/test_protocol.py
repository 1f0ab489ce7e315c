"""The classic member: joins, eager and cooperative rebalances, error verdicts and leaving (rules 4)."""

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
LOADING = BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS")
MOVED = BrokerError(code=16, name="NOT_COORDINATOR")
ID_REQUIRED = BrokerError(code=79, name="MEMBER_ID_REQUIRED")


# ---- the table ------------------------------------------------------------------------------------------------------


def test_every_state_has_its_public_state() -> None:
    """The view has a public state for each classic state, and none of them is ACK."""
    assert set(PUBLIC_STATES) == set(ClassicState)
    assert set(PUBLIC_STATES.values()) == set(MemberState) - {MemberState.ACK}


# ---- joining --------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_a_poll() -> None:
    """A rebalance starts inside poll() only."""
    scene = ClassicScene().subscribe("a")
    assert (scene.state, scene.effects) == (S.UNSUBSCRIBED, [])


def test_join_carries_each_assignor_with_the_subscription() -> None:
    """Rules 4.1: A JoinGroup has one entry for each assignor, with the subscription in the assignor's form."""
    scene = joining(Plan(name="x"), Plan(name="y"), rack_id="r", instance_id="i")
    join = scene.join
    assert (join.member_id, join.instance_id, join.session_timeout_s, join.rebalance_timeout_s) == (
        "",
        "i",
        45.0,
        MAX_POLL_S,
    )
    assert [
        (name, subscription.topics, subscription.owned, subscription.generation, subscription.rack_id)
        for name, subscription in join.protocols
    ] == [(name, frozenset({"a"}), frozenset(), -1, "r") for name in "xy"]


def test_member_id_required_is_followed_by_a_join_at_once() -> None:
    """KIP-394: After MEMBER_ID_REQUIRED the member joins immediately with the id from the response."""
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    assert [join.member_id for join in scene.new(ex.SendJoin)] == ["given"]


def test_join_without_an_answer_is_repeated_with_the_same_id() -> None:
    """The coordinator may have created the member already, and another id would leave a stale member."""
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    scene.feed(ex.ExchangeFailed(request_id=scene.join.request_id, reason="disconnected")).found().after(0.2)
    assert (scene.state, [join.member_id for join in scene.new(ex.SendJoin)]) == (S.JOINING, ["given"])


def test_follower_requests_its_assignment_and_adopts_it() -> None:
    """A follower goes through SYNCING and RECONCILE to STABLE, and on_assign receives its partitions."""
    scene = joining().gather(1)
    assert (scene.state, scene.sync.generation, scene.sync.assignments) == (S.SYNCING, 1, {})
    scene.share(A0, A1).settle()
    assert (scene.state, scene.owned, scene.kinds[:1]) == (S.STABLE, {A0, A1}, [])
    assert [step.offsets.keys() for step in scene.all(ef.AssignPartitions)] == [{A0, A1}]


def test_late_answers_are_dropped() -> None:
    """A response with an unexpected number changes nothing."""
    scene = stable(A0)
    before = (scene.state, scene.protocol.generation, scene.owned)
    scene.feed(ex.SyncAnswered(request_id=1, assignment=frozenset({A1})))
    scene.feed(ex.JoinRejected(request_id=1, verdict=V.FATAL, error=UNKNOWN))
    scene.feed(ex.ClassicHeartbeatRejected(request_id=99, verdict=V.FATAL, error=FENCED))
    assert (scene.state, scene.protocol.generation, scene.owned) == before


# ---- leading --------------------------------------------------------------------------------------------------------


def others() -> dict[str, MemberSubscription]:
    """Return the subscriptions of two members."""
    return {"m": MemberSubscription(topics=frozenset({"a"})), "n": MemberSubscription(topics=frozenset({"b"}))}


def test_leader_requests_all_topics_and_calls_the_assignor() -> None:
    """The leader requests the topics of all members, and each member receives an assignment, which may be empty."""
    scene = joining().gather(1, leads=True, members=others())
    assert [asked.topics for asked in scene.new(ex.DescribeTopics)] == [{"a", "b"}]
    scene.described(a=2)
    (compute,) = scene.new(ex.ComputeAssignment)
    assert (compute.generation, compute.assignor, compute.members) == (1, "plan", others())
    scene.computed(m=[A0, A1])
    assert scene.sync.assignments == {"m": {A0, A1}, "n": frozenset()}


def test_result_for_an_older_generation_is_dropped() -> None:
    """A result for an older generation arrives after the group has moved on."""
    scene = joining().gather(1, leads=True, members=others()).described(a=2)
    scene.feed(ex.AssignmentComputed(generation=0, assignments={}))
    assert scene.all(ex.SendSync) == []


@pytest.mark.parametrize(("plan", "owned"), [(Plan(), {A1}), (EAGER, set())])
def test_returning_static_leader_syncs_without_computing(plan: Plan, owned: set[TopicPartition]) -> None:
    """KIP-814: With skip_assignment the leader does not compute.

    It checks the topics from now on and rejoins only when one changes.
    """
    patient = {"session_timeout_s": 1e6}
    members = {"n": MemberSubscription(topics=frozenset({"a"}), owned=frozenset(owned), generation=4)}
    scene = joining(plan, instance_id="i", classic=patient).gather(4, leads=True, members=members, skip=True)
    assert (scene.all(ex.ComputeAssignment), scene.sync.assignments) == ([], {})
    scene.share(A0).settle().described(a=2)
    assert scene.poll().after(299.0).poll().after(2.0).described(a=2).state is S.STABLE
    scene.poll().after(299.0).poll().after(2.0).described(a=3).settle()
    assert scene.join.reason == "the leader's topics have changed"


def test_returning_cooperative_leader_rejoins_if_partitions_may_be_unassigned() -> None:
    """KIP-814 with KIP-429: The leader rejoins, because the replaced member may have left a JoinGroup unsent."""
    patient = {"session_timeout_s": 1e6}
    claims = {"n": MemberSubscription(topics=frozenset({"a"}), owned=frozenset({A1}), generation=4)}
    for partitions, reason in ((2, "initialized by the application's poll"), (3, "partitions may be unassigned")):
        scene = joining(instance_id="i", classic=patient).gather(4, leads=True, members=claims, skip=True)
        scene.share(A0).settle().described(a=partitions)
        assert scene.join.reason == reason


def test_leader_rejoins_if_withheld_partitions_stay_unassigned() -> None:
    """KIP-429: Members that revoked partitions should join again. If no member does for a session, the leader does."""
    members = {"m": MemberSubscription(topics=frozenset({"a"}))}
    scene = joining().gather(1, leads=True, members=members).described(a=2).computed(m=[A0]).share(A0).settle()
    assert scene.after(44.0).state is S.STABLE
    assert (scene.after(1.1).state, scene.join.reason) == (
        S.JOINING,
        "withheld partitions are still unassigned",
    )


def test_leader_whose_topics_change_makes_the_group_rebalance() -> None:
    """A leader whose topics have more partitions joins again."""
    scene = joining(classic={"session_timeout_s": 1e6}).gather(1, leads=True, members=others())
    scene.described(a=1).computed(m=[A0]).share(A0).settle()
    scene.poll().after(299.0).poll().after(2.0).described(a=1)
    assert scene.state is S.STABLE
    scene.poll().after(299.0).poll().after(2.0).described(a=2)
    assert (scene.state, scene.join.reason) == (S.JOINING, "the leader's topics have changed")


def changed_during_a_check(scene: ClassicScene, *topics: str, pattern: str | None = None) -> ClassicScene:
    """Subscribe to something else while the leader's check of the topics a and b is in flight, and answer the check."""
    check = scene.all(ex.DescribeTopics)[-1]
    assert check.topics == {"a", "b"}
    scene.subscribe(*topics, pattern=pattern)
    return scene.feed(ex.TopicsDescribed(request_id=check.request_id, topics=Topics(partitions={"a": 1, "b": 1})))


@pytest.mark.parametrize(("topics", "pattern"), [(("a", "c"), None), ((), "^c")])
def test_check_of_a_leader_does_not_report_the_topics_of_a_later_subscription(
    topics: tuple[str, ...], pattern: str | None
) -> None:
    """The group is assigned; the response describes the topics of before, so the new ones are not missing."""
    scene = joining(classic={"session_timeout_s": 1e6}).gather(1, leads=True, members=others())
    scene.described(a=1, b=1).computed(m=[A0]).share(A0).settle()
    scene.poll().after(299.0).poll().after(2.0)
    assert changed_during_a_check(scene, *topics, pattern=pattern).all(ef.RaiseToApplication) == []


@pytest.mark.parametrize(("topics", "pattern"), [(("a", "c"), None), ((), "^c")])
def test_leader_repeats_its_check_after_a_later_subscription_and_then_assigns(
    topics: tuple[str, ...], pattern: str | None
) -> None:
    """The group waits for the leader's assignment; no topic is reported as missing."""
    scene = joining().gather(1, leads=True, members=others())
    changed_during_a_check(scene, *topics, pattern=pattern)
    (repeated,) = [asked for asked in scene.all(ex.DescribeTopics)[1:] if asked.topics is not None]
    assert repeated.topics == {"a", "b", *topics}
    partitions = {"a": 1, "b": 1} | dict.fromkeys(topics, 1)
    scene.feed(ex.TopicsDescribed(request_id=repeated.request_id, topics=Topics(partitions=partitions)))
    assert [order.topics.partitions for order in scene.new(ex.ComputeAssignment)] == [partitions]
    assert scene.all(ef.RaiseToApplication) == []


def test_leader_does_not_repeat_its_check_if_the_program_subscribes_to_the_same_topics() -> None:
    """Programs that call subscribe() before each poll would otherwise never let the check end on a slow network."""
    scene = joining().gather(1, leads=True, members=others())
    for _ in range(3):
        scene.subscribe("a")
    assert len(scene.all(ex.DescribeTopics)) == 1
    assert len(scene.described(a=1, b=1).new(ex.ComputeAssignment)) == 1


def test_assignor_that_raises_ends_the_leader_which_leaves() -> None:
    """The application receives the error, and the leader leaves so that another member can lead."""
    scene = joining().gather(1, leads=True, members=others()).described(a=2)
    scene.feed(ex.AssignmentFailed(generation=1, error=BrokerError(code=-150, name="_FATAL", message="ZeroDivision")))
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication"])


# ---- rebalances -----------------------------------------------------------------------------------------------------


def test_cooperative_member_keeps_its_partitions_during_a_rebalance() -> None:
    """KIP-429: Nothing is paused. The join carries the owned partitions and their generation (KIP-792)."""
    scene = stable(A0, A1).rebalance()
    assert (scene.state, scene.owned, scene.kinds) == (S.JOINING, {A0, A1}, ["SendJoin"])
    (_, subscription), *_ = scene.join.protocols
    assert (subscription.owned, subscription.generation) == ({A0, A1}, 1)


def test_leader_raises_topics_that_may_not_be_described() -> None:
    """H15: Such a topic is not assigned. The application receives the error once, until DESCRIBE is allowed."""
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
    errors = [(raised.problem, raised.topic, raised.error.code) for raised in scene.all(ef.RaiseToApplication)]
    assert (scene.state, errors) == (S.STABLE, [(ef.Problem.REFUSED, "a", 29)])


def test_cooperative_member_revokes_missing_partitions_and_rejoins() -> None:
    """The member pauses, revokes and assigns, then rejoins with fewer owned partitions.

    The next on_assign receives no partitions, because none are new.
    """
    scene = stable(A0, A1).rebalance().gather(2).share(A0, A2)
    assert scene.kinds == ["PausePartitions"]
    scene.settle()
    assert [sorted(step.partitions or ()) for step in scene.all(ef.RevokePartitions)] == [[A1]]
    assert (scene.state, scene.owned, scene.join.reason) == (
        S.JOINING,
        {A0, A2},
        "need to revoke partitions and re-join",
    )
    (_, subscription), *_ = scene.join.protocols
    assert (subscription.owned, subscription.generation) == ({A0, A2}, 2)
    scene.gather(3).share(A0, A2).settle()
    assigned = [set(step.offsets) for step in scene.all(ef.AssignPartitions)]
    assert (scene.state, assigned) == (S.STABLE, [{A0, A1}, {A2}, set()])


def test_static_member_that_missed_a_generation_loses_its_partitions() -> None:
    """The coordinator kept the member's place but gave its partitions to others, so nothing is committed.

    The new owners have read further, and a commit of this member in the new generation would reset the group.
    """
    scene = stable(A0, A1, instance_id="i").rebalance().gather(3)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    assert scene.settle().all(ef.CommitOffsets) == []
    assert (scene.after(1.0).join.member_id, scene.join.instance_id) == ("m", "i")
    (_, subscription), *_ = scene.join.protocols
    assert (subscription.owned, subscription.generation) == (frozenset(), -1)
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
            lambda: stable(A0, A1, assignors=(EAGER,), instance_id="i"), 3, "leader", id="an eager member released them"
        ),
    ],
)
def test_member_that_missed_no_generation_keeps_its_partitions(
    scene: Callable[[], ClassicScene], generation: int, leader: str
) -> None:
    """No other member can have owned its partitions, or the member owns no partitions."""
    found = scene().rebalance().settle().gather(generation, leader=leader)
    assert found.state is S.SYNCING
    assert found.all(ef.LosePartitions) == []


def joins_again(scene: ClassicScene) -> ClassicScene:
    """Find the coordinator again if it is unknown, and let the next JoinGroup be sent."""
    if not scene.context.coordinator.is_known:
        scene.found()
    return scene.after(1.0)


def no_answer(scene: ClassicScene) -> ClassicScene:
    """The SyncGroup fails without a response."""
    return scene.feed(ex.ExchangeFailed(request_id=scene.sync.request_id, reason="connection reset"))


#: Events after which a generation that the member only joined may be lost: its coordinator may not have written it.
MOVES = [
    pytest.param(no_answer, id="no response"),
    pytest.param(lambda scene: scene.sync_rejected(V.REDISCOVER, MOVED), id="not the coordinator"),
    pytest.param(lambda scene: scene.sync_rejected(V.REJOIN_LATER, LOADING), id="the coordinator loads"),
    pytest.param(
        lambda scene: scene.sync_rejected(V.REJOIN_NOW, REBALANCING).join_rejected(V.RETRY, LOADING),
        id="the next join reaches a coordinator that loads",
    ),
]


@pytest.mark.parametrize("move", MOVES)
def test_static_member_without_an_assignment_of_its_generation_loses_its_partitions_in_a_later_one(
    move: Callable[[ClassicScene], ClassicScene],
) -> None:
    """A coordinator that takes over may reuse the number of an unwritten generation, without this member."""
    scene = joins_again(move(stable(A0, A1, instance_id="i").rebalance().gather(2)))
    scene.gather(3)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    assert scene.settle().all(ef.CommitOffsets) == []
    assert scene.after(1.0).join.member_id == "m"


@pytest.mark.parametrize("move", MOVES)
def test_static_member_whose_generation_joins_again_keeps_its_partitions(
    move: Callable[[ClassicScene], ClassicScene],
) -> None:
    """The coordinator answers the repeated JoinGroup with the same generation, so the member missed none."""
    scene = joins_again(move(stable(A0, A1, instance_id="i").rebalance().gather(2)))
    assert (scene.gather(2).state, scene.owned) == (S.SYNCING, {A0, A1})


@pytest.mark.parametrize("instance_id", ["i", None])
def test_member_whose_sync_meets_the_next_rebalance_keeps_its_partitions(instance_id: str | None) -> None:
    """The same coordinator answers, so no other member has received the partitions."""
    scene = stable(A0, A1, instance_id=instance_id).rebalance().gather(2).sync_rejected(V.REJOIN_NOW, REBALANCING)
    assert (scene.gather(3).state, scene.owned) == (S.SYNCING, {A0, A1})


def test_dynamic_member_without_an_assignment_of_its_generation_keeps_its_partitions() -> None:
    """A coordinator that takes over removes a dynamic member that misses a generation."""
    scene = joins_again(no_answer(stable(A0, A1).rebalance().gather(2)))
    assert (scene.gather(3).state, scene.owned) == (S.SYNCING, {A0, A1})


def test_static_member_without_an_assignment_of_its_generation_uses_the_last_assigned_generation() -> None:
    """Heartbeats and commits name the generation in which the member received its partitions.

    Another generation may have the newer number. If the member sent that number, the coordinator would confirm
    partitions that other members own.
    """
    scene = joins_again(no_answer(stable(A0, instance_id="i").rebalance().gather(2)))
    assert scene.heartbeat().generation == 1
    scene.leave().feed(ev.CommitRequested(commit_id=1, offsets=at(5, A0), timeout_s=5.0))
    assert scene.all(ef.CommitOffsets)[-1].member_epoch == 1


def test_eager_member_revokes_everything_before_it_joins() -> None:
    """The member pauses, commits and revokes all partitions, joins without any, and on_assign receives everything."""
    scene = stable(A0, A1, assignors=(EAGER,)).rebalance()
    assert (scene.state, scene.kinds) == (S.PREPARING, ["PausePartitions"])
    scene.settle()
    assert (scene.state, scene.owned) == (S.JOINING, set())
    (_, subscription), *_ = scene.join.protocols
    assert (subscription.owned, subscription.generation) == (frozenset(), 1)
    scene.gather(2).share(A0).settle()
    assert (scene.state, scene.owned) == (S.STABLE, {A0})


def test_user_data_of_an_assignor_contains_the_last_assignment() -> None:
    """The eager sticky assignor sends its last assignment although the join lists no owned partitions.

    A reset generation drops it.
    """
    scene = stable(A0, A1, assignors=(EAGER,)).rebalance().settle()
    assert scene.join.protocols[0][1].user_data == b"['a'] 2 1"
    scene = stable(A0, A1).heartbeat_rejected(V.REJOIN, UNKNOWN).finish()
    assert scene.join.protocols[0][1].user_data == b"['a'] 0 -1"


def test_eager_member_calls_on_assign_for_an_empty_assignment() -> None:
    """on_assign receives an empty list, as with confluent-kafka."""
    scene = stable(A0, assignors=(EAGER,)).rebalance().settle().gather(2).share().settle()
    assert [dict(step.offsets) for step in scene.all(ef.AssignPartitions)] == [{A0: 0}, {}]


def test_heartbeats_continue_during_a_callback() -> None:
    """A slow on_revoke does not end the session."""
    scene = stable(A0, assignors=(EAGER,)).rebalance()
    assert (scene.state, scene.heartbeat().generation) == (S.PREPARING, 1)


def test_raising_on_revoke_is_called_again_at_the_next_poll() -> None:
    """After on_revoke raised, nothing is revoked and no join is sent."""
    scene = stable(A0, assignors=(EAGER,)).rebalance().finish().finish(failed=True)
    assert (scene.state, scene.owned) == (S.PREPARING, {A0})
    scene.poll().settle()
    assert (scene.state, len(scene.all(ef.RevokePartitions))) == (S.JOINING, 2)


def test_changed_subscription_makes_the_member_rejoin() -> None:
    """Partitions of topics that are no longer subscribed are revoked before the join."""
    scene = stable(A0).feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"b"})))).settle()
    assert (scene.state, scene.owned, scene.join.reason) == (S.JOINING, set(), "the subscription changed")


def test_retained_partitions_whose_on_assign_raised_stay_owned_across_a_join() -> None:
    """With eager callbacks, the join still claims them, and the next generation calls on_assign with them."""
    b0 = TopicPartition("b", 0)
    scene = ClassicScene().subscribe("a", "b", is_eager=True).poll().found().gather(1).share(A0, b0).settle()
    scene.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"a"})), is_eager=True))
    scene.finish().finish()
    (fetch,) = scene.new(ef.FetchCommitted)
    scene.feed(ev.StartOffsetsFetched(attempt=fetch.attempt, offsets={A0: 0})).finish(failed=True).poll()
    claims = [subscription.owned for _, subscription in scene.join.protocols]
    assert (scene.state, scene.owned, claims) == (S.JOINING, {A0}, [{A0}])
    scene.gather(2).share(A0)
    (fetch,) = scene.new(ef.FetchCommitted)
    scene.feed(ev.StartOffsetsFetched(attempt=fetch.attempt, offsets={A0: 0}))
    assert [set(order.offsets) for order in scene.new(ef.AssignPartitions)] == [{A0}]


def test_assignment_of_an_unsubscribed_topic_is_not_applied() -> None:
    """Rules 4.5: The member joins again instead."""
    scene = joining().gather(1)
    scene.feed(ev.Subscribed(subscription=Subscription(topics=frozenset({"b"})))).share(A0)
    assert (scene.state, scene.owned, scene.all(ef.AssignPartitions)) == (S.JOINING, set(), [])


def test_rebalance_during_a_callback_waits_for_its_end() -> None:
    """Callbacks never nest."""
    scene = joining().gather(1).share(A0)
    fetch = scene.all(ef.FetchCommitted)[-1]
    scene.feed(ev.StartOffsetsFetched(attempt=fetch.attempt, offsets={A0: 0})).rebalance()
    assert (scene.state, len(scene.all(ex.SendJoin))) == (S.RECONCILE, 1)
    scene.finish()
    assert (scene.state, len(scene.all(ex.SendJoin))) == (S.JOINING, 2)


# ---- verdicts -------------------------------------------------------------------------------------------------------


def test_unknown_member_loses_everything_and_joins_without_an_id() -> None:
    """Rules 4.7: UNKNOWN_MEMBER_ID calls on_lost and resets member id and generation."""
    scene = stable(A0).heartbeat_rejected(V.REJOIN, UNKNOWN)
    assert (scene.state, scene.kinds) == (S.FENCED, ["LosePartitions"])
    scene.finish()
    assert (scene.state, scene.join.member_id, scene.join.protocols[0][1].generation) == (S.JOINING, "", -1)


def test_illegal_generation_keeps_the_member_id() -> None:
    """KIP-792: ILLEGAL_GENERATION keeps the id and resets generation and ownership.

    Partitions are lost, not revoked.
    """
    scene = stable(A0).heartbeat_rejected(V.REJOIN_KEEP_ID, OLD_GENERATION).finish()
    assert (scene.state, scene.join.member_id, scene.join.protocols[0][1].owned) == (S.JOINING, "m", frozenset())
    assert scene.all(ef.RevokePartitions) == []


def test_rebalance_between_join_and_sync_rejoins_and_keeps_everything() -> None:
    """REBALANCE_IN_PROGRESS for the sync makes the member join again with all its partitions."""
    scene = stable(A0).rebalance().gather(2).sync_rejected(V.REJOIN_NOW, UNKNOWN)
    assert (scene.state, scene.owned, scene.join.member_id) == (S.JOINING, {A0}, "m")


@pytest.mark.parametrize(("verdict", "error"), [(V.RETRY, LOADING), (V.REJOIN_LATER, LOADING)])
def test_join_is_repeated_after_a_backoff_if_the_coordinator_loads(verdict: V, error: BrokerError) -> None:
    """While the coordinator loads, the member waits for a backoff before each join."""
    scene = joining().join_rejected(verdict, error)
    assert (scene.state, scene.new(ex.SendJoin)) == (S.JOINING, [])
    assert len(scene.after(0.2).new(ex.SendJoin)) == 1


def test_coordinator_that_moved_is_looked_up() -> None:
    """NOT_COORDINATOR for a heartbeat or a join starts a coordinator lookup."""
    scene = stable(A0).heartbeat_rejected(V.REDISCOVER, MOVED)
    assert (scene.state, scene.kinds) == (S.STABLE, ["FindCoordinator"])
    scene = joining().join_rejected(V.REDISCOVER, MOVED)
    assert scene.kinds == ["FindCoordinator"]
    assert len(scene.found().after(0.2).all(ex.SendJoin)) == 2


def test_fenced_static_member_is_fatal() -> None:
    """KIP-345: The newest member keeps the id. The error comes first, then on_lost, and no more requests are sent."""
    scene = stable(A0, instance_id="i").heartbeat_rejected(V.FATAL, FENCED)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "LosePartitions"])
    scene.finish().after(1000).poll().leave()
    assert (scene.kinds, scene.all(ex.SendClassicLeave)) == (["LeaveCompleted"], [])


def test_assignor_chosen_by_the_group_that_the_member_lacks_is_fatal() -> None:
    """The member itself detects INCONSISTENT_GROUP_PROTOCOL."""
    scene = joining().gather(1, protocol="other")
    assert (scene.state, "'other'" in str(scene.member.last_error)) == (S.FATAL, True)


def test_coordinator_that_does_not_answer_is_looked_up() -> None:
    """The coordinator decides whether the member is removed, so the member keeps its partitions meanwhile."""
    scene = stable(A0)
    scene.heartbeat()
    scene.feed(ex.ExchangeFailed(request_id=scene.all(ex.SendClassicHeartbeat)[-1].request_id, reason="silent"))
    assert (scene.kinds, scene.owned) == (["FindCoordinator"], {A0})


# ---- polls, commits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("instance_id", "leaves", "member_id"), [(None, 1, ""), ("i", 0, "m")])
def test_missed_poll_loses_everything_and_rejoins(instance_id: str | None, leaves: int, member_id: str) -> None:
    """A dynamic member leaves, a static one stays; both lose their partitions and rejoin at the next poll."""
    scene = stable(A0, instance_id=instance_id).after(MAX_POLL_S)
    assert (scene.state, len(scene.all(ex.SendClassicLeave))) == (S.STALE, leaves)
    scene.finish()
    assert (scene.state, scene.join.member_id) == (S.JOINING, member_id)


def test_commit_waits_until_the_group_has_gathered() -> None:
    """The coordinator refuses commits during the join phase, so the commit is sent with the new generation."""
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
def test_leave_options_decide_about_leave_group(instance_id: str | None, option: LeaveOption, leaves: int) -> None:
    """KIP-1092: Each leave calls on_revoke first and then sends at most one LeaveGroup."""
    scene = stable(A0, instance_id=instance_id).leave(option).settle()
    assert (len(scene.all(ef.RevokePartitions)), len(scene.all(ex.SendClassicLeave))) == (1, leaves)
    if leaves:
        scene.feed(ex.ClassicLeft(request_id=scene.all(ex.SendClassicLeave)[-1].request_id))
    assert (scene.state, scene.kinds[-1]) == (S.UNSUBSCRIBED, "LeaveCompleted")


def test_static_member_keeps_its_id_after_an_unsubscribe() -> None:
    """KAFKA-20985: A static member with an empty id would fence itself when it returns."""
    scene = stable(A0, instance_id="i").leave().settle().subscribe("a").poll()
    assert scene.join.member_id == "m"


def test_leave_without_an_answer_completes_in_time() -> None:
    """The leave is sent once."""
    scene = stable(A0).leave().settle().after(5.0)
    assert (scene.state, len(scene.all(ex.SendClassicLeave))) == (S.UNSUBSCRIBED, 1)


def test_pending_member_leaves_with_the_id_from_the_join() -> None:
    """Rules 5.6, KIP-394: A JoinGroup in flight may create a member, which leaves with the id from the response."""
    scene = joining().leave()
    assert (scene.state, scene.kinds) == (S.UNSUBSCRIBING, [])
    scene.join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given")
    assert [leave.member_id for leave in scene.new(ex.SendClassicLeave)] == ["given"]
    scene = joining().join_rejected(V.MEMBER_ID_REQUIRED, ID_REQUIRED, "given").leave()
    assert scene.kinds == ["SendClassicLeave"]


def test_leave_of_a_pending_member_completes_in_time() -> None:
    """C17: The leave completes with an error, a failed join or the timeout. Before a join it completes immediately."""
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


def test_static_member_whose_session_ended_during_a_suspension_joins_again() -> None:
    """The coordinator removed the member because it was silent, although the member's own clock did not run."""
    scene = stable(A0, instance_id="i").heartbeat_answered().feed(ev.Suspended(seconds=3600.0))
    (heartbeat,) = scene.new(ex.SendClassicHeartbeat)
    scene.feed(ex.ClassicHeartbeatRejected(request_id=heartbeat.request_id, verdict=V.REJOIN, error=UNKNOWN))
    assert scene.finish().state is S.JOINING


def removed(scene: ClassicScene) -> ClassicScene:
    """The coordinator reports that it does not know the member."""
    return scene.heartbeat_rejected(V.REJOIN, UNKNOWN)


def test_static_member_that_was_removed_is_fatal() -> None:
    """KIP-345: If the session cannot be over, an administrator removed the member permanently."""
    scene = removed(stable(A0, instance_id="i").heartbeat_answered())
    assert scene.state is S.FATAL
    (raised,) = scene.new(ef.RaiseToApplication)
    assert (raised.problem, raised.error.code) == (ef.Problem.FATAL, 25)
    assert "group.instance.id 'i' was removed from the group during its session" in raised.error.message
    assert scene.finish().kinds == []
    assert scene.owned == set()


def test_static_member_that_was_removed_during_a_rebalance_is_fatal() -> None:
    """The coordinator answers the pending JoinGroup with UNKNOWN_MEMBER_ID."""
    scene = stable(A0, instance_id="i").heartbeat_answered().rebalance().settle()
    assert scene.state is S.JOINING
    assert scene.join_rejected(V.REJOIN, UNKNOWN).state is S.FATAL


def test_static_member_whose_session_may_be_over_rejoins() -> None:
    """The session counts from the sending of the last answered heartbeat, not from reading the response."""
    scene = stable(A0, instance_id="i", classic={"session_timeout_s": 10.0}).heartbeat_answered()
    request_id = scene.heartbeat().request_id
    scene.now += 9.5
    scene.feed(ex.ClassicHeartbeatAnswered(request_id=request_id))
    scene.now += 0.5
    rejected = ex.ClassicHeartbeatRejected(
        request_id=scene.all(ex.SendClassicHeartbeat)[-1].request_id, verdict=V.REJOIN, error=UNKNOWN
    )
    assert scene.feed(rejected).state is S.FENCED


def test_static_member_without_an_assignment_rejoins() -> None:
    """A new coordinator does not know a member that joined but was not yet written."""
    scene = joining(instance_id="i").gather(1).heartbeat_answered()
    assert (scene.state, removed(scene).state) == (S.SYNCING, S.JOINING)


def test_static_member_that_was_removed_for_a_late_sync_rejoins() -> None:
    """A coordinator removes members whose SyncGroup does not arrive in time, long before their sessions end."""
    scene = stable(A0, instance_id="i").heartbeat_answered().rebalance().gather(2).heartbeat_answered()
    joins_again(no_answer(scene)).join_rejected(V.REJOIN, UNKNOWN)
    assert scene.state is S.FENCED


def test_static_member_that_returns_from_a_missed_poll_rejoins() -> None:
    """The member was in no generation and cannot know whether the coordinator kept its place."""
    scene = stable(A0, instance_id="i", max_poll_interval_s=5.0).heartbeat_answered()
    scene.after(5.0).finish().after(0.1)
    assert (scene.state, scene.join_rejected(V.REJOIN, UNKNOWN).state) == (S.JOINING, S.JOINING)


def test_static_member_of_a_consumer_group_rejoins_if_it_may_have_joined_too_late() -> None:
    """A consumer group removes members that do not join in time.

    If there is no rebalance, an administrator removed the member.
    """

    def member() -> ClassicScene:
        return joining(instance_id="i").gather(1, leader="").share(A0).settle().heartbeat_answered()

    assert member().rebalance().settle().join_rejected(V.REJOIN, UNKNOWN).state is S.FENCED
    assert removed(member()).state is S.FATAL


def test_dynamic_member_that_was_removed_rejoins() -> None:
    """A dynamic member that was removed rejoins automatically without its id."""
    scene = removed(stable(A0).heartbeat_answered())
    assert (scene.state, scene.finish().join.member_id, scene.state) == (S.FENCED, "", S.JOINING)
