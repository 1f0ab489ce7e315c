"""Refused for good (M90 to M96)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumer_membership.membership.effects import LeaveCompleted, LosePartitions, RaiseToApplication
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.states import MemberState
from tests.membership.builders import (
    A0,
    BAD_REGEX,
    GROUP_FULL,
    GROUP_GONE,
    Scene,
    adding,
    fatal,
    joining,
    leaving,
    stable,
    unsubscribing,
)
from tests.membership.outcomes import raised

S = MemberState


def test_fatal_member_loses_everything_and_is_silent() -> None:
    """M90: everything owned is lost, and no heartbeat is sent ever after, whatever the callback does."""
    scene = fatal().finish(failed=True)
    before = len(scene.beats)
    for _ in range(5):
        scene.after(100.0).poll()
    assert (scene.state, scene.owned, len(scene.beats)) == (S.FATAL, frozenset(), before)
    assert scene.member.next_deadline() is None


def test_join_that_is_refused_loses_nothing() -> None:
    """M91: a member that holds nothing is told of no loss."""
    assert joining().fail().all(LosePartitions) == []


def test_error_comes_before_the_state_and_the_loss() -> None:
    """M92, H25: the application's error is ordered first, then the state, then on_lost."""
    scene = stable(A0).fail()
    assert (scene.kinds, raised(scene)) == (["RaiseToApplication", "StateChanged", "LosePartitions"], [GROUP_FULL])


def test_fatal_error_while_giving_up_completes_the_leave() -> None:
    """M93: the leave is over; what on_revoke did not give up yet is lost."""
    scene = unsubscribing().finish().fail()
    assert (scene.state, scene.new(LeaveCompleted)) == (S.FATAL, [LeaveCompleted()])


def test_fatal_error_after_everything_was_given_up_loses_nothing() -> None:
    """M94: with the leave in flight nothing is held: no on_lost, and the leave is over."""
    scene = unsubscribing().in_touch()
    ordinary = scene.request_id
    scene.finish().finish()
    scene.reject(Verdict.FATAL, GROUP_FULL, request_id=ordinary)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "StateChanged", "LeaveCompleted"])


def test_error_for_a_member_that_left_is_ignored() -> None:
    """M95: whatever comes after the leave is over calls nothing and raises nothing."""
    scene = leaving()
    request = scene.request_id
    scene.answer(-1)
    assert scene.reject(Verdict.FATAL, GROUP_FULL, request_id=request).last == ()
    assert scene.state is S.UNSUBSCRIBED


def test_fatal_orders_the_loss_of_everything_in_any_phase() -> None:
    """M96: also in the middle of a reconciliation the order to stop delivering goes out at once."""
    assert adding().fail().kinds == ["RaiseToApplication", "StateChanged", "LosePartitions"]


@pytest.mark.parametrize("topics", [("orders", "payments"), ("invoices",)])
def test_fatal_error_that_is_not_the_subscriptions_fault_stays(topics: tuple[str, ...]) -> None:
    """A new subscription does not mend a full group."""
    assert fatal().finish().subscribe(*topics).poll().state is S.FATAL


def refused_pattern() -> Scene:
    """FATAL because of INVALID_REGULAR_EXPRESSION."""
    return Scene().subscribe(pattern="(").poll().found().reject(Verdict.FATAL, BAD_REGEX)


@pytest.mark.parametrize(("build", "ends"), [(refused_pattern, True), (fatal, False)])
def test_application_is_told_whether_another_subscription_leads_out(build: Callable[[], Scene], *, ends: bool) -> None:
    """The fatal error itself says whether it ends with the subscription."""
    assert [told.ends_with_subscription for told in build().all(RaiseToApplication)] == [ends]


def test_another_subscription_leads_out_of_a_refused_pattern() -> None:
    """A fatal error that the subscription caused ends with another subscription, at a poll."""
    scene = refused_pattern().poll().subscribe(pattern="o.*")
    assert scene.state is S.FATAL
    scene.poll()
    assert (scene.state, scene.beats[-1].pattern, scene.beats[-1].member_epoch) == (S.JOINING, "o.*", 0)


def test_another_subscription_said_twice_leads_out_too() -> None:
    """To repeat the new subscription before the poll does not make it an old one."""
    assert refused_pattern().subscribe("orders").subscribe("orders").poll().state is S.JOINING


def test_the_same_pattern_again_stays_refused() -> None:
    """What was refused is not tried again."""
    assert refused_pattern().subscribe(pattern="(").poll().state is S.FATAL


def test_leave_of_a_fatal_member_is_over_at_once() -> None:
    """A refused member has nothing to leave; it stays FATAL, and no heartbeat is sent."""
    scene = fatal().leave()
    assert (scene.state, scene.kinds) == (S.FATAL, ["LeaveCompleted"])


def test_group_that_is_gone_is_joined_anew() -> None:
    """H35, on purpose unlike Java: a member whose group is gone loses what it has, and joins at epoch 0."""
    scene = stable(A0).in_touch().reject(Verdict.GROUP_GONE, GROUP_GONE)
    assert (scene.state, raised(scene)) == (S.FENCED, [])
    scene.finish()
    assert (scene.state, scene.in_touch().beats[-1].member_epoch) == (S.JOINING, 0)


def test_group_that_is_gone_is_fatal_for_a_join() -> None:
    """H35: nothing to join: the group is of another protocol, as the coordinator's words say."""
    scene = joining().reject(Verdict.GROUP_GONE, GROUP_GONE)
    assert (scene.state, raised(scene)) == (S.FATAL, [GROUP_GONE])
