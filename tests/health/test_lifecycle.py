"""What is told of a consumer's life, by what its member, and looks at its partitions, show; in virtual time."""

from __future__ import annotations

from dataclasses import replace

from consumer_membership.health.lifecycle import Lifecycle, LifecycleEvent, LifecycleKind, Moment
from consumer_membership.health.progress import IS_PAUSED, NO_RECORD, UNTOLD, AssignmentProgress, PartitionHealth
from consumer_membership.health.verdict import Circumstances, Health, judged
from consumer_membership.membership.effects import InstanceReleased, LosePartitions, StateChanged
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.states import MemberState
from consumer_membership.membership.view import MembershipView, ended
from consumer_membership.types import BrokerAddress, BrokerError, Holder, TopicPartition
from tests.support.views import view_of

K, S = LifecycleKind, MemberState
P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
NODE = BrokerAddress(node_id=1, host="broker", port=9092)
FENCED = BrokerError(code=110, name="FENCED_MEMBER_EPOCH", message="the epoch is old")
RECORDS = PartitionHealth(position=5, end=7, lag=2, progressed_at=1.0)
STANDS = replace(RECORDS, end=90, lag=85, is_stuck=True, waits_for=NO_RECORD, since=1.0)


class Watched:
    """The life of a member whose views a test makes."""

    def __init__(self, view: MembershipView | None = None) -> None:
        self.view = view if view is not None else view_of(S.UNSUBSCRIBED, epoch=0)
        self.lifecycle = Lifecycle(self.view)
        self.now = 100.0

    def goes(self, state: MemberState, *effects: GroupEffect, reason: str = "a test", **changes: object) -> list[str]:
        """It takes an event in, and is like this afterwards; what is told, in short."""
        changed = StateChanged(old=self.view.state, new=state, reason=reason)
        told = (changed, *effects) if state is not self.view.state else effects
        self.view = replace(self.view, state=state, **changes)  # type: ignore[arg-type]  # of the view
        return short(self.lifecycle.observed(told, self.view, self.moment))

    def joins(self, *partitions: TopicPartition) -> None:
        """It is in its group and has these."""
        self.goes(S.JOINING)
        self.goes(
            S.STABLE,
            member_epoch=3,
            owned=dict.fromkeys(partitions, 3),
            coordinator=NODE,
            heartbeat_interval_s=5.0,
            last_heartbeat_at=self.now,
        )

    def looks(self, **partitions: PartitionHealth) -> list[str]:
        """Somebody looks at its partitions, `p0` and so on."""
        found = {TopicPartition("orders", int(name[1:])): one for name, one in partitions.items()}
        stuck = tuple(partition for partition, one in found.items() if one.is_stuck)
        progress = AssignmentProgress(at=self.now, partitions=found, stuck=stuck)
        return short(self.lifecycle.looked(self.health(progress), progress, self.moment))

    def health(self, progress: AssignmentProgress) -> Health:
        """Of a consumer that was polled before all of this."""
        circumstances = Circumstances(
            view=self.view,
            progress=progress,
            subscribed_at=90.0,
            is_closed=False,
            polled_at=100.0,
            max_poll_interval_s=300.0,
        )
        return judged(self.now, circumstances)

    @property
    def moment(self) -> Moment:
        """Now, on both clocks."""
        return Moment(at=self.now, timestamp=self.now + 1e9)


def short(events: tuple[LifecycleEvent, ...]) -> list[str]:
    """Kinds with partition numbers: `assigned 0 1`."""
    return [" ".join([one.kind.value, *(str(p.partition) for p in one.partitions)]) for one in events]


def test_member_joins_takes_gives_up_and_leaves() -> None:
    """In the order in which it happens; epochs and ids are those of the member."""
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


def test_event_says_of_whom_and_when() -> None:
    """Ids and epoch are those that the member had, also once it has them no more."""
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


def test_fence_comes_before_the_loss_and_the_next_join() -> None:
    """Where on_lost has nothing to do the member joins in the same breath."""
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


def test_place_that_a_newer_member_took_is_a_fence_and_the_end() -> None:
    """FENCED_INSTANCE_ID; any other final error is the end alone."""
    for code, kinds in ((82, ["fenced", "fatal", "lost 0"]), (29, ["fatal", "lost 0"])):
        watched = Watched()
        watched.joins(P0)
        error = BrokerError(code=code, name="E")
        assert watched.goes(S.FATAL, LosePartitions(attempt=2), member_epoch=0, owned={}, last_error=error) == kinds, (
            code
        )


def test_takeover_is_told_by_who_takes_over() -> None:
    """With the former holder, before it joins."""
    watched = Watched()
    watched.goes(S.JOINING)
    released = InstanceReleased(instance_id="i", holder=Holder(member_id="old", client_id="app", host="/10.0.0.1"))
    (event,) = watched.lifecycle.observed((released,), watched.view, watched.moment)
    assert (event.kind, event.cause) == (
        K.TAKEOVER,
        "released member old (client app on /10.0.0.1), which held group.instance.id 'i'",
    )


def test_member_that_is_not_polled_leaves_and_loses() -> None:
    """And a leave of one that is out already is none."""
    watched = Watched()
    watched.joins(P0)
    assert watched.goes(S.STALE, LosePartitions(attempt=2), member_epoch=0, owned={}) == ["left", "lost 0"]
    assert watched.goes(S.UNSUBSCRIBED) == []


def test_what_was_on_its_way_at_a_leave_is_never_told() -> None:
    """It counts as owned until the leave is said, though the application has not had it."""
    watched = Watched()
    watched.joins(P0)
    assert watched.goes(S.UNSUBSCRIBING, owned={P0: 3, P1: 4}) == []
    assert watched.goes(S.UNSUBSCRIBING, owned={}) == ["revoked 0"]


def test_what_is_held_at_the_beginning_is_not_told_but_its_end_is() -> None:
    """A callback that is registered late hears from there on."""
    watched = Watched(replace(view_of(S.STABLE, epoch=7), owned={P0: 7}))
    assert watched.goes(S.STABLE, last_heartbeat_at=99.0) == []
    assert watched.goes(S.ACK, owned={}) == ["revoked 0"]


def test_end_of_the_members_thread_is_told() -> None:
    """A bug of ours is an end for good as any other."""
    watched = Watched()
    watched.joins(P0)
    view = ended(watched.view, BrokerError(code=-150, name="_FATAL", message="a bug"), watched.now)
    changed = StateChanged(old=S.STABLE, new=S.FATAL, reason="a bug")
    assert short(watched.lifecycle.observed((changed,), view, watched.moment)) == ["fatal", "lost 0"]


# ---- heartbeats -----------------------------------------------------------------------------------------------------


def test_silence_and_its_end_are_told_once() -> None:
    """Three intervals without an answer; whoever looks tells it, and the answer ends it."""
    watched = Watched()
    watched.joins()
    watched.now = 114.9
    assert watched.looks() == []
    watched.now = 115.0
    assert watched.looks() == ["heartbeat_silence"]
    watched.now = 120.0
    assert watched.looks() == []
    assert watched.goes(S.STABLE, coordinator=None) == []
    assert watched.goes(S.STABLE, coordinator=NODE, last_heartbeat_at=120.0) == ["heartbeats_resumed"]
    assert watched.looks() == []


def test_silence_that_nobody_saw_is_told_with_its_end() -> None:
    """This process was stopped: its heartbeats stopped all the same."""
    watched = Watched()
    watched.joins()
    watched.now = 140.0
    assert watched.goes(S.STABLE, last_heartbeat_at=140.0) == ["heartbeat_silence", "heartbeats_resumed"]


def test_refusal_is_an_answer_too() -> None:
    """The coordinator is heard again, and says that the member is out."""
    watched = Watched()
    watched.joins(P0)
    watched.now = 130.0
    assert watched.looks() == ["heartbeat_silence"]
    fenced = watched.goes(S.FENCED, LosePartitions(attempt=2), member_epoch=0, owned={})
    assert fenced == ["heartbeats_resumed", "fenced", "lost 0"]


def test_membership_that_ends_in_its_silence_ends_it() -> None:
    """Nobody answered: nothing has resumed; the next silence is a new one."""
    watched = Watched()
    watched.joins()
    watched.now = 130.0
    assert watched.looks() == ["heartbeat_silence"]
    assert watched.goes(S.STALE, member_epoch=0, last_heartbeat_at=None) == ["left"]
    watched.joins()
    watched.now = 160.0
    assert watched.looks() == ["heartbeat_silence"]


# ---- partitions that stand ------------------------------------------------------------------------------------------


def test_partition_is_stuck_and_recovers_once() -> None:
    """By itself, although others move; those of one cause are one event."""
    watched = Watched()
    watched.joins(P0, P1, P2)
    assert watched.looks(p0=RECORDS, p1=STANDS, p2=STANDS) == ["stuck 1 2"]
    assert watched.looks(p0=STANDS, p1=STANDS, p2=STANDS) == ["stuck 0"]
    moves = replace(RECORDS, position=6)
    assert watched.looks(p0=STANDS, p1=moves, p2=STANDS) == ["recovered 1"]
    assert watched.looks(p0=moves, p1=moves, p2=moves) == ["recovered 0 2"]
    assert watched.looks(p0=moves, p1=moves, p2=moves) == []


def test_partition_whose_leader_is_back_has_recovered() -> None:
    """Nobody had said where it ends; now it is known that there is nothing to read."""
    watched = Watched()
    watched.joins(P0, P1)
    blank = PartitionHealth(position=5, end=None, lag=None, progressed_at=None)
    untold = replace(blank, is_stuck=True, waits_for=UNTOLD)
    assert watched.looks(p0=RECORDS, p1=untold) == ["stuck 1"]
    assert watched.looks(p0=RECORDS, p1=blank) == []
    assert watched.looks(p0=RECORDS, p1=replace(blank, end=5, lag=0)) == ["recovered 1"]


def test_causes_of_what_stands_are_told() -> None:
    """As health has them: an open transaction, or no record although there are some."""
    watched = Watched()
    watched.joins(P0, P1)
    held = replace(STANDS, is_held_back=True, waits_for="a transaction that is open since offset 5")
    partitions = {P0: STANDS, P1: held}
    progress = AssignmentProgress(at=1.0, partitions=partitions, stuck=(P0, P1))
    events = watched.lifecycle.looked(watched.health(progress), progress, watched.moment)
    assert [(one.partitions, one.cause) for one in events] == [
        ((P0,), f"waits for {NO_RECORD}"),
        ((P1,), "waits for a transaction that is open since offset 5"),
    ]


def test_what_is_not_polled_has_not_recovered_and_what_is_paused_has() -> None:
    """Nobody waits for the records of a paused one; what is given up is told as that."""
    watched = Watched()
    watched.joins(P0, P1, P2)
    assert watched.looks(p0=STANDS, p1=STANDS, p2=STANDS) == ["stuck 0 1 2"]
    stands_unpolled = replace(STANDS, is_stuck=False, waits_for=None)
    paused = replace(STANDS, is_stuck=False, is_paused=True, waits_for=IS_PAUSED)
    assert watched.looks(p0=stands_unpolled, p1=paused) == ["recovered 1"]
    assert watched.looks(p0=STANDS, p1=paused) == []
    assert watched.looks(p0=replace(RECORDS, position=9)) == ["recovered 0"]


def test_rebalance_beyond_its_time_is_stuck_and_recovers() -> None:
    """Without partitions, and with what is waited for."""
    watched = Watched()
    watched.joins(P0)
    watched.goes(S.RECONCILE, waits_for="on_revoke of the application", last_heartbeat_at=399.0)
    watched.now = 399.0
    assert watched.looks() == []
    watched.now = 401.0
    assert watched.looks() == ["stuck"]
    assert watched.looks() == []
    watched.goes(S.STABLE, waits_for=None, last_heartbeat_at=402.0)
    assert watched.looks(p0=RECORDS) == ["recovered"]
