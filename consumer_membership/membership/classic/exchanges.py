"""The effects and events of a classic member: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the leader's part.

Effects are orders (`Send...`), events the facts that answer them. Each pair shares a `request_id`: the core drops a
response whose number is not the expected one, so that Java's check "if the generation is unchanged" is not needed.

| effect | answered with |
|---|---|
| SendJoin | JoinAnswered, JoinRejected or ExchangeFailed |
| SendSync | SyncAnswered, SyncRejected or ExchangeFailed |
| SendClassicHeartbeat | ClassicHeartbeatAnswered, ClassicHeartbeatRejected or ExchangeFailed |
| SendClassicLeave | ClassicLeft or ExchangeFailed |
| CommitOffsets (its `member_epoch` is the generation) | ClassicCommitAnswered or CommitFailed |
| DescribeTopics | TopicsDescribed or TopicsNotDescribed |
| ComputeAssignment, on its own thread, because it may take long | AssignmentComputed or AssignmentFailed |
| NotifyAssignor, on its own thread | AssignorNotified or AssignmentFailed |

SendJoin is a long poll: it stays unanswered until the group has joined, for a rebalance timeout at most. Between
JoinGroup and SyncGroup a leader requests the topics and has the assignor compute; a member with a pattern, leader or
not, also requests topics. An assignor that observes its assignment is notified before the member applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias

from consumer_membership.assignors.assignor import Assigned, MemberSubscription, Topics
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.events import CommitAnswered, CommitFailed
from consumer_membership.types import BrokerError, GroupProtocol, TopicPartition


class ClassicVerdict(Enum):
    """What an error code means for a classic member (rules 4.7; the tables are in `translation.verdicts`)."""

    #: Send the request again after a backoff, to this coordinator.
    RETRY = "retry"
    #: The coordinator is elsewhere: look it up, then send a heartbeat again, or join again if it was a join or sync.
    REDISCOVER = "rediscover"
    #: The coordinator does not know the member id: reset it and the generation, declare everything lost, join again.
    REJOIN = "rejoin"
    #: The generation is not the group's: reset it, declare everything lost, keep the member id, join at once.
    REJOIN_KEEP_ID = "rejoin with the member id"
    #: The group rebalances: join at once; the partitions, the generation and the member id stay.
    REJOIN_NOW = "rejoin now"
    #: Join after a backoff, otherwise as REJOIN_NOW: a sync that a loading coordinator refused (rules 4.10).
    REJOIN_LATER = "rejoin later"
    #: The coordinator assigned a member id: join again at once, with it (KIP-394).
    MEMBER_ID_REQUIRED = "member id required"
    #: No action of this member can help.
    FATAL = "fatal"


# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    """Send a JoinGroup, on a connection that heartbeats do not use.

    `member_id` is "" for a member that has none yet. `protocols` are the assignors' names in the order of preference,
    each with the subscription in the `version` of that assignor. The transport waits for max(its request timeout,
    `rebalance_timeout_s` + 5 s). `reason` is for the broker's log (KIP-800).
    """

    request_id: int
    member_id: str
    instance_id: str | None
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[tuple[str, MemberSubscription], ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSync:
    """Send a SyncGroup. `assignments` by member id are the leader's, as are `user_data`; both are empty for a follower.

    A leader names every member of the group, also one whose subscription cannot be parsed: Java's client treats a
    missing assignment as a bug. `versions` has the version of each member's assignment (`MemberSubscription.version`);
    a member that is not in it gets the newest version.
    """

    request_id: int
    generation: int
    member_id: str
    instance_id: str | None
    protocol_name: str
    assignments: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    user_data: Mapping[str, bytes] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendClassicHeartbeat:
    """Send a Heartbeat."""

    request_id: int
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendClassicLeave:
    """Send a LeaveGroup for this member alone, on the connection of its heartbeats and commits.

    Without a `member_id` it means the member that holds the instance id.
    """

    request_id: int
    member_id: str
    instance_id: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTopics:
    """Request the number of partitions of these topics, and their replicas, with Metadata.

    `topics` None requests all topics that the cluster shows, also internal ones: librdkafka matches those as well.
    """

    request_id: int
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignment:
    """Have the assignor of this name compute the assignment."""

    generation: int
    assignor: str
    topics: Topics
    members: Mapping[str, MemberSubscription]


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyAssignor:
    """Notify the assignor of this name, which is an `AssignmentObserver`, of the member's assignment."""

    request_id: int
    generation: int
    assignor: str
    assignment: Assigned


LeaderEffect: TypeAlias = DescribeTopics | ComputeAssignment | NotifyAssignor
ClassicEffect: TypeAlias = SendJoin | SendSync | SendClassicHeartbeat | SendClassicLeave


# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswered:
    """A JoinGroup succeeded: the members of a new generation have joined.

    `members` (the leader's only, else empty) are the subscriptions with their instance ids; `unreadable` are members
    whose subscription cannot be parsed, each with the error: they get an empty assignment, and the others continue.
    `skip_assignment`: the assignment of a returning static leader stays (KIP-814); it syncs as a follower does, but
    watches the topics as the leader.
    """

    request_id: int
    generation: int
    member_id: str
    leader_id: str
    protocol_name: str
    members: Mapping[str, MemberSubscription] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    skip_assignment: bool = False

    @property
    def is_leader(self) -> bool:
        """Whether this member leads the group, and so watches its topics and assigns its partitions."""
        return self.member_id == self.leader_id

    @property
    def group_protocol(self) -> GroupProtocol:
        """The type of the group: a consumer group may have classic members, but has no leader (KIP-848)."""
        return GroupProtocol.CLASSIC if self.leader_id else GroupProtocol.CONSUMER


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRejected:
    """A JoinGroup was refused. `member_id` is the one to join with after MEMBER_ID_REQUIRED, else ""."""

    request_id: int
    verdict: ClassicVerdict
    error: BrokerError
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """A SyncGroup succeeded. `protocol_name` is None if the broker does not report it (below version 5).

    The assignment is empty if the leader left it out or it cannot be parsed: then `note` has the reason, else "".
    """

    request_id: int
    assignment: frozenset[TopicPartition]
    user_data: bytes | None = None
    protocol_name: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRejected:
    """A SyncGroup was refused."""

    request_id: int
    verdict: ClassicVerdict
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeatAnswered:
    """A Heartbeat succeeded: the session continues, in this generation."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeatRejected:
    """A Heartbeat was refused. REJOIN_NOW (a rebalance) prolongs the session as a success does."""

    request_id: int
    verdict: ClassicVerdict
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFailed:
    """A request got no response. The coordinator may have acted on it; the member keeps its id (rules 4.7)."""

    request_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicLeft:
    """The response to a LeaveGroup; `error` None: the member has left.

    A member does not repeat its own LeaveGroup in either case (rules 4.8). `verdict` is for a member that requests the
    removal of its former member: RETRY, REDISCOVER, REJOIN (the coordinator knows no such member) or FATAL (it
    refuses).
    """

    request_id: int
    error: BrokerError | None = None
    verdict: ClassicVerdict = ClassicVerdict.FATAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicCommitAnswered:
    """The response to an OffsetCommit, and its meaning for the membership (None: no meaning).

    `answer` is the outcome of the commit itself, as for the consumer protocol (FINAL if the membership is in doubt).
    """

    answer: CommitAnswered
    membership: ClassicVerdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDescribed:
    """Metadata answered; topics that do not exist are absent, and those that cannot be described are in `refused`."""

    request_id: int
    topics: Topics
    refused: Mapping[str, BrokerError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsNotDescribed:
    """Metadata was refused, or did not answer."""

    request_id: int
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentComputed:
    """The assignor's result, checked for completeness."""

    generation: int
    assignments: Mapping[str, frozenset[TopicPartition]]
    user_data: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentFailed:
    """The assignor raised, or its result is invalid: the application receives the error."""

    generation: int
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorNotified:
    """The assignor was notified of the assignment."""

    request_id: int


LeaderEvent: TypeAlias = TopicsDescribed | TopicsNotDescribed | AssignmentComputed | AssignmentFailed | AssignorNotified
#: Events that only a member of the classic protocol handles (`classic.protocol`), in addition to `LeaderEvent`.
ClassicAnswer: TypeAlias = (
    JoinAnswered
    | JoinRejected
    | SyncAnswered
    | SyncRejected
    | ClassicHeartbeatAnswered
    | ClassicHeartbeatRejected
    | ExchangeFailed
    | ClassicLeft
    | ClassicCommitAnswered
)
ClassicEvent: TypeAlias = ClassicAnswer | CommitFailed
