"""Properties of the results for every group: complete, balanced, independent of the order, and with few moves."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import assume, given, settings, strategies

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription, Topics
from consumer_membership.assignors.validation import check_complete, check_cooperative
from consumer_membership.types import TopicPartition
from tests.assignors.groups import (
    Assignment,
    Subscriptions,
    everything,
    kept,
    out_of_rack,
    sizes,
    validated,
)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
STICKY = ("sticky", "cooperative-sticky")
#: Settings without a deadline, so that a busy machine cannot fail a test.
_IN_TIME = settings(deadline=None, max_examples=60)
_NAMES = ("t0", "t1", "t2")
_RACKS = ("east", "west")
#: The largest number of assignments of a group that a test tries.
_FEW = 3**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Topics, and the subscriptions and claims of members, independent of an assignor."""

    topics: Topics
    subscriptions: Subscriptions

    def sent_by(self, assignor: str) -> Subscriptions:
        """Return the subscriptions as this assignor's members send them."""
        return {
            name: replace(s, user_data=BUILT_IN[assignor].user_data(s.topics, s.owned, s.generation))
            for name, s in self.subscriptions.items()
        }

    def assigned(self, assignor: str) -> Assignment:
        """Return the result of the assignor."""
        return BUILT_IN[assignor].assign(self.topics, self.sent_by(assignor))  # type: ignore[return-value]  # built-in assignors assign TopicPartitions

    def after(self, assignment: Assignment, generation: int) -> Group:
        """Return the group in its next generation, in which each member owns its assignment."""
        return Group(
            topics=self.topics,
            subscriptions={
                name: replace(s, owned=frozenset(assignment[name]), generation=generation)
                for name, s in self.subscriptions.items()
            },
        )


@strategies.composite
def groups(
    draw: strategies.DrawFn, *, is_equal: bool = False, most_members: int = 6, most_partitions: int = 7
) -> Group:
    """Draw any group: claims may be stale, contradicted, or of partitions that do not exist."""
    counts = draw(strategies.dictionaries(strategies.sampled_from(_NAMES), strategies.integers(1, most_partitions)))
    racks = {}
    if draw(strategies.booleans()):
        anywhere = strategies.frozensets(strategies.sampled_from(_RACKS))
        racks = {TopicPartition(t, number): draw(anywhere) for t, count in counts.items() for number in range(count)}
    claimed = [TopicPartition(topic, number) for topic in _NAMES for number in range(most_partitions + 1)]
    wanted = strategies.frozensets(strategies.sampled_from(_NAMES))
    same = draw(wanted)
    members = strategies.builds(
        MemberSubscription,
        topics=strategies.just(same) if is_equal else wanted,
        owned=strategies.frozensets(strategies.sampled_from(claimed), max_size=most_partitions),
        generation=strategies.sampled_from([NO_GENERATION, 3, 4, 5]),
        rack_id=strategies.sampled_from([None, *_RACKS]),
        instance_id=strategies.none(),
    )
    names = strategies.sampled_from("abcdefgh"[:most_members])
    return Group(
        topics=Topics(partitions=counts, racks=racks),
        subscriptions=draw(strategies.dictionaries(names, members, min_size=1, max_size=most_members)),
    )


@pytest.mark.slow
@pytest.mark.parametrize("assignor", BUILT_IN)
@_IN_TIME
@given(group=groups())
def test_every_partition_is_assigned_once_to_a_subscriber(assignor: str, group: Group) -> None:
    """The result is complete whatever members claim.

    A partition that a cooperative assignor omits is still claimed by a member.
    """
    subscriptions = group.sent_by(assignor)
    owners = validated(assignor, subscriptions)
    result = group.assigned(assignor)
    is_cooperative = assignor == "cooperative-sticky"
    check_complete(group.topics, subscriptions, result, owners.claimants if is_cooperative else ())
    if is_cooperative:
        check_cooperative(owners, result)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["roundrobin", "sticky"])
@_IN_TIME
@given(group=groups(is_equal=True))
def test_equal_subscriptions_receive_equally_many_partitions(assignor: str, group: Group) -> None:
    """The numbers of partitions of two members differ by at most one, also with racks."""
    least, *_, most = [*sizes(group.assigned(assignor))] * 2
    assert most - least <= 1


@pytest.mark.slow
@pytest.mark.parametrize("assignor", BUILT_IN)
@_IN_TIME
@given(group=groups(), chance=strategies.randoms(use_true_random=False))
def test_result_does_not_depend_on_the_order_of_its_input(assignor: str, group: Group, chance: Random) -> None:
    """The result is equal for each order of members, topics and racks."""

    def shuffled(mapping: Mapping[_Key, _Value]) -> dict[_Key, _Value]:
        items = list(mapping.items())
        chance.shuffle(items)
        return dict(items)

    topics = Topics(partitions=shuffled(group.topics.partitions), racks=shuffled(group.topics.racks))
    again = Group(topics=topics, subscriptions=shuffled(group.subscriptions))
    assert again.assigned(assignor) == group.assigned(assignor)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", STICKY)
@_IN_TIME
@given(group=groups())
def test_second_round_completes_and_a_third_changes_nothing(assignor: str, group: Group) -> None:
    """The second sticky result equals the first.

    The second cooperative result also assigns the withheld partitions, and the third result equals it.
    """
    first = group.after(group.assigned(assignor), 6)
    second = first.assigned(assignor)
    check_complete(group.topics, first.sent_by(assignor), second)
    if assignor == "sticky":
        assert second == group.assigned(assignor)
    assert first.after(second, 7).assigned(assignor) == second


@pytest.mark.slow
@_IN_TIME
@given(partitions=strategies.integers(1, 40), members=strategies.integers(2, 9), lost=strategies.integers(0, 8))
def test_loss_of_a_member_moves_only_its_partitions(partitions: int, members: int, lost: int) -> None:
    """If a member leaves, all other members keep all their partitions."""
    before = settled(partitions, members)
    gone = f"m{lost % members}"
    after = Group(topics=before.topics, subscriptions={m: s for m, s in before.subscriptions.items() if m != gone})
    had = len(before.subscriptions[gone].owned)
    assert kept(after.assigned("sticky"), validated("sticky", after.sent_by("sticky"))) == partitions - had


@pytest.mark.slow
@_IN_TIME
@given(partitions=strategies.integers(1, 40), members=strategies.integers(1, 9))
def test_new_member_receives_the_smaller_quota_and_nothing_else_moves(partitions: int, members: int) -> None:
    """A new member receives the smaller quota and no other partition moves; a balanced result needs these moves."""
    before = settled(partitions, members)
    newcomer = MemberSubscription(topics=frozenset({"t0"}))
    after = Group(topics=before.topics, subscriptions={"a": newcomer, **before.subscriptions})
    result = after.assigned("sticky")
    assert len(result["a"]) == partitions // (members + 1)
    assert kept(result, validated("sticky", after.sent_by("sticky"))) == partitions - len(result["a"])


def settled(partitions: int, members: int) -> Group:
    """Return a group after its first rebalance."""
    fresh = Group(
        topics=Topics(partitions={"t0": partitions}),
        subscriptions={f"m{number}": MemberSubscription(topics=frozenset({"t0"})) for number in range(members)},
    )
    return fresh.after(fresh.assigned("sticky"), 1)


@pytest.mark.slow
@_IN_TIME
@given(group=groups(most_members=3, most_partitions=3))
def test_sticky_result_is_the_best_of_all_possible_results(group: Group) -> None:
    """No other result is better by balance, then by racks, then by kept partitions.

    Every assignment of a small group is tried.
    """
    subscriptions = group.sent_by("sticky")
    wanted = sorted(everything(group.topics, subscriptions))
    takers = [[m for m, s in sorted(subscriptions.items()) if partition.topic in s.topics] for partition in wanted]
    ways = 1
    for some in takers:
        ways *= len(some)
    assume(ways <= _FEW)
    owners = validated("sticky", subscriptions)

    def worth(result: Assignment) -> tuple[int, int, int]:
        return (
            sum(size**2 for size in sizes(result)),
            out_of_rack(group.topics, subscriptions, result),
            -kept(result, owners),
        )

    def given_to(way: tuple[str, ...]) -> Assignment:
        return {m: [p for p, taker in zip(wanted, way, strict=True) if taker == m] for m in subscriptions}

    assert worth(group.assigned("sticky")) == min(worth(given_to(way)) for way in itertools.product(*takers))
