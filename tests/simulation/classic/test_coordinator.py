"""The rules of a classic group's coordinator (rules 3.5 to 3.7 and 4), on the simulation and on brokers.

Each test runs on the simulated coordinator and, marked integration, on a real coordinator.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    ClassicHeartbeat,
    Joined,
    JoinedMember,
    LeaveGroup,
    LeaveResults,
    LeavingMember,
    Synced,
)
from consumer_membership.testing.coordinators.rules import Refused
from tests.simulation.classic.rule_scene import (
    COMPLETING,
    EMPTY,
    LONG_S,
    PREPARING,
    SHORT_S,
    STABLE,
    Sut,
    gathering,
    heartbeat,
    join,
    new_id,
    rejoin,
    send_and_see,
    stable,
    with_id,
)
from tests.simulation.classic.scene import A, expect, sync
from tests.simulation.under_test import TOPIC

UNKNOWN = Refused(code.UNKNOWN_MEMBER_ID)
REBALANCING = Refused(code.REBALANCE_IN_PROGRESS)
ILLEGAL = Refused(code.ILLEGAL_GENERATION)
INCONSISTENT = Refused(code.INCONSISTENT_GROUP_PROTOCOL)

#: A join with other topics than `join()`.
CHANGED = join(topics=("b",))


# ---- the join phase ----


def test_dynamic_member_must_join_with_the_assigned_id(classic: Sut) -> None:
    """KIP-394, rules 4.2: A dynamic member joins with the id from MEMBER_ID_REQUIRED and keeps it."""
    member_id = new_id(classic)
    joined = expect(Joined, classic.call(join(member_id)))
    assert (joined.member_id, joined.generation) == (member_id, 1)
    assert classic.members() == {member_id}


def test_join_before_version_4_needs_no_id(classic: Sut) -> None:
    """KIP-394, rules 4.2: A JoinGroup below version 4 is admitted without an id, and gets no MEMBER_ID_REQUIRED."""
    joined = expect(Joined, classic.call(join(version=3)))
    # A broker describes a new group only after it has committed the group's record.
    classic.until(lambda: classic.members() == {joined.member_id})


def test_assigned_id_without_a_join_delays_the_rebalance_until_it_expires(classic: Sut) -> None:
    """Rules 4.2, 4.3 and 4.9: A waiting JoinGroup keeps its member until the unused id expires, beyond its session."""
    (leader,) = stable(classic, join(session_timeout_s=SHORT_S))
    late = new_id(classic, session_timeout_s=2 * SHORT_S)
    again = expect(Joined, classic.call(join(leader.member_id, session_timeout_s=SHORT_S)))
    assert (again.member_id, again.generation) == (leader.member_id, leader.generation + 1)
    assert classic.call(join(late)) == UNKNOWN


def test_first_member_to_join_leads_and_alone_gets_the_subscriptions(classic: Sut) -> None:
    """Rules 4.9: Only the response to the leader has the members' subscriptions."""
    first, second = gathering(classic, join(), join())
    subscription = MemberSubscription(topics=frozenset({TOPIC}))
    assert (first.leader_id, second.leader_id) == (first.member_id, first.member_id)
    assert set(first.members) == {JoinedMember(one.member_id, subscription) for one in (first, second)}
    assert (second.members, second.generation) == ((), first.generation)


def test_leader_stays_leader_while_it_joins_again(classic: Sut) -> None:
    """Rules 4.9: The member that joins first in the next rebalance does not become the leader."""
    first, second = stable(classic, join(), join())
    send_and_see(classic, "second", rejoin(CHANGED, second))
    answers = [expect(Joined, one) for one in (classic.call(rejoin(join(), first)), classic.receive("second"))]
    assert {one.leader_id for one in answers} == {first.member_id}
    assert {one.generation for one in answers} == {first.generation + 1}


def test_dynamic_members_that_do_not_rejoin_in_time_are_removed(classic: Sut) -> None:
    """Rules 3.4: The rebalance timeout removes dynamic members; without the leader, the first joined member leads."""
    quick = join(rebalance_timeout_s=SHORT_S, session_timeout_s=LONG_S)
    leader, follower = stable(classic, quick, quick)
    send_and_see(classic, "follower", rejoin(replace(quick, offers=CHANGED.offers), follower))
    assert classic.call(heartbeat(leader)) == REBALANCING
    joined = expect(Joined, classic.receive("follower"))
    assert (joined.leader_id, joined.generation) == (follower.member_id, follower.generation + 1)
    assert classic.members() == {follower.member_id}
    assert classic.call(heartbeat(leader)) == UNKNOWN


def test_assignor_is_chosen_by_vote_among_those_that_all_support(classic: Sut) -> None:
    """Rules 4.1: The votes decide: each member votes for the first assignor in its list that all members support."""
    lists = [("own", "range", "sticky"), ("sticky", "range"), ("sticky", "range", "own")]
    members = gathering(classic, *(join(assignors=assignors) for assignors in lists))
    assert {member.assignor for member in members} == {"sticky"}


def test_member_without_a_common_assignor_gets_inconsistent_group_protocol(classic: Sut) -> None:
    """Rules 4.7 and 4.9: A join without a common assignor or protocol type gets INCONSISTENT_GROUP_PROTOCOL."""
    assert classic.call(join(assignors=())) == INCONSISTENT
    assert classic.call(replace(join(), protocol_type="")) == INCONSISTENT
    stable(classic, join(assignors=("range", "sticky")))
    assert classic.call(join(assignors=("roundrobin",))) == INCONSISTENT
    assert classic.call(replace(join(), protocol_type="connect")) == INCONSISTENT


def test_full_group_refuses_a_new_member_only(small_classic: Sut) -> None:
    """KIP-389: A new member gets GROUP_MAX_SIZE_REACHED; existing members do not."""
    first, second = stable(small_classic, join(), join())
    assert small_classic.call(join()) == Refused(code.GROUP_MAX_SIZE_REACHED)
    send_and_see(small_classic, "first", rejoin(join(), first))
    expect(Joined, small_classic.call(rejoin(join(), second)))
    expect(Joined, small_classic.receive("first"))


def test_last_member_to_rejoin_a_group_that_became_full_is_refused(small_classic: Sut) -> None:
    """KIP-389: In a join phase only joined members count, so a newer member may take the place of the last one."""
    first, second = stable(small_classic, join(), join())
    send_and_see(small_classic, "first", rejoin(join(), first))
    third = with_id(small_classic, join())
    small_classic.send("third", third)
    small_classic.until(lambda: third.member_id in small_classic.members())
    assert small_classic.call(rejoin(join(), second)) == Refused(code.GROUP_MAX_SIZE_REACHED)
    assert second.member_id not in small_classic.members()


@pytest.mark.parametrize("session_timeout_s", [0.9, 1800.1])
def test_session_timeout_outside_the_broker_s_bounds_is_refused(classic: Sut, session_timeout_s: float) -> None:
    """Rules 4.9: A JoinGroup with a session timeout outside the broker's bounds is refused."""
    assert classic.call(join(session_timeout_s=session_timeout_s)) == Refused(code.INVALID_SESSION_TIMEOUT)


def test_follower_that_rejoins_unchanged_gets_the_current_generation(classic: Sut) -> None:
    """Rules 4.9: An unchanged follower joins without a rebalance, and its SyncGroup returns the same assignment."""
    _, follower = stable(classic, join(), join())
    assert classic.call(rejoin(join(), follower)) == follower
    assert classic.call(sync(follower)) == Synced(assignor="range", assignment=frozenset({A[1]}))
    assert classic.state() == STABLE


@pytest.mark.parametrize(("number", "request_"), [(0, join()), (1, CHANGED)], ids=["leader", "changed follower"])
def test_rejoin_of_the_leader_or_with_other_metadata_begins_a_rebalance(
    classic: Sut, number: int, request_: object
) -> None:
    """Rules 4.9: A join of the leader, who may know new partitions, or with other metadata begins a rebalance."""
    members = stable(classic, join(), join())
    classic.send("again", rejoin(join() if request_ == join() else CHANGED, members[number]))
    classic.until(lambda: classic.state() == PREPARING)


def test_repeated_join_while_the_leader_assigns_gets_the_same_response(classic: Sut) -> None:
    """Rules 4.9: A repeated join gets the same response, which may have been lost; other metadata begin a rebalance."""
    leader, follower = gathering(classic, join(), join())
    again = expect(Joined, classic.call(rejoin(join(), leader)))
    assert replace(again, members=()) == replace(leader, members=())
    assert set(again.members) == set(leader.members)
    assert classic.call(rejoin(join(), follower)) == follower
    assert classic.state() == COMPLETING
    send_and_see(classic, "changed", rejoin(CHANGED, follower))


# ---- SyncGroup ----


def test_sync_waits_for_the_leader_s_sync(classic: Sut) -> None:
    """Rules 4.2: Each member gets its part of the leader's assignment; a member without a part gets no bytes."""
    leader, second, third = gathering(classic, join(), join(), join())
    for one in (second, third):
        classic.send(one.member_id, sync(one))
        assert not classic.has_answer(one.member_id)
    given = classic.call(sync(leader, {leader.member_id: A[:3], second.member_id: A[3:]}))
    assert given == Synced(assignor="range", assignment=frozenset(A[:3]))
    assert classic.receive(second.member_id) == Synced(assignor="range", assignment=frozenset(A[3:]))
    assert classic.receive(third.member_id) == Synced(assignor="range", assignment=None)
    assert classic.state() == STABLE


def test_sync_of_a_non_member_or_another_generation_is_refused(classic: Sut) -> None:
    """Rules 4.7: SyncGroup with a wrong member, generation or assignor gets the error for that field."""
    (leader,) = gathering(classic, join())
    assert classic.call(sync(replace(leader, member_id="m9"))) == UNKNOWN
    assert classic.call(sync(replace(leader, generation=0))) == ILLEGAL
    assert classic.call(sync(replace(leader, assignor="own"))) == INCONSISTENT


def test_sync_during_a_join_phase_gets_rebalance_in_progress(classic: Sut) -> None:
    """Rules 4.7: A SyncGroup during a join phase, or waiting when it begins, gets REBALANCE_IN_PROGRESS."""
    leader, follower = gathering(classic, join(), join())
    classic.send("waits", sync(follower))
    send_and_see(classic, "leader", rejoin(CHANGED, leader))
    assert classic.receive("waits") == REBALANCING
    assert classic.call(sync(follower)) == REBALANCING


def test_member_that_does_not_sync_in_time_is_removed(classic: Sut) -> None:
    """Rules 4.9: A member without a SyncGroup in the rebalance timeout is removed, even if it sends heartbeats."""
    quick = join(rebalance_timeout_s=SHORT_S, session_timeout_s=LONG_S)
    leader, follower = gathering(classic, quick, quick)
    expect(Synced, classic.call(sync(leader)))
    assert [classic.call(heartbeat(one)) for one in (leader, follower)] == [Alive(), Alive()]
    classic.until(lambda: classic.call(heartbeat(leader)) == REBALANCING)
    assert classic.call(heartbeat(follower)) == UNKNOWN


def test_leader_that_does_not_assign_is_removed_and_waiting_members_stay(classic: Sut) -> None:
    """Rules 4.3: A leader that does not assign is removed at its rebalance timeout; members that wait stay."""
    quick = join(rebalance_timeout_s=2 * SHORT_S, session_timeout_s=LONG_S)

    def waited() -> Joined | None:
        """Return the leader; None if the follower's session ended before its SyncGroup reached a busy broker."""
        leader, follower = gathering(classic, quick, replace(quick, session_timeout_s=SHORT_S))
        classic.send("waits", sync(follower))
        # A removed member gets UNKNOWN_MEMBER_ID.
        if classic.receive("waits") == REBALANCING:
            return leader
        classic.until(lambda: not classic.members())
        return None

    leader = expect(Joined, classic.until(waited))
    assert leader.member_id not in classic.members()
    assert classic.call(heartbeat(leader)) == UNKNOWN


# ---- Heartbeat and sessions ----


def test_heartbeat_response_shows_the_state_of_the_group(classic: Sut) -> None:
    """Rules 4.7: A heartbeat gets NONE if the group completes or is stable, and otherwise an error."""
    leader, follower = gathering(classic, join(), join())
    heartbeats = [heartbeat(leader), replace(heartbeat(leader), generation=0)]
    assert [classic.call(one) for one in heartbeats] == [Alive(), ILLEGAL]
    send_and_see(classic, "follower", rejoin(CHANGED, follower))
    assert [classic.call(one) for one in heartbeats] == [REBALANCING, ILLEGAL]
    assert classic.call(ClassicHeartbeat(member_id="m9", generation=leader.generation)) == UNKNOWN
    assert classic.call(heartbeats[0], group_id=f"{classic.group_id}-other") == UNKNOWN


def test_silent_member_is_removed_at_the_end_of_its_session(classic: Sut) -> None:
    """Rules 4.9: A session's end removes the member, which gets UNKNOWN_MEMBER_ID, and begins a rebalance."""
    leader, follower = stable(classic, join(session_timeout_s=SHORT_S), join(session_timeout_s=LONG_S))
    classic.until(lambda: classic.call(heartbeat(follower)) == REBALANCING)
    assert classic.members() == {follower.member_id}
    assert classic.call(heartbeat(leader)) == UNKNOWN


def test_emptied_group_is_empty_in_a_new_generation(classic: Sut) -> None:
    """Rules 4.9: An emptied group begins a generation, so the generation of the next member is never a former one."""
    (leader,) = stable(classic, join())
    classic.call(LeaveGroup(members=(LeavingMember(leader.member_id),)))
    assert (classic.state(), classic.members()) == (EMPTY, frozenset())
    assert gathering(classic, join())[0].generation == leader.generation + 2


# ---- LeaveGroup ----


def test_leave_group_returns_a_result_for_each_member(classic: Sut) -> None:
    """Rules 3.5: Members leave by member id, by instance id or by both; one rebalance follows."""
    first, second, _, third = stable(classic, join(), *(join(instance_id=f"i{number}") for number in range(3)))
    pending = new_id(classic)
    identities = (
        LeavingMember(first.member_id),
        LeavingMember(pending),
        LeavingMember(first.member_id),
        LeavingMember(instance_id="i1"),
        LeavingMember(instance_id="i9"),
        LeavingMember(first.member_id, "i0"),
        LeavingMember(second.member_id, "i0"),
    )
    unknown, fenced = code.UNKNOWN_MEMBER_ID, code.FENCED_INSTANCE_ID
    assert classic.call(LeaveGroup(members=identities)) == LeaveResults(codes=(0, 0, unknown, 0, unknown, fenced, 0))
    assert classic.members() == {third.member_id}
    again = expect(Joined, classic.call(join(third.member_id, instance_id="i2")))
    assert again.generation == third.generation + 1


def test_leave_of_a_missing_group_returns_unknown_member_id_for_each_member(classic: Sut) -> None:
    """Rules 3.5: LeaveGroup of a missing group returns UNKNOWN_MEMBER_ID for each member."""
    identities = (LeavingMember("m9"), LeavingMember(instance_id="i9"))
    assert classic.call(LeaveGroup(members=identities)) == LeaveResults(codes=(code.UNKNOWN_MEMBER_ID,) * 2)


def test_waiting_join_of_a_removed_member_gets_unknown_member_id(classic: Sut) -> None:
    """Rules 3.5: The waiting join of a removed member gets UNKNOWN_MEMBER_ID; the others no longer wait for it."""
    leader, follower = stable(classic, join(), join())
    send_and_see(classic, "leader", rejoin(join(), leader))
    assert classic.call(LeaveGroup(members=(LeavingMember(leader.member_id),))) == LeaveResults(codes=(0,))
    assert classic.receive("leader") == UNKNOWN
    assert expect(Joined, classic.call(rejoin(join(), follower))).leader_id == follower.member_id
