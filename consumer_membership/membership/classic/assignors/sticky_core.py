"""What `sticky` and `cooperative-sticky` share: balance first, then racks, then everybody keeps what it has (KIP-54).

Where all members subscribe to the same topics everyone gets its quota (`sticky_quotas`); otherwise partitions are moved
until no move makes it more even (`sticky_balance`). Both begin with the good claims only (`validation`), and of them
with those whose partition still exists and is still subscribed by its owner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from consumer_membership.membership.classic.assignor import MemberSubscription, Topics
from consumer_membership.membership.classic.assignors.order import in_order, java_key, partitions_of, subscribed_topics
from consumer_membership.membership.classic.assignors.racks import Racks
from consumer_membership.membership.classic.assignors.sticky_balance import balanced
from consumer_membership.membership.classic.assignors.sticky_quotas import by_quota
from consumer_membership.membership.classic.validation import Claim, Validated, validate_subscriptions
from consumer_membership.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Who gets what in the end, and the claims that it came from."""

    assignment: Mapping[str, tuple[TopicPartition, ...]]
    validated: Validated


def assign_sticky(
    topics: Topics,
    subscriptions: Mapping[str, MemberSubscription],
    claim_of: Callable[[MemberSubscription], Claim],
) -> Outcome:
    """The partitions of each member, the same for the same inputs in any order."""
    validated = validate_subscriptions(subscriptions, claim_of)
    partitions = {topic: partitions_of(topics, topic) for topic in subscribed_topics(topics, subscriptions)}
    everything = [partition for some in partitions.values() for partition in some]
    interests = {
        member: frozenset(partitions.keys() & subscriptions[member].topics)
        for member in sorted(subscriptions, key=java_key)
    }
    existing = set(everything)
    owned = {
        member: sorted(p for p in validated.owned[member] if p.topic in interest and p in existing)
        for member, interest in interests.items()
    }
    racks = Racks(topics, subscriptions, everything)
    if len(set(interests.values())) <= 1:
        result = by_quota(everything, owned, racks)
    else:
        result = balanced(partitions, interests, owned, racks)
    return Outcome(assignment=in_order(result), validated=validated)
