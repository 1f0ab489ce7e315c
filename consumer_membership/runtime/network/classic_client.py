"""The brokers of a cluster, asked by a member of the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

As in `broker_client`, each order is tried once and none raises for what a broker or the network does: what happened is
an event of `membership.classic.exchanges`. That a broker does not offer an API is a rejection with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from consumer_membership.errors import TransportError, UnsupportedProtocolError
from consumer_membership.membership.classic.exchanges import (
    ClassicCommitAnswered,
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicLeft,
    ClassicVerdict,
    ExchangeFailed,
    JoinAnswered,
    JoinRejected,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    SyncAnswered,
    SyncRejected,
)
from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.membership.events import CommitFailed
from consumer_membership.runtime.network.broker_client import BrokerClient
from consumer_membership.runtime.network.connections import Purpose
from consumer_membership.types import BrokerAddress, BrokerError
from consumer_membership.wire import classic_answers, requests
from consumer_membership.wire.codec import Call, ErrorCode, Message
from consumer_membership.wire.verdicts import broker_error
from consumer_membership.wire.versions import BrokerVersions

#: How much longer than the rebalance timeout a join is waited for: Java's JOIN_GROUP_TIMEOUT_LAPSE.
JOIN_LAPSE_S = 5.0


class ClassicClient(BrokerClient):
    """The brokers of one cluster as a classic member asks them; every method belongs to the loop of the first call.

    Committed offsets are fetched as nobody's (`fetch_committed` with NO_MEMBER_ID and NO_EPOCH), as Java's client does.
    """

    async def join(
        self, coordinator: BrokerAddress, group_id: str, effect: SendJoin, timeout_s: float
    ) -> JoinAnswered | JoinRejected | ExchangeFailed:
        """Join, and wait until the group has gathered: max(`timeout_s`, the rebalance timeout + 5 s) at most.

        Joins and syncs have a connection of their own, because a broker answers nothing else on it meanwhile. A join
        that is cancelled or not answered in time ends it, so that the next one does not wait behind it.
        """
        patience_s = max(timeout_s, effect.rebalance_timeout_s + JOIN_LAPSE_S)
        # For the committed offsets, which are asked for as soon as the group has gathered.
        self._connections.prepare(Purpose.GROUP, coordinator)
        try:
            entity = await self._rebalance(
                coordinator,
                timeout_s,
                patience_s,
                lambda versions: requests.join_group(versions, group_id, effect),
            )
        except UnsupportedProtocolError as error:
            return JoinRejected(request_id=effect.request_id, verdict=ClassicVerdict.FATAL, error=_not_offered(error))
        except TransportError as error:
            return ExchangeFailed(request_id=effect.request_id, reason=str(error))
        return classic_answers.join_group(entity, group_id, effect)

    async def sync(
        self, coordinator: BrokerAddress, group_id: str, effect: SendSync, timeout_s: float
    ) -> SyncAnswered | SyncRejected | ExchangeFailed:
        """Hand in the leader's assignments, or ask for this member's, and wait for it `timeout_s` at most."""
        try:
            entity = await self._rebalance(
                coordinator,
                timeout_s,
                timeout_s,
                lambda versions: requests.sync_group(versions, group_id, effect),
            )
        except UnsupportedProtocolError as error:
            return SyncRejected(request_id=effect.request_id, verdict=ClassicVerdict.FATAL, error=_not_offered(error))
        except TransportError as error:
            return ExchangeFailed(request_id=effect.request_id, reason=str(error))
        return classic_answers.sync_group(entity, group_id, effect)

    async def classic_heartbeat(
        self, coordinator: BrokerAddress, group_id: str, effect: SendClassicHeartbeat, timeout_s: float
    ) -> ClassicHeartbeatAnswered | ClassicHeartbeatRejected | ExchangeFailed:
        """Say that this member lives; an answer that does not come in time ends the connection."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            connection = await self._connections.get(Purpose.GROUP, coordinator, timeout_s)
            call = requests.classic_heartbeat(connection.versions, group_id, effect)
            entity = await self._ask(connection, call, deadline - clock())
        except UnsupportedProtocolError as error:
            return ClassicHeartbeatRejected(
                request_id=effect.request_id, verdict=ClassicVerdict.FATAL, error=_not_offered(error)
            )
        except TransportError as error:
            return ExchangeFailed(request_id=effect.request_id, reason=str(error))
        return classic_answers.heartbeat(entity, group_id, effect)

    async def leave(
        self, coordinator: BrokerAddress, group_id: str, effect: SendClassicLeave, timeout_s: float
    ) -> ClassicLeft | ExchangeFailed:
        """Leave the group, behind the commits that were sent before."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            connection = await self._connections.get(Purpose.GROUP, coordinator, timeout_s)
            call = requests.leave_group(connection.versions, group_id, effect)
            entity = await connection.request(call, deadline - clock())
        except UnsupportedProtocolError as error:
            return ClassicLeft(request_id=effect.request_id, error=_not_offered(error))
        except TransportError as error:
            return ExchangeFailed(request_id=effect.request_id, reason=str(error))
        return classic_answers.leave_group(entity, group_id, effect)

    async def classic_commit(
        self, coordinator: BrokerAddress, group_id: str, effect: CommitOffsets, timeout_s: float
    ) -> ClassicCommitAnswered | CommitFailed:
        """Commit with the generation in `member_epoch`; as `commit`, it leaves a silent connection alone."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_s
        try:
            connection = await self._connections.get(Purpose.GROUP, coordinator, timeout_s)
            call = requests.offset_commit(connection.versions, group_id, effect, is_classic=True)
            entity = await connection.request(call, deadline - clock())
        except UnsupportedProtocolError as error:
            return CommitFailed(commit_id=effect.commit_id, reason=str(error), retriable=False)
        except TransportError as error:
            return CommitFailed(commit_id=effect.commit_id, reason=str(error))
        return classic_answers.offset_commit(entity, group_id, effect)

    async def _rebalance(
        self,
        coordinator: BrokerAddress,
        timeout_s: float,
        patience_s: float,
        build: Callable[[BrokerVersions], Call],
    ) -> Message:
        """One request on the rebalances' connection, made within `timeout_s` and answered within `patience_s`."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + patience_s
        connection = await self._connections.get(Purpose.REBALANCE, coordinator, timeout_s)
        call = build(connection.versions)
        try:
            return await self._ask(connection, call, deadline - clock())
        except asyncio.CancelledError:
            reason = f"{connection.peer}: {call.name} was given up"
            self._connections.drop(connection, TransportError(reason))
            raise


def _not_offered(error: UnsupportedProtocolError) -> BrokerError:
    return broker_error(ErrorCode.unsupported_version, str(error))
