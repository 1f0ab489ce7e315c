"""The orders of a member, and the order in which the shell performs them.

`MemberCore.handle(event, now)` returns a tuple of these values. **The contract of their order:**

1. All effects of one event are passed on before the next event is handled, and each part that performs effects
   gets its own effects in the order returned. The observer gets them first. Then the application's mailbox gets all of
   its effects at once, together with the view: a thread that sees the view finds the effects, and a thread that has an
   effect sees the view. The requests to the network begin last, so the application can see the consequence of an event
   before the first byte of a request is written.
2. For one revocation the order is pause, commit, on_revoke, acknowledge. `CommitOffsets` follows the `StepFinished` of
   the pause, `RevokePartitions` the commit's end (good or bad), the acknowledging `SendHeartbeat` the `StepFinished`
   of the revocation.
3. Revocations are finished before assignments begin.
4. Every step carries the number of its attempt. Attempts only grow; before it performs a step the application's thread
   drains its mailbox and drops steps of an attempt older than the newest it saw. Callbacks never nest.
5. An error for the application comes before the effects that follow from it.

| effect | performed by | answered with |
|---|---|---|
| SendHeartbeat | network thread | HeartbeatAnswered, HeartbeatRejected or HeartbeatFailed (a leave may go unanswered) |
| FindCoordinator | network thread, until it is found | CoordinatorFound; CoordinatorLookupFailed meanwhile |
| DescribeGroup | network thread | GroupDescribed or GroupDescribeFailed |
| CheckHolder | network thread | HolderChecked |
| LearnSessionTimeout | network thread | SessionTimeoutLearned |
| ReadAnnouncements | network thread | AnnouncementsRead or AnnouncementsNotRead |
| WriteAnnouncement | network thread | AnnouncementWritten or AnnouncementNotWritten |
| ResolveTopicIds | network thread | TopicIdsResolved |
| LookUpTopics | network thread | TopicsLookedUp or TopicsNotLookedUp |
| FetchCommitted | network thread | StartOffsetsFetched or StartOffsetsFailed |
| CommitOffsets | network thread | CommitAnswered or CommitFailed |
| PausePartitions, RevokePartitions, LosePartitions, AssignPartitions | application's thread | StepFinished |
| CollectPositions | application's thread | PositionsReported |
| WarmPartitions | application's thread | Warmed |
| CommitCompleted, RaiseToApplication, LeaveCompleted | application's thread | nothing |
| StateChanged, InstanceReleased, TopicsAppeared, ProtocolChosen, Warned | observer, on the network thread | nothing |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias
from uuid import UUID

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.states import MemberState
from consumer_membership.types import (
    Assignment,
    BrokerError,
    GroupProtocol,
    HandOverAnnouncement,
    Holder,
    Offsets,
    TopicPartition,
)

# ---- for the network ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitIdentity:
    """The identity with which a member fetches and commits; the epoch is the generation in a classic group."""

    member_id: str
    member_epoch: int
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The fields of a ConsumerGroupHeartbeat request (KIP-848); None means unchanged since the last one.

    `topics` are sorted; `pattern` "" means none and removes an earlier one; the two are stated together; `owned` is
    what the member acknowledges to own.
    """

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_s: float | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None

    @property
    def is_leave(self) -> bool:
        """Whether this heartbeat ends the membership."""
        return self.member_epoch < 0

    @property
    def is_full(self) -> bool:
        """Whether the broker reads it as a complete statement and answers with the complete assignment."""
        return self.rebalance_timeout_s is not None and self.topics is not None and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHeartbeat:
    """Send this heartbeat to the coordinator, on the connection that all heartbeats use.

    `refuse_conversion`: it is a join, which would convert a classic group; if the group has members it is not sent, and
    rejected as a conflict. `may_take_over`: it is a join that may replace a classic member with the same
    instance id; otherwise it is not sent in that case, and rejected with UNRELEASED_INSTANCE_ID, as a broker does if
    the holder uses the consumer protocol. `is_consumer_group`: a description has just shown members of the consumer
    protocol, so no check for a classic group precedes the join. `expected`: it is a join with an id that has these
    partitions, so their committed offsets are read right behind it, on the same connection.
    """

    request_id: int
    heartbeat: Heartbeat
    refuse_conversion: bool = False
    may_take_over: bool = False
    is_consumer_group: bool = False
    expected: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Forget the coordinator and look it up, with backoff, until it is found."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeGroup:
    """Request the holders of the group's instance ids with ConsumerGroupDescribe.

    `with_partitions`: the answer also has the assigned partitions of each holder.
    """

    request_id: int
    with_partitions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnnouncements:
    """Read the announcements at these partitions, from the committed metadata of the group's helper group."""

    request_id: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAnnouncement:
    """Write this announcement at this partition, which the predecessor owns, as committed metadata of the helper group.

    None withdraws the announcement that is there.
    """

    request_id: int
    partition: TopicPartition
    announcement: HandOverAnnouncement | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckHolder:
    """Find out whether the process of this holder of the instance id has certainly ended."""

    request_id: int
    instance_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnSessionTimeout:
    """Request the group's session timeout: how long a static member may be away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveTopicIds:
    """Request the names of these topic ids with Metadata."""

    topic_ids: frozenset[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpTopics:
    """Request with Metadata which of these topics exist (None: all topics)."""

    request_id: int
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchCommitted:
    """Find the starts of these partitions: OffsetFetch as this member, then ListOffsets if nothing is committed."""

    attempt: int
    partitions: frozenset[TopicPartition]
    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOffsets:
    """Send an OffsetCommit as this member."""

    commit_id: int
    offsets: Offsets
    member_id: str
    member_epoch: int
    instance_id: str | None


# ---- for the application's thread -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PausePartitions:
    """Stop delivering exactly these partitions (None: all that are held) and report their consumed positions.

    Partitions that an earlier pause stopped and this one does not name are delivered again: they are not revoked.
    """

    attempt: int
    partitions: frozenset[TopicPartition] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokePartitions:
    """Call on_revoke for these partitions (None: all that are held), then stop fetching them."""

    attempt: int
    partitions: frozenset[TopicPartition] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LosePartitions:
    """Stop delivering everything that is held, call on_lost, stop fetching; another member may own it already."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignPartitions:
    """Call on_assign for these partitions, then fetch them from these offsets."""

    attempt: int
    offsets: Mapping[TopicPartition, int]
    #: The member epoch at which they are taken.
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectPositions:
    """Report the consumed positions that are not committed yet: the auto-commit interval is over."""

    commit_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPartitions:
    """Call on_warm for these partitions, which the member does not own yet and is about to take over.

    Not a step: it belongs to no reconciliation. A later one with a greater number replaces an earlier one.
    """

    attempt: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitCompleted:
    """A commit has ended.

    `errors` has each partition of the commit (None: committed). `commit_id` is the application's for its own commits
    (positive), the core's for automatic ones (negative).
    """

    commit_id: int
    offsets: Offsets
    errors: Mapping[TopicPartition, BrokerError | None]


class Problem(Enum):
    """The kind of an error that the application receives."""

    #: The broker refuses permanently: the member is FATAL.
    FATAL = "fatal"
    #: The broker refuses, and the member retries.
    REFUSED = "refused"
    #: max.poll.interval.ms exceeded: the member left and lost its partitions.
    POLL_TIMEOUT = "poll timeout"


@dataclass(frozen=True, slots=True, kw_only=True)
class RaiseToApplication:
    """Report an error to the application. `error` is the broker's, or one of this package with a negative code.

    `topic` is the topic of the error, if it has one. `ends_with_subscription` is true for a fatal error whose cause is
    the subscription: another subscription ends it.
    """

    problem: Problem
    error: BrokerError
    topic: str | None = None
    ends_with_subscription: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveCompleted:
    """The member left, or there was nothing to leave; `close` may return."""


# ---- for the observer -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChanged:
    """The member's state changed; the reason is for people."""

    old: MemberState
    new: MemberState
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReleased:
    """The instance id was released on behalf of its holder: this member takes over, and the holder will be fenced."""

    instance_id: str
    holder: Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsAppeared:
    """Subscribed topics that were reported as not available exist now."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolChosen:
    """The member uses this protocol from now on, or the coordinator has just accepted its join with it."""

    protocol: GroupProtocol
    reason: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned:
    """A warning for the operator; the membership itself is not affected."""

    message: str


NetworkEffect: TypeAlias = (
    SendHeartbeat
    | FindCoordinator
    | DescribeGroup
    | CheckHolder
    | LearnSessionTimeout
    | ReadAnnouncements
    | WriteAnnouncement
    | ResolveTopicIds
    | LookUpTopics
    | FetchCommitted
    | CommitOffsets
)
StepEffect: TypeAlias = PausePartitions | RevokePartitions | LosePartitions | AssignPartitions
ApplicationEffect: TypeAlias = (
    StepEffect | CollectPositions | WarmPartitions | CommitCompleted | RaiseToApplication | LeaveCompleted
)
ObserverEffect: TypeAlias = StateChanged | InstanceReleased | TopicsAppeared | Warned
Effect: TypeAlias = NetworkEffect | ApplicationEffect | ObserverEffect
