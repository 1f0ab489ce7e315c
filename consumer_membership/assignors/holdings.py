"""The holders of partitions while a sticky assignor works, grouped by kinds of partitions to make searches short."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

from consumer_membership.assignors.racks import Racks
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition

#: The cost of taking one partition from its owner.
OWNER_COST = 1
#: The cost of moving one partition out of its rack: higher than any number of partitions taken from owners.
RACK_COST = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Equivalent partitions: of one topic, with replicas in the same racks. Only `takers` may have them."""

    replicas: frozenset[str]
    takers: tuple[str, ...]


@dataclass(slots=True)
class Holding:
    """The partitions of one kind that a member holds: those it owned before, and the others."""

    own: dict[TopicPartition, None] = field(default_factory=dict)
    foreign: dict[TopicPartition, None] = field(default_factory=dict)


class Holdings:
    """All partitions with their kinds, owners and holders; iterations over members use the order of `members`."""

    def __init__(
        self,
        partitions: Mapping[str, list[TopicPartition]],
        interests: Mapping[str, frozenset[str]],
        owned: Mapping[str, list[TopicPartition]],
        racks: Racks,
    ) -> None:
        self.racks = racks
        self.members = {member: place for place, member in enumerate(interests)}
        self.loads = dict.fromkeys(interests, 0)
        self.owners = {partition: member for member, some in owned.items() for partition in some}
        self.holders: dict[TopicPartition, str] = {}
        self.held: dict[str, defaultdict[Kind, Holding]] = {member: defaultdict(Holding) for member in interests}
        self.kinds: dict[TopicPartition, Kind] = {}
        takers: dict[str, list[str]] = {topic: [] for topic in partitions}
        for member, topics in interests.items():
            for topic in topics:
                takers[topic].append(member)
        for topic in sorted(partitions, key=lambda topic: (len(takers[topic]), topic)):
            kinds: dict[frozenset[str], Kind] = {}
            for partition in partitions[topic]:
                replicas = racks.of(partition)
                if replicas not in kinds:
                    kinds[replicas] = Kind(replicas, tuple(takers[topic]))
                self.kinds[partition] = kinds[replicas]

    def give(self, partition: TopicPartition, member: str) -> None:
        """Give a partition without a holder to this member."""
        holding = self.held[member][self.kinds[partition]]
        (holding.own if self.owners.get(partition) == member else holding.foreign)[partition] = None
        self.holders[partition] = member
        self.loads[member] += 1

    def move(self, partition: TopicPartition, taker: str) -> None:
        """Move a partition from its holder to this member."""
        giver = self.holders[partition]
        holding = self.held[giver][self.kinds[partition]]
        holding.own.pop(partition, None)
        holding.foreign.pop(partition, None)
        self.loads[giver] -= 1
        self.give(partition, taker)

    def move_any(self, kind: Kind, giver: str, taker: str) -> None:
        """Move one partition of this kind: preferably back to its owner, else one that is not taken from its owner."""
        holding = self.held[giver][kind]
        returning = (partition for partition in holding.foreign if self.owners.get(partition) == taker)
        self.move(next(returning, None) or next(iter(holding.foreign or holding.own)), taker)

    def is_far(self, member: str, kind: Kind) -> bool:
        """Return whether the member would read such partitions from another rack."""
        rack = self.racks.members.get(member)
        return rack is not None and rack not in kind.replicas

    def levels(self) -> dict[int, list[str]]:
        """Return the members by load."""
        levels: defaultdict[int, list[str]] = defaultdict(list)
        for member, load in self.loads.items():
            levels[load].append(member)
        return levels

    def assignment(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member."""
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in self.members}
        for partition, member in self.holders.items():
            assignment[member].append(partition)
        return assignment
