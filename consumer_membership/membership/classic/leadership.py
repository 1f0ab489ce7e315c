"""What a group's leader does between JoinGroup and SyncGroup: look at the topics, and have the assignor compute.

A member with a pattern, leader or not, asks for topics, too. And whose assignor wants to hear of its assignment has it
told, between SyncGroup and the taking over.

| effect | performed by | answered with |
|---|---|---|
| DescribeTopics | network thread | TopicsDescribed or TopicsNotDescribed |
| ComputeAssignment | a thread of its own, for it may take its time | AssignmentComputed or AssignmentFailed |
| NotifyAssignor | a thread of its own | AssignorNotified or AssignmentFailed |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from consumer_membership.membership.classic.assignor import Assigned, Topics
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.types import BrokerError, TopicPartition


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
    """Tell the assignor of this name, which is an `AssignmentObserver`, what its member got."""

    request_id: int
    generation: int
    assignor: str
    assignment: Assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDescribed:
    """Metadata answered; topics that do not exist are absent, and those of which nothing may be told, by `refused`."""

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
    """The assignor has heard of the assignment."""

    request_id: int


LeaderEffect: TypeAlias = DescribeTopics | ComputeAssignment | NotifyAssignor
LeaderEvent: TypeAlias = TopicsDescribed | TopicsNotDescribed | AssignmentComputed | AssignmentFailed | AssignorNotified
