"""Members of a classic group that a test drives step by step against any cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from consumer_membership.assignors.assignor import MemberSubscription
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
from consumer_membership.runtime.network import cluster as network
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.types import NO_MEMBER_ID, BrokerAddress, OffsetAndMetadata, TopicPartition
from tests.runtime.clients import settings
from tests.support.kafka import unique
from tests.support.waiting import PATIENCE_S, async_wait_until

ResultT = TypeVar("ResultT")


REBALANCE_S = 30.0


#: Longer than any stall of a busy machine. (The mock cluster gathers a new group for 3 s with any session timeout.)
SESSION_S = 30.0


@dataclass(frozen=True)
class Cluster:
    """A cluster with a topic of 4 partitions."""

    bootstrap_servers: str
    topic: str
    session_s: float
    #: Whether the coordinator reads leaves. librdkafka's mock cluster offers LeaveGroup up to version 4, but reads and
    #: answers every version as the oldest one, so a member that leaves is removed only when its session ends.
    reads_leaves: bool = True

    def partitions(self, *numbers: int) -> frozenset[TopicPartition]:
        """Return these partitions of the topic."""
        return frozenset(TopicPartition(self.topic, number) for number in numbers)


class Member:
    """One member of a group with its own connections, which a test drives step by step."""

    def __init__(self, cluster: Cluster, group: str, instance_id: str | None = None) -> None:
        pairs = (server.rsplit(":", 1) for server in cluster.bootstrap_servers.split(","))
        self.client = network.Cluster(settings(*((host, int(port)) for host, port in pairs)))
        self.cluster, self.group, self.name, self.instance_id = cluster, group, "range", instance_id
        self.member_id = NO_MEMBER_ID
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()

    async def coordinator(self) -> BrokerAddress:
        """Find the group's coordinator; a real broker creates the offsets topic first."""

        async def ask(found: BrokerAddress, _: float) -> BrokerAddress:
            return found

        return await self.client.with_coordinator(self.group, "the coordinator", PATIENCE_S, ask)

    async def join(self) -> JoinAnswered:
        """Join with a member id from the coordinator, until the group is complete."""
        while True:
            order = SendJoin(
                request_id=1,
                member_id=self.member_id,
                instance_id=self.instance_id,
                session_timeout_s=self.cluster.session_s,
                rebalance_timeout_s=REBALANCE_S,
                protocols=(
                    (
                        self.name,
                        MemberSubscription(
                            topics=frozenset({self.cluster.topic}), owned=self.owned, generation=self.generation
                        ),
                    ),
                ),
                reason="a test",
            )
            event = await exchange(self.client, await self.coordinator(), self.group, order, PATIENCE_S)
            if isinstance(event, JoinRejected) and event.verdict is ClassicVerdict.RETRY:
                await asyncio.sleep(0.05)
                continue
            if isinstance(event, JoinRejected):
                assert event.verdict in {ClassicVerdict.MEMBER_ID_REQUIRED, ClassicVerdict.REJOIN_NOW}, event
                self.member_id = event.member_id or self.member_id
                continue
            assert isinstance(event, JoinAnswered), event
            self.member_id, self.generation = event.member_id, event.generation
            return event

    async def sync(self, assignments: Mapping[str, frozenset[TopicPartition]] | None = None) -> SyncAnswered:
        """Send a SyncGroup, as the leader if there are assignments."""
        event = await self.try_to_sync(assignments or {})
        assert isinstance(event, SyncAnswered), event
        return event

    async def follow(self) -> None:
        """Join and sync as a follower; repeat both if another rebalance begins in between."""
        event: SyncAnswered | SyncRejected | ExchangeFailed | None = None
        while not isinstance(event, SyncAnswered):
            assert not (await self.join()).is_leader
            event = await self.try_to_sync({})
            # The mock cluster sends null in a refusal although the protocol does not allow it.
            refused = isinstance(event, SyncRejected) and event.verdict is ClassicVerdict.REJOIN_NOW
            assert refused or isinstance(event, SyncAnswered | ExchangeFailed), event

    async def try_to_sync(
        self, assignments: Mapping[str, frozenset[TopicPartition]]
    ) -> SyncAnswered | SyncRejected | ExchangeFailed:
        """Send a SyncGroup and return any outcome."""
        order = SendSync(
            request_id=2,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_name=self.name,
            assignments=assignments,
        )
        event = await exchange(self.client, await self.coordinator(), self.group, order, PATIENCE_S)
        if isinstance(event, SyncAnswered):
            self.owned = event.assignment
        assert isinstance(event, SyncAnswered | SyncRejected | ExchangeFailed)
        return event

    async def heartbeat(self) -> ClassicHeartbeatAnswered | ClassicVerdict:
        """Send a heartbeat; return its success or its verdict."""
        order = SendClassicHeartbeat(
            request_id=3, generation=self.generation, member_id=self.member_id, instance_id=self.instance_id
        )
        outcome = await exchange(self.client, await self.coordinator(), self.group, order, PATIENCE_S)
        if isinstance(outcome, ClassicHeartbeatRejected):
            return outcome.verdict
        assert isinstance(outcome, ClassicHeartbeatAnswered), outcome
        return outcome

    async def heartbeat_until(self, verdict: ClassicVerdict) -> None:
        """Heartbeat until the coordinator returns this verdict."""

        async def has_verdict() -> bool:
            return await self.heartbeat() is verdict

        await async_wait_until(has_verdict, f"a heartbeat that ends with {verdict}")

    async def leave(self) -> None:
        """Leave the group."""
        order = SendClassicLeave(
            request_id=4, member_id=self.member_id, instance_id=self.instance_id, reason="a test is over"
        )
        left = await exchange(self.client, await self.coordinator(), self.group, order, PATIENCE_S)
        if self.cluster.reads_leaves:
            assert left == ClassicLeft(request_id=4)
        else:
            assert isinstance(left, ExchangeFailed)

    async def commit(self, generation: int) -> ClassicCommitAnswered:
        """Commit offset 1 of every owned partition."""
        order = CommitOffsets(
            commit_id=5,
            offsets={partition: OffsetAndMetadata(offset=1) for partition in self.owned},
            member_id=self.member_id,
            member_epoch=generation,
            instance_id=self.instance_id,
        )
        event = await exchange(self.client, await self.coordinator(), self.group, order, PATIENCE_S, is_classic=True)
        assert isinstance(event, ClassicCommitAnswered), event
        return event


def with_members(
    cluster: Cluster,
    count: int,
    act: Callable[..., Awaitable[ResultT]],
    group: str | None = None,
    instance_id: str | None = None,
) -> ResultT:
    """Return the result of `act` with this many members of one group, all with this instance id."""

    async def run() -> ResultT:
        name = group or unique("group")
        members = [Member(cluster, name, instance_id) for _ in range(count)]
        try:
            return await act(*members)
        finally:
            for member in members:
                await member.client.close()

    return asyncio.run(run())
