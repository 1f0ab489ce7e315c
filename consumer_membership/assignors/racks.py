"""Match members and partitions by rack (KIP-881), so that records are read from a nearby replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.types import TopicPartition

_NOWHERE: frozenset[str] = frozenset()


def member_racks(subscriptions: Mapping[str, MemberSubscription], members: Iterable[str]) -> dict[str, str]:
    """Return the rack of each of these members that has one."""
    return {member: rack for member in members if (rack := subscriptions[member].rack_id)}


def is_worthwhile(members: Mapping[str, str], partitions: Iterable[frozenset[str]]) -> bool:
    """Return whether racks matter: members share racks with replicas, and some partition is not in all of them."""
    replicas = list(partitions)
    everywhere = _NOWHERE.union(*replicas)
    return not everywhere.isdisjoint(members.values()) and any(racks != everywhere for racks in replicas)


class Racks:
    """The racks of members and partitions, if they matter; otherwise nothing mismatches."""

    def __init__(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription], partitions: Iterable[TopicPartition]
    ) -> None:
        members = member_racks(subscriptions, subscriptions)
        self._replicas: dict[TopicPartition, frozenset[str]] = {}
        if members:
            self._replicas = {partition: topics.racks.get(partition, _NOWHERE) for partition in partitions}
        #: The rack of each member that has one; empty if racks do not matter.
        self.members: Mapping[str, str] = members if is_worthwhile(members, self._replicas.values()) else {}

    def __bool__(self) -> bool:
        """Whether racks matter."""
        return bool(self.members)

    def of(self, partition: TopicPartition) -> frozenset[str]:
        """Return the racks of a partition's replicas; empty if racks do not matter."""
        return self._replicas.get(partition, _NOWHERE) if self.members else _NOWHERE

    def mismatch(self, member: str, partition: TopicPartition) -> bool:
        """Return whether a member would read the partition from another rack; a member without a rack never does."""
        rack = self.members.get(member)
        return rack is not None and rack not in self._replicas[partition]
