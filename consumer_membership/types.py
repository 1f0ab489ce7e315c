"""Value types that every package shares.

This is the lowest module: it imports no other package, and contains values only.
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
#: The member epoch of a heartbeat with which a member leaves permanently.
LEAVE_EPOCH = -1
#: The member epoch of a heartbeat with which a static member leaves and keeps its partitions until it returns.
LEAVE_STATIC_EPOCH = -2
#: Epoch and member id of an OffsetCommit of a consumer that is not a member (it assigns by hand).
NO_EPOCH = -1
NO_MEMBER_ID = ""

#: Seconds on a monotonic clock. The core receives it and never reads a clock.
Instant: TypeAlias = float


class TopicIdPartition(NamedTuple):
    """A partition as the group protocol identifies it: by topic id, so that a recreated topic is another topic."""

    topic_id: UUID
    partition: int


class TopicPartition(NamedTuple):
    """A partition by the name of its topic: the partition type of this package.

    Two other types appear only at the borders. `TopicIdPartition` is what the coordinator assigns; membership and
    translation map it to names. `librdkafka.PartitionOffset` is confluent-kafka's `TopicPartition`, which also contains
    an offset: applications pass and receive it, and librdkafka's handle takes it. Its subclass
    `clients.outcomes.FailedPartition` also contains an error.
    """

    topic: str
    partition: int


#: The partitions of a member.
Assignment: TypeAlias = frozenset[TopicIdPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    """An offset to commit: the next record to read, with leader epoch and metadata (OffsetCommit, KIP-320).

    `leader_epoch` is None if the leader epoch of the last read record is unknown; `metadata` is a text of the
    application.
    """

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPattern:
    """One subscribed pattern: `text` as the application wrote it, and its translation for each protocol.

    `broker` is RE2/J and `member` Python's `re`, both for whole names; None: it has no translation. `note` is a warning
    for the application, `of_members_only` the reason why a broker cannot evaluate it.
    """

    text: str
    broker: str | None
    member: str | None
    note: str = ""
    of_members_only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The subscription of the application: topic names, patterns for topic names, or both.

    Under the consumer protocol the broker matches the patterns, under the classic protocol the member does.
    `blacklisted` has the requested names that `topic.blacklist` excludes; they are not sent to the broker.
    """

    topics: frozenset[str] = frozenset()
    patterns: frozenset[TopicPattern] = frozenset()
    blacklisted: frozenset[str] = frozenset()

    @property
    def pattern(self) -> str | None:
        """The patterns as one RE2/J pattern, for whole names; None: there is none for brokers."""
        found = sorted(one.broker for one in self.patterns if one.broker is not None)
        if len(found) > 1:
            # Each in its own group: a flag such as (?i) must not affect the others.
            return "|".join(f"(?:{one})" for one in found)
        return found[0] if found else None

    def __bool__(self) -> bool:
        """Whether anything is subscribed at all."""
        return bool(self.topics) or bool(self.patterns) or bool(self.blacklisted)


class LeaveOption(Enum):
    """What happens to the membership when a consumer closes (KIP-1092)."""

    #: A dynamic member leaves; a static one keeps its partitions until its session ends.
    DEFAULT = "default"
    #: The member leaves permanently, also a static one.
    LEAVE = "leave"
    #: The member stays in the group until its session ends, also a dynamic one.
    REMAIN = "remain"


class ConflictPolicy(Enum):
    """The action if another member holds the instance id: `group.instance.id.conflict.policy`."""

    #: The newest wins, as in KIP-345: release the holder on its behalf, then join; the former holder is fenced.
    TAKEOVER = "takeover"
    #: Release the holder only with proof that its process has ended; otherwise wait, without end.
    TAKEOVER_WHEN_DEAD = "takeover-when-dead"
    #: Try again until the holder left or its session ended.
    WAIT = "wait"
    #: End at once, as KIP-848 specifies.
    FAIL = "fail"
    #: Request the id from the holder once this member is ready, and wait until the holder has released it.
    HAND_OVER = "hand-over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A member that holds an instance id; epoch -2 means that it left temporarily, and None that it is unknown.

    `client_id` and `host` are empty if only the member id is known. `partitions` are its assigned partitions, if they
    were requested.
    """

    member_id: str
    member_epoch: int | None = None
    client_id: str = ""
    host: str = ""
    partitions: frozenset[TopicPartition] = frozenset()

    def __str__(self) -> str:
        """`MEMBER (client CLIENT on HOST)`."""
        return f"{self.member_id} (client {self.client_id} on {self.host})" if self.host else self.member_id


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverAnnouncement:
    """A request for a hand-over: `successor` is ready to take `instance_id` over from `predecessor` (both member ids).

    It is a hint: the coordinator decides which member holds the instance id.
    """

    predecessor: str
    successor: str
    instance_id: str


class GroupProtocol(Enum):
    """The two rebalance protocols of Kafka, with the values of `group.protocol`."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAddress:
    """A broker as Metadata and FindCoordinator report it."""

    node_id: int
    host: str
    port: int

    def __str__(self) -> str:
        """`HOST:PORT (id N)`, as an operator searches for it."""
        return f"{speakable(self.host)}:{self.port} (id {self.node_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerError:
    """An error code of a broker's response, with its name and message, and the fix if one is known."""

    code: int
    name: str
    message: str = ""
    remedy: str = ""

    @property
    def description(self) -> str:
        """The message and the fix; the name if there is no message."""
        text = self.message or self.name
        return f"{text.rstrip('.')}; {self.remedy}" if self.remedy else text

    def __str__(self) -> str:
        """`NAME: message; fix`."""
        return f"{self.name}: {self.description}" if self.message else self.description


#: The committed offset of each requested partition: None means that nothing is committed, an error that it is unknown.
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

#: Errors of this package itself, with librdkafka's numbers, so that front ends pass them on unchanged.
POLL_TIMEOUT_CODE = -147
ASSIGNMENT_LOST_CODE = -142
FATAL_CODE = -150
CONFLICT_CODE = -173
TIMED_OUT_CODE = -185
TRANSPORT_CODE = -195
WAIT_COORDINATOR_CODE = -180
