"""Check the claims of members and the result of an assignor before they take effect (KIP-792, KIP-429).

A member that missed a rebalance still claims its earlier partitions; its claim carries their generation.

- If several members claim a partition, the claim of the highest generation is valid; lower ones are dropped.
- If several claims have the highest generation, no claim is valid and the partition has no owner.
- A claim without contradiction is valid in any generation: a later owner would claim the partition.
- `NO_GENERATION` is lower than every generation.

An invalid claim does not allow its member to fetch, but it does not prove that the member has stopped either: under the
cooperative protocol, a partition that a member still claims is given to no other member except its valid owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.errors import AssignmentError
from consumer_membership.light_dataclasses import dataclass, replace
from consumer_membership.types import TopicPartition

#: The number of partitions that an error names.
_MOST_NAMED = 5
_NOTHING: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The partitions that a member claims to own, and their generation."""

    owned: frozenset[TopicPartition]
    generation: int


def protocol_claim(subscription: MemberSubscription) -> Claim:
    """Return the claim in the protocol's own fields; assignors that send it in user data read it from there."""
    return Claim(owned=subscription.owned, generation=subscription.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Several members claim one partition; `owner` has the valid claim, None: no claim is valid."""

    partition: TopicPartition
    generations: Mapping[str, int]
    owner: str | None

    def __str__(self) -> str:
        """Return a log message close to the Java client's."""
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
    """The owners: `owned` has the valid claims of each member, `claimants` all members that claim a partition."""

    owned: Mapping[str, frozenset[TopicPartition]]
    claimants: Mapping[TopicPartition, frozenset[str]]
    conflicts: tuple[Conflict, ...] = ()

    @property
    def contested(self) -> frozenset[TopicPartition]:
        """Return the partitions that several members claim with equal right; they are free after the revocation."""
        return frozenset(conflict.partition for conflict in self.conflicts if conflict.owner is None)

    def applied_to(self, subscriptions: Mapping[str, MemberSubscription]) -> dict[str, MemberSubscription]:
        """Return the subscriptions with valid claims only, for an assignor that trusts its input."""
        return {m: replace(subscription, owned=self.owned[m]) for m, subscription in subscriptions.items()}

    def moving(self, assignment: Mapping[str, Collection[TopicPartition]]) -> dict[TopicPartition, str]:
        """Return the partitions that move to a new owner while another member still claims them, with the new owner."""
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
    """Return the owners by the members' claims, and the contradictions (KIP-792)."""
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
    """Return a result without moving partitions: the new owner receives them one rebalance later (KIP-429).

    `only` restricts it to some partitions: a custom assignor knows which ones it moves, but not which ones are
    contested.
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
    """Check that each partition of a subscribed topic is given once, to a subscriber, and that nothing else is given.

    `may_wait` may be missing: partitions that are still claimed, under the cooperative protocol. A member may be left
    out.

    Raises:
        AssignmentError: the check failed; the message names the partition and the member.
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
        raise AssignmentError(f"no member is given {_describe(forgotten)}, although members subscribe to it")


def _check_member(
    topics: Topics,
    subscriptions: Mapping[str, MemberSubscription],
    assignment: Mapping[str, Collection[TopicPartition]],
    member: str,
) -> None:
    """Check that an existing member receives existing partitions of topics that it subscribes to."""
    if member not in subscriptions:
        raise AssignmentError(f"partitions are given to {member!r}, which is not a member of the group")
    for partition in assignment[member]:
        if not 0 <= partition.partition < topics.partitions.get(partition.topic, 0):
            raise AssignmentError(f"{member} is given {_describe([partition])}, which does not exist")
        if partition.topic not in subscriptions[member].topics:
            raise AssignmentError(
                f"{member} is given {_describe([partition])}, but does not subscribe to {partition.topic}"
            )


def check_cooperative(validated: Validated, assignment: Mapping[str, Collection[TopicPartition]]) -> None:
    """Check that no partition is given to a new owner in the round in which another member still claims it (KIP-429).

    Raises:
        AssignmentError: the check failed; the message names the partitions, their new owner and the claimants.
    """
    moving = validated.moving(assignment)
    if moving:
        partition = min(moving)
        claimants = " and ".join(sorted(validated.claimants[partition] - {moving[partition]}))
        more = f"; {len(moving)} such partitions: {_describe(sorted(moving))}" if len(moving) > 1 else ""
        raise AssignmentError(
            f"{_describe([partition])} is given to {moving[partition]} while {claimants} still claims it: a "
            f"cooperative assignor leaves out partitions that move, and assigns them in the next rebalance{more}"
        )


def _describe(partitions: Collection[TopicPartition]) -> str:
    """Return the first few as `TOPIC-NUMBER`."""
    named = ", ".join(f"{partition.topic}-{partition.partition}" for partition in list(partitions)[:_MOST_NAMED])
    return named + (f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else "")
