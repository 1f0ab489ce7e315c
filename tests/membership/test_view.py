"""The view: the description of a member for users and programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consumer_membership.membership.effects import LearnSessionTimeout
from consumer_membership.membership.events import (
    CommitFailed,
    CommitRequested,
    CoordinatorFound,
    CoordinatorLookupFailed,
    CoordinatorLost,
    SessionTimeoutLearned,
    Suspended,
    Verdict,
)
from consumer_membership.membership.topics import TopicChanges, Unavailable
from consumer_membership.types import BrokerError, GroupProtocol
from tests.membership.builders import (
    A0,
    A1,
    B0,
    COORDINATOR,
    GROUP_FULL,
    LOADING,
    ORDERS,
    START,
    Scene,
    acknowledging,
    adding,
    at,
    fatal,
    fenced,
    joining,
    leaving,
    named,
    revoking,
    stable,
    stale,
    unsubscribing,
)

AWAY = BrokerError(code=-195, name="_TRANSPORT", message="No broker can be reached")
UNANSWERED = BrokerError(code=-195, name="_TRANSPORT", message="disconnected")
NO_TOPIC = BrokerError(code=3, name="UNKNOWN_TOPIC_OR_PART")

WAITS: dict[str, tuple[Callable[[], Scene], str | None]] = {
    "nothing subscribed": (Scene, None),
    "to join": (lambda: Scene().subscribe("orders"), "poll to join"),
    "coordinator": (lambda: Scene().subscribe("orders").poll(), "group coordinator"),
    "join": (joining, "join response"),
    "names": (lambda: stable(A0).target(2, A0, B0), "topic metadata"),
    "pause": (revoking, "poll to revoke"),
    "commit": (lambda: revoking().finish(at(1, A1)), "commit before on_revoke"),
    "on_revoke": (lambda: revoking().finish(), "on_revoke"),
    "stored": (lambda: revoking().finish().finish(at(2, A1)), "commit after on_revoke"),
    "offsets": (lambda: stable(A0).target(2, A0, A1), "committed offsets"),
    "on_assign": (adding, "on_assign"),
    "raised": (lambda: adding().finish(failed=True), "poll to retry callback"),
    "nothing": (lambda: stable(A0), None),
    "ack": (acknowledging, None),
    "partitions": (stable, "partitions: the coordinator has assigned none"),
    "on_lost": (fenced, "on_lost"),
    "to rejoin": (lambda: stable().after(300.0), "poll to rejoin"),
    "stale": (stale, "on_lost"),
    "to leave": (unsubscribing, "poll to revoke"),
    "leave": (leaving, "leave response"),
    "fatal": (lambda: fatal().finish(), None),
}


@pytest.mark.parametrize("case", WAITS)
def test_view_shows_what_the_member_waits_for(case: str) -> None:
    """The view names what the member waits for, and since when, so that users learn why no records arrive."""
    build, text = WAITS[case]
    view = build().view
    assert view.waits_for_text == text
    assert (view.waits_since is None) == (text is None or case == "to join")


def test_view_shows_the_whole_member() -> None:
    """The view of a STABLE member has all its fields."""
    view = stable(A0, instance_id="i").view
    assert (view.protocol, view.group_id, view.member_id, view.instance_id) == (
        GroupProtocol.CONSUMER,
        "g",
        "member-1",
        "i",
    )
    assert (view.member_epoch, view.target, view.unresolved, view.coordinator) == (1, named(A0), 0, COORDINATOR)
    assert (view.heartbeat_interval_s, view.last_heartbeat_at, view.last_error) == (5.0, START, None)


def test_view_shows_pending_revocation_until_on_revoke_ended() -> None:
    """A revocation is pending from the arrival of a target without the partition until on_revoke has ended."""
    scene = revoking()
    seen = [scene.view.pending_revocation]
    seen.append(scene.finish().view.pending_revocation)
    seen.append(scene.finish().view.pending_revocation)
    assert seen == [named(A1), named(A1), frozenset()]


def test_view_shows_all_partitions_as_pending_revocation_while_leaving() -> None:
    """A leaving member revokes all its partitions."""
    scene = unsubscribing()
    assert (scene.view.pending_revocation, scene.settle().view.pending_revocation) == (named(A0), frozenset())


def test_view_counts_partitions_without_a_name() -> None:
    """The view counts assigned partitions that cannot be consumed yet, because their topic has no name."""
    assert stable(A0).target(2, A0, B0).view.unresolved == 1


def test_view_shows_the_last_error() -> None:
    """The view keeps the coordinator's latest error."""
    assert fatal().view.last_error == GROUP_FULL


def test_error_is_over_when_the_coordinator_confirms_the_member() -> None:
    """The view keeps the error with its time, and the first heartbeat response after it ends the error."""
    scene = stable(A0).after(0.1).feed(CoordinatorLost(reason="closed"))
    scene.feed(CoordinatorLookupFailed(error=AWAY, is_final=False)).after(2.0)
    lasting = scene.view
    scene.feed(CoordinatorFound(coordinator=COORDINATOR)).until(lambda s: s.protocol.heartbeats.in_flight is not None)
    found, over_at = scene.view, scene.now
    over = scene.answer().view
    assert (lasting.last_error_at, lasting.present_error, found.present_error) == (START + 0.1, AWAY, AWAY)
    assert (over.last_error, over.last_error_at, over.last_error_over_at) == (AWAY, START + 0.1, over_at)
    assert over.present_error is None


def test_heartbeat_without_an_answer_is_the_current_error_until_a_heartbeat_is_answered() -> None:
    """The view names the cause of a coordinator lookup from the lookup's first moment."""
    scene = stable(A0).with_heartbeat_in_flight().drop()
    dropped_at, lasting = scene.now, scene.view
    scene.after(2.0).found().until(lambda s: s.protocol.heartbeats.in_flight is not None)
    found, over_at = scene.view, scene.now
    over = scene.answer().view
    assert (lasting.present_error, lasting.last_error_at) == (UNANSWERED, dropped_at)
    assert (lasting.waits_for, lasting.waits_since) == ("group coordinator", dropped_at)
    assert (found.present_error, over.present_error) == (UNANSWERED, None)
    assert (over.last_error, over.last_error_over_at) == (UNANSWERED, over_at)


def test_broken_connection_to_the_coordinator_is_the_current_error() -> None:
    """A member in its group looks up the coordinator, and the view names the cause."""
    scene = stable(A0).feed(CoordinatorLost(reason="disconnected"))
    assert (scene.view.present_error, scene.view.last_error_at) == (UNANSWERED, scene.now)
    scene.found().until(lambda s: s.protocol.heartbeats.in_flight is not None)
    assert scene.answer().view.present_error is None


def test_commit_without_an_answer_is_the_current_error() -> None:
    """A commit may be the first request to which the coordinator does not respond."""
    scene = stable(A0).feed(CommitRequested(commit_id=1, offsets=at(1, A0), timeout_s=60.0))
    scene.feed(CommitFailed(commit_id=1, reason="disconnected"))
    assert scene.view.present_error == UNANSWERED


def test_lookup_error_stays_current_when_more_requests_get_no_answer() -> None:
    """A failed lookup explains more than the requests that were in flight when it began, so its error stays."""
    scene = stable(A0).with_heartbeat_in_flight().feed(CoordinatorLost(reason="closed"))
    scene.feed(CoordinatorLookupFailed(error=AWAY, is_final=False)).drop()
    assert scene.view.present_error == AWAY


def test_error_of_a_fenced_member_stays_current_when_the_connection_breaks() -> None:
    """The view keeps the error that fenced the member, because it explains the state."""
    scene = fenced()
    error = scene.view.last_error
    assert error is not None
    assert scene.feed(CoordinatorLost(reason="disconnected")).view.last_error == error


def test_lookup_error_outside_the_group_is_over_when_the_coordinator_is_found() -> None:
    """A member that only commits has no heartbeats, so finding the coordinator ends the error."""
    scene = Scene().feed(CommitRequested(commit_id=1, offsets=at(1, A0), timeout_s=60.0))
    scene.feed(CoordinatorLookupFailed(error=AWAY, is_final=False)).after(2.0)
    lasting = scene.view.present_error
    over = scene.feed(CoordinatorFound(coordinator=COORDINATOR)).view
    assert (lasting, over.present_error, over.last_error_over_at) == (AWAY, None, scene.now)


def test_topic_error_is_over_when_the_topic_appears() -> None:
    """Heartbeat responses do not end the error of a missing topic."""
    scene = stable(A0)
    topics = scene.context.watch
    topics.report_topics(TopicChanges(unavailable=(Unavailable(topic="orders", error=NO_TOPIC),)))
    lasting = scene.after(5.0).answer().view.present_error
    topics.report_topics(TopicChanges(appeared=("orders",)))
    assert (lasting, scene.view.present_error, scene.view.last_error) == (NO_TOPIC, None, NO_TOPIC)


def test_view_shows_since_when_the_coordinator_is_looked_up() -> None:
    """The view shows when the lookup began, not when the state began."""
    scene = stable(A0).after(0.1).feed(CoordinatorLost(reason="closed")).after(7.0)
    assert scene.view.waits_since == START + 0.1


@pytest.mark.parametrize(
    ("build", "needs_poll", "is_settled"),
    [
        (Scene, True, False),
        (joining, False, False),
        (revoking, False, False),
        (acknowledging, False, True),
        (lambda: stable(A0), False, True),
        (fenced, False, False),
        (stale, True, False),
        (unsubscribing, False, False),
        (fatal, True, False),
    ],
)
def test_view_shows_whether_a_poll_is_needed_and_the_member_is_settled(
    build: Callable[[], Scene], *, needs_poll: bool, is_settled: bool
) -> None:
    """The view shows whether a poll makes the member join, and whether it owns its assignment."""
    view = build().view
    assert (view.needs_poll, view.is_settled) == (needs_poll, is_settled)


def test_view_is_immutable() -> None:
    """A view is a value: later events do not change it."""
    scene = stable(A0)
    before = scene.view
    owned = dict(before.owned)
    scene.fence()
    assert (before.owned, before.member_epoch, len(before.transitions)) == (owned, 1, 4)


# ---- the lease: the time until which owned partitions are certainly owned --------------------------------------------


def test_lease_counts_from_the_sending_of_the_last_answered_heartbeat() -> None:
    """If the session timeout is unknown, the lease lasts nine heartbeat intervals, as with Kafka's defaults."""
    scene = stable(A0)
    sent_at = scene.with_heartbeat_in_flight().now
    scene.after(2.0).answer(interval_s=0.5)
    assert scene.view.lease_until == sent_at + 4.5
    assert scene.feed(SessionTimeoutLearned(session_timeout_s=6.0)).view.lease_until == sent_at + 6.0
    assert stable(A0).view.lease_until == START + 45.0


def test_lease_is_not_renewed_by_an_unanswered_or_refused_heartbeat() -> None:
    """A heartbeat that is lost or answered with a retriable error does not extend the lease."""
    scene = stable(A0)
    until = scene.view.lease_until
    scene.with_heartbeat_in_flight().drop()
    scene.found().next_heartbeat()
    assert scene.reject(Verdict.RETRY, LOADING).view.lease_until == until


def test_suspension_of_the_machine_shortens_the_lease() -> None:
    """The coordinator's clock continues during a suspension, also for a heartbeat that was in flight."""
    scene = stable(A0)
    until = scene.view.lease_until
    assert until is not None
    scene.with_heartbeat_in_flight().feed(Suspended(seconds=3600.0))
    assert scene.view.lease_until == until - 3600.0
    sent_at = scene.now
    assert scene.answer().view.lease_until == sent_at + 45.0 - 3600.0
    sent_at = scene.with_heartbeat_in_flight().now
    assert scene.answer().view.lease_until == sent_at + 45.0


def test_member_without_partitions_has_no_lease() -> None:
    """A member without partitions has nothing that another member could own."""
    scenes = [Scene(), joining(), stable(), fenced(), stale(), unsubscribing(), leaving(), fatal()]
    assert [scene.view.lease_until for scene in scenes] == [None] * len(scenes)
    assert None not in [scene.view.lease_until for scene in (revoking(), adding(), acknowledging())]


# ---- with ownership.lease.enable -------------------------------------------------------------------------------------


def test_lease_ends_before_the_session_and_the_view_marks_an_assumed_session() -> None:
    """If the broker does not report the session timeout, two heartbeat intervals are certain."""
    scene = stable(A0, has_leases=True)
    sent_at = scene.with_heartbeat_in_flight().now
    scene.answer()
    assert (scene.view.lease_until, scene.view.is_session_assumed) == (sent_at + 0.95 * 10.0, True)
    scene.feed(SessionTimeoutLearned(session_timeout_s=6.0))
    assert (scene.view.lease_until, scene.view.is_session_assumed) == (sent_at + 0.95 * 6.0, False)


def test_dynamic_member_with_leases_requests_the_session_timeout_after_each_join() -> None:
    """The lease must not be longer than the group's session. Without leases the member does not request the timeout."""
    scene = stable(A0, has_leases=True)
    assert len(scene.all(LearnSessionTimeout)) == 1
    scene.fence().finish().with_heartbeat_in_flight().answer(7, [A0]).settle()
    assert len(scene.all(LearnSessionTimeout)) == 2
    assert stable(A0).all(LearnSessionTimeout) == []


def test_lease_begins_before_on_assign_returns() -> None:
    """The application may begin to work on a partition inside on_assign."""
    for has_leases in (True, False):
        scene = joining(has_leases=has_leases).answer(1, [A0]).resolve(ORDERS).offsets()
        assert (scene.step, scene.view.owned) == (scene.new_steps[0], {})
        assert (scene.view.lease_until is not None) is has_leases


def test_leaving_member_has_a_lease_until_it_has_released_its_partitions() -> None:
    """A lease covers the work in on_revoke, because heartbeats continue until the leave."""
    scene = unsubscribing(has_leases=True)
    assert scene.view.lease_until is not None
    assert scene.settle(answers=False).view.lease_until is None
