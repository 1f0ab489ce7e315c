"""An instance id that another member holds: takeover, wait, fail, and pools (KIP-345 on KIP-848; rules 3.3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

import pytest

from consumer_membership.membership.consumer.claim import MOST_TAKEOVERS, NEWEST_FOR_S
from consumer_membership.membership.consumer.claim_states import CLAIM_TRANSITIONS, ClaimState
from consumer_membership.membership.consumer.release_watch import LIKELY_FOR_S, MANY_HOLDERS, QUICK_DESCRIPTION_S
from consumer_membership.membership.consumer.session_timeout import LONGEST_SESSION_S
from consumer_membership.membership.effects import (
    CheckHolder,
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
    HolderChecked,
    SessionTimeoutLearned,
    Subscribed,
    Suspended,
    Verdict,
)
from consumer_membership.membership.pace import REMEMBERED_ROUND_TRIPS, ROUND_TRIPS
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
    created,
    joining,
    stable,
)

S = MemberState
FENCED_INSTANCE = BrokerError(code=82, name="FENCED_INSTANCE_ID", message="fenced by member newer")
POOL = ("i0", "i1", "i2")


def held(scene: Scene, holder: str | None = "former") -> Scene:
    """The coordinator refuses the join in flight, because another member holds the instance id."""
    return scene.with_heartbeat_in_flight().reject(Verdict.UNRELEASED, UNRELEASED, holder=holder)


def conflict(policy: ConflictPolicy = ConflictPolicy.TAKEOVER, holder: str | None = "former") -> Scene:
    """A static member whose first join was refused, because another member holds its instance id."""
    return held(joining(instance_id="i", conflict_policy=policy), holder)


def describe(scene: Scene, **holders: Holder) -> Scene:
    """The response to the latest DescribeGroup request arrives."""
    return scene.feed(GroupDescribed(request_id=scene.all(DescribeGroup)[-1].request_id, holders=holders))


def not_described(scene: Scene) -> Scene:
    """The coordinator refuses the latest DescribeGroup request."""
    return scene.feed(GroupDescribeFailed(request_id=scene.all(DescribeGroup)[-1].request_id, error=NOT_ALLOWED))


def checked(scene: Scene, *, is_dead: bool) -> Scene:
    """The result of the latest check of the holder arrives."""
    return scene.feed(HolderChecked(request_id=scene.all(CheckHolder)[-1].request_id, is_dead=is_dead))


def next_description(scene: Scene) -> Scene:
    """Let time pass until the member requests the next description."""
    return scene.until(lambda s: bool(s.new(DescribeGroup)))


def description_intervals_s(scene: Scene, count: int, **holders: Holder) -> list[float]:
    """Return the intervals between this many descriptions, each answered immediately with these holders."""
    moments = []
    for _ in range(count + 1):
        describe(next_description(scene.poll()), **holders)
        moments.append(scene.now)
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def waits_until_fatal(scene: Scene, holder: str) -> None:
    """The holder keeps the id until the waiting member fails."""
    while scene.state is S.JOINING:
        scene.until(lambda s: bool(s.new(DescribeGroup) or s.new_heartbeats)).poll()
        if len(scene.all(DescribeGroup)) and scene.protocol.claim.state is ClaimState.DESCRIBING:
            describe(scene, i=living(holder))
        if scene.protocol.heartbeats.in_flight is not None:
            scene.reject(Verdict.UNRELEASED, UNRELEASED, holder=holder)


def sent(scene: Scene) -> list[tuple[str, str | None, int]]:
    """Return member id, instance id and epoch of the last event's heartbeats."""
    return [(heartbeat.member_id, heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats]


def raised_problems(scene: Scene) -> list[tuple[Problem, str]]:
    """Return the kind and the error's name of each error that the last event raised."""
    return [(effect.problem, effect.error.name) for effect in scene.new(RaiseToApplication)]


@pytest.mark.parametrize("policy", [ConflictPolicy.FAIL, ConflictPolicy.TAKEOVER])
def test_conflict_error_omits_the_coordinators_advice(policy: ConflictPolicy) -> None:
    """The error quotes the coordinator's message without its advice, and adds only this member's own advice."""
    refusal = replace(UNRELEASED, remedy="advice")
    scene = (
        joining(instance_id="i", conflict_policy=policy)
        .with_heartbeat_in_flight()
        .reject(Verdict.UNRELEASED, refusal, holder="x")
    )
    if policy is ConflictPolicy.TAKEOVER:
        describe(scene).reject(Verdict.FATAL, replace(FENCED_INSTANCE, remedy="advice"))
    (raised,) = scene.all(RaiseToApplication)
    assert "advice" not in str(raised.error)
    assert str(raised.error).count("its own id") == 1


# ---- takeover -------------------------------------------------------------------------------------------------------


def test_takeover_describes_releases_the_holder_and_joins() -> None:
    """Rules 3.3: The member describes the group, releases the holder with -2 and joins at epoch 0."""
    scene = conflict()
    assert (scene.kinds, scene.state) == (["DescribeGroup"], S.JOINING)
    describe(scene, i=Holder(member_id="former", member_epoch=5, client_id="c", host="h"))
    assert sent(scene) == [("former", "i", -2)]
    scene.answer(-2)
    assert sent(scene) == [("member-1", "i", 0)]
    assert scene.new(InstanceReleased) == [
        InstanceReleased(instance_id="i", holder=Holder(member_id="former", member_epoch=5, client_id="c", host="h"))
    ]
    assert scene.answer(5, {A0}).settle().state is S.STABLE


def test_takeover_without_describe_permission_uses_the_error_message() -> None:
    """Rules 3.3: The holder named in the error's message is the fallback."""
    scene = not_described(conflict())
    assert (sent(scene), scene.new(Warned)) == ([("former", "i", -2)], [])


def test_takeover_prefers_the_holder_of_the_refusal() -> None:
    """The description shows the committed state, which may be older than the refusal."""
    scene = describe(conflict(), i=Holder(member_id="older", member_epoch=5))
    assert sent(scene) == [("former", "i", -2)]


def test_takeover_without_a_known_holder_waits_and_warns() -> None:
    """Rules 3.3: Without a description and a named holder the takeover waits, as with `wait`."""
    scene = not_described(conflict(holder=None))
    assert len(scene.new(Warned)) == 1
    assert sent(scene) == [("member-1", "i", 0)]
    held(scene, None)
    assert (scene.state, scene.new(DescribeGroup), scene.protocol.claim.is_waiting) == (S.JOINING, [], True)


def test_holder_that_has_left_is_not_released() -> None:
    """If the description shows epoch -2 or no holder, the join is repeated immediately."""
    scene = describe(conflict(holder=None), i=Holder(member_id="former", member_epoch=-2))
    assert sent(scene) == [("member-1", "i", 0)]
    assert sent(describe(conflict(holder=None))) == [("member-1", "i", 0)]


@pytest.mark.parametrize(("verdict", "error"), [(Verdict.REJOIN, UNKNOWN_MEMBER), (Verdict.GROUP_GONE, GROUP_GONE)])
def test_holder_that_is_unknown_needs_no_release(verdict: Verdict, error: BrokerError) -> None:
    """UNKNOWN_MEMBER_ID for the release counts as success."""
    scene = describe(conflict()).reject(verdict, error)
    assert (scene.state, sent(scene)) == (S.JOINING, [("member-1", "i", 0)])


def test_lost_release_is_repeated() -> None:
    """A release without a response is sent again, because it is idempotent."""
    scene = describe(conflict()).drop().found()
    assert (scene.next_heartbeat().member_id, scene.heartbeats[-1].member_epoch) == ("former", -2)


def test_slower_of_two_new_members_is_fenced() -> None:
    """FENCED_INSTANCE_ID for the release means that another new member has joined; that member stays."""
    scene = describe(conflict()).reject(Verdict.FATAL, FENCED_INSTANCE)
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "FENCED_INSTANCE_ID")])
    assert "at the same time" in scene.new(RaiseToApplication)[0].error.message


def test_takeover_happens_once_for_a_join() -> None:
    """If another new member joins between release and join, this member ends and does not take the id back."""
    scene = describe(conflict()).answer(-2).reject(Verdict.UNRELEASED, UNRELEASED, holder="quicker")
    assert (scene.state, sent(scene)) == (S.FATAL, [])
    error = scene.new(RaiseToApplication)[0].error
    assert error.name == "FENCED_INSTANCE_ID"
    assert error.message == (
        "group.instance.id 'i' is held by member quicker, which joined while this member was joining or out of the "
        "group; the newest member wins, so this one ends; give each process its own id (the coordinator responded: "
        "owned by another member)"
    )


def test_holder_that_returns_before_the_join_is_released_again() -> None:
    """A holder whose heartbeat arrives between release and join is still the older member."""
    scene = describe(conflict())
    for _ in range(MOST_TAKEOVERS - 1):
        held(scene.answer(-2))
        assert sent(describe(scene, i=Holder(member_id="former", member_epoch=6))) == [("former", "i", -2)]
    held(scene.answer(-2))
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "FENCED_INSTANCE_ID")])


def test_fenced_member_never_takes_over() -> None:
    """A fenced member was in the group, so the present holder of its instance id is newer."""
    scene = stable(A0, instance_id="i").fence().finish()
    held(scene, "newer")
    assert (scene.state, scene.new(DescribeGroup)) == (S.FATAL, [])
    assert raised_problems(scene)[-1] == (Problem.FATAL, "FENCED_INSTANCE_ID")


def test_member_that_missed_its_poll_never_takes_over() -> None:
    """A process that was stopped and continues finds its replacement and ends (SIGSTOP, SIGCONT)."""
    scene = stable(A0, instance_id="i").after(MAX_POLL_S).finish()
    held(scene, "newer")
    assert (scene.state, scene.new(DescribeGroup)) == (S.FATAL, [])


def test_member_that_never_joined_takes_over_soon_after_subscribe() -> None:
    """A lost join does not matter if a response names the holder soon after the application subscribed."""
    scene = joining(instance_id="i").drop().found()
    scene.after(NEWEST_FOR_S / 2)
    held(scene, "former")
    assert scene.kinds == ["DescribeGroup"]


@pytest.mark.parametrize("waits_s", [NEWEST_FOR_S + 0.1, MAX_POLL_S])
def test_member_that_learns_of_the_holder_late_never_takes_over(waits_s: float) -> None:
    """A process that was stopped before its first join may have been replaced, so it waits for the holder."""
    scene = joining(instance_id="i")
    scene.after(waits_s).poll()
    held(scene, "newer")
    assert (scene.state, scene.new(DescribeGroup)) == (S.JOINING, [])
    assert "It is not taken over, because the application subscribed" in scene.new(Warned)[0].message
    waits_until_fatal(scene, "newer")
    assert ("newer", "i", -2) not in [
        (heartbeat.member_id, heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.heartbeats
    ]
    assert raised_problems(scene)[-1] == (Problem.FATAL, "UNRELEASED_INSTANCE_ID")


def test_member_that_learns_of_the_holder_late_joins_after_it_has_left() -> None:
    """A holder that has crashed delays the join by the rest of its session at most."""
    scene = joining(instance_id="i").after(NEWEST_FOR_S + 0.1)
    held(scene, "former")
    describe(next_description(scene))
    assert scene.answer(5, {A0}).settle().state is S.STABLE


@pytest.mark.parametrize("asked_s_ago", [0.0, NEWEST_FOR_S + 0.1])
def test_takeover_counts_the_time_between_subscribe_and_the_first_poll(asked_s_ago: float) -> None:
    """A process that is stopped before its first poll may continue long after subscribe()."""
    scene = Scene(instance_id="i")
    subscription = Subscription(topics=frozenset({"orders"}))
    scene.feed(Subscribed(subscription=subscription, asked_at=scene.now - asked_s_ago)).poll().found()
    held(scene)
    assert bool(scene.new(DescribeGroup)) is (asked_s_ago == 0.0)


def test_holder_that_is_described_late_is_not_taken_over() -> None:
    """The process was stopped between the refusal, which names no holder, and the description."""
    scene = conflict(holder=None).after(NEWEST_FOR_S + 0.1)
    describe(scene, i=living("newer"))
    assert sent(scene) == [("member-1", "i", 0)]


@pytest.mark.parametrize(
    ("created_at", "takes_over"),
    [
        pytest.param(1000.0, True, id="older"),
        pytest.param(1999.0, True, id="older by one second"),
        pytest.param(1999.001, False, id="older by less"),
        pytest.param(3000.0, False, id="newer"),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_member_that_learns_of_the_holder_late_knows_from_its_id_whether_it_is_older(
    created_at: float, *, takes_over: bool, is_named: bool
) -> None:
    """A join over a slow network, or on a busy machine, may take longer than two seconds."""
    holder = created(created_at)
    scene = joining(instance_id="i", member_id=created(2000.0))
    if is_named:
        scene.after(NEWEST_FOR_S + 0.1)
        held(scene, holder)
    else:
        held(scene, None).after(NEWEST_FOR_S + 0.1)
    if scene.all(DescribeGroup):
        describe(scene, i=living(holder))
    assert ((holder, "i", -2) in sent(scene)) is takes_over


def test_holder_that_was_named_in_time_is_taken_over_later() -> None:
    """The holder was there when the application subscribed.

    If it has left since, the coordinator refuses its release.
    """
    scene = conflict().after(NEWEST_FOR_S + 0.1)
    assert sent(describe(scene, i=living("newer"))) == [("former", "i", -2)]


@pytest.mark.parametrize("policy", ConflictPolicy)
def test_join_replaces_a_classic_holder_only_with_takeover(policy: ConflictPolicy) -> None:
    """Coordinators let any join replace a classic holder, so the member itself applies its policy."""
    scene = joining(instance_id="i", conflict_policy=policy)
    assert [order.may_take_over for order in scene.all(SendHeartbeat)] == [policy is ConflictPolicy.TAKEOVER]


def test_join_of_an_older_member_does_not_replace_a_classic_holder() -> None:
    """A member that was fenced, or that learned of the holder late, may be the older member."""
    fenced = stable(A0, instance_id="i").fence().finish().with_heartbeat_in_flight()
    late = joining(instance_id="i").drop().found().after(NEWEST_FOR_S + 0.1).with_heartbeat_in_flight()
    assert [scene.all(SendHeartbeat)[-1].may_take_over for scene in (fenced, late)] == [False, False]


def test_member_that_subscribes_again_takes_over() -> None:
    """A join that the application requests is the newest."""
    scene = stable(A0, instance_id="i").leave().settle().subscribe("orders").poll()
    assert held(scene, "other").kinds == ["DescribeGroup"]


def test_leave_during_a_takeover_releases_no_holder() -> None:
    """A description that arrives after the application has left orders nothing."""
    scene = conflict().leave()
    describe(scene)
    assert sent(scene) == []


# ---- the former holder ----------------------------------------------------------------------------------------------


def test_former_holder_loses_everything_and_ends() -> None:
    """FENCED_INSTANCE_ID orders the error, then on_lost. The member commits and sends nothing, not even at close()."""
    scene = stable(A0, A1, instance_id="i").with_heartbeat_in_flight().reject(Verdict.FATAL, FENCED_INSTANCE)
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "FENCED_INSTANCE_ID")])
    assert scene.kinds == ["RaiseToApplication", "StateChanged", "LosePartitions"]
    scene.commit(3, A0)
    assert scene.new(CommitOffsets) == []
    scene.finish()
    scene.after(1000).poll()
    assert (scene.state, scene.new_heartbeats) == (S.FATAL, [])
    scene.leave()
    assert (scene.new(LeaveCompleted), scene.new_heartbeats) == ([LeaveCompleted()], [])


def test_holder_that_was_released_rejoins_after_a_pause() -> None:
    """A released holder receives FENCED_MEMBER_EPOCH.

    It rejoins after a pause, so that the new member can join first.
    """
    scene = stable(A0, instance_id="i").fence(FENCED_EPOCH).finish()
    assert (scene.state, scene.new_heartbeats) == (S.JOINING, [])
    assert (scene.next_heartbeat().member_epoch, round(scene.now - scene.context.history.since, 1)) == (0, 0.1)  # type: ignore[operator]  # the member has a state


# ---- fail and wait --------------------------------------------------------------------------------------------------


def test_fail_ends_at_once_and_names_holder_and_fix() -> None:
    """The policy `fail` follows KIP-848 and ends with an error that names the holder and the fix."""
    scene = conflict(ConflictPolicy.FAIL)
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "UNRELEASED_INSTANCE_ID")])
    assert scene.new(RaiseToApplication)[0].error.message == (
        "group.instance.id 'i' is held by member former; close it, give this process its own id, or set "
        "group.instance.id.conflict.policy to takeover (the coordinator responded: owned by another member)"
    )


def test_wait_joins_as_soon_as_the_description_shows_the_release() -> None:
    """Until then no join is repeated, and the view shows the holder for which the member waits, and until when."""
    scene = conflict(ConflictPolicy.WAIT)
    assert (scene.state, scene.new(LearnSessionTimeout), len(scene.new(Warned))) == (
        S.JOINING,
        [LearnSessionTimeout()],
        1,
    )
    scene.feed(SessionTimeoutLearned(session_timeout_s=45.0))
    view = scene.view
    assert (view.waits_for_text, view.waits_since, view.waits_until) == (
        "group.instance.id: 'i' is held by member former until it leaves or its session ends",
        scene.now,
        scene.now + 45.0 + GRACE_S,
    )
    for _ in range(10):
        describe(next_description(scene), i=living("former"))
        assert (sent(scene), scene.new(Warned)) == ([], [])
    describe(next_description(scene), i=Holder(member_id="former", member_epoch=-2))
    assert sent(scene) == [("member-1", "i", 0)]
    scene.answer(3, {A0}).settle()
    assert (scene.state, scene.view.waits_for, scene.view.waits_until) == (S.STABLE, None, None)


def test_wait_fails_after_a_session() -> None:
    """A holder that keeps the id longer than a session is alive, so this member ends."""
    scene = conflict(ConflictPolicy.WAIT).feed(SessionTimeoutLearned(session_timeout_s=None))
    began = scene.now
    waits_until_fatal(scene, "former")
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "UNRELEASED_INSTANCE_ID")])
    assert LONGEST_SESSION_S + GRACE_S <= scene.now - began < LONGEST_SESSION_S + GRACE_S + 2
    assert "so the holder is alive" in scene.new(RaiseToApplication)[0].error.message


def test_wait_describes_the_group_every_40_ms_for_a_minute() -> None:
    """A deployment starts the new process shortly before it ends the old one, so a release is most likely at first."""
    scene = conflict(ConflictPolicy.WAIT)
    assert description_intervals_s(scene, 100, i=living("former")) == pytest.approx([QUICK_DESCRIPTION_S] * 100)


def test_descriptions_are_40_ms_apart_at_least() -> None:
    """A shorter retry.backoff.max.ms applies to failed requests and must not cause continuous descriptions."""
    everyone = {name: living(f"m-{name}") for name in POOL}
    scene = joining(
        instance_pool=POOL, conflict_policy=ConflictPolicy.WAIT, retry_backoff_s=0.001, retry_backoff_max_s=0.001
    )
    describe(scene, **everyone)
    assert description_intervals_s(scene, 3, **everyone) == pytest.approx([QUICK_DESCRIPTION_S] * 3)


def test_pool_describes_the_group_less_often_the_longer_nothing_changes() -> None:
    """The intervals are proportional to the time since the last change, up to retry.backoff.max.ms."""
    everyone = {name: living(f"m-{name}") for name in POOL}
    scene = pooled(ConflictPolicy.WAIT, **everyone)
    began = scene.now
    while scene.now < began + 5 * LIKELY_FOR_S:
        description_intervals_s(scene, 1, **everyone)
    assert description_intervals_s(scene, 1, **everyone) == pytest.approx([5 * QUICK_DESCRIPTION_S], rel=0.1)
    while scene.now < began + 60 * LIKELY_FOR_S:
        description_intervals_s(scene, 1, **everyone)
    assert description_intervals_s(scene, 1, **everyone) == pytest.approx([1.0])


def test_pool_describes_the_group_often_again_after_an_id_changed_its_holder() -> None:
    """A deployment replaces one process after another."""
    everyone = {name: living(f"m-{name}") for name in POOL}
    scene = pooled(ConflictPolicy.WAIT, **everyone)
    description_intervals_s(scene.poll(), 1, **everyone)
    began = scene.now
    while scene.now < began + 5 * LIKELY_FOR_S:
        description_intervals_s(scene, 1, **everyone)
    everyone["i2"] = living("newer")
    describe(next_description(scene), **everyone)
    assert description_intervals_s(scene, 10, **everyone) == pytest.approx([QUICK_DESCRIPTION_S] * 10)


@pytest.mark.parametrize(("ids", "factor"), [(MANY_HOLDERS, 1), (4 * MANY_HOLDERS, 4), (1000 * MANY_HOLDERS, 25)])
def test_large_group_is_described_less_often(ids: int, factor: float) -> None:
    """A description costs the broker more the more members the group has; the interval is at most 1 s."""
    everyone = {f"i{number}": living(f"m{number}") for number in range(ids)}
    scene = describe(joining(instance_pool=tuple(everyone), conflict_policy=ConflictPolicy.WAIT), **everyone)
    assert description_intervals_s(scene, 3, **everyone) == pytest.approx([factor * QUICK_DESCRIPTION_S] * 3)


@pytest.mark.parametrize(("round_trip_s", "interval_s"), [(0.03, ROUND_TRIPS * 0.03), (0.3, 1.0)])
def test_waiting_member_spends_a_twentieth_of_its_time_on_descriptions(round_trip_s: float, interval_s: float) -> None:
    """A slow coordinator receives fewer requests, but at least one in each retry.backoff.max.ms."""
    scene = conflict(ConflictPolicy.WAIT)
    for _ in range(REMEMBERED_ROUND_TRIPS):
        next_description(scene.poll()).now += round_trip_s
        describe(scene, i=living("former"))
    described_at = scene.now
    assert next_description(scene).now - described_at == pytest.approx(interval_s)


def test_member_that_waits_without_describe_permission_repeats_the_join_with_a_backoff() -> None:
    """Brokers log each refused join, so joins are repeated less often than descriptions; the log warns once at most."""
    scene = conflict(ConflictPolicy.WAIT)
    joined_at = []
    for _ in range(8):
        not_described(next_description(scene))
        assert (sent(scene), scene.new(Warned)) == ([("member-1", "i", 0)], [])
        joined_at.append(scene.now)
        scene.reject(Verdict.UNRELEASED, UNRELEASED, holder="former")
    assert joined_at[-1] - joined_at[-2] == pytest.approx(1.0)


def test_join_that_the_description_does_not_explain_is_repeated_with_a_backoff() -> None:
    """A holder that the description does not show may be a member of a classic group."""
    scene = conflict(ConflictPolicy.WAIT)
    joined_at = []
    for _ in range(8):
        describe(next_description(scene))
        joined_at.append(scene.now)
        scene.reject(Verdict.UNRELEASED, UNRELEASED, holder="former")
    assert joined_at[-1] - joined_at[-2] == pytest.approx(1.0)


def test_claim_of_a_waiting_pool_member_that_was_refused_delays_no_later_claim() -> None:
    """Of several members that wait, one gets the released id; the others wait for the next released id."""
    everyone = {name: living(f"m-{name}") for name in POOL}
    free = everyone | {"i1": Holder(member_id="m-i1", member_epoch=-2)}
    scene = pooled(ConflictPolicy.WAIT, **everyone)
    for _ in range(6):
        describe(next_description(scene), **free)
        held(scene, "quicker")
        describe(next_description(scene), **everyone)
    describe(next_description(scene), **free)
    assert sent(scene) == [("member-1", "i1", 0)]


def test_waiting_member_leaves_at_once() -> None:
    """A waiting member holds no partitions, so its leave is sent immediately."""
    scene = conflict(ConflictPolicy.WAIT).leave()
    assert [heartbeat.member_epoch for heartbeat in scene.new_heartbeats] == [-2]
    assert scene.answer(-2).new(LeaveCompleted) == [LeaveCompleted()]


# ---- a full group ----


def full(policy: ConflictPolicy = ConflictPolicy.TAKEOVER) -> Scene:
    """A static member whose join the full group refused."""
    return joining(instance_id="i", conflict_policy=policy).reject(Verdict.FATAL, GROUP_FULL)


@pytest.mark.parametrize("policy", ConflictPolicy)
def test_returning_static_member_reuses_its_place_in_a_full_group(policy: ConflictPolicy) -> None:
    """Brokers before KAFKA-20601 count its new member id as an additional member.

    So the member releases its former place before it joins.
    """
    scene = full(policy)
    assert (scene.kinds, scene.state) == (["DescribeGroup"], S.JOINING)
    describe(scene, i=Holder(member_id="away", member_epoch=-2))
    assert sent(scene) == [("away", "i", -1)]
    assert sent(scene.answer(-1)) == [("member-1", "i", 0)]
    assert scene.answer(5, {A0}).settle().state is S.STABLE


def test_replacement_of_a_crashed_member_takes_its_place_in_a_full_group() -> None:
    """With takeover the new member removes the crashed one first, because the group has no place for both."""
    scene = describe(full(), i=living("former"))
    assert sent(scene) == [("former", "i", -1)]


@pytest.mark.parametrize(
    ("policy", "holders"),
    [
        (ConflictPolicy.TAKEOVER, {}),
        (ConflictPolicy.TAKEOVER, {"j": Holder(member_id="m", member_epoch=-2)}),
        (ConflictPolicy.WAIT, {"i": Holder(member_id="m", member_epoch=4)}),
        (ConflictPolicy.FAIL, {"i": Holder(member_id="m", member_epoch=4)}),
    ],
)
def test_member_without_a_place_is_refused_by_a_full_group(policy: ConflictPolicy, holders: dict[str, Holder]) -> None:
    """KIP-389: GROUP_MAX_SIZE_REACHED is fatal, and no member is removed."""
    scene = describe(full(policy), **holders)
    assert (scene.state, raised_problems(scene), sent(scene)) == (
        S.FATAL,
        [(Problem.FATAL, "GROUP_MAX_SIZE_REACHED")],
        [],
    )


def test_full_group_that_cannot_be_described_is_fatal() -> None:
    """Without knowing the holder the member removes none."""
    assert raised_problems(not_described(full())) == [(Problem.FATAL, "GROUP_MAX_SIZE_REACHED")]


def test_former_member_in_a_full_group_is_removed_once() -> None:
    """If another member takes the released place, this member ends."""
    scene = describe(full(), i=Holder(member_id="away", member_epoch=-2)).answer(-1)
    scene.reject(Verdict.FATAL, GROUP_FULL)
    assert (scene.state, sent(scene)) == (S.FATAL, [])


def test_dynamic_member_is_refused_by_a_full_group_at_once() -> None:
    """A dynamic member has no former member that it could remove."""
    assert joining().reject(Verdict.FATAL, GROUP_FULL).state is S.FATAL


# ---- pools ----------------------------------------------------------------------------------------------------------


def pooled(policy: ConflictPolicy = ConflictPolicy.WAIT, **holders: Holder) -> Scene:
    """Return a member with a pool that joins and knows the holder of each id."""
    return describe(joining(instance_pool=POOL, conflict_policy=policy), **holders)


def living(name: str) -> Holder:
    """Return a holder that has not left."""
    return Holder(member_id=name, member_epoch=7)


def test_pool_is_described_before_the_join() -> None:
    """The member sends no join before it knows which ids are held."""
    scene = joining(instance_pool=POOL)
    assert (scene.new(DescribeGroup) != [], scene.heartbeats, scene.view.instance_id) == (True, [], None)


def test_released_id_is_claimed_before_an_unused_one() -> None:
    """The partitions of a member that left with -2 wait for the next holder of its id."""
    scene = pooled(i1=Holder(member_id="away", member_epoch=-2), i0=living("m"))
    assert (sent(scene), scene.view.instance_id) == ([("member-1", "i1", 0)], "i1")


def test_held_ids_are_not_claimed() -> None:
    """The member claims only free ids."""
    assert sent(pooled(i0=living("m"), i1=living("n"))) == [("member-1", "i2", 0)]


def test_claim_that_another_member_won_tries_another_id() -> None:
    """The coordinator gives each id to one member.

    A refused member describes the group again and skips the refused id.
    """
    scene = pooled(i0=living("m"))
    first = scene.heartbeats[-1].instance_id
    held(scene, "quicker")
    assert (scene.kinds, scene.state) == ([], S.JOINING)
    describe(scene.until(lambda s: bool(s.new(DescribeGroup))), i0=living("m"))
    assert {first, scene.heartbeats[-1].instance_id} == {"i1", "i2"}


def test_pool_without_a_free_id_waits_and_warns_once() -> None:
    """With `wait` the member describes the group again after a backoff, and the view shows it."""
    scene = pooled(i0=living("m"), i1=living("n"), i2=living("o"))
    assert [effect.message for effect in scene.new(Warned)] == [
        "No id of group.instance.id.pool is free: i0 is held by m; i1 is held by n; i2 is held by o"
    ]
    assert scene.view.waits_for == "group.instance.id.pool"
    for _ in range(3):
        scene.until(lambda s: bool(s.new(DescribeGroup)))
        describe(scene, i0=living("m"), i1=living("n"), i2=living("o"))
        assert scene.new(Warned) == []
    scene.until(lambda s: bool(s.new(DescribeGroup)))
    describe(scene, i0=living("m"), i1=Holder(member_id="n", member_epoch=-2), i2=living("o"))
    assert sent(scene) == [("member-1", "i1", 0)]


def test_pool_without_a_free_id_fails_with_policy_fail() -> None:
    """With `fail` the error states that the pool is exhausted, and names the fix."""
    scene = pooled(ConflictPolicy.FAIL, i0=living("m"), i1=living("n"), i2=living("o"))
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "UNRELEASED_INSTANCE_ID")])
    assert "all 3 ids of group.instance.id.pool are held" in scene.new(RaiseToApplication)[0].error.message


def test_pool_without_describe_permission_tries_each_id() -> None:
    """The coordinator refuses held ids. When it has refused all, the member waits."""
    scene = not_described(joining(instance_pool=POOL, conflict_policy=ConflictPolicy.WAIT))
    tried = [scene.heartbeats[-1].instance_id]
    for _ in range(2):
        not_described(held(scene, "m").until(lambda s: bool(s.new(DescribeGroup))))
        tried.append(scene.heartbeats[-1].instance_id)
    assert sorted(filter(None, tried)) == list(POOL)
    not_described(held(scene, "m").until(lambda s: bool(s.new(DescribeGroup))))
    assert (sent(scene), len(scene.new(Warned))) == ([], 1)


def test_pool_member_keeps_its_id_after_a_fence() -> None:
    """The member's partitions are still bound to its id."""
    scene = pooled().answer(1, {A0}).settle()
    mine = scene.view.instance_id
    scene.fence().finish()
    assert scene.with_heartbeat_in_flight().heartbeats[-1].instance_id == mine


def test_pool_member_whose_id_was_taken_claims_another() -> None:
    """FENCED_INSTANCE_ID means that another member claimed the id.

    This member loses its partitions and claims another id.
    """
    scene = pooled().answer(1, {A0}).settle()
    mine = scene.view.instance_id
    scene.with_heartbeat_in_flight().reject(Verdict.FATAL, FENCED_INSTANCE)
    assert (scene.state, [type(step) for step in scene.new_steps]) == (S.FENCED, [LosePartitions])
    scene.finish().until(lambda s: bool(s.new(DescribeGroup)))
    describe(scene, **{mine or "": living("newer")})
    assert scene.with_heartbeat_in_flight().heartbeats[-1].instance_id not in (mine, None)


def test_pool_member_without_an_id_leaves_without_a_request() -> None:
    """The coordinator does not know a member that has no id yet."""
    scene = joining(instance_pool=POOL).leave()
    assert (scene.heartbeats, scene.new(LeaveCompleted)) == ([], [LeaveCompleted()])


# ---- removed by an administrator ------------------------------------------------------------------------------------


def test_static_member_that_was_removed_is_fatal() -> None:
    """KIP-345: If the session cannot be over, an administrator removed the member permanently."""
    scene = stable(A0, instance_id="i").with_heartbeat_in_flight().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "UNKNOWN_MEMBER_ID")])
    assert "removed from the group during its session" in scene.new(RaiseToApplication)[0].error.message


def calm(scene: Scene) -> Scene:
    """STABLE, after such a long time without changes that heartbeats are a broker interval apart."""
    for _ in range(20):
        scene.next_heartbeat()
        scene.answer(1)
    assert scene.protocol.heartbeats.spacing_s(scene.now, holds=True) == scene.protocol.heartbeats.broker_interval_s
    return scene


@pytest.mark.parametrize("session_s", [None, 45.0])
def test_static_member_that_was_removed_between_heartbeats_is_fatal(session_s: float | None) -> None:
    """The last response is at most one interval old, and a session is longer."""
    scene = calm(stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=session_s)))
    scene.next_heartbeat()
    scene.now += 0.01
    scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, raised_problems(scene)) == (S.FATAL, [(Problem.FATAL, "UNKNOWN_MEMBER_ID")])


def test_static_member_with_a_session_shorter_than_its_silence_rejoins() -> None:
    """The group's session may be only slightly longer than the broker's interval."""
    scene = calm(stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=5.5)))
    scene.next_heartbeat()
    scene.now += 0.6
    assert scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER).state is S.FENCED


def test_static_member_whose_session_may_be_over_rejoins() -> None:
    """Without a response for a heartbeat interval or more the session may have ended, so this is not a removal."""
    scene = stable(A0, instance_id="i").with_heartbeat_in_flight().drop().found().poll()
    scene.now += 30.0
    scene.with_heartbeat_in_flight().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert scene.state is S.FENCED


def test_static_member_that_read_an_old_answer_after_a_stop_rejoins() -> None:
    """A process that continues reads the old response just before the heartbeat that finds the session over."""
    scene = stable(A0, instance_id="i").with_heartbeat_in_flight()
    scene.now += 30.0
    scene.poll().answer(1)
    scene.with_heartbeat_in_flight().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert scene.state is S.FENCED


def test_static_member_that_was_slow_to_revoke_rejoins() -> None:
    """The rebalance timeout also removes a member."""
    scene = (
        stable(A0, A1, instance_id="i").target(2, A0).with_heartbeat_in_flight().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    )
    assert scene.state is S.FENCED


def test_static_member_whose_session_ended_during_a_suspension_joins_again() -> None:
    """The coordinator removed the member because it was silent, although the member's own clock did not run."""
    scene = stable(A0, instance_id="i").with_heartbeat_in_flight().feed(Suspended(seconds=3600.0))
    assert scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER).state is S.FENCED


def test_dynamic_member_that_was_removed_rejoins() -> None:
    """A dynamic member that was removed rejoins automatically."""
    scene = stable(A0).with_heartbeat_in_flight().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, scene.finish().state) == (S.FENCED, S.JOINING)


# ---- the session timeout: how long a static member may be away ------------------------------------------------------


def test_view_shows_the_session_timeout_of_a_static_member() -> None:
    """The member requests the session timeout once after each join."""
    scene = joining(instance_id="i")
    assert scene.all(LearnSessionTimeout) == []
    scene.answer(1, {A0}).settle()
    assert scene.all(LearnSessionTimeout) == [LearnSessionTimeout()]
    assert scene.feed(SessionTimeoutLearned(session_timeout_s=45.0)).view.session_timeout_s == 45.0


def test_changed_interval_requests_the_session_timeout_again() -> None:
    """An operator who changes the interval often also changes the session timeout, so the member requests it again."""
    scene = calm(stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0)))
    scene.next_heartbeat()
    scene.answer(1, interval_s=2.0)
    assert scene.new(LearnSessionTimeout) == [LearnSessionTimeout()]
    scene.feed(SessionTimeoutLearned(session_timeout_s=10.0))
    assert scene.view.session_timeout_s == 10.0
    scene.next_heartbeat()
    assert scene.answer(1, interval_s=2.0).new(LearnSessionTimeout) == []


@pytest.mark.parametrize(("learned_s", "read_again_s"), [(45.0, 45.0), (10.0, 10.0), (None, LONGEST_SESSION_S)])
def test_session_timeout_is_requested_again_after_each_session(learned_s: float | None, read_again_s: float) -> None:
    """An operator may lower only the session timeout, and the lease must not outlive the session."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=learned_s))
    asked_at: list[float] = []
    for _ in range(200):
        before = len(scene.all(LearnSessionTimeout))
        scene.next_heartbeat()
        scene.poll().answer(1)
        if len(scene.all(LearnSessionTimeout)) > before:
            asked_at.append(scene.now)
            scene.feed(SessionTimeoutLearned(session_timeout_s=learned_s))
    assert asked_at[1] - asked_at[0] == pytest.approx(read_again_s, abs=INTERVAL_S)
    scene.feed(SessionTimeoutLearned(session_timeout_s=6.0))
    lease_until = scene.view.lease_until
    assert lease_until is not None
    assert lease_until <= scene.now + 6.0


def test_member_with_leases_requests_the_session_timeout_again_after_each_heartbeat_interval() -> None:
    """The coordinator applies a lowered timeout to the next heartbeat, and the lease must not be longer."""
    scene = stable(A0, has_leases=True)
    scene.feed(SessionTimeoutLearned(session_timeout_s=45.0))
    begin, before = scene.now, len(scene.all(LearnSessionTimeout))
    while len(scene.all(LearnSessionTimeout)) == before:
        scene.after(0.25).settle()
        assert scene.now < begin + 100.0
    assert scene.now - begin == pytest.approx(INTERVAL_S, abs=0.5)


def test_dynamic_member_does_not_request_the_session_timeout() -> None:
    """A dynamic member has no place that it keeps while it is away."""
    assert stable(A0).all(LearnSessionTimeout) == []


@pytest.mark.parametrize(("away_s", "warnings"), [(44.0, 0), (46.0, 1)])
def test_static_member_that_was_away_for_too_long_warns(away_s: float, warnings: int) -> None:
    """A member that left with -2 and returns after its session warns that other members had its partitions."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0)).leave().settle()
    scene.after(away_s).subscribe("orders").poll().with_heartbeat_in_flight().answer(2, {A0}).settle()
    assert len(scene.all(Warned)) == warnings


def test_missed_poll_counts_as_absence() -> None:
    """A member that exceeded max.poll.interval.ms and polls after its session warns of its absence."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0))
    scene.after(MAX_POLL_S).after(60.0).finish().with_heartbeat_in_flight().answer(2, {A0}).settle()
    message = (
        "Static member 'i' was away for 60 s, longer than the session timeout of the group (45 s), so its partitions "
        "were assigned to other members; restart faster, or raise consumer.session.timeout.ms of the group"
    )
    assert scene.all(Warned) == [Warned(message=message)]


@pytest.mark.parametrize(("poll_s", "warnings"), [(300.0, 0), (45.0, 0), (30.0, 0), (60.0, 1)])
def test_poll_interval_longer_than_the_session_warns(poll_s: float, warnings: int) -> None:
    """A configured poll interval longer than the session gives one warning; the default of 300 s gives none."""
    scene = stable(A0, instance_id="i", max_poll_interval_s=poll_s)
    for _ in range(2):
        scene.feed(SessionTimeoutLearned(session_timeout_s=45.0))
    assert len(scene.all(Warned)) == warnings


def test_leave_without_return_does_not_count_as_absence() -> None:
    """A member that leaves with -1 keeps no place."""
    scene = stable(A0, instance_id="i").feed(SessionTimeoutLearned(session_timeout_s=45.0))
    scene.leave(LeaveOption.LEAVE).settle().after(60.0).subscribe("orders").poll().with_heartbeat_in_flight().answer(
        2, {A0}
    ).settle()
    assert scene.all(Warned) == []


def test_loading_coordinator_does_not_end_a_conflict() -> None:
    """After COORDINATOR_LOAD_IN_PROGRESS the release is repeated."""
    scene = describe(conflict()).reject(Verdict.RETRY, LOADING)
    assert (scene.next_heartbeat().member_id, scene.state) == ("former", S.JOINING)


# ---- the table of claims --------------------------------------------------------------------------------------------

C = ClaimState
#: For each edge of the table, a scene whose last transition is this edge.
CLAIMS: Mapping[tuple[ClaimState, ClaimState], Callable[[], Scene]] = {
    (C.UNCLAIMED, C.READY): lambda: joining(instance_id="i"),
    (C.UNCLAIMED, C.LOOKING): lambda: Scene(instance_pool=POOL).subscribe("orders").poll(),
    (C.READY, C.LOOKING): lambda: held(pooled(), "quicker"),
    (C.READY, C.RELEASING): lambda: conflict(holder="member-1"),
    (C.READY, C.HELD): lambda: joining(instance_id="i").answer(1, [A0]),
    (C.LOOKING, C.READY): lambda: (
        held(joining(instance_id="i").feed(CoordinatorLost(reason="closed"))).after(MAX_POLL_S).poll()
    ),
    (C.LOOKING, C.DESCRIBING): lambda: joining(instance_pool=POOL),
    (C.DESCRIBING, C.READY): pooled,
    (C.DESCRIBING, C.LOOKING): lambda: pooled(i0=living("m"), i1=living("n"), i2=living("o")),
    (C.DESCRIBING, C.RELEASING): lambda: describe(conflict()),
    (C.DESCRIBING, C.REFUSED): lambda: pooled(ConflictPolicy.FAIL, i0=living("m"), i1=living("n"), i2=living("o")),
    (C.READY, C.CHECKING): lambda: conflict(ConflictPolicy.TAKEOVER_WHEN_DEAD),
    (C.DESCRIBING, C.CHECKING): lambda: describe(
        conflict(ConflictPolicy.TAKEOVER_WHEN_DEAD, holder=None), i=living("m")
    ),
    (C.CHECKING, C.LOOKING): lambda: checked(conflict(ConflictPolicy.TAKEOVER_WHEN_DEAD), is_dead=False),
    (C.CHECKING, C.RELEASING): lambda: checked(conflict(ConflictPolicy.TAKEOVER_WHEN_DEAD), is_dead=True),
    (C.CHECKING, C.READY): lambda: conflict(ConflictPolicy.TAKEOVER_WHEN_DEAD).after(MAX_POLL_S).poll(),
    (C.RELEASING, C.READY): lambda: describe(conflict()).answer(-2),
    (C.RELEASING, C.LOOKING): lambda: held(pooled(), "member-1").reject(Verdict.FATAL, FENCED_INSTANCE),
    (C.HELD, C.READY): lambda: stable(instance_id="i").fence(),
    (C.HELD, C.LOOKING): lambda: (
        pooled().answer(1, []).settle().with_heartbeat_in_flight().reject(Verdict.FATAL, FENCED_INSTANCE)
    ),
}


def test_scenes_cover_every_edge_of_the_claims_table() -> None:
    """Every edge of the claims table has a scene; an edge that no claim can take is a defect of the table."""
    assert set(CLAIMS) == {(old, new) for old, after in followers(CLAIM_TRANSITIONS).items() for new in after}


@pytest.mark.parametrize("edge", CLAIMS, ids=lambda edge: f"{edge[0]}-{edge[1]}")
def test_claim_takes_the_edge(edge: tuple[ClaimState, ClaimState], monkeypatch: pytest.MonkeyPatch) -> None:
    """A real claim takes each edge of the table."""
    taken: list[tuple[object, object]] = []
    fire = StateMachine.fire

    def recorded(machine: StateMachine[ClaimState], trigger: Enum) -> ClaimState:
        old = fire(machine, trigger)
        taken.append((old, machine.state))
        return old

    monkeypatch.setattr(StateMachine, "fire", recorded)
    CLAIMS[edge]()
    assert edge in taken
