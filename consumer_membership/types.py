"""Value types that every room shares.

This is the lowest room: it imports no other one, and holds values only, no behaviour that could fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias
from uuid import UUID

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.text import speakable

#: The member epoch of a heartbeat that joins or rejoins (KIP-848, "Consumer Group Member Epoch").
JOIN_EPOCH = 0
#: The member epoch of a heartbeat with which a member leaves for good.
LEAVE_EPOCH = -1
#: The member epoch of a heartbeat with which a static member leaves and keeps its partitions until it returns.
LEAVE_STATIC_EPOCH = -2
#: Epoch and member id of an OffsetCommit that no member of the group makes (a consumer that assigns by hand).
NO_EPOCH = -1
NO_MEMBER_ID = ""

#: Seconds on a monotonic clock. The core is given it and never asks for it.
Instant: TypeAlias = float


class TopicIdPartition(NamedTuple):
    """A partition as the group protocol names it: by topic id, so that a topic made anew is another topic."""

    topic_id: UUID
    partition: int


class TopicPartition(NamedTuple):
    """A partition by the name of its topic: the partition type of this package.

    Two other types appear at the borders only. `TopicIdPartition` is what the coordinator assigns; membership and
    translation map it to names. `librdkafka.PartitionOffset` is confluent-kafka's `TopicPartition`, which also
    carries an offset: applications pass and receive it, and librdkafka's handle takes it. Its subclass
    `clients.outcomes.FailedPartition` carries an error as well.
    """

    topic: str
    partition: int


#: What a member owns or shall own.
Assignment: TypeAlias = frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """An offset to commit: the next record to read, with what belongs to it (OffsetCommit, KIP-320).

    `leader_epoch` is None where the leader's epoch of the last read record is not known; `metadata` is the
    application's own text.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPattern:
    """One subscribed pattern: `text` as the application wrote it, and what each protocol reads instead.

    `broker` is RE2/J and `member` Python's `re`, both for whole names; None: not in that language. `note` is what the
    application should know of it, `of_members_only` why it cannot be said to a broker.
    """

    text: str
    broker: str | None
    member: str | None
    note: str = ""
    of_members_only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What the application asked for: topic names, patterns for topic names, or both.

    Under the consumer protocol the broker matches the patterns, under the classic protocol the member does.
    `blacklisted` has the requested names that `topic.blacklist` excludes; they are not sent to the broker.
    """

    topics: frozenset[str] = frozenset()
    patterns: frozenset[TopicPattern] = frozenset()
    blacklisted: frozenset[str] = frozenset()

    @property
    def pattern(self) -> str | None:
        """The patterns as one of RE2/J, for whole names; None: there is none for brokers."""
        told = sorted(one.broker for one in self.patterns if one.broker is not None)
        if len(told) > 1:
            # Each in a group of its own: a flag such as (?i) must not reach beyond it.
            return "|".join(f"(?:{one})" for one in told)
        return told[0] if told else None

    def __bool__(self) -> bool:
        """Whether anything is subscribed at all."""
        return bool(self.topics) or bool(self.patterns) or bool(self.blacklisted)


class LeaveOption(Enum):
    """What becomes of the membership when a member goes (KIP-1092)."""

    #: A dynamic member leaves; a static one keeps its place until its session ends.
    DEFAULT = "default"
    #: The member leaves for good, a static one too.
    LEAVE = "leave"
    #: The member keeps its place until its session ends, a dynamic one too.
    REMAIN = "remain"


class ConflictPolicy(Enum):
    """What a static member does whose instance id another member holds: `group.instance.id.conflict.policy`."""

    #: The newest wins, as in KIP-345: release the holder on its behalf, then join; the former holder is fenced.
    TAKEOVER = "takeover"
    #: Try again until the holder left or its session ended.
    WAIT = "wait"
    #: End at once, as KIP-848 has it.
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A member that holds an instance id; epoch -2 says that it left for a while, and None that it is not known.

    `client_id` and `host` are empty where only the member id could be learnt.
    """

    member_id: str
    member_epoch: int | None = None
    client_id: str = ""
    host: str = ""

    def __str__(self) -> str:
        """`MEMBER (client CLIENT on HOST)`."""
        return f"{self.member_id} (client {self.client_id} on {self.host})" if self.host else self.member_id


class GroupProtocol(Enum):
    """The two rebalance protocols of Kafka, by the words of `group.protocol`."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """A broker as Metadata and FindCoordinator name it."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        """`HOST:PORT (id N)`, as an operator searches for it."""
        return f"{speakable(self.host)}:{self.port} (id {self.node_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerError:
    """An error code that a broker answered, with its name and its words, and what helps where that is known."""

    code: int
    name: str
    message: str = ""
    remedy: str = ""

    @property
    def words(self) -> str:
        """What is wrong, and what helps; the name where nothing more was said."""
        said = self.message or self.name
        return f"{said.rstrip('.')}; {self.remedy}" if self.remedy else said

    def __str__(self) -> str:
        """The same, with the code's name in front."""
        return f"{self.name}: {self.words}" if self.message else self.words


#: What a group has committed of each partition that was asked for: None is nothing, an error that it is not known.
CommittedOffsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | BrokerError | None]

#: Kafka's error codes that the core itself distinguishes.
ILLEGAL_GENERATION_CODE = 22
INCONSISTENT_PROTOCOL_CODE = 23
UNKNOWN_MEMBER_CODE = 25
UNSUPPORTED_VERSION_CODE = 35
GROUP_NOT_FOUND_CODE = 69
GROUP_FULL_CODE = 81
FENCED_INSTANCE_CODE = 82
UNRELEASED_INSTANCE_CODE = 111
INVALID_PATTERN_CODE = 128

#: Errors of this library's own, with librdkafka's numbers for them, so that front ends pass them on unchanged.
POLL_TIMEOUT_CODE = -147
ASSIGNMENT_LOST_CODE = -142
FATAL_CODE = -150
CONFLICT_CODE = -173
TIMED_OUT_CODE = -185
TRANSPORT_CODE = -195
WAIT_COORDINATOR_CODE = -180
