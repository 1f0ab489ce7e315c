"""Sticky for members with equal subscriptions: each member receives its quota, so one pass is enough.

Of P partitions and M members, P mod M members receive one more than P div M. Each member keeps its owned partitions up
to its quota, lowest numbers first, so that revoked partitions are spread over the topics; members that fill the larger
quota with their owned partitions receive it. The others are dealt in turn: first up to the smaller quota, then one
each. No balanced result keeps more. With racks, only matching partitions are kept and dealt first; finally, partitions
return to their racks and owners (`returns`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import attrgetter

from consumer_membership.assignors.holdings import Holdings
from consumer_membership.assignors.racks import Racks
from consumer_membership.assignors.returns import return_to_owners
from consumer_membership.types import TopicPartition


def by_quota(
    partitions: list[TopicPartition], owned: Mapping[str, list[TopicPartition]], racks: Racks
) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each member: all of `partitions`, which are in order, as are the members in `owned`."""
    if not owned:
        return {}
    quotas = _Quotas(len(partitions), owned, racks)
    given = {partition for some in quotas.assignment.values() for partition in some}
    left = [partition for partition in partitions if partition not in given]
    if racks:
        left = quotas.deal_by_rack(left)
    quotas.deal(left)
    if not racks:
        return quotas.assignment
    by_topic = {topic: list(some) for topic, some in groupby(partitions, key=attrgetter("topic"))}
    holdings = Holdings(by_topic, dict.fromkeys(owned, frozenset(by_topic)), owned, racks)
    for member, some in quotas.assignment.items():
        for partition in some:
            holdings.give(partition, member)
    return_to_owners(holdings)
    return holdings.assignment()


class _Turns:
    """Members in the order of their turns, with a lookup of the next one, also of the next one in some racks."""

    def __init__(self, racks: Racks) -> None:
        self._racks = racks
        self._queues: dict[str | None, deque[tuple[int, str]]] = {}
        self._number = 0

    def append(self, member: str) -> None:
        """Add the member as the last one."""
        self._number += 1
        self._queues.setdefault(self._racks.members.get(member), deque()).append((self._number, member))

    def take(self, racks: Iterable[str | None] | None = None) -> str | None:
        """Remove and return the next member, of these racks if they are given; None: there is none."""
        named = self._queues if racks is None else racks
        waiting = [queue for rack in named if (queue := self._queues.get(rack))]
        return min(waiting, key=_first_number).popleft()[1] if waiting else None


def _first_number(queue: deque[tuple[int, str]]) -> int:
    return queue[0][0]


class _Quotas:
    """The members that still receive partitions: `below` the smaller quota, or `at` it while larger quotas remain."""

    def __init__(self, total: int, owned: Mapping[str, list[TopicPartition]], racks: Racks) -> None:
        self.assignment: dict[str, list[TopicPartition]] = {}
        self._racks = racks
        self._quota, self._larger = divmod(total, len(owned))
        self._below = _Turns(racks)
        self._at = _Turns(racks)
        for member, claimed in owned.items():
            self._keep(member, [partition for partition in claimed if not racks.mismatch(member, partition)])

    def _keep(self, member: str, claimed: list[TopicPartition]) -> None:
        keeps_larger = len(claimed) > self._quota and self._larger > 0
        self._larger -= keeps_larger
        claimed.sort(key=lambda partition: (partition.partition, partition.topic))
        self.assignment[member] = claimed[: self._quota + keeps_larger]
        if len(claimed) < self._quota:
            self._below.append(member)
        elif not keeps_larger:
            self._at.append(member)

    def deal(self, left: list[TopicPartition]) -> None:
        """Deal one partition to each in turn, up to the smaller quota; then those of the larger quotas."""
        for partition in left:
            self._deal_one(partition, None)

    def deal_by_rack(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Deal to members in the partitions' racks, fewest nearby members first; return the remaining partitions."""
        members = Counter(self._racks.members.values())
        left = sorted(left, key=lambda partition: sum(members[rack] for rack in self._racks.of(partition)))
        return [partition for partition in left if not self._deal_one(partition, self._racks.of(partition))]

    def _deal_one(self, partition: TopicPartition, racks: frozenset[str] | None) -> bool:
        """Give the partition to the next member (of these racks); return whether there was one."""
        member = self._below.take(racks)
        if member is not None:
            self.assignment[member].append(partition)
            (self._below if len(self.assignment[member]) < self._quota else self._at).append(member)
            return True
        member = self._at.take(racks) if self._larger else None
        if member is None:
            return False
        self.assignment[member].append(partition)
        self._larger -= 1
        return True
