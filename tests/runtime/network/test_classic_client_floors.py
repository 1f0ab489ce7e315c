"""The classic protocol's conversations with librdkafka's mock cluster and with a real Apache Kafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Confluent
from tenacity import AsyncRetrying, retry_if_result, stop_after_delay, wait_fixed

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
from consumer_membership.membership.classic.subscription import MemberSubscription
from consumer_membership.membership.effects import CommitOffsets
from consumer_membership.runtime.network.classic_client import ClassicClient
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, BrokerAddress, OffsetAndMetadata, TopicPartition
from tests.runtime.clients import PATIENCE_S, settings, with_client
from tests.support.kafka import create_topic, unique
from tests.support.mock_cluster import MockCluster

pytestmark = [pytest.mark.slow]

ResultT = TypeVar("ResultT")

REBALANCE_S = 30.0

#: Longer than any stall of a busy machine. (The mock cluster gathers a new group for 3 s whatever the session is.)
SESSION_S = 30.0


@dataclass(frozen=True)
class Cluster:
    """A cluster with a topic of 4 partitions."""

    bootstrap_servers: str
    topic: str
    session_s: float
    #: librdkafka's mock cluster offers LeaveGroup up to 4, and reads and answers every version as its oldest: who
    #: leaves there is out when its session is over.
    reads_leaves: bool = True

    def partitions(self, *numbers: int) -> frozenset[TopicPartition]:
        """Partitions of the topic."""
        return frozenset(TopicPartition(self.topic, number) for number in numbers)


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[Cluster]:
    """The mock cluster; it offers JoinGroup up to 6, and makes topics of 4 partitions when they are asked for."""
    with MockCluster.start(brokers=3) as mock:
        topic = unique("topic")
        may_create = replace(settings(*mock.servers), allow_auto_create_topics=True)
        with_client(may_create, lambda client: client.topics([topic]))
        yield Cluster(mock.bootstrap_servers, topic, SESSION_S, reads_leaves=False)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Cluster:
    """A real broker."""
    bootstrap_servers = request.getfixturevalue("kafka").bootstrap_servers
    return Cluster(bootstrap_servers, create_topic(bootstrap_servers, unique("topic"), 4), SESSION_S)


@pytest.fixture(params=["mock_cluster", pytest.param("kafka_cluster", marks=pytest.mark.integration)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster in turn."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


class Member:
    """One member of a group with connections of its own, driven by hand."""

    def __init__(self, cluster: Cluster, group: str, instance_id: str | None = None) -> None:
        pairs = (server.rsplit(":", 1) for server in cluster.bootstrap_servers.split(","))
        self.client = ClassicClient(settings(*((host, int(port)) for host, port in pairs)))
        self.cluster, self.group, self.name, self.instance_id = cluster, group, "range", instance_id
        self.member_id = NO_MEMBER_ID
        self.generation = -1
        self.owned: frozenset[TopicPartition] = frozenset()

    async def coordinator(self) -> BrokerAddress:
        """The group's coordinator; a real broker makes the offsets topic first."""

        async def ask(found: BrokerAddress, _: float) -> BrokerAddress:
            return found

        return await self.client.with_coordinator(self.group, "the coordinator", PATIENCE_S, ask)

    async def join(self) -> JoinAnswered:
        """Join, with a member id that the coordinator made, until the group has gathered."""
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
            event = await self.client.join(await self.coordinator(), self.group, order, PATIENCE_S)
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
        """Sync, as the leader where there are assignments."""
        event = await self.try_to_sync(assignments or {})
        assert isinstance(event, SyncAnswered), event
        return event

    async def follow(self) -> None:
        """Join and sync as a follower, again where another rebalance begins meanwhile."""
        event: SyncAnswered | SyncRejected | ExchangeFailed | None = None
        while not isinstance(event, SyncAnswered):
            assert not (await self.join()).is_leader
            event = await self.try_to_sync({})
            # The mock cluster has null in a refusal where the protocol knows no null.
            refused = isinstance(event, SyncRejected) and event.verdict is ClassicVerdict.REJOIN_NOW
            assert refused or isinstance(event, SyncAnswered | ExchangeFailed), event

    async def try_to_sync(
        self, assignments: Mapping[str, frozenset[TopicPartition]]
    ) -> SyncAnswered | SyncRejected | ExchangeFailed:
        """Sync, with whatever comes of it."""
        order = SendSync(
            request_id=2,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_name=self.name,
            assignments=assignments,
        )
        event = await self.client.sync(await self.coordinator(), self.group, order, PATIENCE_S)
        if isinstance(event, SyncAnswered):
            self.owned = event.assignment
        return event

    async def beat(self) -> ClassicHeartbeatAnswered | ClassicVerdict:
        """One heartbeat: its success, or its verdict."""
        order = SendClassicHeartbeat(
            request_id=3, generation=self.generation, member_id=self.member_id, instance_id=self.instance_id
        )
        outcome = await self.client.classic_heartbeat(await self.coordinator(), self.group, order, PATIENCE_S)
        if isinstance(outcome, ClassicHeartbeatRejected):
            return outcome.verdict
        assert isinstance(outcome, ClassicHeartbeatAnswered), outcome
        return outcome

    async def beat_until(self, verdict: ClassicVerdict) -> None:
        """Heartbeat until the coordinator says this."""
        beats = AsyncRetrying(
            retry=retry_if_result(lambda said: said is not verdict),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(PATIENCE_S),
        )
        await beats(self.beat)

    async def leave(self) -> None:
        """Leave for good."""
        order = SendClassicLeave(
            request_id=4, member_id=self.member_id, instance_id=self.instance_id, reason="a test is over"
        )
        left = await self.client.leave(await self.coordinator(), self.group, order, PATIENCE_S)
        if self.cluster.reads_leaves:
            assert left == ClassicLeft(request_id=4)
        else:
            assert isinstance(left, ExchangeFailed)

    async def commit(self, generation: int) -> ClassicCommitAnswered:
        """Commit offset 1 of everything that is owned."""
        order = CommitOffsets(
            commit_id=5,
            offsets={partition: OffsetAndMetadata(offset=1) for partition in self.owned},
            member_id=self.member_id,
            member_epoch=generation,
            instance_id=self.instance_id,
        )
        event = await self.client.classic_commit(await self.coordinator(), self.group, order, PATIENCE_S)
        assert isinstance(event, ClassicCommitAnswered), event
        return event


def with_members(
    cluster: Cluster,
    count: int,
    act: Callable[..., Awaitable[ResultT]],
    group: str | None = None,
    instance_id: str | None = None,
) -> ResultT:
    """What `act` makes of this many members of one group, all of this instance id."""

    async def run() -> ResultT:
        name = group or unique("group")
        members = [Member(cluster, name, instance_id) for _ in range(count)]
        try:
            return await act(*members)
        finally:
            for member in members:
                await member.client.close()

    return asyncio.run(run())


def test_member_joins_syncs_beats_commits_and_leaves(cluster: Cluster) -> None:
    """Rules 4.2 and 4.8, one member: the coordinator makes its id, and it leads itself."""
    everything = cluster.partitions(0, 1, 2, 3)

    async def act(member: Member) -> None:
        joined = await member.join()
        assert (joined.is_leader, joined.protocol_name) == (True, "range")
        assert joined.unreadable == {}
        assert joined.members == {member.member_id: MemberSubscription(topics=frozenset({cluster.topic}))}
        synced = await member.sync({member.member_id: everything})
        assert (synced.assignment, synced.note) == (everything, "")
        assert await member.beat() == ClassicHeartbeatAnswered(request_id=3)
        committed = await member.commit(joined.generation)
        assert (committed.membership, set(committed.answer.errors.values())) == (None, {None})
        coordinator = await member.coordinator()
        offsets = await member.client.fetch_committed(
            coordinator,
            member.group,
            everything,
            NO_MEMBER_ID,
            NO_EPOCH,
            True,
            PATIENCE_S,
        )
        assert {found.offset for found in offsets.values() if found} == {1}
        assert offsets.keys() == everything
        await member.leave()
        if cluster.reads_leaves:
            assert await member.beat() is ClassicVerdict.REJOIN

    with_members(cluster, 1, act)


@pytest.mark.integration
def test_two_members_share_a_topic_and_one_takes_over_what_the_other_leaves(kafka_cluster: Cluster) -> None:
    """A heartbeat tells of the rebalance; the leader assigns, each syncs; who stays owns everything in the end.

    On a real broker only: a busy mock cluster refuses a sync, and writes that answer in bytes that nobody can read.
    """
    cluster = kafka_cluster

    async def act(first: Member, second: Member) -> None:
        await first.join()
        await first.sync({first.member_id: cluster.partitions(0, 1, 2, 3)})
        joining = asyncio.create_task(second.join())
        await first.beat_until(ClassicVerdict.REJOIN_NOW)
        answers = await asyncio.gather(first.join(), joining)
        leading = next(answer for answer in answers if answer.is_leader)
        assert {answer.leader_id for answer in answers} == {leading.leader_id}
        assert {answer.generation for answer in answers} == {first.generation}
        assert leading.members[first.member_id].owned == cluster.partitions(0, 1, 2, 3)
        assert leading.members[second.member_id].owned == frozenset()
        shares = {first.member_id: cluster.partitions(0, 1), second.member_id: cluster.partitions(2, 3)}
        leader, follower = (first, second) if answers[0].is_leader else (second, first)
        await asyncio.gather(follower.sync(), leader.sync(shares))
        assert {first.member_id: first.owned, second.member_id: second.owned} == shares
        await second.leave()
        await first.beat_until(ClassicVerdict.REJOIN_NOW)
        alone = await first.join()
        assert list(alone.members) == [first.member_id]
        assert (await first.sync({first.member_id: cluster.partitions(0, 1, 2, 3)})).note == ""
        assert await first.beat() == ClassicHeartbeatAnswered(request_id=3)
        await first.leave()

    with_members(cluster, 2, act)


@pytest.mark.integration
def test_static_member_is_fenced_by_who_comes_with_its_instance_id(kafka_cluster: Cluster) -> None:
    """KIP-345: the newcomer takes the place without a rebalance and without a member id, and the holder is fenced."""
    everything = kafka_cluster.partitions(0, 1, 2, 3)

    async def act(holder: Member, newcomer: Member) -> None:
        first = await holder.join()
        assert first.members[holder.member_id].instance_id == "i"
        await holder.sync({holder.member_id: everything})
        second = await newcomer.join()
        # KIP-814: the group is as it was, so the leader that came back has nothing to assign.
        assert (second.generation, second.is_leader, second.skip_assignment) == (first.generation, True, True)
        assert (await newcomer.sync()).assignment == everything
        assert await holder.beat() is ClassicVerdict.FATAL
        committed = await holder.commit(first.generation)
        assert committed.membership is ClassicVerdict.FATAL
        await newcomer.leave()

    with_members(kafka_cluster, 2, act, instance_id="i")


class Librdkafka:
    """A consumer of librdkafka in the same group, polled by a thread of its own."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.assigned: frozenset[TopicPartition] = frozenset()
        self._done = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": group,
                "partition.assignment.strategy": "range",
                "session.timeout.ms": int(cluster.session_s * 1000),
                "heartbeat.interval.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([cluster.topic], on_assign=self._take)
        self._thread = threading.Thread(target=self._poll, name="librdkafka")
        self._thread.start()

    def _take(self, consumer: Consumer, partitions: list[Confluent]) -> None:
        self.assigned = frozenset(TopicPartition(one.topic, one.partition) for one in partitions)
        consumer.assign(partitions)

    def _poll(self) -> None:
        while not self._done.is_set():
            self._consumer.poll(0.1)
        self._consumer.close()

    async def wait_for(self, partitions: frozenset[TopicPartition]) -> None:
        """Until it was assigned exactly these."""

        async def assigned() -> frozenset[TopicPartition]:
            return self.assigned

        looks = AsyncRetrying(
            retry=retry_if_result(lambda found: found != partitions),
            wait=wait_fixed(0.05),
            stop=stop_after_delay(PATIENCE_S),
        )
        await looks(assigned)

    def close(self) -> None:
        """End it; it leaves the group."""
        self._done.set()
        self._thread.join()


# With the mock cluster, librdkafka's members go from one rebalance to the next for longer than a test has patience.


@pytest.mark.integration
def test_librdkafkas_member_takes_what_our_leader_assigns(kafka_cluster: Cluster) -> None:
    """Our leader reads its subscription, and it reads our assignment."""
    cluster, group = kafka_cluster, unique("group")

    async def act(ours: Member) -> None:
        await ours.join()
        await ours.sync({ours.member_id: cluster.partitions(0, 1, 2, 3)})
        theirs = await asyncio.to_thread(Librdkafka, cluster, group)
        try:
            await ours.beat_until(ClassicVerdict.REJOIN_NOW)
            joined = await ours.join()
            assert joined.is_leader
            (stranger,) = set(joined.members) - {ours.member_id}
            assert joined.members[stranger].topics == {cluster.topic}
            await ours.sync({ours.member_id: cluster.partitions(0), stranger: cluster.partitions(1, 2, 3)})
            await theirs.wait_for(cluster.partitions(1, 2, 3))
            await ours.leave()
        finally:
            await asyncio.to_thread(theirs.close)

    with_members(cluster, 1, act, group)


@pytest.mark.integration
def test_our_member_takes_what_librdkafkas_leader_assigns(kafka_cluster: Cluster) -> None:
    """Their leader reads our subscription, and we read its assignment."""
    cluster, group = kafka_cluster, unique("group")

    async def act(ours: Member) -> None:
        theirs = await asyncio.to_thread(Librdkafka, cluster, group)
        try:
            await theirs.wait_for(cluster.partitions(0, 1, 2, 3))
            await ours.follow()
            assert len(ours.owned) == 2
            await theirs.wait_for(cluster.partitions(0, 1, 2, 3) - ours.owned)
            await ours.leave()
        finally:
            await asyncio.to_thread(theirs.close)

    with_members(cluster, 1, act, group)
