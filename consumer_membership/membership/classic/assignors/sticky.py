"""`sticky`: balanced, and everybody keeps what it had, under the eager protocol (KIP-54), as Java's StickyAssignor.

Members own nothing when they join, so each tells in its user data what it was assigned last, and in which generation:

    previous_assignment => [topic => STRING, partitions => [INT32]], generation => INT32 (not in the first version)
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping

from consumer_membership.membership.classic.assignor import NO_GENERATION, MemberSubscription, RebalanceProtocol, Topics
from consumer_membership.membership.classic.assignors.order import java_key
from consumer_membership.membership.classic.assignors.sticky_core import assign_sticky
from consumer_membership.membership.classic.validation import Claim
from consumer_membership.types import TopicPartition

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


class StickyAssignor:
    """Balanced, and everybody keeps what it had as far as that goes."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str], owned: frozenset[TopicPartition], generation: int) -> bytes | None:
        """What the member was assigned last, and in which generation; None where it never was assigned anything."""
        del topics
        if not owned and generation == NO_GENERATION:
            return None
        return encode(owned, generation)

    def claim(self, subscription: MemberSubscription) -> Claim:
        """What the member says in its user data; what the protocol's own fields say was given up before it joined."""
        return decode(subscription.user_data)

    def assign(
        self, topics: Topics, subscriptions: Mapping[str, MemberSubscription]
    ) -> Mapping[str, tuple[TopicPartition, ...]]:
        """The partitions of each member."""
        return assign_sticky(topics, subscriptions, self.claim).assignment


def encode(owned: frozenset[TopicPartition], generation: int) -> bytes:
    """User data in its second version, which Java reads since 2.3."""
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
    """What user data of either version says; nothing where there is none or it cannot be read."""
    nothing = Claim(owned=frozenset(), generation=NO_GENERATION)
    if not data:
        return nothing
    try:
        owned, end = _read_owned(data)
    except (struct.error, UnicodeDecodeError, _MalformedError):
        return nothing
    # The first version ends here.
    generation = _INT.unpack_from(data, end)[0] if len(data) >= end + _INT.size else NO_GENERATION
    return Claim(owned=owned, generation=generation)


class _MalformedError(Exception):
    """Bytes that cannot be a previous assignment."""


def _read_owned(data: bytes) -> tuple[frozenset[TopicPartition], int]:
    """The partitions, and where they end."""
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
    """A length that the rest of the bytes can hold, and where what it counts begins."""
    (length,) = form.unpack_from(data, at)
    if not 0 <= length <= len(data) - at:
        raise _MalformedError
    return length, at + form.size
