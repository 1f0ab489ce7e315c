"""The order of members, topics and partitions in assignors: Java's order, so that all leaders agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from consumer_membership.assignors.assignor import MemberSubscription, Topics
from consumer_membership.types import TopicPartition


def java_key(word: str) -> bytes:
    """Return a sort key by UTF-16 code units, as Java's `String.compareTo` compares."""
    return word.encode("utf-16-be", "surrogatepass")


def by_instance(subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Return static members by instance id, then dynamic ones by member id (KIP-345; Java's `MemberInfo.compareTo`).

    A static member thus keeps its position although each restart gives it another member id.
    """

    def key(member: str) -> tuple[bool, bytes, bytes]:
        instance = subscriptions[member].instance_id
        return instance is None, java_key(instance or ""), java_key(member)

    return sorted(subscriptions, key=key)


def subscribed_topics(topics: Topics, subscriptions: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the subscribed topics with partitions, in order."""
    wanted: set[str] = set().union(*(subscription.topics for subscription in subscriptions.values()))
    return sorted((topic for topic in wanted if topics.partitions.get(topic, 0) > 0), key=java_key)


def partitions_of(topics: Topics, topic: str) -> list[TopicPartition]:
    """Return all partitions of a topic in order."""
    return [TopicPartition(topic, number) for number in range(topics.partitions[topic])]


def in_order(assignment: Mapping[str, Iterable[TopicPartition]]) -> dict[str, tuple[TopicPartition, ...]]:
    """Return the assignment with each member's partitions in order."""
    return {member: tuple(sorted(partitions)) for member, partitions in assignment.items()}
