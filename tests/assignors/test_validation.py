"""Who owns what by the members' claims (KIP-792), and what may be sent to the group."""

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
    """The good claims."""
    return dict(validate_subscriptions(subscriptions).owned)


def test_claims_that_nobody_contradicts_are_good_however_old() -> None:
    """KIP-792 keeps a lone stale claim: whoever had the partition since would say so."""
    claims = {"a": member("t", "t:0", 2), "b": member("t", "t:1", 7), "c": member("t", "t:2")}
    assert owned(claims) == {"a": partitions("t:0"), "b": partitions("t:1"), "c": partitions("t:2")}


def test_newest_generation_wins_and_the_loser_keeps_the_rest() -> None:
    """Only what is contradicted is dropped."""
    claims = {"a": member("t", "t:0,1", 6), "b": member("t", "t:0", 7)}
    assert owned(claims) == {"a": partitions("t:1"), "b": partitions("t:0")}


def test_any_generation_is_newer_than_none() -> None:
    """A member that was reset says -1."""
    claims = {"a": member("t", "t:0"), "b": member("t", "t:0", 0)}
    assert owned(claims) == {"a": frozenset(), "b": partitions("t:0")}


@pytest.mark.parametrize("generation", [-1, 5])
def test_equal_generations_leave_a_partition_unowned(generation: int) -> None:
    """Nobody can tell who is right."""
    claims = {"a": member("t", "t:0", generation), "b": member("t", "t:0", generation)}
    assert owned(claims) == {"a": frozenset(), "b": frozenset()}
    assert validate_subscriptions(claims).contested == partitions("t:0")


def test_equal_older_claims_do_not_hurt_the_newest_one() -> None:
    """Three claim it; in whichever order they are looked at (Java's result hangs on that)."""
    claims = {"a": member("t", "t:0", 5), "b": member("t", "t:0", 5), "c": member("t", "t:0", 6)}
    assert owned(claims)["c"] == partitions("t:0")
    assert validate_subscriptions(claims).contested == frozenset()


def test_contradictions_are_told_with_their_members_and_generations() -> None:
    """For the log; whoever operates the group sees which member missed a rebalance."""
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


def test_cleaned_subscriptions_have_the_good_claims_only() -> None:
    """For a user's own assignor, which may trust what it reads."""
    claims = {"a": member("t", "t:0,1", 6), "b": member("t", "t:0", 7)}
    cleaned = validate_subscriptions(claims).applied_to(claims)
    assert {name: (s.owned, s.generation) for name, s in cleaned.items()} == {
        "a": (partitions("t:1"), 6),
        "b": (partitions("t:0"), 7),
    }


def test_complete_result_passes() -> None:
    """Each partition once; a member may be left out."""
    subscriptions = {"a": member("t u"), "b": member("t"), "c": member("gone")}
    check_complete(TOPICS, subscriptions, {"a": partitions("t:0 u:0"), "b": partitions("t:1,2")})


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({"a": "t:0,1,2 u:0", "x": "t:1"}, "partitions are given to 'x', who is no member of the group"),
        ({"a": "t:0,1,2 u:0", "b": "t:1"}, "t-1 is given twice: to a and to b"),
        ({"a": "t:0,1,2", "b": "u:0"}, "b is given u-0, but does not subscribe u"),
        ({"a": "t:0,1,2,3 u:0"}, "a is given t-3, which does not exist"),
        ({"a": "t:0,1,2 u:0 w:0"}, "a is given w-0, which does not exist"),
        ({"a": "t:1"}, "nobody is given t-0, t-2, u-0, although members subscribe it"),
    ],
)
def test_incomplete_result_is_refused_by_name(result: dict[str, str], words: str) -> None:
    """The author of an assignor reads which partition and which member."""
    subscriptions = {"a": member("t u"), "b": member("t")}
    with pytest.raises(AssignmentError) as caught:
        check_complete(TOPICS, subscriptions, {name: partitions(some) for name, some in result.items()})
    assert str(caught.value) == words


def test_partition_twice_in_one_members_list_is_refused() -> None:
    """A list may hold anything."""
    twice = [TopicPartition("t", 0), TopicPartition("t", 0)]
    with pytest.raises(AssignmentError, match="t-0 is given twice: to a and to a"):
        check_complete(Topics(partitions={"t": 1}), {"a": member("t")}, {"a": twice})


def test_what_somebody_claims_may_wait_and_nothing_else() -> None:
    """Under the cooperative protocol a result leaves out what moves."""
    subscriptions = {"a": member("t", "t:0", 4), "b": member("t")}
    claimed = validate_subscriptions(subscriptions).claimants
    topics = Topics(partitions={"t": 2})
    check_complete(topics, subscriptions, {"b": partitions("t:1")}, claimed)
    with pytest.raises(AssignmentError, match="nobody is given t-1"):
        check_complete(topics, subscriptions, {"a": partitions("t:0")}, claimed)


def test_partition_of_an_owner_is_not_given_to_another_one() -> None:
    """It is first revoked, then given (KIP-429)."""
    validated = validate_subscriptions({"a": member("t", "t:0,1", 4), "b": member("t", "t:2", 4)})
    check_cooperative(validated, {"a": partitions("t:0"), "b": partitions("t:2")})
    with pytest.raises(AssignmentError) as caught:
        check_cooperative(validated, {"a": (), "b": partitions("t:0,1,2")})
    assert str(caught.value) == (
        "t-0 is given to b while a still claims it: a cooperative assignor leaves out what moves, and gives it away in "
        "the next rebalance; 2 such partitions: t-0, t-1"
    )


def test_stale_claimant_does_not_keep_the_owner_from_its_partition() -> None:
    """The newest claim is good; but a third one has to wait for both, and the stale claimant for the owner."""
    validated = validate_subscriptions({"a": member("t", "t:0", 4), "b": member("t", "t:0", 5), "c": member("t")})
    check_cooperative(validated, {"b": partitions("t:0")})
    for other in ("a", "c"):
        with pytest.raises(AssignmentError):
            check_cooperative(validated, {other: partitions("t:0")})


def test_withheld_is_what_moves_or_only_what_is_contested() -> None:
    """A user's own assignor reads contested partitions as unowned; they are withheld for it."""
    validated = validate_subscriptions({"a": member("t", "t:0,1", 4), "b": member("t", "t:1", 4)})
    result = {"a": partitions("t:1"), "b": partitions("t:0")}
    assert withhold(validated, result) == {"a": (), "b": ()}
    assert withhold(validated, result, validated.contested) == {"a": (), "b": (TopicPartition("t", 0),)}
