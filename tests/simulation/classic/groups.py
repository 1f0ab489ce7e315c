"""Builders of whole classic groups: the real members and assignors in a simulation with a classic coordinator."""

from __future__ import annotations

from collections.abc import Callable

from consumer_membership.assignors.assignor import Assignor
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.testing.coordinators.rules import ClassicRules
from consumer_membership.types import GroupProtocol
from tests.simulation.application import Behavior
from tests.simulation.network import Faults
from tests.simulation.process import Process
from tests.simulation.simulation import GROUP, Simulation, protocols_of
from tests.support.subscriptions import to_a_member


def simulation_of(
    seed: int = 0,
    *,
    partitions: int = 6,
    max_size: int = 2**31 - 1,
    faults: Faults | None = None,
    make_member: Callable[..., MemberCore] = MemberCore,
) -> Simulation:
    """Return a simulation with topic a, in which a new group waits 0.2 s for its second member."""
    rules = ClassicRules(initial_rebalance_delay_s=0.2, max_size=max_size)
    simulation = Simulation(seed, rules=rules, faults=faults, make_member=make_member)
    simulation.create_topic("a", partitions)
    return simulation


def start(
    simulation: Simulation,
    *topics: str,
    pattern: str | None = None,
    assignor: str | Assignor = "cooperative-sticky",
    instance_id: str | None = None,
) -> Process:
    """Start a process that subscribes and polls often."""
    settings = MemberSettings(
        group_id=GROUP, instance_id=instance_id, max_poll_interval_s=10.0, auto_commit_interval_s=1.0
    )
    return simulation.start(
        len(simulation.processes),
        settings=settings,
        protocols=protocols_of(GroupProtocol.CLASSIC, assignors=(assignor,)),
        behavior=Behavior(think_s=0.12, batch=1),
        subscription=to_a_member(*topics, pattern=pattern),
    )
