"""Sticky, where members subscribe to different topics: as even as the subscriptions allow, by moves along chains.

Everybody keeps what it owns (with racks: what matches), the rest is dealt to whoever has least, topics with the fewest
subscribers first. Whoever has most gives to those who have least and may have it. Then, again beginning with whoever
has most: if a member with at least two fewer can be reached by a chain of moves (a gives a partition to b, b one to c,
and so forth: only the two ends get another load), the cheapest such chain is taken. Java moves single partitions only
and stops where a chain would be needed. At last partitions return to their racks and owners (`returns`).

Chains are no luxury: without them the results for 34 of Java's golden groups are less even than Java's, and the sum of
all differences over the rolling restarts of `returns` is 19 % larger where each member has its own topics, and 11 %
larger where a new version subscribes another topic.

A chain costs what it moves out of racks, then what it takes from owners; what it may bring into racks or back to owners
is not counted, so that no cost is negative (`returns` counts it).

In the end no chain is left, and then the loads are as even as they can be: every other possible outcome has the same
loads or more uneven ones (the argument of Harvey et al., "Semi-matchings for bipartite graphs and load balancing").
Members that a search reached in vain can gain nothing for anybody after it, so none of them is looked at again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from consumer_membership.assignors.holdings import OWNER_COST, RACK_COST, Holdings, Kind
from consumer_membership.assignors.racks import Racks
from consumer_membership.assignors.returns import bring_home
from consumer_membership.types import TopicPartition


def balanced(
    partitions: Mapping[str, list[TopicPartition]],
    interests: Mapping[str, frozenset[str]],
    owned: Mapping[str, list[TopicPartition]],
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    """The partitions of each member: all of `partitions`; each topic in `interests` has some; members come in order."""
    holdings = Holdings(partitions, interests, owned, racks)
    _deal(holdings)
    _spill(holdings)
    _level(holdings)
    bring_home(holdings)
    return holdings.assignment()


def _deal(holdings: Holdings) -> None:
    """Keep, then deal to whoever has least: first those that have somebody nearby, to them; then the rest."""
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


def _spill(holdings: Holdings) -> None:
    """Move from whoever has most directly to whoever has least, where that is possible: many moves at little cost."""
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
    """For each kind of partitions who may have it, whoever has least first."""

    def __init__(self, holdings: Holdings, *, is_nearby: bool) -> None:
        self._holdings = holdings
        #: Whether only those are meant that have a replica in their rack.
        self._is_nearby = is_nearby
        self._heaps: dict[Kind, list[tuple[int, int, str]]] = {}

    def least(self, kind: Kind) -> str | None:
        """Who has least; exactly so while loads grow, for then an outdated entry is too low and comes up in time."""
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
    """One partition of a kind goes from one member to another."""

    giver: str
    kind: Kind
    taker: str


class _Search:
    """The cheapest chain from a member to one with at least two fewer (Dijkstra over members and kinds)."""

    def __init__(self, holdings: Holdings, excluded: Collection[str]) -> None:
        self._holdings = holdings
        self._excluded = excluded
        self._kind_costs: dict[Kind, int] = {}
        self._came_by: dict[str, _Move] = {}
        self._costs: dict[str, int] = {}
        self._heap: list[tuple[int, int, int, str]] = []
        #: Everybody who was found; after a search in vain, everybody who can be reached.
        self.reached: set[str] = set()

    def chain(self, start: str) -> list[_Move]:
        """The moves, in their order; empty: there is no such chain."""
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
        """One of this kind is offered to all takers, unless that was done cheaper."""
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
