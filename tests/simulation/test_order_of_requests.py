"""Members that are closed at any moment of their join leave no stale member, even if the join looks up its group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from consumer_membership.membership.settings import MemberSettings
from consumer_membership.testing.coordinators.rules import RULES_4_4, ClassicRules
from consumer_membership.types import ConflictPolicy, LeaveOption
from tests.simulation import mutants as broken
from tests.simulation.network import Faults
from tests.simulation.process_invariants import Violation
from tests.simulation.simulation import GROUP, Simulation

ROUNDS = 60


def close_at_any_moment(seed: int, instance_id: str | None, outbox: type | None = None) -> None:
    """Close members during their joins in groups of either protocol, and check that none remains as a stale member."""
    simulation = Simulation(
        seed, rules=(RULES_4_4, ClassicRules(initial_rebalance_delay_s=0.2)), faults=Faults(slow=0.05)
    )
    if outbox is not None:
        simulation.make_outbox = outbox
    simulation.create_topic("a", 2)
    # Each join describes the group first, so that it does not convert a classic group with members.
    protocols = replace(simulation.protocols, refuse_conversion=True)
    settings = MemberSettings(group_id=GROUP, instance_id=instance_id, conflict_policy=ConflictPolicy.TAKEOVER)
    for slot in range(ROUNDS):
        process = simulation.start(slot, "a", settings=settings, protocols=protocols)
        simulation.run_for(0.01 + 0.06 * simulation.random.random())
        process.application.leave(LeaveOption.LEAVE, closes=True)
        assert simulation.run(simulation.now + 5.0, when=lambda: not process.alive)  # noqa: B023 - called before the next round
        assert simulation.coordinator.members(GROUP) == frozenset()


@pytest.mark.parametrize("instance_id", [None, "i"], ids=["dynamic", "static"])
def test_close_during_the_join_leaves_no_stale_member(instance_id: str | None) -> None:
    """M111: The coordinator never handles a leave before a join that the member ordered earlier."""
    close_at_any_moment(1, instance_id)


@pytest.mark.parametrize("instance_id", [None, "i"], ids=["dynamic", "static"])
def test_outbox_that_sends_a_leave_before_its_join_is_caught(instance_id: str | None) -> None:
    """The invariant reports a leave that arrives before its join, because the network can reorder them."""
    with pytest.raises((Violation, AssertionError), match="was overtaken by"):
        close_at_any_moment(1, instance_id, broken.WritesAtOnce)
