"""The computing time of the leader with the sticky assignors of the classic protocol, by group size. No broker."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from consumer_membership.assignors import BUILT_IN
from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription, Topics
from tests.benchmarks.bench import Figure, log
from tests.benchmarks.samples import Series, at_most

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from consumer_membership.types import TopicPartition
    from tests.benchmarks.bench import Bench

ASSIGNORS = ("sticky", "cooperative-sticky")
CHANGES = ("fresh", "one lost", "one joined")
#: The numbers of members of a group; each member has ten partitions.
SIZES = (100, 300, 1000)
LIMIT_S = 5.0

_SHARE = 10
_PARTITIONS_OF_TOPIC = 100
_TOPICS = {
    members: {f"t{number}": _PARTITIONS_OF_TOPIC for number in range(members * _SHARE // _PARTITIONS_OF_TOPIC)}
    for members in SIZES
}


def label(assignor: str, change: str, members: int) -> str:
    """Return the label of a measurement."""
    return f"{assignor}, {change}, {members:,} x {members * _SHARE:,}"


def run(bench: Bench) -> Figure:
    """Assign the partitions of a new group, then after one member has left, then after another one has joined."""
    labels = [label(a, change, members) for a in ASSIGNORS for change in CHANGES for members in SIZES]
    series = {name: Series(label=name, unit="s", is_ours=True) for name in labels}
    spread = Series(label="largest difference of two members' partitions", unit="", is_ours=True)
    for _ in range(bench.count(5, 2)):
        for assignor in ASSIGNORS:
            for members in SIZES:
                group = _Group(assignor, members, series)
                spread.add(max(group.spreads))
    largest = [series[label(a, change, SIZES[-1])] for a in ASSIGNORS for change in CHANGES]
    return Figure(
        title="Classic protocol: the leader's computation, members x partitions",
        series=(*series.values(), spread),
        checks=(
            at_most(
                f"assignors, {SIZES[-1]:,} members x {SIZES[-1] * _SHARE:,} partitions",
                max(value for one in largest for value in one.values),
                LIMIT_S,
                "s at most",
                largest,
            ),
            at_most("assignors, balance: largest difference of two members", max(spread.values), 1, "", [spread]),
        ),
        notes=(
            "equal subscriptions; with cooperative-sticky, 'one joined' is the second round, after the revocations",
        ),
    )


class _Group:
    """One group from its first rebalance to its last one; each rebalance is timed."""

    def __init__(self, assignor: str, members: int, series: Mapping[str, Series]) -> None:
        self._assignor = assignor
        self._size = members
        self._series = series
        self._topics = Topics(partitions=_TOPICS[members])
        self._generation = NO_GENERATION
        self._owned: dict[str, Collection[TopicPartition]] = {f"consumer-{number}": () for number in range(members)}
        self.spreads: list[int] = []
        self._rebalance("fresh")
        self._owned.popitem()
        self._rebalance("one lost")
        self._owned["consumer-new"] = ()
        if assignor == "cooperative-sticky":
            self._rebalance(None)
        self._rebalance("one joined")

    def _rebalance(self, change: str | None) -> None:
        """Rebalance the group after this change; None is an intermediate round, which is not measured."""
        assignor = BUILT_IN[self._assignor]
        wanted = frozenset(self._topics.partitions)
        subscriptions = {}
        for member, owned in self._owned.items():
            subscription = MemberSubscription(topics=wanted, owned=frozenset(owned), generation=self._generation)
            data = assignor.user_data(wanted, subscription.owned, subscription.generation)
            subscriptions[member] = replace(subscription, user_data=data)
        began = time.perf_counter()
        self._owned = dict(assignor.assign(self._topics, subscriptions))
        took_s = time.perf_counter() - began
        self._generation += 1
        if change is None:
            return
        sizes = [len(owned) for owned in self._owned.values()]
        self.spreads.append(max(sizes) - min(sizes))
        name = label(self._assignor, change, self._size)
        self._series[name].add(took_s, members=self._size)
        log(f"assignors: {name} {took_s:.3f} s")
