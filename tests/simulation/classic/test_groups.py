"""Whole classic groups: the real core and assignors against the simulated coordinator."""

from __future__ import annotations

import pytest

from consumer_membership.membership.events import Step
from consumer_membership.membership.states import MemberState
from consumer_membership.types import LeaveOption
from tests.simulation.classic.groups import simulation_of, start
from tests.simulation.network import Faults
from tests.simulation.process import Process
from tests.simulation.simulation import Simulation
from tests.support.seeds import seed_for

ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]
all_assignors = pytest.mark.parametrize("assignor", ASSIGNORS)


def group_of(
    size: int, assignor: str = "cooperative-sticky", *, static: bool = False, seed: int = 0
) -> tuple[Simulation, list[Process]]:
    """Return a settled group of this size."""
    simulation = simulation_of(seed)
    members = [start(simulation, "a", assignor=assignor, instance_id=f"i{n}" if static else None) for n in range(size)]
    simulation.settle(10.0)
    return simulation, members


def shares(members: list[Process]) -> list[int]:
    """Return the number of partitions of each member, ascending."""
    return sorted(len(member.application.fetchable) for member in members)


@all_assignors
def test_classic_group_stays_balanced_while_members_join_and_leave(assignor: str) -> None:
    """A group that settles after a join or a clean leave is balanced, and no record is repeated."""
    simulation, members = group_of(2, assignor)
    assert shares(members) == [3, 3]
    members.append(start(simulation, "a", assignor=assignor))
    simulation.settle(10.0)
    assert shares(members) == [2, 2, 2]
    members.pop(0).application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(0.5)
    simulation.settle(10.0)
    assert shares(members) == [3, 3]
    assert simulation.ledger.repeated == 0


def test_cooperative_scale_out_revokes_only_moving_partitions() -> None:
    """KIP-429: A cooperative scale-out revokes only the partitions that move to the new member."""
    simulation, members = group_of(2)
    before = [member.application.fetchable for member in members]
    calls = [len(member.application.calls) for member in members]
    start(simulation, "a")
    simulation.settle(10.0)
    for member, had, seen in zip(members, before, calls, strict=True):
        revoked = {p for call in member.application.calls[seen:] for p in call.partitions if call.step is Step.REVOKE}
        assert revoked == had - member.application.fetchable
        assert len(revoked) == 1


@all_assignors
def test_crashed_member_s_partitions_move_after_its_session(assignor: str) -> None:
    """When the session of a crashed member ends, the other members get its partitions."""
    simulation, members = group_of(3, assignor)
    members[0].kill()
    simulation.settle(20.0)
    assert shares(members[1:]) == [3, 3]


@all_assignors
def test_restarted_static_member_keeps_its_partitions_without_a_rebalance(assignor: str) -> None:
    """KIP-345: After a crash and a restart a static member has the same partitions; other members get no callback."""
    simulation, members = group_of(3, assignor, static=True)
    had, calls = (
        members[1].application.fetchable,
        [len(member.application.calls) for member in (members[0], members[2])],
    )
    members[1].kill()
    again = start(simulation, "a", assignor=assignor, instance_id="i1")
    assert simulation.settle(3.0) < 1.0
    assert again.application.fetchable == had
    assert [len(member.application.calls) for member in (members[0], members[2])] == calls


@all_assignors
def test_restarted_static_member_rejoins_a_full_group_before_its_session_ends(assignor: str) -> None:
    """KIP-389: In a full group a restarted static member removes its stale member and rejoins; others keep theirs."""
    simulation = simulation_of(max_size=3)
    members = [start(simulation, "a", assignor=assignor, instance_id=f"i{n}") for n in range(3)]
    simulation.settle(10.0)
    members[1].kill()
    again = start(simulation, "a", assignor=assignor, instance_id="i1")
    assert simulation.settle(8.0) < members[1].member.classic.session_timeout_s
    assert (again.state, shares([members[0], again, members[2]])) == (MemberState.STABLE, [2, 2, 2])
    assert [one.application.called(Step.LOSE) for one in (members[0], members[2])] == [[], []]
    stranger = start(simulation, "a", assignor=assignor, instance_id="i9")
    simulation.run_for(5.0)
    assert stranger.state is MemberState.FATAL


def test_living_former_static_holder_is_fenced_permanently() -> None:
    """A live former holder of a static id is FATAL after on_lost and never rejoins."""
    simulation, members = group_of(2, static=True)
    newcomer = start(simulation, "a", instance_id="i0")
    simulation.run_for(5.0)
    assert (members[0].state, members[0].application.held) == (MemberState.FATAL, {})
    assert (newcomer.state, len(newcomer.application.fetchable)) == (MemberState.STABLE, 3)


@pytest.mark.parametrize("option", LeaveOption)
def test_static_close_moves_partitions_early_only_with_leave(option: LeaveOption) -> None:
    """Only the option "leave" gives the partitions to other members before the session's end."""
    simulation, members = group_of(2, static=True)
    members[0].application.leave(option, closes=True)
    simulation.run_for(3.0)
    assert len(members[1].application.fetchable) == (6 if option is LeaveOption.LEAVE else 3)


def test_leader_triggers_a_rebalance_for_added_partitions() -> None:
    """When the leader's metadata refresh shows more partitions, the group rebalances."""
    simulation, _ = group_of(2)
    simulation.grow_topic("a", 8)
    simulation.run_for(299.0)
    simulation.settle(20.0)


def test_pattern_subscription_follows_created_and_deleted_topics() -> None:
    """C13: Each member with a matching pattern, leader or not, detects a created or deleted topic."""
    simulation, _ = group_of(1)
    matching = start(simulation, pattern="^a.*")
    simulation.settle(10.0)
    simulation.create_topic("ab", 2)
    simulation.run_for(301.0)
    simulation.settle(20.0)
    assert {p.topic for p in matching.application.fetchable} == {"a", "ab"}
    simulation.delete_topic("ab")
    simulation.run_for(301.0)
    simulation.settle(20.0)
    assert {p.topic for p in matching.application.fetchable} == {"a"}


@pytest.mark.slow
@all_assignors
@pytest.mark.parametrize("block", range(4))
def test_classic_group_keeps_its_invariants_on_a_lossy_network(assignor: str, block: int) -> None:
    """If messages are lost and members join, leave and die, each partition has one owner, and the group settles."""
    first = seed_for("lossy classic groups") + block * 15
    for seed in range(first, first + 15):
        simulation = simulation_of(seed, partitions=5, faults=Faults(request_lost=0.03, answer_lost=0.03))
        is_static = seed % 2 == 0
        slots = [
            start(simulation, "a", assignor=assignor, instance_id=f"i{n}" if is_static else None) for n in range(3)
        ]
        for _ in range(6):
            simulation.run_for(1.0 + 3.0 * simulation.random.random())
            slot = simulation.random.randrange(len(slots))
            old = slots[slot]
            if simulation.random.random() < 0.5:
                old.kill()
            else:
                old.application.leave(LeaveOption.DEFAULT, closes=True)
                simulation.run_for(2.0)
            instance = f"i{slot}" if is_static else None
            slots[slot] = start(simulation, "a", assignor=assignor, instance_id=instance)
        simulation.faults = Faults()
        simulation.settle(40.0)
