"""Chains of moves: a gives a partition to b, b one to c, and so forth. Only the two ends get another load.

A chain costs what it moves out of racks, then what it takes from owners; what it may bring into racks or back to owners
is not counted, so that no cost is negative (`returns` counts it).
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heappop, heappush
from typing import NamedTuple

from consumer_membership.membership.classic.assignors.holdings import OWNER_COST, RACK_COST, Holdings, Kind


class Move(NamedTuple):
    """One partition of a kind goes from one member to another."""

    giver: str
    kind: Kind
    taker: str


class Search:
    """The cheapest chain from a member to one with at least two fewer (Dijkstra over members and kinds)."""

    def __init__(self, holdings: Holdings, excluded: Collection[str]) -> None:
        self._holdings = holdings
        self._excluded = excluded
        self._kind_costs: dict[Kind, int] = {}
        self._came_by: dict[str, Move] = {}
        self._costs: dict[str, int] = {}
        self._heap: list[tuple[int, int, int, str]] = []
        #: Everybody who was found; after a search in vain, everybody who can be reached.
        self.reached: set[str] = set()

    def chain(self, start: str) -> list[Move]:
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
                self._came_by[taker] = Move(giver, kind, taker)
                self._find(taker, total)

    def _way_to(self, end: str) -> list[Move]:
        moves = []
        while end in self._came_by:
            moves.append(self._came_by[end])
            end = moves[-1].giver
        return moves[::-1]
