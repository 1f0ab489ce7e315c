"""The texts for members, partitions and times in findings."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from consumer_membership.admin import MemberDescription
from consumer_membership.types import TopicPartition

#: How many partitions or members are named; the rest is counted.
_NAMED = 5
#: The state of a group without records.
NO_GROUP = "not found"


def member_name(member: MemberDescription) -> str:
    """Return how an operator finds the member: instance id or client id, host, and the id for `remove-members`."""
    name = f"instance {member.instance_id}" if member.instance_id else f"client {member.client_id or '-'}"
    return f"{name} on {member.host or 'unknown host'} (member {member.member_id})"


def partition_name(partition: TopicPartition) -> str:
    """Return the partition as text: `orders[3]`."""
    return f"{partition.topic}[{partition.partition}]"


def several(names: Iterable[str]) -> str:
    """Return the first names, and the number of the others."""
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def partitions_named(partitions: Iterable[TopicPartition]) -> str:
    """Return the first partitions in sorted order, and the number of the others."""
    return several(map(partition_name, sorted(partitions)))


def clock(seconds: float) -> str:
    """Return a time in UTC, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
