"""The findings of a diagnosis: cause, severity, evidence and fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class FindingSeverity(Enum):
    """The severity of a finding, the most severe first."""

    #: Records are not consumed, and this does not change without intervention.
    CRITICAL = "critical"
    #: Records are consumed late, or will soon not be consumed.
    WARNING = "warning"
    #: Information without an effect on consumption.
    INFO = "info"


class Cause(Enum):
    """Every cause that the doctor knows, root causes first.

    An earlier cause can explain a later one: a partition without a leader explains a member that does not commit. Of
    two findings with equal severity, the one with the earlier cause is printed first. The lower-case names are stable:
    they are the values of `cause` in the JSON output.
    """

    GROUP_AUTHORIZATION_FAILED = "no permission to describe the group"
    COORDINATOR_UNAVAILABLE = "group coordinator is unavailable"
    GROUP_NOT_FOUND = "group does not exist"
    UNSUPPORTED_GROUP_TYPE = "not a consumer group"
    TOPIC_AUTHORIZATION_FAILED = "no permission to describe the topic"
    TOPIC_MISSING = "topic does not exist"
    PATTERN_WITHOUT_TOPIC = "pattern matches no topic"
    PARTITION_OFFLINE = "partition has no leader"
    OFFSET_BEYOND_END = "committed offset is beyond the end"
    OFFSET_BEFORE_START = "committed offset is before the start"
    OPEN_TRANSACTION = "open transaction"
    REBALANCE_STORM = "repeated rebalances"
    STUCK_REBALANCE = "rebalance does not finish"
    STALE_TARGET = "stale target assignment"
    STATIC_MEMBER_AWAY = "static member is away"
    NO_MEMBERS = "group has no members"
    COMMITS_WITHOUT_MEMBERS = "offsets are committed without members"
    TOPIC_NOT_SUBSCRIBED = "no member subscribes to the topic"
    PARTITION_UNASSIGNED = "partition has no owner"
    COMMIT_HELD_BACK = "one record holds back the committed offset"
    NEVER_COMMITTED = "member has never committed"
    MEMBER_STALLED = "member is stalled"
    PARTITION_STALLED = "partition is stalled"
    TOO_SLOW = "consumption is slower than production"
    GROUP_FULL = "group is full"
    CONVERSION_UNFINISHED = "members use different protocols"
    MIXED_SUBSCRIPTIONS = "members subscribe to different topics"
    TOO_MANY_MEMBERS = "more members than partitions"
    SKEWED_ASSIGNMENT = "uneven assignment"
    SKEWED_LAG = "one partition has most of the lag"
    UNREADABLE_MEMBER = "member metadata cannot be decoded"
    SHORT_SESSION = "session timeout is too short"
    OFFSETS_EXPIRE = "offsets will expire"
    TOPIC_DELETED = "offsets of a deleted topic"
    CONVERSION_DISABLED = "classic group cannot be converted"
    INCOMPLETE_DATA = "some data could not be read"
    HEALTHY = "no problem found"


_CAUSES, _URGENCIES = tuple(Cause), tuple(FindingSeverity)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFinding:
    """One finding: its cause and severity, an explanation, the evidence, and the fix."""

    severity: FindingSeverity
    cause: Cause
    #: The partition, member, topic or group that the finding is about.
    subject: str
    explanation: str
    evidence: tuple[str, ...] = ()
    remedy: str = ""


def ranked(findings: Iterable[GroupFinding]) -> tuple[GroupFinding, ...]:
    """Return the findings, the most severe first; with equal severity, root causes first."""
    return tuple(sorted(findings, key=lambda one: (_URGENCIES.index(one.severity), _CAUSES.index(one.cause))))
