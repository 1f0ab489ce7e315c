"""Each verdict by its rule, in virtual time: cause in words, until when, and whether a restart would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.health.progress import IS_PAUSED, NO_RECORD, UNTOLD, AssignmentProgress, PartitionHealth
from consumer_membership.health.verdict import Circumstances, Health, HealthVerdict, judged
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView, Transition
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from tests.support.views import view_of

V, S = HealthVerdict, MemberState
NOW = 1_000.0
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
NODE = BrokerAddress(node_id=1, host="broker", port=9092)
MOVES = PartitionHealth(position=5, end=7, lag=2, progressed_at=NOW - 1)
RESTS = PartitionHealth(position=7, end=7, lag=0, progressed_at=NOW - 100)
STANDS = PartitionHealth(
    position=5,
    end=90,
    lag=85,
    progressed_at=NOW - 100,
    is_stuck=True,
    is_readable=True,
    waits_for=NO_RECORD,
    since=NOW - 100,
)
HELD_BACK = replace(STANDS, is_held_back=True, is_readable=False, waits_for="a transaction that is open since offset 5")


def progress(**partitions: PartitionHealth) -> AssignmentProgress:
    """Of `p0` and `p1`."""
    seen = {TopicPartition("orders", int(name[1:])): one for name, one in partitions.items()}
    return AssignmentProgress(
        at=NOW - 1,
        partitions=seen,
        stuck=tuple(partition for partition, one in seen.items() if one.is_stuck),
        behind=tuple(partition for partition, one in seen.items() if one.is_behind),
        untold=tuple(partition for partition, one in seen.items() if one.end is None),
        paused=sum(one.is_paused for one in seen.values()),
        lag=sum(one.lag or 0 for one in seen.values()),
        progressed_at=max((one.progressed_at or 0.0 for one in seen.values()), default=None),
    )


def view(state: MemberState, *, since: float = NOW - 10, **changes: object) -> MembershipView:
    """A member whose heartbeats are answered."""
    shown = replace(
        view_of(state),
        transitions=(Transition(at=since, old=S.UNSUBSCRIBED, new=state, reason="a test"),),
        coordinator=NODE,
        last_heartbeat_at=NOW - 1,
        heartbeat_interval_s=5.0,
    )
    return replace(shown, **changes)  # type: ignore[arg-type]  # of the view


def health(
    shown: MembershipView, seen: AssignmentProgress | None = None, *, now: float = NOW, **changes: object
) -> Health:
    """Of a consumer that polls, unless something else is said."""
    usual = Circumstances(
        view=shown,
        progress=seen if seen is not None else progress(p0=MOVES),
        subscribed_at=NOW - 900,
        is_closed=False,
        polled_at=NOW - 1,
        max_poll_interval_s=300.0,
    )
    return judged(now, replace(usual, **changes))  # type: ignore[arg-type]  # of the circumstances


# ---- partitions ------------------------------------------------------------------------------------------------------


def test_records_come() -> None:
    """A partition moved within the last seconds."""
    found = health(view(S.STABLE))
    assert (found.verdict, found.would_restart_help, found.is_ready) == (V.CONSUMING, False, True)
    assert found.partitions == {P0: MOVES}


def test_idle_topic_is_idle() -> None:
    """Nothing lies behind its positions; nothing is wrong with that."""
    found = health(view(S.STABLE), progress(p0=RESTS))
    assert (found.verdict, found.why, found.since) == (V.IDLE, "there is nothing behind its positions", NOW - 100)


def test_member_without_partitions_is_idle_and_says_why() -> None:
    """In the words of the view."""
    shown = view(S.STABLE, waits_for="partitions: the coordinator has assigned none", waits_since=NOW - 50)
    found = health(shown, progress())
    assert (found.verdict, found.since) == (V.IDLE, NOW - 50)
    assert found.why == "waits for partitions: the coordinator has assigned none"


def test_partition_that_stands_is_stuck_although_another_moves() -> None:
    """It is named, with how far it is, and a restart would help."""
    found = health(view(S.STABLE), progress(p0=STANDS, p1=MOVES))
    assert (found.verdict, found.since, found.would_restart_help, found.is_ready) == (V.STUCK, NOW - 100, True, False)
    assert found.why == f"orders-0 stands at 5, 85 behind: it waits for {NO_RECORD}"


def test_open_transaction_is_the_cause_and_no_restart_helps() -> None:
    """The next process would wait for the same."""
    found = health(view(S.STABLE), progress(p0=HELD_BACK, p1=MOVES))
    assert (found.verdict, found.would_restart_help) == (V.STUCK, False)
    assert "it waits for a transaction that is open since offset 5" in found.why
    unknown = replace(STANDS, is_readable=False)
    found_early = health(view(S.STABLE), progress(p0=unknown, p1=MOVES))
    assert (found_early.verdict, found_early.would_restart_help) == (V.STUCK, False)
    both = health(view(S.STABLE), progress(p0=HELD_BACK, p1=STANDS))
    assert both.why.startswith("orders-1 stands")
    assert both.would_restart_help


def test_partition_whose_end_nobody_tells_is_not_idle() -> None:
    """At first that is told, and after a while it is stuck: no restart gives a partition its leader."""
    blank = PartitionHealth(position=None, end=None, lag=None, progressed_at=None)
    found = health(view(S.STABLE), progress(p0=blank, p1=RESTS))
    assert (found.verdict, found.why) == (V.IDLE, "it is not known yet where orders-0 ends")
    both = health(view(S.STABLE), progress(p0=blank, p1=blank))
    assert both.why == "it is not known yet where orders-0 and 1 more end"
    stands = replace(blank, is_stuck=True, waits_for=UNTOLD, since=NOW - 60)
    found = health(view(S.STABLE), progress(p0=stands, p1=RESTS))
    assert (found.verdict, found.would_restart_help, found.is_ready) == (V.STUCK, False, False)
    assert found.why == f"nothing comes of orders-0: it waits for {UNTOLD}"


def test_all_paused_is_paused() -> None:
    """Some of them is none of the application's wishes for all."""
    paused = replace(RESTS, is_paused=True, waits_for=IS_PAUSED)
    assert health(view(S.STABLE), progress(p0=paused)).verdict is V.PAUSED
    assert health(view(S.STABLE), progress(p0=paused, p1=MOVES)).verdict is V.CONSUMING


def test_more_written_than_read_is_behind() -> None:
    """With the lag."""
    found = health(view(S.STABLE), progress(p0=replace(MOVES, lag=500, is_behind=True)))
    assert (found.verdict, found.would_restart_help) == (V.BEHIND, False)
    assert found.why == "more is written than is read of orders-0: 500 records behind in all"


# ---- the application -------------------------------------------------------------------------------------------------


def test_application_that_does_not_poll_is_told_before_its_time_is_over() -> None:
    """With the moment at which the member leaves; then a restart may help."""
    assert health(view(S.STABLE, last_heartbeat_at=NOW), polled_at=NOW - 149).verdict is V.CONSUMING
    found = health(view(S.STABLE), polled_at=NOW - 151)
    assert (found.verdict, found.since, found.until) == (V.NOT_POLLED, NOW - 151, NOW + 149)
    assert not found.would_restart_help
    assert health(view(S.STALE), polled_at=NOW - 400).verdict is V.NOT_POLLED
    assert health(view(S.STALE), polled_at=NOW - 400).would_restart_help


def test_rebalancing_member_is_healthy_until_its_deadline() -> None:
    """The rebalance timeout is max.poll.interval.ms; beyond it whoever is waited for decides."""
    shown = view(S.RECONCILE, since=NOW - 10, waits_for="the application's on_revoke", waits_since=NOW - 10)
    found = health(shown, polled_at=NOW - 10)
    assert (found.verdict, found.until, found.is_ready) == (V.REBALANCING, NOW + 290, True)
    assert found.why == "waits for the application's on_revoke"
    late = replace(shown, last_heartbeat_at=NOW + 289)
    assert health(late, now=NOW + 289, polled_at=NOW - 10).verdict is V.REBALANCING
    late = replace(shown, last_heartbeat_at=NOW + 290)
    over = health(late, now=NOW + 290, polled_at=NOW - 10)
    assert (over.verdict, over.would_restart_help) == (V.STUCK, True)
    of_coordinator = replace(late, waits_for="the committed offsets of what is assigned")
    over = health(of_coordinator, now=NOW + 290, polled_at=NOW - 10)
    assert (over.verdict, over.would_restart_help) == (V.STUCK, False)


@pytest.mark.parametrize("state", [S.JOINING, S.ACK])
def test_ways_into_and_through_the_group(state: MemberState) -> None:
    """With what is waited for, and until when."""
    found = health(view(state, waits_for="the others", waits_until=NOW + 30))
    assert found.verdict is (V.JOINING if state is S.JOINING else V.REBALANCING)
    assert (found.why, found.until) == ("waits for the others", NOW + 30)


def test_classic_member_that_joins_the_next_generation_is_rebalancing() -> None:
    """It keeps its place while it waits for the others' joins: no probe may take it out of rotation for that."""
    found = health(view(S.JOINING, member_epoch=4, waits_for="the others' joins"), polled_at=NOW - 1)
    assert (found.verdict, found.until, found.is_ready) == (V.REBALANCING, NOW + 299, True)
    over = health(
        view(S.JOINING, member_epoch=4, since=NOW - 400, waits_for="the others' joins", last_heartbeat_at=None)
    )
    assert (over.verdict, over.would_restart_help) == (V.REBALANCING, False)


def test_member_that_nobody_polled_yet_is_starting() -> None:
    """And one to which nothing was said."""
    new = view_of(S.UNSUBSCRIBED)
    found = health(new, progress(), subscribed_at=NOW - 5, polled_at=None)
    assert (found.verdict, found.since) == (V.STARTING, NOW - 5)
    assert found.why == "waits for the application's next poll, to join"
    assert health(view(S.UNSUBSCRIBED), progress(), subscribed_at=None).why == "nothing is subscribed or assigned"


def test_subscribed_application_that_never_polls_is_told_after_its_share_of_time() -> None:
    """From the subscription on, or from a later poll; it holds nothing from others, so that no restart would help."""
    new = view_of(S.UNSUBSCRIBED)
    found = health(new, progress(), subscribed_at=NOW - 150, polled_at=None)
    assert (found.verdict, found.since, found.until) == (V.NOT_POLLED, NOW - 150, None)
    assert (found.would_restart_help, found.is_ready) == (False, False)
    assert found.why == "the application has subscribed and not polled since; the member joins with the next poll"
    assert not health(new, progress(), now=NOW + 9000, subscribed_at=NOW - 150, polled_at=None).would_restart_help
    # A poll long before the subscription says nothing of it, one after it does.
    assert health(new, progress(), subscribed_at=NOW - 149, polled_at=NOW - 900).verdict is V.STARTING
    assert health(new, progress(), subscribed_at=NOW - 900, polled_at=NOW - 149).verdict is V.STARTING
    # Who left, and subscribed before that was over, waits since the leave.
    left = health(view(S.UNSUBSCRIBED, since=NOW - 149), progress(), subscribed_at=NOW - 900, polled_at=NOW - 900)
    assert (left.verdict, left.since) == (V.STARTING, NOW - 149)


def test_partitions_of_no_group_are_judged_alike() -> None:
    """Assigned by hand."""
    shown = view(S.UNSUBSCRIBED, coordinator=None, last_heartbeat_at=None)
    assert health(shown, progress(p0=STANDS), subscribed_at=None).verdict is V.STUCK


# ---- the brokers -----------------------------------------------------------------------------------------------------


def test_outage_of_the_brokers_is_not_the_process_fault() -> None:
    """Whatever the partitions look like; the session's end is told."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="Connection refused")
    shown = view(
        S.STABLE,
        coordinator=None,
        waits_for="the group's coordinator to be found",
        waits_since=NOW - 4,
        last_error=error,
        lease_until=NOW + 20,
    )
    assert health(shown, progress(p0=STANDS)).verdict is V.STUCK
    found = health(replace(shown, waits_since=NOW - 6), progress(p0=STANDS))
    assert (found.verdict, found.until, found.would_restart_help) == (V.UNREACHABLE, NOW + 20, False)
    assert found.why == "waits for the group's coordinator to be found: _TRANSPORT: Connection refused"
    assert health(view(S.STABLE), broker_lost_since=NOW - 6).verdict is V.UNREACHABLE


def test_search_that_follows_an_unanswered_heartbeat_is_unreachable_at_once() -> None:
    """The coordinator is missing from the moment at which an answer was due, not from the first search for it."""
    searching = view(
        S.STABLE,
        coordinator=None,
        waits_for="the group's coordinator to be found",
        waits_since=NOW,
        last_heartbeat_at=NOW - 10,
        lease_until=NOW + 35,
    )
    found = health(searching, progress(p0=RESTS))
    assert (found.verdict, found.since, found.until) == (V.UNREACHABLE, NOW - 5, NOW + 35)
    assert (found.is_ready, found.would_restart_help) == (False, False)
    assert found.why == "waits for the group's coordinator to be found"
    moved = replace(searching, last_heartbeat_at=NOW - 9.9)
    assert health(moved, progress(p0=RESTS)).verdict is V.IDLE


def test_error_that_is_over_is_not_the_cause_of_a_silence() -> None:
    """Only the present error explains why no heartbeat is answered now."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="Connection refused")
    silent = view(S.STABLE, last_heartbeat_at=NOW - 16, last_error=error, last_error_at=NOW - 90)
    assert health(silent).why == "no heartbeat was answered for 16 s: _TRANSPORT: Connection refused"
    assert health(replace(silent, last_error_over_at=NOW - 80)).why == "no heartbeat was answered for 16 s"


def test_heartbeats_that_nobody_answers_are_told() -> None:
    """After three intervals."""
    silent = view(S.STABLE, last_heartbeat_at=NOW - 16, lease_until=NOW + 29)
    found = health(silent)
    assert (found.verdict, found.since, found.until) == (V.UNREACHABLE, NOW - 16, NOW + 29)
    assert found.why == "no heartbeat was answered for 16 s"
    assert health(replace(silent, last_heartbeat_at=NOW - 14)).verdict is V.CONSUMING


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_fenced_member_comes_back_by_itself() -> None:
    """With the coordinator's words."""
    error = BrokerError(code=110, name="FENCED_MEMBER_EPOCH", message="stale")
    found = health(view(S.FENCED, last_error=error))
    assert (found.verdict, found.would_restart_help) == (V.FENCED, False)
    assert "FENCED_MEMBER_EPOCH: stale" in found.why


@pytest.mark.parametrize(("code", "helps"), [(82, False), (30, False), (81, False), (-150, True)])
def test_end_for_good_says_whether_another_process_would_meet_it_again(code: int, helps: bool) -> None:  # noqa: FBT001
    """Its place is another's, or it has no right: a restart loops. A fault of ours is another matter."""
    found = health(view(S.FATAL, last_error=BrokerError(code=code, name="NAME", message="words")))
    assert (found.verdict, found.why, found.would_restart_help) == (V.FATAL, "NAME: words", helps)


def test_closed_consumer_is_closed() -> None:
    """Whatever it was before."""
    assert health(view(S.STABLE), is_closed=True).verdict is V.CLOSED
