"""Groups for the assignors' tests: functions that parse short notations and that measure results."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from consumer_membership.assignors import BUILT_IN, claim_reader
from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription, Topics
from consumer_membership.assignors.racks import Racks
from consumer_membership.assignors.validation import Validated, validate_subscriptions
from consumer_membership.types import TopicPartition

Subscriptions: TypeAlias = dict[str, MemberSubscription]
Assignment: TypeAlias = Mapping[str, Collection[TopicPartition]]

GOLDEN = Path(__file__).parent / "golden_assignors.jsonl"


def partitions(entry: str) -> frozenset[TopicPartition]:
    """Return the partitions of a text such as `orders:0,2 items:1`."""
    return frozenset(
        TopicPartition(topic, int(number))
        for topic, _, numbers in (word.partition(":") for word in entry.split())
        for number in numbers.split(",")
    )


def member(
    topics: str,
    owned: str = "",
    generation: int = NO_GENERATION,
    assignor: str = "cooperative-sticky",
    rack: str | None = None,
    instance: str | None = None,
    *,
    is_old: bool = False,
) -> MemberSubscription:
    """Return a member's subscription with these owned partitions and generation; `is_old`: as before KIP-792."""
    held, user_data = partitions(owned), None
    if assignor == "sticky":
        user_data, held = BUILT_IN["sticky"].user_data(frozenset(), held, generation), frozenset()
    elif is_old:
        user_data = BUILT_IN["cooperative-sticky"].user_data(frozenset(), held, generation)
    return MemberSubscription(
        topics=frozenset(topics.split()),
        user_data=user_data,
        owned=held,
        generation=NO_GENERATION if is_old else generation,
        rack_id=rack,
        instance_id=instance,
        version=1 if is_old else 3,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One group, with the results of Java's assignors for it."""

    number: int
    kind: str
    topics: Topics
    members: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[str, frozenset[TopicPartition]]]

    def subscriptions(self, assignor: str) -> Subscriptions:
        """Return the subscriptions as this assignor's members send them."""
        return {
            name: member(
                entry["topics"],
                entry.get("owned", ""),
                entry.get("generation", NO_GENERATION),
                assignor,
                entry.get("rack"),
                entry.get("instance"),
                is_old=entry.get("old", False),
            )
            for name, entry in self.members.items()
        }

    @property
    def is_equal(self) -> bool:
        """Whether all members subscribe to the same topics."""
        return len({entry["topics"] for entry in self.members.values()}) == 1

    @property
    def has_racks(self) -> bool:
        """Whether the racks of partitions are known."""
        return bool(self.topics.racks)


@cache
def golden() -> tuple[Golden, ...]:
    """Return all golden groups, which tests/support/java/AssignorGolden.java created."""
    return tuple(_golden(number, json.loads(line)) for number, line in enumerate(GOLDEN.read_text().splitlines()))


def _golden(number: int, line: Mapping[str, Any]) -> Golden:
    racks = {
        TopicPartition(topic, place): frozenset(letters)
        for topic, all_letters in line.get("racks", {}).items()
        for place, letters in enumerate(all_letters)
    }
    return Golden(
        number=number,
        kind=line["kind"],
        topics=Topics(partitions=line["topics"], racks=racks),
        members=line["members"],
        results={name: {m: partitions(entry) for m, entry in line[name].items()} for name in BUILT_IN},
    )


def validated(assignor: str, subscriptions: Mapping[str, MemberSubscription]) -> Validated:
    """Return the owners of the partitions, according to the claims that this assignor reads."""
    return validate_subscriptions(subscriptions, claim_reader(BUILT_IN[assignor]))


def sizes(assignment: Assignment) -> list[int]:
    """Return the number of partitions of each member, sorted."""
    return sorted(len(some) for some in assignment.values())


def balance_score(assignment: Assignment) -> int:
    """Return Java's balance score: the sum of the differences of all pairs of members; 0 is perfect."""
    ordered = sizes(assignment)
    return sum(size * (2 * place - len(ordered) + 1) for place, size in enumerate(ordered))


def kept(assignment: Assignment, owners: Validated) -> int:
    """Return the number of partitions that stay with their owner."""
    return sum(len(set(some) & owners.owned[name]) for name, some in assignment.items())


def out_of_rack(topics: Topics, subscriptions: Mapping[str, MemberSubscription], assignment: Assignment) -> int:
    """Return the number of partitions that are assigned to a member in another rack, if racks matter for them."""
    racks = Racks(topics, subscriptions, everything(topics, subscriptions))
    return sum(racks.mismatch(name, partition) for name, some in assignment.items() for partition in some)


def everything(topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> frozenset[TopicPartition]:
    """Return all partitions of all subscribed topics."""
    wanted: set[str] = set().union(*(subscription.topics for subscription in subscriptions.values()))
    return frozenset(
        TopicPartition(topic, number)
        for topic, count in topics.partitions.items()
        if topic in wanted
        for number in range(count)
    )
