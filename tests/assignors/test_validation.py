"""The owners that follow from the members' claims (KIP-792), and the checks of a result before it is sent."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from consumer_membership.assignors.assignor import Topics
from consumer_membership.assignors.validation import (
    check_complete,
    check_cooperative,
    validate_subscriptions,
    withhold,
)
from consumer_membership.errors import AssignmentError
from consumer_membership.types import TopicPartition
from tests.assignors.groups import Subscriptions, member, partitions

TOPICS = Topics(partitions=MappingProxyType({"t": 3, "u": 1}))


def owned(subscriptions: Subscriptions) -> dict[str, frozenset[TopicPartition]]:
    """Return the valid claims."""
    return dict(validate_subscriptions(subscriptions).owned)


def test_uncontradicted_claims_are_valid_at_any_age() -> None:
    """KIP-792 keeps a single stale claim, because a later owner would claim the partition."""
    claims = {"a": member("t", "t:0", 2), "b": member("t", "t:1", 7), "c": member("t", "t:2")}
    assert owned(claims) == {"a": partitions("t:0"), "b": partitions("t:1"), "c": partitions("t:2")}


def test_newest_generation_wins_and_the_other_member_keeps_the_rest() -> None:
    """Only the contradicted partition is dropped from the older claim."""
    claims = {"a": member("t", "t:0,1", 6), "b": member("t", "t:0", 7)}
    assert owned(claims) == {"a": partitions("t:1"), "b": partitions("t:0")}


def test_any_generation_is_newer_than_none() -> None:
    """A claim with any generation is newer than a claim with -1, which a member sends after a reset."""
    claims = {"a": member("t", "t:0"), "b": member("t", "t:0", 0)}
    assert owned(claims) == {"a": frozenset(), "b": partitions("t:0")}


@pytest.mark.parametrize("generation", [-1, 5])
def test_equal_generations_leave_a_partition_unowned(generation: int) -> None:
    """With equal generations neither claim is accepted."""
    claims = {"a": member("t", "t:0", generation), "b": member("t", "t:0", generation)}
    assert owned(claims) == {"a": frozenset(), "b": frozenset()}
    assert validate_subscriptions(claims).contested == partitions("t:0")


def test_equal_older_claims_do_not_affect_the_newest() -> None:
    """The newest of three claims is valid, whatever their order. In Java the result depends on the order."""
    claims = {"a": member("t", "t:0", 5), "b": member("t", "t:0", 5), "c": member("t", "t:0", 6)}
    assert owned(claims)["c"] == partitions("t:0")
    assert validate_subscriptions(claims).contested == frozenset()


def test_contradicted_claims_are_reported_with_members_and_generations() -> None:
    """The log shows the operator which member missed a rebalance."""
    claims = {"a": member("t", "t:0,1", 5), "b": member("t", "t:0", 5), "c": member("t", "t:1", 6)}
    assert [str(conflict) for conflict in validate_subscriptions(claims).conflicts] == [
        (
            "Found multiple consumers a and b claiming the same TopicPartition t-0 in the same generation 5; this is "
            "removed from their previous assignment."
        ),
        (
            "Consumers a in generation 5 and c in generation 6 are claiming the same TopicPartition t-1 in different "
            "generations. It stays with c, the member with the higher generation."
        ),
    ]


def test_cleaned_subscriptions_contain_only_valid_claims() -> None:
    """The subscriptions that a user's own assignor receives contain only valid claims."""
    claims = {"a": member("t", "t:0,1", 6), "b": member("t", "t:0", 7)}
    cleaned = validate_subscriptions(claims).applied_to(claims)
    assert {name: (s.owned, s.generation) for name, s in cleaned.items()} == {
        "a": (partitions("t:1"), 6),
        "b": (partitions("t:0"), 7),
    }


def test_complete_result_passes() -> None:
    """A result that assigns each partition once passes, and may omit a member."""
    subscriptions = {"a": member("t u"), "b": member("t"), "c": member("gone")}
    check_complete(TOPICS, subscriptions, {"a": partitions("t:0 u:0"), "b": partitions("t:1,2")})


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"a": "t:0,1,2 u:0", "x": "t:1"}, "partitions are given to 'x', which is not a member of the group"),
        ({"a": "t:0,1,2 u:0", "b": "t:1"}, "t-1 is given twice: to a and to b"),
        ({"a": "t:0,1,2", "b": "u:0"}, "b is given u-0, but does not subscribe to u"),
        ({"a": "t:0,1,2,3 u:0"}, "a is given t-3, which does not exist"),
        ({"a": "t:0,1,2 u:0 w:0"}, "a is given w-0, which does not exist"),
        ({"a": "t:1"}, "no member is given t-0, t-2, u-0, although members subscribe to it"),
    ],
)
def test_invalid_result_raises_with_partition_and_member(result: dict[str, str], message: str) -> None:
    """The error names the partition and the member, so that the author can fix the assignor."""
    subscriptions = {"a": member("t u"), "b": member("t")}
    with pytest.raises(AssignmentError) as caught:
        check_complete(TOPICS, subscriptions, {name: partitions(some) for name, some in result.items()})
    assert str(caught.value) == message


def test_partition_twice_in_one_members_list_raises() -> None:
    """A list that contains a partition twice raises an error."""
    twice = [TopicPartition("t", 0), TopicPartition("t", 0)]
    with pytest.raises(AssignmentError, match="t-0 is given twice: to a and to a"):
        check_complete(Topics(partitions={"t": 1}), {"a": member("t")}, {"a": twice})


def test_only_claimed_partitions_may_be_withheld() -> None:
    """A cooperative result omits partitions that move, and no others."""
    subscriptions = {"a": member("t", "t:0", 4), "b": member("t")}
    claimed = validate_subscriptions(subscriptions).claimants
    topics = Topics(partitions={"t": 2})
    check_complete(topics, subscriptions, {"b": partitions("t:1")}, claimed)
    with pytest.raises(AssignmentError, match="no member is given t-1"):
        check_complete(topics, subscriptions, {"a": partitions("t:0")}, claimed)


def test_owned_partition_is_not_assigned_to_another_member() -> None:
    """A cooperative result must not assign an owned partition to another member before it is revoked (KIP-429)."""
    validated = validate_subscriptions({"a": member("t", "t:0,1", 4), "b": member("t", "t:2", 4)})
    check_cooperative(validated, {"a": partitions("t:0"), "b": partitions("t:2")})
    with pytest.raises(AssignmentError) as caught:
        check_cooperative(validated, {"a": (), "b": partitions("t:0,1,2")})
    assert str(caught.value) == (
        "t-0 is given to b while a still claims it: a cooperative assignor leaves out partitions that move, and "
        "assigns them in the next rebalance; 2 such partitions: t-0, t-1"
    )


def test_owner_receives_its_partition_despite_a_stale_claim() -> None:
    """The owner with the newest claim may receive its partition.

    A third member has to wait for both claimants, and the stale claimant for the owner.
    """
    validated = validate_subscriptions({"a": member("t", "t:0", 4), "b": member("t", "t:0", 5), "c": member("t")})
    check_cooperative(validated, {"b": partitions("t:0")})
    for other in ("a", "c"):
        with pytest.raises(AssignmentError):
            check_cooperative(validated, {other: partitions("t:0")})


def test_withhold_removes_moved_partitions_or_only_contested_ones() -> None:
    """A user's own assignor sees contested partitions as unowned, so only these are withheld for it."""
    validated = validate_subscriptions({"a": member("t", "t:0,1", 4), "b": member("t", "t:1", 4)})
    result = {"a": partitions("t:1"), "b": partitions("t:0")}
    assert withhold(validated, result) == {"a": (), "b": ()}
    assert withhold(validated, result, validated.contested) == {"a": (), "b": (TopicPartition("t", 0),)}
