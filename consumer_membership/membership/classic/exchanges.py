"""What a classic member orders and what it learns: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the leader's part.

Effects are orders (`Send...`), events the facts that answer them. Each pair shares a `request_id`: the core drops an
answer whose number is not the one it waits for, so that Java's "if the generation is unchanged" needs no comparison.

| effect | answered with |
|---|---|
| SendJoin | JoinAnswered, JoinRejected or ExchangeFailed |
| SendSync | SyncAnswered, SyncRejected or ExchangeFailed |
| SendClassicHeartbeat | ClassicHeartbeatAnswered, ClassicHeartbeatRejected or ExchangeFailed |
| SendClassicLeave | ClassicLeft or ExchangeFailed |
| CommitOffsets (its `member_epoch` is the generation) | ClassicCommitAnswered or CommitFailed |
| DescribeTopics | TopicsDescribed or TopicsNotDescribed |
| ComputeAssignment, on a thread of its own, for it may take its time | AssignmentComputed or AssignmentFailed |
| NotifyAssignor, on a thread of its own | AssignorNotified or AssignmentFailed |

SendJoin is a long poll: it stays unanswered until the group has gathered, for a rebalance timeout at most. Between
JoinGroup and SyncGroup a leader looks at the topics and has the assignor compute; a member with a pattern, leader or
not, asks for topics, too. An assignor that observes its assignment is notified before the member takes it over.
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

    #: Send the same again after a backoff, to the same coordinator.
    RETRY = "retry"
    #: The coordinator is elsewhere: look it up, then send a heartbeat again, or join again where it was a join or sync.
    REDISCOVER = "rediscover"
    #: The coordinator does not know the member id: reset it and the generation, declare everything lost, join again.
    REJOIN = "rejoin"
    #: The generation is not the group's: reset it, declare everything lost, keep the member id, join at once.
    REJOIN_KEEP_ID = "rejoin with the member id"
    #: The group rebalances: join at once; what is owned, the generation and the member id stay.
    REJOIN_NOW = "rejoin now"
    #: Join after a backoff, all else as REJOIN_NOW: a sync that a loading coordinator refused (rules 4.10).
    REJOIN_LATER = "rejoin later"
    #: The coordinator made a member id: join again at once, with it (KIP-394).
    MEMBER_ID_REQUIRED = "member id required"
    #: Nothing that this member can do will help.
    FATAL = "fatal"


# ---- effects --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SendJoin:
    """Send a JoinGroup, on a connection that heartbeats do not use.

    `member_id` is "" for a member that has none yet. `protocols` are the assignors' names in the order of preference,
    each with the subscription as that assignor wants it, which is written in its `version`. The transport waits for
    max(its request timeout, `rebalance_timeout_s` + 5 s). `reason` is for the broker's log (KIP-800).
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
    """Send a SyncGroup. `assignments` by member id are the leader's; empty for a follower. So are `user_data`.

    A leader names every member of the group, one whose subscription cannot be read too: Java's client takes an
    assignment that was left out for a bug. `versions` are those in which members want their blob, the newest where a
    member is absent; `MemberSubscription.version` has it.
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
    """Ask Metadata how many partitions these topics have, and where their replicas are.

    `topics` None asks for all that the cluster shows, internal ones too: librdkafka matches them as well.
    """

    request_id: int
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeAssignment:
    """Have the assignor of this name compute who gets what."""

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
    """A JoinGroup's success: a generation has gathered.

    `members` (the leader's only, else empty) are the subscriptions with their instance ids; `unreadable` are members
    whose subscription cannot be read, each with what is wrong with it: they get an empty assignment, and the others
    go on. `skip_assignment`: the assignment of a returning static leader stays (KIP-814); it syncs as a
    follower does, but watches the topics as the leader.
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
        """What the group is: one of the consumer protocol lets classic members in without a leader (KIP-848)."""
        return GroupProtocol.CLASSIC if self.leader_id else GroupProtocol.CONSUMER


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRejected:
    """A JoinGroup's error answer. `member_id` is the one to join with after MEMBER_ID_REQUIRED, else ""."""

    request_id: int
    verdict: ClassicVerdict
    error: BrokerError
    member_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswered:
    """A SyncGroup's success. `protocol_name` is None if the broker does not report it (below version 5).

    `note` is the reason for an empty assignment that the leader left out or that cannot be read; else "".
    """

    request_id: int
    assignment: frozenset[TopicPartition]
    user_data: bytes | None = None
    protocol_name: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRejected:
    """A SyncGroup's error answer."""

    request_id: int
    verdict: ClassicVerdict
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeatAnswered:
    """A Heartbeat's success: the session goes on, in this generation."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicHeartbeatRejected:
    """A Heartbeat's error answer. REJOIN_NOW (a rebalance) prolongs the session as a success does."""

    request_id: int
    verdict: ClassicVerdict
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeFailed:
    """A request got no answer. The coordinator may have acted on it; the member keeps its id (rules 4.7)."""

    request_id: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicLeft:
    """A LeaveGroup's answer; `error` None: the member is out.

    A member's own is not sent again either way (rules 4.8); `verdict` is for who has its stale member removed: RETRY,
    REDISCOVER, REJOIN (the coordinator knows no such member) or FATAL (it refuses).
    """

    request_id: int
    error: BrokerError | None = None
    verdict: ClassicVerdict = ClassicVerdict.FATAL


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicCommitAnswered:
    """An OffsetCommit's answer, and what it means for the membership (None: nothing).

    `answer` is what the commit itself came to, as for the consumer protocol (FINAL where the membership is in doubt).
    """

    answer: CommitAnswered
    membership: ClassicVerdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDescribed:
    """Metadata answered; topics that do not exist are absent, and those that may not be described are in `refused`."""

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
    """The assignor raised, or its result cannot be: the application has to know."""

    generation: int
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignorNotified:
    """The assignor was notified of the assignment."""

    request_id: int


LeaderEvent: TypeAlias = TopicsDescribed | TopicsNotDescribed | AssignmentComputed | AssignmentFailed | AssignorNotified
#: What only a member of the classic protocol handles (`classic.protocol`), beside `LeaderEvent`.
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
