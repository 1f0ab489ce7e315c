"""A static member that comes back to a full classic group, in which its own ghost has its place (KIP-345, KIP-389)."""

from __future__ import annotations

import pytest

from consumer_membership.membership import effects as ef
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.place import MAKES_ROOM
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.protocol import GRACE_S
from consumer_membership.types import BrokerError
from tests.membership.classic.scene import A0, UNKNOWN, ClassicScene, joining, stable

S = ClassicState
V = ex.ClassicVerdict
FULL = BrokerError(code=81, name="GROUP_MAX_SIZE_REACHED", message="full")
DENIED = BrokerError(code=30, name="GROUP_AUTHORIZATION_FAILED")
FENCED = BrokerError(code=82, name="FENCED_INSTANCE_ID")
MOVED = BrokerError(code=16, name="NOT_COORDINATOR")
LOADING = BrokerError(code=14, name="COORDINATOR_LOAD_IN_PROGRESS")
SESSION = {"session_timeout_s": 10.0}


def full(scene: ClassicScene) -> ClassicScene:
    """The JoinGroup is refused: the group is full."""
    return scene.join_rejected(V.FATAL, FULL)


def crowded(**settings: object) -> ClassicScene:
    """A static member's first join was refused so."""
    return full(joining(instance_id="i", classic=SESSION, **settings))


def answered(scene: ClassicScene, error: BrokerError | None = None, verdict: V = V.FATAL) -> ClassicScene:
    """The removal is answered."""
    request_id = scene.all(ex.SendClassicLeave)[-1].request_id
    return scene.feed(ex.ClassicLeft(request_id=request_id, error=error, verdict=verdict))


def told(scene: ClassicScene) -> list[str]:
    """Names of the fatal errors."""
    return [one.error.name for one in scene.all(ef.RaiseToApplication) if one.problem is ef.Problem.FATAL]


def test_static_member_has_its_ghost_removed_and_joins() -> None:
    """Whoever has the instance id is meant; nothing else goes out before the answer; the view says what is awaited."""
    scene = crowded()
    (leave,) = scene.new(ex.SendClassicLeave)
    assert (leave.member_id, leave.instance_id, leave.reason) == ("", "i", MAKES_ROOM)
    assert (scene.state, scene.new(ex.SendJoin), scene.after(3.0).kinds) == (S.JOINING, [], [])
    assert "to be given up" in (scene.member.view().waits_for or "")
    answered(scene)
    assert [(join.member_id, join.instance_id) for join in scene.new(ex.SendJoin)] == [("", "i")]
    assert len(scene.new(ef.Warned)) == 1
    assert scene.gather(2).share(A0).settle().state is S.STABLE


def test_group_that_is_full_of_others_is_the_end() -> None:
    """UNKNOWN_MEMBER_ID: nobody has this instance id; what is told is why the join was refused."""
    scene = answered(crowded(), UNKNOWN, V.REJOIN)
    assert (scene.state, told(scene), scene.new(ex.SendJoin)) == (S.FATAL, ["GROUP_MAX_SIZE_REACHED"], [])


def test_stranger_that_was_quicker_is_the_end() -> None:
    """Room is made once in a join."""
    scene = full(answered(crowded()))
    assert (scene.state, told(scene)) == (S.FATAL, ["GROUP_MAX_SIZE_REACHED"])


@pytest.mark.parametrize("verdict", [V.RETRY, V.REDISCOVER])
def test_coordinator_that_cannot_now_is_asked_again(verdict: V) -> None:
    """Loading, or elsewhere: a join first, after a pause, since there may be room by then."""
    scene = answered(crowded(), LOADING, verdict)
    assert scene.kinds == ([] if verdict is V.RETRY else ["FindCoordinator"])
    scene.found().after(1.0)
    assert len(scene.new(ex.SendJoin)) == 1
    assert [one.instance_id for one in full(scene).new(ex.SendClassicLeave)] == ["i"]


def test_lost_answer_is_asked_for_again() -> None:
    """The ghost may be gone; a join tells."""
    scene = crowded()
    leave = scene.all(ex.SendClassicLeave)[-1]
    scene.feed(ex.ExchangeFailed(request_id=leave.request_id, reason="disconnected")).found().after(1.0)
    assert len(scene.new(ex.SendJoin)) == 1
    assert answered(full(scene), UNKNOWN, V.REJOIN).state is S.FATAL


def test_refused_removal_makes_the_member_wait_for_the_ghost_s_session() -> None:
    """Again and again, a session and some grace at most, and the view says until when."""
    scene = answered(crowded(), DENIED)
    since = scene.now
    view = scene.member.view()
    assert (view.waits_since, view.waits_until) == (since, since + 10.0 + GRACE_S)
    assert "former session of group.instance.id 'i'" in (view.waits_for or "")
    assert "GROUP_AUTHORIZATION_FAILED" in scene.new(ef.Warned)[0].words
    joins = 0
    while scene.state is S.JOINING:
        scene.after(1.5)
        joins += len(scene.new(ex.SendJoin))
        assert full(scene).new(ex.SendClassicLeave) == []
    assert (scene.now - since, told(scene)) == (15.0, ["GROUP_MAX_SIZE_REACHED"])
    assert joins == 10


def test_member_that_waited_is_let_in_when_the_session_is_over() -> None:
    """Nothing is waited for any more."""
    scene = answered(crowded(), DENIED).after(1.0).gather(3).share(A0).settle()
    assert (scene.state, scene.member.view().waits_until) == (S.STABLE, None)


def test_dynamic_member_has_no_place() -> None:
    """A full group is the end, as before."""
    assert full(joining()).state is S.FATAL


@pytest.mark.parametrize("fenced", [True, False])
def test_former_member_removes_nobody(fenced: bool) -> None:  # noqa: FBT001
    """After a fence or a missed poll it may be the older of two: whoever has its id may be the newer."""
    scene = stable(A0, instance_id="i", max_poll_interval_s=5.0)
    if fenced:
        scene.beat_rejected(V.REJOIN, UNKNOWN).finish()
    else:
        scene.after(5.0).finish().after(0.1)
    assert (scene.state, full(scene).state, scene.all(ex.SendClassicLeave)) == (S.JOINING, S.FATAL, [])


def test_join_that_was_not_answered_may_have_made_a_ghost() -> None:
    """The coordinator acted, and its answer was lost: the ghost is this very member's."""
    scene = stable(A0, instance_id="i").beat_rejected(V.REJOIN, UNKNOWN).finish()
    scene.feed(ex.ExchangeFailed(request_id=scene.join.request_id, reason="disconnected")).found().after(1.0)
    assert len(full(scene).new(ex.SendClassicLeave)) == 1


def test_subscription_that_is_given_up_meanwhile_ends_it() -> None:
    """The late answer changes nothing."""
    scene = crowded().leave()
    assert (scene.state, answered(scene).kinds) == (S.UNSUBSCRIBED, [])


# ---- a coordinator that knows the ghost alone -----------------------------------------------------------------------


def fenced(scene: ClassicScene, how: str) -> ClassicScene:
    """The coordinator says that another member has this instance id, to the request that is named."""
    match how:
        case "sync":
            return scene.sync_rejected(V.FATAL, FENCED)
        case "heartbeat":
            return scene.beat_rejected(V.FATAL, FENCED)
        case _:
            return scene.sync_rejected(V.REDISCOVER, MOVED).found().after(1.0).join_rejected(V.FATAL, FENCED)


@pytest.mark.parametrize("how", ["sync", "heartbeat", "join"])
def test_newest_that_was_never_written_down_joins_once_more(how: str) -> None:
    """Its replacement of the ghost went with the coordinator that took it in, before the generation was written."""
    scene = fenced(joining(instance_id="i").gather(1), how).after(1.0)
    assert (scene.state, scene.join.member_id, scene.join.instance_id) == (S.JOINING, "", "i")
    assert scene.gather(2).share(A0).settle().state is S.STABLE


@pytest.mark.parametrize("how", ["sync", "heartbeat", "join"])
def test_second_fence_is_the_end(how: str) -> None:
    """Another process lives that has the id: of two that would come back for ever one has to end."""
    scene = fenced(joining(instance_id="i").gather(1), "sync").after(1.0)
    assert (fenced(scene.gather(2), how).state, told(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])


def test_member_that_was_written_down_ends() -> None:
    """KIP-345: the newest has the id; also in a later generation, before that one is written down."""
    scene = stable(A0, instance_id="i").rebalance().gather(2)
    assert (fenced(scene, "sync").state, told(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])


def test_id_that_came_back_was_written_down() -> None:
    """A subscription that follows another one joins with the member id that every coordinator knows."""
    scene = stable(A0, instance_id="i").leave().settle().subscribe("a").poll().gather(2)
    assert (fenced(scene, "sync").state, told(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])


def test_former_member_does_not_come_back() -> None:
    """After a fence or a missed poll it may be the older of two."""
    scene = stable(A0, instance_id="i").beat_rejected(V.REJOIN, UNKNOWN).finish().after(1.0).gather(2)
    assert (fenced(scene, "sync").state, told(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])
