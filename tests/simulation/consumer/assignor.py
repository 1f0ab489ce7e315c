"""The broker's `uniform` assignor, in small: balanced, sticky, deterministic."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from consumer_membership.types import Assignment, TopicIdPartition


def uniform(
    wanted: Mapping[str, AbstractSet[TopicIdPartition]], before: Mapping[str, Assignment]
) -> dict[str, Assignment]:
    """Give each partition that somebody wants to one of those who want it.

    Nobody ends with two more than a member that wants one of its partitions, and what a member has stays where it is
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


def _move_one(
    members: list[str], given: dict[str, set[TopicIdPartition]], wanted: Mapping[str, AbstractSet[TopicIdPartition]]
) -> bool:
    """Move one partition from a member with two more than another that wants it; whether there was one."""
    for poor in sorted(members, key=lambda m: (len(given[m]), m)):
        for rich in sorted(members, key=lambda m: (-len(given[m]), m)):
            if len(given[rich]) - len(given[poor]) < 2:
                break
            movable = sorted(given[rich] & wanted[poor])
            if movable:
                given[rich].remove(movable[-1])
                given[poor].add(movable[-1])
                return True
    return False
