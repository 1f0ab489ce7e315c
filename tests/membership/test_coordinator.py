"""Coordinator lookups, and the effect of a lost coordinator (CoordinatorRequestManagerTest)."""

from __future__ import annotations

from consumer_membership.membership.coordinator import Coordinator
from consumer_membership.membership.effects import CommitOffsets, FindCoordinator, Problem, RaiseToApplication
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import (
    CommitFailed,
    CommitVerdict,
    CoordinatorLookupFailed,
    CoordinatorLost,
    SessionTimeoutLearned,
)
from consumer_membership.membership.history import History
from consumer_membership.membership.states import MemberState
from tests.membership.builders import (
    A0,
    A1,
    COORDINATOR,
    MOVED,
    NOT_ALLOWED,
    Scene,
    at,
    fatal,
    joining,
    revoking,
    stable,
    stale,
    unsubscribing,
)
from tests.membership.outcomes import errors_of


def coordinator_at(now: float) -> tuple[EventContext, Coordinator]:
    """Return an unknown coordinator and the context of an event at this time."""
    event = EventContext()
    event.begin(now)
    return event, Coordinator(event, History(event))


def test_successful_lookup_makes_the_coordinator_known() -> None:
    """One FindCoordinator request makes the coordinator's address known."""
    event, coordinator = coordinator_at(1.0)
    coordinator.search("first use")
    coordinator.found(COORDINATOR)
    assert (event.effects(), coordinator.is_known, coordinator.address) == (
        (FindCoordinator(reason="first use"),),
        True,
        COORDINATOR,
    )


def test_coordinator_has_one_lookup_at_a_time() -> None:
    """A second reason during a lookup orders nothing, because the network searches until it succeeds."""
    event, coordinator = coordinator_at(1.0)
    coordinator.search("first")
    event.begin(2.0)
    coordinator.search("second")
    assert (event.effects(), coordinator.searching_since) == ((), 1.0)


def test_lost_coordinator_is_looked_up_again() -> None:
    """A lookup that has ended does not prevent the next one."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed")).found().feed(CoordinatorLost(reason="closed"))
    assert [order.reason for order in scene.new(FindCoordinator)] == ["closed"]


def test_coordinator_is_not_looked_up_before_it_is_needed() -> None:
    """A consumer without work does not look up the coordinator."""
    assert Scene().poll().subscribe("orders").after(60.0).all(FindCoordinator) == []


def test_commit_without_membership_looks_up_the_coordinator() -> None:
    """A commit looks up the coordinator even without a subscription."""
    assert Scene().commit(3, A0).kinds == ["FindCoordinator"]


def test_refused_lookup_is_raised_without_a_state_change() -> None:
    """GROUP_AUTHORIZATION_FAILED of FindCoordinator reaches the application, and the lookup continues (not FATAL)."""
    scene = Scene().subscribe("orders").poll().feed(CoordinatorLookupFailed(error=NOT_ALLOWED))
    assert scene.new(RaiseToApplication) == [RaiseToApplication(problem=Problem.REFUSED, error=NOT_ALLOWED)]
    assert scene.state is MemberState.JOINING
    assert scene.found().new_heartbeats[0].member_epoch == 0


def test_refused_lookup_fails_the_commits_that_wait_for_it() -> None:
    """Pending commits fail with the lookup's error instead of waiting for a coordinator (KAFKA-18034)."""
    scene = Scene().commit(3, A0).feed(CoordinatorLookupFailed(error=NOT_ALLOWED))
    assert errors_of(scene) == {1: NOT_ALLOWED}


def test_refused_lookup_continues_a_revocation() -> None:
    """The commit before a revocation also fails with the lookup's error, and on_revoke follows."""
    scene = revoking().feed(CoordinatorLost(reason="closed")).finish(at(5, A1))
    assert scene.feed(CoordinatorLookupFailed(error=NOT_ALLOWED)).kinds == [
        "RaiseToApplication",
        "CommitCompleted",
        "RevokePartitions",
    ]


def test_commit_with_not_coordinator_is_retried_after_a_lookup() -> None:
    """After NOT_COORDINATOR the member looks up the coordinator and repeats the commit."""
    scene = stable(A0).commit(3, A0).committed(CommitVerdict.REDISCOVER, MOVED)
    assert scene.kinds == ["FindCoordinator"]
    scene.found().until(lambda s: bool(s.new(CommitOffsets)))
    assert len(scene.all(CommitOffsets)) == 2


def test_failure_of_a_completed_commit_starts_no_lookup() -> None:
    """A late failure does not apply to the coordinator that has been found since."""
    scene = stable(A0).commit(3, A0).committed()
    assert scene.feed(CommitFailed(commit_id=1, reason="disconnected")).last == ()


def test_coordinator_that_is_found_again_changes_nothing() -> None:
    """A second lookup response has no effect on a STABLE member."""
    assert stable(A0).found().last == ()


# ---- how often the member looks up the coordinator -------------------------------------------------------------------


def test_longest_pause_is_a_fifth_of_the_remaining_session() -> None:
    """Lookups pause for a fifth of the remaining session, one second at most. After the session there is no limit."""
    scene = stable(A0).feed(SessionTimeoutLearned(session_timeout_s=6.0))
    heartbeat_at = scene.protocol.last_heartbeat_at
    assert heartbeat_at is not None
    pauses = [scene.member.longest_pause_s(heartbeat_at + gone_s) for gone_s in (0.0, 3.0, 5.5, 6.0)]
    assert [None if pause is None else round(pause, 3) for pause in pauses] == [1.0, 0.6, 0.1, None]


def test_longest_pause_assumes_the_default_session_if_it_is_unknown() -> None:
    """Brokers do not report the session timeout to dynamic members of the consumer protocol."""
    scene = stable(A0)
    heartbeat_at = scene.protocol.last_heartbeat_at
    assert heartbeat_at is not None
    assert [scene.member.longest_pause_s(heartbeat_at + gone_s) for gone_s in (0.0, 40.0, 45.0)] == [1.0, 1.0, None]


def test_longest_pause_is_unlimited_outside_the_group() -> None:
    """There is no limit before the first response and outside the group, but a leave limits the pause to one second."""
    assert [scene.member.longest_pause_s(scene.now) for scene in (Scene(), joining(), fatal(), stale())] == [None] * 4
    assert unsubscribing().member.longest_pause_s(0.0) == 1.0
