"""The state of a classic group that survives a move of the coordinator, and the coordinator as a value."""

from __future__ import annotations

import copy

import pytest

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.classic.group import GroupState, TimerKind
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Joined,
    LeaveGroup,
    LeavingMember,
    Request,
    Synced,
)
from consumer_membership.testing.coordinators.journal import JoinsCompleted, Loaded, RebalanceBegan, RebalanceCompleted
from consumer_membership.testing.coordinators.rules import ClassicRules, Refused
from consumer_membership.types import OffsetAndMetadata
from tests.exploration.fork import fork, key_of
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

UNKNOWN = Refused(code.UNKNOWN_MEMBER_ID)
ILLEGAL = Refused(code.ILLEGAL_GENERATION)
NOT_COORDINATOR = Refused(code.NOT_COORDINATOR)


def test_requests_to_another_or_a_loading_node_are_refused() -> None:
    """Rules 4.7: After a move the old node refuses requests, and the new node refuses them until it has loaded."""
    sut = coordinator()
    (leader,) = stable(sut, join())
    sut.move(2, 1.0, loading_s=0.5)
    asked = [sut.process(0, "g", sync(leader), at, node_id=node) for node, at in ((1, 1.1), (2, 1.1), (2, 1.5))]
    synced = Synced(assignor="range", assignment=frozenset({A[0]}))
    loading = Refused(code.COORDINATOR_LOAD_IN_PROGRESS)
    assert [released[0].answer for released in asked] == [NOT_COORDINATOR, loading, synced]


def test_loading_coordinator_answers_heartbeats_with_none() -> None:
    """Rules 4.10: A coordinator that still loads the group answers heartbeats with NONE."""
    sut = coordinator()
    sut.move(2, 0.0, loading_s=0.5)
    assert answer(sut, ClassicHeartbeat(member_id="m9", generation=3), 0.1) == Alive()
    assert answer(sut, ClassicHeartbeat(member_id="m9", generation=3), 0.5) == UNKNOWN


def test_loaded_group_restarts_its_sessions() -> None:
    """Rules 4.9: The sessions of a loaded group restart, because no member could send a heartbeat during the move."""
    sut = coordinator()
    stable(sut, join())
    assert sut.move(2, 9.0, loading_s=2.0) == []
    assert sut.next_deadline() == 21.0


def test_move_answers_waiting_requests_with_not_coordinator() -> None:
    """Rules 4.7: Waiting joins get NOT_COORDINATOR while the group prepares, and waiting syncs while it completes."""
    sut = coordinator()
    leader, follower = gathering(sut, join(), join())
    call(sut, "sync", sync(follower))
    assert sut.move(2, 1.0, loading_s=0.0) == [("sync", NOT_COORDINATOR)]
    members = stable(sut, join(), join(), now=2.0)
    call(sut, "join", join(members[0].member_id), 3.0)
    assert sut.move(1, 4.0, loading_s=0.0) == [("join", NOT_COORDINATOR)]
    assert leader.generation == members[0].generation


def test_move_discards_a_generation_without_an_assignment() -> None:
    """A move discards a generation without an assignment: the new coordinator loads the last stable generation."""
    sut = coordinator()
    first, second = stable(sut, join(), join())
    call(sut, 1, join(first.member_id), 1.0)
    again = expect(Joined, call(sut, 2, join(second.member_id), 1.0)[2])
    newcomer = new_id(sut, 1.0)
    sut.move(2, 2.0, loading_s=0.0)
    assert (again.generation, answer(sut, sync(again), 3.0)) == (2, ILLEGAL)
    assert answer(sut, sync(second), 3.0) == Synced(assignor="range", assignment=frozenset({A[1]}))
    assert answer(sut, join(newcomer), 3.0) == UNKNOWN
    assert journal(sut, Loaded) == [Loaded(generation=1, members=(first.member_id, second.member_id))]


def test_emptied_group_keeps_its_generation_after_a_move() -> None:
    """After a move an emptied group has no member and keeps its generation, so that no generation is repeated."""
    sut = coordinator()
    (leader,) = stable(sut, join())
    answer(sut, LeaveGroup(members=(LeavingMember(leader.member_id),)), 1.0)
    sut.move(2, 2.0, loading_s=0.0)
    assert journal(sut, Loaded) == [Loaded(generation=2, members=())]


def test_initial_delay_restarts_after_a_move() -> None:
    """A group in its initial delay is empty after a move, so its first join starts the delay again."""
    sut = coordinator(ClassicRules())
    for number in range(2):
        call(sut, number, join(instance_id=f"i{number}"), 0.0)
    sut.move(2, 1.0, loading_s=0.0)
    assert call(sut, "again", join(instance_id="i0"), 2.0) == {}
    assert [key for key, _ in sut.pass_time(5.0)] == ["again"]


def test_static_member_replacement_survives_a_move_of_a_stable_group() -> None:
    """KIP-345, KAFKA-10284: A replacement is written in a stable group, but not while the group rebalances."""
    sut = coordinator()
    (leader,) = stable(sut, join(instance_id="i0"))
    new = expect(Joined, answer(sut, join(instance_id="i0"), 1.0))
    sut.move(2, 2.0, loading_s=0.0)
    assert answer(sut, ClassicHeartbeat(member_id=new.member_id, generation=1, instance_id="i0"), 3.0) == Alive()
    assert answer(sut, ClassicHeartbeat(member_id=leader.member_id, generation=1, instance_id="i0"), 3.0) == Refused(
        code.FENCED_INSTANCE_ID
    )


def test_loaded_group_has_only_the_elected_assignor_s_metadata() -> None:
    """A loaded group has only the elected assignor's metadata, so an unchanged join begins a rebalance."""
    sut = coordinator()
    lists = ("range", "sticky")
    _, follower = stable(sut, join(assignors=lists), join(assignors=lists))
    sut.move(2, 1.0, loading_s=0.0)
    assert answer(sut, join(assignors=("sticky",)), 2.0) == Refused(code.INCONSISTENT_GROUP_PROTOCOL)
    assert call(sut, 1, join(follower.member_id, assignors=lists), 2.0) == {}
    assert group_of(sut).state is GroupState.PREPARING_REBALANCE


def test_unloaded_group_returns_coordinator_not_available() -> None:
    """Rules 3.6: Requests to an unloaded group get COORDINATOR_NOT_AVAILABLE."""
    sut = coordinator()
    (leader,) = stable(sut, join())
    group_of(sut).unload()
    requests: list[Request] = [join(), join(leader.member_id), sync(leader)]
    requests.append(ClassicHeartbeat(member_id=leader.member_id, generation=1))
    requests.append(LeaveGroup(members=(LeavingMember(leader.member_id),)))
    assert {answer(sut, request) for request in requests} == {Refused(code.COORDINATOR_NOT_AVAILABLE)}
    commit = Commit(offsets={A[0]: OffsetAndMetadata(offset=1)})
    assert answer(sut, commit) == CommitResults(codes={A[0]: code.COORDINATOR_NOT_AVAILABLE})


# ---- the coordinator as a value ----


def rebalancing() -> tuple[ClassicCoordinator, str]:
    """Return a group with a waiting join, an unused id and a missing member, and the missing member's id."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join(instance_id="i0"))
    new_id(sut, 1.0)
    call(sut, "waits", join(leader.member_id), 1.0)
    return sut, follower.member_id


@pytest.mark.parametrize("copy_of", [copy.deepcopy, fork], ids=["deepcopy", "fork"])
def test_coordinator_copy_is_independent(copy_of: object) -> None:
    """A copy of a coordinator is independent, so that an exploration can continue from one state in several ways."""
    assert callable(copy_of)
    sut, missing = rebalancing()
    other = copy_of(sut)
    before = sut.key()
    assert other.key() == before
    other.process("late", "g", join(missing, instance_id="i0"), 1.0)
    assert dict(other.pass_time(11.0)).keys() == {"waits", "late"}
    assert sut.key() == before
    assert sut.waiting() == {"waits"}
    assert other.key() != before


def test_coordinator_key_covers_the_state_that_decides_responses() -> None:
    """The key, which deduplicates states, is equal for equal histories and different after each step."""
    keys = []
    for _ in range(2):
        sut = coordinator()
        keys.append([sut.key()])
        leader, follower = gathering(sut, join(), join(instance_id="i0"))
        keys[-1].append(sut.key())
        for step in (sync(follower), sync(leader), join(instance_id="i0"), join(leader.member_id)):
            call(sut, "k", step, 1.0)
            keys[-1].append(sut.key())
        sut.move(2, 2.0, loading_s=1.0)
        keys[-1].append(sut.key())
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == len(keys[0])


def test_exploration_key_works_for_the_coordinator() -> None:
    """`tests.exploration.fork` copies and compares any state."""
    assert key_of(rebalancing()[0]) == key_of(rebalancing()[0])


def test_journal_records_members_and_assignment_of_each_generation() -> None:
    """The journal, which the invariants read, has the members of each generation and its leader's assignment."""
    sut = coordinator()
    leader, follower = stable(sut, join(), join())
    ids = (leader.member_id, follower.member_id)
    assert journal(sut, RebalanceBegan) == [RebalanceBegan(generation=0, reason=f"Adding new member {ids[0]}")]
    assert journal(sut, JoinsCompleted) == [
        JoinsCompleted(generation=1, members=ids, leader_id=ids[0], assignor="range")
    ]
    (completed,) = journal(sut, RebalanceCompleted)
    assert dict(completed.shares) == {ids[0]: frozenset({A[0]}), ids[1]: frozenset({A[1]})}


def test_any_timer_can_be_fired_without_a_clock() -> None:
    """An exploration can fire timers in any order, without a clock."""
    sut = coordinator()
    leader, _ = stable(sut, join(), join())
    assert {timer.kind for _, timer in sut.timers()} == {TimerKind.SESSION}
    ending = next(timer for _, timer in sut.timers() if timer.member_id == leader.member_id)
    sut.fire("g", ending, 0.0)
    assert {timer.kind for _, timer in sut.timers()} == {TimerKind.SESSION, TimerKind.JOIN}
