"""What is the matter with a group: the cause in words, what shows it, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Urgency(Enum):
    """How much it matters, the most first."""

    #: Something is not read, and will not be by itself.
    CRITICAL = "critical"
    #: It is read later than it could be, or will soon not be.
    WARNING = "warning"
    #: Worth knowing.
    NOTE = "note"


class Cause(Enum):
    """Every cause that the doctor knows, in the order in which they explain each other.

    What stands first makes what stands behind it look as it does: a partition without a leader explains a member that
    does not commit. Of two findings of the same urgency the one whose cause stands first here is told first.
    """

    GROUP_FORBIDDEN = "group may not be described"
    COORDINATOR_UNAVAILABLE = "coordinator unavailable"
    NO_SUCH_GROUP = "no such group"
    OTHER_KIND = "no group of consumers"
    TOPIC_FORBIDDEN = "topic may not be described"
    TOPIC_MISSING = "topic does not exist"
    PATTERN_WITHOUT_TOPIC = "pattern matches no topic"
    PARTITION_OFFLINE = "partition without leader"
    OFFSET_BEYOND_END = "committed offset beyond the end"
    OFFSET_BEFORE_START = "committed offset before the start"
    OPEN_TRANSACTION = "open transaction"
    REBALANCE_STORM = "rebalance after rebalance"
    STUCK_REBALANCE = "rebalance does not end"
    STALE_TARGET = "stale target assignment"
    STATIC_GHOST = "static member is away"
    NO_MEMBERS = "nobody in the group"
    READ_WITHOUT_MEMBERS = "read without members"
    NOT_SUBSCRIBED = "nobody subscribes to the topic"
    NOT_ASSIGNED = "nobody has the partition"
    NEVER_COMMITTED = "member does not commit"
    MEMBER_STANDS = "member stands still"
    PARTITION_STANDS = "partition stands still"
    TOO_SLOW = "slower than it is written to"
    GROUP_FULL = "group is full"
    CONVERSION_UNFINISHED = "conversion not finished"
    MIXED_SUBSCRIPTIONS = "members subscribe to different topics"
    TOO_MANY_MEMBERS = "more members than partitions"
    SKEWED_ASSIGNMENT = "uneven assignment"
    SKEWED_LAG = "one partition has the lag"
    UNREADABLE_MEMBER = "member cannot be read"
    SHORT_SESSION = "session is short for its heartbeats"
    OFFSETS_EXPIRE = "offsets will expire"
    TOPIC_DELETED = "offsets of a deleted topic"
    CANNOT_BE_CONVERTED = "classic group stays classic"
    UNTOLD = "something may not be seen"
    WELL = "nothing found"


_CAUSES, _URGENCIES = tuple(Cause), tuple(Urgency)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinding:
    """One thing that is the matter: what it is, by which facts that is seen, and what helps."""

    urgency: Urgency
    cause: Cause
    #: The partition, member or topic that it is about.
    subject: str
    explanation: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""


def ranked(findings: Iterable[GroupFinding]) -> tuple[GroupFinding, ...]:
    """The most urgent first, and of those the one that explains the others."""
    return tuple(sorted(findings, key=lambda one: (_URGENCIES.index(one.urgency), _CAUSES.index(one.cause))))
