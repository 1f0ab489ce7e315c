"""The built-in assignors compared with Java's, for the 420 groups of `tests/support/java/AssignorGolden.java`."""

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

#: Groups for which Java's sticky result is invalid: Java treats a first member without topics as if it had the
#: subscription of the second member.
_WRONG_IN_JAVA = 5


def as_sets(group: Golden, assignor: str) -> Mapping[str, frozenset[TopicPartition]]:
    """Return the result of this package's assignor."""
    result = BUILT_IN[assignor].assign(group.topics, group.subscriptions(assignor))
    return {member: frozenset(some) for member, some in result.items()}  # type: ignore[arg-type]  # built-in assignors assign TopicPartitions


def is_right_in_java(group: Golden) -> bool:
    """Return whether Java's sticky result is valid, so that a leader could send it."""
    try:
        check_complete(group.topics, group.subscriptions("sticky"), group.results["sticky"])
    except AssignmentError:
        return False
    return True


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_range_and_roundrobin_equal_javas_results(assignor: str) -> None:
    """Leaders with the Java client and leaders with this package compute equal assignments.

    The groups have static members, unequal subscriptions, co-partitioned topics and racks.
    """
    assert [g.number for g in golden() if as_sets(g, assignor) != g.results[assignor]] == []


def test_java_assigns_a_topic_to_a_member_without_topics_and_we_do_not() -> None:
    """In some groups, only Java assigns a topic to a member without topics; the tests below exclude these groups."""
    assert sum(not is_right_in_java(group) for group in golden()) == _WRONG_IN_JAVA


def test_sticky_equals_javas_result_where_it_does_not_depend_on_hashes() -> None:
    """The sticky results are equal in groups for which the rules leave no choice.

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
    """Each balance score is at least as good as Java's.

    If the scores are equal, no more partitions are out of rack; if these are equal, no fewer stay with their owner.
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
            check_complete(group.topics, subscriptions, result, owners.claimants if is_cooperative else ())  # type: ignore[arg-type]  # built-in assignors assign TopicPartitions
            if is_cooperative:
                check_cooperative(owners, result)  # type: ignore[arg-type]  # built-in assignors assign TopicPartitions


def test_cooperative_withholds_as_many_as_java_without_contradicted_claims() -> None:
    """With equal subscriptions and no racks, as many partitions are withheld until the next round as in Java."""
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
