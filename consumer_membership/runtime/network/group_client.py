"""A group's coordinator, asked about the group by anybody: a member of it, or somebody who operates it.

Each method asks once and says whether another attempt may help: the core decides when a member tries again, and
`Cluster.with_coordinator` tries for whoever has no such schedule of its own.
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

#: The group's coordinator is another broker by now, or not ready to say.
_ELSEWHERE = frozenset({ErrorCode.not_coordinator.value, ErrorCode.coordinator_not_available.value})


class GroupClient:
    """Questions about groups over the connections of one cluster, which is its owner's to close.

    Each raises BrokerRefusal where the coordinator refuses all of it, and TransportError where no answer comes within
    `timeout_s`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def describe_consumer_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """The group of the consumer protocol; GROUP_ID_NOT_FOUND refuses one that is not, or of another protocol."""
        message = await self._ask(
            coordinator, timeout_s, lambda versions: requests.describe_consumer_group(versions, group_id)
        )
        return _raise_if_error(descriptions.consumer_group_description(message, group_id))

    async def describe_classic_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """The group of the classic protocol; GROUP_ID_NOT_FOUND refuses one that is not, or of another protocol."""
        message = await self._ask(
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
        """Have these members removed; what became of each, in their order (None: removed).

        A refusal has removed nobody; without an answer any of them may have been removed.
        """
        message = await self._ask(
            coordinator, timeout_s, lambda versions: requests.remove_members(versions, group_id, members, reason)
        )
        return _raise_if_error(answers.removals(message, group_id, members))

    async def all_committed(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """Everything that the group committed and the asker may see; nothing for a group that does not exist."""
        message = await self._ask(coordinator, timeout_s, lambda versions: requests.all_committed(versions, group_id))
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
        """The committed offset of each partition, None where nothing is committed.

        `require_stable` has an open transaction on a partition be a refusal (KIP-447). One partition's error refuses
        all; a refusal is never to be read as "nothing committed".
        """
        asked = tuple(partitions)
        if not asked:
            return {}
        build = _offset_fetch(group_id, asked, member_id, member_epoch, require_stable=require_stable)
        fetched = answers.offset_fetch(await self._ask(coordinator, timeout_s, build), group_id, asked)
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
        """As `fetch_committed`, for an application: each partition has its own answer.

        An open transaction on a partition is a refusal, since waiting helps. An answer that does not come in time ends
        the connection, as a heartbeat's does: who asks as nobody's member has no heartbeats that would.
        """
        asked = tuple(partitions)
        build = _offset_fetch(group_id, asked, member_id, member_epoch, require_stable=require_stable)
        message = await self._ask(coordinator, timeout_s, build, ends_connection=True)
        fetched = answers.offset_fetch_by_partition(message, group_id, asked)
        if isinstance(fetched, BrokerError):
            # A member's heartbeat says what becomes of it, and then it asks again; who is no member hears of nothing.
            is_passing = is_retriable(fetched.code) or (
                member_id != NO_MEMBER_ID and fetch_verdict(fetched.code) is not FetchVerdict.FINAL
            )
            raise BrokerRefusal(fetched, retriable=is_passing)
        for found in fetched.values():
            if isinstance(found, BrokerError) and found.code == ErrorCode.unstable_offset_commit:
                raise BrokerRefusal(found, retriable=True)
        return fetched

    async def _ask(
        self,
        coordinator: BrokerAddress,
        timeout_s: float,
        build: Callable[[BrokerVersions], Call],
        *,
        ends_connection: bool = False,
    ) -> Message:
        """The answer; that the broker offers no such API is a refusal for good (UNSUPPORTED_VERSION).

        An answer that is late says nothing about the connection, which may be a member's, unless `ends_connection`.
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
    """The answer, unless it is an error."""
    if isinstance(answer, BrokerError):
        raise BrokerRefusal(answer, retriable=is_retriable(answer.code), rediscover=answer.code in _ELSEWHERE)
    return answer
