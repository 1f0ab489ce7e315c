"""Groups and members as values, with defaults for the fields that a test does not set."""

from __future__ import annotations

from collections.abc import Iterable

from consumer_membership.admin import GroupDescription, MemberDescription
from consumer_membership.types import GroupProtocol, TopicPartition


def partitions(*numbers: int, topic: str = "t") -> frozenset[TopicPartition]:
    """Return partitions of one topic."""
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(
    member_id: str,
    instance_id: str | None = None,
    *,
    epoch: int | None = 5,
    assigned: Iterable[TopicPartition] = (),
    target: Iterable[TopicPartition] | None = None,
    protocol: GroupProtocol = GroupProtocol.CONSUMER,
    note: str = "",
) -> MemberDescription:
    """Return a member; its target defaults to its assignment."""
    is_classic = protocol is GroupProtocol.CLASSIC
    return MemberDescription(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=None,
        client_id="c",
        host="10.0.0.1",
        epoch=None if is_classic else epoch,
        protocol=protocol,
        topics=frozenset({"t"}),
        pattern=None,
        assignment=frozenset(assigned),
        target=None if is_classic else frozenset(assigned if target is None else target),
        note=note,
    )


def group(*members: MemberDescription, protocol: GroupProtocol = GroupProtocol.CONSUMER) -> GroupDescription:
    """Return a group with these members."""
    is_classic = protocol is GroupProtocol.CLASSIC
    return GroupDescription(
        group_id="g",
        protocol=protocol,
        protocol_type="consumer",
        state="Stable",
        epoch=None if is_classic else 6,
        assignment_epoch=None if is_classic else 6,
        assignor="uniform",
        members=members,
    )
