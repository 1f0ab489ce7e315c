"""The assignors of the examples, without a broker: what they give, and that it is sent after each round."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_membership import Assignor, MemberSubscription, Topics
from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.checked import assign_checked
from consumer_membership.types import TopicPartition
from examples.assign_by_lag import ByLag, Partition
from examples.assign_co_partitioned import CoPartitioned
from tests.assignors.groups import Assignment, Subscriptions, everything, member, partitions

ORDERS = Topics(partitions={"orders": 6})
PAIR = Topics(partitions={"orders": 6, "payments": 6})
#: What moves is given up in one round and given away in the next one; then a plan that begins with the new owners may
#: be more even by so much that something moves again.
ROUNDS = 10


class Told(ByLag):
    """It is told the lag, and asks nobody."""

    def __init__(self, **behind: Iterable[int]) -> None:
        self.behind = {(topic, n): lag for topic, lags in behind.items() for n, lag in enumerate(lags)}

    def lags(self, partitions: list[Partition]) -> dict[Partition, int]:
        """As it was told."""
        return {partition: self.behind.get(partition, 0) for partition in partitions}

    def of(self, assignment: Assignment) -> dict[str, int]:
        """The lag that each member has."""
        return {name: sum(self.behind.get(partition, 0) for partition in some) for name, some in assignment.items()}


def after(
    assignor: Assignor, topics: Topics, subscriptions: Mapping[str, MemberSubscription], generation: int
) -> Subscriptions:
    """One round: what the members tell when they come with what it gave them."""
    given = assign_checked(assignor, topics, subscriptions).assignments
    return {
        name: MemberSubscription(topics=one.topics, owned=given[name], generation=generation)
        for name, one in subscriptions.items()
    }


def settled(assignor: Assignor, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Assignment:
    """What members have when nothing moves any more; every result passes the checks of what is sent."""
    before = dict(subscriptions)
    for generation in range(7, 7 + ROUNDS):
        has = {name: one.owned for name, one in before.items()}
        before = after(assignor, topics, before, generation)
        if has == {name: one.owned for name, one in before.items()}:
            assert frozenset().union(*has.values()) == everything(topics, subscriptions)
            return has
    raise AssertionError(f"something moves in each of {ROUNDS} rounds")


def numbers(assignment: Assignment, topic: str) -> dict[str, list[int]]:
    """The numbers of this topic that each member has."""
    return {name: sorted(n for one, n in some if one == topic) for name, some in assignment.items()}


# ---- by lag ----


def test_lag_is_shared_and_not_the_number_of_partitions() -> None:
    """Two members with the same lag, one of them with one partition."""
    told = Told(orders=[5000, 1000, 1000, 1000, 1000, 1000])
    given = settled(told, ORDERS, {"a": member("orders"), "b": member("orders")})
    assert told.of(given) == {"a": 5000, "b": 5000}
    assert sorted(map(len, given.values())) == [1, 5]


def test_partitions_without_lag_are_shared_by_number() -> None:
    """Nobody lags: an even count, and not everything with whoever comes first."""
    given = settled(Told(), ORDERS, {name: member("orders") for name in "abc"})
    assert [len(some) for some in given.values()] == [2, 2, 2]


def test_nothing_moves_where_that_is_about_as_even() -> None:
    """A trickle on one side is no reason for a move."""
    told = Told(orders=[3000, 1000, 1000, 2900, 1100, 1000])
    claims = {"a": member("orders", "orders:0,1,2", 5), "b": member("orders", "orders:3,4,5", 5)}
    given = assign_checked(told, ORDERS, claims).assignments
    assert given == {"a": partitions("orders:0,1,2"), "b": partitions("orders:3,4,5")}


def test_member_that_comes_gets_its_part_however_many_there_are() -> None:
    """The slack is a part of one member's share: nobody starves by it."""
    topics = Topics(partitions={"orders": 40})
    claims = {f"m{n:02}": member("orders", f"orders:{2 * n},{2 * n + 1}", 5) for n in range(20)}
    given = settled(Told(orders=[100] * 40), topics, {**claims, "newcomer": member("orders")})
    assert len(given["newcomer"]) == 1


def test_what_moves_to_level_the_lag_is_given_away_one_round_later() -> None:
    """KIP-429: in the first round the partition is with nobody."""
    told = Told(orders=[4000, 4000, 0, 0, 0, 0])
    claims = {"a": member("orders", "orders:0,1,2", 5), "b": member("orders", "orders:3,4,5", 5)}
    first = assign_checked(told, ORDERS, claims).assignments
    assert told.of(first) == {"a": 4000, "b": 0}
    assert told.of(settled(told, ORDERS, claims)) == {"a": 4000, "b": 4000}


def test_lag_goes_to_those_who_subscribe() -> None:
    """The topic that only one wants is its own; what both want levels it."""
    told = Told(orders=[1000] * 6, payments=[3000, 1000])
    topics = Topics(partitions={"orders": 6, "payments": 2})
    given = settled(told, topics, {"a": member("orders payments"), "b": member("orders")})
    assert told.of(given) == {"a": 5000, "b": 5000}
    assert numbers(given, "payments") == {"a": [0, 1], "b": []}


@pytest.mark.parametrize("assignor", [Told(orders=[100] * 6), CoPartitioned()], ids=lambda one: one.name)
@pytest.mark.parametrize("wanted", ["orders missing", "missing"])
def test_missing_topic_and_member_without_topics_are_no_obstacle(assignor: Assignor, wanted: str) -> None:
    """The others get what there is."""
    given = settled(assignor, ORDERS, {"a": member(wanted), "b": member("missing"), "c": member("")})
    assert {name: len(some) for name, some in given.items()} == {"a": 6 if "orders" in wanted else 0, "b": 0, "c": 0}


@pytest.mark.slow
def test_without_an_answer_partitions_are_shared_by_number_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """In bounded time; nobody listens there."""
    assignor = ByLag("127.0.0.1:1", "lonely", patience_s=0.3)
    with caplog.at_level(logging.WARNING, "by_lag"):
        given = assignor.assign(ORDERS, {name: member("orders") for name in "ab"})
    assert [len(some) for some in given.values()] == [3, 3]
    assert [record.getMessage().partition(", for")[0] for record in caplog.records] == [
        "group lonely is shared by number"
    ]


# ---- co-partitioned ----


def test_number_of_both_topics_is_with_one_member_where_range_parts_it() -> None:
    """One member wants orders only: range cuts orders in three and payments in two."""
    subscriptions = {"a": member("orders"), "b": member("orders payments"), "c": member("orders payments")}
    ranges = assign_checked(BUILT_IN["range"], PAIR, subscriptions).assignments
    assert numbers(ranges, "orders")["b"] != numbers(ranges, "payments")["b"]
    given = settled(CoPartitioned(), PAIR, subscriptions)
    assert numbers(given, "orders") == numbers(given, "payments") == {"a": [], "b": [0, 2, 4], "c": [1, 3, 5]}


def test_members_keep_their_numbers_when_one_comes() -> None:
    """Only what is too much for them moves, whatever the newcomer's id."""
    claims = {
        "b": member("orders payments", "orders:0,2,4 payments:0,2,4", 5),
        "c": member("orders payments", "orders:1,3,5 payments:1,3,5", 5),
    }
    given = settled(CoPartitioned(), PAIR, {"a": member("orders payments"), **claims})
    assert numbers(given, "orders") == numbers(given, "payments") == {"a": [4, 5], "b": [0, 2], "c": [1, 3]}


def test_parted_number_is_never_with_two_members() -> None:
    """Each of them owns a part; one keeps it, and gets the other part when that is given up."""
    claims = {"a": member("orders payments", "orders:0", 5), "b": member("orders payments", "payments:0", 5)}
    topics = Topics(partitions={"orders": 1, "payments": 1})
    first = assign_checked(CoPartitioned(), topics, claims).assignments
    assert first == {"a": partitions("orders:0"), "b": frozenset()}
    assert settled(CoPartitioned(), topics, claims) == {"a": partitions("orders:0 payments:0"), "b": frozenset()}


def test_topics_of_other_sizes_are_families_of_their_own_and_level_each_other() -> None:
    """Who got less of one gets more of the other."""
    topics = Topics(partitions={"orders": 3, "payments": 3, "refunds": 1})
    given = settled(CoPartitioned(), topics, {name: member("orders payments refunds") for name in "ab"})
    assert sorted(map(len, given.values())) == [3, 4]


def test_topics_that_nobody_wants_together_are_not_kept_together() -> None:
    """Each of them is given to somebody all the same."""
    given = settled(CoPartitioned(), PAIR, {"a": member("orders"), "b": member("payments")})
    assert [len(some) for some in given.values()] == [6, 6]


# ---- both ----

NAMES = ("a", "b", "c", "d")
TOPICS = ("orders", "payments", "refunds")


@st.composite
def groups(draw: st.DrawFn) -> tuple[Topics, Subscriptions, Told]:
    """Any topics, subscriptions and claims of one generation; a claim need not be of a subscribed topic."""
    topics = Topics(partitions={topic: draw(st.integers(0, 4)) for topic in TOPICS})
    owned: dict[str, set[TopicPartition]] = {name: set() for name in NAMES}
    for topic in TOPICS:
        for partition in topics.of(topic):
            owner = draw(st.sampled_from((*NAMES, None)))
            if owner is not None:
                owned[owner].add(partition)
    subscriptions = {
        name: MemberSubscription(
            topics=frozenset(draw(st.sets(st.sampled_from(TOPICS)))), owned=frozenset(owned[name]), generation=5
        )
        for name in NAMES
    }
    lags = {topic: draw(st.lists(st.integers(0, 10_000), max_size=4)) for topic in TOPICS}
    return topics, subscriptions, Told(**lags)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(groups())
def test_result_is_sent_and_comes_to_rest_whoever_owns_what(group: tuple[Topics, Subscriptions, Told]) -> None:
    """Complete, nothing with two owners, and soon nothing moves."""
    topics, subscriptions, by_lag = group
    settled(by_lag, topics, subscriptions)
    settled(CoPartitioned(), topics, subscriptions)
