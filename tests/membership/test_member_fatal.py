"""FATAL: the coordinator refuses the member permanently (M90 to M96)."""

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


def test_fatal_member_loses_everything_and_sends_no_heartbeat() -> None:
    """M90: A FATAL member loses all its partitions and never sends a heartbeat again, even if on_lost raises."""
    scene = fatal().finish(failed=True)
    before = len(scene.heartbeats)
    for _ in range(5):
        scene.after(100.0).poll()
    assert (scene.state, scene.owned, len(scene.heartbeats)) == (S.FATAL, frozenset(), before)
    assert scene.member.next_deadline() is None


def test_refused_join_loses_nothing() -> None:
    """M91: A member without partitions receives no loss when its join is refused."""
    assert joining().fail().all(LosePartitions) == []


def test_fatal_error_is_raised_before_the_state_change_and_the_loss() -> None:
    """M92, H25: A fatal error orders the application's error first, then the state change, then on_lost."""
    scene = stable(A0).fail()
    assert (scene.kinds, raised(scene)) == (["RaiseToApplication", "StateChanged", "LosePartitions"], [GROUP_FULL])


def test_fatal_error_during_revocation_completes_the_leave() -> None:
    """M93: A fatal error during a leave completes it; partitions that on_revoke has not released are lost."""
    scene = unsubscribing().finish().fail()
    assert (scene.state, scene.new(LeaveCompleted)) == (S.FATAL, [LeaveCompleted()])


def test_fatal_error_after_the_leave_was_sent_loses_nothing() -> None:
    """M94: A fatal error while the leave is in flight completes it without on_lost, because no partition is held."""
    scene = unsubscribing().with_heartbeat_in_flight()
    ordinary = scene.request_id
    scene.finish().finish()
    scene.reject(Verdict.FATAL, GROUP_FULL, request_id=ordinary)
    assert (scene.state, scene.kinds) == (S.FATAL, ["RaiseToApplication", "StateChanged", "LeaveCompleted"])


def test_error_for_a_member_that_left_is_ignored() -> None:
    """M95: An error that arrives after the leave has completed calls no callback and raises nothing."""
    scene = leaving()
    request = scene.request_id
    scene.answer(-1)
    assert scene.reject(Verdict.FATAL, GROUP_FULL, request_id=request).last == ()
    assert scene.state is S.UNSUBSCRIBED


def test_fatal_orders_the_loss_of_everything_in_any_phase() -> None:
    """M96: A fatal error stops delivery immediately, also in the middle of a reconciliation."""
    assert adding().fail().kinds == ["RaiseToApplication", "StateChanged", "LosePartitions"]


@pytest.mark.parametrize("topics", [("orders", "payments"), ("invoices",)])
def test_fatal_error_unrelated_to_the_subscription_stays_after_subscribe(topics: tuple[str, ...]) -> None:
    """A new subscription does not end a fatal error that the old one did not cause, such as a full group."""
    assert fatal().finish().subscribe(*topics).poll().state is S.FATAL


def refused_pattern() -> Scene:
    """FATAL because of INVALID_REGULAR_EXPRESSION."""
    return Scene().subscribe(pattern="(").poll().found().reject(Verdict.FATAL, BAD_REGEX)


@pytest.mark.parametrize(("build", "ends"), [(refused_pattern, True), (fatal, False)])
def test_fatal_error_states_whether_another_subscription_ends_it(build: Callable[[], Scene], *, ends: bool) -> None:
    """The fatal error itself states whether another subscription ends it."""
    assert [effect.ends_with_subscription for effect in build().all(RaiseToApplication)] == [ends]


def test_another_subscription_ends_the_fatal_error_of_a_refused_pattern() -> None:
    """If the subscription caused the fatal error, another subscription ends the error at the next poll."""
    scene = refused_pattern().poll().subscribe(pattern="o.*")
    assert scene.state is S.FATAL
    scene.poll()
    assert (scene.state, scene.heartbeats[-1].pattern, scene.heartbeats[-1].member_epoch) == (S.JOINING, "o.*", 0)


def test_another_subscription_that_is_repeated_ends_the_fatal_error() -> None:
    """If the application repeats the new subscription before the poll, the subscription still ends the error."""
    assert refused_pattern().subscribe("orders").subscribe("orders").poll().state is S.JOINING


def test_same_pattern_stays_refused() -> None:
    """The member does not try a refused pattern again."""
    assert refused_pattern().subscribe(pattern="(").poll().state is S.FATAL


def test_leave_of_a_fatal_member_completes_at_once() -> None:
    """A FATAL member completes a leave immediately, stays FATAL and sends no heartbeat."""
    scene = fatal().leave()
    assert (scene.state, scene.kinds) == (S.FATAL, ["LeaveCompleted"])


def test_group_not_found_makes_the_member_rejoin() -> None:
    """H35: A member whose group no longer exists loses its partitions and joins at epoch 0, unlike Java."""
    scene = stable(A0).with_heartbeat_in_flight().reject(Verdict.GROUP_GONE, GROUP_GONE)
    assert (scene.state, raised(scene)) == (S.FENCED, [])
    scene.finish()
    assert (scene.state, scene.with_heartbeat_in_flight().heartbeats[-1].member_epoch) == (S.JOINING, 0)


def test_group_not_found_is_fatal_for_a_join() -> None:
    """H35: GROUP_ID_NOT_FOUND for a join is fatal, because the group uses another protocol."""
    scene = joining().reject(Verdict.GROUP_GONE, GROUP_GONE)
    assert (scene.state, raised(scene)) == (S.FATAL, [GROUP_GONE])
