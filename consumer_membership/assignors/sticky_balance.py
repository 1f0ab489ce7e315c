"""Sticky for members with different subscriptions: as even as the subscriptions allow, by moves along chains.

Each member keeps its owned partitions (with racks: those that match). The others are dealt to the members with the
lowest load, topics with the fewest subscribers first. The member with the highest load gives to those with the lowest
load that may have its partitions. Then, again beginning with the highest load: if a chain of moves reaches a member
with at least two fewer (a gives a partition to b, b one to c, and so forth: only the two ends change their load), the
cheapest such chain is applied. Java moves single partitions only and stops where a chain would be needed. Finally,
partitions return to their racks and owners (`returns`).

Chains matter: without them the results for 34 of Java's golden groups are less even than Java's, and the sum of all
differences over the rolling restarts of `returns` is 19 % larger if each member has its own topics, and 11 % larger if
a new version subscribes another topic.

The cost of a chain is the number of partitions that it moves out of racks, then that of partitions taken from owners;
moves into racks or back to owners are not counted, so that no cost is negative (`returns` counts them).

In the end no chain is left, and then the loads are as even as possible: every other possible result has the same loads
or more uneven ones (the argument of Harvey et al., "Semi-matchings for bipartite graphs and load balancing"). Members
that an unsuccessful search reached cannot improve any later search, so they are not visited again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from consumer_membership.assignors.holdings import OWNER_COST, RACK_COST, Holdings, Kind
from consumer_membership.assignors.racks import Racks
from consumer_membership.assignors.returns import return_to_owners
from consumer_membership.types import TopicPartition


def balanced(
    partitions: Mapping[str, list[TopicPartition]],
    interests: Mapping[str, frozenset[str]],
    owned: Mapping[str, list[TopicPartition]],
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    """Return each member's partitions: all of `partitions`; each topic in `interests` has some."""
    holdings = Holdings(partitions, interests, owned, racks)
    _deal(holdings)
    _move_directly(holdings)
    _level(holdings)
    return_to_owners(holdings)
    return holdings.assignment()


def _deal(holdings: Holdings) -> None:
    """Keep owned partitions, then deal to the lowest load: first partitions with a nearby member, then the others."""
    left = []
    for partition in holdings.kinds:
        owner = holdings.owners.get(partition)
        if owner is None or holdings.racks.mismatch(owner, partition):
            left.append(partition)
        else:
            holdings.give(partition, owner)
    for is_nearby in (True, False):
        takers = _Takers(holdings, is_nearby=is_nearby)
        for partition in left:
            taker = takers.least(holdings.kinds[partition])
            if taker is not None:
                holdings.give(partition, taker)
        left = [partition for partition in left if partition not in holdings.holders]


def _move_directly(holdings: Holdings) -> None:
    """Move directly from the highest to the lowest load where possible: many moves at a low cost."""
    takers = _Takers(holdings, is_nearby=True)
    places, loads = holdings.members, holdings.loads
    for giver in sorted(places, key=lambda member: (-loads[member], places[member])):
        while True:
            offers = [
                (loads[taker], not holding.foreign, places[taker], number, kind, taker)
                for number, (kind, holding) in enumerate(holdings.held[giver].items())
                if (holding.foreign or holding.own) and (taker := takers.least(kind)) is not None
            ]
            least = min(offers, default=None)
            if least is None or least[0] > loads[giver] - 2:
                break
            holdings.move_any(least[-2], giver, least[-1])


class _Takers:
    """For each kind of partitions, the members that may have it, by load."""

    def __init__(self, holdings: Holdings, *, is_nearby: bool) -> None:
        self._holdings = holdings
        #: Whether only members with a replica in their rack count.
        self._is_nearby = is_nearby
        self._heaps: dict[Kind, list[tuple[int, int, str]]] = {}

    def least(self, kind: Kind) -> str | None:
        """Return the member with the lowest load.

        This is correct while loads grow, because an outdated entry is too low and comes first.
        """
        holdings = self._holdings
        if kind not in self._heaps:
            self._heaps[kind] = [
                (holdings.loads[member], holdings.members[member], member)
                for member in kind.takers
                if not (self._is_nearby and holdings.is_far(member, kind))
            ]
            heapify(self._heaps[kind])
        heap = self._heaps[kind]
        while heap:
            load, place, member = heap[0]
            if load >= holdings.loads[member]:
                return member
            heapreplace(heap, (holdings.loads[member], place, member))
        return None


def _level(holdings: Holdings) -> None:
    """Move along chains until none is left."""
    loads, places = holdings.loads, holdings.members
    heap = [(-load, places[member], member) for member, load in loads.items()]
    heapify(heap)
    done: set[str] = set()
    while heap:
        load, _, member = heappop(heap)
        if member in done or -load != loads[member]:
            continue
        search = _Search(holdings, done)
        chain = search.chain(member)
        if not chain:
            done |= search.reached
            continue
        for move in chain:
            holdings.move_any(move.kind, move.giver, move.taker)
        for changed in (member, chain[-1].taker):
            heappush(heap, (-loads[changed], places[changed], changed))


class _Move(NamedTuple):
    """A move of one partition of a kind from one member to another."""

    giver: str
    kind: Kind
    taker: str


class _Search:
    """A search for the cheapest chain to a member with at least two fewer (Dijkstra over members and kinds)."""

    def __init__(self, holdings: Holdings, excluded: Collection[str]) -> None:
        self._holdings = holdings
        self._excluded = excluded
        self._kind_costs: dict[Kind, int] = {}
        self._came_by: dict[str, _Move] = {}
        self._costs: dict[str, int] = {}
        self._heap: list[tuple[int, int, int, str]] = []
        #: All members that were reached; after an unsuccessful search, all that can be reached.
        self.reached: set[str] = set()

    def chain(self, start: str) -> list[_Move]:
        """Return the moves in their order; empty: there is no such chain."""
        enough = self._holdings.loads[start] - 2
        self._find(start, 0)
        while self._heap:
            cost, load, _, member = heappop(self._heap)
            if member in self.reached:
                continue
            self.reached.add(member)
            if load <= enough:
                return self._way_to(member)
            for kind, holding in self._holdings.held[member].items():
                if holding.foreign or holding.own:
                    self._offer(kind, member, cost + (0 if holding.foreign else OWNER_COST))
        return []

    def _find(self, member: str, cost: int) -> None:
        self._costs[member] = cost
        heappush(self._heap, (cost, self._holdings.loads[member], self._holdings.members[member], member))

    def _offer(self, kind: Kind, giver: str, cost: int) -> None:
        """Offer one partition of this kind to all takers, unless it was offered at a lower cost."""
        if self._kind_costs.get(kind, cost + 1) <= cost:
            return
        self._kind_costs[kind] = cost
        for taker in kind.takers:
            if taker in self.reached or taker in self._excluded:
                continue
            total = cost + RACK_COST * self._holdings.is_far(taker, kind)
            if total < self._costs.get(taker, total + 1):
                self._came_by[taker] = _Move(giver, kind, taker)
                self._find(taker, total)

    def _way_to(self, end: str) -> list[_Move]:
        moves = []
        while end in self._came_by:
            moves.append(self._came_by[end])
            end = moves[-1].giver
        return moves[::-1]
