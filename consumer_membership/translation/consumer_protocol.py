"""What the members of a classic group tell each other: opaque to the broker, readable for clients that consume.

Both blobs begin with a version, and each version (0 to 3) only appends to the one before, so that a newer one than is
known reads as the newest known. The functions that begin with `decode` are a member's, and raise for a blob that holds
something else; `assignment` and `subscription` are for people, and turn that into a note beside an empty result.
They were written by strangers' clients, and none of them may cost the group more than the one member that wrote it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import TypeVar

from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import TopicPartition
from consumer_membership.wire.codec import Fields, MalformedError, Message, read_data, write_data
from consumer_membership.wire.messages import ASSIGNMENT, SUBSCRIPTION

#: The newest version of both blobs (Apache Kafka 3.5, KIP-881).
NEWEST_VERSION = 3

_VERSION_BYTES = 2

#: The versions from which a subscription has what is owned (KIP-429), its generation (KIP-792), the rack (KIP-881).
_WITH_OWNED, _WITH_GENERATION, _WITH_RACK = 1, 2, 3

FieldT = TypeVar("FieldT")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """What a leader gave one member (ConsumerProtocolAssignment v0-v3, whose layouts are one).

    `note` says what is remarkable about it, else it is "".
    """

    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
    user_data: bytes | None = None
    note: str = ""


# ---- a member's -----------------------------------------------------------------------------------------------------


def encode_subscription(subscription: MemberSubscription, version: int | None = None) -> bytes:
    """The subscription as Java's client writes it: topics sorted, what is owned sorted and by topic.

    In this version, without one in the subscription's own; fields that the version does not have are left out. A
    version that is not known yet is written as the newest.
    """
    chosen = min(subscription.version if version is None else version, NEWEST_VERSION)
    values = {
        "topics": tuple(sorted(subscription.topics)),
        "user_data": subscription.user_data,
        "owned_partitions": _by_topic(subscription.owned),
        "generation_id": subscription.generation,
        "rack_id": subscription.rack_id,
    }
    return chosen.to_bytes(_VERSION_BYTES, "big") + write_data(SUBSCRIPTION, chosen, values)


def decode_subscription(blob: bytes, instance_id: str | None = None) -> MemberSubscription:
    """The subscription in these bytes; `instance_id` comes beside them, in the JoinGroup answer.

    Fields that its version does not have, or that are missing whole at its end, have their defaults: there are clients
    that write version 0 and call it 1 (Sarama's reader allows for them too). What stands behind the known fields is
    not read.

    Raises:
        MalformedError: the bytes hold no subscription.
    """
    version = _version(blob)
    layout, message = _read_subscription(blob, min(version, NEWEST_VERSION))
    return MemberSubscription(
        topics=frozenset(message.topics),
        user_data=message.user_data,
        owned=_partitions(message.owned_partitions) if layout >= _WITH_OWNED else frozenset(),
        generation=max(message.generation_id, NO_GENERATION) if layout >= _WITH_GENERATION else NO_GENERATION,
        rack_id=message.rack_id if layout >= _WITH_RACK else None,
        instance_id=instance_id,
        version=version,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None, version: int = NEWEST_VERSION
) -> bytes:
    """The assignment as Java's client writes it, sorted and by topic; all versions differ in their number only."""
    values = {"assigned_partitions": _by_topic(partitions), "user_data": user_data}
    return min(version, NEWEST_VERSION).to_bytes(_VERSION_BYTES, "big") + write_data(ASSIGNMENT, 0, values)


def decode_assignment(blob: bytes) -> MemberAssignment:
    """What the leader gave this member; no bytes at all are an empty assignment with a note.

    They come from a leader that left this member out, which Java's client takes for a bug of the leader's.

    Raises:
        MalformedError: the bytes hold no assignment.
    """
    if not blob:
        return MemberAssignment(note="the group's leader left this member out of its assignment")
    _version(blob)
    message, _ = read_data(ASSIGNMENT, 0, blob, _VERSION_BYTES)
    return MemberAssignment(partitions=_partitions(message.assigned_partitions), user_data=message.user_data)


def _version(blob: bytes) -> int:
    if len(blob) < _VERSION_BYTES:
        raise MalformedError(f"{len(blob)} bytes, which hold no version")
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise MalformedError(f"the version is {version}")
    return version


def _read_subscription(blob: bytes, layout: int) -> tuple[int, Message]:
    """The subscription, and in which layout it stands."""
    try:
        return layout, read_data(SUBSCRIPTION, layout, blob, _VERSION_BYTES)[0]
    except MalformedError:
        for older in reversed(range(layout)):
            message = _whole(blob, older)
            if message is not None:
                return older, message
        raise


def _whole(blob: bytes, layout: int) -> Message | None:
    """The subscription, where the bytes end with the last field of this layout."""
    try:
        message, end = read_data(SUBSCRIPTION, layout, blob, _VERSION_BYTES)
    except MalformedError:
        return None
    return message if end == len(blob) else None


def _by_topic(partitions: Iterable[TopicPartition]) -> list[Fields]:
    gathered: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        gathered[topic].append(partition)
    return [{"topic": topic, "partitions": tuple(numbers)} for topic, numbers in gathered.items()]


def _partitions(topics: Iterable[Message]) -> frozenset[TopicPartition]:
    found = frozenset(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
    negative = next((partition for partition in found if partition.partition < 0), None)
    if negative is not None:
        raise MalformedError(f"{negative.topic} [{negative.partition}] is no partition")
    return found


# ---- for people -----------------------------------------------------------------------------------------------------


def assignment(blob: bytes) -> tuple[frozenset[TopicPartition], str]:
    """The partitions in a ConsumerProtocolAssignment (no bytes: none yet), and what is wrong with the bytes."""
    return _tolerantly("assignment", blob, lambda: decode_assignment(blob).partitions)


def subscription(blob: bytes) -> tuple[frozenset[str], str]:
    """The topics in a ConsumerProtocolSubscription (no bytes: none said yet), and what is wrong with the bytes."""

    def read() -> frozenset[str]:
        message, _ = read_data(SUBSCRIPTION, 0, blob, _VERSION_BYTES)
        return frozenset(message.topics)

    return _tolerantly("subscription", blob, read)


def _tolerantly(what: str, blob: bytes, read: Callable[[], frozenset[FieldT]]) -> tuple[frozenset[FieldT], str]:
    if not blob:
        return frozenset(), ""
    if blob[0] & 0x80:
        return frozenset(), f"the member's {what} has a negative version: it is not a consumer's"
    try:
        return read(), ""
    except MalformedError as error:
        return frozenset(), f"the member's {what} cannot be read ({error}): it is not a consumer's, or it is broken"
