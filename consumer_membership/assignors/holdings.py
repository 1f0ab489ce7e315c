"""Who holds what while a sticky assignor works, by kinds of partitions, so that a search need not see each of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

from consumer_membership.assignors.racks import Racks
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition

#: What it costs to take one partition from its owner.
OWNER_COST = 1
#: What it costs to move one partition out of its rack: more than any number taken from owners.
RACK_COST = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Partitions that are alike: of one topic, with replicas in the same racks. `takers` are who may have them."""

    replicas: frozenset[str]
    takers: tuple[str, ...]


@dataclass(slots=True)
class Holding:
    """What one member holds of one kind: what it owned before, and the rest."""

    own: dict[TopicPartition, None] = field(default_factory=dict)
    foreign: dict[TopicPartition, None] = field(default_factory=dict)


class Holdings:
    """All partitions with their kinds, owners and holders; whoever is dealt with is in the order of `members`."""

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
        """This member holds it from now on; nobody did."""
        holding = self.held[member][self.kinds[partition]]
        (holding.own if self.owners.get(partition) == member else holding.foreign)[partition] = None
        self.holders[partition] = member
        self.loads[member] += 1

    def move(self, partition: TopicPartition, taker: str) -> None:
        """This member holds it from now on; another one did."""
        giver = self.holders[partition]
        holding = self.held[giver][self.kinds[partition]]
        holding.own.pop(partition, None)
        holding.foreign.pop(partition, None)
        self.loads[giver] -= 1
        self.give(partition, taker)

    def move_any(self, kind: Kind, giver: str, taker: str) -> None:
        """One partition of this kind: one that comes back to its owner, or else one that is taken from no owner."""
        holding = self.held[giver][kind]
        returning = (partition for partition in holding.foreign if self.owners.get(partition) == taker)
        self.move(next(returning, None) or next(iter(holding.foreign or holding.own)), taker)

    def is_far(self, member: str, kind: Kind) -> bool:
        """Whether a member would have to read such partitions from another rack."""
        rack = self.racks.members.get(member)
        return rack is not None and rack not in kind.replicas

    def levels(self) -> dict[int, list[str]]:
        """The members of each load."""
        levels: defaultdict[int, list[str]] = defaultdict(list)
        for member, load in self.loads.items():
            levels[load].append(member)
        return levels

    def assignment(self) -> dict[str, list[TopicPartition]]:
        """What each member holds."""
        assignment: dict[str, list[TopicPartition]] = {member: [] for member in self.members}
        for partition, member in self.holders.items():
            assignment[member].append(partition)
        return assignment
