"""The exact ends of the classic coordinator's timers, which only virtual time shows (rules 3.4 and 4.9).

The other modules of this package test the rules that are also visible on a broker.
"""

from __future__ import annotations

import pytest

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.classic.group import GroupState, TimerKind
from consumer_membership.testing.coordinators.exchanges import (
    ClassicHeartbeat,
    Commit,
    Joined,
    LeaveGroup,
    LeavingMember,
)
from consumer_membership.testing.coordinators.journal import RebalanceBegan, Removed
from consumer_membership.testing.coordinators.rules import ClassicRules, Refused
from consumer_membership.types import OffsetAndMetadata
from tests.simulation.classic.scene import (
    A,
    answer,
    call,
    coordinator,
    expect,
    gathering,
    group_of,
    join,
    journal,
    new_id,
    stable,
    sync,
)
from tests.simulation.under_test import TOPIC

UNKNOWN = Refused(code.UNKNOWN_MEMBER_ID)
STATIC = (join(instance_id="i0"), join(instance_id="i1"))
OFFSETS = {A[0]: OffsetAndMetadata(offset=7)}


def rebalances(sut: ClassicCoordinator) -> int:
    """Return the number of rebalances after the first rebalance."""
    return len(journal(sut, RebalanceBegan)) - 1


def commit(member_id: str = "", generation: int = -1) -> Commit:
    """Return a commit of one offset."""
    return Commit(member_id=member_id, generation=generation, offsets=OFFSETS)


def test_initial_delay_is_extended_while_members_join() -> None:
    """Rules 4.9: The initial delay is 3 s, and a join extends it by 3 s, up to a rebalance timeout."""
    sut = coordinator(ClassicRules())
    ids = [new_id(sut), new_id(sut)]
    call(sut, 1, join(ids[0]), 0.0)
    call(sut, 2, join(ids[1]), 2.0)
    assert (sut.pass_time(3.0), sut.next_deadline()) == ([], 6.0)
    assert {key for key, _ in sut.pass_time(6.0)} == {1, 2}


def test_initial_delay_ends_with_the_rebalance_timeout() -> None:
    """Rules 4.9: Joining members do not extend the initial delay beyond the rebalance timeout."""
    sut = coordinator(ClassicRules())
    ends: list[float] = []
    for second in range(8):
        call(sut, second, join(instance_id=f"i{second}", rebalance_timeout_s=5.0), float(second))
        ends += [float(second)] if sut.pass_time(float(second)) else []
    assert ends == [5.0]


def test_new_member_whose_join_waits_too_long_is_removed() -> None:
    """Rules 4.9: The join of a new member, which may have ended, waits at most five minutes; known members stay."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, new_member_join_timeout_s=30.0))
    leader, follower = stable(sut, join(), join())
    call(sut, "new", join(new_id(sut)), 0.0)
    call(sut, "leader", join(leader.member_id), 0.0)
    for second in range(0, 30, 5):
        answer(sut, ClassicHeartbeat(member_id=follower.member_id, generation=1), float(second))
        assert sut.pass_time(float(second)) == []
    answer(sut, ClassicHeartbeat(member_id=follower.member_id, generation=1), 29.0)
    assert sut.pass_time(30.0) == [("new", UNKNOWN)]


def test_newest_join_s_timeouts_apply() -> None:
    """KAFKA-14009: The timeouts of a member's newest join apply; the group waits for the longest rebalance timeout."""
    sut = coordinator()
    leader, _ = stable(sut, join(), join())
    call(sut, 1, join(leader.member_id, rebalance_timeout_s=100.0), 1.0)
    assert TimerKind.JOIN in {timer.kind for _, timer in sut.timers() if timer.at == 101.0}


def test_only_the_newest_join_of_a_member_is_answered() -> None:
    """Rules 4.2: The coordinator drops an older join of the same member, whose client has abandoned it."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    call(sut, "old", join(leader.member_id), 1.0)
    call(sut, "new", join(leader.member_id), 1.0)
    assert sut.waiting() == {"new"}
    assert call(sut, "other", join(follower.member_id), 1.0).keys() == {"new", "other"}


def test_waiting_join_keeps_a_known_member_alive() -> None:
    """Rules 4.3: A waiting JoinGroup replaces heartbeats, and its response restarts the session."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    call(sut, "leader", join(leader.member_id), 1.0)
    for second in (5.0, 14.0, 23.0):
        answer(sut, ClassicHeartbeat(member_id=follower.member_id, generation=1), second)
        assert sut.pass_time(second) == []
        assert (sut.next_deadline() or 0.0) > second
    assert call(sut, 1, join(follower.member_id), 30.0).keys() == {"leader", 1}
    assert sut.next_deadline() == 40.0


def test_waiting_sync_keeps_a_member_alive() -> None:
    """Rules 4.9: A waiting SyncGroup keeps its member without heartbeats while the leader assigns."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    call(sut, "waits", sync(follower))
    for second in (8.0, 16.0):
        answer(sut, ClassicHeartbeat(member_id=leader.member_id, generation=1), second)
        assert sut.pass_time(second) == []
    assert call(sut, 1, sync(leader), 17.0).keys() == {"waits", 1}
    answer(sut, ClassicHeartbeat(member_id=leader.member_id, generation=1), 18.0)
    assert sut.next_deadline() == 27.0


def test_returning_static_member_s_session_restarts() -> None:
    """The session of a returning static member restarts, with the former timeout until the next heartbeat."""
    sut = coordinator()
    stable(sut, STATIC[0])
    again = expect(Joined, answer(sut, join(instance_id="i0", session_timeout_s=20.0), 5.0))
    assert sut.next_deadline() == 15.0
    answer(sut, ClassicHeartbeat(member_id=again.member_id, generation=1, instance_id="i0"), 6.0)
    assert sut.next_deadline() == 26.0


@pytest.mark.parametrize(
    ("sees", "topics", "expected"),
    [(False, (TOPIC, "b"), 0), (True, (TOPIC, "b"), 1), (True, (TOPIC,), 0)],
    ids=["4.x", "KAFKA-12759", "KAFKA-12759, unchanged"],
)
def test_other_topics_of_a_returning_member_begin_no_rebalance(
    topics: tuple[str, ...], expected: int, *, sees: bool
) -> None:
    """KAFKA-12759 (open): Other topics of a returning member begin a rebalance only if the broker compares them."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, sees_returning_subscriptions=sees))
    stable(sut, *STATIC)
    call(sut, 1, join(instance_id="i1", topics=topics), 1.0)
    assert rebalances(sut) == expected


def test_session_extended_by_a_join_phase_does_not_end_with_it() -> None:
    """If a join phase and a session end at the same time, the end of the join phase first extends the session."""
    sut = coordinator()
    leader, static = stable(sut, *(join(instance_id=f"i{n}", session_timeout_s=60.0) for n in range(2)))
    call(sut, "leader", join(leader.member_id, instance_id="i0", session_timeout_s=60.0), 0.0)
    sut.pass_time(60.0)
    assert group_of(sut).roster.members.keys() == {leader.member_id, static.member_id}


def test_join_phase_without_a_static_member_s_join_lasts_until_their_sessions_end() -> None:
    """A join phase that no member joins is repeated until the sessions have ended and the group has no member."""
    sut = coordinator()
    members = stable(sut, *(join(instance_id=f"i{number}", session_timeout_s=100.0) for number in range(3)))
    answer(sut, LeaveGroup(members=(LeavingMember(members[2].member_id),)), 0.0)
    assert (sut.pass_time(60.0), group_of(sut).generation, group_of(sut).join_ends_at) == ([], 1, 120.0)
    sut.pass_time(100.0)
    assert [entry.reason for entry in journal(sut, Removed)] == ["left", "session", "session"]
    assert (group_of(sut).state, group_of(sut).generation) == (GroupState.EMPTY, 2)


def test_accepted_commit_counts_as_a_heartbeat() -> None:
    """An accepted commit restarts the session of its member, like a heartbeat."""
    sut = coordinator()
    (leader,) = stable(sut, join())
    answer(sut, commit(leader.member_id, 1), 7.0)
    assert sut.next_deadline() == 17.0
