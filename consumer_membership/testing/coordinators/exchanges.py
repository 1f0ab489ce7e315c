"""The requests and responses of coordinators: values with the fields of Kafka's messages, without their encoding.

The consumer protocol's heartbeat is `membership.effects.Heartbeat`; its success response is `rules.Granted`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from consumer_membership.assignors.assignor import NO_GENERATION, MemberSubscription
from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators.rules import Granted, Refused
from consumer_membership.translation.requests import PROTOCOL_TYPE
from consumer_membership.types import NO_MEMBER_ID, Holder, OffsetAndMetadata, Offsets, TopicPartition

PartitionSet: TypeAlias = frozenset[TopicPartition]
#: The value by which the caller matches a response to its request; any value but None.
Key: TypeAlias = Hashable


class Offer(NamedTuple):
    """An assignor that a member supports, and the member's subscription as that assignor wrote it."""

    assignor: str
    subscription: MemberSubscription


class LeaderShare(NamedTuple):
    """The partitions that the leader assigns to one member."""

    member_id: str
    partitions: PartitionSet


class LeavingMember(NamedTuple):
    """A member in a LeaveGroup, named by its member id, by its instance id only (an administrator), or by both."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None


# ---- requests ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request, which waits for the other members; `offers` are in order of preference."""

    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    protocol_type: str = PROTOCOL_TYPE
    version: int = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request, which waits for the leader's assignment; only the leader sends `shares`.

    The coordinator compares `assignor` and `protocol_type` with the group's unless they are None.
    """

    member_id: str
    generation: int
    instance_id: str | None = None
    shares: tuple[LeaderShare, ...] = ()
    assignor: str | None = None
    protocol_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeat:
    """A Heartbeat request of the classic protocol."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """A LeaveGroup request of version 3 or later, with any number of members."""

    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An OffsetCommit request of version 9 or later; the defaults are for a consumer that is not a group member."""

    offsets: Offsets
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """An OffsetFetch request; a classic group does not check the member fields."""

    partitions: PartitionSet
    member_id: str | None = None
    member_epoch: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Describe:
    """A ConsumerGroupDescribe request; `with_partitions`: whether the caller also reads the assignments."""

    with_partitions: bool = False


Request: TypeAlias = Heartbeat | Join | Sync | ClassicHeartbeat | LeaveGroup | Commit | Fetch | Describe


# ---- responses ----


class JoinedMember(NamedTuple):
    """A member in the form that the leader receives; the subscription includes the instance id."""

    member_id: str
    subscription: MemberSubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The success response to a JoinGroup; only the leader receives `members`."""

    member_id: str
    generation: int
    assignor: str
    leader_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdRequired:
    """The response MEMBER_ID_REQUIRED to a JoinGroup: the member must join again with this id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The success response to a SyncGroup; `assignment` None: no bytes, because the leader left out this member."""

    assignor: str | None
    assignment: PartitionSet | None


@dataclass(frozen=True, slots=True)
class Alive:
    """The success response to a classic Heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResults:
    """The response to a LeaveGroup: an error code for each member in request order, 0 if the member left."""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResults:
    """The response to an OffsetCommit: an error code for each partition, 0 if its offset is committed."""

    codes: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The success response to an OffsetFetch; None for a partition without a committed offset."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The part of a ConsumerGroupDescribe response that members use: the holder of each instance id."""

    holders: Mapping[str, Holder]


Answer: TypeAlias = (
    Granted | Joined | MemberIdRequired | Synced | Alive | LeaveResults | CommitResults | Fetched | Described | Refused
)


class Released(NamedTuple):
    """A response with the key of its request, which may have waited."""

    key: Key
    answer: Answer
