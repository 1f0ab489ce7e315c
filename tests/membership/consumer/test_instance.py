"""An instance id that another member holds: takeover, wait, fail, and pools (KIP-345 on KIP-848; rules 3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

import pytest

from consumer_membership.membership.consumer.claim import (
    CLAIM_TRANSITIONS,
    MOST_TAKEOVERS,
    NEWEST_FOR_S,
    ClaimState,
)
from consumer_membership.membership.consumer.session_timeout import LONGEST_SESSION_S
from consumer_membership.membership.effects import (
    CommitOffsets,
    DescribeGroup,
    InstanceReleased,
    LearnSessionTimeout,
    LeaveCompleted,
    LosePartitions,
    Problem,
    RaiseToApplication,
    SendHeartbeat,
    Warned,
)
from consumer_membership.membership.events import (
    CoordinatorLost,
    GroupDescribed,
    GroupDescribeFailed,
    SessionTimeoutLearned,
    Subscribed,
    Verdict,
)
from consumer_membership.membership.protocol import GRACE_S
from consumer_membership.membership.states import MemberState, StateMachine, followers
from consumer_membership.types import BrokerError, ConflictPolicy, Holder, LeaveOption, Subscription
from tests.membership.builders import (
    A0,
    A1,
    FENCED_EPOCH,
    GROUP_FULL,
    GROUP_GONE,
    INTERVAL_S,
    LOADING,
    MAX_POLL_S,
    NOT_ALLOWED,
    UNKNOWN_MEMBER,
    UNRELEASED,
    Scene,
    joining,
    stable,
)

S = MemberState
FENCED_INSTANCE = BrokerError(code=82, name="FENCED_INSTANCE_ID", message="fenced by member newer")
POOL = ("i0", "i1", "i2")


def held(scene: Scene, holder: str | None = "ghost") -> Scene:
    """The join in flight is refused: another member holds the instance id."""
    return scene.in_touch().reject(Verdict.UNRELEASED, UNRELEASED, holder=holder)


def conflict(policy: ConflictPolicy = ConflictPolicy.TAKEOVER, holder: str | None = "ghost") -> Scene:
    """A static member whose first join was refused."""
    return held(joining(instance_id="i", conflict_policy=policy), holder)


def describe(scene: Scene, **holders: Holder) -> Scene:
    """The description that was asked for last comes."""
    return scene.feed(GroupDescribed(request_id=scene.all(DescribeGroup)[-1].request_id, holders=holders))


def not_described(scene: Scene) -> Scene:
    """The description that was asked for last is refused."""
    return scene.feed(GroupDescribeFailed(request_id=scene.all(DescribeGroup)[-1].request_id, error=NOT_ALLOWED))


def sent(scene: Scene) -> list[tuple[str, str | None, int]]:
    """Member id, instance id and epoch of the heartbeats that the last event had."""
    return [(beat.member_id, beat.instance_id, beat.member_epoch) for beat in scene.new_beats]


def told(scene: Scene) -> list[tuple[Problem, str]]:
    """What the application was told by the last event: the kind, and the error's name."""
    return [(effect.problem, effect.error.name) for effect in scene.new(RaiseToApplication)]


@pytest.mark.parametrize("policy", [ConflictPolicy.FAIL, ConflictPolicy.TAKEOVER])
def test_member_s_own_advice_stands_alone(policy: ConflictPolicy) -> None:
    """What it ends with quotes the coordinator's words, and not what would help against them."""
    refusal = replace(UNRELEASED, remedy="advice")
    scene = joining(instance_id="i", conflict_policy=policy).in_touch().reject(Verdict.UNRELEASED, refusal, holder="x")
    if policy is ConflictPolicy.TAKEOVER:
        describe(scene).reject(Verdict.FATAL, replace(FENCED_INSTANCE, remedy="advice"))
    (raised,) = scene.all(RaiseToApplication)
    assert "advice" not in str(raised.error)
    assert str(raised.error).count("its own id") == 1


# ---- takeover -------------------------------------------------------------------------------------------------------


def test_takeover_describes_releases_the_holder_and_joins() -> None:
    """Rules 3.3: learn the holder, release it on its behalf with -2, join at epoch 0."""
    scene = conflict()
    assert (scene.kinds, scene.state) == (["DescribeGroup"], S.JOINING)
    describe(scene, i=Holder(member_id="ghost", member_epoch=5, client_id="c", host="h"))
    assert sent(scene) == [("ghost", "i", -2)]
    scene.answer(-2)
    assert sent(scene) == [("member-1", "i", 0)]
    assert scene.new(InstanceReleased) == [
        InstanceReleased(instance_id="i", holder=Holder(member_id="ghost", member_epoch=5, client_id="c", host="h"))
    ]
    assert scene.answer(5, {A0}).settle().state is S.STABLE


def test_takeover_without_the_right_to_describe_uses_the_coordinator_s_words() -> None:
    """Rules 3.3: the error's text is the fallback."""
    scene = not_described(conflict())
    assert (sent(scene), scene.new(Warned)) == ([("ghost", "i", -2)], [])


def test_takeover_believes_the_refusal_more_than_the_description() -> None:
    """The description shows what is committed, which may be older than what the refusal says."""
    scene = describe(conflict(), i=Holder(member_id="older", member_epoch=5))
    assert sent(scene) == [("ghost", "i", -2)]


def test_takeover_without_description_or_words_waits_and_says_so() -> None:
    """Rules 3.3: else `wait`."""
    scene = not_described(conflict(holder=None))
    assert len(scene.new(Warned)) == 1
    assert sent(scene) == [("member-1", "i", 0)]
    held(scene, None)
    assert (scene.state, scene.new(DescribeGroup), scene.protocol.claim.is_waiting) == (S.JOINING, [], True)


def test_holder_that_was_released_meanwhile_is_not_released_again() -> None:
    """The description shows epoch -2, or nobody: the join is repeated at once."""
    scene = describe(conflict(holder=None), i=Holder(member_id="ghost", member_epoch=-2))
    assert sent(scene) == [("member-1", "i", 0)]
    assert sent(describe(conflict(holder=None))) == [("member-1", "i", 0)]


@pytest.mark.parametrize(("verdict", "error"), [(Verdict.REJOIN, UNKNOWN_MEMBER), (Verdict.GROUP_GONE, GROUP_GONE)])
def test_holder_that_is_gone_needs_no_release(verdict: Verdict, error: BrokerError) -> None:
    """UNKNOWN_MEMBER_ID for the release is as good as success."""
    scene = describe(conflict()).reject(verdict, error)
    assert (scene.state, sent(scene)) == (S.JOINING, [("member-1", "i", 0)])


def test_lost_release_is_repeated() -> None:
    """A release without an answer is sent again: it is idempotent."""
    scene = describe(conflict()).drop().found()
    assert (scene.next_beat().member_id, scene.beats[-1].member_epoch) == ("ghost", -2)


def test_of_two_newcomers_the_slower_one_ends_fenced() -> None:
    """The release is answered with FENCED_INSTANCE_ID: the other newcomer joined already, and is left in peace."""
    scene = describe(conflict()).reject(Verdict.FATAL, FENCED_INSTANCE)
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "FENCED_INSTANCE_ID")])
    assert "at the same moment" in scene.new(RaiseToApplication)[0].error.message


def test_takeover_happens_once_in_a_join() -> None:
    """Another newcomer joined between release and join: this one ends, and takes nothing back."""
    scene = describe(conflict()).answer(-2).reject(Verdict.UNRELEASED, UNRELEASED, holder="quicker")
    assert (scene.state, sent(scene)) == (S.FATAL, [])
    error = scene.new(RaiseToApplication)[0].error
    assert error.name == "FENCED_INSTANCE_ID"
    assert error.message == (
        "group.instance.id 'i' is held by member quicker, which joined with it while this member was on its way or "
        "out of the group; the newest wins, so this one ends; give each process its own id (the coordinator said: "
        "owned by another member)"
    )


def test_holder_that_comes_back_before_the_newcomer_has_joined_is_released_again() -> None:
    """A heartbeat of it between release and join, and a newcomer that is slow: it is the older one all the same."""
    scene = describe(conflict())
    for _ in range(MOST_TAKEOVERS - 1):
        held(scene.answer(-2))
        assert sent(describe(scene, i=Holder(member_id="ghost", member_epoch=6))) == [("ghost", "i", -2)]
    held(scene.answer(-2))
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "FENCED_INSTANCE_ID")])


def test_fenced_member_never_takes_over() -> None:
    """It was in the group, so that whoever holds its instance id now is newer."""
    scene = stable(A0, instance_id="i").fence().finish()
    held(scene, "newer")
    assert (scene.state, scene.new(DescribeGroup)) == (S.FATAL, [])
    assert told(scene)[-1] == (Problem.FATAL, "FENCED_INSTANCE_ID")


def test_member_that_missed_its_poll_never_takes_over() -> None:
    """A stopped process that goes on finds its replacement in its place, and ends (SIGSTOP, SIGCONT)."""
    scene = stable(A0, instance_id="i").after(MAX_POLL_S).finish()
    held(scene, "newer")
    assert (scene.state, scene.new(DescribeGroup)) == (S.FATAL, [])


def test_member_that_was_never_let_in_stays_the_newest_for_a_moment() -> None:
    """A join that is lost on its way changes nothing, if the holder is heard of soon after the application asked."""
    scene = joining(instance_id="i").drop().found()
    scene.after(NEWEST_FOR_S / 2)
    held(scene, "ghost")
    assert scene.kinds == ["DescribeGroup"]


@pytest.mark.parametrize("waits_s", [NEWEST_FOR_S + 0.1, MAX_POLL_S])
def test_member_that_hears_of_the_holder_late_never_takes_over(waits_s: float) -> None:
    """A process that was stopped before its first join may have been replaced since, so it waits for the holder."""
    scene = joining(instance_id="i")
    scene.after(waits_s).poll()
    held(scene, "newer")
    assert (scene.state, scene.new(DescribeGroup)) == (S.JOINING, [])
    assert "it is not taken over, because the application subscribed" in scene.new(Warned)[0].words
    while scene.state is S.JOINING:
        held(scene.poll(), "newer")
        assert ("newer", "i", -2) not in [(beat.member_id, beat.instance_id, beat.member_epoch) for beat in scene.beats]
    assert told(scene)[-1] == (Problem.FATAL, "UNRELEASED_INSTANCE_ID")


def test_member_that_hears_of_the_holder_late_joins_when_the_holder_has_gone() -> None:
    """A holder that was dead costs the rest of its session, and no more."""
    scene = joining(instance_id="i").after(NEWEST_FOR_S + 0.1)
    held(scene, "ghost")
    scene.next_beat()
    assert scene.answer(5, {A0}).settle().state is S.STABLE


@pytest.mark.parametrize("asked_s_ago", [0.0, NEWEST_FOR_S + 0.1])
def test_time_between_subscribe_and_the_first_poll_counts(asked_s_ago: float) -> None:
    """A process that is stopped before its first poll hears of the subscription when it goes on."""
    scene = Scene(instance_id="i")
    subscription = Subscription(topics=frozenset({"orders"}))
    scene.feed(Subscribed(subscription=subscription, asked_at=scene.now - asked_s_ago)).poll().found()
    held(scene)
    assert bool(scene.new(DescribeGroup)) is (asked_s_ago == 0.0)


def test_holder_that_is_first_described_late_is_not_taken_over() -> None:
    """The process was stopped between the refusal, which names no holder, and the description."""
    scene = conflict(holder=None).after(NEWEST_FOR_S + 0.1)
    describe(scene, i=living("newer"))
    assert sent(scene) == [("member-1", "i", 0)]


def test_holder_that_was_named_in_time_is_taken_over_later() -> None:
    """It was there when the application asked; the coordinator refuses the release of one that is gone since."""
    scene = conflict().after(NEWEST_FOR_S + 0.1)
    assert sent(describe(scene, i=living("newer"))) == [("ghost", "i", -2)]


@pytest.mark.parametrize("policy", ConflictPolicy)
def test_join_may_take_the_place_of_a_classic_holder_only_by_takeover(policy: ConflictPolicy) -> None:
    """Coordinators let any join replace a classic holder, so the member itself keeps to its policy."""
    scene = joining(instance_id="i", conflict_policy=policy)
    assert [order.may_take_over for order in scene.all(SendHeartbeat)] == [policy is ConflictPolicy.TAKEOVER]


def test_join_of_the_older_member_may_not_take_the_place_of_a_classic_holder() -> None:
    """A member that was fenced, and one that heard nothing for long, may be the older one."""
    fenced = stable(A0, instance_id="i").fence().finish().in_touch()
    late = joining(instance_id="i").drop().found().after(NEWEST_FOR_S + 0.1).in_touch()
    assert [scene.all(SendHeartbeat)[-1].may_take_over for scene in (fenced, late)] == [False, False]


def test_member_that_subscribes_anew_takes_over() -> None:
    """A join that the application asks for is the newest."""
    scene = stable(A0, instance_id="i").leave().settle().subscribe("orders").poll()
    assert held(scene, "other").kinds == ["DescribeGroup"]


def test_leave_during_a_takeover_releases_nobody() -> None:
    """The description that comes after the application left orders nothing."""
    scene = conflict().leave()
    describe(scene)
    assert sent(scene) == []


# ---- the former holder ----------------------------------------------------------------------------------------------


def test_former_holder_loses_everything_and_ends() -> None:
    """FENCED_INSTANCE_ID: the error first, on_lost, no commit, no heartbeat, and a close that says nothing."""
    scene = stable(A0, A1, instance_id="i").in_touch().reject(Verdict.FATAL, FENCED_INSTANCE)
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "FENCED_INSTANCE_ID")])
    assert scene.kinds == ["RaiseToApplication", "StateChanged", "LosePartitions"]
    scene.commit(3, A0)
    assert scene.new(CommitOffsets) == []
    scene.finish()
    scene.after(1000).poll()
    assert (scene.state, scene.new_beats) == (S.FATAL, [])
    scene.leave()
    assert (scene.new(LeaveCompleted), scene.new_beats) == ([LeaveCompleted()], [])


def test_holder_that_was_just_released_gives_the_newcomer_time_to_join() -> None:
    """Between the newcomer's two requests the holder hears FENCED_MEMBER_EPOCH: it rejoins after a pause only."""
    scene = stable(A0, instance_id="i").fence(FENCED_EPOCH).finish()
    assert (scene.state, scene.new_beats) == (S.JOINING, [])
    assert (scene.next_beat().member_epoch, round(scene.now - scene.context.history.since, 1)) == (0, 0.1)  # type: ignore[operator]  # it has a state


# ---- fail and wait --------------------------------------------------------------------------------------------------


def test_fail_ends_at_once_and_names_holder_and_remedy() -> None:
    """KIP-848's rule."""
    scene = conflict(ConflictPolicy.FAIL)
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "UNRELEASED_INSTANCE_ID")])
    assert scene.new(RaiseToApplication)[0].error.message == (
        "group.instance.id 'i' is held by member ghost; close it, give this process its own id, or set "
        "group.instance.id.conflict.policy to takeover (the coordinator said: owned by another member)"
    )


def test_wait_repeats_the_join_until_the_holder_is_gone() -> None:
    """Visible in the view: whom it waits for, and until when at most."""
    scene = conflict(ConflictPolicy.WAIT)
    assert (scene.state, scene.new(LearnSessionTimeout), len(scene.new(Warned))) == (
        S.JOINING,
        [LearnSessionTimeout()],
        1,
    )
    scene.feed(SessionTimeoutLearned(session_timeout_s=45.0))
    view = scene.view
    assert (view.waits_for, view.waits_since, view.waits_until) == (
        "group.instance.id 'i', held by member ghost: until it leaves or its session ends",
        scene.now,
        scene.now + 45.0 + GRACE_S,
    )
    for _ in range(10):
        held(scene)
    assert (scene.state, scene.new(Warned)) == (S.JOINING, [])
    scene.in_touch().answer(3, {A0}).settle()
    assert (scene.state, scene.view.waits_for, scene.view.waits_until) == (S.STABLE, None, None)


def test_wait_is_bounded_by_a_session() -> None:
    """A holder that still holds the id when its session must be over lives: this member ends."""
    scene = conflict(ConflictPolicy.WAIT).feed(SessionTimeoutLearned(session_timeout_s=None))
    began = scene.now
    while scene.state is S.JOINING:
        held(scene.poll())
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "UNRELEASED_INSTANCE_ID")])
    assert LONGEST_SESSION_S + GRACE_S <= scene.now - began < LONGEST_SESSION_S + GRACE_S + 2
    assert "the holder lives" in scene.new(RaiseToApplication)[0].error.message


def test_waiting_member_may_leave_at_once() -> None:
    """Nothing is held, so that there is nothing to wait for."""
    scene = conflict(ConflictPolicy.WAIT).leave()
    assert [beat.member_epoch for beat in scene.new_beats] == [-2]
    assert scene.answer(-2).new(LeaveCompleted) == [LeaveCompleted()]


# ---- a full group ----


def full(policy: ConflictPolicy = ConflictPolicy.TAKEOVER) -> Scene:
    """A static member whose join the full group refused."""
    return joining(instance_id="i", conflict_policy=policy).reject(Verdict.FATAL, GROUP_FULL)


@pytest.mark.parametrize("policy", ConflictPolicy)
def test_returning_static_member_finds_its_place_in_a_full_group(policy: ConflictPolicy) -> None:
    """Brokers before KAFKA-20601 count its new member id as one more: the place it has is given up and taken anew."""
    scene = full(policy)
    assert (scene.kinds, scene.state) == (["DescribeGroup"], S.JOINING)
    describe(scene, i=Holder(member_id="away", member_epoch=-2))
    assert sent(scene) == [("away", "i", -1)]
    assert sent(scene.answer(-1)) == [("member-1", "i", 0)]
    assert scene.answer(5, {A0}).settle().state is S.STABLE


def test_replacement_of_a_crashed_member_finds_its_place_in_a_full_group() -> None:
    """Takeover where there is no room for both."""
    scene = describe(full(), i=living("ghost"))
    assert sent(scene) == [("ghost", "i", -1)]


@pytest.mark.parametrize(
    ("policy", "holders"),
    [
        (ConflictPolicy.TAKEOVER, {}),
        (ConflictPolicy.TAKEOVER, {"j": Holder(member_id="m", member_epoch=-2)}),
        (ConflictPolicy.WAIT, {"i": Holder(member_id="m", member_epoch=4)}),
        (ConflictPolicy.FAIL, {"i": Holder(member_id="m", member_epoch=4)}),
    ],
)
def test_stranger_is_refused_by_a_full_group(policy: ConflictPolicy, holders: dict[str, Holder]) -> None:
    """KIP-389: GROUP_MAX_SIZE_REACHED is fatal, and nobody is sent away."""
    scene = describe(full(policy), **holders)
    assert (scene.state, told(scene), sent(scene)) == (S.FATAL, [(Problem.FATAL, "GROUP_MAX_SIZE_REACHED")], [])


def test_full_group_that_cannot_be_described_refuses() -> None:
    """Without knowing whose place it would be, none is given up."""
    assert told(not_described(full())) == [(Problem.FATAL, "GROUP_MAX_SIZE_REACHED")]


def test_room_is_made_once() -> None:
    """A stranger took the place in between: that is the end."""
    scene = describe(full(), i=Holder(member_id="away", member_epoch=-2)).answer(-1)
    scene.reject(Verdict.FATAL, GROUP_FULL)
    assert (scene.state, sent(scene)) == (S.FATAL, [])


def test_dynamic_member_is_refused_by_a_full_group_at_once() -> None:
    """It has no place that it could have."""
    assert joining().reject(Verdict.FATAL, GROUP_FULL).state is S.FATAL


# ---- pools ----------------------------------------------------------------------------------------------------------


def pooled(policy: ConflictPolicy = ConflictPolicy.WAIT, **holders: Holder) -> Scene:
    """A pool's member that joins and was told who holds what."""
    return describe(joining(instance_pool=POOL, conflict_policy=policy), **holders)


def living(name: str) -> Holder:
    """A holder that has not left."""
    return Holder(member_id=name, member_epoch=7)


def test_pool_is_asked_for_before_the_join() -> None:
    """Nothing is sent before it is known who holds what."""
    scene = joining(instance_pool=POOL)
    assert (scene.new(DescribeGroup) != [], scene.beats, scene.view.instance_id) == (True, [], None)


def test_released_id_is_claimed_before_an_unused_one() -> None:
    """The partitions of a member that said -2 wait for whoever takes its place."""
    scene = pooled(i1=Holder(member_id="away", member_epoch=-2), i0=living("m"))
    assert (sent(scene), scene.view.instance_id) == ([("member-1", "i1", 0)], "i1")


def test_held_ids_are_left_alone() -> None:
    """Only free ids are tried."""
    assert sent(pooled(i0=living("m"), i1=living("n"))) == [("member-1", "i2", 0)]


def test_claim_that_another_member_won_tries_another_id() -> None:
    """The coordinator gives each id to one; who was refused looks again, and does not insist on what was refused."""
    scene = pooled(i0=living("m"))
    first = scene.beats[-1].instance_id
    held(scene, "quicker")
    assert (scene.kinds, scene.state) == ([], S.JOINING)
    describe(scene.until(lambda s: bool(s.new(DescribeGroup))), i0=living("m"))
    assert {first, scene.beats[-1].instance_id} == {"i1", "i2"}


def test_pool_without_a_free_id_waits_and_says_so_once() -> None:
    """`wait`: it looks again with backoff, visible in the view."""
    scene = pooled(i0=living("m"), i1=living("n"), i2=living("o"))
    assert [effect.words for effect in scene.new(Warned)] == [
        "No id of group.instance.id.pool is free: i0 is held by m; i1 is held by n; i2 is held by o"
    ]
    assert scene.view.waits_for == "an id of group.instance.id.pool to become free"
    for _ in range(3):
        scene.until(lambda s: bool(s.new(DescribeGroup)))
        describe(scene, i0=living("m"), i1=living("n"), i2=living("o"))
        assert scene.new(Warned) == []
    scene.until(lambda s: bool(s.new(DescribeGroup)))
    describe(scene, i0=living("m"), i1=Holder(member_id="n", member_epoch=-2), i2=living("o"))
    assert sent(scene) == [("member-1", "i1", 0)]


def test_pool_without_a_free_id_fails_where_it_shall() -> None:
    """`fail`: the error says that the pool is exhausted, and what to do."""
    scene = pooled(ConflictPolicy.FAIL, i0=living("m"), i1=living("n"), i2=living("o"))
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "UNRELEASED_INSTANCE_ID")])
    assert "every one of the 3 ids of group.instance.id.pool is held" in scene.new(RaiseToApplication)[0].error.message


def test_pool_without_the_right_to_describe_tries_each_id() -> None:
    """The coordinator refuses what is held; when all were refused it waits."""
    scene = not_described(joining(instance_pool=POOL, conflict_policy=ConflictPolicy.WAIT))
    tried = [scene.beats[-1].instance_id]
    for _ in range(2):
        not_described(held(scene, "m").until(lambda s: bool(s.new(DescribeGroup))))
        tried.append(scene.beats[-1].instance_id)
    assert sorted(filter(None, tried)) == list(POOL)
    not_described(held(scene, "m").until(lambda s: bool(s.new(DescribeGroup))))
    assert (sent(scene), len(scene.new(Warned))) == ([], 1)


def test_pool_s_member_keeps_its_id_over_a_fence() -> None:
    """Its partitions are still bound to it."""
    scene = pooled().answer(1, {A0}).settle()
    mine = scene.view.instance_id
    scene.fence().finish()
    assert scene.in_touch().beats[-1].instance_id == mine


def test_pool_s_member_whose_id_was_taken_claims_another() -> None:
    """FENCED_INSTANCE_ID after a long absence: another one claimed the id; everything is lost, the pool has more."""
    scene = pooled().answer(1, {A0}).settle()
    mine = scene.view.instance_id
    scene.in_touch().reject(Verdict.FATAL, FENCED_INSTANCE)
    assert (scene.state, [type(step) for step in scene.new_steps]) == (S.FENCED, [LosePartitions])
    scene.finish().until(lambda s: bool(s.new(DescribeGroup)))
    describe(scene, **{mine or "": living("newer")})
    assert scene.in_touch().beats[-1].instance_id not in (mine, None)


def test_pool_s_member_that_has_no_id_yet_leaves_without_a_word() -> None:
    """There is nothing that the coordinator could know of it."""
    scene = joining(instance_pool=POOL).leave()
    assert (scene.beats, scene.new(LeaveCompleted)) == ([], [LeaveCompleted()])


# ---- removed by an administrator ------------------------------------------------------------------------------------


def test_static_member_that_was_removed_ends() -> None:
    """KIP-345's removal: the session cannot be over, so that somebody took it out for good."""
    scene = stable(A0, instance_id="i").in_touch().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "UNKNOWN_MEMBER_ID")])
    assert "removed from the group for good" in scene.new(RaiseToApplication)[0].error.message


def calm(scene: Scene) -> Scene:
    """Nothing changes for so long that heartbeats are a whole broker's interval apart."""
    for _ in range(20):
        scene.next_beat()
        scene.answer(1)
    assert scene.protocol.heartbeats.spacing_s(scene.now, holds=True) == scene.protocol.heartbeats.broker_interval_s
    return scene


@pytest.mark.parametrize("session_s", [None, 45.0])
def test_calm_static_member_that_was_removed_ends(session_s: float | None) -> None:
    """It asks once in an interval, so that its last answer is as old as that; a session is longer."""
    scene = calm(stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=session_s)))
    scene.next_beat()
    scene.now += 0.01
    scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, told(scene)) == (S.FATAL, [(Problem.FATAL, "UNKNOWN_MEMBER_ID")])


def test_static_member_with_a_session_shorter_than_its_silence_rejoins() -> None:
    """The group's session may be hardly longer than the broker's interval."""
    scene = calm(stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=5.5)))
    scene.next_beat()
    scene.now += 0.6
    assert scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER).state is S.FENCED


def test_static_member_whose_session_may_be_over_rejoins() -> None:
    """Without an answer for a heartbeat interval or more the session may have ended: that is no removal."""
    scene = stable(A0, instance_id="i").in_touch().drop().found().poll()
    scene.now += 30.0
    scene.in_touch().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert scene.state is S.FENCED


def test_static_member_that_was_stopped_with_an_answer_under_way_rejoins() -> None:
    """The old answer is read when the process goes on, right before the heartbeat that finds the session over."""
    scene = stable(A0, instance_id="i").in_touch()
    scene.now += 30.0
    scene.poll().answer(1)
    scene.in_touch().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert scene.state is S.FENCED


def test_static_member_that_was_slow_to_revoke_rejoins() -> None:
    """The rebalance timeout removes a member too."""
    scene = stable(A0, A1, instance_id="i").target(2, A0).in_touch().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert scene.state is S.FENCED


def test_dynamic_member_that_was_removed_rejoins() -> None:
    """It comes back by itself."""
    scene = stable(A0).in_touch().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, scene.finish().state) == (S.FENCED, S.JOINING)


# ---- how long one may be away ---------------------------------------------------------------------------------------


def test_view_tells_how_long_a_static_member_may_be_away() -> None:
    """Asked once for each join, after it."""
    scene = joining(instance_id="i")
    assert scene.all(LearnSessionTimeout) == []
    scene.answer(1, {A0}).settle()
    assert scene.all(LearnSessionTimeout) == [LearnSessionTimeout()]
    assert scene.feed(SessionTimeoutLearned(session_timeout_s=45.0)).view.session_timeout_s == 45.0


def test_changed_interval_makes_the_session_timeout_be_asked_for_again() -> None:
    """An operator who changes one changes the other; what the member tells and waits for follows."""
    scene = calm(stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0)))
    scene.next_beat()
    scene.answer(1, interval_s=2.0)
    assert scene.new(LearnSessionTimeout) == [LearnSessionTimeout()]
    scene.feed(SessionTimeoutLearned(session_timeout_s=10.0))
    assert scene.view.session_timeout_s == 10.0
    scene.next_beat()
    assert scene.answer(1, interval_s=2.0).new(LearnSessionTimeout) == []


@pytest.mark.parametrize(("learned_s", "read_again_s"), [(45.0, 45.0), (10.0, 10.0), (None, LONGEST_SESSION_S)])
def test_session_timeout_is_read_again_after_each_session(learned_s: float | None, read_again_s: float) -> None:
    """An operator may lower it and leave the heartbeat interval, and the lease must not outlive the session."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=learned_s))
    asked_at: list[float] = []
    for _ in range(200):
        before = len(scene.all(LearnSessionTimeout))
        scene.next_beat()
        scene.poll().answer(1)
        if len(scene.all(LearnSessionTimeout)) > before:
            asked_at.append(scene.now)
            scene.feed(SessionTimeoutLearned(session_timeout_s=learned_s))
    assert asked_at[1] - asked_at[0] == pytest.approx(read_again_s, abs=INTERVAL_S)
    scene.feed(SessionTimeoutLearned(session_timeout_s=6.0))
    lease_until = scene.view.lease_until
    assert lease_until is not None
    assert lease_until <= scene.now + 6.0


def test_dynamic_member_does_not_ask() -> None:
    """A dynamic member that goes is gone."""
    assert stable(A0).all(LearnSessionTimeout) == []


@pytest.mark.parametrize(("away_s", "warnings"), [(44.0, 0), (46.0, 1)])
def test_static_member_that_was_away_for_too_long_says_so(away_s: float, warnings: int) -> None:
    """It left with -2 and came back when its session was over: its partitions were others' meanwhile."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0)).leave().settle()
    scene.after(away_s).subscribe("orders").poll().in_touch().answer(2, {A0}).settle()
    assert len(scene.all(Warned)) == warnings


def test_missed_poll_counts_as_absence() -> None:
    """max.poll.interval.ms was exceeded, and the next poll came when the session was over."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0))
    scene.after(MAX_POLL_S).after(60.0).finish().in_touch().answer(2, {A0}).settle()
    words = (
        "Static member 'i' was away for 60 s, longer than the group's session timeout of 45 s: its partitions went to "
        "other members meanwhile; come back sooner, or raise consumer.session.timeout.ms of the group"
    )
    assert scene.all(Warned) == [Warned(words=words)]


@pytest.mark.parametrize(("poll_s", "warnings"), [(300.0, 0), (45.0, 0), (30.0, 0), (60.0, 1)])
def test_poll_interval_that_was_chosen_longer_than_the_session_is_warned_of(poll_s: float, warnings: int) -> None:
    """Once; the default of 300 s is nobody's choice."""
    scene = stable(A0, instance_id="i", max_poll_interval_s=poll_s)
    for _ in range(2):
        scene.feed(SessionTimeoutLearned(session_timeout_s=45.0))
    assert len(scene.all(Warned)) == warnings


def test_leave_for_good_is_no_absence() -> None:
    """Whoever leaves with -1 has no place to come back to."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0))
    scene.leave(LeaveOption.LEAVE).settle().after(60.0).subscribe("orders").poll().in_touch().answer(2, {A0}).settle()
    assert scene.all(Warned) == []


def test_loading_coordinator_does_not_end_a_conflict() -> None:
    """COORDINATOR_LOAD_IN_PROGRESS in between: the release is tried again."""
    scene = describe(conflict()).reject(Verdict.RETRY, LOADING)
    assert (scene.next_beat().member_id, scene.state) == ("ghost", S.JOINING)


# ---- the table of claims --------------------------------------------------------------------------------------------

C = ClaimState
#: For each edge of the table, a scene that takes it last.
CLAIMS: Mapping[tuple[ClaimState, ClaimState], Callable[[], Scene]] = {
    (C.UNCLAIMED, C.READY): lambda: joining(instance_id="i"),
    (C.UNCLAIMED, C.LOOKING): lambda: Scene(instance_pool=POOL).subscribe("orders").poll(),
    (C.READY, C.LOOKING): lambda: held(pooled(), "quicker"),
    (C.READY, C.RELEASING): lambda: conflict(holder="member-1"),
    (C.READY, C.HELD): lambda: joining(instance_id="i").answer(1, [A0]),
    (C.LOOKING, C.READY): lambda: (
        held(joining(instance_id="i").feed(CoordinatorLost(reason="closed"))).after(MAX_POLL_S).poll()
    ),
    (C.LOOKING, C.ASKED): lambda: joining(instance_pool=POOL),
    (C.ASKED, C.READY): pooled,
    (C.ASKED, C.LOOKING): lambda: pooled(i0=living("m"), i1=living("n"), i2=living("o")),
    (C.ASKED, C.RELEASING): lambda: describe(conflict()),
    (C.ASKED, C.REFUSED): lambda: pooled(ConflictPolicy.FAIL, i0=living("m"), i1=living("n"), i2=living("o")),
    (C.RELEASING, C.READY): lambda: describe(conflict()).answer(-2),
    (C.RELEASING, C.LOOKING): lambda: held(pooled(), "member-1").reject(Verdict.FATAL, FENCED_INSTANCE),
    (C.HELD, C.READY): lambda: stable(instance_id="i").fence(),
    (C.HELD, C.LOOKING): lambda: pooled().answer(1, []).settle().in_touch().reject(Verdict.FATAL, FENCED_INSTANCE),
}


def test_scenes_cover_every_edge_of_the_claims_table() -> None:
    """An edge that nobody can take is a defect of the table."""
    assert set(CLAIMS) == {(old, new) for old, after in followers(CLAIM_TRANSITIONS).items() for new in after}


@pytest.mark.parametrize("edge", CLAIMS, ids=lambda edge: f"{edge[0]}-{edge[1]}")
def test_claim_takes_the_edge(edge: tuple[ClaimState, ClaimState], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each edge of the table is a way that a claim really goes."""
    taken: list[tuple[object, object]] = []
    fire = StateMachine.fire

    def noted(machine: StateMachine[ClaimState], trigger: Enum) -> ClaimState:
        old = fire(machine, trigger)
        taken.append((old, machine.state))
        return old

    monkeypatch.setattr(StateMachine, "fire", noted)
    CLAIMS[edge]()
    assert edge in taken
