"""Each health verdict with its cause, its deadline and whether a restart would help; in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.health.handlers import HandlerHealth, RunningHandler, UnfinishedRecord
from consumer_membership.health.progress import AssignmentProgress, PartitionHealth, PartitionWaitsFor
from consumer_membership.health.verdict import Circumstances, Health, HealthVerdict, health_of
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView, Transition
from consumer_membership.membership.waits import WaitsFor
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
    waits_for=PartitionWaitsFor.RECORDS,
    since=NOW - 100,
)
HELD_BACK = replace(STANDS, is_held_back=True, is_readable=False, waits_for=PartitionWaitsFor.OPEN_TRANSACTION)


def progress(**partitions: PartitionHealth) -> AssignmentProgress:
    """Return the progress of `p0` and `p1`."""
    seen = {TopicPartition("orders", int(name[1:])): one for name, one in partitions.items()}
    return AssignmentProgress(
        at=NOW - 1,
        partitions=seen,
        stuck=tuple(partition for partition, one in seen.items() if one.is_stuck),
        behind=tuple(partition for partition, one in seen.items() if one.is_behind),
        without_end=tuple(partition for partition, one in seen.items() if one.end is None),
        late=tuple(p for p, one in seen.items() if one.waits_for is PartitionWaitsFor.FETCH_RESPONSE),
        paused=sum(one.is_paused for one in seen.values()),
        lag=sum(one.lag or 0 for one in seen.values()),
        progressed_at=max((one.progressed_at or 0.0 for one in seen.values()), default=None),
    )


def view(state: MemberState, *, since: float = NOW - 10, **changes: object) -> MembershipView:
    """Return the view of a member whose heartbeats receive responses."""
    shown = replace(
        view_of(state),
        transitions=(Transition(at=since, old=S.UNSUBSCRIBED, new=state, reason="a test"),),
        coordinator=NODE,
        last_heartbeat_at=NOW - 1,
        heartbeat_interval_s=5.0,
    )
    return replace(shown, **changes)  # type: ignore[arg-type]  # fields of the view


def health(
    shown: MembershipView, seen: AssignmentProgress | None = None, *, now: float = NOW, **changes: object
) -> Health:
    """Judge a consumer that polls, with these changed circumstances."""
    usual = Circumstances(
        view=shown,
        progress=seen if seen is not None else progress(p0=MOVES),
        subscribed_at=NOW - 900,
        is_closed=False,
        polled_at=NOW - 1,
        max_poll_interval_s=300.0,
    )
    return health_of(now, replace(usual, **changes))  # type: ignore[arg-type]  # fields of `Circumstances`


# ---- partitions ------------------------------------------------------------------------------------------------------


def test_consumer_with_a_recently_advanced_partition_is_consuming() -> None:
    """A consumer is consuming if one of its partitions advanced within the last seconds."""
    found = health(view(S.STABLE))
    assert (found.verdict, found.would_restart_help, found.is_ready) == (V.CONSUMING, False, True)
    assert found.partitions == {P0: MOVES}


def test_consumer_at_the_end_of_its_partitions_is_idle() -> None:
    """A consumer that has read its partitions to their end is idle."""
    found = health(view(S.STABLE), progress(p0=RESTS))
    assert (found.verdict, found.why, found.since) == (V.IDLE, "no records after the current positions", NOW - 100)


def test_member_without_partitions_is_idle_with_the_reason_from_its_view() -> None:
    """A member without partitions is idle, and the verdict repeats what its view waits for."""
    shown = view(
        S.STABLE,
        waits_for=WaitsFor.PARTITIONS,
        waits_for_detail="the coordinator has assigned none",
        waits_since=NOW - 50,
    )
    found = health(shown, progress())
    assert (found.verdict, found.since) == (V.IDLE, NOW - 50)
    assert found.why == "waits for partitions: the coordinator has assigned none"


def test_member_that_fetches_nothing_is_consuming_while_it_owns_partitions() -> None:
    """A group member has no progress; its other verdicts are those of a consumer."""
    owning = view(S.STABLE, owned={P0: 3, P1: 3})
    found = health(owning, progress(), fetches=False)
    assert (found.verdict, found.why, found.is_ready) == (V.CONSUMING, "owns 2 partitions", True)
    assert health(view(S.STABLE), progress(), fetches=False).verdict is V.IDLE
    assert health(owning, progress(), fetches=False, polled_at=NOW - 200).verdict is V.NOT_POLLED
    assert health(replace(owning, last_heartbeat_at=NOW - 60), progress(), fetches=False).verdict is V.UNREACHABLE


def test_consumer_with_one_stuck_partition_is_stuck_although_another_advances() -> None:
    """The verdict names the stuck partition and its lag, and a restart would help."""
    found = health(view(S.STABLE), progress(p0=STANDS, p1=MOVES))
    assert (found.verdict, found.since, found.would_restart_help, found.is_ready) == (V.STUCK, NOW - 100, True, False)
    assert found.why == f"orders-0 is stuck at offset 5 with lag 85: waits for {PartitionWaitsFor.RECORDS}"


def test_consumer_whose_fetch_connection_is_silent_is_unreachable_although_another_partition_advances() -> None:
    """The verdict names the partition and its leader; it is not ready, and a short silence causes no restart."""
    late = replace(
        RESTS,
        end=9,
        lag=2,
        waits_for=PartitionWaitsFor.FETCH_RESPONSE,
        since=NOW - 12,
        waits_for_detail="broker b:9092 (id 2) reported records up to offset 9, and its fetch connection returns none",
    )
    found = health(view(S.STABLE), progress(p0=late, p1=MOVES))
    shown = (found.verdict, found.since, found.would_restart_help, found.is_ready)
    assert shown == (V.UNREACHABLE, NOW - 12, False, False)
    assert found.why == (
        "no record of orders-0 has arrived for 12 s, lag 2: waits for fetch response: broker b:9092 (id 2) reported "
        "records up to offset 9, and its fetch connection returns none"
    )
    assert health(view(S.STABLE), progress(p0=late, p1=STANDS)).verdict is V.STUCK


def test_consumer_stuck_on_an_open_transaction_needs_no_restart() -> None:
    """A restart does not help against an open transaction, because the next process waits for the same offset."""
    found = health(view(S.STABLE), progress(p0=HELD_BACK, p1=MOVES))
    assert (found.verdict, found.would_restart_help) == (V.STUCK, False)
    assert "waits for open transaction" in found.why
    unknown = replace(STANDS, is_readable=False)
    found_early = health(view(S.STABLE), progress(p0=unknown, p1=MOVES))
    assert (found_early.verdict, found_early.would_restart_help) == (V.STUCK, False)
    both = health(view(S.STABLE), progress(p0=HELD_BACK, p1=STANDS))
    assert both.why.startswith("orders-1 is stuck")
    assert both.would_restart_help


def test_partition_with_unknown_end_is_reported_then_stuck_without_a_restart() -> None:
    """An unknown end is first reported as unknown and later as stuck; no restart would give the partition a leader."""
    blank = PartitionHealth(position=None, end=None, lag=None, progressed_at=None)
    found = health(view(S.STABLE), progress(p0=blank, p1=RESTS))
    assert (found.verdict, found.why) == (V.IDLE, "the end offset of orders-0 is not known yet")
    both = health(view(S.STABLE), progress(p0=blank, p1=blank))
    assert both.why == "the end offsets of orders-0 and 1 more are not known yet"
    stands = replace(blank, is_stuck=True, waits_for=PartitionWaitsFor.END_OFFSET, since=NOW - 60)
    found = health(view(S.STABLE), progress(p0=stands, p1=RESTS))
    assert (found.verdict, found.would_restart_help, found.is_ready) == (V.STUCK, False, False)
    assert found.why == f"no records arrive from orders-0: waits for {PartitionWaitsFor.END_OFFSET}"


def test_consumer_is_paused_only_if_all_partitions_are_paused() -> None:
    """The verdict is paused only if the application paused all partitions."""
    paused = replace(RESTS, is_paused=True, waits_for=PartitionWaitsFor.RESUME)
    assert health(view(S.STABLE), progress(p0=paused)).verdict is V.PAUSED
    assert health(view(S.STABLE), progress(p0=paused, p1=MOVES)).verdict is V.CONSUMING


def test_consumer_whose_lag_never_shrinks_is_behind_with_its_lag() -> None:
    """A consumer that reads slower than producers write is behind, and the verdict names its lag."""
    found = health(view(S.STABLE), progress(p0=replace(MOVES, lag=500, is_behind=True)))
    assert (found.verdict, found.would_restart_help) == (V.BEHIND, False)
    assert found.why == "the lag of orders-0 increases: records are produced faster than consumed; total lag 500"


# ---- the application -------------------------------------------------------------------------------------------------


def test_unpolled_consumer_is_reported_before_max_poll_interval_is_exceeded() -> None:
    """The verdict names the time at which the member leaves; a restart would help only after it."""
    assert health(view(S.STABLE, last_heartbeat_at=NOW), polled_at=NOW - 149).verdict is V.CONSUMING
    found = health(view(S.STABLE), polled_at=NOW - 151)
    assert (found.verdict, found.since, found.until) == (V.NOT_POLLED, NOW - 151, NOW + 149)
    assert not found.would_restart_help
    assert health(view(S.STALE), polled_at=NOW - 400).verdict is V.NOT_POLLED
    assert health(view(S.STALE), polled_at=NOW - 400).would_restart_help


def test_rebalancing_member_is_ready_until_the_rebalance_timeout() -> None:
    """A rebalancing member is ready until max.poll.interval.ms; afterwards it is stuck.

    A restart would help if the application is the cause, but not if the coordinator is.
    """
    shown = view(S.RECONCILE, since=NOW - 10, waits_for=WaitsFor.ON_REVOKE, waits_since=NOW - 10)
    found = health(shown, polled_at=NOW - 10)
    assert (found.verdict, found.until, found.is_ready) == (V.REBALANCING, NOW + 290, True)
    assert found.why == "waits for on_revoke"
    late = replace(shown, last_heartbeat_at=NOW + 289)
    assert health(late, now=NOW + 289, polled_at=NOW - 10).verdict is V.REBALANCING
    late = replace(shown, last_heartbeat_at=NOW + 290)
    over = health(late, now=NOW + 290, polled_at=NOW - 10)
    assert (over.verdict, over.would_restart_help) == (V.STUCK, True)
    of_coordinator = replace(late, waits_for=WaitsFor.COMMITTED_OFFSETS)
    over = health(of_coordinator, now=NOW + 290, polled_at=NOW - 10)
    assert (over.verdict, over.would_restart_help) == (V.STUCK, False)


@pytest.mark.parametrize("state", [S.JOINING, S.ACK])
def test_joining_and_acknowledging_members_report_what_they_wait_for(state: MemberState) -> None:
    """A member that joins or acknowledges reports what it waits for and until when."""
    found = health(view(state, waits_for=WaitsFor.OTHER_MEMBERS, waits_until=NOW + 30))
    assert found.verdict is (V.JOINING if state is S.JOINING else V.REBALANCING)
    assert (found.why, found.until) == ("waits for other members to join", NOW + 30)


def test_classic_member_that_joins_the_next_generation_is_rebalancing() -> None:
    """A classic member that waits for the other members' joins keeps its place and stays ready."""
    found = health(view(S.JOINING, member_epoch=4, waits_for=WaitsFor.OTHER_MEMBERS), polled_at=NOW - 1)
    assert (found.verdict, found.until, found.is_ready) == (V.REBALANCING, NOW + 299, True)
    over = health(
        view(S.JOINING, member_epoch=4, since=NOW - 400, waits_for=WaitsFor.OTHER_MEMBERS, last_heartbeat_at=None)
    )
    assert (over.verdict, over.would_restart_help) == (V.REBALANCING, False)


def test_consumer_before_its_first_poll_is_starting() -> None:
    """A consumer that was never polled or never subscribed is starting, and the verdict names the missing call."""
    new = view_of(S.UNSUBSCRIBED)
    found = health(new, progress(), subscribed_at=NOW - 5, polled_at=None)
    assert (found.verdict, found.since) == (V.STARTING, NOW - 5)
    assert found.why == "waits for poll to join"
    assert health(view(S.UNSUBSCRIBED), progress(), subscribed_at=None).why == "no subscription and no assignment"


def test_subscribed_consumer_without_a_poll_becomes_not_polled_without_a_restart() -> None:
    """The time counts from the subscription or a later poll.

    Such a consumer holds no partitions, so no restart would help.
    """
    new = view_of(S.UNSUBSCRIBED)
    found = health(new, progress(), subscribed_at=NOW - 150, polled_at=None)
    assert (found.verdict, found.since, found.until) == (V.NOT_POLLED, NOW - 150, None)
    assert (found.would_restart_help, found.is_ready) == (False, False)
    assert found.why == "the application has not polled since it subscribed; the member joins with the next poll"
    assert not health(new, progress(), now=NOW + 9000, subscribed_at=NOW - 150, polled_at=None).would_restart_help
    # A poll before the subscription does not count, a poll after it does.
    assert health(new, progress(), subscribed_at=NOW - 149, polled_at=NOW - 900).verdict is V.STARTING
    assert health(new, progress(), subscribed_at=NOW - 900, polled_at=NOW - 149).verdict is V.STARTING
    # After a leave, the time counts from the end of the leave, not from the subscription.
    left = health(view(S.UNSUBSCRIBED, since=NOW - 149), progress(), subscribed_at=NOW - 900, polled_at=NOW - 900)
    assert (left.verdict, left.since) == (V.STARTING, NOW - 149)


def test_manually_assigned_partitions_are_judged_like_subscribed_ones() -> None:
    """Partitions from assign() receive the same verdicts as partitions of a group."""
    shown = view(S.UNSUBSCRIBED, coordinator=None, last_heartbeat_at=None)
    assert health(shown, progress(p0=STANDS), subscribed_at=None).verdict is V.STUCK


# ---- the brokers -----------------------------------------------------------------------------------------------------


def test_broker_outage_is_unreachable_and_needs_no_restart() -> None:
    """An outage is unreachable whatever the partitions report, and the verdict names the end of the session."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="Connection refused")
    shown = view(
        S.STABLE,
        coordinator=None,
        waits_for=WaitsFor.COORDINATOR,
        waits_since=NOW - 4,
        last_error=error,
        lease_until=NOW + 20,
    )
    assert health(shown, progress(p0=STANDS)).verdict is V.STUCK
    found = health(replace(shown, waits_since=NOW - 6), progress(p0=STANDS))
    assert (found.verdict, found.until, found.would_restart_help) == (V.UNREACHABLE, NOW + 20, False)
    assert found.why == "waits for group coordinator: _TRANSPORT: Connection refused"
    assert health(view(S.STABLE), broker_lost_since=NOW - 6).verdict is V.UNREACHABLE


def test_coordinator_lookup_after_an_overdue_heartbeat_is_unreachable_immediately() -> None:
    """The coordinator counts as missing from the time at which its response was due. The first lookup may be later."""
    searching = view(
        S.STABLE,
        coordinator=None,
        waits_for=WaitsFor.COORDINATOR,
        waits_since=NOW,
        last_heartbeat_at=NOW - 10,
        lease_until=NOW + 35,
    )
    found = health(searching, progress(p0=RESTS))
    assert (found.verdict, found.since, found.until) == (V.UNREACHABLE, NOW - 5, NOW + 35)
    assert (found.is_ready, found.would_restart_help) == (False, False)
    assert found.why == "waits for group coordinator"
    moved = replace(searching, last_heartbeat_at=NOW - 9.9)
    assert health(moved, progress(p0=RESTS)).verdict is V.IDLE


def test_unreachable_verdict_names_only_a_current_error() -> None:
    """The verdict omits an error that is over, because it does not explain the current silence."""
    error = BrokerError(code=-195, name="_TRANSPORT", message="Connection refused")
    silent = view(S.STABLE, last_heartbeat_at=NOW - 16, last_error=error, last_error_at=NOW - 90)
    assert health(silent).why == "no heartbeat response for 16 s: _TRANSPORT: Connection refused"
    assert health(replace(silent, last_error_over_at=NOW - 80)).why == "no heartbeat response for 16 s"


def test_member_without_heartbeat_responses_for_three_intervals_is_unreachable() -> None:
    """A member is unreachable after three heartbeat intervals without a response."""
    silent = view(S.STABLE, last_heartbeat_at=NOW - 16, lease_until=NOW + 29)
    found = health(silent)
    assert (found.verdict, found.since, found.until) == (V.UNREACHABLE, NOW - 16, NOW + 29)
    assert found.why == "no heartbeat response for 16 s"
    assert health(replace(silent, last_heartbeat_at=NOW - 14)).verdict is V.CONSUMING


# ---- ends ------------------------------------------------------------------------------------------------------------


def test_fenced_verdict_has_the_coordinators_error_and_needs_no_restart() -> None:
    """A fenced member rejoins automatically, and the verdict repeats the coordinator's error."""
    error = BrokerError(code=110, name="FENCED_MEMBER_EPOCH", message="stale")
    found = health(view(S.FENCED, last_error=error))
    assert (found.verdict, found.would_restart_help) == (V.FENCED, False)
    assert "FENCED_MEMBER_EPOCH: stale" in found.why


@pytest.mark.parametrize(("code", "helps"), [(82, False), (30, False), (81, False), (-150, True)])
def test_fatal_verdict_recommends_a_restart_only_after_an_internal_error(code: int, helps: bool) -> None:  # noqa: FBT001
    """A restart repeats a fatal error about an instance id or missing rights, but may cure a bug of this package."""
    found = health(view(S.FATAL, last_error=BrokerError(code=code, name="NAME", message="words")))
    assert (found.verdict, found.why, found.would_restart_help) == (V.FATAL, "NAME: words", helps)


def test_member_that_is_warm_is_ready_until_it_joins() -> None:
    """A successor is ready once on_warm has returned, until it joins; before that it is joining and not ready."""
    waiting = view(S.JOINING, waits_for=WaitsFor.HAND_OVER, waits_for_detail="'a' is held by m", waits_since=NOW - 2)
    found = health(waiting)
    assert (found.verdict, found.is_ready) == (V.JOINING, False)
    found = health(replace(waiting, is_warm=True))
    assert (found.verdict, found.since, found.is_ready, found.would_restart_help) == (V.WARM, NOW - 2, True, False)
    assert found.why == "waits for hand-over: 'a' is held by m"
    assert health(replace(waiting, is_warm=True), polled_at=NOW - 151).verdict is V.NOT_POLLED


def test_closed_consumer_has_the_verdict_closed() -> None:
    """A closed consumer has the verdict closed, whatever its last state was."""
    assert health(view(S.STABLE), is_closed=True).verdict is V.CLOSED


# ---- with a processor ------------------------------------------------------------------------------------------------

STUCK_HANDLER = RunningHandler(
    partition=P1,
    offset=42,
    key=b"customer-7",
    attempt=2,
    began_at=NOW - 320,
    deadline=NOW - 20,
    stack='  File "/app/orders.py", line 12, in handle\n    time.sleep(3600)\n',
)


def test_handler_beyond_its_timeout_makes_the_consumer_stuck_and_a_restart_would_help() -> None:
    """The verdict names partition, offset, key, attempt and the line that runs; a thread ends only with its process."""
    found = health(view(S.STABLE), progress(p0=MOVES), handlers=HandlerHealth(stuck=(STUCK_HANDLER,)))
    assert (found.verdict, found.since, found.until, found.would_restart_help, found.is_ready) == (
        V.STUCK,
        NOW - 20,
        None,
        True,
        False,
    )
    assert found.why == (
        "a handler exceeded handler_timeout: orders-1 offset 42, key customer-7, attempt 2, running for 320 s, at "
        "orders.py:12 in handle"
    )
    assert found.handlers is not None
    assert found.handlers.stuck == (STUCK_HANDLER,)


def test_stuck_handler_that_can_be_cancelled_needs_no_restart() -> None:
    """The processor ends coroutines and processes itself; a stuck thread is reported first, because it remains."""
    coroutine = replace(STUCK_HANDLER, offset=7, can_be_cancelled=True)
    found = health(view(S.STABLE), progress(p0=MOVES), handlers=HandlerHealth(stuck=(coroutine,)))
    assert (found.verdict, found.would_restart_help) == (V.STUCK, False)
    both = health(view(S.STABLE), progress(p0=MOVES), handlers=HandlerHealth(stuck=(coroutine, STUCK_HANDLER)))
    assert both.would_restart_help
    assert "offset 42" in both.why
    assert both.why.endswith("; 1 more stuck")


def test_failed_processor_is_fatal_also_after_its_close() -> None:
    """The processor closes its consumer after a failure; probes must still detect it."""
    failed = HandlerHealth(failure="orders-1 offset 42 failed 5 times: ValueError", failed_at=NOW - 3)
    for is_closed in (False, True):
        found = health(view(S.STABLE), progress(p0=MOVES), handlers=failed, is_closed=is_closed)
        assert (found.verdict, found.since, found.why, found.would_restart_help) == (
            V.FATAL,
            NOW - 3,
            "orders-1 offset 42 failed 5 times: ValueError",
            True,
        )


def test_failed_processor_is_stuck_while_a_handler_runs_beyond_its_timeout() -> None:
    """The verdict names the line of the stuck handler, also of a cancelled handler that does not end."""
    for stuck in (STUCK_HANDLER, replace(STUCK_HANDLER, can_be_cancelled=True)):
        failed = HandlerHealth(stuck=(stuck,), failure="orders-1 offset 42 exceeded handler_timeout")
        for is_closed in (False, True):
            found = health(view(S.STABLE), progress(p0=MOVES), handlers=failed, is_closed=is_closed)
            assert (found.verdict, found.since, found.would_restart_help) == (V.STUCK, NOW - 20, True)
            assert found.why.endswith("at orders.py:12 in handle; the processor ends")


def test_stuck_handler_is_reported_before_unreachable_brokers_but_after_an_ended_membership() -> None:
    """A stuck handler precedes unreachable brokers, which are no fault of this process, but not an ended membership."""
    stuck = HandlerHealth(stuck=(STUCK_HANDLER,))
    assert health(view(S.STABLE, last_heartbeat_at=NOW - 100), progress(), handlers=stuck).verdict is V.STUCK
    assert health(view(S.FENCED), progress(), handlers=stuck).verdict is V.FENCED
    assert health(view(S.STABLE), progress(), handlers=stuck, is_closed=True).verdict is V.CLOSED


def test_consumer_with_busy_handlers_is_consuming_although_no_position_moves() -> None:
    """A consumer with a handler that runs for long is neither idle nor stuck; the verdict names the oldest record."""
    busy = HandlerHealth(
        oldest={
            P0: UnfinishedRecord(offset=9, since=NOW - 60),
            P1: UnfinishedRecord(offset=4, since=NOW - 900, attempt=3, last_error="TimeoutError: slow"),
        }
    )
    found = health(view(S.STABLE), progress(p0=RESTS, p1=RESTS), handlers=busy)
    assert (found.verdict, found.since, found.would_restart_help) == (V.CONSUMING, NOW - 900, False)
    assert found.why == (
        "records are being handled; the oldest unfinished record is orders-1 offset 4 (attempt 3; TimeoutError: slow)"
    )
    new = health(view(S.STABLE), progress(), handlers=busy)
    assert (new.verdict, new.why) == (V.CONSUMING, found.why)
    idle = health(view(S.STABLE), progress(p0=RESTS), handlers=HandlerHealth())
    assert idle.verdict is V.IDLE
