"""The exchanges of a KIP-848 member with librdkafka's mock cluster and with a real broker; they verify the fakes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from consumer_membership.membership.effects import CommitOffsets, Heartbeat, SendHeartbeat
from consumer_membership.membership.events import (
    CommitAnswered,
    CommitVerdict,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Verdict,
)
from consumer_membership.runtime.network import cluster as network
from consumer_membership.runtime.network.cluster import BrokerRefusal
from consumer_membership.runtime.network.exchanges import exchange
from consumer_membership.runtime.network.group_client import GroupClient
from consumer_membership.types import BrokerAddress, OffsetAndMetadata, TopicIdPartition, TopicPartition
from tests.runtime.clients import settings, with_client
from tests.support.kafka import create_topic, produce, unique
from tests.support.mock_cluster import MockCluster
from tests.support.waiting import PATIENCE_S, async_wait_until

pytestmark = [pytest.mark.slow]

LATEST, EARLIEST = -1, -2
#: The outcome of a heartbeat.
HeartbeatOutcome = HeartbeatAnswered | HeartbeatRejected | HeartbeatFailed


@dataclass(frozen=True)
class Cluster:
    """A cluster with a topic of 4 partitions and 8 records in it."""

    bootstrap_servers: str
    topic: str

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """The brokers as host and port."""
        pairs = (server.rsplit(":", 1) for server in self.bootstrap_servers.split(","))
        return tuple((host, int(port)) for host, port in pairs)


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[Cluster]:
    """The mock cluster, which creates topics of 4 partitions on request."""
    with MockCluster.start(brokers=3) as mock:
        topic = unique("topic")
        may_create = replace(settings(*mock.servers), allow_auto_create_topics=True)
        with_client(may_create, lambda client: client.topics([topic]))
        produce(mock.bootstrap_servers, topic, 8)
        yield Cluster(mock.bootstrap_servers, topic)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Cluster:
    """A real broker."""
    bootstrap_servers = request.getfixturevalue("kafka").bootstrap_servers
    topic = create_topic(bootstrap_servers, unique("topic"), 4)
    produce(bootstrap_servers, topic, 8)
    return Cluster(bootstrap_servers, topic)


@pytest.fixture(params=["mock_cluster", pytest.param("kafka_cluster", marks=pytest.mark.integration)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster in turn."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


class Member:
    """One member of a group, which a test drives step by step."""

    def __init__(
        self,
        client: network.Cluster,
        coordinator: BrokerAddress,
        topic: str,
        group: str,
        instance_id: str | None = None,
    ) -> None:
        self.client, self.coordinator, self.topic, self.group = client, coordinator, topic, group
        self.instance_id = instance_id
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: frozenset[TopicIdPartition] = frozenset()

    async def send(self, **fields: object) -> HeartbeatOutcome:
        """Send a heartbeat with the current epoch and these fields."""
        own = {"member_id": self.member_id, "member_epoch": self.epoch, "instance_id": self.instance_id}
        values: dict[str, Any] = {**own, **fields}
        order = SendHeartbeat(request_id=1, heartbeat=Heartbeat(**values))
        outcome = await exchange(self.client, self.coordinator, self.group, order, PATIENCE_S)
        assert isinstance(outcome, HeartbeatOutcome)
        return outcome

    async def join(self) -> None:
        """Join, and heartbeat until all 4 partitions are assigned; then acknowledge them."""
        # The mock cluster asserts that topic names and pattern are both null or both given.
        await self._take(
            rebalance_timeout_s=60.0, topics=(self.topic,), pattern="", owned=frozenset[TopicIdPartition]()
        )

        async def has_all() -> bool:
            if len(self.owned) < 4:
                await self._take()
            return len(self.owned) == 4

        await async_wait_until(has_all, "an assignment of all partitions", seen=lambda: self.owned)
        await self._take(owned=self.owned)

    async def _take(self, **fields: object) -> None:
        event = await self.send(**fields)
        assert isinstance(event, HeartbeatAnswered), event
        self.epoch = event.member_epoch
        if event.assignment is not None:
            self.owned = event.assignment

    def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata], epoch: int) -> CommitOffsets:
        """Return a commit order."""
        return CommitOffsets(
            commit_id=4, offsets=offsets, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )


async def joined(client: network.Cluster, cluster: Cluster, instance_id: str | None = None) -> Member:
    """Return a member that owns all partitions of the topic."""
    group = unique("group")

    async def found() -> BrokerAddress | None:
        try:
            return await client.find_coordinator(group)
        except BrokerRefusal as refusal:
            # A new cluster has no coordinator before its offsets topic exists.
            if not refusal.retriable:
                raise
            return None

    coordinator = await async_wait_until(found, "a coordinator")
    member = Member(client, coordinator, cluster.topic, group, instance_id)
    await member.join()
    return member


def test_member_joins_and_leaves(cluster: Cluster) -> None:
    """A member gets all partitions, by ids that Metadata resolves, and leaves with epoch -1."""

    async def act(client: network.Cluster) -> tuple[set[TopicPartition], HeartbeatOutcome]:
        member = await joined(client, cluster)
        ids = frozenset(partition.topic_id for partition in member.owned)
        names = await client.topic_names(ids | {uuid.uuid4()}, PATIENCE_S)
        owned = {TopicPartition(names[topic_id], partition) for topic_id, partition in member.owned}
        member.epoch = -1
        return owned, await member.send()

    owned, left = with_client(cluster.servers, act)
    assert owned == {TopicPartition(cluster.topic, partition) for partition in range(4)}
    assert isinstance(left, HeartbeatAnswered)
    assert left.member_epoch == -1


def test_heartbeat_of_an_unknown_member_is_rejected(cluster: Cluster) -> None:
    """After UNKNOWN_MEMBER_ID the verdict is to join again."""

    async def act(client: network.Cluster) -> HeartbeatOutcome:
        member = await joined(client, cluster)
        member.member_id = str(uuid.uuid4())
        return await member.send()

    event = with_client(cluster.servers, act)
    assert isinstance(event, HeartbeatRejected)
    assert (event.verdict, event.error.name) == (Verdict.REJOIN, "UNKNOWN_MEMBER_ID")


def test_committed_offsets_are_fetched_back(cluster: Cluster) -> None:
    """The member fetches its committed offsets; a partition without a commit is None, and another epoch is stale."""
    one, other = TopicPartition(cluster.topic, 0), TopicPartition(cluster.topic, 1)
    offset = OffsetAndMetadata(offset=2, metadata="half")

    async def act(client: network.Cluster) -> tuple[object, object, object]:
        member = await joined(client, cluster)
        where = (member.coordinator, member.group)
        good = await exchange(client, *where, member.commit({one: offset}, member.epoch), PATIENCE_S)
        stale = await exchange(client, *where, member.commit({one: offset}, member.epoch + 7), PATIENCE_S)
        fetched = await GroupClient(client).fetch_committed(
            *where,
            [one, other],
            member_id=member.member_id,
            member_epoch=member.epoch,
            require_stable=True,
            timeout_s=PATIENCE_S,
        )
        return (
            good,
            stale,
            {partition: found and replace(found, leader_epoch=None) for partition, found in fetched.items()},
        )

    good, stale, fetched = with_client(cluster.servers, act)
    assert good == CommitAnswered(commit_id=4, verdict=CommitVerdict.FINAL, errors={one: None})
    assert isinstance(stale, CommitAnswered)
    assert stale.verdict is CommitVerdict.STALE_EPOCH
    assert fetched == {one: offset, other: None}


def test_list_offsets_returns_ends_and_starts(cluster: Cluster) -> None:
    """ListOffsets to all leaders at the same time: the ends sum up to the records, and the starts are 0."""
    partitions = [TopicPartition(cluster.topic, partition) for partition in range(4)]

    async def act(client: network.Cluster) -> list[list[Any]]:
        found = [
            await client.list_offsets(dict.fromkeys(partitions, timestamp), read_committed=True, timeout_s=PATIENCE_S)
            for timestamp in (LATEST, EARLIEST)
        ]
        return [[offsets[partition] for partition in partitions] for offsets in found]

    ends, starts = with_client(cluster.servers, act)
    assert (sum(ends), starts) == (8, [0, 0, 0, 0])


def test_metadata_returns_brokers_and_topics(cluster: Cluster) -> None:
    """The metadata contains all brokers, and the topic with its partitions and their leaders."""

    async def act(client: network.Cluster) -> tuple[object, ...]:
        brokers = await client.brokers()
        found = (await client.topics([cluster.topic]))[cluster.topic]
        everything, unknown = await asyncio.gather(client.topics(), client.topics(["nowhere"]))
        assert cluster.topic in everything
        assert found.topic_id is not None
        leaders = {partition.leader for partition in found.partitions.values()}
        assert leaders <= {broker.node_id for broker in brokers}
        error = unknown["nowhere"].error
        return sorted(found.partitions), found.error, error and error.name

    assert with_client(cluster.servers, act) == ([0, 1, 2, 3], None, "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.integration
def test_unreleased_instance_id_names_the_holder(kafka_cluster: Cluster) -> None:
    """The message of a real broker for UNRELEASED_INSTANCE_ID names the member that holds the instance id."""
    instance = unique("instance")

    async def act(client: network.Cluster) -> tuple[str, HeartbeatOutcome]:
        holder = await joined(client, kafka_cluster, instance)
        rival = Member(client, holder.coordinator, holder.topic, holder.group, instance)
        fields = {"rebalance_timeout_s": 60.0, "topics": (holder.topic,), "owned": frozenset[TopicIdPartition]()}
        return holder.member_id, await rival.send(**fields)

    holder, outcome = with_client(kafka_cluster.servers, act)
    assert isinstance(outcome, HeartbeatRejected)
    assert (outcome.verdict, outcome.holder) == (Verdict.UNRELEASED, holder)
