"""The results of the example assignors, without a broker; each result is validated as before it is sent."""

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
#: The largest number of rounds until no partition moves. A partition is revoked in one round and assigned in the next
#: one; from the new owners, a more even assignment may exist, so that another partition moves.
ROUNDS = 10


class FixedLag(ByLag):
    """A `ByLag` with a given lag, which sends no requests."""

    def __init__(self, **behind: Iterable[int]) -> None:
        self.behind = {(topic, n): lag for topic, lags in behind.items() for n, lag in enumerate(lags)}

    def lags(self, partitions: list[Partition]) -> dict[Partition, int]:
        """Return the given lag."""
        return {partition: self.behind.get(partition, 0) for partition in partitions}

    def of(self, assignment: Assignment) -> dict[str, int]:
        """Return the lag of each member's partitions."""
        return {name: sum(self.behind.get(partition, 0) for partition in some) for name, some in assignment.items()}


def after(
    assignor: Assignor, topics: Topics, subscriptions: Mapping[str, MemberSubscription], generation: int
) -> Subscriptions:
    """Return the subscriptions of the members in the round after this one."""
    given = assign_checked(assignor, topics, subscriptions).assignments
    return {
        name: MemberSubscription(topics=one.topics, owned=given[name], generation=generation)
        for name, one in subscriptions.items()
    }


def settled(assignor: Assignor, topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> Assignment:
    """Repeat rounds until no partition moves, and return the assignment; each result is validated."""
    before = dict(subscriptions)
    for generation in range(7, 7 + ROUNDS):
        has = {name: one.owned for name, one in before.items()}
        before = after(assignor, topics, before, generation)
        if has == {name: one.owned for name, one in before.items()}:
            assert frozenset().union(*has.values()) == everything(topics, subscriptions)
            return has
    raise AssertionError(f"something moves in each of {ROUNDS} rounds")


def numbers(assignment: Assignment, topic: str) -> dict[str, list[int]]:
    """Return each member's partition numbers of this topic."""
    return {name: sorted(n for one, n in some if one == topic) for name, some in assignment.items()}


# ---- by lag ----


def test_by_lag_balances_the_lag_and_not_the_number_of_partitions() -> None:
    """Two members have the same lag, although one of them has only one partition."""
    by_lag = FixedLag(orders=[5000, 1000, 1000, 1000, 1000, 1000])
    given = settled(by_lag, ORDERS, {"a": member("orders"), "b": member("orders")})
    assert by_lag.of(given) == {"a": 5000, "b": 5000}
    assert sorted(map(len, given.values())) == [1, 5]


def test_by_lag_balances_the_number_of_partitions_without_lag() -> None:
    """Without lag, each member has the same number of partitions."""
    given = settled(FixedLag(), ORDERS, {name: member("orders") for name in "abc"})
    assert [len(some) for some in given.values()] == [2, 2, 2]


def test_by_lag_moves_no_partition_for_a_small_difference() -> None:
    """A small difference in lag moves no partition."""
    by_lag = FixedLag(orders=[3000, 1000, 1000, 2900, 1100, 1000])
    claims = {"a": member("orders", "orders:0,1,2", 5), "b": member("orders", "orders:3,4,5", 5)}
    given = assign_checked(by_lag, ORDERS, claims).assignments
    assert given == {"a": partitions("orders:0,1,2"), "b": partitions("orders:3,4,5")}


def test_by_lag_assigns_a_new_member_its_share_in_a_large_group() -> None:
    """The tolerance is a fraction of one member's share, so a new member always receives partitions."""
    topics = Topics(partitions={"orders": 40})
    claims = {f"m{n:02}": member("orders", f"orders:{2 * n},{2 * n + 1}", 5) for n in range(20)}
    given = settled(FixedLag(orders=[100] * 40), topics, {**claims, "newcomer": member("orders")})
    assert len(given["newcomer"]) == 1


def test_by_lag_assigns_a_moved_partition_one_round_after_its_revocation() -> None:
    """A moved partition has no owner in the first round (KIP-429)."""
    by_lag = FixedLag(orders=[4000, 4000, 0, 0, 0, 0])
    claims = {"a": member("orders", "orders:0,1,2", 5), "b": member("orders", "orders:3,4,5", 5)}
    first = assign_checked(by_lag, ORDERS, claims).assignments
    assert by_lag.of(first) == {"a": 4000, "b": 0}
    assert by_lag.of(settled(by_lag, ORDERS, claims)) == {"a": 4000, "b": 4000}


def test_by_lag_assigns_topics_only_to_their_subscribers() -> None:
    """A topic with one subscriber belongs to it, and shared topics balance the lag."""
    by_lag = FixedLag(orders=[1000] * 6, payments=[3000, 1000])
    topics = Topics(partitions={"orders": 6, "payments": 2})
    given = settled(by_lag, topics, {"a": member("orders payments"), "b": member("orders")})
    assert by_lag.of(given) == {"a": 5000, "b": 5000}
    assert numbers(given, "payments") == {"a": [0, 1], "b": []}


@pytest.mark.parametrize("assignor", [FixedLag(orders=[100] * 6), CoPartitioned()], ids=lambda one: one.name)
@pytest.mark.parametrize("wanted", ["orders missing", "missing"])
def test_assignors_ignore_missing_topics_and_members_without_topics(assignor: Assignor, wanted: str) -> None:
    """Members of existing topics receive all partitions in spite of other members' missing or empty subscriptions."""
    given = settled(assignor, ORDERS, {"a": member(wanted), "b": member("missing"), "c": member("")})
    assert {name: len(some) for name, some in given.items()} == {"a": 6 if "orders" in wanted else 0, "b": 0, "c": 0}


@pytest.mark.slow
def test_by_lag_balances_by_number_and_logs_a_warning_without_a_broker(caplog: pytest.LogCaptureFixture) -> None:
    """If the broker does not respond within the limit, partitions are balanced by number and a warning is logged."""
    assignor = ByLag("127.0.0.1:1", "lonely", timeout_s=0.3)
    with caplog.at_level(logging.WARNING, "by_lag"):
        given = assignor.assign(ORDERS, {name: member("orders") for name in "ab"})
    assert [len(some) for some in given.values()] == [3, 3]
    assert [record.getMessage().partition(" because")[0] for record in caplog.records] == [
        "Group lonely: partitions are shared by number"
    ]


# ---- co-partitioned ----


def test_co_partitioned_keeps_a_number_of_both_topics_together_where_range_splits_it() -> None:
    """If one member subscribes to orders only, range divides orders by three and payments by two."""
    subscriptions = {"a": member("orders"), "b": member("orders payments"), "c": member("orders payments")}
    ranges = assign_checked(BUILT_IN["range"], PAIR, subscriptions).assignments
    assert numbers(ranges, "orders")["b"] != numbers(ranges, "payments")["b"]
    given = settled(CoPartitioned(), PAIR, subscriptions)
    assert numbers(given, "orders") == numbers(given, "payments") == {"a": [], "b": [0, 2, 4], "c": [1, 3, 5]}


def test_co_partitioned_moves_only_surplus_numbers_to_a_new_member() -> None:
    """Members keep their numbers up to their share, whatever the new member's id."""
    claims = {
        "b": member("orders payments", "orders:0,2,4 payments:0,2,4", 5),
        "c": member("orders payments", "orders:1,3,5 payments:1,3,5", 5),
    }
    given = settled(CoPartitioned(), PAIR, {"a": member("orders payments"), **claims})
    assert numbers(given, "orders") == numbers(given, "payments") == {"a": [4, 5], "b": [0, 2], "c": [1, 3]}


def test_co_partitioned_never_assigns_a_split_number_to_two_members() -> None:
    """If two members own parts of a number, one keeps its part and later receives the other part."""
    claims = {"a": member("orders payments", "orders:0", 5), "b": member("orders payments", "payments:0", 5)}
    topics = Topics(partitions={"orders": 1, "payments": 1})
    first = assign_checked(CoPartitioned(), topics, claims).assignments
    assert first == {"a": partitions("orders:0"), "b": frozenset()}
    assert settled(CoPartitioned(), topics, claims) == {"a": partitions("orders:0 payments:0"), "b": frozenset()}


def test_co_partitioned_balances_topics_with_different_partition_counts() -> None:
    """Topics with different partition counts are placed separately, and their totals balance each other."""
    topics = Topics(partitions={"orders": 3, "payments": 3, "refunds": 1})
    given = settled(CoPartitioned(), topics, {name: member("orders payments refunds") for name in "ab"})
    assert sorted(map(len, given.values())) == [3, 4]


def test_co_partitioned_assigns_topics_without_a_common_subscriber_separately() -> None:
    """Topics without a common subscriber are assigned to their own subscribers."""
    given = settled(CoPartitioned(), PAIR, {"a": member("orders"), "b": member("payments")})
    assert [len(some) for some in given.values()] == [6, 6]


# ---- both ----

NAMES = ("a", "b", "c", "d")
TOPICS = ("orders", "payments", "refunds")


@st.composite
def groups(draw: st.DrawFn) -> tuple[Topics, Subscriptions, FixedLag]:
    """Draw topics, subscriptions and claims of one generation; a claim may be of a topic without a subscription."""
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
    return topics, subscriptions, FixedLag(**lags)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(groups())
def test_assignors_produce_valid_results_that_settle_from_any_ownership(
    group: tuple[Topics, Subscriptions, FixedLag],
) -> None:
    """Each result is complete, has one owner per partition, and after some rounds no partition moves."""
    topics, subscriptions, by_lag = group
    settled(by_lag, topics, subscriptions)
    settled(CoPartitioned(), topics, subscriptions)
