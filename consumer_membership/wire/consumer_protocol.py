# ruff: noqa: PLC0415
"""What the members of a classic group tell each other: opaque to the broker, readable for clients that consume.

Both blobs begin with a version, and each version (0 to 3) only appends to the one before, so that a newer one than is
known reads as the newest known. The functions that begin with `decode` are a member's, and raise for a blob that holds
something else; `assignment` and `subscription` are for people, and turn that into a note beside an empty result.
They were written by strangers' clients, and none of them may cost the group more than the one member that wrote it.
kio's schemas, which know neither the version in front nor what is behind, are imported where they are used, as in
`requests`.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, cast

from kio.serial import entity_writer
from kio.static.primitive import i32
from kio.static.protocol import Entity

from consumer_membership.membership.classic.subscription import NO_GENERATION, MemberSubscription
from consumer_membership.types import TopicPartition
from consumer_membership.wire.reader import MalformedError, read_entity

if TYPE_CHECKING:
    from kio.schema.consumer_protocol_subscription.v3 import ConsumerProtocolSubscription as SubscriptionV3

#: The newest version of both blobs (Apache Kafka 3.5, KIP-881).
NEWEST_VERSION = 3

_VERSION_BYTES = 2

#: The versions from which a subscription has what is owned (KIP-429), its generation (KIP-792), the rack (KIP-881).
_WITH_OWNED, _WITH_GENERATION, _WITH_RACK = 1, 2, 3

EntityT = TypeVar("EntityT", bound=Entity)
FieldT = TypeVar("FieldT")


class _TopicPartitions(Protocol):
    """The partitions of one topic, in kio's classes for both blobs."""

    @property
    def topic(self) -> str: ...

    @property
    def partitions(self) -> tuple[int, ...]: ...


class ReadAssignment(NamedTuple):
    """What a member was assigned; `note` says what was wrong with a blob that could not be read."""

    partitions: frozenset[TopicPartition]
    note: str = ""


class ReadSubscription(NamedTuple):
    """The topics that a member asked for; `note` says what was wrong with a blob that could not be read."""

    topics: frozenset[str]
    note: str = ""


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
    from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription, TopicPartition
    from kio.schema.types import TopicName

    chosen = min(subscription.version if version is None else version, NEWEST_VERSION)
    entity = ConsumerProtocolSubscription(
        topics=tuple(sorted(subscription.topics)),
        user_data=subscription.user_data,
        owned_partitions=tuple(
            TopicPartition(topic=TopicName(topic), partitions=numbers)
            for topic, numbers in _by_topic(subscription.owned).items()
        ),
        generation_id=i32(subscription.generation),
        rack_id=subscription.rack_id,
    )
    # As in `frames.Call`: the writer goes by the fields of its layout, and an older one leaves out the newer fields.
    return _written(_subscription_layout(chosen), entity, chosen)


def decode_subscription(blob: bytes, instance_id: str | None = None) -> MemberSubscription:
    """The subscription in these bytes; `instance_id` comes beside them, in the JoinGroup answer.

    Fields that its version does not have, or that are missing whole at its end, have their defaults: there are clients
    that write version 0 and call it 1 (Sarama's reader allows for them too). What stands behind the known fields is
    not read.

    Raises:
        MalformedError: the bytes hold no subscription.
    """
    version = _version(blob)
    layout, entity = _read_subscription(blob, min(version, NEWEST_VERSION))
    return MemberSubscription(
        topics=frozenset(entity.topics),
        user_data=entity.user_data,
        owned=_partitions(entity.owned_partitions) if layout >= _WITH_OWNED else frozenset(),
        generation=max(entity.generation_id, NO_GENERATION) if layout >= _WITH_GENERATION else NO_GENERATION,
        rack_id=entity.rack_id if layout >= _WITH_RACK else None,
        instance_id=instance_id,
        version=version,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None, version: int = NEWEST_VERSION
) -> bytes:
    """The assignment as Java's client writes it, sorted and by topic; all versions differ in their number only."""
    from kio.schema.consumer_protocol_assignment.v0.data import ConsumerProtocolAssignment, TopicPartition
    from kio.schema.types import TopicName

    entity = ConsumerProtocolAssignment(
        assigned_partitions=tuple(
            TopicPartition(topic=TopicName(topic), partitions=numbers)
            for topic, numbers in _by_topic(partitions).items()
        ),
        user_data=user_data,
    )
    return _written(ConsumerProtocolAssignment, entity, min(version, NEWEST_VERSION))


def decode_assignment(blob: bytes) -> MemberAssignment:
    """What the leader gave this member; no bytes at all are an empty assignment with a note.

    They come from a leader that left this member out, which Java's client takes for a bug of the leader's.

    Raises:
        MalformedError: the bytes hold no assignment.
    """
    if not blob:
        return MemberAssignment(note="the group's leader left this member out of its assignment")
    from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment

    _version(blob)
    entity, _ = read_entity(ConsumerProtocolAssignment, blob, _VERSION_BYTES)
    return MemberAssignment(partitions=_partitions(entity.assigned_partitions), user_data=entity.user_data)


def _written(layout: type[EntityT], entity: EntityT, version: int) -> bytes:
    buffer = io.BytesIO()
    buffer.write(version.to_bytes(_VERSION_BYTES, "big"))
    entity_writer(layout)(buffer, entity)
    return buffer.getvalue()


def _version(blob: bytes) -> int:
    if len(blob) < _VERSION_BYTES:
        raise MalformedError(f"{len(blob)} bytes, which hold no version")
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise MalformedError(f"the version is {version}")
    return version


def _subscription_layout(version: int) -> type[SubscriptionV3]:
    """The schema of this version; those of older ones lack the newer fields, and are told by their number."""
    schema = import_module(f"kio.schema.consumer_protocol_subscription.v{version}")
    return cast("type[SubscriptionV3]", schema.ConsumerProtocolSubscription)


def _read_subscription(blob: bytes, layout: int) -> tuple[int, SubscriptionV3]:
    """The entity, and in which layout it stands."""
    try:
        return layout, read_entity(_subscription_layout(layout), blob, _VERSION_BYTES)[0]
    except MalformedError:
        for older in reversed(range(layout)):
            entity = _whole(blob, older)
            if entity is not None:
                return older, entity
        raise


def _whole(blob: bytes, layout: int) -> SubscriptionV3 | None:
    """The entity, where the bytes end with the last field of this layout."""
    try:
        entity, end = read_entity(_subscription_layout(layout), blob, _VERSION_BYTES)
    except MalformedError:
        return None
    return entity if end == len(blob) else None


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, tuple[i32, ...]]:
    gathered: dict[str, list[i32]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        gathered[topic].append(i32(partition))
    return {topic: tuple(numbers) for topic, numbers in gathered.items()}


def _partitions(topics: Iterable[_TopicPartitions]) -> frozenset[TopicPartition]:
    found = frozenset(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
    negative = next((partition for partition in found if partition.partition < 0), None)
    if negative is not None:
        raise MalformedError(f"{negative.topic} [{negative.partition}] is no partition")
    return found


# ---- for people -----------------------------------------------------------------------------------------------------


def assignment(blob: bytes) -> ReadAssignment:
    """The partitions in a ConsumerProtocolAssignment; an empty blob is a member that was assigned nothing yet."""
    return ReadAssignment(*_tolerantly("assignment", blob, lambda: decode_assignment(blob).partitions))


def subscription(blob: bytes) -> ReadSubscription:
    """The topics in a ConsumerProtocolSubscription; an empty blob is a member that has not said any."""

    def read() -> frozenset[str]:
        entity, _ = read_entity(_subscription_layout(0), blob, _VERSION_BYTES)
        return frozenset(entity.topics)

    return ReadSubscription(*_tolerantly("subscription", blob, read))


def _tolerantly(what: str, blob: bytes, read: Callable[[], frozenset[FieldT]]) -> tuple[frozenset[FieldT], str]:
    if not blob:
        return frozenset(), ""
    if blob[0] & 0x80:
        return frozenset(), f"the member's {what} has a negative version: it is not a consumer's"
    try:
        return read(), ""
    except MalformedError as error:
        return frozenset(), f"the member's {what} cannot be read ({error}): it is not a consumer's, or it is broken"
