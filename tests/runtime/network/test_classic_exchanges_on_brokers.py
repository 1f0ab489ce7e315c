"""The exchanges of the classic protocol with librdkafka's mock cluster and with a real Apache Kafka broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from consumer_membership.assignors.assignor import MemberSubscription
from consumer_membership.membership.classic.exchanges import (
    ClassicHeartbeatAnswered,
    ClassicVerdict,
)
from consumer_membership.runtime.network.group_client import GroupClient
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, TopicPartition
from tests.runtime.clients import settings, with_client
from tests.runtime.network.classic_members import SESSION_S, Cluster, Member, with_members
from tests.support.consumer_thread import ConsumerThread
from tests.support.kafka import create_topic, unique
from tests.support.mock_cluster import MockCluster
from tests.support.waiting import PATIENCE_S, async_wait_until

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[Cluster]:
    """The mock cluster, which offers JoinGroup up to 6 and creates topics of 4 partitions on request."""
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


def test_classic_member_joins_syncs_heartbeats_commits_and_leaves(cluster: Cluster) -> None:
    """Rules 4.2 and 4.8 for one member: the coordinator creates its id, and the member is the leader."""
    everything = cluster.partitions(0, 1, 2, 3)

    async def act(member: Member) -> None:
        joined = await member.join()
        assert (joined.is_leader, joined.protocol_name) == (True, "range")
        assert joined.unreadable == {}
        assert joined.members == {member.member_id: MemberSubscription(topics=frozenset({cluster.topic}))}
        synced = await member.sync({member.member_id: everything})
        assert (synced.assignment, synced.note) == (everything, "")
        assert await member.heartbeat() == ClassicHeartbeatAnswered(request_id=3)
        committed = await member.commit(joined.generation)
        assert (committed.membership, set(committed.answer.errors.values())) == (None, {None})
        coordinator = await member.coordinator()
        offsets = await GroupClient(member.client).fetch_committed(
            coordinator,
            member.group,
            everything,
            member_id=NO_MEMBER_ID,
            member_epoch=NO_EPOCH,
            require_stable=True,
            timeout_s=PATIENCE_S,
        )
        assert {found.offset for found in offsets.values() if found} == {1}
        assert offsets.keys() == everything
        await member.leave()
        if cluster.reads_leaves:
            assert await member.heartbeat() is ClassicVerdict.REJOIN

    with_members(cluster, 1, act)


@pytest.mark.integration
def test_two_classic_members_share_a_topic_and_one_takes_over_after_a_leave(kafka_cluster: Cluster) -> None:
    """A heartbeat reports the rebalance, the leader assigns, and the remaining member owns all partitions at the end.

    The test needs a real broker: a busy mock cluster refuses a sync with a response that cannot be decoded.
    """
    cluster = kafka_cluster

    async def act(first: Member, second: Member) -> None:
        await first.join()
        await first.sync({first.member_id: cluster.partitions(0, 1, 2, 3)})
        joining = asyncio.create_task(second.join())
        await first.heartbeat_until(ClassicVerdict.REJOIN_NOW)
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
        await first.heartbeat_until(ClassicVerdict.REJOIN_NOW)
        alone = await first.join()
        assert list(alone.members) == [first.member_id]
        assert (await first.sync({first.member_id: cluster.partitions(0, 1, 2, 3)})).note == ""
        assert await first.heartbeat() == ClassicHeartbeatAnswered(request_id=3)
        await first.leave()

    with_members(cluster, 2, act)


@pytest.mark.integration
def test_static_classic_member_is_fenced_by_a_newcomer_with_its_instance_id(kafka_cluster: Cluster) -> None:
    """KIP-345: the newcomer takes the place without a rebalance or a member id, and the holder is fenced."""
    everything = kafka_cluster.partitions(0, 1, 2, 3)

    async def act(holder: Member, newcomer: Member) -> None:
        first = await holder.join()
        assert first.members[holder.member_id].instance_id == "i"
        await holder.sync({holder.member_id: everything})
        second = await newcomer.join()
        # KIP-814: the group has not changed, so the leader that returned has nothing to assign.
        assert (second.generation, second.is_leader, second.skip_assignment) == (first.generation, True, True)
        assert (await newcomer.sync()).assignment == everything
        assert await holder.heartbeat() is ClassicVerdict.FATAL
        committed = await holder.commit(first.generation)
        assert committed.membership is ClassicVerdict.FATAL
        await newcomer.leave()

    with_members(kafka_cluster, 2, act, instance_id="i")


def librdkafkas(cluster: Cluster, group: str) -> ConsumerThread[Consumer]:
    """Return a librdkafka consumer in the same group, polled by its own thread."""
    config = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": int(cluster.session_s * 1000),
        "heartbeat.interval.ms": 200,
        "log_level": 0,
    }
    return ConsumerThread(Consumer(config), [cluster.topic])


async def wait_for(theirs: ConsumerThread[Consumer], partitions: frozenset[TopicPartition]) -> None:
    """Return once exactly these partitions are assigned to the consumer."""
    await async_wait_until(
        lambda: theirs.notes.assigned == partitions, f"assignment of {partitions}", seen=lambda: theirs.notes.calls
    )


# With the mock cluster, librdkafka's members repeat rebalances for longer than a test may wait.


@pytest.mark.integration
def test_librdkafka_member_follows_an_assignment_of_this_packages_leader(kafka_cluster: Cluster) -> None:
    """This package's leader reads librdkafka's subscription, and librdkafka reads the leader's assignment."""
    cluster, group = kafka_cluster, unique("group")

    async def act(ours: Member) -> None:
        await ours.join()
        await ours.sync({ours.member_id: cluster.partitions(0, 1, 2, 3)})
        theirs = librdkafkas(cluster, group).__enter__()
        try:
            await ours.heartbeat_until(ClassicVerdict.REJOIN_NOW)
            joined = await ours.join()
            assert joined.is_leader
            (stranger,) = set(joined.members) - {ours.member_id}
            assert joined.members[stranger].topics == {cluster.topic}
            await ours.sync({ours.member_id: cluster.partitions(0), stranger: cluster.partitions(1, 2, 3)})
            await wait_for(theirs, cluster.partitions(1, 2, 3))
            await ours.leave()
        finally:
            await asyncio.to_thread(theirs.stop)

    with_members(cluster, 1, act, group)


@pytest.mark.integration
def test_classic_member_follows_an_assignment_of_a_librdkafka_leader(kafka_cluster: Cluster) -> None:
    """Librdkafka's leader reads this package's subscription, and the member reads the leader's assignment."""
    cluster, group = kafka_cluster, unique("group")

    async def act(ours: Member) -> None:
        theirs = librdkafkas(cluster, group).__enter__()
        try:
            await wait_for(theirs, cluster.partitions(0, 1, 2, 3))
            await ours.follow()
            assert len(ours.owned) == 2
            await wait_for(theirs, cluster.partitions(0, 1, 2, 3) - ours.owned)
            await ours.leave()
        finally:
            await asyncio.to_thread(theirs.stop)

    with_members(cluster, 1, act, group)
