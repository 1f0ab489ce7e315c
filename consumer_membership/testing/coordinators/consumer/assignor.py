"""Short, deterministic versions of the broker's assignors: `uniform` (balanced, sticky) and `range_of_each_topic`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, TypeAlias

from consumer_membership.types import Assignment, TopicIdPartition

#: The partitions that each member may receive.
Wanted: TypeAlias = Mapping[str, AbstractSet[TopicIdPartition]]
#: A partition moves only to a member that has at least this many partitions fewer.
_MOVE_FROM = 2
ServerAssignor: TypeAlias = Callable[[Wanted, Mapping[str, Assignment]], dict[str, Assignment]]


def uniform(wanted: Wanted, before: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Assign each wanted partition to one of the members that want it.

    A member that wants a partition of another member ends with at most one partition fewer than that member. Partitions
    stay with their owners unless the balance requires a move.
    """
    members = sorted(wanted)
    given: dict[str, set[TopicIdPartition]] = {member: set() for member in members}
    takers = sorted({partition for partitions in wanted.values() for partition in partitions})
    owner_before = {partition: member for member in members for partition in before.get(member, ())}
    free = []
    for partition in takers:
        owner = owner_before.get(partition)
        if owner is not None and partition in wanted[owner]:
            given[owner].add(partition)
        else:
            free.append(partition)
    for partition in free:
        least = min((m for m in members if partition in wanted[m]), key=lambda m: (len(given[m]), m))
        given[least].add(partition)
    while _move_one(members, given, wanted):
        pass
    return {member: frozenset(partitions) for member, partitions in given.items()}


def _move_one(members: list[str], given: dict[str, set[TopicIdPartition]], wanted: Wanted) -> bool:
    """Move a partition to a member that wants it and has at least two fewer; return whether a partition moved."""
    for poor in sorted(members, key=lambda m: (len(given[m]), m)):
        for rich in sorted(members, key=lambda m: (-len(given[m]), m)):
            if len(given[rich]) - len(given[poor]) < _MOVE_FROM:
                break
            movable = sorted(given[rich] & wanted[poor])
            if movable:
                given[rich].remove(movable[-1])
                given[poor].add(movable[-1])
                return True
    return False


def range_of_each_topic(wanted: Wanted, before: Mapping[str, Assignment]) -> dict[str, Assignment]:  # noqa: ARG001 - not sticky
    """Give each member consecutive partitions of each of its topics; a remainder goes to the first members."""
    given: dict[str, set[TopicIdPartition]] = {member: set() for member in wanted}
    for topic_id in sorted({partition.topic_id for partitions in wanted.values() for partition in partitions}):
        takers = {member: {p for p in wanted[member] if p.topic_id == topic_id} for member in sorted(wanted)}
        members = [member for member, partitions in takers.items() if partitions]
        free = sorted(takers[members[0]])
        each, rest = divmod(len(free), len(members))
        for number, member in enumerate(members):
            given[member] |= {free.pop(0) for _ in range(each + (number < rest))}
    return {member: frozenset(partitions) for member, partitions in given.items()}


#: The assignors by the names that members request.
ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType({"uniform": uniform, "range": range_of_each_topic})
