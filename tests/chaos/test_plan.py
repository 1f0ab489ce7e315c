"""The rounds that a seed draws: equal for equal seeds, and within the limits of the command line."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.chaos.faults import KINDS
from tests.chaos.plan import MIXED, Family, Identity, Loop, MemberPlan, Protocol, RoundPlan, covering, draw

NODES = (1, 2, 3)


def rounds(*features: str, count: int = 500) -> list[RoundPlan]:
    """The rounds of the first seeds."""
    return [draw(seed, KINDS, NODES, frozenset(features)) for seed in range(count)]


def covered(seed: int, count: int) -> list[RoundPlan]:
    """The first rounds of a run with this seed."""
    return list(islice(covering(Random(seed), KINDS, NODES), count))  # noqa: S311 - repeatable


def test_draw_returns_equal_rounds_for_equal_seeds() -> None:
    """A round is repeated by its seed, and other seeds draw other rounds."""
    assert rounds() == rounds()
    assert len(set(map(str, rounds()))) > 450


def test_draw_covers_all_faults_loops_identities_and_protocols() -> None:
    """Each row of the table of faults and each kind of member occurs."""
    drawn = rounds()
    assert {fault.kind for one in drawn for fault in one.faults} == set(KINDS)
    members = [member for one in drawn for member in one.members]
    assert {member.loop for member in members} == set(Loop)
    assert {member.identity for member in members} == set(Identity)
    assert {member.protocol for member in members} == set(Protocol)


@pytest.mark.parametrize("seed", range(5))
def test_covering_draws_all_faults_and_loops_in_few_rounds(seed: int) -> None:
    """As many rounds as two thirds of the faults: most rounds have two faults that none before them had."""
    plans = covered(seed, len(KINDS) * 2 // 3)
    assert set().union(*(plan.features for plan in plans)) == {*KINDS, *Loop, MIXED}


def test_covering_yields_rounds_that_their_seeds_repeat() -> None:
    """A failed round is repeated without the rounds before it."""
    plans = covered(1, 20)
    assert [draw(plan.seed, KINDS, NODES) for plan in plans] == plans
    assert covered(1, 20) == plans


def test_covering_has_the_faults_and_words_of_the_command_line() -> None:
    """A block of one fault and one loop ends with each round."""
    kinds = {"broker-kill": KINDS["broker-kill"]}
    features = frozenset({"poll", "static"})
    for plan in islice(covering(Random(1), kinds, NODES, features), 5):  # noqa: S311 - repeatable
        assert plan.features == {"broker-kill", "poll"}


def test_mixed_rounds_have_static_and_dynamic_members_in_one_group() -> None:
    """Half of all rounds are mixed without the word, which makes each of them so; `assign` joins no group."""
    assert all(one.is_mixed and MIXED in one.features for one in rounds(MIXED, count=200))
    assert 0.4 < sum(one.is_mixed for one in rounds()) / len(rounds()) < 0.7
    for one in rounds():
        in_group = [member for member in one.members if member.loop is not Loop.MANUAL]
        kinds = {member.identity is Identity.DYNAMIC for member in in_group}
        assert one.is_mixed is (kinds == {True, False})


def test_covering_of_members_that_cannot_be_mixed_yields_rounds() -> None:
    """Members with `assign` and members of one kind need no mixed group."""
    for word in ("manual", "dynamic", "static"):
        assert len(list(islice(covering(Random(1), KINDS, NODES, frozenset({word})), 3))) == 3  # noqa: S311


def test_members_of_a_transactional_group_are_all_transactional() -> None:
    """Otherwise records without a result would be correct."""
    for one in rounds():
        loops = {member.loop for member in one.members}
        assert Loop.TRANSACTIONS not in loops or len(loops) == 1


def test_draw_limits_members_to_the_given_words() -> None:
    """Words of one kind leave the other kinds free."""
    members = [member for one in rounds("static", "poll", count=100) for member in one.members]
    assert {(member.identity, member.loop) for member in members} == {(Identity.STATIC, Loop.POLL)}
    assert {member.protocol for member in members} == set(Protocol)


def test_two_faults_of_a_round_affect_different_families() -> None:
    """One node is away at most, so that the records keep two replicas."""
    of_topic = {name: kind for name, kind in KINDS.items() if kind.family is Family.TOPIC}
    for one in (*rounds(), *(draw(seed, of_topic, NODES) for seed in range(50))):
        families = [KINDS[fault.kind].family for fault in one.faults]
        assert len(families) == len(set(families))
        assert all(
            KINDS[fault.kind].shortest_s <= fault.duration_s <= KINDS[fault.kind].longest_s for fault in one.faults
        )


def test_a_group_of_the_consumer_protocol_has_no_members_of_confluent_kafka() -> None:
    """Raw members join classic groups, with the strategy of all other members, as Java members do."""
    for one in rounds():
        assert len({(member.protocol, member.strategy) for member in one.members}) == 1
        if one.members[0].protocol is not Protocol.CLASSIC:
            assert not any(member.loop.is_foreign for member in one.members)


def test_classic_groups_have_no_pools() -> None:
    """This package refuses the configuration: the member would never begin."""
    for one in rounds():
        if one.members[0].protocol is Protocol.CLASSIC:
            assert all(member.identity is not Identity.POOL for member in one.members)


def test_each_disturbance_of_a_hand_over_is_a_fault_of_its_own() -> None:
    """Each is drawn within the rounds that cover all faults, and has its row in the table of a run."""
    ends = {f"-{act}-{which}" for act in ("kill", "pause", "cut") for which in ("old", "new")}
    assert {name for name in KINDS if name.startswith("hand-over")} == {f"hand-over{end}" for end in ("", *ends)}


def test_a_round_has_at_most_one_spark_job_whose_tasks_are_static() -> None:
    """A JVM is as large as several members, and the tasks of a job have instance ids."""
    for one in (*rounds(), *rounds("spark", count=50)):
        jobs = [member for member in one.members if member.loop is Loop.SPARK]
        assert len(jobs) <= 1
        assert all(job.identity is Identity.STATIC and not job.hands_over for job in jobs)


def test_targets_of_faults_are_members_that_the_fault_can_affect() -> None:
    """A fault without effect would pass its round."""
    for one in rounds():
        members = {member.name: member for member in one.members}
        for fault in one.faults:
            kind = KINDS[fault.kind]
            assert fault.target not in members or kind.is_for(members[fault.target])


def test_faults_of_one_protocol_occur_in_its_groups_only() -> None:
    """Only the consumer protocol has a hand-over."""
    for one in rounds():
        for fault in one.faults:
            assert one.members[0].protocol in KINDS[fault.kind].protocols


@pytest.mark.parametrize("member", rounds()[0].members, ids=str)
def test_member_plan_is_equal_after_its_command_line(member: MemberPlan) -> None:
    """The program of a member gets the whole plan."""
    assert MemberPlan.from_json(member.to_json()) == member


def test_the_table_has_at_least_twenty_five_faults_of_all_families() -> None:
    """Brokers, members, their network, the topic and the group."""
    assert len(KINDS) >= 25
    assert {kind.family for kind in KINDS.values()} == set(Family)
