"""The data that members of a classic group exchange: opaque to the broker, defined by the clients that consume.

Both structures begin with a version, and each version (0 to 3) only appends fields to the previous one, so that a newer
version can be read as the newest known one. The functions that begin with `decode` serve a member and raise for invalid
data; `assignment` and `subscription` serve people and return a note and an empty result instead. Other clients write
the data, and invalid data must cost the group no more than the member that wrote it.
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

#: The newest version of both structures (Apache Kafka 3.5, KIP-881).
NEWEST_VERSION = 3

_VERSION_BYTES = 2

#: The versions from which a subscription has owned partitions (KIP-429), their generation (KIP-792), the rack
#: (KIP-881).
_WITH_OWNED, _WITH_GENERATION, _WITH_RACK = 1, 2, 3

FieldT = TypeVar("FieldT")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAssignment:
    """A leader's assignment for one member (ConsumerProtocolAssignment v0-v3, which have the same layout).

    `note` has a remark about it, else it is "".
    """

    partitions: frozenset[TopicPartition] = field(default_factory=frozenset)
    user_data: bytes | None = None
    note: str = ""


# ---- for members ----------------------------------------------------------------------------------------------------


def encode_subscription(subscription: MemberSubscription, version: int | None = None) -> bytes:
    """Return the subscription as Java's client writes it: topics sorted, owned partitions sorted and by topic.

    It is written in `version`, or in the subscription's own version; fields that the version does not have are left
    out. An unknown newer version is written as the newest.
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
    """Return the subscription in these bytes; `instance_id` comes from the JoinGroup response.

    Fields that its version does not have, or that are completely missing at its end, have their defaults: some clients
    write version 0 and call it 1 (Sarama's reader also accepts this). Bytes after the known fields are ignored.

    Raises:
        MalformedError: the bytes are not a subscription.
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
    """Return the assignment as Java's client writes it, sorted and by topic; versions differ only in their number."""
    values = {"assigned_partitions": _by_topic(partitions), "user_data": user_data}
    return min(version, NEWEST_VERSION).to_bytes(_VERSION_BYTES, "big") + write_data(ASSIGNMENT, 0, values)


def decode_assignment(blob: bytes) -> MemberAssignment:
    """Return the leader's assignment for this member; no bytes are an empty assignment with a note.

    They come from a leader that omitted this member, which Java's client considers a bug of the leader.

    Raises:
        MalformedError: the bytes are not an assignment.
    """
    if not blob:
        return MemberAssignment(note="the group's leader omitted this member from its assignment")
    _version(blob)
    message, _ = read_data(ASSIGNMENT, 0, blob, _VERSION_BYTES)
    return MemberAssignment(partitions=_partitions(message.assigned_partitions), user_data=message.user_data)


def _version(blob: bytes) -> int:
    if len(blob) < _VERSION_BYTES:
        raise MalformedError(f"{len(blob)} bytes, which have no version")
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise MalformedError(f"the version is {version}")
    return version


def _read_subscription(blob: bytes, layout: int) -> tuple[int, Message]:
    """Return the layout of the subscription, and the subscription."""
    try:
        return layout, read_data(SUBSCRIPTION, layout, blob, _VERSION_BYTES)[0]
    except MalformedError:
        for older in reversed(range(layout)):
            message = _whole(blob, older)
            if message is not None:
                return older, message
        raise


def _whole(blob: bytes, layout: int) -> Message | None:
    """Return the subscription if the bytes end with the last field of this layout."""
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
        raise MalformedError(f"{negative.topic} [{negative.partition}] is not a partition")
    return found


# ---- for people -----------------------------------------------------------------------------------------------------


def assignment(blob: bytes) -> tuple[frozenset[TopicPartition], str]:
    """Return the partitions of a ConsumerProtocolAssignment (no bytes: none yet), and the decoding error or ""."""
    return _tolerantly("assignment", blob, lambda: decode_assignment(blob).partitions)


def subscription(blob: bytes) -> tuple[frozenset[str], str]:
    """Return the topics of a ConsumerProtocolSubscription (no bytes: none yet), and the decoding error or ""."""

    def read() -> frozenset[str]:
        message, _ = read_data(SUBSCRIPTION, 0, blob, _VERSION_BYTES)
        return frozenset(message.topics)

    return _tolerantly("subscription", blob, read)


def _tolerantly(what: str, blob: bytes, read: Callable[[], frozenset[FieldT]]) -> tuple[frozenset[FieldT], str]:
    if not blob:
        return frozenset(), ""
    if blob[0] & 0x80:
        return frozenset(), f"the member's {what} has a negative version; the member is not a consumer"
    try:
        return read(), ""
    except MalformedError as error:
        return (
            frozenset(),
            f"the member's {what} cannot be decoded ({error}); the member is not a consumer, or its client is faulty",
        )
