"""Joining a group and the first assignment (M20 to M26)."""

from __future__ import annotations

from consumer_membership.membership.effects import AssignPartitions, FetchCommitted, FindCoordinator
from consumer_membership.membership.events import Verdict
from consumer_membership.membership.states import MemberState
from tests.membership.builders import (
    A0,
    A1,
    COORDINATOR,
    NOT_ALLOWED,
    ORDERS,
    START,
    Scene,
    joining,
    named,
    stable,
)
from tests.membership.outcomes import raised

S = MemberState


def test_first_assignment_is_reconciled_and_acknowledged() -> None:
    """M20: The first assignment leads from the join through RECONCILE and the acknowledgement to STABLE."""
    scene = joining().answer(1, [A0, A1]).settle()
    assert scene.edges == [
        (S.UNSUBSCRIBED, S.JOINING),
        (S.JOINING, S.RECONCILE),
        (S.RECONCILE, S.ACK),
        (S.ACK, S.STABLE),
    ]
    assert (scene.owned, scene.heartbeats[-1].owned) == (named(A0, A1), {A0, A1})


def test_first_assignment_is_fetched_from_its_committed_offsets() -> None:
    """M20: The member fetches the committed offsets with its id and epoch, and the partitions start there."""
    scene = joining().answer(1, [A0]).resolve(ORDERS)
    asked = scene.new(FetchCommitted)[0]
    assert (asked.partitions, asked.member_id, asked.member_epoch) == (named(A0), "member-1", 1)
    assert scene.offsets(42).new(AssignPartitions)[0].offsets == dict.fromkeys(named(A0), 42)


def test_first_empty_assignment_is_reconciled() -> None:
    """M21: An empty first assignment goes through RECONCILE and ACK to STABLE, like any other."""
    scene = joining().answer(1, []).settle()
    assert scene.edges[1:] == [(S.JOINING, S.RECONCILE), (S.RECONCILE, S.ACK), (S.ACK, S.STABLE)]


def test_first_empty_assignment_ends_stable_after_its_acknowledgement() -> None:
    """M22: The acknowledgement of an empty first assignment owns an empty list."""
    scene = joining().answer(1, []).finish()
    assert (scene.state, scene.new_heartbeats[0].member_epoch, scene.new_heartbeats[0].owned) == (
        S.STABLE,
        1,
        frozenset(),
    )


def test_first_empty_assignment_calls_on_assign() -> None:
    """M23: on_assign receives the empty set, and no offsets are fetched."""
    scene = joining().answer(1, [])
    assert scene.new(AssignPartitions)[0].offsets == {}
    assert scene.all(FetchCommitted) == []


def test_refused_join_is_fatal_and_raises_first() -> None:
    """M24, M91: A fatal error for the join ends FATAL, and the application's error comes before the state change."""
    scene = joining().reject(Verdict.FATAL, NOT_ALLOWED)
    assert (scene.state, raised(scene), scene.kinds) == (
        S.FATAL,
        [NOT_ALLOWED],
        ["RaiseToApplication", "StateChanged"],
    )


def test_subscribe_joins_at_the_next_poll_only() -> None:
    """M25: subscribe() changes no state and sends nothing; the next poll joins."""
    scene = Scene().subscribe("orders")
    assert (scene.state, scene.last) == (S.UNSUBSCRIBED, ())
    assert scene.poll().edges == [(S.UNSUBSCRIBED, S.JOINING)]


def test_poll_without_subscription_joins_nothing() -> None:
    """A consumer that only assigns manually is not a member."""
    assert Scene().poll().last == ()


def test_subscription_of_a_member_keeps_its_state() -> None:
    """M26: A member whose subscription changes keeps its state and sends the new subscription in a heartbeat."""
    scene = stable(A0).subscribe("orders", "invoices").poll()
    assert (scene.state, scene.heartbeats[-1].topics) == (S.STABLE, ("invoices", "orders"))


def test_changed_subscription_is_sent_at_once() -> None:
    """A changed subscription is sent without waiting for the interval, unlike in Java."""
    scene = stable(A0).after(0.01).subscribe("invoices")
    assert scene.new_heartbeats[0].topics == ("invoices",)


def test_repeating_a_changed_subscription_keeps_it_urgent() -> None:
    """Repeating a subscription while a heartbeat is in flight keeps it urgent."""
    scene = stable(A0).with_heartbeat_in_flight().subscribe("invoices").subscribe("invoices").answer()
    assert [heartbeat.topics for heartbeat in scene.new_heartbeats] == [("invoices",)]


def test_subscription_without_matching_topics_joins() -> None:
    """The broker resolves a pattern, so a member whose pattern matches nothing still joins (KAFKA-18095)."""
    heartbeat = Scene().subscribe(pattern="o.*").poll().found().heartbeats[0]
    assert (heartbeat.topics, heartbeat.pattern, heartbeat.is_full) == ((), "o.*", True)


def test_join_waits_for_the_coordinator() -> None:
    """The member looks up the coordinator once and sends the join as soon as it is known."""
    scene = Scene().subscribe("orders").poll()
    assert (scene.kinds, scene.new_heartbeats) == (["StateChanged", "FindCoordinator"], [])
    assert scene.poll().after(1.0).all(FindCoordinator) == scene.all(FindCoordinator)[:1]
    assert (scene.found().new_heartbeats[0].member_epoch, scene.view.coordinator) == (0, COORDINATOR)


def test_join_answer_without_assignment_is_followed_by_a_full_join() -> None:
    """After a join response without an assignment the member stays JOINING and repeats the join after a backoff."""
    scene = joining().answer(3, None)
    assert (scene.state, scene.new_heartbeats) == (S.JOINING, [])
    heartbeat = scene.next_heartbeat()
    assert (heartbeat.member_epoch, heartbeat.is_full, heartbeat.owned, round(scene.now - START, 3)) == (
        3,
        True,
        frozenset(),
        0.1,
    )


def test_join_answer_with_epoch_zero_or_less_is_not_adopted() -> None:
    """A join response with an epoch of 0 or less is not adopted; the member repeats the full join at epoch 0."""
    for epoch in (0, -1, -2):
        scene = joining().answer(epoch, [A0])
        assert (scene.state, scene.view.member_epoch, scene.view.target) == (S.JOINING, 0, frozenset())
        assert (scene.next_heartbeat().member_epoch, scene.heartbeats[-1].is_full) == (0, True)
