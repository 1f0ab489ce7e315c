"""A static member with leases takes no partition until its epoch is larger than the epochs of all former holders."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import pytest

from consumer_membership.membership.consumer.epoch_increase import EPOCH_TRANSITIONS, EpochState
from consumer_membership.membership.effects import AssignPartitions, FetchCommitted, Warned
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.states import MemberState, StateMachine, followers
from consumer_membership.membership.waits import WaitsFor
from tests.membership.builders import A0, FENCED_EPOCH, GROUP_FULL, LOADING, UNKNOWN_MEMBER, Scene, joining, stable

S, E = MemberState, EpochState


def admitted() -> Scene:
    """A static member with leases whose join was accepted at epoch 7; the temporary member's join is in flight."""
    return joining(instance_id="i", has_leases=True).answer(7, {A0}).resolve(A0.topic_id)


def temporary_leaving() -> Scene:
    """The leave of the temporary member is in flight."""
    return admitted().answer(8, ())


def waiting() -> Scene:
    """The temporary member has left; the member's own heartbeat is in flight."""
    return temporary_leaving().answer(-1)


def grown() -> Scene:
    """A member whose epoch has increased to 9."""
    return waiting().answer(9, {A0})


def refused() -> Scene:
    """A member whose temporary member was refused, because the group is full."""
    return admitted().reject(Verdict.FATAL, GROUP_FULL)


def sent(scene: Scene) -> list[tuple[str, str | None, int]]:
    """Return member id, instance id and epoch of the last event's heartbeats."""
    return [(heartbeat.member_id, heartbeat.instance_id, heartbeat.member_epoch) for heartbeat in scene.new_heartbeats]


def test_temporary_member_joins_and_leaves_before_the_member_takes_partitions() -> None:
    """The temporary member has no instance id and no topics; the member's own full heartbeat follows immediately."""
    scene = admitted()
    (join,) = scene.heartbeats[-1:]
    assert (join.member_id, join.instance_id, join.member_epoch) == ("member-2", None, 0)
    assert (join.topics, join.owned, join.rebalance_timeout_s) == ((), frozenset(), 300.0)
    assert (scene.state, scene.view.waits_for) == (S.RECONCILE, WaitsFor.LARGER_EPOCH)
    assert sent(scene.answer(8, ())) == [("member-2", None, -1)]
    assert sent(scene.answer(-1)) == [("member-1", "i", 7)]
    assert scene.heartbeats[-1].is_full
    assert scene.all(FetchCommitted) == []
    assert sent(scene.answer(9, {A0})) == []
    assert scene.offsets().all(AssignPartitions)[-1].member_epoch == 9
    assert scene.settle().view.owned == {("orders", 0): 9}
    assert scene.view.has_tokens


def test_member_heartbeats_until_its_epoch_has_grown() -> None:
    """The assignor may run later (group.consumer.assignment.interval.ms); heartbeats follow after retry backoffs."""
    scene = waiting()
    for _ in range(3):
        before = scene.now
        scene.answer(7, {A0})
        assert scene.all(FetchCommitted) == []
        scene.next_heartbeat()
        assert 0.05 <= scene.now - before <= 0.15
    assert scene.answer(8, {A0}).all(FetchCommitted) != []


@pytest.mark.parametrize(
    "keys",
    [{"instance_id": "i"}, {"has_leases": True}, {}],
    ids=["static without leases", "dynamic with leases", "dynamic without leases"],
)
def test_other_members_take_partitions_at_once(keys: dict[str, object]) -> None:
    """These members need no fencing token, or their epoch is already the newest of the group."""
    scene = joining(**keys).answer(7, {A0}).resolve(A0.topic_id)
    assert scene.all(FetchCommitted) != []
    assert [heartbeat.member_epoch for heartbeat in scene.heartbeats] == [0]


def test_member_whose_temporary_member_is_refused_has_partitions_but_no_token() -> None:
    """The member consumes without a fencing token, and one warning has the reason."""
    scene = refused()
    assert "could not be increased (GROUP_MAX_SIZE_REACHED" in scene.all(Warned)[-1].message
    scene.settle()
    assert (scene.state, scene.view.owned, scene.view.has_tokens) == (S.STABLE, {("orders", 0): 7}, False)
    scene.fence().settle(answers=False)
    assert scene.view.has_tokens


def test_lost_responses_of_the_temporary_member_are_repeated() -> None:
    """Brokers 4.0 and 4.1 answer the repeated join with FENCED_MEMBER_EPOCH, because the first had arrived."""
    scene = admitted().drop().found()
    assert scene.next_heartbeat().member_id == "member-2"
    scene.reject(Verdict.RETRY, LOADING)
    assert scene.next_heartbeat().member_epoch == 0
    assert sent(scene.reject(Verdict.REJOIN, FENCED_EPOCH)) == [("member-2", None, -1)]
    scene.drop().found()
    assert scene.next_heartbeat().member_id == "member-2"
    assert sent(scene.reject(Verdict.REJOIN, UNKNOWN_MEMBER)) == [("member-1", "i", 7)]


def test_leave_of_a_member_includes_its_temporary_member() -> None:
    """The temporary member also leaves. The response to its join, which arrives later, changes nothing."""
    scene = admitted()
    in_flight = scene.request_id
    scene.leave()
    assert sent(scene)[0] == ("member-2", None, -1)
    epoch = scene.protocol.member_epoch
    scene.answer(8, (), request_id=in_flight)
    assert scene.protocol.member_epoch == epoch
    assert scene.settle().state is S.UNSUBSCRIBED


def test_join_that_is_answered_during_a_leave_has_no_temporary_member() -> None:
    """The member takes no partition any more, so it needs no larger epoch."""
    scene = joining(instance_id="i", has_leases=True).leave()
    scene.answer(7, {A0}).settle()
    assert scene.state is S.UNSUBSCRIBED
    assert {heartbeat.member_id for heartbeat in scene.heartbeats} == {"member-1"}


def test_fenced_member_increases_the_epoch_again() -> None:
    """After a fence the group may have put the member into another place."""
    scene = stable(A0, instance_id="i", has_leases=True)
    assert scene.view.owned == {}
    scene = grown().settle().fence().settle(answers=False)
    scene.next_heartbeat()
    assert scene.answer(12, {A0}).view.owned == {}
    assert sent(scene)[0][1:] == (None, 0)


EDGES: dict[tuple[EpochState, EpochState], Callable[[], Scene]] = {
    (E.IDLE, E.JOINING): admitted,
    (E.JOINING, E.LEAVING): temporary_leaving,
    (E.JOINING, E.REFUSED): refused,
    (E.LEAVING, E.WAITING): waiting,
    (E.WAITING, E.IDLE): grown,
    (E.JOINING, E.IDLE): lambda: admitted().leave(),
    (E.LEAVING, E.IDLE): lambda: temporary_leaving().leave(),
    (E.REFUSED, E.IDLE): lambda: refused().settle().fence(),
}


def test_scenes_cover_every_edge_of_the_table() -> None:
    """Every edge of the table has a scene."""
    assert set(EDGES) == {(old, new) for old, after in followers(EPOCH_TRANSITIONS).items() for new in after}


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: f"{edge[0]}-{edge[1]}")
def test_member_takes_the_edge(edge: tuple[EpochState, EpochState], monkeypatch: pytest.MonkeyPatch) -> None:
    """A real member takes each edge of the table."""
    taken: list[tuple[object, object]] = []
    fire = StateMachine.fire

    def recorded(machine: StateMachine[Enum], trigger: Enum) -> Enum:
        old = fire(machine, trigger)
        taken.append((old, machine.state))
        return old

    monkeypatch.setattr(StateMachine, "fire", recorded)
    EDGES[edge]()
    assert edge in taken
