"""What coordinators are asked, and what they answer: values, the wire's fields without its bytes.

A heartbeat of the consumer protocol is `membership.effects.Heartbeat`, its success `rules.Granted`.
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
#: By what the asker recognizes the answer to its request; anything but None.
Key: TypeAlias = Hashable


class Offer(NamedTuple):
    """An assignor that a member supports, and its subscription as that assignor wrote it."""

    assignor: str
    subscription: MemberSubscription


class LeaderShare(NamedTuple):
    """What the leader gives to one member."""

    member_id: str
    partitions: PartitionSet


class LeavingMember(NamedTuple):
    """A member of a LeaveGroup: by its id, or by its instance id only (an administrator), or by both."""

    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None


# ---- requests ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup; the offers in order of preference. It waits for the other members."""

    offers: tuple[Offer, ...]
    session_timeout_s: float
    rebalance_timeout_s: float
    member_id: str = NO_MEMBER_ID
    instance_id: str | None = None
    protocol_type: str = PROTOCOL_TYPE
    version: int = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup; `shares` from the leader only. It waits for the leader's. None of a protocol is not compared."""

    member_id: str
    generation: int
    instance_id: str | None = None
    shares: tuple[LeaderShare, ...] = ()
    assignor: str | None = None
    protocol_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeat:
    """Heartbeat."""

    member_id: str
    generation: int
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup:
    """LeaveGroup from v3 on: several members."""

    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """OffsetCommit from v9 on; the defaults are those of a consumer that is in no group."""

    offsets: Offsets
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """OffsetFetch: a classic group looks at no member."""

    partitions: PartitionSet
    member_id: str | None = None
    member_epoch: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Describe:
    """ConsumerGroupDescribe; `with_partitions`: the asker also reads the assignments."""

    with_partitions: bool = False


Request: TypeAlias = Heartbeat | Join | Sync | ClassicHeartbeat | LeaveGroup | Commit | Fetch | Describe


# ---- answers ----


class JoinedMember(NamedTuple):
    """A member as its leader gets to know it; the subscription carries the instance id."""

    member_id: str
    subscription: MemberSubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """JoinGroup's success; `members` for the leader only."""

    member_id: str
    generation: int
    assignor: str
    leader_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdRequired:
    """JoinGroup's MEMBER_ID_REQUIRED: join again with this id."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """SyncGroup's success; `assignment` None: the leader named nothing for this member, and the answer has no bytes."""

    assignor: str | None
    assignment: PartitionSet | None


@dataclass(frozen=True, slots=True)
class Alive:
    """Heartbeat's success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveResults:
    """LeaveGroup's answer: an error code for each member, 0 where it left, in the order of the request."""

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResults:
    """OffsetCommit's answer: an error code for each partition, 0 where it is committed."""

    codes: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """OffsetFetch's success; None where nothing is committed."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """ConsumerGroupDescribe's success, as far as a member asks: who holds which instance id."""

    holders: Mapping[str, Holder]


Answer: TypeAlias = (
    Granted | Joined | MemberIdRequired | Synced | Alive | LeaveResults | CommitResults | Fetched | Described | Refused
)


class Released(NamedTuple):
    """A request's answer, whenever it comes."""

    key: Key
    answer: Answer
