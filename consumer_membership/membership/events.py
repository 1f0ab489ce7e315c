"""The events of a member: facts, in the past tense, from the application, the network and the clock.

The core receives information only by these values. A response has the number of the request or of the attempt that it
belongs to; the core drops one whose number is not the expected one, so that late and duplicate responses need no flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import TypeAlias
from uuid import UUID

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import (
    Assignment,
    BrokerAddress,
    BrokerError,
    HandOverAnnouncement,
    Holder,
    Instant,
    LeaveOption,
    Offsets,
    Subscription,
    TopicPartition,
)


class Verdict(Enum):
    """What an error code in a heartbeat answer means for the member (rules 2.4; the table is in `wire`)."""

    #: Try again after a backoff, with the same coordinator.
    RETRY = "retry"
    #: The coordinator is elsewhere: look it up, then try again.
    REDISCOVER = "rediscover"
    #: The coordinator does not know this epoch or member id: declare everything lost and join again.
    REJOIN = "rejoin"
    #: Report the error to the application, stay, and try again after a backoff.
    REPORT = "report"
    #: The instance id is held by a member that has not left (KIP-345 on KIP-848 brokers).
    UNRELEASED = "unreleased"
    #: The group does not exist, or is not of the consumer protocol.
    GROUP_GONE = "group gone"
    #: No action of this member can help.
    FATAL = "fatal"


class CommitVerdict(Enum):
    """What an error code in an OffsetCommit answer means (rules 3.6)."""

    RETRY = "retry"
    #: The partition is new to the coordinator, or does not exist: a few attempts distinguish the two.
    RETRY_BRIEFLY = "retry briefly"
    REDISCOVER = "rediscover"
    #: The commit carried another epoch than the coordinator's: wait for the next epoch.
    STALE_EPOCH = "stale epoch"
    #: Nothing more to do: the response, good or bad, is final.
    FINAL = "final"


class Step(Enum):
    """One part of a reconciliation that the application's thread performs."""

    PAUSE = "pause"
    REVOKE = "revoke"
    LOSE = "lose"
    ASSIGN = "assign"


# ---- from the application -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribed:
    """The application subscribed to topics; the member joins at its next poll (a rebalance never starts outside poll).

    `is_eager`: callbacks follow the eager protocol: everything is revoked, and the whole assignment is passed.
    `asked_at`: when the application subscribed; None: now. The member may receive it much later: its thread starts at
    the first poll, and its process may be suspended in between.
    """

    subscription: Subscription
    is_eager: bool = False
    asked_at: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedIncrementally:
    """A callback called `incremental_assign` or `incremental_unassign`: callbacks get differences from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """The application polls. `delivered`: whether records reached it since the last such event."""

    delivered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """The application's thread performed a step.

    `offsets` are the consumed positions that are not committed yet: of the paused partitions after PAUSE, those that
    the callback stored after REVOKE. `failed`: the application's callback raised.
    """

    attempt: int
    step: Step
    offsets: Offsets = field(default_factory=dict)
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsReported:
    """The answer to `CollectPositions`: the consumed positions that are not committed yet.

    `until_next_record`: every position is committed, and that stays so until another record is delivered. False if the
    application stores offsets itself.
    """

    commit_id: int
    offsets: Offsets
    until_next_record: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """The answer to `WarmPartitions`: the application is ready for these partitions. `failed`: on_warm raised."""

    attempt: int
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequested:
    """The application commits. `commit_id` is its own number (positive), `timeout_s` the time limit for retries.

    `by_hand`: the partitions in it that the application assigned itself.
    """

    commit_id: int
    offsets: Offsets
    timeout_s: float
    by_hand: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedByHand:
    """The application assigned partitions itself, without the group (`holds`), or released the last of them."""

    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequested:
    """The application unsubscribes or closes; a second one while leaving changes nothing, unless it is `at_once`.

    `at_once`: the application performs no more steps, because its close was interrupted: nothing is committed, and no
    callback is waited for.
    """

    option: LeaveOption = LeaveOption.DEFAULT
    at_once: bool = False


# ---- from the network -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorFound:
    """FindCoordinator answered."""

    coordinator: BrokerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLookupFailed:
    """FindCoordinator failed; the network retries. `is_final`: waiting does not help."""

    error: BrokerError
    is_final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLost:
    """The connection to the coordinator broke while nothing was in flight."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswered:
    """A heartbeat's success. `assignment` None means unchanged, an empty one means give up everything."""

    request_id: int
    member_epoch: int
    heartbeat_interval_s: float
    assignment: Assignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRejected:
    """A heartbeat was refused, with its verdict; or the reason why a join was not sent (CONFLICT_CODE).

    `holder` is the member id that owns the instance id, if the broker's message names it (UNRELEASED).
    """

    request_id: int
    verdict: Verdict
    error: BrokerError
    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFailed:
    """A heartbeat got no answer: disconnected or timed out (`retriable`), or refused by the transport permanently.

    `is_sent`: it may have reached the coordinator. A join that was withdrawn because the member leaves did not.
    """

    request_id: int
    reason: str
    retriable: bool = True
    is_sent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribed:
    """ConsumerGroupDescribe answered: the holders of instance ids. A group that does not exist has none."""

    request_id: int
    holders: Mapping[str, Holder]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescribeFailed:
    """ConsumerGroupDescribe was refused (for example, not authorized) or got no answer."""

    request_id: int
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderChecked:
    """The holder of the instance id was checked. `is_dead`: there is proof that its process has ended."""

    request_id: int
    is_dead: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTimeoutLearned:
    """The group's session timeout (consumer.session.timeout.ms) in seconds; None: the broker does not report it."""

    session_timeout_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementsRead:
    """The announcements at the requested partitions; partitions without an announcement are left out."""

    request_id: int
    announcements: Mapping[TopicPartition, HandOverAnnouncement]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementsNotRead:
    """The announcements could not be read. `is_refused`: the brokers refuse permanently, for example without READ."""

    request_id: int
    error: BrokerError
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementWritten:
    """The announcement was written."""

    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncementNotWritten:
    """The announcement may not have been written. `is_refused`: the brokers refuse permanently."""

    request_id: int
    error: BrokerError
    is_refused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdsResolved:
    """Metadata answered: the names of the topic ids that are known; ids that are missing here stay unresolved."""

    names: Mapping[UUID, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsLookedUp:
    """Metadata answered: `names` exist, and `refused` cannot be described."""

    request_id: int
    names: frozenset[str]
    refused: Mapping[str, BrokerError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsNotLookedUp:
    """Metadata was refused, or did not answer."""

    request_id: int
    error: BrokerError


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOffsetsFetched:
    """The start of each partition: its committed offset, or that of `auto.offset.reset` if nothing is committed."""

    attempt: int
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOffsetsFailed:
    """The start offsets could not be fetched; never to be read as "no offset was committed".

    `rediscover`: the coordinator moved or its connection broke. `retriable` False: the broker refuses permanently.
    """

    attempt: int
    error: BrokerError
    retriable: bool
    rediscover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswered:
    """An OffsetCommit's answer: the worst verdict over its partitions, and each partition's error (None: committed)."""

    commit_id: int
    verdict: CommitVerdict
    errors: Mapping[TopicPartition, BrokerError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed:
    """An OffsetCommit got no answer."""

    commit_id: int
    reason: str
    retriable: bool = True


# ---- from the clock -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """The deadline of `next_deadline` has come (or earlier: the core compares `now` itself)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The machine was suspended for this time, which the member's clock does not count, and the coordinator's does."""

    seconds: float


#: Events that members of both protocols handle in the same way (`member`).
SharedEvent: TypeAlias = (
    Subscribed
    | Polled
    | StepFinished
    | PositionsReported
    | CommitRequested
    | AssignedByHand
    | AssignedIncrementally
    | LeaveRequested
    | CoordinatorFound
    | CoordinatorLookupFailed
    | CoordinatorLost
    | TopicsLookedUp
    | TopicsNotLookedUp
    | StartOffsetsFetched
    | StartOffsetsFailed
    | CommitAnswered
    | CommitFailed
    | TimePassed
    | Suspended
)
#: Events of a hand-over between two members (`consumer.hand_over`).
HandOverEvent: TypeAlias = (
    Warmed | AnnouncementsRead | AnnouncementsNotRead | AnnouncementWritten | AnnouncementNotWritten
)
#: Events that only a member of the consumer protocol handles (`consumer.protocol`).
ConsumerEvent: TypeAlias = (
    HeartbeatAnswered
    | HeartbeatRejected
    | HeartbeatFailed
    | GroupDescribed
    | GroupDescribeFailed
    | HolderChecked
    | SessionTimeoutLearned
    | TopicIdsResolved
    | HandOverEvent
)
Event: TypeAlias = SharedEvent | ConsumerEvent
