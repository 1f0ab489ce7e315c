"""When a heartbeat is sent and which fields it carries (rules 5.2)."""

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
from consumer_membership.membership.pace import QUICK_BEATS, QUICK_S
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
    """STABLE, and nothing has happened for so long that the cadence is the broker's interval."""
    scene = stable(A0, **settings)
    for _ in range(60):
        scene.poll().next_beat()
        scene.answer()
    return scene


def spacings(scene: Scene, count: int) -> list[float]:
    """The seconds between the next heartbeats, each answered at once."""
    found = []
    for _ in range(count):
        before = scene.now
        scene.poll().next_beat()
        scene.answer()
        found.append(round(scene.now - before, 3))
    return found


# ---- when ----


def test_first_heartbeat_is_sent_at_once() -> None:
    """H02: JOINING and a known coordinator: the join goes out at this very moment."""
    scene = joining()
    assert (len(scene.new_beats), scene.now) == (1, START)


def test_next_heartbeat_comes_one_interval_after_the_last_was_sent() -> None:
    """H03: in calm times heartbeats are exactly one interval of the broker apart."""
    assert spacings(calm(), 3) == [INTERVAL_S, INTERVAL_S, INTERVAL_S]


def test_interval_counts_from_the_sending() -> None:
    """H03: a slow answer does not delay the next heartbeat."""
    scene = calm()
    scene.next_beat()
    sent_at = scene.now
    scene.after(2.0).answer()
    assert scene.member.next_deadline() == sent_at + INTERVAL_S


def test_join_says_everything() -> None:
    """H04: id, epoch 0, instance, rack, rebalance timeout, topics, assignor, and an empty list of owned partitions."""
    beat = joining(instance_id="i", rack_id="r", assignor="uniform").beats[0]
    assert beat.is_full
    assert (beat.member_id, beat.member_epoch, beat.instance_id, beat.rack_id) == ("member-1", 0, "i", "r")
    assert (beat.rebalance_timeout_s, beat.topics, beat.assignor, beat.owned) == (
        MAX_POLL_S,
        ("orders", "payments"),
        "uniform",
        frozenset(),
    )


@pytest.mark.parametrize("state", sorted(SILENT, key=str), ids=str)
def test_silent_states_send_nothing(state: MemberState) -> None:
    """H05: no heartbeat in UNSUBSCRIBED, FENCED, STALE, FATAL, however long."""
    scene = IN_STATE[state]().found()
    before = len(scene.beats)
    for _ in range(20):
        scene.after(INTERVAL_S)
    assert (scene.state, len(scene.beats)) == (state, before)


def test_nothing_is_sent_before_the_interval() -> None:
    """H06: a moment before the interval is over nothing is due."""
    assert calm().after(INTERVAL_S - 0.01).new_beats == []


def test_one_ordinary_heartbeat_is_in_flight() -> None:
    """H07: while an answer is outstanding nothing is sent, not even an acknowledgement."""
    scene = acknowledging().after(60.0)
    assert (scene.new_beats, scene.state) == ([], S.ACK)


def test_acknowledgement_does_not_wait_for_the_interval() -> None:
    """H08: what was taken over is said at once."""
    scene = adding()
    assert [beat.owned for beat in scene.finish().new_beats] == [{A0, A1}]


def test_timed_out_heartbeat_is_repeated_after_a_backoff() -> None:
    """H09: no answer in time: the coordinator is looked up, and the next heartbeat follows the backoff, in full."""
    scene = calm()
    scene.next_beat()
    scene.after(10.0).drop()
    failed_at = scene.now
    scene.found()
    assert (scene.next_beat().is_full, round(scene.now - failed_at, 3)) == (True, 0.1)


def test_backoff_grows_with_each_failure_and_ends_with_a_success() -> None:
    """H09: 0.1, 0.2, 0.4, 0.8, 1, 1 s; a success forgets the failures."""
    scene, waited = calm(), []
    for _ in range(6):
        scene.in_touch().drop().found()
        failed_at = scene.now
        scene.next_beat()
        waited.append(round(scene.now - failed_at, 3))
    scene.answer().in_touch().drop().found()
    failed_at = scene.now
    scene.next_beat()
    assert waited == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert round(scene.now - failed_at, 3) == 0.1


def test_joining_member_backs_off_too() -> None:
    """A JOINING member does not repeat its join at the speed of the network (where Java does)."""
    scene = joining().reject(Verdict.RETRY, LOADING)
    assert (scene.new_beats, round(scene.member.next_deadline() or 0, 3)) == ([], START + 0.1)


def test_disconnect_makes_the_coordinator_unknown() -> None:
    """H10: the coordinator is looked up again, once, and heartbeats go on when it is found."""
    scene = calm().in_touch().drop()
    assert (scene.kinds, scene.view.coordinator, scene.state) == (["FindCoordinator"], None, S.STABLE)
    assert scene.after(1.0).found().new_beats[0].member_epoch == 1


def test_transport_that_fails_for_good_is_fatal() -> None:
    """H11: what no retry mends ends FATAL, with the reason in the application's error."""
    scene = stable(A0).in_touch().drop(retriable=False)
    assert (scene.state, raised(scene)) == (
        S.FATAL,
        [BrokerError(code=FATAL_CODE, name="_FATAL", message="disconnected")],
    )


def test_application_hears_of_a_broken_transport_before_the_state_changes() -> None:
    """H26: error, state, loss."""
    assert stable(A0).in_touch().drop(retriable=False).kinds == ["RaiseToApplication", "StateChanged", "LosePartitions"]


def test_application_hears_of_a_refusal_before_the_state_changes() -> None:
    """H25: error, state."""
    assert joining().fail().kinds == ["RaiseToApplication", "StateChanged"]


def test_without_coordinator_nothing_is_sent_and_nothing_spins() -> None:
    """H12, H27: while the coordinator is unknown the only thing due is the poll interval's end."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed"))
    deadlines = []
    for _ in range(3):
        deadlines.append(scene.member.next_deadline())
        scene.now = min(deadlines[-1] or 0, START + MAX_POLL_S - 1)
        scene.feed_names({})
    assert all(deadline is not None and deadline > START for deadline in deadlines)
    assert scene.new_beats == []


@pytest.mark.parametrize("state", sorted(SILENT, key=str), ids=str)
def test_nothing_is_due_in_silent_states(state: MemberState) -> None:
    """H28: a member that is out of its group wakes nobody up."""
    assert IN_STATE[state]().member.next_deadline() is None


def test_deadline_is_not_in_the_past_after_it_was_served() -> None:
    """H27: after each deadline something was done or the next one is later: no busy loop."""
    scene = joining().answer(1, [A0]).settle()
    for _ in range(200):
        deadline = scene.member.next_deadline()
        assert deadline is not None
        assert deadline >= scene.now
        scene.now = deadline
        scene.feed_names({})
        assert (scene.member.next_deadline() or 0) > scene.now
        scene.settle().poll()


def test_heartbeats_come_quickly_after_a_change_and_slow_down() -> None:
    """After a change the cadence is 0.2 s for a few beats, then grows by 1.6 up to the interval."""
    scene = calm().in_touch().answer(2)
    quick = [QUICK_S] * (QUICK_BEATS + 1)
    assert spacings(scene, 14) == [*quick, 0.32, 0.512, 0.819, 1.311, 2.097, 3.355, INTERVAL_S, INTERVAL_S]


def test_member_without_partitions_stays_quick_for_two_intervals() -> None:
    """Who waits for its first partition asks every 0.2 s, for as long as the others may take to give one up."""
    scene = stable()
    assert spacings(scene, 45) == [0.2] * 45
    assert spacings(scene, 30)[-1] == INTERVAL_S


def test_member_lives_long() -> None:
    """Five thousand quiet heartbeats (seven hours) do not exhaust the growth of the cadence."""
    beats = schedule()
    for _ in range(5000):
        beats.sending(1, 10.0)
        beats.succeeded(INTERVAL_S, 10.0)
    assert beats.spacing_s(10.0, holds=True) == INTERVAL_S


def test_configured_interval_lowers_the_cadence_only() -> None:
    """`heartbeat.interval.ms` is an upper bound beside the broker's."""
    assert spacings(calm(heartbeat_interval_s=0.3), 2) == [0.3, 0.3]
    assert spacings(calm(heartbeat_interval_s=60.0), 2) == [INTERVAL_S, INTERVAL_S]


def test_records_that_flow_quicken_the_heartbeat() -> None:
    """While records are delivered a heartbeat goes every `active_heartbeat_interval_s`, and 0 switches that off."""
    active = calm().poll(delivered=True)
    passive = calm(active_heartbeat_interval_s=0.0).poll(delivered=True)
    gaps = []
    for scene in (active, passive):
        before = scene.now
        scene.next_beat()
        gaps.append(round(scene.now - before, 3))
    assert gaps == [0.25, INTERVAL_S]


# ---- which fields ----


def test_steady_heartbeat_carries_nothing_but_identity() -> None:
    """H13, H16: what was said and has not changed is not said again."""
    beat = calm(instance_id="i", rack_id="r", assignor="uniform").next_beat()
    assert (beat.member_id, beat.member_epoch, beat.instance_id) == ("member-1", 1, "i")
    assert (beat.rack_id, beat.rebalance_timeout_s, beat.topics, beat.pattern, beat.assignor, beat.owned) == (
        None,
        None,
        None,
        None,
        None,
        None,
    )


def test_statement_of_ownership_is_made_again_for_equal_partitions() -> None:
    """H14: a finished reconciliation is acknowledged also where the partitions are the same as before."""
    scene = stable(A0).target(2, A0, A1).offsets()
    scene.target(3, A0)
    scene.finish(failed=True).poll()
    assert [beat.owned for beat in scene.new_beats] == [{A0}]


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
    """H15: what each verdict does to a STABLE member, whether it is raised, and that the view shows it."""
    scene = stable(A0).in_touch().reject(verdict, error)
    told = [effect.problem for effect in scene.new(RaiseToApplication)]
    assert (scene.state, told, scene.view.last_error) == (state, [] if problem is None else [problem], error)


@pytest.mark.parametrize("error", [LOADING, TOPIC_REFUSED], ids=lambda error: error.name)
def test_refusal_that_is_retried_is_retried_in_full(error: BrokerError) -> None:
    """H15, H22: after any error answer the next heartbeat says everything."""
    verdict = Verdict.RETRY if error is LOADING else Verdict.REPORT
    beat = stable(A0).in_touch().reject(verdict, error).next_beat()
    assert (beat.is_full, beat.owned) == (True, {A0})


def test_every_refused_topic_is_reported() -> None:
    """H15: each occurrence of a reported error reaches the application."""
    scene = stable(A0)
    for _ in range(3):
        scene.in_touch().reject(Verdict.REPORT, TOPIC_REFUSED)
    assert [told.error for told in scene.all(RaiseToApplication)] == [TOPIC_REFUSED] * 3


def test_coordinator_that_moved_is_looked_up() -> None:
    """H15: NOT_COORDINATOR: search, then the full heartbeat at the new one."""
    scene = stable(A0).in_touch().reject(Verdict.REDISCOVER, MOVED)
    assert len(scene.new(FindCoordinator)) == 1
    assert scene.found().next_beat().is_full


def test_fields_follow_the_state() -> None:
    """H16: join, steady, after a new subscription, acknowledgement, after a fence."""
    scene = stable(A0)
    steady = scene.in_touch().answer().beats[-1]
    subscribed = scene.subscribe("orders").beats[-1]
    acknowledged = scene.answer(2, [A0, A1]).settle(answers=False).beats[-1]
    scene.answer(request_id=scene.request_id)
    rejoined = scene.fence().finish().beats[-1]
    assert [(b.topics, b.owned, b.rebalance_timeout_s) for b in (steady, subscribed, acknowledged, rejoined)] == [
        (None, None, None),
        (("orders",), None, None),
        (None, {A0, A1}, None),
        (("orders",), frozenset(), MAX_POLL_S),
    ]


def test_fenced_member_is_silent_until_on_lost_ended() -> None:
    """H20: no heartbeat while partitions are being declared lost."""
    scene = fenced()
    before = len(scene.beats)
    scene.after(30.0)
    assert len(scene.beats) == before
    assert scene.finish().new_beats[0].member_epoch == 0


def test_lost_acknowledgement_is_repeated_in_full() -> None:
    """H22: an acknowledgement without answer is followed by a full heartbeat that names what is owned."""
    scene = adding().finish()
    assert scene.beats[-1].owned == {A0, A1}
    beat = scene.drop().found().next_beat()
    assert (beat.is_full, beat.owned, beat.member_epoch) == (True, {A0, A1}, 2)


def test_full_heartbeat_in_the_middle_of_a_revocation_still_claims_it() -> None:
    """No heartbeat drops what on_revoke has not finished with."""
    scene = stable(A0, A1).target(2, A0).finish().in_touch().drop().found()
    assert scene.next_beat().owned == {A0, A1}


def test_rack_goes_with_the_join_only() -> None:
    """H29: the rack is stated at epoch 0, also at a rejoin, and in no other heartbeat, not even a full one."""
    scene = stable(A0, rack_id="r").in_touch().drop().found()
    full = scene.next_beat()
    rejoin = scene.answer().fence().finish().beats[-1]
    assert (scene.beats[0].rack_id, full.is_full, full.rack_id, rejoin.rack_id) == ("r", True, None, "r")


def by_pattern(pattern: str) -> Scene:
    """STABLE with a pattern for subscription."""
    return Scene().subscribe(pattern=pattern).poll().found().answer(1, [A0]).settle()


def test_pattern_is_said_once_and_when_it_changes() -> None:
    """H30: sent with the join, not again; a changed one is; "" removes it, once."""
    scene = by_pattern("o.*")
    said = [scene.beats[0].pattern, scene.next_beat().pattern]
    said.append(scene.answer().subscribe(pattern="p.*").beats[-1].pattern)
    said.append(scene.answer().subscribe("orders").beats[-1].pattern)
    said.append(scene.answer().next_beat().pattern)
    assert said == ["o.*", None, "p.*", "", None]


def test_removal_of_a_pattern_survives_a_lost_heartbeat() -> None:
    """H30: the full heartbeat after a lost one still removes the pattern: the broker may have heard of neither."""
    scene = by_pattern("o.*").subscribe("orders").drop().found()
    beat = scene.next_beat()
    assert (beat.topics, beat.pattern) == (("orders",), "")


def test_rejoin_without_the_former_pattern_removes_it() -> None:
    """H31: a fenced member that the broker still knows by its pattern joins without it."""
    scene = by_pattern("o.*").fence().subscribe("orders").finish()
    assert (scene.beats[-1].member_epoch, scene.beats[-1].pattern) == (0, "")


def test_join_with_a_pattern_names_no_topics() -> None:
    """H31: with a pattern alone the topics are an empty list, never null."""
    beat = by_pattern("o.*").beats[0]
    assert (beat.topics, beat.pattern) == ((), "o.*")


def test_join_without_pattern_says_that_there_is_none() -> None:
    """H31: topics and pattern are stated together, so that a former pattern is never left standing."""
    assert joining().beats[0].pattern == ""


def test_unsupported_version_is_fatal_with_the_broker_words() -> None:
    """H32: the text that the verdict table gives reaches the application as it is."""
    error = BrokerError(code=35, name="UNSUPPORTED_VERSION", message="set group.protocol=classic")
    assert raised(joining().reject(Verdict.FATAL, error)) == [error]


def test_view_shows_the_interval_that_the_broker_gave() -> None:
    """B07, H33: who logs a change of the interval compares two views; an answer that differs changes it, no other."""
    scene = stable(A0)
    answers = [scene.in_touch().answer(interval_s=interval_s).view for interval_s in (5.0, 3.0, 3.0)]
    assert [view.heartbeat_interval_s for view in answers] == [5.0, 3.0, 3.0]


@pytest.mark.parametrize("interval_s", [0.0, -5.0])
def test_interval_that_is_not_positive_is_never_adopted(interval_s: float) -> None:
    """A broker's nonsense does not make a storm."""
    assert stable(A0).in_touch().answer(interval_s=interval_s).view.heartbeat_interval_s == INTERVAL_S


@pytest.mark.parametrize("epoch", [0, -1, -2])
def test_epoch_that_is_not_positive_is_never_adopted(epoch: int) -> None:
    """The member stays at its epoch and says everything anew, after a backoff."""
    scene = stable(A0).in_touch().answer(epoch, [A1])
    assert (scene.state, scene.view.member_epoch, scene.new_beats) == (S.STABLE, 1, [])
    assert scene.next_beat().is_full


def test_doubled_answer_is_taken_once() -> None:
    """An answer whose number is not awaited changes nothing."""
    scene = stable(A0).in_touch()
    scene.answer(2, [A0, A1])
    assert scene.answer(3, [A0]).last == ()


# ---- an own instance id that was not released ----


def lost_join() -> Scene:
    """A static member whose join was granted, the answer lost, and the repeated one refused: the id is its own."""
    scene = joining(instance_id="i").drop().found().in_touch()
    return scene.reject(Verdict.UNRELEASED, UNRELEASED, holder="member-1")


def test_static_member_takes_its_own_place_back() -> None:
    """The coordinator gave this very member its place and the answer was lost: hand it back with -2, then join."""
    scene = lost_join()
    assert [(beat.member_id, beat.member_epoch) for beat in scene.new_beats] == [("member-1", -2)]
    scene.answer(-2)
    assert (scene.state, [beat.member_epoch for beat in scene.new_beats]) == (S.JOINING, [0])


@pytest.mark.parametrize(("verdict", "error"), [(Verdict.RETRY, LOADING), (Verdict.REDISCOVER, MOVED)])
def test_release_of_the_own_place_is_tried_again(verdict: Verdict, error: BrokerError) -> None:
    """A coordinator that is loading has not released anything."""
    scene = lost_join().reject(verdict, error).found()
    assert scene.next_beat().member_epoch == -2


def test_release_of_a_place_that_is_gone_joins() -> None:
    """UNKNOWN_MEMBER_ID for the release is as good as success."""
    scene = lost_join().reject(Verdict.REJOIN, UNKNOWN_MEMBER)
    assert (scene.state, [beat.member_epoch for beat in scene.new_beats]) == (S.JOINING, [0])


def test_own_place_is_released_again_after_a_pause() -> None:
    """A network that loses answer after answer ends no membership; the second time the release waits for a backoff."""
    scene = lost_join().answer(-2).reject(Verdict.UNRELEASED, UNRELEASED, holder="member-1")
    assert (scene.state, scene.new_beats) == (S.JOINING, [])
    assert (scene.next_beat().member_epoch, scene.answer(-2).new_beats[0].member_epoch) == (-2, 0)


# ---- the schedule itself ----


def schedule(**settings: object) -> Heartbeats:
    """A schedule whose jitter sits in the middle."""
    return Heartbeats(MemberSettings(group_id="g", **settings), lambda: 0.5)  # type: ignore[arg-type]  # a test's own words


def test_schedule_is_due_at_once_where_it_is_urgent() -> None:
    """H36: urgent waits for the backoff only, the rest for the interval too."""
    beats = schedule()
    beats.sending(1, 10.0)
    beats.succeeded(5.0, 10.0)
    assert (beats.due_at(10.0, urgent=True, holds=False), beats.due_at(10.0, urgent=False, holds=False)) == (
        0.0,
        10.0 + QUICK_S,
    )


def test_failed_attempt_makes_the_schedule_wait_for_the_backoff() -> None:
    """H36: after a failure the next heartbeat comes with the end of the backoff, not of the interval."""
    beats = schedule()
    beats.sending(1, 10.0)
    beats.retry(11.0, after_backoff=True)
    assert (beats.in_flight, round(beats.due_at(11.0, urgent=False, holds=False), 3)) == (None, 11.1)


def test_end_of_a_membership_resets_the_schedule() -> None:
    """H36: no backoff, nothing in flight, nothing said."""
    beats = schedule()
    beats.sending(1, 10.0)
    beats.retry(11.0, after_backoff=True)
    beats.sending(1, 12.0)
    beats.forget()
    assert (beats.in_flight, beats.due_at(12.0, urgent=True, holds=False), beats.has_spoken) == (None, 0.0, False)


@pytest.mark.parametrize(("interval_s", "expected"), [(5.0, 5.0), (3.0, 3.0), (0.0, 5.0)])
def test_schedule_takes_the_interval_of_each_success(interval_s: float, expected: float) -> None:
    """H36: an equal interval changes nothing, another one is taken, none but a positive one."""
    beats = schedule()
    for answered in (5.0, interval_s):
        beats.sending(1, 10.0)
        beats.succeeded(answered, 10.0)
    assert beats.interval_s == expected


def test_slow_coordinator_is_asked_less_often() -> None:
    """A heartbeat takes up a twentieth of the time at most, measured by the quickest of the latest answers."""
    beats = schedule()
    for _ in range(8):
        beats.speed_up()
        beats.sending(1, 10.0)
        beats.succeeded(5.0, 10.05)
    assert round(beats.spacing_s(10.05, holds=False), 3) == 1.0


def test_request_numbers_are_never_used_twice() -> None:
    """A late answer finds nobody who waits for its number."""
    scene = stable(A0).fence().settle().leave().settle()
    numbers = [order.request_id for order in scene.all(SendHeartbeat)]
    assert numbers == sorted(set(numbers))


def test_heartbeat_names_what_was_not_told_yet() -> None:
    """The memory of what was said is written when a heartbeat is composed."""
    beats = schedule()
    composed = [
        beats.compose(
            member_id="m",
            instance_id=None,
            epoch=4,
            subscription=Subscription(topics=frozenset({"t"})),
            claims=lambda: frozenset({A0}),
            ownership_version=statement,
        )
        for statement in (1, 1, 2)
    ]
    assert [(beat.topics, beat.owned) for beat in composed] == [(("t",), {A0}), (None, None), (None, {A0})]


@pytest.mark.parametrize("build", [joining, adding, leaving], ids=["joining", "reconcile", "leaving"])
def test_member_without_coordinator_sends_nothing(build: Callable[[], Scene]) -> None:
    """Nothing is sent where nobody knows whereto."""
    scene = build().feed(CoordinatorLost(reason="closed")).after(4.0)
    assert (scene.new_beats, scene.all(LosePartitions)) == ([], [])


def test_epoch_that_moves_on_without_an_assignment_makes_an_empty_member_ask_for_all_of_it() -> None:
    """A join that was given up may have swallowed the answer that had the assignment."""
    scene = stable().in_touch().answer(2)
    assert [(beat.is_full, beat.member_epoch) for beat in scene.new_beats] == [(True, 2)]
    assert stable(A0).in_touch().answer(2).new_beats == []
