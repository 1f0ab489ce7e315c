"""Members of classic groups with an instance id (KIP-345, KIP-814; rules 3.4), on the simulation and on brokers.

Each test runs on the simulated coordinator and, marked integration, on a real coordinator.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    Commit,
    CommitResults,
    Joined,
    LeaveGroup,
    LeavingMember,
    Synced,
)
from consumer_membership.testing.coordinators.rules import Refused
from consumer_membership.types import OffsetAndMetadata
from tests.simulation.classic.rule_scene import (
    LONG_S,
    PREPARING,
    SHORT_S,
    STABLE,
    Sut,
    gathering,
    heartbeat,
    join,
    rejoin,
    send_and_see,
    stable,
)
from tests.simulation.classic.scene import A, expect, sync

FENCED = Refused(code.FENCED_INSTANCE_ID)
UNKNOWN = Refused(code.UNKNOWN_MEMBER_ID)
STATIC = (join(instance_id="i0"), join(instance_id="i1"))
#: Joins whose sessions do not end within a test, but whose rebalance timeout does.
QUICK = tuple(replace(one, session_timeout_s=LONG_S, rebalance_timeout_s=SHORT_S) for one in STATIC)


def test_static_member_joins_without_member_id_required(classic: Sut) -> None:
    """Static members join without MEMBER_ID_REQUIRED, and their ids begin with the instance id."""
    assert [member.member_id[:3] for member in gathering(classic, *STATIC)] == ["i0-", "i1-"]


def test_returning_follower_gets_its_assignment_back_without_a_rebalance(classic: Sut) -> None:
    """In a stable group, a returning follower gets a new id, the current generation, and its former assignment."""
    leader, follower = stable(classic, *STATIC)
    again = expect(Joined, classic.call(STATIC[1]))
    assert again.member_id not in {leader.member_id, follower.member_id}
    assert (again.generation, again.leader_id) == (leader.generation, leader.member_id)
    assert (again.members, again.skip_assignment) == ((), False)
    assert classic.call(sync(again)) == Synced(assignor="range", assignment=frozenset({A[1]}))
    assert classic.members() == {leader.member_id, again.member_id}
    assert classic.state() == STABLE


@pytest.mark.parametrize(("version", "leads"), [(9, True), (8, False)])
def test_returning_leader_leads_and_skips_its_assignment(classic: Sut, version: int, *, leads: bool) -> None:
    """KIP-814: A returning leader gets all members and skips the assignment; before version 9 it does not lead."""
    leader, follower = stable(classic, *STATIC)
    again = expect(Joined, classic.call(join(instance_id="i0", version=version)))
    assert {one.member_id for one in again.members} == ({follower.member_id, again.member_id} if leads else set())
    assert {one.subscription.instance_id for one in again.members} == ({"i0", "i1"} if leads else set())
    assert (again.skip_assignment, again.leader_id) == (leads, again.member_id if leads else leader.member_id)


def test_former_holder_of_an_instance_id_is_fenced(classic: Sut) -> None:
    """Each request of the former holder of an instance id gets FENCED_INSTANCE_ID."""
    old = stable(classic, *STATIC)[1]
    expect(Joined, classic.call(STATIC[1]))
    offsets = {A[1]: OffsetAndMetadata(offset=7)}
    commit = Commit(member_id=old.member_id, generation=old.generation, instance_id="i1", offsets=offsets)
    assert classic.call(heartbeat(old, "i1")) == FENCED
    assert classic.call(sync(old, instance_id="i1")) == FENCED
    assert classic.call(rejoin(STATIC[1], old)) == FENCED
    assert classic.call(commit) == CommitResults(codes={A[1]: FENCED.code})
    assert classic.call(heartbeat(old)) == UNKNOWN
    assert classic.call(heartbeat(old, "i9")) == UNKNOWN


def test_waiting_join_of_the_former_holder_is_fenced_at_once(classic: Sut) -> None:
    """A waiting join of the former holder is fenced at its replacement, which takes part in the current rebalance."""
    leader, follower = stable(classic, *STATIC)
    send_and_see(classic, "leader", rejoin(STATIC[0], leader))
    classic.send("new", STATIC[0])
    assert classic.receive("leader") == FENCED
    other = expect(Joined, classic.call(rejoin(STATIC[1], follower)))
    new = expect(Joined, classic.receive("new"))
    assert {one.leader_id for one in (other, new)} == {new.member_id}
    assert {one.generation for one in (other, new)} == {leader.generation + 1}


def test_waiting_sync_of_the_former_holder_is_fenced_at_once(classic: Sut) -> None:
    """A replacement while the leader may assign to the former id fences the former holder and begins a rebalance."""
    leader, follower = gathering(classic, *STATIC)
    classic.send("follower", sync(follower, instance_id="i1"))
    send_and_see(classic, "new", STATIC[1])
    assert classic.receive("follower") == FENCED
    expect(Joined, classic.call(rejoin(STATIC[0], leader)))
    expect(Joined, classic.receive("new"))


def test_other_assignor_of_a_returning_member_begins_a_rebalance(classic: Sut) -> None:
    """A returning member begins a rebalance if the next generation would elect another assignor."""
    (former,) = stable(classic, join(instance_id="i0", assignors=("range", "sticky")))
    again = expect(Joined, classic.call(join(instance_id="i0", assignors=("sticky",))))
    assert (former.assignor, again.assignor, again.generation) == ("range", "sticky", former.generation + 1)


def test_other_topics_of_a_returning_member_begin_no_rebalance(classic: Sut) -> None:
    """KAFKA-12759 (open): A returning member's other topics begin no rebalance: only the assignor is compared."""
    _, follower = stable(classic, *STATIC)
    again = expect(Joined, classic.call(join(instance_id="i1", topics=("b",))))
    assert (again.generation, classic.state()) == (follower.generation, STABLE)


def test_static_member_that_does_not_rejoin_in_time_stays_in_the_group(classic: Sut) -> None:
    """A static member stays in the group after the rebalance timeout, but its generation gets ILLEGAL_GENERATION."""
    leader, static = stable(classic, *QUICK)
    joined = expect(Joined, classic.call(rejoin(QUICK[0], leader)))
    assert {one.member_id for one in joined.members} == {leader.member_id, static.member_id}
    assert classic.call(heartbeat(static, "i1")) == Refused(code.ILLEGAL_GENERATION)


def test_static_leader_that_does_not_rejoin_in_time_is_no_longer_the_leader(classic: Sut) -> None:
    """A static leader that does not rejoin in time stays a member, and the first member that joined leads."""
    leader, follower = stable(classic, *QUICK)
    changed = replace(QUICK[1], offers=join(topics=("b",)).offers)
    joined = expect(Joined, classic.call(rejoin(changed, follower)))
    assert (joined.leader_id, len(joined.members)) == (follower.member_id, 2)
    assert classic.members() == {leader.member_id, follower.member_id}


def test_static_member_that_does_not_sync_is_removed(classic: Sut) -> None:
    """Rules 4.9: A static member that does not send a SyncGroup in time is removed."""
    leader, static = gathering(classic, *QUICK)
    expect(Synced, classic.call(sync(leader, instance_id="i0")))
    classic.until(lambda: classic.state() == PREPARING)
    assert classic.members() == {leader.member_id}
    assert classic.call(heartbeat(static, "i1")) == UNKNOWN


def test_leave_group_removes_a_member_by_instance_id(classic: Sut) -> None:
    """Rules 3.5: An administrator's LeaveGroup with an instance id and no member id removes the static member."""
    leader, static = stable(classic, *STATIC)
    classic.call(LeaveGroup(members=(LeavingMember(instance_id="i1"),)))
    assert classic.members() == {leader.member_id}
    assert classic.call(heartbeat(static, "i1")) == UNKNOWN
    assert classic.call(heartbeat(leader, "i0")) not in (Alive(), UNKNOWN)


def test_returning_static_member_finds_a_full_group_full(small_classic: Sut) -> None:
    """KIP-389, KIP-345: A full group rejects a returning instance id, which counts as new without a member id."""
    stable(small_classic, *STATIC)
    assert small_classic.call(STATIC[0]) == Refused(code.GROUP_MAX_SIZE_REACHED)
