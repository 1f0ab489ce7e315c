"""The brokers of a cluster, asked in the domain's words by a member of a group.

What a member itself asks is tried once, because the core decides when to try again. Heartbeats and commits report what
happened as events and do not raise for what a broker or the network does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError, UnsupportedProtocolError
from consumer_membership.membership.effects import CommitOffsets, SendHeartbeat
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.runtime.failures import logger
from consumer_membership.runtime.network.cluster_client import BrokerRefusal
from consumer_membership.runtime.network.connections import Purpose
from consumer_membership.runtime.network.group_client import GroupClient
from consumer_membership.runtime.network.security import Security
from consumer_membership.types import (
    NO_MEMBER_ID,
    BrokerAddress,
    BrokerError,
    CommittedOffsets,
    OffsetAndMetadata,
    TopicPartition,
)
from consumer_membership.wire import answers, requests
from consumer_membership.wire.cluster import ClusterMetadata, PartitionMetadata, TopicMetadata
from consumer_membership.wire.codec import Call, ErrorCode
from consumer_membership.wire.verdicts import FetchVerdict, broker_error, fetch_verdict, is_retriable
from consumer_membership.wire.versions import BrokerVersions

__all__ = [
    "BrokerClient",
    "BrokerRefusal",
    "ClusterMetadata",
    "PartitionMetadata",
    "TopicMetadata",
]


class BrokerClient(GroupClient):
    """The brokers of one cluster; every method belongs to the loop that called the first one.

    `on_coordinator_lost` is called when the connection to a coordinator ended by itself while nothing was in flight;
    a request that was in flight has an answer that says so. `on_silence` is called when a broker takes a connection and
    says nothing.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        on_coordinator_lost: Callable[[BrokerAddress, str], None] | None = None,
        security: Security | None = None,
        on_silence: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(settings, security)
        self._on_silence = on_silence
        self._on_coordinator_lost = on_coordinator_lost

    async def heartbeat(
        self, coordinator: BrokerAddress, group_id: str, effect: SendHeartbeat, timeout_s: float
    ) -> HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed:
        """Send this heartbeat; never raises for what a broker or the network does.

        A broker that does not offer the API (or, for a pattern, its version) is a rejection with UNSUPPORTED_VERSION
        and the verdict FATAL. An answer that does not come in time ends the connection: the next heartbeat makes a new
        one, which works where the old one's packets vanish.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            connection = await self._connections.get(Purpose.GROUP, coordinator, timeout_s)
            call = requests.consumer_group_heartbeat(connection.versions, group_id, effect.heartbeat)
            entity = await self._ask(connection, call, deadline - clock())
        except UnsupportedProtocolError as error:
            refusal = broker_error(ErrorCode.unsupported_version, str(error))
            return HeartbeatRejected(request_id=effect.request_id, verdict=Verdict.FATAL, error=refusal)
        except TransportError as error:
            return HeartbeatFailed(request_id=effect.request_id, reason=str(error))
        return answers.consumer_group_heartbeat(entity, effect.request_id, group_id)

    async def commit(
        self, coordinator: BrokerAddress, group_id: str, effect: CommitOffsets, timeout_s: float
    ) -> CommitAnswered | CommitFailed:
        """Send this commit, behind the heartbeats that were sent before it; never raises for broker or network.

        An answer that does not come in time leaves the connection alone: it is the heartbeats', and the application's
        patience with one commit says nothing about it.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            connection = await self._connections.get(Purpose.GROUP, coordinator, timeout_s)
            call = requests.offset_commit(connection.versions, group_id, effect)
            entity = await connection.request(call, deadline - clock())
        except UnsupportedProtocolError as error:
            return CommitFailed(commit_id=effect.commit_id, reason=str(error), retriable=False)
        except TransportError as error:
            return CommitFailed(commit_id=effect.commit_id, reason=str(error))
        return answers.offset_commit(entity, effect.commit_id, group_id, effect.offsets)

    async def fetch_committed(
        self,
        coordinator: BrokerAddress,
        group_id: str,
        partitions: Iterable[TopicPartition],
        member_id: str,
        member_epoch: int,
        require_stable: bool,  # noqa: FBT001  # KIP-447
        timeout_s: float,
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        """The committed offset of each partition, None where nothing is committed.

        Raises:
            BrokerRefusal: the coordinator refused, for one partition at least. Never to be read as "nothing committed".
            TransportError: no answer.
        """
        asked = tuple(partitions)
        if not asked:
            return {}
        build = _offset_fetch(group_id, asked, member_id, member_epoch, require_stable=require_stable)
        entity = await self._ask_coordinator(coordinator, timeout_s, build)
        fetched = answers.offset_fetch(entity, group_id, asked)
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
        member_id: str,
        member_epoch: int,
        require_stable: bool,  # noqa: FBT001  # KIP-447
        timeout_s: float,
    ) -> CommittedOffsets:
        """As `fetch_committed`, for an application: each partition has its own answer.

        An answer that does not come in time ends the connection, as a heartbeat's does: who asks as nobody's member
        has no heartbeats that would.

        Raises:
            BrokerRefusal: the coordinator refused all of it; or a partition has an open transaction, and waiting helps.
            TransportError: no answer.
        """
        asked = tuple(partitions)
        build = _offset_fetch(group_id, asked, member_id, member_epoch, require_stable=require_stable)
        entity = await self._ask_coordinator(coordinator, timeout_s, build, ends_connection=True)
        fetched = answers.offset_fetch_by_partition(entity, group_id, asked)
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

    def _connection_lost(
        self,
        purpose: Purpose,
        broker: BrokerAddress,
        error: TransportError,
        had_waiters: bool,  # noqa: FBT001  # `Connections` calls it so
    ) -> None:
        """A connection ended by itself; a coordinator's is worth telling."""
        if purpose is not Purpose.GROUP:
            super()._connection_lost(purpose, broker, error, had_waiters)
            return
        logger.info("Connection to the group coordinator %s lost: %s", broker, error)
        if self._on_coordinator_lost is not None and not had_waiters:
            self._on_coordinator_lost(broker, str(error))

    def _connection_silent(self, words: str) -> None:
        if self._on_silence is not None:
            self._on_silence(words)


def _offset_fetch(
    group_id: str, partitions: Sequence[TopicPartition], member_id: str, member_epoch: int, *, require_stable: bool
) -> Callable[[BrokerVersions], Call]:
    return lambda versions: requests.offset_fetch(
        versions,
        group_id,
        partitions,
        member_id=member_id,
        member_epoch=member_epoch,
        require_stable=require_stable,
    )
