# ruff: noqa: PLC0415
"""What the members of a classic group told each other: opaque to the broker, readable for clients that consume.

Both blobs begin with a version, and each version (0 to 3) only appends to the one before, so that version 0's layout
reads the topics of all of them. They were written by strangers' clients: one that cannot be read is no error of the
group, it is a note beside an empty result. kio's schemas are imported where they are used, as in `requests`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from consumer_membership.types import TopicPartition
from consumer_membership.wire.reader import MalformedError, read_entity

_VERSION_BYTES = 2

FieldT = TypeVar("FieldT")


class ReadAssignment(NamedTuple):
    """What a member was assigned; `note` says what was wrong with a blob that could not be read."""

    partitions: frozenset[TopicPartition]
    note: str = ""


class ReadSubscription(NamedTuple):
    """The topics that a member asked for; `note` says what was wrong with a blob that could not be read."""

    topics: frozenset[str]
    note: str = ""


def assignment(blob: bytes) -> ReadAssignment:
    """The partitions in a ConsumerProtocolAssignment; an empty blob is a member that was assigned nothing yet."""

    def read() -> frozenset[TopicPartition]:
        from kio.schema.consumer_protocol_assignment.v0 import ConsumerProtocolAssignment

        entity, _ = read_entity(ConsumerProtocolAssignment, blob, _VERSION_BYTES)
        return frozenset(
            TopicPartition(topic.topic, partition)
            for topic in entity.assigned_partitions
            for partition in topic.partitions
        )

    return ReadAssignment(*_tolerantly("assignment", blob, read))


def subscription(blob: bytes) -> ReadSubscription:
    """The topics in a ConsumerProtocolSubscription; an empty blob is a member that has not said any."""

    def read() -> frozenset[str]:
        from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription

        entity, _ = read_entity(ConsumerProtocolSubscription, blob, _VERSION_BYTES)
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
