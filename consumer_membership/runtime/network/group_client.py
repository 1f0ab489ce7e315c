"""The brokers of a cluster, asked about a group by anybody: a member of it, or somebody who operates it.

Each method asks once and says whether another attempt may help: the core decides when a member tries again, and
`with_coordinator` tries for whoever has no such schedule of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.cluster_client import BrokerRefusal, ClusterClient, negotiated
from consumer_membership.runtime.network.connections import Purpose
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicPartition
from consumer_membership.wire import answers, descriptions, requests
from consumer_membership.wire.codec import Call, ErrorCode, Message
from consumer_membership.wire.descriptions import GroupDescription, MemberDescription
from consumer_membership.wire.requests import MemberIdentity
from consumer_membership.wire.verdicts import is_retriable
from consumer_membership.wire.versions import BrokerVersions

__all__ = ["BrokerRefusal", "GroupClient", "GroupDescription", "MemberDescription", "MemberIdentity"]

AnswerT = TypeVar("AnswerT")

#: The group's coordinator is another broker by now, or not ready to say.
_ELSEWHERE = frozenset({ErrorCode.not_coordinator.value, ErrorCode.coordinator_not_available.value})


class GroupClient(ClusterClient):
    """The brokers of one cluster; every method belongs to the loop that called the first one."""

    async def find_coordinator(self, group_id: str, timeout_s: float | None = None) -> BrokerAddress:
        """The group's coordinator, as one broker names it now.

        Raises:
            BrokerRefusal: the broker knows none, or does not tell; retriable where waiting may help.
            TransportError: no broker could be reached, or the one that was asked did not answer within `timeout_s`
                (at most, and without it: socket.timeout.ms); its connection is given up then.
        """
        connection = await self._any()
        call = negotiated(connection, lambda versions: requests.find_coordinator(versions, group_id))
        entity = await self._ask(connection, call, self._patience_s(timeout_s))
        found = answers.find_coordinator(entity, group_id)
        if isinstance(found, BrokerError):
            raise BrokerRefusal(found, retriable=is_retriable(found.code))
        self._connections.vouch(found)
        return found

    async def with_coordinator(
        self,
        group_id: str,
        what: str,
        timeout_s: float,
        ask: Callable[[BrokerAddress, float], Awaitable[AnswerT]],
        lookup_s: float | None = None,
    ) -> AnswerT:
        """What `ask(coordinator, seconds left)` answers, asked again with backoff while that may help.

        The coordinator is looked up before each attempt: it may have moved, and the lookup costs a round trip. A broker
        that does not name it within `lookup_s` (None: socket.timeout.ms) is asked on a new connection.

        Raises:
            BrokerRefusal: a refusal for good, or the last one within `timeout_s`.
            TransportError: no answer within `timeout_s`.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s

        async def attempt() -> AnswerT:
            coordinator = await self.find_coordinator(group_id, lookup_s)
            return await ask(coordinator, deadline - clock())

        return await self._persist(what, timeout_s, attempt)

    async def describe_consumer_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """The group of the consumer protocol (KIP-848) as its coordinator knows it.

        Raises:
            BrokerRefusal: GROUP_ID_NOT_FOUND where there is no such group, or a classic one; any other refusal.
            TransportError: no answer.
        """
        entity = await self._ask_coordinator(
            coordinator, timeout_s, lambda versions: requests.describe_consumer_group(versions, group_id)
        )
        return _granted(descriptions.consumer_group_description(entity, group_id))

    async def describe_classic_group(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> GroupDescription:
        """The group of the classic protocol as its coordinator knows it.

        Raises:
            BrokerRefusal: GROUP_ID_NOT_FOUND where there is no such group, or one of another protocol; any other
                refusal.
            TransportError: no answer.
        """
        entity = await self._ask_coordinator(
            coordinator, timeout_s, lambda versions: requests.describe_classic_group(versions, group_id)
        )
        return _granted(descriptions.classic_group_description(entity, group_id))

    async def remove_members(
        self,
        coordinator: BrokerAddress,
        group_id: str,
        members: Sequence[MemberIdentity],
        reason: str | None,
        timeout_s: float,
    ) -> tuple[BrokerError | None, ...]:
        """Have these members removed; what became of each, in their order (None: removed).

        Raises:
            BrokerRefusal: the coordinator refused all of it, and removed nobody.
            TransportError: no answer; any of them may have been removed.
        """
        entity = await self._ask_coordinator(
            coordinator, timeout_s, lambda versions: requests.remove_members(versions, group_id, members, reason)
        )
        return _granted(answers.removals(entity, group_id, members))

    async def all_committed(
        self, coordinator: BrokerAddress, group_id: str, timeout_s: float
    ) -> Mapping[TopicPartition, OffsetAndMetadata | BrokerError]:
        """Everything that the group committed and the asker may see; nothing for a group that does not exist.

        Raises:
            BrokerRefusal: the coordinator refused.
            TransportError: no answer.
        """
        entity = await self._ask_coordinator(
            coordinator, timeout_s, lambda versions: requests.all_committed(versions, group_id)
        )
        return _granted(answers.all_committed(entity, group_id))

    async def group_config(self, group_id: str, timeout_s: float) -> Mapping[str, str]:
        """The group's session timeout and heartbeat interval, by `wire.requests.GROUP_CONFIG_KEYS`.

        The broker's defaults where the group has no setting of its own; it need not exist. Keys that the broker does
        not know are absent. Needs the right DESCRIBE_CONFIGS on the group.

        Raises:
            BrokerRefusal: the broker refused.
            TransportError: no broker could be reached, or none answered within `timeout_s`.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._any()
        except TimeoutError as error:
            raise TransportError(f"No broker could be reached within {timeout_s:.3g} s") from error
        call = negotiated(connection, lambda versions: requests.describe_group_config(versions, group_id))
        entity = await self._ask(connection, call, deadline - clock())
        return _granted(answers.group_config(entity, group_id))

    async def end_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | BrokerRefusal | TransportError]:
        """The end of each partition (its high watermark), or why it is not known; asks each leader once.

        Unlike `list_offsets`, one partition without a leader does not keep the others back.

        Raises:
            BrokerRefusal, TransportError: nobody told who leads what.
        """
        if not partitions:
            return {}
        return await self._ask_leaders(dict.fromkeys(partitions, requests.LATEST_TIMESTAMP), read_committed=False)

    async def _ask_coordinator(
        self,
        coordinator: BrokerAddress,
        timeout_s: float,
        build: Callable[[BrokerVersions], Call],
        *,
        ends_connection: bool = False,
    ) -> Message:
        """One request on the group's connection; connecting takes of its time.

        As with commits an answer that is late says nothing about the connection, which may be a member's, unless
        `ends_connection`.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        connection = await self._connections.get(Purpose.GROUP, coordinator, timeout_s)
        call = negotiated(connection, build)
        left_s = deadline - clock()
        return await (self._ask(connection, call, left_s) if ends_connection else connection.request(call, left_s))


def _granted(answer: AnswerT | BrokerError) -> AnswerT:
    """The answer, unless it is an error."""
    if isinstance(answer, BrokerError):
        raise BrokerRefusal(answer, retriable=is_retriable(answer.code), rediscover=answer.code in _ELSEWHERE)
    return answer
