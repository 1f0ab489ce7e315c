"""The built-in assignors compared with Java's for 420 groups, made by `tests/support/java/AssignorGolden.java`."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.sticky import decode
from consumer_membership.assignors.validation import check_complete, check_cooperative
from consumer_membership.errors import AssignmentError
from consumer_membership.types import TopicPartition
from tests.assignors.groups import (
    Golden,
    balance_score,
    everything,
    golden,
    kept,
    out_of_rack,
    partitions,
    validated,
)

#: Java's sticky assignors take a first member without topics for one that wants the same as the second one.
_WRONG_IN_JAVA = 5


def as_sets(group: Golden, assignor: str) -> Mapping[str, frozenset[TopicPartition]]:
    """Our result."""
    result = BUILT_IN[assignor].assign(group.topics, group.subscriptions(assignor))
    return {member: frozenset(some) for member, some in result.items()}  # type: ignore[arg-type]  # its own ones assign TopicPartitions


def is_right_in_java(group: Golden) -> bool:
    """Whether Java's sticky result could be sent at all."""
    try:
        check_complete(group.topics, group.subscriptions("sticky"), group.results["sticky"])
    except AssignmentError:
        return False
    return True


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_range_and_roundrobin_equal_javas_results(assignor: str) -> None:
    """Java's leaders and this package's agree.

    The groups have static members, unequal subscriptions, co-partitioned topics and racks.
    """
    assert [g.number for g in golden() if as_sets(g, assignor) != g.results[assignor]] == []


def test_java_assigns_a_topic_to_a_member_without_topics_and_we_do_not() -> None:
    """Java's invalid results are left out of the comparisons below."""
    assert sum(not is_right_in_java(group) for group in golden()) == _WRONG_IN_JAVA


def test_sticky_equals_javas_result_where_it_does_not_depend_on_hashes() -> None:
    """The sticky results are equal if nothing is left to choose.

    The groups have equal subscriptions, no racks, no contradicted claims, and no choice of the members with larger
    quotas.
    """
    compared, different = 0, []
    for group in golden():
        subscriptions = group.subscriptions("sticky")
        owners = validated("sticky", subscriptions)
        quota, larger = divmod(len(everything(group.topics, subscriptions)), len(subscriptions))
        claims_larger = sum(len(owned) > quota for owned in owners.owned.values())
        if group.has_racks or owners.conflicts or not group.is_equal or claims_larger > larger > 0:
            continue
        compared += 1
        both = ("sticky", "cooperative-sticky")
        different += [(group.number, name) for name in both if as_sets(group, name) != group.results[name]]
    assert (different, compared > 100) == ([], True)


def test_sticky_is_never_worse_than_java_by_balance_then_racks_then_stickiness() -> None:
    """Each balance score is as good as Java's or better.

    With an equal score fewer partitions are out of rack, and then more stay with their owner.
    """
    worse = []
    better = 0
    for group in filter(is_right_in_java, golden()):
        subscriptions = group.subscriptions("sticky")
        owners = validated("sticky", subscriptions)
        ours, java = (
            (balance_score(result), out_of_rack(group.topics, subscriptions, result), -kept(result, owners))
            for result in (as_sets(group, "sticky"), group.results["sticky"])
        )
        if ours > java:
            worse.append((group.number, ours, java))
        better += ours < java
    assert (worse, better > 50) == ([], True)


def test_every_result_is_complete_and_cooperative_ones_take_no_owned_partition() -> None:
    """A partition that a cooperative result omits is claimed by a member that has to revoke it."""
    for group in golden():
        for name, assignor in BUILT_IN.items():
            subscriptions = group.subscriptions(name)
            owners = validated(name, subscriptions)
            result = assignor.assign(group.topics, subscriptions)
            is_cooperative = name == "cooperative-sticky"
            check_complete(group.topics, subscriptions, result, owners.claimants if is_cooperative else ())  # type: ignore[arg-type]  # its own ones assign TopicPartitions
            if is_cooperative:
                check_cooperative(owners, result)  # type: ignore[arg-type]  # its own ones assign TopicPartitions


def test_cooperative_withholds_as_many_as_java_without_contradicted_claims() -> None:
    """With equal subscriptions and no racks as many partitions wait for the next round as in Java."""
    different = []
    for group in golden():
        owners = validated("cooperative-sticky", group.subscriptions("cooperative-sticky"))
        if group.is_equal and not group.has_racks and not owners.conflicts:
            ours, java = (
                sum(map(len, r.values()))
                for r in (as_sets(group, "cooperative-sticky"), group.results["cooperative-sticky"])
            )
            if ours != java:
                different.append((group.number, ours, java))
    assert different == []


def test_user_data_written_by_java_is_decoded() -> None:
    """The user data of Java's sticky assignor contains the owned partitions and the generation."""
    read = 0
    for group in golden():
        for entry in group.members.values():
            if "sticky" in entry:
                claim = decode(bytes.fromhex(entry["sticky"]))
                assert (claim.owned, claim.generation) == (partitions(entry["owned"]), entry.get("generation", -1))
                read += 1
    assert read > 100
