"""The classic coordinator keeps the broker's rules (rules 3.5 to 3.7 and 4): no fake may lie alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.assignors.assignor import MemberSubscription
from tests.simulation import rules as code
from tests.simulation.classic.group import GroupState, TimerKind
from tests.simulation.classic.scene import (
    A,
    answer,
    ask,
    coordinator,
    gathering,
    group_of,
    join,
    journal,
    new_id,
    stable,
    sync,
    told,
)
from tests.simulation.exchanges import (
    Alive,
    Beat,
    Joined,
    JoinedMember,
    Leave,
    LeaveResults,
    MemberIdentity,
    Synced,
)
from tests.simulation.journal import (
    RebalanceBegan,
    Removed,
)
from tests.simulation.rules import ClassicRules, Refused

UNKNOWN = Refused(code.UNKNOWN_MEMBER_ID)
REBALANCING = Refused(code.REBALANCE_IN_PROGRESS)
ILLEGAL = Refused(code.ILLEGAL_GENERATION)


# ---- the join phase ----


def test_initial_delay_gathers_members_and_is_extended_while_they_come() -> None:
    """Rules 4.9: 3 s, again while somebody came, a rebalance timeout at most."""
    sut = coordinator(ClassicRules())
    ids = [new_id(sut), new_id(sut)]
    ask(sut, 1, join(ids[0]), 0.0)
    ask(sut, 2, join(ids[1]), 2.0)
    assert (sut.pass_time(3.0), sut.next_deadline()) == ([], 6.0)
    assert {key for key, _ in sut.pass_time(6.0)} == {1, 2}


def test_initial_delay_ends_with_the_rebalance_timeout() -> None:
    """Rules 4.9: members that go on coming do not extend it for ever."""
    sut = coordinator(ClassicRules())
    ends: list[float] = []
    for second in range(8):
        ask(sut, second, join(instance_id=f"i{second}", rebalance_timeout_s=5.0), float(second))
        ends += [float(second)] if sut.pass_time(float(second)) else []
    assert ends == [5.0]


def test_dynamic_member_must_join_with_the_id_it_is_given() -> None:
    """KIP-394, rules 4.2: MEMBER_ID_REQUIRED carries the id; versions before 4 wait at once."""
    sut = coordinator()
    assert new_id(sut) == "member-1"
    assert ask(sut, 1, join("member-1")) == {}
    assert ask(sut, 2, join(version=3)) == {}
    assert sut.pass_time(0.0) == []
    assert [told(Joined, given).member_id for _, given in sut.pass_time(0.0)] == ["member-1", "member-2"]


def test_id_that_was_given_out_holds_up_the_rebalance_until_it_expires() -> None:
    """Rules 4.2 and 4.9: it must be used within the session timeout, then it is unknown."""
    sut = coordinator()
    leader = stable(sut, join())[0]
    late = new_id(sut, 1.0)
    assert ask(sut, "leader", join(leader.member_id), 2.0) == {}
    assert [key for key, _ in sut.pass_time(11.0)] == ["leader"]
    assert answer(sut, join(late), 11.1) == UNKNOWN


def test_first_that_joined_leads_and_alone_gets_to_know_the_members() -> None:
    """Rules 4.9: the answer to the leader only contains the members' metadata."""
    sut = coordinator()
    first, second = gathering(sut, join(), join())
    subscription = MemberSubscription(topics=frozenset({"a"}))
    assert (first.leader_id, second.leader_id) == (first.member_id, first.member_id)
    assert first.members == tuple(JoinedMember(one.member_id, subscription) for one in (first, second))
    assert (second.members, first.generation, second.generation) == ((), 1, 1)


def test_leader_stays_leader_while_it_joins_again() -> None:
    """Rules 4.9: whoever joins first in the next rebalance does not lead for that."""
    sut = coordinator()
    first, second = stable(sut, join(), join())
    ask(sut, 2, join(second.member_id, topics=("b",)), 1.0)
    answers = ask(sut, 1, join(first.member_id), 1.1)
    assert {told(Joined, given).leader_id for given in answers.values()} == {first.member_id}


def test_dynamic_members_that_do_not_join_in_time_are_dropped() -> None:
    """Rules 3.4: the longest timeout counts; where the leader is gone, the first that joined leads."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    ask(sut, 2, join(follower.member_id, topics=("b",)), 0.0)
    for second in range(0, 60, 5):
        assert answer(sut, Beat(member_id=leader.member_id, generation=1), float(second)) == REBALANCING
        assert sut.pass_time(float(second)) == []
    (released,) = sut.pass_time(60.0)
    joined = told(Joined, released.answer)
    assert (released.key, joined.leader_id, joined.generation) == (2, follower.member_id, 2)
    assert journal(sut, Removed) == [Removed(member_id=leader.member_id, reason="rebalance")]


def test_new_member_whose_join_waits_too_long_is_forgotten() -> None:
    """Rules 4.9: five minutes, as nobody knows whether it is still there; those with an id are kept."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, new_member_join_timeout_s=30.0))
    leader, follower = stable(sut, join(), join())
    ask(sut, "new", join(new_id(sut)), 0.0)
    ask(sut, "leader", join(leader.member_id), 0.0)
    for second in range(0, 30, 5):
        answer(sut, Beat(member_id=follower.member_id, generation=1), float(second))
        assert sut.pass_time(float(second)) == []
    answer(sut, Beat(member_id=follower.member_id, generation=1), 29.0)
    assert sut.pass_time(30.0) == [("new", UNKNOWN)]


def test_assignor_is_chosen_by_vote_among_those_that_all_support() -> None:
    """Rules 4.1: each member votes for the first of its list that everybody has."""
    sut = coordinator()
    lists = [("own", "range", "sticky"), ("sticky", "range"), ("sticky", "range", "own")]
    members = gathering(sut, *(join(assignors=assignors) for assignors in lists))
    assert {member.assignor for member in members} == {"sticky"}


def test_member_without_a_common_assignor_is_inconsistent() -> None:
    """Rules 4.7 and 4.9: one without any, of another list, or of another protocol type."""
    sut = coordinator()
    inconsistent = Refused(code.INCONSISTENT_GROUP_PROTOCOL)
    assert answer(sut, join(assignors=())) == inconsistent
    assert answer(sut, replace(join(), protocol_type="")) == inconsistent
    stable(sut, join(assignors=("range", "sticky")))
    assert answer(sut, join(assignors=("roundrobin",))) == inconsistent
    assert answer(sut, replace(join(), protocol_type="connect")) == inconsistent


def test_full_group_takes_no_other_member() -> None:
    """KIP-389: GROUP_MAX_SIZE_REACHED for a new one, not for those that are in."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, max_size=2))
    first, second = stable(sut, join(), join())
    assert answer(sut, join(), 1.0) == Refused(code.GROUP_MAX_SIZE_REACHED)
    assert ask(sut, 1, join(first.member_id), 1.0) == {}
    assert ask(sut, 2, join(second.member_id), 1.0).keys() == {1, 2}


def test_last_to_rejoin_a_group_that_got_full_is_out() -> None:
    """KIP-389: in a join phase those that joined count, so that a newer member may have taken the place."""
    sut = coordinator(ClassicRules(initial_rebalance_delay_s=0.0, max_size=2))
    first, second = stable(sut, join(), join())
    ask(sut, 1, join(first.member_id), 1.0)
    ask(sut, 3, join(new_id(sut, 1.0)), 1.0)
    assert ask(sut, 4, join(first.member_id), 1.0) == {}
    assert answer(sut, join(second.member_id), 1.0) == Refused(code.GROUP_MAX_SIZE_REACHED)
    assert journal(sut, Removed) == [Removed(member_id=second.member_id, reason="group full")]


@pytest.mark.parametrize("session_timeout_s", [5.9, 1800.1])
def test_session_timeout_has_bounds(session_timeout_s: float) -> None:
    """Rules 4.9: outside of the broker's bounds it is refused, by any broker."""
    sut = coordinator()
    released = sut.ask(1, "g", join(session_timeout_s=session_timeout_s), 0.0, node_id=9)
    assert released == [(1, Refused(code.INVALID_SESSION_TIMEOUT))]


def test_follower_that_rejoins_unchanged_gets_the_current_generation() -> None:
    """Rules 4.9: no rebalance; its SyncGroup repeats its assignment."""
    sut = coordinator()
    _, follower = stable(sut, join(), join())
    assert answer(sut, join(follower.member_id), 1.0) == follower
    assert answer(sut, sync(follower), 1.0) == Synced(assignor="range", assignment=frozenset({A[1]}))


@pytest.mark.parametrize(("number", "topics"), [(0, ("a",)), (1, ("a", "b"))], ids=["leader", "changed follower"])
def test_rejoin_of_the_leader_or_with_other_metadata_begins_a_rebalance(number: int, topics: tuple[str, ...]) -> None:
    """Rules 4.9: the leader may have seen new partitions, which its metadata do not show."""
    sut = coordinator()
    members = stable(sut, join(), join())
    assert ask(sut, 1, join(members[number].member_id, topics=topics), 1.0) == {}
    assert group_of(sut).state is GroupState.PREPARING_REBALANCE


def test_timeouts_of_the_newest_join_count() -> None:
    """KAFKA-14009: a process may come back with other settings; the group waits for the most patient member."""
    sut = coordinator()
    leader, _ = stable(sut, join(), join())
    ask(sut, 1, join(leader.member_id, rebalance_timeout_s=100.0), 1.0)
    assert TimerKind.JOIN in {timer.kind for _, timer in sut.timers() if timer.at == 101.0}


def test_repeated_join_while_the_leader_assigns_repeats_the_answer() -> None:
    """Rules 4.9: the first answer may have been lost; with other metadata it begins a rebalance."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    assert [answer(sut, join(one.member_id)) for one in (leader, follower)] == [leader, follower]
    assert ask(sut, 1, join(follower.member_id, topics=("b",))) == {}
    assert group_of(sut).state is GroupState.PREPARING_REBALANCE


def test_only_the_newest_of_a_members_joins_is_answered() -> None:
    """Rules 4.2: one whose asker gave up is forgotten; the member stays the same."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    ask(sut, "old", join(leader.member_id), 1.0)
    ask(sut, "new", join(leader.member_id), 1.0)
    assert sut.waiting() == {"new"}
    assert ask(sut, "other", join(follower.member_id), 1.0).keys() == {"new", "other"}


# ---- SyncGroup ----


def test_sync_waits_for_the_leaders() -> None:
    """Rules 4.2: everybody is answered with what the leader says; nothing for whom it leaves out."""
    sut = coordinator()
    leader, second, third = gathering(sut, join(), join(), join())
    assert [ask(sut, one.member_id, sync(one)) for one in (second, third)] == [{}, {}]
    answers = ask(sut, leader.member_id, sync(leader, {leader.member_id: A[:3], second.member_id: A[3:]}))
    assert answers == {
        leader.member_id: Synced(assignor="range", assignment=frozenset(A[:3])),
        second.member_id: Synced(assignor="range", assignment=frozenset(A[3:])),
        third.member_id: Synced(assignor="range", assignment=None),
    }
    assert group_of(sut).is_settled


def test_sync_is_refused_to_strangers_and_other_generations() -> None:
    """Rules 4.7: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL."""
    sut = coordinator()
    (leader,) = gathering(sut, join())
    assert answer(sut, sync(replace(leader, member_id="m9"))) == UNKNOWN
    assert answer(sut, sync(replace(leader, generation=0))) == ILLEGAL
    assert answer(sut, sync(replace(leader, assignor="own"))) == Refused(code.INCONSISTENT_GROUP_PROTOCOL)


def test_sync_during_a_join_phase_is_told_to_join_again() -> None:
    """Rules 4.7: REBALANCE_IN_PROGRESS; one that waits is answered so when the rebalance begins."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    ask(sut, "waits", sync(follower))
    assert ask(sut, 1, join(leader.member_id, topics=("b",))) == {"waits": REBALANCING}
    assert answer(sut, sync(follower)) == REBALANCING


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    """Rules 4.9: a rebalance timeout after the join phase, whether the leader assigned or not."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    ask(sut, 1, sync(leader))
    for second in range(0, 60, 5):
        assert answer(sut, Beat(member_id=leader.member_id, generation=1), float(second)) == Alive()
        assert answer(sut, Beat(member_id=follower.member_id, generation=1), float(second)) == Alive()
        sut.pass_time(float(second))
    assert group_of(sut).state is GroupState.STABLE
    sut.pass_time(60.0)
    assert group_of(sut).state is GroupState.PREPARING_REBALANCE
    assert answer(sut, Beat(member_id=leader.member_id, generation=1), 60.0) == REBALANCING
    assert answer(sut, Beat(member_id=follower.member_id, generation=1), 60.0) == UNKNOWN


# ---- Heartbeat and sessions ----


def test_heartbeats_tell_the_member_where_the_group_is() -> None:
    """Rules 4.7: NONE while completing or stable, then what is wrong."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    beats = [Beat(member_id=leader.member_id, generation=generation) for generation in (1, 0)]
    assert [answer(sut, beat) for beat in beats] == [Alive(), ILLEGAL]
    ask(sut, 1, join(follower.member_id, topics=("b",)))
    assert [answer(sut, beat) for beat in beats] == [REBALANCING, ILLEGAL]
    assert answer(sut, Beat(member_id="m9", generation=1)) == UNKNOWN
    assert sut.ask(1, "other", beats[0], 0.0) == [(1, UNKNOWN)]


def test_silent_member_is_removed_at_the_end_of_its_session() -> None:
    """Rules 4.9: the others must join again; its next word is not known."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    answer(sut, Beat(member_id=follower.member_id, generation=1), 6.0)
    assert sut.pass_time(9.9) == []
    sut.pass_time(10.0)
    assert journal(sut, Removed) == [Removed(member_id=leader.member_id, reason="session")]
    assert answer(sut, Beat(member_id=leader.member_id, generation=1), 10.0) == UNKNOWN
    assert answer(sut, Beat(member_id=follower.member_id, generation=1), 10.0) == REBALANCING


def test_waiting_request_keeps_a_known_member_alive() -> None:
    """Rules 4.3: the pending JoinGroup stands for heartbeats; its answer starts the session anew."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    ask(sut, "leader", join(leader.member_id), 1.0)
    for second in (5.0, 14.0, 23.0):
        answer(sut, Beat(member_id=follower.member_id, generation=1), second)
        assert sut.pass_time(second) == []
        assert (sut.next_deadline() or 0.0) > second
    assert ask(sut, 1, join(follower.member_id), 30.0).keys() == {"leader", 1}
    assert sut.next_deadline() == 40.0


def test_waiting_sync_keeps_a_member_alive() -> None:
    """Rules 4.9: the leader may take its time to assign."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    ask(sut, "waits", sync(follower))
    for second in (8.0, 16.0):
        answer(sut, Beat(member_id=leader.member_id, generation=1), second)
        assert sut.pass_time(second) == []
    assert ask(sut, 1, sync(leader), 17.0).keys() == {"waits", 1}
    answer(sut, Beat(member_id=leader.member_id, generation=1), 18.0)
    assert sut.next_deadline() == 27.0


def test_group_that_everybody_left_is_empty_in_a_new_generation() -> None:
    """Rules 4.9: the next member's generation is not one that there was before."""
    sut = coordinator()
    (leader,) = stable(sut, join())
    answer(sut, Leave(members=(MemberIdentity(leader.member_id),)), 1.0)
    assert (group_of(sut).state, group_of(sut).generation) == (GroupState.EMPTY, 2)
    assert not group_of(sut).is_settled
    assert gathering(sut, join(), now=2.0)[0].generation == 3


# ---- LeaveGroup ----


def test_each_leaving_member_has_its_own_result() -> None:
    """Rules 3.5: by id, by instance id, by both; one rebalance follows."""
    sut = coordinator()
    first, second, _, _ = stable(sut, join(), *(join(instance_id=f"i{number}") for number in range(3)))
    pending = new_id(sut, 1.0)
    identities = (
        MemberIdentity(first.member_id),
        MemberIdentity(pending),
        MemberIdentity(first.member_id),
        MemberIdentity(instance_id="i1"),
        MemberIdentity(instance_id="i9"),
        MemberIdentity(first.member_id, "i0"),
        MemberIdentity(second.member_id, "i0"),
    )
    unknown, fenced = code.UNKNOWN_MEMBER_ID, code.FENCED_INSTANCE_ID
    assert answer(sut, Leave(members=identities), 1.0) == LeaveResults(codes=(0, 0, unknown, 0, unknown, fenced, 0))
    assert [entry.reason for entry in journal(sut, Removed)] == ["left"] * 3
    assert len(journal(sut, RebalanceBegan)) == 2
    assert sut.ask(1, "other", Leave(members=identities), 1.0) == [(1, UNKNOWN)]


def test_waiting_join_of_a_member_that_is_removed_is_unknown() -> None:
    """Rules 3.5: an administrator removes it; the others need not wait for it any more."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    ask(sut, 1, join(leader.member_id), 1.0)
    removed = ask(sut, "admin", Leave(members=(MemberIdentity(leader.member_id),)), 1.0)
    assert removed == {1: UNKNOWN, "admin": LeaveResults(codes=(0,))}
    assert ask(sut, 2, join(follower.member_id), 1.0).keys() == {2}
