"""A classic member's exchanges with Kafka brokers before 4.0, and with other brokers that offer such versions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from kio.schema.errors import ErrorCode

from consumer_membership.assignors.assignor import Topics
from consumer_membership.devbroker import Backend
from consumer_membership.devbroker.request import CLASSIC_VERSIONS
from consumer_membership.membership.classic.exchanges import ClassicHeartbeatAnswered, ClassicVerdict
from consumer_membership.runtime.network.cluster import BrokerRefusal
from consumer_membership.runtime.network.group_client import GroupClient
from consumer_membership.translation.metadata import topics_of
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, GroupProtocol, OffsetAndMetadata
from tests.runtime.network.classic_members import SESSION_S, Cluster, Member, with_members
from tests.support.kafka import create_topic, produce, unique
from tests.support.offered import KAFKA_2_4, REDPANDA
from tests.support.older_broker import OlderBroker
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.integration]


def made(bootstrap_servers: str) -> Cluster:
    """Return a cluster with a new topic that has one record in each of 4 partitions."""
    topic = create_topic(bootstrap_servers, unique("topic"), 4)
    produce(bootstrap_servers, topic, 4)
    return Cluster(bootstrap_servers, topic, SESSION_S)


@dataclass(frozen=True)
class Older:
    """A cluster whose brokers offer older versions."""

    cluster: Cluster
    #: Whether the broker is limited to versions before Apache Kafka 3.0: no topic ids, no KIP-814, one group per
    #: request.
    is_narrowed: bool


#: The default broker, limited to older versions. Kafka 3.9 is a real broker of the last release with classic groups
#: only.
NARROWED = {"as Kafka 2.4": KAFKA_2_4, "as Redpanda": REDPANDA}
KAFKA_3_9 = "Kafka 3.9"


@pytest.fixture(params=[*NARROWED, KAFKA_3_9])
def older(request: pytest.FixtureRequest) -> Iterator[Older]:
    """Each older cluster in turn; the real broker is in a rack."""
    if request.param == KAFKA_3_9:
        (version,) = CLASSIC_VERSIONS
        broker = request.getfixturevalue("kafka_broker")(version, properties={"broker.rack": "a"}, backend=Backend.JVM)
        yield Older(made(broker.bootstrap_servers), is_narrowed=False)
        return
    behind = made(request.getfixturevalue("kafka").bootstrap_servers)
    with OlderBroker(behind.bootstrap_servers, NARROWED[request.param]) as broker:
        yield Older(replace(behind, bootstrap_servers=broker.address), is_narrowed=True)


def test_classic_member_works_with_an_older_broker(older: Older) -> None:
    """Rules 4.2 and 4.8: a member joins, syncs, heartbeats, commits, fetches its commits, is described, and leaves."""
    everything = older.cluster.partitions(0, 1, 2, 3)

    async def act(member: Member) -> None:
        joined = await member.join()
        assert (joined.is_leader, joined.protocol_name, joined.unreadable) == (True, "range", {})
        assert (await member.sync({member.member_id: everything})).assignment == everything
        assert await member.heartbeat() == ClassicHeartbeatAnswered(request_id=3)
        committed = await member.commit(joined.generation)
        assert (committed.membership, set(committed.answer.errors.values())) == (None, {None})
        coordinator, client, group = await member.coordinator(), member.client, member.group
        at_one = dict.fromkeys(everything, OffsetAndMetadata(offset=1))
        fetched = await GroupClient(client).fetch_committed(
            coordinator,
            group,
            everything,
            member_id=NO_MEMBER_ID,
            member_epoch=NO_EPOCH,
            require_stable=True,
            timeout_s=PATIENCE_S,
        )
        assert fetched == at_one
        assert await GroupClient(client).all_committed(coordinator, group, PATIENCE_S) == at_one
        described = await GroupClient(client).describe_classic_group(coordinator, group, PATIENCE_S)
        assert (described.protocol, described.state, described.assignor) == (GroupProtocol.CLASSIC, "Stable", "range")
        assert [(one.member_id, one.assignment) for one in described.members] == [(member.member_id, everything)]
        await member.leave()
        assert await member.heartbeat() is ClassicVerdict.REJOIN

    with_members(older.cluster, 1, act)


def test_static_classic_member_is_replaced_on_an_older_broker(older: Older) -> None:
    """KIP-345: the holder is fenced, and the newcomer gets its partitions.

    A leader that returns becomes a follower; with JoinGroup 9 it leads and skips the assignment (KIP-814).
    """
    everything = older.cluster.partitions(0, 1, 2, 3)

    async def act(holder: Member, newcomer: Member) -> None:
        first = await holder.join()
        await holder.sync({holder.member_id: everything})
        second = await newcomer.join()
        assert second.generation == first.generation
        assert (second.is_leader, second.skip_assignment) == ((False, False) if older.is_narrowed else (True, True))
        assert (await newcomer.sync()).assignment == everything
        assert await holder.heartbeat() is ClassicVerdict.FATAL
        await newcomer.leave()

    with_members(older.cluster, 2, act, instance_id="i")


def test_older_broker_returns_topics_and_offsets(older: Older) -> None:
    """The responses contain leaders, racks and both ends of each partition."""
    everything = older.cluster.partitions(0, 1, 2, 3)

    async def act(member: Member) -> None:
        found = topics_of(await member.client.metadata({older.cluster.topic}), frozenset({older.cluster.topic}))
        racks = {} if older.is_narrowed else dict.fromkeys(everything, frozenset({"a"}))
        assert found == Topics(partitions={older.cluster.topic: 4}, racks=racks)
        for read_committed in (False, True):
            for timestamp, offset in ((-2, 0), (-1, 1), (0, 0)):
                asked = dict.fromkeys(everything, timestamp)
                assert await member.client.list_offsets(
                    asked, read_committed=read_committed, timeout_s=PATIENCE_S
                ) == dict.fromkeys(everything, offset)

    with_members(older.cluster, 1, act)


def test_topic_names_raises_on_a_broker_without_topic_ids(older: Older) -> None:
    """KIP-516: Metadata 12 resolves topic ids.

    On older versions the refusal is final and names the required release.
    """
    topic_id = uuid.uuid4()

    async def act(member: Member) -> None:
        if not older.is_narrowed:
            assert await member.client.topic_names(frozenset({topic_id}), PATIENCE_S) == {}
            return
        with pytest.raises(BrokerRefusal, match=r"Use a broker of Apache Kafka 3\.0 or later\.") as refused:
            await member.client.topic_names(frozenset({topic_id}), PATIENCE_S)
        assert (refused.value.error.code, refused.value.retriable) == (ErrorCode.unsupported_version.value, False)

    with_members(older.cluster, 1, act)
