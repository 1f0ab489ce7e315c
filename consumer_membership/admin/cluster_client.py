"""Send administrative requests that are not about one group to all brokers that may have a part of the response.

A broker that does not respond does not delay the others: its part is missing, and the result contains the reason.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from consumer_membership.admin.access import GroupsOfBroker, RequestFailure
from consumer_membership.errors import TransportError, UnsupportedProtocolError
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster, unsupported
from consumer_membership.runtime.network.connections import Purpose
from consumer_membership.translation import surveys
from consumer_membership.translation.metadata import ClusterMetadata
from consumer_membership.translation.surveys import ListedGroup, OpenTransaction, TransactionState
from consumer_membership.translation.verdicts import is_retriable
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.versions import BrokerVersions

__all__ = ["BrokerRefusal", "ClusterClient", "ClusterMetadata", "ListedGroup", "OpenTransaction"]

AnswerT = TypeVar("AnswerT")


class ClusterClient:
    """Sends requests to the brokers of one cluster; the owner of `Cluster` closes the connections."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def groups(self, timeout_s: float) -> tuple[GroupsOfBroker, ...]:
        """Return the groups that each broker lists.

        Raises:
            BrokerRefusal, TransportError: The brokers of the cluster are unknown.
        """
        brokers = await self._cluster.brokers(timeout_s)

        async def list_groups_of(broker: BrokerAddress) -> GroupsOfBroker:
            try:
                message = await self._call(broker, surveys.list_groups, timeout_s)
                found: tuple[ListedGroup, ...] | RequestFailure = _granted(surveys.listed_groups(message))
            except (BrokerRefusal, TransportError) as error:
                found = error
            return GroupsOfBroker(broker=broker, groups=found)

        return tuple(await asyncio.gather(*map(list_groups_of, brokers)))

    async def open_transactions(
        self, found: ClusterMetadata, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> tuple[OpenTransaction, ...]:
        """Return the open transactions of these partitions with the data of their coordinators, the oldest first.

        Requires READ on the topics. A transaction that may not be described has no transactional id.

        Raises:
            BrokerRefusal, TransportError: The request to a partition leader failed.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for one in partitions:
            topic = found.topics.get(one.topic)
            partition = None if topic is None else topic.partitions.get(one.partition)
            leader = None if partition is None else partition.leader
            if leader is not None and leader in found.brokers:
                by_leader[leader].append(one)
        opened: list[OpenTransaction] = []
        for node_id, share in by_leader.items():
            message = await self._call(found.brokers[node_id], _producers_of(share), timeout_s)
            for of_partition in surveys.producers(message).values():
                opened += _granted(of_partition)
        if not opened:
            return ()
        named = await asyncio.gather(
            *(self._transactions_of(broker, opened, timeout_s) for broker in found.brokers.values())
        )
        known = {producer: facts for of_broker in named for producer, facts in of_broker.items()}
        return tuple(_completed(one, known[one.producer_id]) if one.producer_id in known else one for one in opened)

    async def _transactions_of(
        self, broker: BrokerAddress, opened: Sequence[OpenTransaction], timeout_s: float
    ) -> Mapping[int, tuple[str, TransactionState | None]]:
        """Return transactional id and state of the producers that this coordinator knows; empty if a request fails."""
        producers = {one.producer_id for one in opened}
        try:
            listed = await self._call(
                broker, lambda versions: surveys.list_transactions(versions, producers), timeout_s
            )
            names = _granted(surveys.transactional_ids(listed))
            if not names:
                return {}
            described = await self._call(
                broker, lambda versions: surveys.describe_transactions(versions, names.values()), timeout_s
            )
        except (BrokerRefusal, TransportError):
            return {}
        states = surveys.transactions(described)
        return {producer: (name, states.get(producer)) for producer, name in names.items()}

    async def broker_settings(self, broker: BrokerAddress, timeout_s: float) -> Mapping[str, str]:
        """Return the configuration of this broker. Requires DESCRIBE_CONFIGS on the cluster."""
        message = await self._call(
            broker, lambda versions: surveys.describe_broker_config(versions, broker.node_id), timeout_s
        )
        return _granted(surveys.settings(message))

    async def group_settings(self, broker: BrokerAddress, group_id: str, timeout_s: float) -> Mapping[str, str]:
        """Return the configuration of this group with the broker's defaults. Requires DESCRIBE_CONFIGS on the group."""
        message = await self._call(
            broker, lambda versions: surveys.describe_whole_group_config(versions, group_id), timeout_s
        )
        return _granted(surveys.settings(message))

    async def _call(self, broker: BrokerAddress, build: Callable[[BrokerVersions], Call], timeout_s: float) -> Message:
        try:
            return await self._cluster.coordinator_call(broker, build, timeout_s, purpose=Purpose.CLUSTER)
        except UnsupportedProtocolError as error:
            raise unsupported(error) from error


def _producers_of(partitions: Sequence[TopicPartition]) -> Callable[[BrokerVersions], Call]:
    return lambda versions: surveys.describe_producers(versions, partitions)


def _completed(one: OpenTransaction, facts: tuple[str, TransactionState | None]) -> OpenTransaction:
    """Return the transaction with the data of its coordinator."""
    name, state = facts
    if state is None:
        return replace(one, transactional_id=name)
    return replace(
        one, transactional_id=name, state=state.state, timeout_ms=state.timeout_ms, started_ms=state.started_ms
    )


def _granted(answer: AnswerT | BrokerError) -> AnswerT:
    if isinstance(answer, BrokerError):
        raise BrokerRefusal(answer, retriable=is_retriable(answer.code))
    return answer
