"""The broker's two assignors, in small and deterministic: `uniform`, balanced and sticky, and `range_of_each_topic`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, TypeAlias

from consumer_membership.types import Assignment, TopicIdPartition

#: What each member may get, and what each member had.
Wanted: TypeAlias = Mapping[str, AbstractSet[TopicIdPartition]]
#: A partition moves to a member that has at least this many fewer.
_MOVE_FROM = 2
ServerAssignor: TypeAlias = Callable[[Wanted, Mapping[str, Assignment]], dict[str, Assignment]]


def uniform(wanted: Wanted, before: Mapping[str, Assignment]) -> dict[str, Assignment]:
    """Give each partition that a member wants to one of the members that want it.

    No member ends with two more than a member that wants one of its partitions, and what a member has stays where it is
    unless the balance asks for its move.
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
    """Move one partition from a member with two more than another that wants it; whether there was one."""
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
    """Give each member neighboring partitions of each of its topics; the first members get one more."""
    given: dict[str, set[TopicIdPartition]] = {member: set() for member in wanted}
    for topic_id in sorted({partition.topic_id for partitions in wanted.values() for partition in partitions}):
        takers = {member: {p for p in wanted[member] if p.topic_id == topic_id} for member in sorted(wanted)}
        members = [member for member, partitions in takers.items() if partitions]
        free = sorted(takers[members[0]])
        each, rest = divmod(len(free), len(members))
        for number, member in enumerate(members):
            given[member] |= {free.pop(0) for _ in range(each + (number < rest))}
    return {member: frozenset(partitions) for member, partitions in given.items()}


#: By the names that members ask for.
ASSIGNORS: Final[Mapping[str, ServerAssignor]] = MappingProxyType({"uniform": uniform, "range": range_of_each_topic})
