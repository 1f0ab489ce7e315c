"""Static members against the simulated coordinator (KIP-345 on KIP-848; protocol rules 3.3)."""

from __future__ import annotations

import pytest

from consumer_membership.membership.events import Step
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.types import LeaveOption
from tests.simulation.coordinator import Removed
from tests.simulation.process import Process
from tests.simulation.rules import RULES_4_0, RULES_4_2, RULES_4_3, Rules
from tests.simulation.world import GROUP, World

RULES = pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_2, RULES_4_3], ids=["4.0", "4.2", "4.3"])


def static(seat: int, *, instance: str | None = None) -> MemberSettings:
    """The settings of the static member of this seat."""
    return MemberSettings(group_id=GROUP, instance_id=instance or f"i{seat}")


def group_of(count: int, rules: Rules, *, partitions: int = 4) -> tuple[World, list[Process]]:
    """A settled group of so many static members."""
    world = World(1, rules=rules)
    world.create_topic("a", partitions)
    processes = [world.start(seat, "a", settings=static(seat)) for seat in range(count)]
    world.settle(within_s=8)
    return world, processes


@RULES
def test_s05_second_holder_of_an_instance_id_dies_and_the_first_goes_on(rules: Rules) -> None:
    """S05: UNRELEASED_INSTANCE_ID is fatal for the new one; the old ones see no rebalance; later new ones may join."""
    world, old = group_of(2, rules)
    epoch = world.coordinator.groups[GROUP].epoch
    new = [world.start(seat + 2, "a", settings=static(seat)) for seat in range(2)]
    world.run_for(3)
    assert [process.member.state for process in new] == [MemberState.FATAL, MemberState.FATAL]
    assert [process.member.last_error.name for process in new if process.member.last_error] == [
        "UNRELEASED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
    ]
    assert [process.member.state for process in old] == [MemberState.STABLE, MemberState.STABLE]
    assert world.coordinator.groups[GROUP].epoch == epoch
    for process in old:
        process.kill()
    world.run_for(rules.session_timeout_s + 1)
    late = [world.start(seat + 4, "a", settings=static(seat)) for seat in range(2)]
    for process in new:
        process.kill()
    world.settle(within_s=6)
    assert [process.member.state for process in late] == [MemberState.STABLE, MemberState.STABLE]


@RULES
def test_s06_of_two_that_start_together_one_survives(rules: Rules) -> None:
    """S06: exactly one per instance id survives; the other one dies."""
    world = World(2, rules=rules)
    world.create_topic("a", 4)
    pair = [world.start(seat, "a", settings=static(0)) for seat in range(2)]
    world.run_for(5)
    assert sorted(str(process.member.state) for process in pair) == ["FATAL", "STABLE"]


@RULES
def test_b05_returning_static_member_gets_its_partitions_back(rules: Rules) -> None:
    """B05: -2, then a new member id: the same partitions at once, and nobody else is touched."""
    world, (one, other) = group_of(2, rules)
    before, epoch = one.application.fetchable, world.coordinator.groups[GROUP].epoch
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    world.run_for(1)
    assert (one.alive, len(other.application.fetchable)) == (False, 2)
    again = world.start(2, "a", settings=static(0))
    world.settle(within_s=2)
    assert again.application.fetchable == before
    assert world.coordinator.groups[GROUP].epoch == epoch
    assert len(other.application.called(Step.ASSIGN)) <= 2
    assert world.ledger.repeated == 0


@RULES
def test_b06_static_member_that_does_not_return_loses_its_place(rules: Rules) -> None:
    """B06: after -2 and the session timeout the others get its partitions."""
    world, (one, other) = group_of(2, rules)
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    world.run_for(rules.session_timeout_s - 3)
    assert len(other.application.fetchable) == 2
    world.settle(within_s=8)
    assert len(other.application.fetchable) == 4
    assert world.ledger.repeated == 0


@RULES
@pytest.mark.parametrize("option", LeaveOption)
def test_c14_close_of_a_static_member_rebalances_only_with_leave(rules: Rules, option: LeaveOption) -> None:
    """C14: LEAVE gives the place up at once; DEFAULT and REMAIN keep it for the session."""
    world, (one, other) = group_of(2, rules)
    one.application.habits.callback_s = 2.5
    one.application.leave(option, closes=True)
    world.run_for(6)
    assert one.alive is False
    assert len(other.application.fetchable) == (4 if option is LeaveOption.LEAVE else 2)


@RULES
def test_admin_removal_of_a_live_static_member_is_transient(rules: Rules) -> None:
    """Protocol rules 3.5: the removed member hears UNKNOWN_MEMBER_ID, loses what it had and joins anew."""
    world, (one, _) = group_of(2, rules)
    assert world.coordinator.remove_member(GROUP, instance_id="i0")
    assert world.coordinator.journal[-1] == Removed(member_id=one.member.member_id, reason="removed")
    world.run_for(2)
    world.settle(within_s=8)
    assert (one.application.called(Step.LOSE) != [], one.member.state) == (True, MemberState.STABLE)


@RULES
def test_lost_answer_to_a_static_join_is_recovered_from(rules: Rules) -> None:
    """Protocol rules 3.3 (b): the instance id is held by this very member id, so it releases it and joins again."""
    world = World(3, rules=rules)
    world.create_topic("a", 2)
    world.faults.answer_lost = 1.0
    one = world.start(0, "a", settings=static(0))
    world.run_for(0.1)
    world.faults.answer_lost = 0.0
    world.settle(within_s=6)
    assert (one.member.state, one.member_ids) == (MemberState.STABLE, [one.member.member_id])
