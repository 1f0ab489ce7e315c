"""How `GroupAdmin` reaches a cluster: by requests to brokers, or by calls of a cluster inside this process.

A cluster inside this process (`consumer_membership.testing`) registers its bootstrap address in `IN_PROCESS_ADMIN`. All
other addresses belong to brokers, to which `Cluster`, `GroupClient` and `ClusterClient` send requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

from consumer_membership.errors import TransportError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.runtime.network.cluster import BrokerRefusal
from consumer_membership.translation.descriptions import GroupDescription
from consumer_membership.translation.metadata import ClusterMetadata
from consumer_membership.translation.requests import MemberIdentity
from consumer_membership.translation.surveys import ListedGroup, OpenTransaction
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicPartition

AnswerT = TypeVar("AnswerT")
RequestFailure: TypeAlias = BrokerRefusal | TransportError
"""Why a broker returned no data."""
OffsetOrFailure: TypeAlias = int | BrokerRefusal | TransportError


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOfBroker:
    """The groups of one coordinator, or the error of its request."""

    broker: BrokerAddress
    groups: tuple[ListedGroup, ...] | RequestFailure


class ClusterRequests(Protocol):
    """The requests that any broker answers (`Cluster`)."""

    async def brokers(self, timeout_s: float | None = None) -> tuple[BrokerAddress, ...]:
        """Return the brokers of the cluster."""

    async def metadata(self, names: Iterable[str] | None, timeout_s: float | None = None) -> ClusterMetadata:
        """Return the brokers and the topics of these names (None: all)."""

    async def start_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetOrFailure]:
        """Return the offset of the oldest record of each partition."""

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetOrFailure]:
        """Return the end of each partition."""

    async def stable_offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetOrFailure]:
        """Return the last stable offset of each partition."""

    async def with_coordinator(
        self,
        group_id: str,
        what: str,
        timeout_s: float,
        request: Callable[[BrokerAddress, float], Awaitable[AnswerT]],
    ) -> AnswerT:
        """Return the result of `ask(coordinator, seconds left)`, retried while that may help."""


class GroupRequests(Protocol):
    """The requests to the coordinator of a group (`GroupClient`)."""

    async def describe_consumer_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """Describe the group of the consumer protocol."""

    async def describe_classic_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """Describe the group of the classic protocol."""

    async def remove_members(
        self,
        coordinator: BrokerAddress,
        group_id: str,
        members: Sequence[MemberIdentity],
        reason: str | None,
        timeout_s: float,
    ) -> tuple[BrokerError | None, ...]:
        """Remove these members; return the error of each, in their order (None: removed)."""

    async def all_committed(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """Return all committed offsets of the group."""


class SurveyRequests(Protocol):
    """The requests of which several brokers answer a part (`ClusterClient`)."""

    async def groups(self, timeout_s: float) -> tuple[GroupsOfBroker, ...]:
        """Return the groups that each broker lists."""

    async def open_transactions(
        self, found: ClusterMetadata, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> tuple[OpenTransaction, ...]:
        """Return the open transactions of these partitions."""

    async def broker_settings(self, broker: BrokerAddress, timeout_s: float) -> Mapping[str, str]:
        """Return the configuration of this broker."""

    async def group_settings(self, broker: BrokerAddress, group_id: str, timeout_s: float) -> Mapping[str, str]:
        """Return the configuration of this group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAccess:
    """The requests of one call."""

    cluster: ClusterRequests
    groups: GroupRequests
    surveys: SurveyRequests


#: Returns the access to a cluster inside this process, by its value of `bootstrap.servers`.
IN_PROCESS_ADMIN: dict[str, Callable[[], AdminAccess]] = {}
