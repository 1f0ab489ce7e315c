"""Which groups a cluster has: what each coordinator lists, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.admin.cluster_client import BrokerRefusal, ClusterClient, ListedGroup
from consumer_membership.errors import GroupError
from consumer_membership.types import BrokerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """The groups by group id, and why some brokers did not tell theirs: then groups may be missing."""

    groups: tuple[ListedGroup, ...]
    untold: Mapping[BrokerAddress, str]


async def listing(client: ClusterClient, timeout_s: float) -> GroupListing:
    """What each broker lists.

    Raises:
        GroupError: a broker refuses to say which brokers there are.
        TransportError: no broker answered.
    """
    try:
        answers = await client.groups(timeout_s)
    except BrokerRefusal as refusal:
        raise GroupError(f"listing groups was refused: {refusal.error}", refusal.error.code) from refusal
    groups = {
        group.group_id: group for answer in answers if isinstance(answer.groups, tuple) for group in answer.groups
    }
    untold = {answer.broker: str(answer.groups) for answer in answers if not isinstance(answer.groups, tuple)}
    return GroupListing(groups=tuple(groups[name] for name in sorted(groups)), untold=untold)
