"""When the member sends a heartbeat, and which fields the heartbeat carries (rules 5.2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumer_membership.membership.consumer.heartbeat import Heartbeats
from consumer_membership.membership.effects import (
    FindCoordinator,
    LosePartitions,
    Problem,
    RaiseToApplication,
    SendHeartbeat,
)
from consumer_membership.membership.events import CoordinatorLost, Verdict
from consumer_membership.membership.pace import QUICK_HEARTBEATS, QUICK_S
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.types import FATAL_CODE, BrokerError, Subscription
from tests.membership.builders import (
    A0,
    A1,
    BAD_REGEX,
    FENCED_EPOCH,
    GROUP_FULL,
    GROUP_GONE,
    IN_STATE,
    INTERVAL_S,
    LOADING,
    MAX_POLL_S,
    MOVED,
    NOT_ALLOWED,
    START,
    UNKNOWN_MEMBER,
    UNRELEASED,
    Scene,
    acknowledging,
    adding,
    fenced,
    joining,
    leaving,
    stable,
)
from tests.membership.outcomes import raised

S = MemberState
TOPIC_REFUSED = BrokerError(code=29, name="TOPIC_AUTHORIZATION_FAILED")


def calm(**settings: object) -> Scene:
    """STABLE, after such a long time without changes that heartbeats follow the broker's interval."""
    scene = stable(A0, **settings)
    for _ in range(60):
        scene.poll().next_heartbeat()
        scene.answer()
    return scene


def spacings(scene: Scene, count: int) -> list[float]:
    """Return the seconds between the next heartbeats, each answered immediately."""
    found = []
    for _ in range(count):
        before = scene.now
        scene.poll().next_heartbeat()
        scene.answer()
        found.append(round(scene.now - before, 3))
    return found


# ---- when a heartbeat is sent ----


def test_first_heartbeat_is_sent_at_once() -> None:
    """H02: A JOINING member whose coordinator is known sends its join immediately."""
    scene = joining()
    assert (len(scene.new_heartbeats), scene.now) == (1, START)


def test_next_heartbeat_comes_one_interval_after_the_last_was_sent() -> None:
    """H03: Without changes heartbeats are exactly one broker interval apart."""
    assert spacings(calm(), 3) == [INTERVAL_S, INTERVAL_S, INTERVAL_S]


def test_interval_counts_from_the_sending() -> None:
    """H03: A slow response does not delay the next heartbeat."""
    scene = calm()
    scene.next_heartbeat()
    sent_at = scene.now
    scene.after(2.0).answer()
    assert scene.member.next_deadline() == sent_at + INTERVAL_S


def test_join_carries_all_fields() -> None:
    """H04: A join carries id, epoch 0, instance, rack, rebalance timeout, topics, assignor and an empty owned list."""
    heartbeat = joining(instance_id="i", rack_id="r", assignor="uniform").heartbeats[0]
    assert heartbeat.is_full
    assert (heartbeat.member_id, heartbeat.member_epoch, heartbeat.instance_id, heartbeat.rack_id) == (
        "member-1",
        0,
        "i",
        "r",
    )
    assert (heartbeat.rebalance_timeout_s, heartbeat.topics, heartbeat.assignor, heartbeat.owned) == (
        MAX_POLL_S,
        ("orders", "payments"),
        "uniform",
        frozenset(),
    )


@pytest.mark.parametrize("state", sorted(SILENT, key=str), ids=str)
def test_silent_states_send_nothing(state: MemberState) -> None:
    """H05: No heartbeat is sent in UNSUBSCRIBED, FENCED, STALE and FATAL, however much time passes."""
    scene = IN_STATE[state]().found()
    before = len(scene.heartbeats)
    for _ in range(20):
        scene.after(INTERVAL_S)
    assert (scene.state, len(scene.heartbeats)) == (state, before)


def test_nothing_is_sent_before_the_interval() -> None:
    """H06: No heartbeat is due before the end of the interval."""
    assert calm().after(INTERVAL_S - 0.01).new_heartbeats == []


def test_member_has_one_ordinary_heartbeat_in_flight() -> None:
    """H07: While a heartbeat is in flight the member sends no other, not even an acknowledgement."""
    scene = acknowledging().after(60.0)
    assert (scene.new_heartbeats, scene.state) == ([], S.ACK)


def test_acknowledgement_does_not_wait_for_the_interval() -> None:
    """H08: The member acknowledges an assignment immediately."""
    scene = adding()
    assert [heartbeat.owned for heartbeat in scene.finish().new_heartbeats] == [{A0, A1}]


def test_timed_out_heartbeat_is_repeated_after_a_backoff() -> None:
    """H09: After a timeout the member looks up the coordinator and sends a full heartbeat after the backoff."""
    scene = calm()
    scene.next_heartbeat()
    scene.after(10.0).drop()
    failed_at = scene.now
    scene.found()
    assert (scene.next_heartbeat().is_full, round(scene.now - failed_at, 3)) == (True, 0.1)


def test_backoff_grows_with_each_failure_and_ends_with_a_success() -> None:
    """H09: The backoff is 0.1, 0.2, 0.4, 0.8, 1 and 1 s; a success resets it."""
    scene, waited = calm(), []
    for _ in range(6):
        scene.with_heartbeat_in_flight().drop().found()
        failed_at = scene.now
        scene.next_heartbeat()
        waited.append(round(scene.now - failed_at, 3))
    scene.answer().with_heartbeat_in_flight().drop().found()
    failed_at = scene.now
    scene.next_heartbeat()
    assert waited == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert round(scene.now - failed_at, 3) == 0.1


def test_joining_member_backs_off() -> None:
    """A JOINING member does not repeat its join without a backoff, unlike Java."""
    scene = joining().reject(Verdict.RETRY, LOADING)
    assert (scene.new_heartbeats, round(scene.member.next_deadline() or 0, 3)) == ([], START + 0.1)


def test_disconnect_starts_a_coordinator_lookup() -> None:
    """H10: A disconnect starts one coordinator lookup, and heartbeats continue when it succeeds."""
    scene = calm().with_heartbeat_in_flight().drop()
    assert (scene.kinds, scene.view.coordinator, scene.state) == (["FindCoordinator"], None, S.STABLE)
    assert scene.after(1.0).found().new_heartbeats[0].member_epoch == 1


def test_permanent_transport_error_is_fatal() -> None:
    """H11: A transport error that is not retriable ends FATAL, with the reason in the application's error."""
    scene = stable(A0).with_heartbeat_in_flight().drop(retriable=False)
    assert (scene.state, raised(scene)) == (
        S.FATAL,
        [BrokerError(code=FATAL_CODE, name="_FATAL", message="disconnected")],
    )


def test_transport_error_is_raised_before_the_state_changes() -> None:
    """H26: A transport error orders the application's error first, then the state change, then the loss."""
    assert stable(A0).with_heartbeat_in_flight().drop(retriable=False).kinds == [
        "RaiseToApplication",
        "StateChanged",
        "LosePartitions",
    ]


def test_refusal_is_raised_before_the_state_changes() -> None:
    """H25: A refusal orders the application's error first, then the state change."""
    assert joining().fail().kinds == ["RaiseToApplication", "StateChanged"]


def test_member_without_coordinator_waits_for_the_poll_interval_only() -> None:
    """H12, H27: Without a coordinator the member sends nothing, and only the poll interval is due."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    deadlines = []
    for _ in range(3):
        deadlines.append(scene.member.next_deadline())
        scene.now = min(deadlines[-1] or 0, START + MAX_POLL_S - 1)
        scene.feed_names({})
    assert all(deadline is not None and deadline > START for deadline in deadlines)
    assert scene.new_heartbeats == []


@pytest.mark.parametrize("state", sorted(SILENT, key=str), ids=str)
def test_nothing_is_due_in_silent_states(state: MemberState) -> None:
    """H28: A member outside its group has no deadline."""
    assert IN_STATE[state]().member.next_deadline() is None


def test_deadline_is_not_in_the_past_after_it_was_served() -> None:
    """H27: After each deadline the next one is later, so that the driver does not spin."""
    scene = joining().answer(1, [A0]).settle()
    for _ in range(200):
        deadline = scene.member.next_deadline()
        assert deadline is not None
        assert deadline >= scene.now
        scene.now = deadline
        scene.feed_names({})
        assert (scene.member.next_deadline() or 0) > scene.now
        scene.settle().poll()


def test_heartbeats_are_frequent_after_a_change_and_slow_down() -> None:
    """After a change heartbeats follow every 0.2 s, and then the spacing grows by 1.6 up to the interval."""
    scene = calm().with_heartbeat_in_flight().answer(2)
    quick = [QUICK_S] * (QUICK_HEARTBEATS + 1)
    assert spacings(scene, 14) == [*quick, 0.32, 0.512, 0.819, 1.311, 2.097, 3.355, INTERVAL_S, INTERVAL_S]


def test_member_without_partitions_heartbeats_often_for_two_intervals() -> None:
    """A member that waits for its first partition heartbeats every 0.2 s, while other members may have to revoke."""
    scene = stable()
    assert spacings(scene, 45) == [0.2] * 45
    assert spacings(scene, 30)[-1] == INTERVAL_S


def test_heartbeat_spacing_stays_finite_after_many_heartbeats() -> None:
    """Five thousand heartbeats (seven hours) leave the spacing at the interval."""
    heartbeats = schedule()
    for _ in range(5000):
        heartbeats.sending(1, 10.0)
        heartbeats.succeeded(INTERVAL_S, 10.0)
    assert heartbeats.spacing_s(10.0, holds=True) == INTERVAL_S


def test_configured_interval_only_lowers_the_spacing() -> None:
    """`heartbeat.interval.ms` is an upper limit in addition to the broker's interval."""
    assert spacings(calm(heartbeat_interval_s=0.3), 2) == [0.3, 0.3]
    assert spacings(calm(heartbeat_interval_s=60.0), 2) == [INTERVAL_S, INTERVAL_S]


def test_delivered_records_speed_up_the_heartbeat() -> None:
    """While records are delivered a heartbeat is sent every `active_heartbeat_interval_s`; 0 turns that off."""
    active = calm().poll(delivered=True)
    passive = calm(active_heartbeat_interval_s=0.0).poll(delivered=True)
    gaps = []
    for scene in (active, passive):
        before = scene.now
        scene.next_heartbeat()
        gaps.append(round(scene.now - before, 3))
    assert gaps == [0.25, INTERVAL_S]


# ---- which fields a heartbeat carries ----


def test_steady_heartbeat_carries_only_the_identity() -> None:
    """H13, H16: A heartbeat omits the fields that have not changed since they were sent."""
    heartbeat = calm(instance_id="i", rack_id="r", assignor="uniform").next_heartbeat()
    assert (heartbeat.member_id, heartbeat.member_epoch, heartbeat.instance_id) == ("member-1", 1, "i")
    assert (
        heartbeat.rack_id,
        heartbeat.rebalance_timeout_s,
        heartbeat.topics,
        heartbeat.pattern,
        heartbeat.assignor,
        heartbeat.owned,
    ) == (
        None,
        None,
        None,
        None,
        None,
        None,
    )


def test_acknowledgement_is_sent_for_unchanged_partitions() -> None:
    """H14: A finished reconciliation is acknowledged even if the partitions are the same as before."""
    scene = stable(A0).target(2, A0, A1).offsets()
    scene.target(3, A0)
    scene.finish(failed=True).poll()
    assert [heartbeat.owned for heartbeat in scene.new_heartbeats] == [{A0}]


@pytest.mark.parametrize(
    ("verdict", "error", "state", "problem"),
    [
        (Verdict.REDISCOVER, BrokerError(code=15, name="COORDINATOR_NOT_AVAILABLE"), S.STABLE, None),
        (Verdict.RETRY, LOADING, S.STABLE, None),
        (Verdict.REDISCOVER, MOVED, S.STABLE, None),
        (Verdict.FATAL, BrokerError(code=42, name="INVALID_REQUEST"), S.FATAL, Problem.FATAL),
        (Verdict.FATAL, NOT_ALLOWED, S.FATAL, Problem.FATAL),
        (Verdict.REPORT, TOPIC_REFUSED, S.STABLE, Problem.REFUSED),
        (Verdict.REJOIN, FENCED_EPOCH, S.FENCED, None),
        (Verdict.REJOIN, UNKNOWN_MEMBER, S.FENCED, None),
        (Verdict.FATAL, BrokerError(code=112, name="UNSUPPORTED_ASSIGNOR"), S.FATAL, Problem.FATAL),
        (Verdict.FATAL, BrokerError(code=35, name="UNSUPPORTED_VERSION"), S.FATAL, Problem.FATAL),
        (Verdict.UNRELEASED, UNRELEASED, S.FATAL, Problem.FATAL),
        (Verdict.FATAL, BrokerError(code=82, name="FENCED_INSTANCE_ID"), S.FATAL, Problem.FATAL),
        (Verdict.FATAL, GROUP_FULL, S.FATAL, Problem.FATAL),
        (Verdict.FATAL, BAD_REGEX, S.FATAL, Problem.FATAL),
        (Verdict.FATAL, BrokerError(code=-1, name="UNKNOWN_SERVER_ERROR"), S.FATAL, Problem.FATAL),
        (Verdict.GROUP_GONE, GROUP_GONE, S.FENCED, None),
    ],
    ids=lambda value: value.name if isinstance(value, BrokerError) else "",
)
def test_each_refusal_has_its_consequence(
    verdict: Verdict, error: BrokerError, state: MemberState, problem: Problem | None
) -> None:
    """H15: Each verdict gives a STABLE member its state and its error, and the view shows the error."""
    scene = stable(A0).with_heartbeat_in_flight().reject(verdict, error)
    problems = [effect.problem for effect in scene.new(RaiseToApplication)]
    assert (scene.state, problems, scene.view.last_error) == (state, [] if problem is None else [problem], error)


@pytest.mark.parametrize("error", [LOADING, TOPIC_REFUSED], ids=lambda error: error.name)
def test_retriable_refusal_is_followed_by_a_full_heartbeat(error: BrokerError) -> None:
    """H15, H22: After any error response the next heartbeat carries all fields."""
    verdict = Verdict.RETRY if error is LOADING else Verdict.REPORT
    heartbeat = stable(A0).with_heartbeat_in_flight().reject(verdict, error).next_heartbeat()
    assert (heartbeat.is_full, heartbeat.owned) == (True, {A0})


def test_every_refused_topic_is_raised() -> None:
    """H15: Each occurrence of a reported error reaches the application."""
    scene = stable(A0)
    for _ in range(3):
        scene.with_heartbeat_in_flight().reject(Verdict.REPORT, TOPIC_REFUSED)
    assert [effect.error for effect in scene.all(RaiseToApplication)] == [TOPIC_REFUSED] * 3


def test_coordinator_that_moved_is_looked_up() -> None:
    """H15: After NOT_COORDINATOR the member looks up the coordinator and sends a full heartbeat to the new one."""
    scene = stable(A0).with_heartbeat_in_flight().reject(Verdict.REDISCOVER, MOVED)
    assert len(scene.new(FindCoordinator)) == 1
    assert scene.found().next_heartbeat().is_full


def test_heartbeat_fields_follow_the_state() -> None:
    """H16: The fields differ in a steady heartbeat, after subscribe(), in an acknowledgement and after a fence."""
    scene = stable(A0)
    steady = scene.with_heartbeat_in_flight().answer().heartbeats[-1]
    subscribed = scene.subscribe("orders").heartbeats[-1]
    acknowledged = scene.answer(2, [A0, A1]).settle(answers=False).heartbeats[-1]
    scene.answer(request_id=scene.request_id)
    rejoined = scene.fence().finish().heartbeats[-1]
    assert [(b.topics, b.owned, b.rebalance_timeout_s) for b in (steady, subscribed, acknowledged, rejoined)] == [
        (None, None, None),
        (("orders",), None, None),
        (None, {A0, A1}, None),
        (("orders",), frozenset(), MAX_POLL_S),
    ]


def test_fenced_member_is_silent_until_on_lost_ended() -> None:
    """H20: A FENCED member sends no heartbeat while on_lost is outstanding."""
    scene = fenced()
    before = len(scene.heartbeats)
    scene.after(30.0)
    assert len(scene.heartbeats) == before
    assert scene.finish().new_heartbeats[0].member_epoch == 0


def test_lost_acknowledgement_is_repeated_in_full() -> None:
    """H22: After an acknowledgement without a response a full heartbeat lists the owned partitions."""
    scene = adding().finish()
    assert scene.heartbeats[-1].owned == {A0, A1}
    heartbeat = scene.drop().found().next_heartbeat()
    assert (heartbeat.is_full, heartbeat.owned, heartbeat.member_epoch) == (True, {A0, A1}, 2)


def test_full_heartbeat_during_a_revocation_still_claims_the_partition() -> None:
    """A full heartbeat claims a partition until on_revoke has ended."""
    scene = stable(A0, A1).target(2, A0).finish().with_heartbeat_in_flight().drop().found()
    assert scene.next_heartbeat().owned == {A0, A1}


def test_rack_is_sent_with_the_join_only() -> None:
    """H29: The rack is sent at epoch 0, also at a rejoin, and in no other heartbeat, not even a full one."""
    scene = stable(A0, rack_id="r").with_heartbeat_in_flight().drop().found()
    full = scene.next_heartbeat()
    rejoin = scene.answer().fence().finish().heartbeats[-1]
    assert (scene.heartbeats[0].rack_id, full.is_full, full.rack_id, rejoin.rack_id) == ("r", True, None, "r")


def by_pattern(pattern: str) -> Scene:
    """STABLE with a pattern as the subscription."""
    return Scene().subscribe(pattern=pattern).poll().found().answer(1, [A0]).settle()


def test_pattern_is_sent_once_and_when_it_changes() -> None:
    """H30: The join carries the pattern, and later heartbeats only a change; "" removes the pattern."""
    scene = by_pattern("o.*")
    patterns = [scene.heartbeats[0].pattern, scene.next_heartbeat().pattern]
    patterns.append(scene.answer().subscribe(pattern="p.*").heartbeats[-1].pattern)
    patterns.append(scene.answer().subscribe("orders").heartbeats[-1].pattern)
    patterns.append(scene.answer().next_heartbeat().pattern)
    assert patterns == ["o.*", None, "p.*", "", None]


def test_removal_of_a_pattern_is_repeated_after_a_lost_heartbeat() -> None:
    """H30: The full heartbeat after a lost one removes the pattern again.

    The broker may not have received the first one.
    """
    scene = by_pattern("o.*").subscribe("orders").drop().found()
    heartbeat = scene.next_heartbeat()
    assert (heartbeat.topics, heartbeat.pattern) == (("orders",), "")


def test_rejoin_without_the_former_pattern_removes_it() -> None:
    """H31: A fenced member whose pattern the broker still has joins without the pattern."""
    scene = by_pattern("o.*").fence().subscribe("orders").finish()
    assert (scene.heartbeats[-1].member_epoch, scene.heartbeats[-1].pattern) == (0, "")


def test_join_with_a_pattern_names_no_topics() -> None:
    """H31: With a pattern alone the topics are an empty list, never null."""
    heartbeat = by_pattern("o.*").heartbeats[0]
    assert (heartbeat.topics, heartbeat.pattern) == ((), "o.*")


def test_join_without_pattern_sends_an_empty_pattern() -> None:
    """H31: The join carries topics and pattern together, so that no former pattern remains."""
    assert joining().heartbeats[0].pattern == ""


def test_unsupported_version_is_fatal_with_the_brokers_message() -> None:
    """H32: The message from the verdict table reaches the application unchanged."""
    error = BrokerError(code=35, name="UNSUPPORTED_VERSION", message="set group.protocol=classic")
    assert raised(joining().reject(Verdict.FATAL, error)) == [error]


def test_view_shows_the_interval_from_the_broker() -> None:
    """B07, H33: A response with another interval changes the view, so that a change can be detected and logged."""
    scene = stable(A0)
    answers = [scene.with_heartbeat_in_flight().answer(interval_s=interval_s).view for interval_s in (5.0, 3.0, 3.0)]
    assert [view.heartbeat_interval_s for view in answers] == [5.0, 3.0, 3.0]


@pytest.mark.parametrize("interval_s", [0.0, -5.0])
def test_interval_that_is_not_positive_is_never_adopted(interval_s: float) -> None:
    """An interval of 0 or less is ignored, so that it causes no heartbeat storm."""
    assert stable(A0).with_heartbeat_in_flight().answer(interval_s=interval_s).view.heartbeat_interval_s == INTERVAL_S


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_epoch_that_is_not_positive_is_never_adopted(epoch: int) -> None:
    """An epoch of 0 or less is ignored: the member keeps its epoch and sends a full heartbeat after a backoff."""
    scene = stable(A0).with_heartbeat_in_flight().answer(epoch, [A1])
    assert (scene.state, scene.view.member_epoch, scene.new_heartbeats) == (S.STABLE, 1, [])
    assert scene.next_heartbeat().is_full


def test_repeated_answer_is_ignored() -> None:
    """A response with an unexpected number changes nothing."""
    scene = stable(A0).with_heartbeat_in_flight()
    scene.answer(2, [A0, A1])
    assert scene.answer(3, [A0]).last == ()


# ---- the member's own instance id, which was not released ----


def lost_join() -> Scene:
    """A static member whose join succeeded; the response was lost, and the coordinator refuses the repeated join."""
    scene = joining(instance_id="i").drop().found().with_heartbeat_in_flight()
    return scene.reject(Verdict.UNRELEASED, UNRELEASED, holder="member-1")


def test_static_member_releases_its_own_place_and_joins() -> None:
    """If the response to a successful join was lost, the member releases its own place with -2 and joins again."""
    scene = lost_join()
    assert [(heartbeat.member_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats] == [("member-1", -2)]
    scene.answer(-2)
    assert (scene.state, [heartbeat.member_epoch for heartbeat in scene.new_heartbeats]) == (S.JOINING, [0])


@pytest.mark.parametrize(("verdict", "error"), [(Verdict.RETRY, LOADING), (Verdict.REDISCOVER, MOVED)])
def test_release_of_the_own_place_is_retried(verdict: Verdict, error: BrokerError) -> None:
    """A coordinator that is loading or has moved has not released the place, so the release is repeated."""
    scene = lost_join().reject(verdict, error).found()
    assert scene.next_heartbeat().member_epoch == -2


def test_release_of_an_unknown_place_joins() -> None:
    """UNKNOWN_MEMBER_ID for the release counts as success."""
    scene = lost_join().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, [heartbeat.member_epoch for heartbeat in scene.new_heartbeats]) == (S.JOINING, [0])


def test_second_release_of_the_own_place_waits_for_a_backoff() -> None:
    """Repeatedly lost responses do not end the membership, but the second release waits for a backoff."""
    scene = lost_join().answer(-2).reject(Verdict.UNRELEASED, UNRELEASED, holder="member-1")
    assert (scene.state, scene.new_heartbeats) == (S.JOINING, [])
    assert (scene.next_heartbeat().member_epoch, scene.answer(-2).new_heartbeats[0].member_epoch) == (-2, 0)


# ---- the schedule itself ----


def schedule(**settings: object) -> Heartbeats:
    """Return a schedule whose jitter is fixed at the middle of its range."""
    return Heartbeats(MemberSettings(group_id="g", **settings), lambda: 0.5)  # type: ignore[arg-type]  # the test chooses the values


def test_urgent_heartbeat_is_due_without_the_interval() -> None:
    """H36: An urgent heartbeat waits for the backoff only, other heartbeats also for the interval."""
    heartbeats = schedule()
    heartbeats.sending(1, 10.0)
    heartbeats.succeeded(5.0, 10.0)
    assert (heartbeats.due_at(10.0, urgent=True, holds=False), heartbeats.due_at(10.0, urgent=False, holds=False)) == (
        0.0,
        10.0 + QUICK_S,
    )


def test_failed_attempt_makes_the_schedule_wait_for_the_backoff() -> None:
    """H36: After a failure the next heartbeat is due at the end of the backoff, not of the interval."""
    heartbeats = schedule()
    heartbeats.sending(1, 10.0)
    heartbeats.retry(11.0, after_backoff=True)
    assert (heartbeats.in_flight, round(heartbeats.due_at(11.0, urgent=False, holds=False), 3)) == (None, 11.1)


def test_end_of_a_membership_resets_the_schedule() -> None:
    """H36: The end of a membership clears the backoff, the request in flight and the fields that were sent."""
    heartbeats = schedule()
    heartbeats.sending(1, 10.0)
    heartbeats.retry(11.0, after_backoff=True)
    heartbeats.sending(1, 12.0)
    heartbeats.forget()
    assert (heartbeats.in_flight, heartbeats.due_at(12.0, urgent=True, holds=False), heartbeats.has_sent) == (
        None,
        0.0,
        False,
    )


@pytest.mark.parametrize(("interval_s", "expected"), [(5.0, 5.0), (3.0, 3.0), (0.0, 5.0)])
def test_schedule_adopts_the_interval_of_each_success(interval_s: float, expected: float) -> None:
    """H36: Each success sets the interval, if it is positive."""
    heartbeats = schedule()
    for answered in (5.0, interval_s):
        heartbeats.sending(1, 10.0)
        heartbeats.succeeded(answered, 10.0)
    assert heartbeats.interval_s == expected


def test_slow_coordinator_receives_heartbeats_less_often() -> None:
    """Heartbeats use a twentieth of the time at most, measured by the quickest of the latest responses."""
    heartbeats = schedule()
    for _ in range(8):
        heartbeats.speed_up()
        heartbeats.sending(1, 10.0)
        heartbeats.succeeded(5.0, 10.05)
    assert round(heartbeats.spacing_s(10.05, holds=False), 3) == 1.0


def test_request_numbers_are_unique() -> None:
    """A late response matches no later request."""
    scene = stable(A0).fence().settle().leave().settle()
    numbers = [order.request_id for order in scene.all(SendHeartbeat)]
    assert numbers == sorted(set(numbers))


def test_heartbeat_carries_only_fields_not_yet_sent() -> None:
    """Composing a heartbeat records which fields have been sent."""
    heartbeats = schedule()
    composed = [
        heartbeats.compose(
            member_id="m",
            instance_id=None,
            epoch=4,
            subscription=Subscription(topics=frozenset({"t"})),
            claims=lambda: frozenset({A0}),
            ownership_version=statement,
        )
        for statement in (1, 1, 2)
    ]
    assert [(heartbeat.topics, heartbeat.owned) for heartbeat in composed] == [
        (("t",), {A0}),
        (None, None),
        (None, {A0}),
    ]


@pytest.mark.parametrize("build", [joining, adding, leaving], ids=["joining", "reconcile", "leaving"])
def test_member_without_coordinator_sends_nothing(build: Callable[[], Scene]) -> None:
    """A member without a known coordinator sends nothing."""
    scene = build().feed(CoordinatorLost(reason="closed")).after(4.0)
    assert (scene.new_heartbeats, scene.all(LosePartitions)) == ([], [])


def test_new_epoch_without_an_assignment_makes_an_empty_member_send_a_full_heartbeat() -> None:
    """The response to a cancelled join may have contained the assignment, so the member requests it again."""
    scene = stable().with_heartbeat_in_flight().answer(2)
    assert [(heartbeat.is_full, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats] == [(True, 2)]
    assert stable(A0).with_heartbeat_in_flight().answer(2).new_heartbeats == []
