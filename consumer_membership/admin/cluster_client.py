"""Brokers asked what operators ask beside groups; each question goes to each broker that may know a part of the answer.

A broker that does not answer does not keep the others back: what it would have said is missing, and why is told.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from consumer_membership.errors import TransportError, UnsupportedProtocolError
from consumer_membership.light_dataclasses import dataclass
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster, unsupported
from consumer_membership.runtime.network.connections import Purpose
from consumer_membership.translation import surveys
from consumer_membership.translation.metadata import ClusterMetadata
from consumer_membership.translation.surveys import ListedGroup, OpenTransaction, TransactionState
from consumer_membership.translation.verdicts import is_retriable
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.versions import BrokerVersions

__all__ = ["BrokerRefusal", "ClusterClient", "ClusterMetadata", "ListedGroup", "OpenTransaction", "Unanswered"]

AnswerT = TypeVar("AnswerT")
Unanswered: TypeAlias = BrokerRefusal | TransportError
"""Why a broker told nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOfBroker:
    """The groups of one coordinator, or why it told none."""

    broker: BrokerAddress
    groups: tuple[ListedGroup, ...] | Unanswered


class ClusterClient:
    """Questions to the brokers of one cluster, whose connections are its owner's to close."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def groups(self, timeout_s: float) -> tuple[GroupsOfBroker, ...]:
        """What each broker lists.

        Raises:
            BrokerRefusal, TransportError: nobody told which brokers there are.
        """
        brokers = await self._cluster.brokers(timeout_s)

        async def ask(broker: BrokerAddress) -> GroupsOfBroker:
            try:
                message = await self._ask(broker, surveys.list_groups, timeout_s)
                found: tuple[ListedGroup, ...] | Unanswered = _granted(surveys.listed_groups(message))
            except (BrokerRefusal, TransportError) as error:
                found = error
            return GroupsOfBroker(broker=broker, groups=found)

        return tuple(await asyncio.gather(*map(ask, brokers)))

    async def open_transactions(
        self, found: ClusterMetadata, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> tuple[OpenTransaction, ...]:
        """The open transactions of these partitions with what their coordinators say, the oldest of each first.

        Needs READ on the topics; a transaction whose coordinator may not describe it has no transactional id.

        Raises:
            BrokerRefusal, TransportError: a leader told nothing.
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
            message = await self._ask(found.brokers[node_id], _producers_of(share), timeout_s)
            for of_partition in surveys.producers(message).values():
                opened += _granted(of_partition)
        if not opened:
            return ()
        named = await asyncio.gather(
            *(self._transactions_of(broker, opened, timeout_s) for broker in found.brokers.values())
        )
        told = {producer: facts for of_broker in named for producer, facts in of_broker.items()}
        return tuple(_completed(one, told[one.producer_id]) if one.producer_id in told else one for one in opened)

    async def _transactions_of(
        self, broker: BrokerAddress, opened: Sequence[OpenTransaction], timeout_s: float
    ) -> Mapping[int, tuple[str, TransactionState | None]]:
        """Transactional id and state of those producers that this coordinator knows; nothing where it may not tell."""
        producers = {one.producer_id for one in opened}
        try:
            listed = await self._ask(broker, lambda versions: surveys.list_transactions(versions, producers), timeout_s)
            names = _granted(surveys.transactional_ids(listed))
            if not names:
                return {}
            described = await self._ask(
                broker, lambda versions: surveys.describe_transactions(versions, names.values()), timeout_s
            )
        except (BrokerRefusal, TransportError):
            return {}
        states = surveys.transactions(described)
        return {producer: (name, states.get(producer)) for producer, name in names.items()}

    async def broker_settings(self, broker: BrokerAddress, timeout_s: float) -> Mapping[str, str]:
        """How this broker is set. Needs DESCRIBE_CONFIGS on the cluster."""
        message = await self._ask(
            broker, lambda versions: surveys.describe_broker_config(versions, broker.node_id), timeout_s
        )
        return _granted(surveys.settings(message))

    async def group_settings(self, broker: BrokerAddress, group_id: str, timeout_s: float) -> Mapping[str, str]:
        """How this group is set, with the broker's defaults. Needs DESCRIBE_CONFIGS on the group."""
        message = await self._ask(
            broker, lambda versions: surveys.describe_whole_group_config(versions, group_id), timeout_s
        )
        return _granted(surveys.settings(message))

    async def _ask(self, broker: BrokerAddress, build: Callable[[BrokerVersions], Call], timeout_s: float) -> Message:
        try:
            return await self._cluster.coordinator_call(broker, build, timeout_s, purpose=Purpose.CLUSTER)
        except UnsupportedProtocolError as error:
            raise unsupported(error) from error


def _producers_of(partitions: Sequence[TopicPartition]) -> Callable[[BrokerVersions], Call]:
    return lambda versions: surveys.describe_producers(versions, partitions)


def _completed(one: OpenTransaction, facts: tuple[str, TransactionState | None]) -> OpenTransaction:
    """With what its coordinator knows of it."""
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
