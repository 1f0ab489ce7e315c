"""Groups whose members may use either protocol: each member uses its group's protocol and changes when it must."""

from __future__ import annotations

import pytest

from consumer_membership.membership.events import Step
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.either import EitherCoordinator
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_4, ClassicRules, Rules
from consumer_membership.types import GroupProtocol, LeaveOption
from tests.simulation.process import Process
from tests.simulation.simulation import GROUP, Simulation, protocols_of

CONSUMER, CLASSIC = GroupProtocol.CONSUMER, GroupProtocol.CLASSIC
RULES = pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_4], ids=["4.0", "4.4"])


def simulation_of(rules: Rules = RULES_4_4, *, offers_consumer: bool = True) -> Simulation:
    """Return a simulation with topic a and a broker that supports both protocols."""
    simulation = Simulation(1, rules=(rules, ClassicRules(initial_rebalance_delay_s=0.2)))
    assert isinstance(simulation.coordinator, EitherCoordinator)
    simulation.coordinator.offers_consumer = offers_consumer
    simulation.create_topic("a", 4)
    return simulation


def spoken(*processes: Process) -> list[GroupProtocol]:
    """Return the protocols that the members use."""
    return [process.member.protocol for process in processes]


def leave(simulation: Simulation, *processes: Process) -> None:
    """Close these members one after the other."""
    for process in processes:
        process.application.leave(LeaveOption.DEFAULT, closes=True)
        simulation.run_for(1.0)
        assert not process.alive


@RULES
def test_auto_members_of_a_new_group_use_the_consumer_protocol(rules: Rules) -> None:
    """With auto, the preferred protocol is used if the broker offers it and the group does not exist."""
    simulation = simulation_of(rules)
    pair = [simulation.start(slot, "a") for slot in range(2)]
    simulation.settle(within_s=8)
    assert spoken(*pair) == [CONSUMER, CONSUMER]


def test_auto_members_are_classic_on_a_broker_without_the_consumer_protocol() -> None:
    """After UNSUPPORTED_VERSION, when they own no partition yet, the same members join with the classic protocol."""
    simulation = simulation_of(offers_consumer=False)
    pair = [simulation.start(slot, "a") for slot in range(2)]
    simulation.settle(within_s=10)
    assert spoken(*pair) == [CLASSIC, CLASSIC]
    assert sorted(len(process.application.fetchable) for process in pair) == [2, 2]


def test_auto_member_joins_a_classic_group_with_members_as_a_classic_member() -> None:
    """A join that gets GROUP_ID_NOT_FOUND, because the classic group has members, is followed by a classic join."""
    simulation = simulation_of()
    old = simulation.start(0, "a", protocols=protocols_of(CLASSIC))
    simulation.settle(within_s=8)
    new = simulation.start(1, "a")
    simulation.settle(within_s=10)
    assert (spoken(old, new), simulation.ledger.repeated) == ([CLASSIC, CLASSIC], 0)


def test_emptied_group_changes_its_protocol_and_keeps_its_offsets() -> None:
    """If classic members leave permanently and a consumer protocol member joins, no record is read twice."""
    simulation = simulation_of()
    old = [simulation.start(slot, "a", protocols=protocols_of(CLASSIC)) for slot in range(2)]
    simulation.settle(within_s=8)
    simulation.run_for(3)
    leave(simulation, *old)
    committed = dict(simulation.coordinator.groups[GROUP].committed)
    new = simulation.start(2, "a")
    simulation.settle(within_s=8)
    assert (spoken(new), bool(committed), simulation.ledger.repeated) == ([CONSUMER], True, 0)


def test_member_follows_its_group_to_the_other_protocol() -> None:
    """A removed classic member that polls again joins its group, which has become a consumer group meanwhile."""
    simulation = simulation_of()
    stays = simulation.start(0, "a", protocols=protocols_of(CLASSIC))
    simulation.settle(within_s=8)
    changes = simulation.start(1, "a")
    simulation.settle(within_s=10)
    assert spoken(changes) == [CLASSIC]
    changes.application.poll_after(6.0, is_in_poll=False)
    simulation.expel(changes.view.member_id)
    leave(simulation, stays)
    new = simulation.start(2, "a", protocols=protocols_of(CONSUMER))
    simulation.run_for(6)
    simulation.settle(within_s=12)
    assert spoken(changes, new) == [CONSUMER, CONSUMER]
    assert len(changes.application.called(Step.LOSE)) == 1


def test_classic_only_member_is_refused_by_a_consumer_group() -> None:
    """INCONSISTENT_GROUP_PROTOCOL ends a member that may use only the classic protocol; the group continues."""
    simulation = simulation_of()
    one = simulation.start(0, "a", protocols=protocols_of(CONSUMER))
    simulation.settle(within_s=8)
    other = simulation.start(1, "a", protocols=protocols_of(CLASSIC))
    other.may_end_with = frozenset({"INCONSISTENT_GROUP_PROTOCOL"})
    simulation.run_for(3)
    assert (other.state, other.failed, one.state) == (MemberState.FATAL, True, MemberState.STABLE)
    assert one.application.called(Step.REVOKE) == []
