"""The classic coordinator and members that have an instance id (KIP-345, KIP-814; rules 3.4)."""

from __future__ import annotations

import pytest

from consumer_membership.types import OffsetAndMetadata
from tests.simulation import rules as code
from tests.simulation.classic.coordinator import ClassicCoordinator
from tests.simulation.classic.group import GroupState
from tests.simulation.classic.scene import (
    A,
    answer,
    ask,
    coordinator,
    gathering,
    group_of,
    join,
    journal,
    stable,
    sync,
    told,
)
from tests.simulation.exchanges import (
    Alive,
    Beat,
    Commit,
    CommitResults,
    Joined,
    Leave,
    MemberIdentity,
    Synced,
)
from tests.simulation.journal import JoinsCompleted, RebalanceBegan, Removed, Replaced
from tests.simulation.rules import ClassicRules, Refused

FENCED = Refused(code.FENCED_INSTANCE_ID)
UNKNOWN = Refused(code.UNKNOWN_MEMBER_ID)
STATIC = (join(instance_id="i0"), join(instance_id="i1"))


def rebalances(sut: ClassicCoordinator) -> int:
    """How many rebalances there were after the first one."""
    return len(journal(sut, RebalanceBegan)) - 1


def test_static_member_needs_no_id_first() -> None:
    """MEMBER_ID_REQUIRED is never used for static members; their ids begin with the instance id."""
    assert [member.member_id for member in gathering(coordinator(), *STATIC)] == ["i0-1", "i1-2"]


def test_returning_follower_gets_its_assignment_back_without_a_rebalance() -> None:
    """Stable group, same assignor: a new id in the current generation, then SyncGroup repeats the assignment."""
    sut = coordinator()
    leader, follower = stable(sut, *STATIC)
    again = told(Joined, answer(sut, STATIC[1], 1.0))
    assert (again.member_id, again.generation, again.leader_id) == ("i1-3", 1, leader.member_id)
    assert (again.members, again.skip_assignment) == ((), False)
    assert answer(sut, sync(again), 1.0) == Synced(assignor="range", assignment=frozenset({A[1]}))
    assert journal(sut, Replaced) == [Replaced(instance_id="i1", former_id=follower.member_id, member_id="i1-3")]
    assert rebalances(sut) == 0


@pytest.mark.parametrize(("version", "leads"), [(9, True), (8, False)])
def test_returning_leader_leads_and_skips_its_assignment(version: int, *, leads: bool) -> None:
    """KIP-814: it sees all members and need not assign; before version 9 it must not take itself for the leader."""
    sut = coordinator()
    leader, follower = stable(sut, *STATIC)
    again = told(Joined, answer(sut, join(instance_id="i0", version=version), 1.0))
    ids = (follower.member_id, again.member_id)
    assert tuple(one.member_id for one in again.members) == (ids if leads else ())
    assert {one.subscription.instance_id for one in again.members} == ({"i0", "i1"} if leads else set())
    assert (again.skip_assignment, again.leader_id) == (leads, again.member_id if leads else leader.member_id)


def test_returning_members_session_starts_anew() -> None:
    """It counts from the return, though with the former process's timeout until the next heartbeat."""
    sut = coordinator()
    stable(sut, STATIC[0])
    again = told(Joined, answer(sut, join(instance_id="i0", session_timeout_s=20.0), 5.0))
    assert sut.next_deadline() == 15.0
    answer(sut, Beat(member_id=again.member_id, generation=1, instance_id="i0"), 6.0)
    assert sut.next_deadline() == 26.0


def test_former_holder_of_an_instance_id_is_fenced() -> None:
    """FENCED_INSTANCE_ID for whatever it sends with its instance id."""
    sut = coordinator()
    old = stable(sut, *STATIC)[1]
    answer(sut, STATIC[1], 1.0)
    offsets = {A[1]: OffsetAndMetadata(offset=7)}
    commit = Commit(member_id=old.member_id, generation=1, instance_id="i1", offsets=offsets)
    assert answer(sut, Beat(member_id=old.member_id, generation=1, instance_id="i1"), 1.0) == FENCED
    assert answer(sut, sync(old, instance_id="i1"), 1.0) == FENCED
    assert answer(sut, join(old.member_id, instance_id="i1"), 1.0) == FENCED
    assert answer(sut, commit, 1.0) == CommitResults(codes={A[1]: FENCED.code})
    assert answer(sut, Beat(member_id=old.member_id, generation=1), 1.0) == UNKNOWN
    assert answer(sut, Beat(member_id=old.member_id, generation=1, instance_id="i9"), 1.0) == UNKNOWN


def test_waiting_join_of_the_former_holder_is_fenced_at_once() -> None:
    """While preparing, the new id takes part in the rebalance that runs."""
    sut = coordinator()
    leader, follower = stable(sut, *STATIC)
    ask(sut, "leader", join(leader.member_id, instance_id="i0"), 1.0)
    assert ask(sut, "new", STATIC[0], 1.0) == {"leader": FENCED}
    answers = ask(sut, "other", join(follower.member_id, instance_id="i1"), 1.0)
    assert {told(Joined, given).leader_id for given in answers.values()} == {"i0-3"}
    assert rebalances(sut) == 1


def test_waiting_sync_of_the_former_holder_is_fenced_at_once() -> None:
    """While completing, a new rebalance begins: the leader may be about to assign to the former id."""
    sut = coordinator()
    leader, follower = gathering(sut, *STATIC)
    ask(sut, "follower", sync(follower, instance_id="i1"))
    assert ask(sut, "new", STATIC[1]) == {"follower": FENCED}
    assert group_of(sut).state is GroupState.PREPARING_REBALANCE
    assert ask(sut, "leader", join(leader.member_id, instance_id="i0")).keys() == {"leader", "new"}


def test_other_assignor_of_a_returning_member_begins_a_rebalance() -> None:
    """The assignor that the next generation would choose is another one."""
    sut = coordinator()
    stable(sut, join(instance_id="i0", assignors=("range", "sticky")))
    assert ask(sut, 1, join(instance_id="i0", assignors=("sticky",)), 1.0).keys() == {1}
    assert [entry.assignor for entry in journal(sut, JoinsCompleted)] == ["range", "sticky"]


@pytest.mark.parametrize(
    ("sees", "topics", "expected"),
    [(False, ("a", "b"), 0), (True, ("a", "b"), 1), (True, ("a",), 0)],
    ids=["4.x", "KAFKA-12759", "KAFKA-12759, unchanged"],
)
def test_other_topics_of_a_returning_member_begin_no_rebalance(
    topics: tuple[str, ...], expected: int, *, sees: bool
) -> None:
    """KAFKA-12759 (open): only the assignor's name is compared, so that the old assignment comes back."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, sees_returning_subscriptions=sees))
    stable(sut, *STATIC)
    ask(sut, 1, join(instance_id="i1", topics=topics), 1.0)
    assert rebalances(sut) == expected


def test_static_member_stays_although_it_does_not_join_in_time() -> None:
    """Dynamic ones are dropped at the rebalance timeout; its session starts anew, and the assignor sees it."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0))
    leader, static = stable(
        sut, join(instance_id="i0", session_timeout_s=100.0), join(instance_id="i1", session_timeout_s=100.0)
    )
    ask(sut, "leader", join(leader.member_id, instance_id="i0", session_timeout_s=100.0), 1.0)
    (released,) = sut.pass_time(61.0)
    assert {one.member_id for one in told(Joined, released.answer).members} == {leader.member_id, static.member_id}
    assert answer(sut, Beat(member_id=static.member_id, generation=1, instance_id="i1"), 62.0) == Refused(
        code.ILLEGAL_GENERATION
    )


def test_session_that_a_join_phase_prolongs_does_not_end_with_it() -> None:
    """What ends first at one moment counts for what would have ended after it."""
    sut = coordinator()
    leader, static = stable(sut, *(join(instance_id=f"i{n}", session_timeout_s=60.0) for n in range(2)))
    ask(sut, "leader", join(leader.member_id, instance_id="i0", session_timeout_s=60.0), 0.0)
    sut.pass_time(60.0)
    assert group_of(sut).roster.members.keys() == {leader.member_id, static.member_id}


def test_static_leader_that_does_not_join_in_time_loses_its_lead() -> None:
    """It stays a member; the first that joined leads."""
    sut = coordinator()
    leader, follower = stable(sut, *(join(instance_id=f"i{n}", session_timeout_s=100.0) for n in range(2)))
    changed = join(follower.member_id, instance_id="i1", topics=("b",), session_timeout_s=100.0)
    ask(sut, "follower", changed, 1.0)
    (released,) = sut.pass_time(61.0)
    joined = told(Joined, released.answer)
    assert (joined.leader_id, len(joined.members)) == (follower.member_id, 2)
    assert journal(sut, Removed) == []
    assert leader.member_id in group_of(sut).roster.members


def test_static_members_of_whom_none_joins_are_waited_for_until_their_sessions_end() -> None:
    """A join phase that nobody took part in begins anew, until there is nobody any more."""
    sut = coordinator()
    members = stable(sut, *(join(instance_id=f"i{number}", session_timeout_s=100.0) for number in range(3)))
    answer(sut, Leave(members=(MemberIdentity(members[2].member_id),)), 0.0)
    assert (sut.pass_time(60.0), group_of(sut).generation, group_of(sut).join_ends_at) == ([], 1, 120.0)
    sut.pass_time(100.0)
    assert [entry.reason for entry in journal(sut, Removed)] == ["left", "session", "session"]
    assert (group_of(sut).state, group_of(sut).generation) == (GroupState.EMPTY, 2)


def test_static_member_that_does_not_sync_is_removed() -> None:
    """Rules 4.9: the sync phase spares nobody."""
    sut = coordinator()
    leader, static = gathering(sut, *(join(instance_id=f"i{n}", session_timeout_s=100.0) for n in range(2)))
    ask(sut, 1, sync(leader))
    sut.pass_time(60.0)
    assert journal(sut, Removed) == [Removed(member_id=static.member_id, reason="sync")]


def test_administrator_removes_by_instance_id() -> None:
    """Rules 3.5: with an empty member id."""
    sut = coordinator()
    leader, static = stable(sut, *STATIC)
    answer(sut, Leave(members=(MemberIdentity(instance_id="i1"),)), 1.0)
    assert journal(sut, Removed) == [Removed(member_id=static.member_id, reason="left")]
    assert answer(sut, Beat(member_id=static.member_id, generation=1, instance_id="i1"), 1.0) == UNKNOWN
    assert answer(sut, Beat(member_id=leader.member_id, generation=1, instance_id="i0"), 1.0) != Alive()


def test_static_and_new_members_share_the_groups_size() -> None:
    """KIP-389, KIP-345: a returning instance id has no member id, and so finds a full group full."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, max_size=2))
    stable(sut, *STATIC)
    assert answer(sut, STATIC[0], 1.0) == Refused(code.GROUP_MAX_SIZE_REACHED)
