"""The behavior of a group without random faults: the scenarios of Kafka's system tests and a few more."""

from __future__ import annotations

import pytest

from consumer_membership.membership.effects import Problem
from consumer_membership.membership.events import Step
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, Rules
from consumer_membership.types import LeaveOption, OffsetAndMetadata, Subscription
from tests.simulation.application import Behavior
from tests.simulation.process import Process
from tests.simulation.simulation import GROUP, Simulation

RULES = pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_2, RULES_4_4], ids=["4.0", "4.2", "4.4"])


def group_of(
    count: int,
    rules: Rules,
    *,
    partitions: int = 4,
    behavior: Behavior | None = None,
    max_poll_interval_s: float = 300.0,
) -> tuple[Simulation, list[Process]]:
    """Return a settled group of this many dynamic members on topic a."""
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", partitions)
    settings = MemberSettings(group_id=GROUP, max_poll_interval_s=max_poll_interval_s, auto_commit_interval_s=1.0)
    for slot in range(count):
        simulation.start(slot, "a", settings=settings, behavior=behavior)
    simulation.settle(within_s=10)
    return simulation, simulation.live_processes


def shares(simulation: Simulation) -> list[int]:
    """Return the number of partitions that each live process reads, ascending."""
    return sorted(len(process.application.fetchable) for process in simulation.live_processes)


# ---- brokers ----


@RULES
def test_s01_rolling_bounce_of_brokers_causes_no_rebalance(rules: Rules) -> None:
    """S01: The coordinator moves five times; no member loses or gets a partition, and consumption continues."""
    simulation, processes = group_of(3, rules)
    epoch, calls = simulation.coordinator.groups[GROUP].epoch, [len(process.application.calls) for process in processes]
    for node in (2, 3, 1, 2, 3):
        simulation.move_coordinator(node, loading_s=0.5)
        for process in processes:
            process.break_connections("the broker stopped")
        simulation.run_for(3)
    assert simulation.coordinator.groups[GROUP].epoch == epoch
    assert [len(process.application.calls) for process in processes] == calls
    assert (simulation.is_settled, simulation.ledger.repeated) == (True, 0)


@RULES
def test_s08_broker_failure_causes_no_rebalance(rules: Rules) -> None:
    """S08: A coordinator outage longer than a request timeout but shorter than a session causes no rebalance."""
    simulation, processes = group_of(2, rules)
    calls = [len(process.application.calls) for process in processes]
    simulation.nodes_down.add(simulation.coordinator.node_id)
    for process in processes:
        process.break_connections("the broker died")
    simulation.run_for(3)
    simulation.nodes_down.clear()
    simulation.move_coordinator(2, loading_s=0.5)
    simulation.run_for(4)
    assert [len(process.application.calls) for process in processes] == calls
    assert (simulation.is_settled, simulation.ledger.repeated) == (True, 0)


# ---- members come and go ----


@RULES
@pytest.mark.parametrize("is_rolling", [True, False], ids=["rolling", "all"])
def test_s02_clean_bounce_of_consumers_repeats_no_record(rules: Rules, *, is_rolling: bool) -> None:
    """S02: The group forms again after each bounce, and a clean shutdown repeats no record."""
    simulation, _ = group_of(3, rules)
    for _ in range(2):
        for process in list(simulation.live_processes):
            process.application.leave(LeaveOption.DEFAULT, closes=True)
            if is_rolling:
                simulation.run_for(1)
                simulation.start(process.slot, "a")
        simulation.run_for(1)
        for slot in range(3 if not is_rolling else 0):
            simulation.start(slot, "a")
        simulation.settle(within_s=8)
    assert (shares(simulation), simulation.ledger.repeated) == ([1, 1, 2], 0)


@RULES
@pytest.mark.parametrize("auto_commit", [True, False])
def test_s07_other_member_gets_the_partitions_of_a_killed_one(rules: Rules, *, auto_commit: bool) -> None:
    """S07: After the session timeout the other member reads all partitions from their committed offsets on."""
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", 4)
    settings = MemberSettings(group_id=GROUP, auto_commit=auto_commit, auto_commit_interval_s=1.0)
    one, other = (
        simulation.start(slot, "a", settings=settings, behavior=Behavior(commits_every=3)) for slot in range(2)
    )
    simulation.settle(within_s=8)
    simulation.run_for(2)
    one.kill()
    simulation.settle(within_s=rules.session_timeout_s + 4)
    assert len(other.application.fetchable) == 4
    assert all(
        simulation.ledger.prefix(p) >= at.offset for p, at in simulation.coordinator.groups[GROUP].committed.items()
    )


@RULES
def test_s09_members_added_and_removed_one_by_one_consume_all_records(rules: Rules) -> None:
    """S09: All records are consumed after each change, in balanced shares."""
    simulation, _ = group_of(1, rules)
    seen = [shares(simulation)]
    for slot in range(1, 4):
        simulation.start(slot, "a")
        simulation.settle(within_s=8)
        seen.append(shares(simulation))
    for process in list(simulation.live_processes)[:3]:
        process.application.leave(LeaveOption.DEFAULT, closes=True)
        simulation.run_for(0.5)
        simulation.settle(within_s=8)
        seen.append(shares(simulation))
    assert seen == [[4], [2, 2], [1, 1, 2], [1, 1, 1, 1], [1, 1, 2], [2, 2], [4]]
    assert simulation.ledger.repeated == 0


@RULES
def test_b11_two_members_complete_a_handover_within_three_heartbeats(rules: Rules) -> None:
    """B11: The owner revokes after its next heartbeat and acknowledges; then the other member gets the partition."""
    simulation, (one,) = group_of(1, rules)
    simulation.run_for(5)
    other = simulation.start(1, "a")
    took = simulation.settle(within_s=5)
    assert shares(simulation) == [2, 2]
    assert one.application.called(Step.REVOKE) == [other.application.fetchable]
    assert took < 2 * rules.heartbeat_interval_s + rules.assignment_interval_s + 1


@RULES
def test_c15_dynamic_member_closed_with_remain_keeps_its_partitions_for_its_session(rules: Rules) -> None:
    """C15: A close with REMAIN sends no leave, so the member keeps its partitions until its session ends."""
    simulation, (one, other) = group_of(2, rules)
    one.application.leave(LeaveOption.REMAIN, closes=True)
    simulation.run_for(rules.session_timeout_s - 3)
    assert (one.alive, len(other.application.fetchable)) == (False, 2)
    simulation.settle(within_s=6)
    assert len(other.application.fetchable) == 4


def test_c19_excess_member_fails_and_the_others_continue() -> None:
    """C19: GROUP_MAX_SIZE_REACHED is fatal for the additional member."""
    simulation, processes = group_of(2, Rules(max_size=2))
    excess = simulation.start(2, "a")
    simulation.run_for(3)
    assert (excess.state, excess.failed) == (MemberState.FATAL, True)
    assert [process.state for process in processes] == [MemberState.STABLE] * 2
    processes[0].application.leave(LeaveOption.DEFAULT, closes=True)
    excess.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(2)
    simulation.start(3, "a")
    simulation.settle(within_s=5)
    assert shares(simulation) == [2, 2]


# ---- applications that do not poll, or poll late ----


@RULES
def test_c01_member_beyond_max_poll_interval_loses_partitions_and_rejoins(rules: Rules) -> None:
    """C01: The member leaves, reports the error, calls on_lost at the next poll and joins again."""
    simulation, (one,) = group_of(1, rules, max_poll_interval_s=3.0)
    one.application.poll_after(5.0, is_in_poll=False)
    simulation.run_for(4.0)
    assert (one.state, one.application.called(Step.LOSE)) == (MemberState.STALE, [])
    simulation.run_for(1.5)
    simulation.settle(within_s=5)
    assert [error.problem for error in one.application.errors] == [Problem.POLL_TIMEOUT]
    assert one.application.called(Step.LOSE) == [one.application.fetchable]


@RULES
def test_c20_other_member_gets_the_partitions_of_a_stalled_one(rules: Rules) -> None:
    """C20: While one of two members does not poll, the other member has all partitions."""
    simulation, (one, other) = group_of(2, rules, max_poll_interval_s=3.0)
    one.application.poll_after(9.0, is_in_poll=False)
    simulation.run_for(7.0)
    assert len(other.application.fetchable) == 4
    simulation.run_for(3.0)
    simulation.settle(within_s=6)
    assert shares(simulation) == [2, 2]


@RULES
@pytest.mark.parametrize("step", [Step.REVOKE, Step.ASSIGN], ids=["c02", "c03"])
def test_c02_c03_long_callback_delays_only_the_handover(rules: Rules, step: Step) -> None:
    """C02, C03: A callback that is longer than a session only delays the handover, because heartbeats continue."""
    simulation, (one,) = group_of(1, rules)
    slow = one.application.behavior if step is Step.REVOKE else Behavior(callback_s=rules.session_timeout_s + 2)
    slow.callback_s = rules.session_timeout_s + 2
    simulation.start(1, "a", behavior=slow if step is Step.ASSIGN else None)
    simulation.run_for(rules.session_timeout_s)
    assert len(simulation.coordinator.groups[GROUP].members) == 2
    slow.callback_s = 0.0
    simulation.settle(within_s=2 * rules.session_timeout_s)
    assert (shares(simulation), one.application.called(Step.LOSE), simulation.ledger.repeated) == ([2, 2], [], 0)


@RULES
def test_c04_late_poll_completes_a_rebalance(rules: Rules) -> None:
    """C04: An owner that polls late, but within its limit, revokes in that poll, and the rebalance completes."""
    simulation, (one,) = group_of(1, rules)
    one.application.poll_after(6.0, is_in_poll=False)
    simulation.start(1, "a")
    simulation.run_for(5.0)
    assert (shares(simulation), one.state) == ([0, 4], MemberState.RECONCILE)
    simulation.settle(within_s=5)
    assert (shares(simulation), simulation.ledger.repeated) == ([2, 2], 0)


# ---- commits and subscriptions ----


@RULES
def test_c07_commit_inside_on_revoke_is_accepted(rules: Rules) -> None:
    """C07: The commit carries the epoch at which the member still owns the partitions."""
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", 4)
    settings = MemberSettings(group_id=GROUP, auto_commit=False)
    one = simulation.start(0, "a", settings=settings, behavior=Behavior(commits_in_revoke=True))
    simulation.settle(within_s=5)
    simulation.run_for(2)
    simulation.start(1, "a", settings=settings, behavior=Behavior(commits_in_revoke=True))
    simulation.settle(within_s=6)
    (revoked,) = one.application.called(Step.REVOKE)
    assert revoked <= simulation.coordinator.groups[GROUP].committed.keys()
    assert simulation.ledger.repeated == 0


@RULES
def test_late_commit_of_a_given_up_partition_does_not_move_the_new_owner_back(rules: Rules) -> None:
    """A commit after its member has released the partition does not overwrite the new owner's committed offset.

    A coordinator before 4.2 accepts the commit of a member whose epoch is current, even if another member owns the
    partition.
    """
    simulation, (one,) = group_of(1, rules)
    simulation.start(1, "a")
    simulation.settle(within_s=6)
    (revoked,) = one.application.called(Step.REVOKE)
    simulation.run_for(2)
    committed = dict(simulation.coordinator.groups[GROUP].committed)
    late = dict.fromkeys(revoked, OffsetAndMetadata(offset=1))
    one.application.commit_offsets(late)
    simulation.run_for(0.5)
    now = simulation.coordinator.groups[GROUP].committed
    assert all(now[partition].offset >= committed[partition].offset > 1 for partition in revoked)


@RULES
def test_c08_auto_commit_runs_before_revocation_and_at_close(rules: Rules) -> None:
    """C08: Returned records are committed before their partition is revoked, so that none is repeated."""
    simulation, (one,) = group_of(1, rules)
    simulation.start(1, "a")
    simulation.settle(within_s=6)
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(0.5)
    simulation.settle(within_s=6)
    assert (shares(simulation), simulation.ledger.repeated) == ([4], 0)


@RULES
def test_c10_changed_subscription_reassigns_a_member_to_other_topics(rules: Rules) -> None:
    """C10: The partitions of the old topic are revoked, those of the new topic assigned, and the member stays."""
    simulation, (one,) = group_of(1, rules)
    simulation.create_topic("b", 2)
    member_id, before = one.view.member_id, one.application.fetchable
    one.subscription = Subscription(topics=frozenset({"b"}))
    one.application.subscribe(one.subscription)
    simulation.run_for(0.2)
    simulation.settle(within_s=5)
    assert one.application.called(Step.REVOKE) == [before]
    assert ({p.topic for p in one.application.fetchable}, one.view.member_id) == ({"b"}, member_id)
    assert one.application.called(Step.LOSE) == []


@RULES
def test_c11_unsubscribe_then_subscribe_joins_again(rules: Rules) -> None:
    """C11: A member that unsubscribes and subscribes again leaves and rejoins with the same id."""
    simulation, (one,) = group_of(1, rules)
    one.application.leave(LeaveOption.DEFAULT, closes=False)
    simulation.run_for(1)
    assert (one.state, one.application.held) == (MemberState.UNSUBSCRIBED, {})
    one.subscription = Subscription(topics=frozenset({"a"}))
    one.application.subscribe(one.subscription)
    simulation.run_for(0.2)
    simulation.settle(within_s=5)
    assert (shares(simulation), one.member_ids) == ([4], [one.view.member_id])


@RULES
def test_recreated_topic_is_revoked_and_read_from_its_start(rules: Rules) -> None:
    """Rules 1.8: If a topic is recreated, the member revokes it, gets it again, and reads it from its own start.

    Automatic commits are off, because OffsetCommit v9 has only names: the offset of the old topic would apply.
    """
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", 1)
    one = simulation.start(0, "a", settings=MemberSettings(group_id=GROUP, auto_commit=False))
    simulation.settle(within_s=5)
    simulation.run_for(3)
    simulation.delete_topic("a")
    simulation.create_topic("a", 1)
    simulation.run_for(2.5)
    simulation.settle(within_s=5)
    assert len(one.application.called(Step.REVOKE)) == 1
    assert min(one.application.held.values()) < 20
