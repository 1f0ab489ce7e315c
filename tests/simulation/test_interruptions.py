"""A membership that ends, or a target that changes, during a reconciliation (rules 1.8, M70 to M77).

In each of these simulations, one member performs a slow step; the invariants are checked throughout.
"""

from __future__ import annotations

import pytest

from consumer_membership.membership.events import Step
from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, Rules
from consumer_membership.types import LeaveOption, Subscription, TopicPartition
from tests.simulation import internals
from tests.simulation.application import Behavior
from tests.simulation.process import Process
from tests.simulation.simulation import GROUP, Simulation

RULES = pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_2, RULES_4_4], ids=["4.0", "4.2", "4.4"])


def alone(rules: Rules, *, behavior: Behavior | None = None, auto_commit: bool = True) -> tuple[Simulation, Process]:
    """Return a member of topic a that is about to join, alone."""
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", 4)
    settings = MemberSettings(group_id=GROUP, auto_commit=auto_commit, auto_commit_interval_s=60.0)
    return simulation, simulation.start(0, "a", settings=settings, behavior=behavior)


def in_phase(phase: Phase, rules: Rules) -> tuple[Simulation, Process]:
    """Return a member in this phase of the revocation of half of its partitions for another member."""
    simulation, one = alone(rules)
    simulation.settle(within_s=5)
    simulation.run_for(2)
    one.application.behavior.callback_s = 3.0
    if phase is Phase.PAUSE:
        one.application.poll_after(4.0, is_in_poll=False)
    simulation.start(1, "a")
    if phase is Phase.COMMIT:
        simulation.run(simulation.now + 5, when=lambda: internals.phase(one.member) is Phase.PAUSE)
        simulation.faults.answer_lost = 1.0
    assert simulation.run(simulation.now + 5, when=lambda: internals.phase(one.member) is phase), phase
    simulation.faults.answer_lost = 0.0
    return simulation, one


def fence(simulation: Simulation, process: Process) -> None:
    """Make the coordinator remove the member, and wait until the member has received the error."""
    simulation.expel(process.view.member_id)
    simulation.invariants.read_journal()
    assert simulation.run(simulation.now + 5, when=lambda: process.state in (MemberState.FENCED, MemberState.JOINING))


@RULES
@pytest.mark.parametrize(
    "phase", [Phase.PAUSE, Phase.COMMIT, Phase.REVOKE], ids=["m70 before a step", "m71 commit", "m72 on_revoke"]
)
def test_m70_m71_m72_reconciliation_ends_when_the_member_is_fenced(rules: Rules, phase: Phase) -> None:
    """M70-M72: A fenced member acknowledges no pending partitions, and loses each partition once before it rejoins."""
    simulation, one = in_phase(phase, rules)
    held = one.application.held.keys() | set()
    attempt = one.member.newest_attempt
    fence(simulation, one)
    one.application.behavior.callback_s = 0.0
    simulation.settle(within_s=rules.session_timeout_s + 8)
    given_up = [p for step in (Step.REVOKE, Step.LOSE) for calls in one.application.called(step) for p in calls]
    assert sorted(given_up)[: len(held)] == sorted(held)
    assert one.member.newest_attempt > attempt


@RULES
def test_m73_rejoin_while_on_assign_runs_discards_its_result(rules: Rules) -> None:
    """M73: The partitions of the running on_assign are lost, and assigned again in the next membership."""
    simulation, one = alone(rules, behavior=Behavior(callback_s=3.0))
    assert simulation.run(5, when=lambda: internals.phase(one.member) is Phase.ASSIGN)
    fence(simulation, one)
    one.application.behavior.callback_s = 0.0
    simulation.settle(within_s=rules.session_timeout_s + 8)
    everything = frozenset(TopicPartition("a", number) for number in range(4))
    assert one.application.called(Step.LOSE) == [everything]
    assert [calls for calls in one.application.called(Step.ASSIGN) if calls] == [everything, everything]


@RULES
def test_m74_same_assignment_is_reconciled_again_after_a_fence(rules: Rules) -> None:
    """M74: After fence, loss and rejoin, a full reconciliation assigns the same partitions."""
    simulation, one = alone(rules)
    simulation.settle(within_s=5)
    before = one.application.fetchable
    fence(simulation, one)
    simulation.settle(within_s=rules.session_timeout_s + 6)
    assert (one.application.fetchable, one.application.called(Step.LOSE)) == (before, [before])


@RULES
def test_m75_m76_newer_target_waits_for_the_running_reconciliation(rules: Rules) -> None:
    """M75, M76: The first target is applied and acknowledged, and then the newer target: two rounds of callbacks."""
    simulation, one = alone(rules, behavior=Behavior(callback_s=3.0))
    assert simulation.run(5, when=lambda: internals.phase(one.member) is Phase.ASSIGN)
    simulation.start(1, "a")
    simulation.run_for(2.5)
    assert internals.phase(one.member) is Phase.ASSIGN
    one.application.behavior.callback_s = 0.0
    simulation.settle(within_s=8)
    sizes = [len(calls) for calls in one.application.called(Step.ASSIGN) if calls]
    assert (sizes, [len(calls) for calls in one.application.called(Step.REVOKE)]) == ([4], [2])


@RULES
def test_m77_leave_during_reconciliation_then_rejoin_is_clean(rules: Rules) -> None:
    """M77: A leave ends the reconciliation and revokes all partitions once, and the member may join again."""
    simulation, one = in_phase(Phase.PAUSE, rules)
    held = one.application.held.keys() | set()
    one.application.leave(LeaveOption.DEFAULT, closes=False)
    one.application.behavior.callback_s = 0.0
    simulation.run(simulation.now + 3, when=lambda: one.state is MemberState.UNSUBSCRIBED)
    assert one.application.called(Step.REVOKE) == [held]
    one.subscription = Subscription(topics=frozenset({"a"}))
    one.application.subscribe(one.subscription)
    simulation.run_for(0.5)
    simulation.settle(within_s=8)
    assert simulation.ledger.repeated == 0


@RULES
def test_h22_lost_acknowledgement_is_repeated_in_full(rules: Rules) -> None:
    """H22: After a lost acknowledgement of a revocation the next heartbeat is complete, and the handover continues."""
    simulation, one = in_phase(Phase.REVOKE, rules)
    simulation.faults.request_lost = 1.0
    assert simulation.run(simulation.now + 5, when=lambda: internals.phase(one.member) is Phase.IDLE)
    simulation.run_for(0.1)
    simulation.faults.request_lost = 0.0
    simulation.settle(within_s=6)
    assert (one.application.called(Step.LOSE), simulation.ledger.repeated) == ([], 0)


# ---- bugs that these tests found ----


def lose_a_heartbeat_during_on_assign(simulation: Simulation, one: Process) -> Process:
    """Let a heartbeat of the first process get lost during on_assign, and start another process; return it."""
    assert simulation.run(5, when=lambda: internals.phase(one.member) is Phase.ASSIGN)
    simulation.run_for(0.5)
    simulation.faults.request_lost = 1.0
    heartbeats = simulation.invariants.heartbeats_of(one)
    assert simulation.run(simulation.now + 2, when=lambda: simulation.invariants.heartbeats_of(one) > heartbeats)
    simulation.faults.request_lost = 0.0
    other = simulation.start(1, "a")
    assert simulation.run(simulation.now + 3, when=lambda: internals.heartbeat_in_flight(one.member) is None)
    return other


@RULES
def test_complete_heartbeat_claims_partitions_during_on_assign(rules: Rules) -> None:
    """A complete heartbeat contains all partitions that the coordinator may not reassign, also those being assigned.

    An earlier version sent only the owned partitions. The coordinator treated the other partitions as revoked and
    assigned them to the next member, while the application of the first member was about to fetch them.
    """
    simulation, one = alone(rules, behavior=Behavior(callback_s=4.0))
    other = lose_a_heartbeat_during_on_assign(simulation, one)
    simulation.run_for(1.0)
    assert other.application.held == {}
    simulation.settle(within_s=10)
    assert simulation.ledger.repeated == 0


@RULES
def test_leaving_member_claims_partitions_during_on_assign(rules: Rules) -> None:
    """A leave during on_assign cleanly revokes the partitions of that callback."""
    simulation, one = alone(rules, behavior=Behavior(callback_s=4.0))
    other = lose_a_heartbeat_during_on_assign(simulation, one)
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(1.0)
    assert other.application.held == {}
    simulation.settle(within_s=10)
    assert (one.alive, len(other.application.held)) == (False, 4)


@RULES
def test_leaving_static_member_keeps_its_subscription_until_it_has_left(rules: Rules) -> None:
    """A leaving static member sends its subscription until it has left, so that it keeps its partitions."""
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", 4)
    one, other = (
        simulation.start(slot, "a", settings=MemberSettings(group_id=GROUP, instance_id=f"i{slot}"))
        for slot in range(2)
    )
    simulation.settle(within_s=8)
    epoch = simulation.coordinator.groups[GROUP].epoch
    one.application.behavior.callback_s = 2.5
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(5)
    assert (one.alive, len(other.application.held), simulation.coordinator.groups[GROUP].epoch) == (False, 2, epoch)


@RULES
def test_member_removed_while_it_fetches_offsets_rejoins(rules: Rules) -> None:
    """A member whose OffsetFetch gets UNKNOWN_MEMBER_ID before a heartbeat does rejoins, and does not end."""
    simulation, one = alone(rules)
    assert simulation.run(5, when=lambda: internals.phase(one.member) is Phase.FETCH)
    fence(simulation, one)
    simulation.settle(within_s=8)
    assert MemberState.FATAL not in [transition.new for transition in one.view.transitions]
