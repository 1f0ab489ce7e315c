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
    """M20: join -> assignment -> RECONCILE -> acknowledgement -> STABLE."""
    scene = joining().answer(1, [A0, A1]).settle()
    assert scene.edges == [
        (S.UNSUBSCRIBED, S.JOINING),
        (S.JOINING, S.RECONCILE),
        (S.RECONCILE, S.ACK),
        (S.ACK, S.STABLE),
    ]
    assert (scene.owned, scene.beats[-1].owned) == (named(A0, A1), {A0, A1})


def test_first_assignment_is_fetched_from_its_committed_offsets() -> None:
    """M20: start offsets are asked for as this member at its epoch, and the partitions begin there."""
    scene = joining().answer(1, [A0]).resolve(ORDERS)
    asked = scene.new(FetchCommitted)[0]
    assert (asked.partitions, asked.member_id, asked.member_epoch) == (named(A0), "member-1", 1)
    assert scene.offsets(42).new(AssignPartitions)[0].offsets == dict.fromkeys(named(A0), 42)


def test_first_empty_assignment_is_reconciled_too() -> None:
    """M21: an empty first assignment goes RECONCILE -> ACK -> STABLE like any other."""
    scene = joining().answer(1, []).settle()
    assert scene.edges[1:] == [(S.JOINING, S.RECONCILE), (S.RECONCILE, S.ACK), (S.ACK, S.STABLE)]


def test_first_empty_assignment_ends_stable_after_its_acknowledgement() -> None:
    """M22: the acknowledgement of an empty first assignment owns an empty list."""
    scene = joining().answer(1, []).finish()
    assert (scene.state, scene.new_beats[0].member_epoch, scene.new_beats[0].owned) == (S.STABLE, 1, frozenset())


def test_first_empty_assignment_is_told_to_the_application() -> None:
    """M23: on_assign is called with the empty set, and no offsets are asked for."""
    scene = joining().answer(1, [])
    assert scene.new(AssignPartitions)[0].offsets == {}
    assert scene.all(FetchCommitted) == []


def test_refused_join_is_fatal_and_said_first() -> None:
    """M24, M91: a fatal error on the join ends FATAL; the application's error comes before the state change."""
    scene = joining().reject(Verdict.FATAL, NOT_ALLOWED)
    assert (scene.state, raised(scene), scene.kinds) == (
        S.FATAL,
        [NOT_ALLOWED],
        ["RaiseToApplication", "StateChanged"],
    )


def test_subscription_joins_at_the_next_poll_only() -> None:
    """M25: subscribe alone changes no state and sends nothing; the poll after it joins."""
    scene = Scene().subscribe("orders")
    assert (scene.state, scene.last) == (S.UNSUBSCRIBED, ())
    assert scene.poll().edges == [(S.UNSUBSCRIBED, S.JOINING)]


def test_poll_without_subscription_joins_nothing() -> None:
    """A consumer that only assigns by hand is no member."""
    assert Scene().poll().last == ()


def test_subscription_of_a_member_keeps_its_state() -> None:
    """M26: a member that subscribes to something else stays where it is, and says so in a heartbeat."""
    scene = stable(A0).subscribe("orders", "invoices").poll()
    assert (scene.state, scene.beats[-1].topics) == (S.STABLE, ("invoices", "orders"))


def test_changed_subscription_is_said_at_once() -> None:
    """A changed subscription does not wait for the interval (where Java waits)."""
    scene = stable(A0).after(0.01).subscribe("invoices")
    assert scene.new_beats[0].topics == ("invoices",)


def test_repeating_a_changed_subscription_keeps_it_urgent() -> None:
    """The same subscription twice, while a heartbeat is in flight, is still news that does not wait."""
    scene = stable(A0).in_touch().subscribe("invoices").subscribe("invoices").answer()
    assert [beat.topics for beat in scene.new_beats] == [("invoices",)]


def test_subscription_without_matching_topics_joins_all_the_same() -> None:
    """A pattern that matches nothing yet is the broker's to resolve: the member joins with no topics (KAFKA-18095)."""
    beat = Scene().subscribe(pattern="o.*").poll().found().beats[0]
    assert (beat.topics, beat.pattern, beat.is_full) == ((), "o.*", True)


def test_join_waits_for_the_coordinator() -> None:
    """The join is sent as soon as the coordinator is known, which is looked up once."""
    scene = Scene().subscribe("orders").poll()
    assert (scene.kinds, scene.new_beats) == (["StateChanged", "FindCoordinator"], [])
    assert scene.poll().after(1.0).all(FindCoordinator) == scene.all(FindCoordinator)[:1]
    assert (scene.found().new_beats[0].member_epoch, scene.view.coordinator) == (0, COORDINATOR)


def test_join_answer_without_assignment_is_asked_again_in_full() -> None:
    """A join without assignment is not complete: the member stays JOINING and asks again after a backoff."""
    scene = joining().answer(3, None)
    assert (scene.state, scene.new_beats) == (S.JOINING, [])
    beat = scene.next_beat()
    assert (beat.member_epoch, beat.is_full, beat.owned, round(scene.now - START, 3)) == (3, True, frozenset(), 0.1)


def test_join_answer_with_epoch_zero_or_less_is_no_success() -> None:
    """An epoch of 0 or below is never adopted from a success: the join is repeated in full at epoch 0."""
    for epoch in (0, -1, -2):
        scene = joining().answer(epoch, [A0])
        assert (scene.state, scene.view.member_epoch, scene.view.target) == (S.JOINING, 0, frozenset())
        assert (scene.next_beat().member_epoch, scene.beats[-1].is_full) == (0, True)
