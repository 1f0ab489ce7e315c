"""Lifecycle events, derived from the member's transitions and from samples of its partitions; in virtual time."""

from __future__ import annotations

from dataclasses import replace

from consumer_membership.health.handlers import (
    HandlerHealth,
    HandlersDisowned,
    RecordDeadLettered,
    RunningHandler,
)
from consumer_membership.health.lifecycle import Lifecycle, LifecycleEvent, LifecycleKind, Moment
from consumer_membership.health.progress import AssignmentProgress, PartitionHealth, PartitionWaitsFor
from consumer_membership.health.verdict import Circumstances, Health, health_of
from consumer_membership.membership.effects import InstanceReleased, LosePartitions, StateChanged
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView, ended
from consumer_membership.membership.waits import WaitsFor
from consumer_membership.types import BrokerAddress, BrokerError, Holder, TopicPartition
from tests.support.views import view_of

K, S = LifecycleKind, MemberState
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
NODE = BrokerAddress(node_id=1, host="broker", port=9092)
FENCED = BrokerError(code=110, name="FENCED_MEMBER_EPOCH", message="the epoch is old")
RECORDS = PartitionHealth(position=5, end=7, lag=2, progressed_at=1.0)
STANDS = replace(RECORDS, end=90, lag=85, is_stuck=True, waits_for=PartitionWaitsFor.RECORDS, since=1.0)


class Watched:
    """A `Lifecycle` of a member whose views are set by the test."""

    def __init__(self, view: MembershipView | None = None) -> None:
        self.view = view if view is not None else view_of(S.UNSUBSCRIBED, epoch=0)
        self.lifecycle = Lifecycle(self.view)
        self.now = 100.0
        #: The state of the processor's handlers; None: there is no processor.
        self.handlers: HandlerHealth | None = None

    def goes(self, state: MemberState, *effects: GroupEffect, reason: str = "a test", **changes: object) -> list[str]:
        """Move the member to a state and return the lifecycle events in short form."""
        changed = StateChanged(old=self.view.state, new=state, reason=reason)
        effects_seen = (changed, *effects) if state is not self.view.state else effects
        self.view = replace(self.view, state=state, **changes)  # type: ignore[arg-type]  # fields of the view
        return short(self.lifecycle.observed(effects_seen, self.view, self.moment))

    def joins(self, *partitions: TopicPartition) -> None:
        """Move the member into its group with these partitions."""
        self.goes(S.JOINING)
        self.goes(
            S.STABLE,
            member_epoch=3,
            owned=dict.fromkeys(partitions, 3),
            coordinator=NODE,
            heartbeat_interval_s=5.0,
            last_heartbeat_at=self.now,
        )

    def sampled(self, **partitions: PartitionHealth) -> list[str]:
        """Sample its partitions, passed as `p0` and so on, and return the lifecycle events in short form."""
        found = {TopicPartition("orders", int(name[1:])): one for name, one in partitions.items()}
        stuck = tuple(partition for partition, one in found.items() if one.is_stuck)
        progress = AssignmentProgress(at=self.now, partitions=found, stuck=stuck)
        return short(self.lifecycle.sampled(self.health(progress), progress, self.moment))

    def health(self, progress: AssignmentProgress) -> Health:
        """Return the health of a consumer that last polled at time 100."""
        circumstances = Circumstances(
            view=self.view,
            progress=progress,
            subscribed_at=90.0,
            is_closed=False,
            polled_at=100.0,
            max_poll_interval_s=300.0,
            handlers=self.handlers,
        )
        return health_of(self.now, circumstances)

    @property
    def moment(self) -> Moment:
        """The current time on both clocks."""
        return Moment(at=self.now, timestamp=self.now + 1e9)


def short(events: tuple[LifecycleEvent, ...]) -> list[str]:
    """Return kinds with partition numbers: `assigned 0 1`."""
    return [" ".join([one.kind.value, *(str(p.partition) for p in one.partitions)]) for one in events]


def test_lifecycle_reports_join_assign_revoke_leave_and_close_in_order() -> None:
    """The lifecycle reports events in the order in which they happen, and nothing after the close."""
    watched = Watched()
    assert watched.goes(S.JOINING) == []
    assert watched.goes(S.RECONCILE, member_epoch=4, target=frozenset({P0, P1})) == ["joined"]
    assert watched.goes(S.ACK, owned={P0: 4, P1: 4}) == ["assigned 0 1"]
    assert watched.goes(S.STABLE) == []
    assert watched.goes(S.RECONCILE, member_epoch=5) == []
    assert watched.goes(S.ACK, owned={P0: 4, P2: 5}) == ["revoked 1", "assigned 2"]
    assert watched.goes(S.UNSUBSCRIBING) == []
    assert watched.goes(S.UNSUBSCRIBING, owned={}) == ["revoked 0 2"]
    assert watched.goes(S.UNSUBSCRIBED, member_epoch=0) == ["left"]
    assert short(watched.lifecycle.closed(watched.moment)) == ["closed"]
    assert watched.goes(S.JOINING) == []
    assert watched.lifecycle.closed(watched.moment) == ()


def test_lifecycle_event_has_the_ids_and_epoch_from_before_the_fence() -> None:
    """An event of a fenced member has the ids and the epoch that the member had before the fence."""
    watched = Watched(replace(view_of(S.JOINING, member_id="m"), instance_id="i"))
    watched.joins(P1, P0)
    gone = replace(watched.view, state=S.FENCED, member_id="", member_epoch=0, owned={}, last_error=FENCED)
    effects = (StateChanged(old=S.STABLE, new=S.FENCED, reason=str(FENCED)), LosePartitions(attempt=1))
    fenced, lost = watched.lifecycle.observed(effects, gone, watched.moment)
    assert fenced == LifecycleEvent(
        kind=K.FENCED,
        at=100.0,
        timestamp=1e9 + 100.0,
        group_id="g",
        member_id="m",
        instance_id="i",
        epoch=3,
        cause="FENCED_MEMBER_EPOCH: the epoch is old",
    )
    assert (lost.kind, lost.partitions, lost.epoch, lost.cause) == (K.LOST, (P0, P1), 3, str(FENCED))


def test_fenced_event_precedes_the_lost_event_and_the_next_joined_event() -> None:
    """A fence is reported before the loss, also if the member starts to join again in the same step."""
    watched = Watched()
    watched.joins(P0)
    fenced = watched.goes(S.FENCED, LosePartitions(attempt=2), member_epoch=0, owned={}, last_error=FENCED)
    assert fenced == ["fenced", "lost 0"]
    assert watched.goes(S.JOINING) == []
    assert watched.goes(S.RECONCILE, member_epoch=9) == ["joined"]
    breath = (
        StateChanged(old=S.RECONCILE, new=S.FENCED, reason="old"),
        StateChanged(old=S.FENCED, new=S.JOINING, reason="anew"),
    )
    view = replace(watched.view, state=S.JOINING, member_epoch=0)
    assert short(watched.lifecycle.observed(breath, view, watched.moment)) == ["fenced"]


def test_fenced_instance_id_is_reported_as_fenced_and_fatal() -> None:
    """FENCED_INSTANCE_ID is reported as fenced and fatal; every other fatal error is reported as fatal only."""
    for code, kinds in ((82, ["fenced", "fatal", "lost 0"]), (29, ["fatal", "lost 0"])):
        watched = Watched()
        watched.joins(P0)
        error = BrokerError(code=code, name="E")
        assert watched.goes(S.FATAL, LosePartitions(attempt=2), member_epoch=0, owned={}, last_error=error) == kinds, (
            code
        )


def test_takeover_event_names_the_released_holder() -> None:
    """The member that takes over an instance id reports the former holder before it joins."""
    watched = Watched()
    watched.goes(S.JOINING)
    released = InstanceReleased(instance_id="i", holder=Holder(member_id="old", client_id="app", host="/10.0.0.1"))
    (event,) = watched.lifecycle.observed((released,), watched.view, watched.moment)
    assert (event.kind, event.cause) == (
        K.TAKEOVER,
        "released member old (client app on /10.0.0.1), which held group.instance.id 'i'",
    )


def test_stale_member_reports_left_and_lost_once() -> None:
    """A member that exceeds max.poll.interval.ms reports left and lost, and its later unsubscribe reports nothing."""
    watched = Watched()
    watched.joins(P0)
    assert watched.goes(S.STALE, LosePartitions(attempt=2), member_epoch=0, owned={}) == ["left", "lost 0"]
    assert watched.goes(S.UNSUBSCRIBED) == []


def test_leave_revokes_only_partitions_that_were_assigned_to_the_application() -> None:
    """A partition that the application has not received before the leave is neither assigned nor revoked.

    The view counts it as owned until the leave request is sent.
    """
    watched = Watched()
    watched.joins(P0)
    assert watched.goes(S.UNSUBSCRIBING, owned={P0: 3, P1: 4}) == []
    assert watched.goes(S.UNSUBSCRIBING, owned={}) == ["revoked 0"]


def test_callback_registered_late_receives_only_later_events() -> None:
    """A callback that is registered late does not receive the current assignment, but it receives its revocation."""
    watched = Watched(replace(view_of(S.STABLE, epoch=7), owned={P0: 7}))
    assert watched.goes(S.STABLE, last_heartbeat_at=99.0) == []
    assert watched.goes(S.ACK, owned={}) == ["revoked 0"]


def test_crash_of_the_member_thread_is_reported_as_fatal_and_lost() -> None:
    """A bug that ends the member's thread is reported like every other fatal error."""
    watched = Watched()
    watched.joins(P0)
    view = ended(watched.view, BrokerError(code=-150, name="_FATAL", message="a bug"), watched.now)
    changed = StateChanged(old=S.STABLE, new=S.FATAL, reason="a bug")
    assert short(watched.lifecycle.observed((changed,), view, watched.moment)) == ["fatal", "lost 0"]


# ---- heartbeats -----------------------------------------------------------------------------------------------------


def test_heartbeat_silence_and_resumption_are_reported_once() -> None:
    """A sample after three intervals without a response reports the silence once, and the next response ends it."""
    watched = Watched()
    watched.joins()
    watched.now = 114.9
    assert watched.sampled() == []
    watched.now = 115.0
    assert watched.sampled() == ["heartbeat_silence"]
    watched.now = 120.0
    assert watched.sampled() == []
    assert watched.goes(S.STABLE, coordinator=None) == []
    assert watched.goes(S.STABLE, coordinator=NODE, last_heartbeat_at=120.0) == ["heartbeats_resumed"]
    assert watched.sampled() == []


def test_heartbeat_silence_without_a_sample_is_reported_on_resumption() -> None:
    """A silence that no sample observed is reported together with its end.

    A stopped process, for example, sends no heartbeats and takes no samples.
    """
    watched = Watched()
    watched.joins()
    watched.now = 140.0
    assert watched.goes(S.STABLE, last_heartbeat_at=140.0) == ["heartbeat_silence", "heartbeats_resumed"]


def test_fence_after_heartbeat_silence_reports_resumed_before_fenced() -> None:
    """An error response ends the silence, because the coordinator responds again."""
    watched = Watched()
    watched.joins(P0)
    watched.now = 130.0
    assert watched.sampled() == ["heartbeat_silence"]
    fenced = watched.goes(S.FENCED, LosePartitions(attempt=2), member_epoch=0, owned={})
    assert fenced == ["heartbeats_resumed", "fenced", "lost 0"]


def test_leave_during_heartbeat_silence_reports_no_resumption() -> None:
    """A membership that ends during a silence reports no resumption, and the next silence is reported again."""
    watched = Watched()
    watched.joins()
    watched.now = 130.0
    assert watched.sampled() == ["heartbeat_silence"]
    assert watched.goes(S.STALE, member_epoch=0, last_heartbeat_at=None) == ["left"]
    watched.joins()
    watched.now = 160.0
    assert watched.sampled() == ["heartbeat_silence"]


# ---- stuck partitions -----------------------------------------------------------------------------------------------


def test_stuck_partition_and_its_recovery_are_reported_once() -> None:
    """Each partition is reported stuck and recovered once, although others advance.

    Partitions with the same cause share one event.
    """
    watched = Watched()
    watched.joins(P0, P1, P2)
    assert watched.sampled(p0=RECORDS, p1=STANDS, p2=STANDS) == ["stuck 1 2"]
    assert watched.sampled(p0=STANDS, p1=STANDS, p2=STANDS) == ["stuck 0"]
    moves = replace(RECORDS, position=6)
    assert watched.sampled(p0=STANDS, p1=moves, p2=STANDS) == ["recovered 1"]
    assert watched.sampled(p0=moves, p1=moves, p2=moves) == ["recovered 0 2"]
    assert watched.sampled(p0=moves, p1=moves, p2=moves) == []


def test_partition_without_known_end_recovers_once_its_end_is_known() -> None:
    """A partition whose end offset was unknown recovers once the offset is known, even if there is nothing to read."""
    watched = Watched()
    watched.joins(P0, P1)
    blank = PartitionHealth(position=5, end=None, lag=None, progressed_at=None)
    without_end = replace(blank, is_stuck=True, waits_for=PartitionWaitsFor.END_OFFSET)
    assert watched.sampled(p0=RECORDS, p1=without_end) == ["stuck 1"]
    assert watched.sampled(p0=RECORDS, p1=blank) == []
    assert watched.sampled(p0=RECORDS, p1=replace(blank, end=5, lag=0)) == ["recovered 1"]


def test_stuck_events_are_separate_for_each_cause() -> None:
    """Partitions that are stuck for different causes are reported in separate events, each with its cause."""
    watched = Watched()
    watched.joins(P0, P1)
    held = replace(STANDS, is_held_back=True, waits_for=PartitionWaitsFor.OPEN_TRANSACTION)
    partitions = {P0: STANDS, P1: held}
    progress = AssignmentProgress(at=1.0, partitions=partitions, stuck=(P0, P1))
    events = watched.lifecycle.sampled(watched.health(progress), progress, watched.moment)
    assert [(one.partitions, one.cause) for one in events] == [
        ((P0,), f"waits for {PartitionWaitsFor.RECORDS}"),
        ((P1,), "waits for open transaction"),
    ]


def test_stuck_partition_recovers_when_paused_but_not_when_unpolled() -> None:
    """A stuck partition recovers when it is paused; it does not recover because the application stops polling.

    A revoked partition is reported as revoked only.
    """
    watched = Watched()
    watched.joins(P0, P1, P2)
    assert watched.sampled(p0=STANDS, p1=STANDS, p2=STANDS) == ["stuck 0 1 2"]
    stands_unpolled = replace(STANDS, is_stuck=False, waits_for=None)
    paused = replace(STANDS, is_stuck=False, is_paused=True, waits_for=PartitionWaitsFor.RESUME)
    assert watched.sampled(p0=stands_unpolled, p1=paused) == ["recovered 1"]
    assert watched.sampled(p0=STANDS, p1=paused) == []
    assert watched.sampled(p0=replace(RECORDS, position=9)) == ["recovered 0"]


def test_rebalance_beyond_its_timeout_is_reported_stuck_and_recovered() -> None:
    """A rebalance that exceeds its timeout is reported stuck, without partitions, and recovered when it ends."""
    watched = Watched()
    watched.joins(P0)
    watched.goes(S.RECONCILE, waits_for=WaitsFor.ON_REVOKE, last_heartbeat_at=399.0)
    watched.now = 399.0
    assert watched.sampled() == []
    watched.now = 401.0
    assert watched.sampled() == ["stuck"]
    assert watched.sampled() == []
    watched.goes(S.STABLE, waits_for=None, last_heartbeat_at=402.0)
    assert watched.sampled(p0=RECORDS) == ["recovered"]


# ---- with a processor ------------------------------------------------------------------------------------------------


def running(partition: TopicPartition, offset: int) -> RunningHandler:
    """Return a handler that exceeded its timeout."""
    return RunningHandler(partition=partition, offset=offset, key=b"secret", attempt=1, began_at=1.0, deadline=50.0)


def test_stuck_handlers_and_their_end_are_reported_once_with_their_records() -> None:
    """Each stuck handler and its end are reported once; the cause has no key, because events go to other systems."""
    watched = Watched()
    watched.joins(P0, P1)
    watched.handlers = HandlerHealth(stuck=(running(P1, 7), running(P0, 42)))
    progress = AssignmentProgress(at=watched.now)
    (stuck,) = watched.lifecycle.sampled(watched.health(progress), progress, watched.moment)
    assert (stuck.kind, stuck.partitions, stuck.records) == (K.STUCK, (P0, P1), (("orders", 0, 42), ("orders", 1, 7)))
    assert "secret" not in stuck.cause
    assert watched.sampled() == []
    watched.handlers = HandlerHealth(stuck=(running(P0, 42), running(P0, 50)))
    assert watched.sampled() == ["recovered 1", "stuck 0"]
    watched.handlers = HandlerHealth()
    assert watched.sampled() == ["recovered 0"]


def test_stuck_handler_during_a_rebalance_is_no_stuck_rebalance() -> None:
    """During a rebalance, only a stuck handler is reported as stuck; the rebalance itself has a later timeout."""
    watched = Watched()
    watched.joins(P0)
    watched.goes(S.RECONCILE)
    watched.handlers = HandlerHealth(stuck=(running(P0, 42),))
    assert watched.sampled() == ["stuck 0"]
    watched.handlers = HandlerHealth()
    assert watched.sampled() == ["recovered 0"]


def test_dead_letters_between_two_samples_are_one_event() -> None:
    """Thousands of dead letters are one event with their number, the first hundred records, and their errors."""
    watched = Watched()
    watched.joins(P0)
    watched.handlers = HandlerHealth()
    for offset in range(2_000):
        error = "KeyError" if offset % 4 == 0 else "ValueError"
        fact = RecordDeadLettered(partition=P0, offset=offset, attempts=3, error=error)
        assert watched.lifecycle.handled(fact, watched.moment) == ()
    progress = AssignmentProgress(at=watched.now)
    (event,) = watched.lifecycle.sampled(watched.health(progress), progress, watched.moment)
    assert (event.kind, event.partitions, len(event.records)) == (K.DEAD_LETTERED, (P0,), 100)
    assert event.cause == "dead-lettered 2,000 records (ValueError: 1500, KeyError: 500)"
    assert watched.sampled() == []


def test_disowned_handlers_are_reported_at_once_with_their_records() -> None:
    """Disowned handlers are reported without a sample, because the next owner handles their records again."""
    watched = Watched()
    watched.joins(P0, P1)
    fact = HandlersDisowned(offsets={P1: (7, 9), P0: (42,)}, is_loss=True)
    (event,) = watched.lifecycle.handled(fact, watched.moment)
    assert (event.kind, event.partitions) == (K.DISOWNED, (P0, P1))
    assert event.records == (("orders", 0, 42), ("orders", 1, 7), ("orders", 1, 9))
    assert event.cause.startswith("the partitions were lost while the handlers ran")


def test_failure_of_the_processor_is_fatal_once_before_the_last_event() -> None:
    """A failure and the last dead letters are reported by the next sample, or by the close if it is earlier."""
    watched = Watched()
    watched.joins(P0)
    dead = RecordDeadLettered(partition=P0, offset=1, attempts=3, error="KeyError")
    watched.lifecycle.handled(dead, watched.moment)
    failed = HandlerHealth(failure="orders-0 offset 42 failed 5 times")
    events = watched.lifecycle.closed(watched.moment, failed)
    assert short(events) == ["dead_lettered 0", "fatal", "closed"]
    assert events[1].cause == "orders-0 offset 42 failed 5 times"
    watched = Watched()
    watched.joins(P0)
    watched.handlers = failed
    assert watched.sampled() == ["fatal"]
    assert short(watched.lifecycle.closed(watched.moment, failed)) == ["closed"]
    assert watched.lifecycle.handled(dead, watched.moment) == ()
