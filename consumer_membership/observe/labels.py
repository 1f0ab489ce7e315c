"""Members, partitions and times as findings name them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from consumer_membership.admin import MemberDescription
from consumer_membership.types import TopicPartition

#: How many partitions or members are named before the rest is counted.
_NAMED = 5
#: The state of a group of which nothing is written down.
NO_GROUP = "not there"


def member_name(member: MemberDescription) -> str:
    """How an operator finds it: its instance id or client id, its host, and the id by which it is removed."""
    who = f"instance {member.instance_id}" if member.instance_id else f"client {member.client_id or '-'}"
    return f"{who} on {member.host or 'unknown host'} (member {member.member_id})"


def partition_name(partition: TopicPartition) -> str:
    """`orders[3]`."""
    return f"{partition.topic}[{partition.partition}]"


def several(names: Iterable[str]) -> str:
    """The first of them, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return ", ".join(listed[:_NAMED]) + more


def partitions_named(partitions: Iterable[TopicPartition]) -> str:
    """The first of them, sorted."""
    return several(map(partition_name, sorted(partitions)))


def clock(seconds: float) -> str:
    """A time in UTC, to the second."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
