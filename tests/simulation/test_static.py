"""Static members against the simulated coordinator (KIP-345 on KIP-848; rules 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from consumer_membership.membership.consumer.claim import NEWEST_FOR_S
from consumer_membership.membership.events import Step
from consumer_membership.membership.member import MemberCore
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import MemberState
from consumer_membership.testing.coordinators.exchanges import LeaveGroup, LeaveResults, LeavingMember
from consumer_membership.testing.coordinators.journal import Removed
from consumer_membership.testing.coordinators.rules import RULES_4_0, RULES_4_2, RULES_4_4, Rules
from consumer_membership.types import LEAVE_STATIC_EPOCH, ConflictPolicy, LeaveOption
from tests.simulation import mutants as broken
from tests.simulation.network import Faults
from tests.simulation.process import Process
from tests.simulation.process_invariants import Violation
from tests.simulation.simulation import GROUP, Simulation

#: A network that is so fast that the limit of a twentieth of a member's time does not delay its requests.
FAST = Faults(latency_s=0.0005)
SLOWEST_ROUND_TRIP_S = 2 * 1.5 * FAST.latency_s

RULES = pytest.mark.parametrize("rules", [RULES_4_0, RULES_4_2, RULES_4_4], ids=["4.0", "4.2", "4.4"])


def static(
    slot: int, *, instance: str | None = None, policy: ConflictPolicy = ConflictPolicy.TAKEOVER
) -> MemberSettings:
    """Return the settings of the static member in this slot."""
    return MemberSettings(group_id=GROUP, instance_id=instance or f"i{slot}", conflict_policy=policy)


def group_of(count: int, rules: Rules, *, partitions: int = 4) -> tuple[Simulation, list[Process]]:
    """Return a settled group of this many static members."""
    simulation = Simulation(1, rules=rules)
    simulation.create_topic("a", partitions)
    processes = [simulation.start(slot, "a", settings=static(slot)) for slot in range(count)]
    simulation.settle(within_s=8)
    return simulation, processes


@RULES
def test_s05_second_holder_of_an_instance_id_fails_and_the_first_continues(rules: Rules) -> None:
    """S05, policy fail: The error is fatal for the new holder, and the old members have no rebalance.

    Later new members may join.
    """
    simulation, old = group_of(2, rules)
    epoch = simulation.coordinator.groups[GROUP].epoch
    fail = ConflictPolicy.FAIL
    new = [simulation.start(slot + 2, "a", settings=static(slot, policy=fail)) for slot in range(2)]
    simulation.run_for(3)
    assert [process.state for process in new] == [MemberState.FATAL, MemberState.FATAL]
    assert [process.member.last_error.name for process in new if process.member.last_error] == [
        "UNRELEASED_INSTANCE_ID",
        "UNRELEASED_INSTANCE_ID",
    ]
    assert [process.state for process in old] == [MemberState.STABLE, MemberState.STABLE]
    assert simulation.coordinator.groups[GROUP].epoch == epoch
    for process in old:
        process.kill()
    simulation.run_for(rules.session_timeout_s + 1)
    late = [simulation.start(slot + 4, "a", settings=static(slot)) for slot in range(2)]
    for process in new:
        process.kill()
    simulation.settle(within_s=6)
    assert [process.state for process in late] == [MemberState.STABLE, MemberState.STABLE]


@RULES
@pytest.mark.parametrize("policy", [ConflictPolicy.TAKEOVER, ConflictPolicy.FAIL])
def test_s06_one_of_two_holders_that_start_together_survives(rules: Rules, policy: ConflictPolicy) -> None:
    """S06: Of two members that start at the same time with one instance id, exactly one survives."""
    simulation = Simulation(2, rules=rules)
    simulation.create_topic("a", 4)
    pair = [simulation.start(slot, "a", settings=static(0, policy=policy)) for slot in range(2)]
    simulation.run_for(5)
    assert sorted(str(process.state) for process in pair) == ["FATAL", "STABLE"]


@RULES
@pytest.mark.parametrize("may_describe", [True, False])
def test_replacement_of_a_crashed_member_gets_its_partitions_at_once(rules: Rules, may_describe: bool) -> None:  # noqa: FBT001
    """Rules 3.3: After a takeover the replacement has the same partitions within 0.5 s; other members keep theirs."""
    simulation, (one, other) = group_of(2, rules)
    simulation.may_describe = may_describe
    before, epoch = one.application.fetchable, simulation.coordinator.groups[GROUP].epoch
    calls = len(other.application.called(Step.REVOKE))
    one.kill()
    again = simulation.start(2, "a", settings=static(0))
    took = simulation.settle(within_s=1)
    assert (again.application.fetchable, simulation.coordinator.groups[GROUP].epoch) == (before, epoch)
    assert (took < 0.5, len(other.application.called(Step.REVOKE))) == (True, calls)


@RULES
def test_newcomer_fences_a_living_holder(rules: Rules) -> None:
    """KIP-345: The former holder of a taken-over id loses its partitions at its next heartbeat and ends permanently."""
    simulation, (one, other) = group_of(2, rules)
    mine, epoch = one.application.fetchable, simulation.coordinator.groups[GROUP].epoch
    new = simulation.start(2, "a", settings=static(0))
    simulation.run_for(rules.heartbeat_interval_s + 1)
    assert (one.state, one.application.held, new.application.fetchable) == (MemberState.FATAL, {}, mine)
    assert one.member.last_error is not None
    assert new.view.member_id in one.member.last_error.message
    assert (other.state, simulation.coordinator.groups[GROUP].epoch) == (MemberState.STABLE, epoch)
    simulation.run_for(20)
    assert (one.state, new.state) == (MemberState.FATAL, MemberState.STABLE)


@RULES
def test_policy_wait_joins_when_the_stale_member_s_session_ends(rules: Rules) -> None:
    """With the policy wait, no member reads the partitions until the stale session ends; then the newcomer joins."""
    simulation, (one, _) = group_of(2, rules)
    one.kill()
    new = simulation.start(2, "a", settings=static(0, policy=ConflictPolicy.WAIT))
    simulation.run_for(rules.session_timeout_s / 2)
    assert new.state is MemberState.JOINING
    simulation.settle(within_s=rules.session_timeout_s)
    assert new.state is MemberState.STABLE


@RULES
def test_policy_wait_ends_after_a_session_if_the_holder_is_alive(rules: Rules) -> None:
    """With the policy wait, a member ends permanently if the holder is still alive after a session."""
    simulation, (one, _) = group_of(2, rules)
    new = simulation.start(2, "a", settings=static(0, policy=ConflictPolicy.WAIT))
    simulation.run_for(rules.session_timeout_s + 8)
    assert (new.state, one.state) == (MemberState.FATAL, MemberState.STABLE)


@RULES
@pytest.mark.parametrize("may_describe", [True, False])
def test_pool_gives_each_id_to_one_member(rules: Rules, may_describe: bool) -> None:  # noqa: FBT001
    """If many members claim ids of a pool at the same moment, each member gets a different id."""
    simulation = Simulation(4, rules=rules)
    simulation.create_topic("a", 40)
    simulation.may_describe = may_describe
    pool = tuple(f"pool-{number}" for number in range(40))
    settings = MemberSettings(group_id=GROUP, instance_pool=pool, conflict_policy=ConflictPolicy.WAIT)
    processes = [simulation.start(slot, "a", settings=settings) for slot in range(40)]
    simulation.settle(within_s=30)
    assert sorted(str(process.view.instance_id) for process in processes) == sorted(pool)


@RULES
def test_released_pool_id_goes_to_the_next_process(rules: Rules) -> None:
    """A process that replaces a closed process gets its id of the pool and its partitions; other members keep theirs.

    A Deployment replaces a pod by a pod with another name.
    """
    simulation = Simulation(5, rules=rules)
    simulation.create_topic("a", 4)
    settings = MemberSettings(group_id=GROUP, instance_pool=("x", "y", "z"), conflict_policy=ConflictPolicy.WAIT)
    one, _ = [simulation.start(slot, "a", settings=settings) for slot in range(2)]
    simulation.settle(within_s=8)
    before, epoch, mine = one.application.fetchable, simulation.coordinator.groups[GROUP].epoch, one.view.instance_id
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(1)
    new = simulation.start(2, "a", settings=settings)
    simulation.settle(within_s=2)
    assert (new.view.instance_id, new.application.fetchable) == (mine, before)
    assert simulation.coordinator.groups[GROUP].epoch == epoch


def waiting_for(simulation: Simulation, kind: str) -> tuple[Process, Process]:
    """Return a process, and another process that has waited for its instance id for five seconds."""
    pool = MemberSettings(group_id=GROUP, instance_pool=("x", "y"), conflict_policy=ConflictPolicy.WAIT)
    simulation.create_topic("a", 4)
    one, _ = [simulation.start(slot, "a", settings=pool if kind == "pool" else static(slot)) for slot in range(2)]
    simulation.settle(within_s=8)
    new = simulation.start(2, "a", settings=pool if kind == "pool" else static(0, policy=ConflictPolicy.WAIT))
    simulation.run_for(5)
    return one, new


@RULES
@pytest.mark.parametrize("kind", ["pool", "one id"])
@pytest.mark.parametrize("seed", range(5))
def test_process_that_waits_joins_within_50_ms_of_the_release(rules: Rules, kind: str, seed: int) -> None:
    """When the holder leaves with -2, a waiting process joins within 50 ms and the latency of its requests."""
    simulation = Simulation(seed, rules=rules, faults=FAST)
    one, new = waiting_for(simulation, kind)
    group, mine = simulation.coordinator.groups[GROUP], one.member_ids[-1]
    before, epoch = one.application.fetchable, group.epoch
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    assert simulation.run(simulation.now + 1, when=lambda: group.members[mine].epoch == LEAVE_STATIC_EPOCH)
    released_at = simulation.now
    assert simulation.run(simulation.now + 1, when=lambda: new.state is not MemberState.JOINING)
    assert simulation.now - released_at <= 0.05 + 2 * SLOWEST_ROUND_TRIP_S
    simulation.settle(within_s=2)
    assert (new.application.fetchable, simulation.coordinator.groups[GROUP].epoch) == (before, epoch)


@RULES
@pytest.mark.parametrize("kind", ["pool", "one id"])
def test_simulation_finds_a_member_that_describes_its_group_without_pause(rules: Rules, kind: str) -> None:
    """The invariants report a waiting member that describes its group more often than the limit per second."""
    simulation = Simulation(1, rules=rules, make_member=broken.made_with(broken.DescribesWithoutPause))
    with pytest.raises(Violation, match="described its group 33 times within a second"):
        waiting_for(simulation, kind)


@RULES
def test_stopped_process_that_resumes_does_not_take_its_place_back(rules: Rules) -> None:
    """A process that resumes after its session has ended ends permanently; the newer process keeps the id."""
    simulation, (one, _) = group_of(2, rules)
    new = simulation.start(2, "a", settings=static(0))
    one.break_connections("stopped")
    simulation.run_for(2 * rules.session_timeout_s)
    one.application.poll_after(0.01, is_in_poll=False)
    simulation.run_for(5)
    assert (one.state, new.state) == (MemberState.FATAL, MemberState.STABLE)


@RULES
def test_b05_returning_static_member_gets_its_partitions_back(rules: Rules) -> None:
    """B05: After a leave with -2 a new member id gets the same partitions within moments; other members keep theirs."""
    simulation, (one, other) = group_of(2, rules)
    before, epoch = one.application.fetchable, simulation.coordinator.groups[GROUP].epoch
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(1)
    assert (one.alive, len(other.application.fetchable)) == (False, 2)
    again = simulation.start(2, "a", settings=static(0))
    simulation.settle(within_s=2)
    assert again.application.fetchable == before
    assert simulation.coordinator.groups[GROUP].epoch == epoch
    assert len(other.application.called(Step.ASSIGN)) <= 2
    assert simulation.ledger.repeated == 0


@RULES
def test_b06_static_member_that_does_not_return_loses_its_place(rules: Rules) -> None:
    """B06: If a static member left with -2 and does not return within a session, other members get its partitions."""
    simulation, (one, other) = group_of(2, rules)
    one.application.leave(LeaveOption.DEFAULT, closes=True)
    simulation.run_for(rules.session_timeout_s - 3)
    assert len(other.application.fetchable) == 2
    simulation.settle(within_s=8)
    assert len(other.application.fetchable) == 4
    assert simulation.ledger.repeated == 0


@RULES
@pytest.mark.parametrize("option", LeaveOption)
def test_c14_close_of_a_static_member_rebalances_only_with_leave(rules: Rules, option: LeaveOption) -> None:
    """C14: A close with LEAVE immediately frees the partitions; DEFAULT and REMAIN keep them for the session."""
    simulation, (one, other) = group_of(2, rules)
    one.application.behavior.callback_s = 2.5
    one.application.leave(option, closes=True)
    simulation.run_for(6)
    assert one.alive is False
    assert len(other.application.fetchable) == (4 if option is LeaveOption.LEAVE else 2)


@RULES
def test_removed_static_member_ends_and_a_dynamic_one_rejoins(rules: Rules) -> None:
    """Rules 3.5: After UNKNOWN_MEMBER_ID a removed dynamic member rejoins, and a removed static member ends."""
    simulation, (one, _) = group_of(2, rules)
    dynamic = simulation.start(2, "a", settings=MemberSettings(group_id=GROUP))
    simulation.settle(within_s=8)
    simulation.run_for(2)
    by_instance = LeaveGroup(members=(LeavingMember(instance_id="i0"),))
    assert simulation.coordinator.answer(GROUP, by_instance, simulation.now) == LeaveResults(codes=(0,))
    assert simulation.coordinator.journal[-1] == Removed(member_id=one.view.member_id, reason="removed")
    simulation.expel(dynamic.view.member_id)
    simulation.run_for(3)
    assert (one.state, one.application.held, dynamic.state) == (MemberState.FATAL, {}, MemberState.STABLE)


@RULES
def test_member_of_a_missing_group_loses_its_partitions_and_rejoins(rules: Rules) -> None:
    """After GROUP_ID_NOT_FOUND with an epoch above 0, the member loses its partitions and joins at epoch 0."""
    simulation = Simulation(6, rules=rules)
    simulation.create_topic("a", 2)
    one = simulation.start(0, "a")
    simulation.settle(within_s=5)
    del simulation.coordinator.groups[GROUP]
    simulation.run_for(3)
    simulation.settle(within_s=5)
    assert (len(one.application.called(Step.LOSE)), one.state) == (1, MemberState.STABLE)


@RULES
def test_static_member_recovers_from_a_lost_join_response(rules: Rules) -> None:
    """Rules 3.3 (b): If its join response is lost, a member releases its instance id, which it holds, and rejoins."""
    simulation = Simulation(3, rules=rules)
    simulation.create_topic("a", 2)
    simulation.faults.answer_lost = 1.0
    one = simulation.start(0, "a", settings=static(0))
    simulation.run_for(0.1)
    simulation.faults.answer_lost = 0.0
    simulation.settle(within_s=6)
    assert (one.state, one.member_ids) == (MemberState.STABLE, [one.view.member_id])


@RULES
@pytest.mark.parametrize("is_clean", [True, False])
def test_full_group_admits_returning_static_members_only(rules: Rules, is_clean: bool) -> None:  # noqa: FBT001
    """KIP-389: A full group admits a static member that left temporarily or crashed, but no new member."""
    simulation, (one, other) = group_of(2, replace(rules, max_size=2))
    if is_clean:
        one.application.leave(LeaveOption.DEFAULT, closes=True)
        simulation.run_for(1)
    else:
        one.kill()
    stranger = simulation.start(2, "a", settings=static(7))
    simulation.run_for(1)
    assert (stranger.state, other.state) == (MemberState.FATAL, MemberState.STABLE)
    stranger.kill()
    again = simulation.start(3, "a", settings=static(0))
    simulation.settle(within_s=4)
    assert len(again.application.fetchable) == 2


# ---- a process that is stopped before its first join ----------------------------------------------------------------


def stop_before_the_first_join(
    seed: int, make_member: Callable[..., MemberCore] = MemberCore
) -> tuple[Simulation, float]:
    """Stop a process in its first join, and resume it after its replacement joined; return how long it was stopped."""
    simulation = Simulation(seed, make_member=make_member)
    simulation.create_topic("a", 2)
    stopped = simulation.start(0, "a", settings=static(0))
    simulation.run_for(0.03 * simulation.random.random())
    stopped.stop()
    since = simulation.now
    simulation.run_for(5.0 * simulation.random.random())
    replacement = simulation.start(1, "a", settings=static(0))
    assert simulation.run(simulation.now + 5.0, when=lambda: replacement.state is MemberState.STABLE)
    simulation.run_for(simulation.random.random())
    stopped.resume()
    stopped_s = simulation.now - since
    simulation.run_for(3.0)
    return simulation, stopped_s


@pytest.mark.parametrize("seed", range(20))
def test_member_replaced_while_it_was_stopped_never_takes_over(seed: int) -> None:
    """S05, policy takeover: A process that resumes after its replacement joined does not take over the instance id."""
    simulation, stopped_s = stop_before_the_first_join(seed)
    stopped, replacement = simulation.processes
    if stopped_s > NEWEST_FOR_S:
        assert replacement.state is MemberState.STABLE
        assert stopped.state in (MemberState.JOINING, MemberState.FATAL)


def test_broken_member_that_takes_over_after_any_stop_is_caught() -> None:
    """The invariant can fail: it reports a member that replaces its replacement, as if it were always the newest."""

    def run() -> None:
        for seed in range(20):
            stop_before_the_first_join(seed, broken.made_with(broken.IsNewestForEver))

    with pytest.raises(Violation, match=r"takes over from .*, which asked \d"):
        run()


# ---- takeover-when-dead ----


DEAD = ConflictPolicy.TAKEOVER_WHEN_DEAD


@RULES
@pytest.mark.parametrize("may_describe", [True, False])
def test_replacement_of_a_dead_member_gets_its_partitions_at_once(rules: Rules, may_describe: bool) -> None:  # noqa: FBT001
    """Policy takeover-when-dead: With proof of the death, the replacement is as quick as with takeover."""
    simulation, (one, other) = group_of(2, rules)
    simulation.may_describe = may_describe
    before, epoch = one.application.fetchable, simulation.coordinator.groups[GROUP].epoch
    calls = len(other.application.called(Step.REVOKE))
    one.kill()
    again = simulation.start(2, "a", settings=static(0, policy=DEAD))
    took = simulation.settle(within_s=1)
    assert (again.application.fetchable, simulation.coordinator.groups[GROUP].epoch) == (before, epoch)
    assert (took < 0.5, len(other.application.called(Step.REVOKE))) == (True, calls)


@RULES
def test_stopped_holder_keeps_its_id_until_its_session_ends(rules: Rules) -> None:
    """A stopped process is alive, so its replacement joins only when the broker ends the session."""
    simulation, (one, _) = group_of(2, rules)
    one.break_connections("stopped")
    one.stop()
    since = simulation.now
    new = simulation.start(2, "a", settings=static(0, policy=DEAD))
    assert simulation.run(simulation.now + 2 * rules.session_timeout_s, when=lambda: new.state is MemberState.STABLE)
    assert simulation.now - since > rules.session_timeout_s - 2 * rules.heartbeat_interval_s


@RULES
def test_processes_that_are_restarted_in_turns_do_not_replace_each_other(rules: Rules) -> None:
    """While the first process lives, each process that a supervisor starts with the same id waits for it."""
    simulation, (one, _) = group_of(2, rules)
    before = one.application.fetchable
    for number in range(5):
        waiting = simulation.start(2 + number, "a", settings=static(0, policy=DEAD))
        simulation.run_for(1.5 * rules.session_timeout_s)
        assert (waiting.state, one.state) == (MemberState.JOINING, MemberState.STABLE)
        waiting.kill()
    assert one.application.fetchable == before
    one.kill()
    again = simulation.start(9, "a", settings=static(0, policy=DEAD))
    simulation.settle(within_s=1)
    assert again.application.fetchable == before


@RULES
def test_one_of_two_replacements_of_a_dead_member_joins_and_the_other_waits(rules: Rules) -> None:
    """Of two replacements with proof of the death, one joins and the other waits."""
    simulation, (one, _) = group_of(2, rules)
    one.kill()
    pair = [simulation.start(2 + number, "a", settings=static(0, policy=DEAD)) for number in range(2)]
    simulation.run_for(2 * rules.session_timeout_s)
    assert sorted(str(process.state) for process in pair) == ["JOINING", "STABLE"]


def test_simulation_finds_a_member_that_needs_no_proof() -> None:
    """The invariant can fail: it reports a takeover from a live holder."""
    simulation = Simulation(1, rules=RULES_4_4, make_member=broken.made_with(broken.NeedsNoProof))
    simulation.create_topic("a", 4)
    simulation.start(0, "a", settings=static(0))
    simulation.settle(within_s=8)
    simulation.start(1, "a", settings=static(0, policy=DEAD))
    with pytest.raises(Violation, match=r"takes over from .*, whose process is alive"):
        simulation.run_for(5)
