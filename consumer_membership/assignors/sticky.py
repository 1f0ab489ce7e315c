"""`sticky` and `cooperative-sticky`: balance, then racks, then each member keeps its partitions (KIP-54), as in Java.

If all members subscribe to the same topics, each member receives its quota (`sticky_quotas`); otherwise partitions are
moved until no move improves the balance (`sticky_balance`). Both use only the valid claims (`validation`), and of these
claims only the partitions that still exist and to whose topics the owner still subscribes.

Under the eager protocol members own nothing when they join, so each sends its last assignment and its generation in its
user data:

    previous_assignment => [topic => STRING, partitions => [INT32]], generation => INT32 (not in the first version)

Under the cooperative protocol members continue with the partitions that they keep. A partition that moves between two
members is left out in this round (KIP-429): its owner revokes it and joins again, and then the new owner receives it.
Ownership comes from the protocol's own fields, and so does the generation (KIP-792); earlier clients sent it as an
INT32 in the user data, which is also written here for older leaders.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Mapping

from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.assignors.order import in_order, java_key, partitions_of, subscribed_topics
from consumer_membership.assignors.racks import Racks
from consumer_membership.assignors.sticky_balance import balanced
from consumer_membership.assignors.sticky_quotas import by_quota
from consumer_membership.assignors.validation import Claim, Validated, validate_subscriptions, withhold
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyOutcome:
    """The final assignment, and the claims from which it was computed."""

    assignment: Mapping[str, tuple[TopicPartition, ...]]
    validated: Validated


def assign_sticky(
    topics: Topics,
    subscriptions: Mapping[str, MemberSubscription],
    claim_of: Callable[[MemberSubscription], Claim],
) -> StickyOutcome:
    """Return the partitions of each member, equal for equal inputs in any order."""
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
    return StickyOutcome(assignment=in_order(result), validated=validated)


class StickyAssignor:
    """Balanced; each member keeps its partitions as far as the balance allows."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the member's last assignment and its generation, or None if it never had one."""
        del topics
        if not owned and generation == NO_GENERATION:
            return None
        return encode(owned, generation)

    def claim(self, subscription: MemberSubscription) -> Claim:
        """Return the claim in the user data; partitions in the protocol's fields were revoked before the join."""
        return decode(subscription.user_data)

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, tuple[TopicPartition, ...]]:
        """Return the partitions of each member."""
        return assign_sticky(topics, subscriptions, self.claim).assignment


class CooperativeStickyAssignor:
    """Balanced after at most two rounds; no member revokes a partition that it keeps.

    It also supports the eager protocol, so that a group can move from an eager assignor in two rolling restarts.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """Return the generation, as Java sends it to leaders before KIP-792."""
        del topics, owned
        return _INT.pack(generation)

    def claim(self, subscription: MemberSubscription) -> Claim:
        """Return the owned partitions; the generation comes from the user data if the protocol's field is empty."""
        generation = subscription.generation
        if generation < 0:
            data = subscription.user_data or b""
            generation = _INT.unpack_from(data)[0] if len(data) >= _INT.size else NO_GENERATION
        return Claim(owned=subscription.owned, generation=generation)

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, tuple[TopicPartition, ...]]:
        """Return the partitions of each member in this round."""
        outcome = assign_sticky(topics, subscriptions, self.claim)
        return withhold(outcome.validated, outcome.assignment)


def encode(owned: frozenset[TopicPartition], generation: int) -> bytes:
    """Return user data in its second version, which Java reads since 2.3."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for partition in sorted(owned):
        numbers[partition.topic].append(partition.partition)
    parts = [_INT.pack(len(numbers))]
    for topic in sorted(numbers, key=java_key):
        name = topic.encode()
        parts += [
            _SHORT.pack(len(name)),
            name,
            struct.pack(f">i{len(numbers[topic])}i", len(numbers[topic]), *numbers[topic]),
        ]
    return b"".join([*parts, _INT.pack(generation)])


def decode(data: bytes | None) -> Claim:
    """Return the claim in user data of either version; empty if there is none or it cannot be read."""
    nothing = Claim(owned=frozenset(), generation=NO_GENERATION)
    if not data:
        return nothing
    try:
        owned, end = _read_owned(data)
    except (struct.error, UnicodeDecodeError, _MalformedError):
        return nothing
    # the first version ends here
    generation = _INT.unpack_from(data, end)[0] if len(data) >= end + _INT.size else NO_GENERATION
    return Claim(owned=owned, generation=generation)


class _MalformedError(Exception):
    """The bytes are not a previous assignment."""


def _read_owned(data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """Return the partitions and the offset of their end."""
    owned: list[TopicPartition] = []
    topics, at = _read_length(data, 0, _INT)
    for _ in range(topics):
        length, at = _read_length(data, at, _SHORT)
        topic = data[at : at + length].decode()
        count, at = _read_length(data, at + length, _INT)
        owned += (TopicPartition(topic, number) for number in struct.unpack_from(f">{count}i", data, at))
        at += count * _INT.size
    return frozenset(owned), at


def _read_length(data: bytes, at: int, form: struct.Struct) -> tuple[int, int]:
    """Return a length that the remaining bytes can hold, and the offset of its first element."""
    (length,) = form.unpack_from(data, at)
    if not 0 <= length <= len(data) - at:
        raise _MalformedError
    return length, at + form.size
