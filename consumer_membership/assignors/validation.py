"""What members claim to own, and what an assignor made of it: checked before anybody acts on it (KIP-792, KIP-429).

A member that missed a rebalance still claims what it owned before; its claim carries the generation it belongs to.

- Of several claims to a partition the one of the newest generation is good; the older ones are dropped.
- Of several claims of the newest generation none is good: nobody owns the partition.
- A claim that nobody contradicts is good however old it is: whoever had the partition since would say so.
- `NO_GENERATION` is older than every generation.

A claim that is not good is no permission to fetch, but no proof either that its member has stopped: under the
cooperative protocol nobody else is given the partition while somebody still claims it, except its good owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.errors import AssignmentError
from consumer_membership.light_dataclasses import dataclass, replace
from consumer_membership.types import TopicPartition

#: How many partitions an error names.
_MOST_NAMED = 5
_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member says that it owns, and since which generation."""

    owned: frozenset[TopicPartition]
    generation: int


def protocol_claim(subscription: MemberSubscription) -> Claim:
    """The claim as the protocol's own fields have it; assignors that say it in user data read it from there."""
    return Claim(owned=subscription.owned, generation=subscription.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Several members claim one partition; `owner` is whose claim is good, None: nobody's."""

    partition: TopicPartition
    generations: Mapping[str, int]
    owner: str | None

    def __str__(self) -> str:
        """In words close to the Java client's, for the log."""
        topic_partition = f"{self.partition.topic}-{self.partition.partition}"
        if self.owner is None:
            newest = max(self.generations.values())
            equals = " and ".join(m for m, generation in self.generations.items() if generation == newest)
            return (
                f"Found multiple consumers {equals} claiming the same TopicPartition {topic_partition} in the same "
                f"generation {newest}; this is removed from their previous assignment."
            )
        claims = " and ".join(f"{member} in generation {g}" for member, g in self.generations.items())
        return (
            f"Consumers {claims} are claiming the same TopicPartition {topic_partition} in different generations. "
            f"It stays with {self.owner}, the member with the higher generation."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """Who owns what: `owned` has the good claims of each member, `claimants` everybody who claims a partition."""

    owned: Mapping[str, frozenset[TopicPartition]]
    claimants: Mapping[TopicPartition, frozenset[str]]
    conflicts: tuple[Conflict, ...] = ()

    @property
    def contested(self) -> frozenset[TopicPartition]:
        """What several members claim with equal right: nobody owns it, and it is free only after they gave it up."""
        return frozenset(conflict.partition for conflict in self.conflicts if conflict.owner is None)

    def applied_to(self, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberSubscription]:
        """The subscriptions with the good claims only, for an assignor that trusts what it reads."""
        return {m: replace(subscription, owned=self.owned[m]) for m, subscription in subscriptions.items()}

    def moving(self, assignment: Mapping[str, Collection[TopicPartition]]) -> dict[TopicPartition, str]:
        """What a result gives to a member that does not own it while another one still claims it: to whom."""
        return {
            partition: member
            for member, partitions in assignment.items()
            for partition in partitions
            if partition not in self.owned.get(member, _NOTHING)
            and self.claimants.get(partition, frozenset()) - {member}
        }


def validate_subscriptions(
    subscriptions: Mapping[str, MemberSubscription], claim_of: Callable[[MemberSubscription], Claim] = protocol_claim
) -> Validated:
    """Who owns what by the members' claims, and where they contradict each other (KIP-792)."""
    claims = {member: claim_of(subscriptions[member]) for member in sorted(subscriptions)}
    claimants: defaultdict[TopicPartition, list[str]] = defaultdict(list)
    for member, claim in claims.items():
        for partition in claim.owned:
            claimants[partition].append(member)
    refused: defaultdict[str, set[TopicPartition]] = defaultdict(set)
    conflicts = []
    for partition in sorted(partition for partition, members in claimants.items() if len(members) > 1):
        generations = {member: claims[member].generation for member in claimants[partition]}
        newest = max(generations.values())
        best = [member for member, generation in generations.items() if generation == newest]
        owner = best[0] if len(best) == 1 else None
        conflicts.append(Conflict(partition=partition, generations=generations, owner=owner))
        for member in generations:
            if member != owner:
                refused[member].add(partition)
    return Validated(
        owned={member: claim.owned - refused.get(member, _NOTHING) for member, claim in claims.items()},
        claimants={partition: frozenset(members) for partition, members in claimants.items()},
        conflicts=tuple(conflicts),
    )


def withhold(
    validated: Validated,
    assignment: Mapping[str, Collection[TopicPartition]],
    only: Collection[TopicPartition] | None = None,
) -> dict[str, tuple[TopicPartition, ...]]:
    """A result without what moves: its new owner gets it one rebalance later, after the old one gave it up (KIP-429).

    `only` restricts it to some: a user's own assignor knows what it moves, but cannot know what is contested.
    """
    moving = validated.moving(assignment)
    held_back = moving.keys() if only is None else moving.keys() & set(only)
    return {
        member: tuple(partition for partition in partitions if partition not in held_back)
        for member, partitions in assignment.items()
    }


def check_complete(
    topics: Topics,
    subscriptions: Mapping[str, MemberSubscription],
    assignment: Mapping[str, Collection[TopicPartition]],
    may_wait: Collection[TopicPartition] = (),
) -> None:
    """Every partition of a subscribed topic is given once, to a member that subscribes it, and nothing else is.

    `may_wait` may be missing: what somebody claims, under the cooperative protocol. A member left out gets nothing.

    Raises:
        AssignmentError: it names the partition and the member.
    """
    owners: dict[TopicPartition, str] = {}
    for member in assignment:
        _check_member(topics, subscriptions, assignment, member)
        for partition in assignment[member]:
            if partition in owners:
                raise AssignmentError(
                    f"{_describe([partition])} is given twice: to {owners[partition]} and to {member}"
                )
            owners[partition] = member
    wanted: set[str] = set().union(*(subscription.topics for subscription in subscriptions.values()))
    missing = [
        partition
        for topic in sorted(wanted)
        for number in range(topics.partitions.get(topic, 0))
        if (partition := TopicPartition(topic, number)) not in owners
    ]
    forgotten = missing if not may_wait else sorted(set(missing).difference(may_wait))
    if forgotten:
        raise AssignmentError(f"nobody is given {_describe(forgotten)}, although members subscribe it")


def _check_member(
    topics: Topics,
    subscriptions: Mapping[str, MemberSubscription],
    assignment: Mapping[str, Collection[TopicPartition]],
    member: str,
) -> None:
    """A member that there is gets partitions that there are, of topics that it subscribes."""
    if member not in subscriptions:
        raise AssignmentError(f"partitions are given to {member!r}, who is no member of the group")
    for partition in assignment[member]:
        if not 0 <= partition.partition < topics.partitions.get(partition.topic, 0):
            raise AssignmentError(f"{member} is given {_describe([partition])}, which does not exist")
        if partition.topic not in subscriptions[member].topics:
            raise AssignmentError(
                f"{member} is given {_describe([partition])}, but does not subscribe {partition.topic}"
            )


def check_cooperative(validated: Validated, assignment: Mapping[str, Collection[TopicPartition]]) -> None:
    """Nothing is given to a new owner in the round in which another one still claims it (KIP-429).

    Raises:
        AssignmentError: it names partitions, their new owner and who claims them.
    """
    moving = validated.moving(assignment)
    if moving:
        partition = min(moving)
        claimants = " and ".join(sorted(validated.claimants[partition] - {moving[partition]}))
        more = f"; {len(moving)} such partitions: {_describe(sorted(moving))}" if len(moving) > 1 else ""
        raise AssignmentError(
            f"{_describe([partition])} is given to {moving[partition]} while {claimants} still claims it: a "
            f"cooperative assignor leaves out what moves, and gives it away in the next rebalance{more}"
        )


def _describe(partitions: Collection[TopicPartition]) -> str:
    """The first few, as `TOPIC-NUMBER`."""
    named = ", ".join(f"{partition.topic}-{partition.partition}" for partition in list(partitions)[:_MOST_NAMED])
    return named + (f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else "")
