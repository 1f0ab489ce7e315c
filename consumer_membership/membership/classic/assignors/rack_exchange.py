"""Swaps partitions between members that could all have each other's, until no swap brings one nearer (KIP-881).

Members of a rack are alike here, so what to search is small: from rack to rack. A partition whose member is elsewhere
goes to a rack that has it; from there another one goes on to a rack that has that one, and so forth, until one comes to
the member that gave the first. Nobody ends with more or fewer, and each round brings one partition nearer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from consumer_membership.membership.classic.assignors.racks import Racks
from consumer_membership.types import TopicPartition

#: A member's rack; None: it has none, and every partition matches.
_Rack: TypeAlias = str | None
_Replicas: TypeAlias = frozenset[str]


class _Stock:
    """What the members of each rack hold: partitions with their holders, by replicas and whether they were theirs."""

    def __init__(
        self,
        assignment: Mapping[str, list[TopicPartition]],
        owned: Mapping[str, frozenset[TopicPartition]],
        racks: Racks,
    ) -> None:
        self._owned = owned
        self._racks = racks
        self._shelves: dict[_Rack, dict[tuple[bool, _Replicas], dict[TopicPartition, str]]] = {}
        for member, partitions in assignment.items():
            self._shelves.setdefault(racks.members.get(member), {})
            for partition in partitions:
                self.put(partition, member)

    def _shelf(self, partition: TopicPartition, member: str) -> dict[TopicPartition, str]:
        kind = partition in self._owned[member], self._racks.of(partition)
        return self._shelves[self._racks.members.get(member)].setdefault(kind, {})

    def put(self, partition: TopicPartition, member: str) -> None:
        """This member holds it now."""
        self._shelf(partition, member)[partition] = member

    def take(self, partition: TopicPartition, member: str) -> bool:
        """This member does not hold it any more; whether it did."""
        shelf = self._shelf(partition, member)
        if shelf.get(partition) != member:
            return False
        del shelf[partition]
        return True

    def holdings(self) -> Iterator[tuple[TopicPartition, str]]:
        """All partitions with their holders."""
        return (item for kinds in self._shelves.values() for held in kinds.values() for item in held.items())

    def path(self, replicas: _Replicas, end: _Rack) -> list[_Rack]:
        """The racks through which partitions go on, so that the last one comes to `end`; empty: there is no way."""
        came_from: dict[_Rack, _Rack] = {rack: rack for rack in self._shelves if _fits(replicas, rack)}
        queue = deque(came_from)
        while queue:
            rack = queue.popleft()
            for following in self._shelves:
                if following not in came_from and self._fitting(rack, following):
                    came_from[following] = rack
                    queue.append(following)
        return _walk(came_from, end) if end in came_from else []

    def _fitting(self, rack: _Rack, following: _Rack) -> list[tuple[bool, dict[TopicPartition, str]]]:
        return [
            (was_owned, held)
            for (was_owned, replicas), held in self._shelves[rack].items()
            if held and _fits(replicas, following)
        ]

    def pick(self, rack: _Rack, following: _Rack) -> tuple[TopicPartition, str]:
        """A partition of this rack that is also in the following one; rather one that its holder did not own before."""
        _, held = min(self._fitting(rack, following), key=_was_owned)
        return next(iter(held.items()))


def _was_owned(shelf: tuple[bool, dict[TopicPartition, str]]) -> bool:
    return shelf[0]


def _fits(replicas: _Replicas, rack: _Rack) -> bool:
    return rack is None or rack in replicas


def _walk(came_from: Mapping[_Rack, _Rack], end: _Rack) -> list[_Rack]:
    path = [end]
    while came_from[path[-1]] != path[-1]:
        path.append(came_from[path[-1]])
    return path[::-1]


def exchange(
    assignment: dict[str, list[TopicPartition]], owned: Mapping[str, frozenset[TopicPartition]], racks: Racks
) -> None:
    """Bring as many partitions as possible to members in their racks; `assignment` is changed in place."""
    stock = _Stock(assignment, owned, racks)
    homeless = [(p, member) for member, some in assignment.items() for p in some if racks.mismatch(member, p)]
    for partition, member in homeless:
        path = stock.path(racks.of(partition), racks.members.get(member))
        # It may have gone elsewhere by another's exchange.
        if not path or not stock.take(partition, member):
            continue
        moved = [(partition, member)]
        for rack, following in pairwise(path):
            moved.append(stock.pick(rack, following))
            stock.take(*moved[-1])
        for (coming, _), (_, holder) in zip(moved, [*moved[1:], moved[0]], strict=True):
            stock.put(coming, holder)
    for some in assignment.values():
        some.clear()
    for partition, member in stock.holdings():
        assignment[member].append(partition)
