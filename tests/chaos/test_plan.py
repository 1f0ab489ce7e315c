"""The rounds that are drawn from seeds: equal for equal seeds, and limited by the options of the command line."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.plan import MIXED, Family, Identity, Loop, MemberPlan, Protocol, RoundPlan, covering, draw

NODES = (1, 2, 3)


def rounds(*features: str, count: int = 500) -> list[RoundPlan]:
    """Return the rounds of the first seeds."""
    return [draw(seed, KINDS, NODES, frozenset(features)) for seed in range(count)]


def covered(seed: int, count: int) -> list[RoundPlan]:
    """Return the first rounds of a run with this seed."""
    return list(islice(covering(Random(seed), KINDS, NODES), count))  # noqa: S311 - repeatable


def test_draw_returns_equal_rounds_for_equal_seeds() -> None:
    """Equal seeds draw equal rounds, and different seeds draw different rounds."""
    assert rounds() == rounds()
    assert len(set(map(str, rounds()))) > 450


def test_draw_covers_all_faults_loops_identities_and_protocols() -> None:
    """Each fault and each kind of member occurs in the rounds of many seeds."""
    drawn = rounds()
    assert {fault.kind for one in drawn for fault in one.faults} == set(KINDS)
    members = [member for one in drawn for member in one.members]
    assert {member.loop for member in members} == set(Loop)
    assert {member.identity for member in members} == set(Identity)
    assert {member.protocol for member in members} == set(Protocol)


@pytest.mark.parametrize("seed", range(5))
def test_covering_draws_all_faults_and_loops_in_few_rounds(seed: int) -> None:
    """Rounds for two thirds of the number of faults cover all faults and loops: most rounds have two new faults."""
    plans = covered(seed, len(KINDS) * 2 // 3)
    assert set().union(*(plan.features for plan in plans)) == {*KINDS, *Loop, MIXED}


def test_covering_yields_rounds_that_their_seeds_repeat() -> None:
    """A failed round can be repeated without the rounds before it."""
    plans = covered(1, 20)
    assert [draw(plan.seed, KINDS, NODES) for plan in plans] == plans
    assert covered(1, 20) == plans


def test_covering_is_limited_to_the_faults_and_features_of_the_command_line() -> None:
    """With one fault and one loop, each round has this fault and this loop."""
    kinds = {"broker-kill": KINDS["broker-kill"]}
    features = frozenset({"poll", "static"})
    for plan in islice(covering(Random(1), kinds, NODES, features), 5):  # noqa: S311 - repeatable
        assert plan.features == {"broker-kill", "poll"}


def test_mixed_rounds_have_static_and_dynamic_members_in_one_group() -> None:
    """`MIXED` makes all rounds mixed; without it, about half of them. Members with `assign` do not count."""
    assert all(one.is_mixed and MIXED in one.features for one in rounds(MIXED, count=200))
    assert 0.4 < sum(one.is_mixed for one in rounds()) / len(rounds()) < 0.7
    for one in rounds():
        in_group = [member for member in one.members if member.loop is not Loop.MANUAL]
        kinds = {member.identity is Identity.DYNAMIC for member in in_group}
        assert one.is_mixed is (kinds == {True, False})


def test_covering_of_members_that_cannot_be_mixed_yields_rounds() -> None:
    """If all members use `assign` or have one kind of identity, `covering` does not wait for a mixed group."""
    for feature in ("manual", "dynamic", "static"):
        assert len(list(islice(covering(Random(1), KINDS, NODES, frozenset({feature})), 3))) == 3  # noqa: S311


def test_members_of_a_transactional_group_are_all_transactional() -> None:
    """All members of a transactional group are transactional, so that each record must have a result."""
    for one in rounds():
        loops = {member.loop for member in one.members}
        assert Loop.TRANSACTIONS not in loops or len(loops) == 1


def test_draw_limits_members_to_the_given_features() -> None:
    """A feature limits its own kind only: an identity and a loop do not limit the protocol."""
    members = [member for one in rounds("static", "poll", count=100) for member in one.members]
    assert {(member.identity, member.loop) for member in members} == {(Identity.STATIC, Loop.POLL)}
    assert {member.protocol for member in members} == set(Protocol)


def test_two_faults_of_a_round_affect_different_families() -> None:
    """Two faults of a round have different families, so that at most one node is unavailable at a time."""
    of_topic = {name: kind for name, kind in KINDS.items() if kind.family is Family.TOPIC}
    for one in (*rounds(), *(draw(seed, of_topic, NODES) for seed in range(50))):
        families = [KINDS[fault.kind].family for fault in one.faults]
        assert len(families) == len(set(families))
        assert all(
            KINDS[fault.kind].shortest_s <= fault.duration_s <= KINDS[fault.kind].longest_s for fault in one.faults
        )


def test_only_classic_groups_have_members_of_other_clients() -> None:
    """Members of other clients join classic groups only; all members of a group have the same assignment strategy."""
    for one in rounds():
        assert len({(member.protocol, member.strategy) for member in one.members}) == 1
        if one.members[0].protocol is not Protocol.CLASSIC:
            assert not any(member.loop.is_foreign for member in one.members)


def test_callbacks_of_raw_members_do_not_raise() -> None:
    """confluent-kafka's `poll` drops its record if a callback raises meanwhile, which is not a loss by this package."""
    for one in rounds("raw", count=200):
        loops = {member.name: member.loop for member in one.members}
        assert Loop.RAW not in {loops[fault.target] for fault in one.faults if fault.kind == "raising-callbacks"}


def test_classic_groups_have_no_pools() -> None:
    """Members of classic groups have no pool, because this package raises an error for this configuration."""
    for one in rounds():
        if one.members[0].protocol is Protocol.CLASSIC:
            assert all(member.identity is not Identity.POOL for member in one.members)


def test_each_disturbance_of_a_hand_over_is_a_separate_fault() -> None:
    """Each disturbed hand-over is a separate fault, so that it is covered, and has a row in the table of a run."""
    ends = {f"-{act}-{which}" for act in ("kill", "pause", "cut") for which in ("old", "new")}
    assert {name for name in KINDS if name.startswith("hand-over")} == {f"hand-over{end}" for end in ("", *ends)}


def test_a_round_has_at_most_one_spark_job_whose_tasks_are_static() -> None:
    """A round has at most one Spark job, because a JVM needs much memory; its tasks have instance ids."""
    for one in (*rounds(), *rounds("spark", count=50)):
        jobs = [member for member in one.members if member.loop is Loop.SPARK]
        assert len(jobs) <= 1
        assert all(job.identity is Identity.STATIC and not job.hands_over for job in jobs)


def test_targets_of_faults_are_members_that_the_fault_can_affect() -> None:
    """The target of a fault is a member that the fault can affect; otherwise its round would prove nothing."""
    for one in rounds():
        members = {member.name: member for member in one.members}
        for fault in one.faults:
            kind = KINDS[fault.kind]
            assert fault.target not in members or kind.is_for(members[fault.target])


def test_faults_of_one_protocol_occur_in_its_groups_only() -> None:
    """A fault occurs only in groups of its protocols, for example a hand-over in groups of the consumer protocol."""
    for one in rounds():
        for fault in one.faults:
            assert one.members[0].protocol in KINDS[fault.kind].protocols


@pytest.mark.parametrize("member", rounds()[0].members, ids=str)
def test_member_plan_is_equal_after_a_round_trip_through_json(member: MemberPlan) -> None:
    """The program of a member receives the complete plan on its command line."""
    assert MemberPlan.from_json(member.to_json()) == member


def test_the_table_has_at_least_twenty_five_faults_of_all_families() -> None:
    """There are at least 25 faults, and each family has faults."""
    assert len(KINDS) >= 25
    assert {kind.family for kind in KINDS.values()} == set(Family)
