"""Requests to a group's coordinator about the group, from a member or from an operator.

Each method sends one request, and its failure reports whether a retry may help. The core decides when a member retries;
for callers without such a schedule `Cluster.with_coordinator` retries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from consumer_membership.errors import UnsupportedProtocolError
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster, unsupported
from consumer_membership.translation import answers, descriptions, requests
from consumer_membership.translation.descriptions import GroupDescription, MemberDescription
from consumer_membership.translation.requests import MemberIdentity
from consumer_membership.translation.verdicts import FetchVerdict, fetch_verdict, is_retriable
from consumer_membership.types import (
    NO_MEMBER_ID,
    BrokerAddress,
    BrokerError,
    CommittedOffsets,
    OffsetAndMetadata,
    TopicPartition,
)
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.error_codes import ErrorCode
from consumer_membership.wire.versions import BrokerVersions

__all__ = ["BrokerRefusal", "Cluster", "GroupClient", "GroupDescription", "MemberDescription", "MemberIdentity"]

AnswerT = TypeVar("AnswerT")

#: The group's coordinator is another broker by now, or is not available yet.
_ELSEWHERE = frozenset({ErrorCode.not_coordinator.value, ErrorCode.coordinator_not_available.value})


class GroupClient:
    """Requests about groups over the connections of one cluster, which the caller closes.

    Each raises BrokerRefusal if the coordinator refuses the whole request, and TransportError if no answer comes within
    `timeout_s`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def describe_consumer_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """Describe the group of the consumer protocol; GROUP_ID_NOT_FOUND: this protocol has no such group."""
        message = await self._call(
            coordinator, timeout_s, lambda versions: requests.describe_consumer_group(versions, group_id)
        )
        return _raise_if_error(descriptions.consumer_group_description(message, group_id))

    async def describe_classic_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """Describe the group of the classic protocol; GROUP_ID_NOT_FOUND: this protocol has no such group."""
        message = await self._call(
            coordinator, timeout_s, lambda versions: requests.describe_classic_group(versions, group_id)
        )
        return _raise_if_error(descriptions.classic_group_description(message, group_id))

    async def remove_members(
        self,
        coordinator: BrokerAddress,
        group_id: str,
        members: Sequence[MemberIdentity],
        reason: str | None,
        timeout_s: float,
    ) -> tuple[BrokerError | None, ...]:
        """Remove these members; return the error of each, in their order (None: removed).

        After a refusal no member is removed; without a response any of them may have been removed.
        """
        message = await self._call(
            coordinator, timeout_s, lambda versions: requests.remove_members(versions, group_id, members, reason)
        )
        return _raise_if_error(answers.removals(message, group_id, members))

    async def all_committed(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """All committed offsets of the group that this client may see; empty if the group does not exist."""
        message = await self._call(coordinator, timeout_s, lambda versions: requests.all_committed(versions, group_id))
        return _raise_if_error(answers.all_committed(message, group_id))

    async def fetch_committed(
        self,
        coordinator: BrokerAddress,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        member_id: str,
        member_epoch: int,
        require_stable: bool,
        timeout_s: float,
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, None if there is none.

        With `require_stable`, an open transaction on a partition raises BrokerRefusal (KIP-447). So does any error of
        one partition; a refusal never means "no committed offset".
        """
        requested = tuple(partitions)
        if not requested:
            return {}
        build = _offset_fetch(group_id, requested, member_id, member_epoch, require_stable=require_stable)
        fetched = answers.offset_fetch(await self._call(coordinator, timeout_s, build), group_id, requested)
        if isinstance(fetched, BrokerError):
            verdict = fetch_verdict(fetched.code)
            raise BrokerRefusal(
                fetched, retriable=verdict is not FetchVerdict.FINAL, rediscover=verdict is FetchVerdict.REDISCOVER
            )
        return fetched

    async def committed_by_partition(
        self,
        coordinator: BrokerAddress,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        member_id: str,
        member_epoch: int,
        require_stable: bool,
        timeout_s: float,
    ) -> CommittedOffsets:
        """As `fetch_committed`, for an application: each partition has its own result.

        An open transaction on a partition raises a retriable BrokerRefusal, since waiting helps. A response that does
        not come in time ends the connection, like a heartbeat's: a client that is not a member has no heartbeats that
        would end it.
        """
        requested = tuple(partitions)
        build = _offset_fetch(group_id, requested, member_id, member_epoch, require_stable=require_stable)
        message = await self._call(coordinator, timeout_s, build, ends_connection=True)
        fetched = answers.offset_fetch_by_partition(message, group_id, requested)
        if isinstance(fetched, BrokerError):
            # A member's heartbeat brings its new epoch, and then a retry helps; a client that is not a member has no
            # epoch.
            is_passing = is_retriable(fetched.code) or (
                member_id != NO_MEMBER_ID and fetch_verdict(fetched.code) is not FetchVerdict.FINAL
            )
            raise BrokerRefusal(fetched, retriable=is_passing)
        for found in fetched.values():
            if isinstance(found, BrokerError) and found.code == ErrorCode.unstable_offset_commit:
                raise BrokerRefusal(found, retriable=True)
        return fetched

    async def _call(
        self,
        coordinator: BrokerAddress,
        timeout_s: float,
        build: Callable[[BrokerVersions], Call],
        *,
        ends_connection: bool = False,
    ) -> Message:
        """Return the answer; if the broker lacks the API, raise a permanent refusal (UNSUPPORTED_VERSION).

        A late answer does not close the connection, which may be a member's, unless `ends_connection`.
        """
        try:
            return await self.cluster.coordinator_call(coordinator, build, timeout_s, ends_connection=ends_connection)
        except UnsupportedProtocolError as error:
            raise unsupported(error) from error


def _offset_fetch(
    group_id: str, partitions: Sequence[TopicPartition], member_id: str, member_epoch: int, *, require_stable: bool
) -> Callable[[BrokerVersions], Call]:
    return lambda versions: requests.offset_fetch(
        versions, group_id, partitions, member_id=member_id, member_epoch=member_epoch, require_stable=require_stable
    )


def _raise_if_error(answer: AnswerT | BrokerError) -> AnswerT:
    """Return the answer, or raise its error."""
    if isinstance(answer, BrokerError):
        raise BrokerRefusal(answer, retriable=is_retriable(answer.code), rediscover=answer.code in _ELSEWHERE)
    return answer
