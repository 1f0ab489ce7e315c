"""A coordinator's records of a group: the records of `__consumer_offsets`, of both protocols.

A key has the kind of the record (two bytes) and its subject; a value begins with its version, and a record without a
value deletes the previous one. The tables have the terms of Kafka's definitions in the jar of the group coordinator
(`tests/wire/test_messages_of_kafka.py`). Records without use for an observer (metadata of topics and resolved patterns,
groups of other kinds) are not decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.translation.descriptions import GroupDescription, MemberDescription, classic_member, host_of
from consumer_membership.types import (
    Assignment,
    GroupProtocol,
    OffsetAndMetadata,
    TopicIdPartition,
    TopicPartition,
)
from consumer_membership.wire.codec import MalformedError, Message, read_data
from consumer_membership.wire.schema import NEVER, Table

OFFSET_COMMIT_KEY = Table(
    "OffsetCommitKey",
    NEVER,
    """
    Group      string  0
    Topic      string  0
    Partition  int32   0
    """,
)

OFFSET_COMMIT_VALUE = Table(
    "OffsetCommitValue",
    "4+",
    """
    Offset           int64   0+
    LeaderEpoch      int32   3+  default=-1
    Metadata         string  0+
    CommitTimestamp  int64   0+
    ExpireTimestamp  int64   1   default=-1
    TopicId          uuid    4+  tag=0
    """,
)

GROUP_METADATA_KEY = Table("GroupMetadataKey", NEVER, "Group  string  0")

GROUP_METADATA_VALUE = Table(
    "GroupMetadataValue",
    "4+",
    """
    ProtocolType           string    0+
    Generation             int32     0+
    Protocol               string    0+  nullable=0+
    Leader                 string    0+  nullable=0+
    CurrentStateTimestamp  int64     2+  default=-1
    Members                []struct  0+
      MemberId             string    0+
      GroupInstanceId      string    3+  nullable=3+  default=null
      ClientId             string    0+
      ClientHost           string    0+
      RebalanceTimeout     int32     1+  default=-1
      SessionTimeout       int32     0+
      Subscription         bytes     0+
      Assignment           bytes     0+
    """,
)

CONSUMER_GROUP_METADATA_KEY = Table("ConsumerGroupMetadataKey", NEVER, "GroupId  string  0")

CONSUMER_GROUP_METADATA_VALUE = Table(
    "ConsumerGroupMetadataValue",
    "0+",
    """
    Epoch         int32  0+
    MetadataHash  int64  0+  tag=0  default=0
    """,
)

_GROUP_AND_MEMBER = """
    GroupId   string  0
    MemberId  string  0
    """

MEMBER_METADATA_KEY = Table("ConsumerGroupMemberMetadataKey", NEVER, _GROUP_AND_MEMBER)

MEMBER_METADATA_VALUE = Table(
    "ConsumerGroupMemberMetadataValue",
    "0+",
    """
    InstanceId             string    0+  nullable=0+
    RackId                 string    0+  nullable=0+
    ClientId               string    0+
    ClientHost             string    0+
    SubscribedTopicNames   []string  0+
    SubscribedTopicRegex   string    0+  nullable=0+
    RebalanceTimeoutMs     int32     0+  default=-1
    ServerAssignor         string    0+  nullable=0+
    ClassicMemberMetadata  struct    0+  nullable=0+  tag=0
      SessionTimeoutMs     int32     0+
      SupportedProtocols   []struct  0+
        Name               string    0+
        Metadata           bytes     0+
    """,
)

TARGET_METADATA_KEY = Table("ConsumerGroupTargetAssignmentMetadataKey", NEVER, "GroupId  string  0")

TARGET_METADATA_VALUE = Table(
    "ConsumerGroupTargetAssignmentMetadataValue",
    "0+",
    """
    AssignmentEpoch      int32  0+
    AssignmentTimestamp  int64  0+  tag=0  default=0
    """,
)

TARGET_MEMBER_KEY = Table("ConsumerGroupTargetAssignmentMemberKey", NEVER, _GROUP_AND_MEMBER)

TARGET_MEMBER_VALUE = Table(
    "ConsumerGroupTargetAssignmentMemberValue",
    "0+",
    """
    TopicPartitions  []struct  0+
      TopicId        uuid      0+
      Partitions     []int32   0+
    """,
)

CURRENT_ASSIGNMENT_KEY = Table("ConsumerGroupCurrentMemberAssignmentKey", NEVER, _GROUP_AND_MEMBER)

CURRENT_ASSIGNMENT_VALUE = Table(
    "ConsumerGroupCurrentMemberAssignmentValue",
    "0+",
    """
    MemberEpoch                  int32     0+
    PreviousMemberEpoch          int32     0+
    State                        int8      0+
    AssignedPartitions           []struct  0+
      TopicId                    uuid      0+
      Partitions                 []int32   0+
      AssignmentEpochs           []int32   0+  nullable=0+  tag=0
    PartitionsPendingRevocation  []struct  0+
      TopicId                    uuid      0+
      Partitions                 []int32   0+
      AssignmentEpochs           []int32   0+  nullable=0+  tag=0
    """,
)

_KIND_BYTES = _VERSION_BYTES = 2
_COMMIT = b"\x00\x01"
#: About as many partitions as a large group commits repeatedly.
_KEYS = 4_096


# ---- facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecorded:
    """A commit; None: it expired, or was deleted."""

    partition: TopicPartition
    committed: OffsetAndMetadata | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupRecorded:
    """A classic group with all of its members, after each rebalance; None: it was deleted or converted."""

    generation: int
    group: GroupDescription | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEpochRecorded:
    """The epoch of a group of the consumer protocol; None: it was deleted or converted."""

    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetEpochRecorded:
    """The epoch of the target assignments."""

    epoch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecorded:
    """A member without its partitions, when it joined or changed its subscription; None: it left."""

    member_id: str
    member: MemberDescription | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRecorded:
    """The target assignment of a member; None: it has none any more."""

    member_id: str
    target: Assignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRecorded:
    """The partitions that a member owns, and those that it must still revoke; only -1 as its epoch: it left."""

    member_id: str
    epoch: int
    assigned: Assignment
    revoking: Assignment
    #: 0: it joined; -1: unknown.
    previous_epoch: int = -1


GroupRecord: TypeAlias = (
    OffsetRecorded
    | ClassicGroupRecorded
    | GroupEpochRecorded
    | TargetEpochRecorded
    | MemberRecorded
    | TargetRecorded
    | AssignmentRecorded
)


# ---- reading ---------------------------------------------------------------------------------------------------------


class _Kind(NamedTuple):
    """One kind of records: its key, its value, the newest known version of the value, and the reader of its fact."""

    key: Table
    value: Table
    newest: int
    read: Callable[[Message, Message | None], GroupRecord]


def is_of_group(key: bytes, group_id: str) -> bool:
    """Return whether a key of any kind belongs to this group: a quick check for logs with many groups."""
    name = group_id.encode()
    return key[_KIND_BYTES:].startswith(len(name).to_bytes(2, "big") + name)


def is_commit(key: bytes) -> bool:
    """Return whether the key belongs to a committed offset."""
    return key.startswith(_COMMIT)


def group_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """Return the fact of the record, or None if it has no use here.

    Raises:
        MalformedError: the bytes are not such a record; a later Kafka may write other versions.
    """
    kind = _KINDS.get(int.from_bytes(key[:_KIND_BYTES], "big"))
    if kind is None:
        return None
    whose = _whose(key)
    if value is None:
        return kind.read(whose, None)
    version = int.from_bytes(value[:_VERSION_BYTES], "big", signed=True)
    if not 0 <= version <= kind.newest:
        raise MalformedError(f"{kind.value.name} has version {version}; up to {kind.newest} is known")
    content, _ = read_data(kind.value, version, value, _VERSION_BYTES)
    return kind.read(whose, content)


@lru_cache(maxsize=_KEYS)
def _whose(key: bytes) -> Message:
    """Return the content of a key of a known kind; keys that recur are decoded once."""
    whose, _ = read_data(_KINDS[int.from_bytes(key[:_KIND_BYTES], "big")].key, 0, key, _KIND_BYTES)
    return whose


@lru_cache(maxsize=_KEYS)
def _partition(topic: str, number: int) -> TopicPartition:
    """Return one object for all commits of a partition."""
    return TopicPartition(topic, number)


def _offset(key: Message, value: Message | None) -> GroupRecord:
    committed = None
    if value is not None:
        epoch = getattr(value, "leader_epoch", -1)
        committed = OffsetAndMetadata(
            offset=value.offset, leader_epoch=None if epoch < 0 else epoch, metadata=value.metadata
        )
    return OffsetRecorded(partition=_partition(key.topic, key.partition), committed=committed)


def _classic_group(key: Message, value: Message | None) -> GroupRecord:
    if value is None:
        return ClassicGroupRecorded(generation=-1, group=None)
    members = (
        classic_member(
            member_id=one.member_id,
            instance_id=getattr(one, "group_instance_id", None),
            client_id=one.client_id,
            client_host=one.client_host,
            protocol_type=value.protocol_type,
            assignment=one.assignment,
            subscription=one.subscription,
        )
        for one in value.members
    )
    group = GroupDescription(
        group_id=key.group,
        protocol=GroupProtocol.CLASSIC,
        protocol_type=value.protocol_type,
        state="Stable" if value.members else "Empty",
        epoch=None,
        assignment_epoch=None,
        assignor=value.protocol or "",
        members=tuple(sorted(members, key=lambda one: one.member_id)),
    )
    return ClassicGroupRecorded(generation=value.generation, group=group)


def _member(key: Message, value: Message | None) -> GroupRecord:
    if value is None:
        return MemberRecorded(member_id=key.member_id, member=None)
    is_classic = getattr(value, "classic_member_metadata", None) is not None
    member = MemberDescription(
        member_id=key.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        host=host_of(value.client_host),
        epoch=None,
        protocol=GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER,
        topics=frozenset(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or None,
        assignment=frozenset(),
        target=frozenset(),
    )
    return MemberRecorded(member_id=key.member_id, member=member)


def _assignment(key: Message, value: Message | None) -> GroupRecord:
    if value is None:
        return AssignmentRecorded(member_id=key.member_id, epoch=-1, assigned=frozenset(), revoking=frozenset())
    return AssignmentRecorded(
        member_id=key.member_id,
        epoch=value.member_epoch,
        assigned=_partitions(value.assigned_partitions),
        revoking=_partitions(value.partitions_pending_revocation),
        previous_epoch=value.previous_member_epoch,
    )


def _partitions(topics: Iterable[Message]) -> Assignment:
    return frozenset(TopicIdPartition(one.topic_id, number) for one in topics for number in one.partitions)


_KINDS: Mapping[int, _Kind] = MappingProxyType(
    {
        1: _Kind(OFFSET_COMMIT_KEY, OFFSET_COMMIT_VALUE, 4, _offset),
        2: _Kind(GROUP_METADATA_KEY, GROUP_METADATA_VALUE, 4, _classic_group),
        3: _Kind(
            CONSUMER_GROUP_METADATA_KEY,
            CONSUMER_GROUP_METADATA_VALUE,
            0,
            lambda _, value: GroupEpochRecorded(epoch=None if value is None else value.epoch),
        ),
        5: _Kind(MEMBER_METADATA_KEY, MEMBER_METADATA_VALUE, 0, _member),
        6: _Kind(
            TARGET_METADATA_KEY,
            TARGET_METADATA_VALUE,
            0,
            lambda _, value: TargetEpochRecorded(epoch=None if value is None else value.assignment_epoch),
        ),
        7: _Kind(
            TARGET_MEMBER_KEY,
            TARGET_MEMBER_VALUE,
            0,
            lambda key, value: TargetRecorded(
                member_id=key.member_id, target=None if value is None else _partitions(value.topic_partitions)
            ),
        ),
        8: _Kind(CURRENT_ASSIGNMENT_KEY, CURRENT_ASSIGNMENT_VALUE, 0, _assignment),
    }
)

#: For the tests: each table with its newest version.
TABLES: tuple[tuple[int, Table, int], ...] = tuple(
    (number, table, newest)
    for number, kind in _KINDS.items()
    for table, newest in ((kind.key, 0), (kind.value, kind.newest))
)
