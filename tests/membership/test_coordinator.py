"""Where the coordinator is, and what its loss means (CoordinatorRequestManagerTest)."""

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
    """A coordinator that is not known, in an event at this moment."""
    event = EventContext()
    event.begin(now)
    return event, Coordinator(event, History(event))


def test_search_that_succeeds_makes_it_known() -> None:
    """FindCoordinator once, then the address."""
    event, coordinator = coordinator_at(1.0)
    coordinator.search("first use")
    coordinator.found(COORDINATOR)
    assert (event.effects(), coordinator.is_known, coordinator.address) == (
        (FindCoordinator(reason="first use"),),
        True,
        COORDINATOR,
    )


def test_one_search_runs_at_a_time() -> None:
    """A second reason while a search runs orders nothing: the network searches until it finds."""
    event, coordinator = coordinator_at(1.0)
    coordinator.search("first")
    event.begin(2.0)
    coordinator.search("second")
    assert (event.effects(), coordinator.searching_since) == ((), 1.0)


def test_lost_coordinator_is_searched_anew() -> None:
    """A search that ended does not keep the next one from beginning."""
    scene = stable(A0).feed(CoordinatorLost(reason="closed")).found().feed(CoordinatorLost(reason="closed"))
    assert [order.reason for order in scene.new(FindCoordinator)] == ["closed"]


def test_nothing_is_looked_up_before_something_needs_it() -> None:
    """A consumer that does nothing asks for no coordinator."""
    assert Scene().poll().subscribe("orders").after(60.0).all(FindCoordinator) == []


def test_commit_without_membership_looks_the_coordinator_up() -> None:
    """Commits need the coordinator without any subscription."""
    assert Scene().commit(3, A0).kinds == ["FindCoordinator"]


def test_refused_lookup_is_told_and_changes_no_state() -> None:
    """GROUP_AUTHORIZATION_FAILED of FindCoordinator: the application hears of it, the search goes on (not FATAL)."""
    scene = Scene().subscribe("orders").poll().feed(CoordinatorLookupFailed(error=NOT_ALLOWED))
    assert scene.new(RaiseToApplication) == [RaiseToApplication(problem=Problem.REFUSED, error=NOT_ALLOWED)]
    assert scene.state is MemberState.JOINING
    assert scene.found().new_beats[0].member_epoch == 0


def test_refused_lookup_fails_the_commits_that_wait_for_it() -> None:
    """Pending commits end with the refusal instead of waiting for a coordinator that will not come (KAFKA-18034)."""
    scene = Scene().commit(3, A0).feed(CoordinatorLookupFailed(error=NOT_ALLOWED))
    assert errors_of(scene) == {1: NOT_ALLOWED}


def test_refused_lookup_lets_a_revocation_go_on() -> None:
    """The commit before a revocation is among them: on_revoke follows."""
    scene = revoking().feed(CoordinatorLost(reason="closed")).finish(at(5, A1))
    assert scene.feed(CoordinatorLookupFailed(error=NOT_ALLOWED)).kinds == [
        "RaiseToApplication",
        "CommitCompleted",
        "RevokePartitions",
    ]


def test_commit_that_meets_another_coordinator_searches_it_and_goes_on() -> None:
    """NOT_COORDINATOR for a commit: search, then the same commit."""
    scene = stable(A0).commit(3, A0).committed(CommitVerdict.REDISCOVER, MOVED)
    assert scene.kinds == ["FindCoordinator"]
    scene.found().until(lambda s: bool(s.new(CommitOffsets)))
    assert len(scene.all(CommitOffsets)) == 2


def test_failure_of_a_commit_that_is_over_searches_nothing() -> None:
    """A late failure says nothing of the coordinator that was found meanwhile."""
    scene = stable(A0).commit(3, A0).committed()
    assert scene.feed(CommitFailed(commit_id=1, reason="disconnected")).last == ()


def test_coordinator_that_was_found_twice_is_the_latter() -> None:
    """Found is found; nothing else happens in a calm member."""
    assert stable(A0).found().last == ()


# ---- how often brokers are tried -------------------------------------------------------------------------------------


def test_member_with_a_place_is_not_kept_from_its_coordinator() -> None:
    """A fifth of what is left of the session, a second at most; afterwards nothing is at stake any more."""
    scene = stable(A0).feed(SessionTimeoutLearned(session_timeout_s=6.0))
    heard = scene.protocol.last_heartbeat_at
    assert heard is not None
    pauses = [scene.member.longest_pause_s(heard + gone_s) for gone_s in (0.0, 3.0, 5.5, 6.0)]
    assert [None if pause is None else round(pause, 3) for pause in pauses] == [1.0, 0.6, 0.1, None]


def test_member_of_an_unknown_session_takes_the_usual_one() -> None:
    """Nobody tells a dynamic member of the consumer protocol."""
    scene = stable(A0)
    heard = scene.protocol.last_heartbeat_at
    assert heard is not None
    assert [scene.member.longest_pause_s(heard + gone_s) for gone_s in (0.0, 40.0, 45.0)] == [1.0, 1.0, None]


def test_nothing_is_at_stake_without_a_place() -> None:
    """Before the first answer, and out of the group; but a leave is not to be kept waiting."""
    assert [scene.member.longest_pause_s(scene.now) for scene in (Scene(), joining(), fatal(), stale())] == [None] * 4
    assert unsubscribing().member.longest_pause_s(0.0) == 1.0
