"""A coordinator's description of a group: the responses of both protocols as one type.

An entry that is missing in a response is an error of that group, never a group without members.
"""

from __future__ import annotations

from collections.abc import Iterable

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.translation import consumer_protocol
from consumer_membership.translation.answers import left_out, of_group
from consumer_membership.translation.verdicts import broker_error, group_error
from consumer_membership.types import LEAVE_STATIC_EPOCH, BrokerError, GroupProtocol, TopicPartition
from consumer_membership.wire.codec import Message
from consumer_membership.wire.error_codes import ErrorCode

#: The protocol type of a classic group of consumers; others, such as Connect workers, have another type.
CONSUMER_PROTOCOL_TYPE = "consumer"

_SUCCESS = ErrorCode.none.value
#: The state in which DescribeGroups before version 6 shows an unknown group.
_DEAD = "Dead"
#: ConsumerGroupDescribe v1: a classic member in a group that is being migrated.
_CLASSIC_MEMBER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member as its coordinator knows it.

    `epoch`, `target` and `rack_id` exist only in the consumer protocol: None in a classic group. `note` names data of
    the member that cannot be decoded, and is empty otherwise.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    #: -2: a static member that is temporarily away and keeps its place until its session ends.
    epoch: int | None
    #: The protocol of the member; a group that is being migrated has members of both.
    protocol: GroupProtocol
    topics: frozenset[str]
    pattern: str | None
    assignment: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None
    note: str = ""

    @property
    def is_away(self) -> bool:
        """Whether the member announced that it will return (a static member that closed)."""
        return self.epoch == LEAVE_STATIC_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group as its coordinator knows it, with its members by member id.

    The epochs exist only in the consumer protocol: None in a classic group. `assignor` is empty until one is chosen.
    `state` is the coordinator's text: Empty, Assigning, Reconciling, Stable; for a classic group Empty,
    PreparingRebalance, CompletingRebalance, Stable.
    """

    group_id: str
    protocol: GroupProtocol
    #: "consumer"; for a classic group, the type on which its members agreed, empty for a group with offsets only.
    protocol_type: str
    state: str
    epoch: int | None
    assignment_epoch: int | None
    assignor: str
    members: tuple[MemberDescription, ...]


def consumer_group_description(message: Message, group_id: str) -> GroupDescription | BrokerError:
    """Return the group of a ConsumerGroupDescribe response, or the error (a classic group: GROUP_ID_NOT_FOUND)."""
    found = of_group(message.groups, group_id)
    if found is None:
        return left_out(f"group {group_id}")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), found.error_message, group_id)
    return GroupDescription(
        group_id=group_id,
        protocol=GroupProtocol.CONSUMER,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state=found.group_state,
        epoch=found.group_epoch,
        assignment_epoch=found.assignment_epoch,
        assignor=found.assignor_name,
        members=_by_id(_consumer_member(member) for member in found.members),
    )


def _consumer_member(message: Message) -> MemberDescription:
    # Version 0 has no member type, so members of the classic protocol cannot be distinguished.
    is_classic = int(getattr(message, "member_type", -1)) == _CLASSIC_MEMBER
    return MemberDescription(
        member_id=message.member_id,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        client_id=message.client_id,
        host=host_of(message.client_host),
        epoch=message.member_epoch,
        protocol=GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER,
        topics=frozenset(message.subscribed_topic_names),
        pattern=message.subscribed_topic_regex or None,
        assignment=_partitions(message.assignment),
        target=_partitions(message.target_assignment),
    )


def _partitions(message: Message) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in message.topic_partitions
        for partition in topic.partitions
    )


def classic_group_description(message: Message, group_id: str) -> GroupDescription | BrokerError:
    """Return the group of a DescribeGroups response, or the error; a dead group is GROUP_ID_NOT_FOUND (version 5)."""
    found = of_group(message.groups, group_id)
    if found is None:
        return left_out(f"group {group_id}")
    if int(found.error_code) != _SUCCESS:
        return group_error(int(found.error_code), getattr(found, "error_message", None), group_id)
    if found.group_state == _DEAD:
        return broker_error(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
    return GroupDescription(
        group_id=group_id,
        protocol=GroupProtocol.CLASSIC,
        protocol_type=found.protocol_type,
        state=found.group_state,
        epoch=None,
        assignment_epoch=None,
        assignor=found.protocol_data,
        members=_by_id(_classic_member(member, found.protocol_type) for member in found.members),
    )


def classic_member(
    *,
    member_id: str,
    instance_id: str | None,
    client_id: str,
    client_host: str,
    protocol_type: str,
    assignment: bytes,
    subscription: bytes,
) -> MemberDescription:
    """Return a member of a classic group from the two structures that the coordinator does not decode."""
    has, note = frozenset[TopicPartition](), f"not a consumer: protocol type {protocol_type!r}"
    topics = frozenset[str]()
    if protocol_type == CONSUMER_PROTOCOL_TYPE:
        has, note = consumer_protocol.assignment(assignment)
        topics, wrong = consumer_protocol.subscription(subscription)
        note = note or wrong
    return MemberDescription(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=None,
        client_id=client_id,
        host=host_of(client_host),
        epoch=None,
        protocol=GroupProtocol.CLASSIC,
        topics=topics,
        pattern=None,
        assignment=has,
        target=None,
        note=note,
    )


def _classic_member(message: Message, protocol_type: str) -> MemberDescription:
    return classic_member(
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        client_id=message.client_id,
        client_host=message.client_host,
        protocol_type=protocol_type,
        assignment=message.member_assignment,
        subscription=message.member_metadata,
    )


def _by_id(members: Iterable[MemberDescription]) -> tuple[MemberDescription, ...]:
    return tuple(sorted(members, key=lambda member: member.member_id))


def host_of(client_host: str) -> str:
    """Return only the address: the broker writes Java's InetAddress, "NAME/ADDRESS", without a name."""
    return client_host.removeprefix("/")
