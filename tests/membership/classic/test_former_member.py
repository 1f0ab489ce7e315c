"""A static member returns to a full classic group in which its former process still has a member (KIP-345, KIP-389)."""

from __future__ import annotations

import pytest

from consumer_membership.membership import effects as ef
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.former_member import REMOVAL_REASON
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.membership.protocol import GRACE_S
from consumer_membership.membership.waits import WaitsFor
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
    """The coordinator refuses the JoinGroup, because the group is full."""
    return scene.join_rejected(V.FATAL, FULL)


def crowded(**settings: object) -> ClassicScene:
    """Return a static member whose first join was refused, because its group is full."""
    return full(joining(instance_id="i", classic=SESSION, **settings))


def answered(scene: ClassicScene, error: BrokerError | None = None, verdict: V = V.FATAL) -> ClassicScene:
    """The coordinator answers the removal of the former member."""
    request_id = scene.all(ex.SendClassicLeave)[-1].request_id
    return scene.feed(ex.ClassicLeft(request_id=request_id, error=error, verdict=verdict))


def fatal_errors(scene: ClassicScene) -> list[str]:
    """Return the names of the fatal errors."""
    return [one.error.name for one in scene.all(ef.RaiseToApplication) if one.problem is ef.Problem.FATAL]


def test_static_member_removes_its_former_member_and_joins() -> None:
    """The member removes the holder of its instance id and sends nothing else before the response.

    The view shows the wait.
    """
    scene = crowded()
    (leave,) = scene.new(ex.SendClassicLeave)
    assert (leave.member_id, leave.instance_id, leave.reason) == ("", "i", REMOVAL_REASON)
    assert (scene.state, scene.new(ex.SendJoin), scene.after(3.0).kinds) == (S.JOINING, [], [])
    assert "waiting for its removal" in scene.member.view().waits_for_detail
    answered(scene)
    assert [(join.member_id, join.instance_id) for join in scene.new(ex.SendJoin)] == [("", "i")]
    assert len(scene.new(ef.Warned)) == 1
    assert scene.gather(2).share(A0).settle().state is S.STABLE


def test_full_group_without_the_instance_id_is_fatal() -> None:
    """UNKNOWN_MEMBER_ID means that no member has the instance id; the fatal error is that of the refused join."""
    scene = answered(crowded(), UNKNOWN, V.REJOIN)
    assert (scene.state, fatal_errors(scene), scene.new(ex.SendJoin)) == (S.FATAL, ["GROUP_MAX_SIZE_REACHED"], [])


def test_removal_that_another_member_used_first_is_fatal() -> None:
    """A member removes its former member only once for each join."""
    scene = full(answered(crowded()))
    assert (scene.state, fatal_errors(scene)) == (S.FATAL, ["GROUP_MAX_SIZE_REACHED"])


@pytest.mark.parametrize("verdict", [V.RETRY, V.REDISCOVER])
def test_removal_is_retried_after_a_coordinator_error(verdict: V) -> None:
    """If the coordinator is loading or has moved, the member joins again after a pause, as the group may admit it."""
    scene = answered(crowded(), LOADING, verdict)
    assert scene.kinds == ([] if verdict is V.RETRY else ["FindCoordinator"])
    scene.found().after(1.0)
    assert len(scene.new(ex.SendJoin)) == 1
    assert [one.instance_id for one in full(scene).new(ex.SendClassicLeave)] == ["i"]


def test_removal_without_an_answer_is_followed_by_a_join() -> None:
    """The former member may have been removed, so the member joins again."""
    scene = crowded()
    leave = scene.all(ex.SendClassicLeave)[-1]
    scene.feed(ex.ExchangeFailed(request_id=leave.request_id, reason="disconnected")).found().after(1.0)
    assert len(scene.new(ex.SendJoin)) == 1
    assert answered(full(scene), UNKNOWN, V.REJOIN).state is S.FATAL


def test_refused_removal_waits_for_the_session_of_the_former_member() -> None:
    """The member repeats the join for a session timeout and a grace period at most, and the view shows the end."""
    scene = answered(crowded(), DENIED)
    since = scene.now
    view = scene.member.view()
    assert (view.waits_since, view.waits_until) == (since, since + 10.0 + GRACE_S)
    assert (view.waits_for, view.waits_for_detail) == (
        WaitsFor.INSTANCE_ID,
        "the group is full, and the coordinator still counts the former member of 'i'; waiting until its session ends",
    )
    assert "GROUP_AUTHORIZATION_FAILED" in scene.new(ef.Warned)[0].message
    joins = 0
    while scene.state is S.JOINING:
        scene.after(1.5)
        joins += len(scene.new(ex.SendJoin))
        assert full(scene).new(ex.SendClassicLeave) == []
    assert (scene.now - since, fatal_errors(scene)) == (15.0, ["GROUP_MAX_SIZE_REACHED"])
    assert joins == 10


def test_waiting_member_joins_when_the_session_is_over() -> None:
    """The wait ends when the join succeeds."""
    scene = answered(crowded(), DENIED).after(1.0).gather(3).share(A0).settle()
    assert (scene.state, scene.member.view().waits_until) == (S.STABLE, None)


def test_dynamic_member_is_refused_by_a_full_group() -> None:
    """A full group is fatal for a dynamic member."""
    assert full(joining()).state is S.FATAL


@pytest.mark.parametrize("fenced", [True, False])
def test_former_member_removes_no_other_member(fenced: bool) -> None:  # noqa: FBT001
    """After a fence or a missed poll the present holder of the id may be newer."""
    scene = stable(A0, instance_id="i", max_poll_interval_s=5.0)
    if fenced:
        scene.heartbeat_rejected(V.REJOIN, UNKNOWN).finish()
    else:
        scene.after(5.0).finish().after(0.1)
    assert (scene.state, full(scene).state, scene.all(ex.SendClassicLeave)) == (S.JOINING, S.FATAL, [])


def test_join_without_an_answer_may_have_created_the_former_member() -> None:
    """If the response to a join was lost, the former member is this member's own."""
    scene = stable(A0, instance_id="i").heartbeat_rejected(V.REJOIN, UNKNOWN).finish()
    scene.feed(ex.ExchangeFailed(request_id=scene.join.request_id, reason="disconnected")).found().after(1.0)
    assert len(full(scene).new(ex.SendClassicLeave)) == 1


def test_unsubscribe_during_the_removal_ends_it() -> None:
    """The late response to the removal changes nothing."""
    scene = crowded().leave()
    assert (scene.state, answered(scene).kinds) == (S.UNSUBSCRIBED, [])


# ---- a coordinator that knows only the former member -----------------------------------------------------------------


def fenced(scene: ClassicScene, how: str) -> ClassicScene:
    """The coordinator reports that another member has this instance id, in response to the named request."""
    match how:
        case "sync":
            return scene.sync_rejected(V.FATAL, FENCED)
        case "heartbeat":
            return scene.heartbeat_rejected(V.FATAL, FENCED)
        case _:
            return scene.sync_rejected(V.REDISCOVER, MOVED).found().after(1.0).join_rejected(V.FATAL, FENCED)


@pytest.mark.parametrize("how", ["sync", "heartbeat", "join"])
def test_newest_member_that_was_never_persisted_joins_once_more(how: str) -> None:
    """The coordinator that replaced the former member failed before it wrote the generation."""
    scene = fenced(joining(instance_id="i").gather(1), how).after(1.0)
    assert (scene.state, scene.join.member_id, scene.join.instance_id) == (S.JOINING, "", "i")
    assert scene.gather(2).share(A0).settle().state is S.STABLE


@pytest.mark.parametrize("how", ["sync", "heartbeat", "join"])
def test_second_fence_is_fatal(how: str) -> None:
    """Another live process has the id, and one of the two has to end."""
    scene = fenced(joining(instance_id="i").gather(1), "sync").after(1.0)
    assert (fenced(scene.gather(2), how).state, fatal_errors(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])


def test_member_that_was_persisted_is_fenced() -> None:
    """KIP-345: The newest member has the id, also in a later generation that is not yet written."""
    scene = stable(A0, instance_id="i").rebalance().gather(2)
    assert (fenced(scene, "sync").state, fatal_errors(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])


def test_member_that_subscribes_again_was_persisted() -> None:
    """A later subscription joins with the member id that every coordinator knows."""
    scene = stable(A0, instance_id="i").leave().settle().subscribe("a").poll().gather(2)
    assert (fenced(scene, "sync").state, fatal_errors(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])


def test_former_member_does_not_rejoin_after_a_second_fence() -> None:
    """After a fence or a missed poll this member may be the older one."""
    scene = stable(A0, instance_id="i").heartbeat_rejected(V.REJOIN, UNKNOWN).finish().after(1.0).gather(2)
    assert (fenced(scene, "sync").state, fatal_errors(scene)) == (S.FATAL, ["FENCED_INSTANCE_ID"])
