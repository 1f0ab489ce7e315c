"""Whole classic groups: the real core and assignors against the simulated coordinator."""

from __future__ import annotations

import pytest

from consumer_membership.membership.events import Step
from consumer_membership.membership.states import MemberState
from consumer_membership.types import LeaveOption
from tests.simulation.classic.groups import start, world_of
from tests.simulation.network import Faults
from tests.simulation.process import Process
from tests.simulation.world import World
from tests.support.seeds import seed_for

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]
all_assignors = pytest.mark.parametrize("assignor", ASSIGNORS)


def group_of(
    size: int, assignor: str = "cooperative-sticky", *, static: bool = False, seed: int = 0
) -> tuple[World, list[Process]]:
    """A settled group."""
    world = world_of(seed)
    members = [start(world, "a", assignor=assignor, instance_id=f"i{n}" if static else None) for n in range(size)]
    world.settle(10.0)
    return world, members


def shares(members: list[Process]) -> list[int]:
    """How many partitions each has."""
    return sorted(len(member.application.fetchable) for member in members)


@all_assignors
def test_group_gathers_grows_and_shrinks(assignor: str) -> None:
    """Each partition in one place throughout, balanced in the end; a clean leave and a join double nothing."""
    world, members = group_of(2, assignor)
    assert shares(members) == [3, 3]
    members.append(start(world, "a", assignor=assignor))
    world.settle(10.0)
    assert shares(members) == [2, 2, 2]
    members.pop(0).application.leave(LeaveOption.DEFAULT, closes=True)
    world.run_for(0.5)
    world.settle(10.0)
    assert shares(members) == [3, 3]
    assert world.ledger.repeated == 0


def test_cooperative_scale_out_stops_only_what_moves() -> None:
    """KIP-429: who keeps a partition never hears of it."""
    world, members = group_of(2)
    before = [member.application.fetchable for member in members]
    calls = [len(member.application.calls) for member in members]
    start(world, "a")
    world.settle(10.0)
    for member, had, seen in zip(members, before, calls, strict=True):
        revoked = {p for call in member.application.calls[seen:] for p in call.partitions if call.step is Step.REVOKE}
        assert revoked == had - member.application.fetchable
        assert len(revoked) == 1


@all_assignors
def test_crashed_member_s_partitions_go_to_the_others(assignor: str) -> None:
    """After its session."""
    world, members = group_of(3, assignor)
    members[0].kill()
    world.settle(20.0)
    assert shares(members[1:]) == [3, 3]


@all_assignors
def test_static_member_that_restarts_keeps_its_partitions_and_nobody_rebalances(assignor: str) -> None:
    """KIP-345: crash and restart at once; the newest wins, the same partitions, no callback for the others."""
    world, members = group_of(3, assignor, static=True)
    had, calls = (
        members[1].application.fetchable,
        [len(member.application.calls) for member in (members[0], members[2])],
    )
    members[1].kill()
    again = start(world, "a", assignor=assignor, instance_id="i1")
    assert world.settle(3.0) < 1.0
    assert again.application.fetchable == had
    assert [len(member.application.calls) for member in (members[0], members[2])] == calls


@all_assignors
def test_static_member_that_restarts_in_a_full_group_is_back_before_its_session_ends(assignor: str) -> None:
    """KIP-389 counts its ghost, which is removed; nobody else loses anything or is refused."""
    world = world_of(max_size=3)
    members = [start(world, "a", assignor=assignor, instance_id=f"i{n}") for n in range(3)]
    world.settle(10.0)
    members[1].kill()
    again = start(world, "a", assignor=assignor, instance_id="i1")
    assert world.settle(8.0) < members[1].member.classic.session_timeout_s
    assert (again.state, shares([members[0], again, members[2]])) == (MemberState.STABLE, [2, 2, 2])
    assert [one.application.called(Step.LOSE) for one in (members[0], members[2])] == [[], []]
    stranger = start(world, "a", assignor=assignor, instance_id="i9")
    world.run_for(5.0)
    assert stranger.state is MemberState.FATAL


def test_former_static_holder_that_lives_is_fenced_for_good() -> None:
    """FENCED_INSTANCE_ID: FATAL after on_lost; it never comes back."""
    world, members = group_of(2, static=True)
    newcomer = start(world, "a", instance_id="i0")
    world.run_for(5.0)
    assert (members[0].state, members[0].application.held) == (MemberState.FATAL, {})
    assert (newcomer.state, len(newcomer.application.fetchable)) == (MemberState.STABLE, 3)


@pytest.mark.parametrize("option", LeaveOption)
def test_static_close_options(option: LeaveOption) -> None:
    """Only "leave" gives the partitions to the others before the session's end."""
    world, members = group_of(2, static=True)
    members[0].application.leave(option, closes=True)
    world.run_for(3.0)
    assert len(members[1].application.fetchable) == (6 if option is LeaveOption.LEAVE else 3)


def test_topic_that_grows_is_noticed_by_the_leader() -> None:
    """More partitions: after the refresh the group rebalances."""
    world, _ = group_of(2)
    world.grow_topic("a", 8)
    world.run_for(299.0)
    world.settle(20.0)


def test_patterns_expand_and_shrink() -> None:
    """C13: a topic that appears and one that is deleted are noticed by those who match them, leader or not."""
    world, _ = group_of(1)
    matching = start(world, pattern="^a.*")
    world.settle(10.0)
    world.create_topic("ab", 2)
    world.run_for(301.0)
    world.settle(20.0)
    assert {p.topic for p in matching.application.fetchable} == {"a", "ab"}
    world.delete_topic("ab")
    world.run_for(301.0)
    world.settle(20.0)
    assert {p.topic for p in matching.application.fetchable} == {"a"}


@pytest.mark.slow
@all_assignors
@pytest.mark.parametrize("block", range(4))
def test_invariants_hold_on_a_lossy_network(assignor: str, block: int) -> None:
    """Requests and answers are lost, members come, go and die: one owner throughout, and it settles afterwards."""
    first = seed_for("lossy classic groups") + block * 15
    for seed in range(first, first + 15):
        world = world_of(seed, partitions=5, faults=Faults(request_lost=0.03, answer_lost=0.03))
        is_static = seed % 2 == 0
        seats = [start(world, "a", assignor=assignor, instance_id=f"i{n}" if is_static else None) for n in range(3)]
        for _ in range(6):
            world.run_for(1.0 + 3.0 * world.random.random())
            seat = world.random.randrange(len(seats))
            old = seats[seat]
            if world.random.random() < 0.5:
                old.kill()
            else:
                old.application.leave(LeaveOption.DEFAULT, closes=True)
                world.run_for(2.0)
            instance = f"i{seat}" if is_static else None
            seats[seat] = start(world, "a", assignor=assignor, instance_id=instance)
        world.faults = Faults()
        world.settle(40.0)
