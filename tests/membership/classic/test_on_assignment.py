"""The leader's user data for each member, and the assignor's on_assignment() callback."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pytest

from consumer_membership.assignors.assignor import (
    Assigned,
    AssignmentObserver,
    Assignor,
    MemberSubscription,
    Topics,
)
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.errors import AssignmentError
from consumer_membership.membership import effects as ef
from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.classic.states import ClassicState
from consumer_membership.types import BrokerError, TopicPartition
from tests.assignors.groups import member, partitions
from tests.membership.classic.scene import A0, A1, ClassicScene, Plan, joining

S = ClassicState
BROKEN = BrokerError(code=-150, name="_FATAL", message="on_assignment() of the assignor 'plan' failed")


@dataclass(frozen=True)
class Told(Plan):
    """An assignor with on_assignment(); the test completes the call itself."""

    def on_assignment(self, assignment: Assigned, generation: int) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Giving(Plan):
    """An assignor whose assign() returns this result."""

    result: Mapping[str, object] | None = None

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Collection[TopicPartition] | Assigned]:
        del topics, subscriptions
        return self.result  # type: ignore[return-value]  # the test chooses the value


def synced(*assignors: Plan, user_data: bytes | None = b"yours") -> ClassicScene:
    """A follower that received A0 in its SyncGroup response."""
    scene = joining(*(assignors or (Told(),))).gather(4)
    request_id = scene.sync.request_id
    return scene.feed(ex.SyncAnswered(request_id=request_id, assignment=frozenset({A0}), user_data=user_data))


def notified(scene: ClassicScene) -> ClassicScene:
    """on_assignment() of the assignor has returned."""
    return scene.feed(ex.AssignorNotified(request_id=scene.all(ex.NotifyAssignor)[-1].request_id))


# ---- results of assign() --------------------------------------------------------------------------------------------


def test_both_kinds_of_assignors_are_assignors() -> None:
    """on_assignment() is optional for an assignor."""
    assert [isinstance(one, Assignor) for one in (Plan(), Told())] == [True, True]
    assert [isinstance(one, AssignmentObserver) for one in (Plan(), Told())] == [False, True]


def test_user_data_is_sent_to_the_members_that_receive_some() -> None:
    """An assignor may give a member partitions, user data, both or neither."""
    given = {
        "a": [TopicPartition("t", 0)],
        "b": Assigned(partitions=[TopicPartition("t", 1)], user_data=b"b's"),
        "c": Assigned(user_data=b""),
        "d": Assigned(),
    }
    everybody = {name: member("t") for name in "abcd"}
    checked = assign_checked(Giving(result=given), Topics(partitions={"t": 2}), everybody)
    assert checked.assignments == {
        "a": partitions("t:0"),
        "b": partitions("t:1"),
        "c": frozenset(),
        "d": frozenset(),
    }
    assert checked.user_data == {"b": b"b's", "c": b""}


def test_user_data_that_is_not_bytes_raises() -> None:
    """The error names the member and the value."""
    given = {"a": Assigned(partitions=[TopicPartition("t", 0)], user_data="text")}  # type: ignore[arg-type]  # users make this mistake
    with pytest.raises(AssignmentError, match=r"a receives the user data .text. .*; expected bytes or None"):
        assign_checked(Giving(result=given), Topics(partitions={"t": 1}), {"a": member("t")})


def test_leader_sends_user_data_with_the_assignment() -> None:
    """SyncGroup carries the user data of group members only."""
    me = {"m": MemberSubscription(topics=frozenset({"a"}))}
    scene = joining().gather(1, leads=True, members=me).described(a=1)
    computed = ex.AssignmentComputed(
        generation=1, assignments={"m": frozenset({A0})}, user_data={"m": b"mine", "x": b"nobody's"}
    )
    assert scene.feed(computed).sync.user_data == {"m": b"mine"}


# ---- calls of on_assignment() ---------------------------------------------------------------------------------------


def test_on_assignment_is_called_before_partitions_are_assigned() -> None:
    """on_assignment() receives the partitions, the user data and the generation, and the view shows the wait."""
    scene = synced()
    (notice,) = scene.new(ex.NotifyAssignor)
    assert (notice.assignor, notice.generation) == ("plan", 4)
    assert notice.assignment == Assigned(partitions=frozenset({A0}), user_data=b"yours")
    assert (scene.state, scene.kinds) == (S.SYNCING, ["NotifyAssignor"])
    assert scene.member.view().waits_for == "assignor on_assignment"
    assert (notified(scene).settle().state, scene.owned) == (S.STABLE, {A0})


def test_assignor_without_on_assignment_delays_nothing() -> None:
    """An assignor without on_assignment() does not delay the assignment."""
    scene = synced(Plan())
    assert (scene.all(ex.NotifyAssignor), scene.settle().state) == ([], S.STABLE)


def test_on_assignment_is_called_for_the_chosen_assignor_only() -> None:
    """on_assignment() is not called for an assignor if the group chose another one."""
    assert synced(Plan(), Told(name="other")).all(ex.NotifyAssignor) == []


def test_heartbeats_continue_during_on_assignment() -> None:
    """A slow on_assignment() does not stop the heartbeats."""
    scene = synced()
    assert scene.heartbeat_answered().state is S.SYNCING


def test_leader_computes_nothing_during_on_assignment() -> None:
    """If the leader's topics are due during on_assignment(), it requests them when it is STABLE again."""
    me = {"m": MemberSubscription(topics=frozenset({"a"}))}
    scene = joining(Told(), classic={"refresh_interval_s": 1.0}).gather(1, leads=True, members=me)
    scene.described(a=1).computed(m=[A0]).share(A0)
    for _ in range(3):
        scene.after(1.0)
    assert (len(scene.all(ex.DescribeTopics)), len(scene.all(ex.ComputeAssignment))) == (1, 1)
    assert notified(scene).settle().state is S.STABLE


def test_rebalance_during_on_assignment_drops_the_assignment() -> None:
    """A rebalance drops the assignment, and the late end of on_assignment() changes nothing."""
    scene = synced().rebalance()
    assert scene.state is S.JOINING
    late = scene.all(ex.NotifyAssignor)[-1].request_id
    request_id = scene.gather(5).sync.request_id
    scene.feed(ex.SyncAnswered(request_id=request_id, assignment=frozenset({A1})))
    scene.feed(ex.AssignorNotified(request_id=late))
    assert (scene.state, scene.owned) == (S.SYNCING, set())
    assert (notified(scene).settle().state, scene.owned) == (S.STABLE, {A1})


def test_subscription_that_changed_during_on_assignment_is_joined_with() -> None:
    """Rules 4.5: Partitions of topics that are no longer subscribed are not assigned."""
    scene = notified(synced().subscribe("b"))
    assert (scene.state, scene.owned) == (S.JOINING, set())
    assert scene.join.protocols[0][1].topics == {"b"}


def test_on_assignment_that_raises_ends_the_member() -> None:
    """The member leaves, so that other members receive its partitions, and the application receives the error."""
    scene = synced().feed(ex.AssignmentFailed(generation=4, error=BROKEN))
    assert (scene.state, scene.kinds) == (S.FATAL, ["SendClassicLeave", "RaiseToApplication"])
    assert scene.new(ef.RaiseToApplication)[0].error == BROKEN


def test_leave_during_on_assignment_takes_effect() -> None:
    """The late end of on_assignment() is dropped."""
    scene = synced().feed(ev.LeaveRequested())
    assert notified(scene).state is not S.RECONCILE
