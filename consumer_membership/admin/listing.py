"""Merge the groups that the coordinators of a cluster list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.admin.access import SurveyRequests
from consumer_membership.admin.cluster_client import BrokerRefusal, ListedGroup
from consumer_membership.errors import GroupError
from consumer_membership.types import BrokerAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """The groups sorted by group id, and the errors of brokers whose groups are missing."""

    groups: tuple[ListedGroup, ...]
    errors: Mapping[BrokerAddress, str]


async def listing(client: SurveyRequests, timeout_s: float) -> GroupListing:
    """Return the groups of all brokers.

    Raises:
        GroupError: A broker rejected the metadata request.
        TransportError: No broker responded.
    """
    try:
        answers = await client.groups(timeout_s)
    except BrokerRefusal as refusal:
        raise GroupError(f"listing groups failed: {refusal.error}", refusal.error.code) from refusal
    groups = {
        group.group_id: group for answer in answers if isinstance(answer.groups, tuple) for group in answer.groups
    }
    errors = {answer.broker: str(answer.groups) for answer in answers if not isinstance(answer.groups, tuple)}
    return GroupListing(groups=tuple(groups[name] for name in sorted(groups)), errors=errors)
