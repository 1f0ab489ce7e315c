"""A static member's process is killed at each point of the protocol and restarted at once, on a real broker (SIGKILL).

Each test shows: the restarted member gets the partitions that the coordinator assigned to its instance id; no partition
of another member moves because of the kill or the restart; no record is lost; and the repeated records are exactly
those that the killed process had received and not committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.environments import COOPERATIVE, EAGER
from tests.integration.group_under_test import DEPTH, PARTITIONS, GroupUnderTest, new_group, partitions_of
from tests.support.brokers import RunBrokers
from tests.support.versions import NEWEST, OLDEST
from tests.support.victim import Order, Point

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def on_versions(*points: Point, also_on_oldest: tuple[Point, ...]) -> list[object]:
    """Each point on the newest broker, and some of them on the oldest."""
    return [
        pytest.param(version, point, id=f"{point.replace(' ', '-')}-{version}")
        for version, chosen in ((NEWEST, points), (OLDEST, also_on_oldest))
        for point in chosen
    ]


@pytest.fixture
def group(broker_pool: RunBrokers, version: str, tmp_path: Path) -> Iterator[GroupUnderTest]:
    """A new group on the broker of the parameter `version`, with Kafka's own settings: sessions of 45 s."""
    with new_group(broker_pool.shared(version), tmp_path) as group:
        yield group


# ---- STABLE ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [NEWEST, OLDEST])
@pytest.mark.parametrize("commits", [True, False], ids=["committed", "uncommitted"])
def test_restart_after_a_kill_while_stable_keeps_partitions_and_epoch(group: GroupUnderTest, *, commits: bool) -> None:
    """The restarted member gets the same partitions and no other member changes.

    Exactly the uncommitted records are repeated.
    """
    other, victim = group.worker("other"), group.victim()
    owned = victim.settled(6)
    other.settled(6)
    group.leave_uncommitted(victim, held=6)
    if commits:
        victim.commit()
    before, calls = group.describe(), list(other.notes.calls)
    victim.kill()
    group.expect_redelivery(victim)
    assert group.expected_repeats.total() == (0 if commits else 6 * DEPTH)
    group.produce()
    again = group.victim()
    assert again.settled(6) == owned
    group.wait_for_all_records(again)
    group.check()
    assert (other.notes.calls, group.describe().epoch) == (calls, before.epoch)
    assert again.account.calls == [("assign", tuple(sorted(owned)))]


# ---- JOINING ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "point"),
    on_versions(Point.JOIN_UNSENT, Point.JOIN_UNHEARD, also_on_oldest=(Point.JOIN_UNHEARD,)),
)
def test_restart_after_a_kill_in_the_first_join_causes_one_rebalance(group: GroupUnderTest, point: Point) -> None:
    """The other member revokes once, whether or not the coordinator had received the killed process's join."""
    other = group.worker("other")
    other.settled(PARTITIONS)
    group.produce()
    before = group.describe()
    victim = group.victim(point, is_armed=True)
    victim.died()
    group.expect_redelivery(victim)
    after = group.describe()
    assert (before.epoch, after.epoch).count(None) == 0
    knows = point is Point.JOIN_UNHEARD
    assert after.epoch == (before.epoch or 0) + knows
    again = group.victim()
    owned = again.settled(6)
    other.settled(6)
    group.produce()
    group.wait_for_all_records(again)
    group.check()
    settled = group.describe()
    assert (group.target(settled), settled.epoch) == (owned, (before.epoch or 0) + 1)
    # The first assignment is reported even if it is empty: the coordinator has just learned of the topic.
    calls = [(name, frozenset(p for _, p in partitions)) for name, partitions in other.notes.calls if partitions]
    assert calls == [("assign", frozenset(range(PARTITIONS))), ("revoke", owned)]


@pytest.mark.parametrize(
    ("version", "point"),
    on_versions(Point.JOIN_UNSENT, Point.HOLDER_RELEASED, Point.JOIN_UNHEARD, also_on_oldest=(Point.HOLDER_RELEASED,)),
)
def test_restart_after_a_kill_during_the_takeover_gets_the_first_partitions(
    group: GroupUnderTest, point: Point
) -> None:
    """The third process gets the partitions of the first, after kills while STABLE and during the takeover."""
    other, victim = group.worker("other"), group.victim()
    owned = victim.settled(6)
    other.settled(6)
    group.leave_uncommitted(victim, held=6)
    before, calls = group.describe(), list(other.notes.calls)
    victim.kill()
    group.expect_redelivery(victim)
    assert group.expected_repeats.total() == 6 * DEPTH
    second = group.victim(point, is_armed=True)
    second.died()
    assert second.account.records == []
    group.produce()
    third = group.victim()
    assert third.settled(6) == owned
    group.wait_for_all_records(third)
    group.check()
    assert (other.notes.calls, group.describe().epoch) == (calls, before.epoch)


# ---- RECONCILE, ACK --------------------------------------------------------------------------------------------------


#: How many partitions' worth of records were not committed: those that are kept, or all six.
KEPT, ALL = 4, 6
WHEN_REVOKING = {
    Point.COMMIT_UNSENT: ALL,
    Point.COMMITTED: KEPT,
    Point.IN_ON_REVOKE: KEPT,
    Point.REVOKED: KEPT,
    Point.ACK_UNSENT: KEPT,
    Point.ACK_UNHEARD: KEPT,
}


@pytest.mark.parametrize(
    ("version", "point"),
    on_versions(*WHEN_REVOKING, also_on_oldest=(Point.COMMIT_UNSENT, Point.IN_ON_REVOKE)),
)
def test_restart_after_a_kill_while_revoking_gets_the_retained_partitions(group: GroupUnderTest, point: Point) -> None:
    """A third member joins.

    The restarted member gets what it was to retain, and the others revoke only what the third member gets.
    """
    other, victim = group.worker("other"), group.victim(point)
    former = victim.settled(6)
    other.settled(6)
    group.leave_uncommitted(victim, held=6)
    victim.arm()
    calls = list(other.notes.calls)
    newcomer = group.worker("newcomer")
    victim.died()
    group.expect_redelivery(victim)
    assert group.expected_repeats.total() == WHEN_REVOKING[point] * DEPTH
    after = group.describe()
    kept = group.target(after)
    assert kept < former
    group.produce()
    again = group.victim()
    assert again.settled(4) == kept
    other.settled(4)
    newcomer.settled(4)
    group.wait_for_all_records(again)
    group.check()
    assert again.account.calls == [("assign", tuple(sorted(kept)))]
    (given_up,) = other.notes.calls[len(calls) :]
    assert given_up[0] == "revoke"
    assert len(given_up[1]) == 2
    assert {name for name, _ in newcomer.notes.calls} == {"assign"}
    assert sum(len(partitions) for partitions in newcomer.notes.named("assign")) == 4
    assert group.describe().epoch == after.epoch


WHEN_ASSIGNING = (Point.IN_ON_ASSIGN, Point.ACK_UNSENT, Point.ACK_UNHEARD)


@pytest.mark.parametrize(("version", "point"), on_versions(*WHEN_ASSIGNING, also_on_oldest=(Point.IN_ON_ASSIGN,)))
def test_restart_after_a_kill_while_assigning_gets_the_whole_target(group: GroupUnderTest, point: Point) -> None:
    """A third member leaves permanently.

    The restarted member gets its own partitions and those that it was about to take over.
    """
    other, victim, leaver = group.worker("other"), group.victim(point), group.worker("leaver")
    former = victim.settled(4)
    other.settled(4)
    leaver.settled(4)
    group.leave_uncommitted(victim, held=4)
    leaver.wait(lambda w: not group.missing_of(partitions_of(w)), "its records")
    victim.arm()
    calls = list(other.notes.calls)
    leaver.stop("leave")
    victim.died()
    group.expect_redelivery(victim)
    assert group.expected_repeats.total() == 4 * DEPTH
    after = group.describe()
    target = group.target(after)
    assert former < target
    group.produce()
    again = group.victim()
    assert again.settled(6) == target
    other.settled(6)
    group.wait_for_all_records(again)
    group.check()
    assert again.account.calls == [("assign", tuple(sorted(target)))]
    assert {name for name, _ in other.notes.calls[len(calls) :]} == {"assign"}
    assert sum(len(partitions) for _, partitions in other.notes.calls[len(calls) :]) == 2
    assert group.describe().epoch == after.epoch


# ---- UNSUBSCRIBING ---------------------------------------------------------------------------------------------------


WHEN_LEAVING = {
    Point.LAST_COMMIT_UNSENT: 6,
    Point.IN_LAST_ON_REVOKE: 0,
    Point.LEAVE_UNSENT: 0,
    Point.LEAVE_UNHEARD: 0,
}


@pytest.mark.parametrize(
    ("version", "point"),
    on_versions(*WHEN_LEAVING, also_on_oldest=(Point.IN_LAST_ON_REVOKE, Point.LEAVE_UNHEARD)),
)
def test_restart_after_a_kill_while_leaving_gets_the_same_partitions(group: GroupUnderTest, point: Point) -> None:
    """The group keeps the place, whether or not the coordinator received the leave.

    Committed records are not repeated.
    """
    other, victim = group.worker("other"), group.victim(point)
    owned = victim.settled(6)
    other.settled(6)
    group.leave_uncommitted(victim, held=6)
    victim.arm()
    before, calls = group.describe(), list(other.notes.calls)
    victim.order(Order.CLOSE)
    victim.died()
    group.expect_redelivery(victim)
    assert group.expected_repeats.total() == WHEN_LEAVING[point] * DEPTH
    group.produce()
    again = group.victim()
    assert again.settled(6) == owned
    group.wait_for_all_records(again)
    group.check()
    assert (other.notes.calls, group.describe().epoch) == (calls, before.epoch)
    assert again.account.calls == [("assign", tuple(sorted(owned)))]


# ---- the classic protocol --------------------------------------------------------------------------------------------


@pytest.fixture(params=[(NEWEST, COOPERATIVE), (OLDEST, EAGER)], ids=[f"{NEWEST}-cooperative", f"{OLDEST}-eager"])
def classic(request: pytest.FixtureRequest, broker_pool: RunBrokers, tmp_path: Path) -> Iterator[GroupUnderTest]:
    """A new classic group; sessions of 45 s."""
    version, mode = request.param
    with new_group(broker_pool.shared(version), tmp_path, mode) as group:
        yield group


@pytest.mark.parametrize("point", [Point.IN_ON_REVOKE, Point.IN_ON_ASSIGN])
def test_restart_after_a_kill_in_a_classic_callback_completes_the_rebalance(
    classic: GroupUnderTest, point: Point
) -> None:
    """A third member joins. The replacement takes the killed process's place, so no member waits for its session."""
    other, victim = classic.worker("other"), classic.victim(point)
    victim.settled(6)
    other.settled(6)
    classic.leave_uncommitted(victim, held=6)
    victim.arm()
    newcomer = classic.worker("newcomer")
    victim.died()
    classic.expect_redelivery(victim)
    classic.produce()
    again = classic.victim()
    again.settled(4)
    other.settled(4)
    newcomer.settled(4)
    classic.wait_for_all_records(again)
    classic.check()
    assert (other.notes.errors, newcomer.notes.errors, again.account.errors) == ([], [], [])


def test_restart_after_a_kill_in_a_classic_close_gets_the_same_partitions(classic: GroupUnderTest) -> None:
    """A static member sends no leave when it closes.

    The group keeps its place, and committed records are not repeated.
    """
    other, victim = classic.worker("other"), classic.victim(Point.IN_LAST_ON_REVOKE)
    owned = victim.settled(6)
    other.settled(6)
    classic.leave_uncommitted(victim, held=6)
    victim.arm()
    victim.order(Order.CLOSE)
    victim.died()
    classic.expect_redelivery(victim)
    assert classic.expected_repeats.total() == 0
    classic.produce()
    again = classic.victim()
    assert again.settled(6) == owned
    classic.wait_for_all_records(again)
    classic.check()
