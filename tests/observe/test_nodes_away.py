"""Incidents of stopped nodes: the doctor's first finding names the unavailable part."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from consumer_membership.admin.group_log import TOPIC, partition_of
from consumer_membership.observe.doctor import diagnose
from consumer_membership.observe.findings import Cause, GroupFinding
from consumer_membership.observe.observation import observe
from tests.observe.incidents import RAW, Stage, application
from tests.support.brokers import RunBrokers
from tests.support.kafka import unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: The coordinators' topic has few partitions, each with one replica, so that each node coordinates some groups alone.
_PROPERTIES = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


def leaders(servers: str, topic: str) -> dict[int, int]:
    """Return the leader of each partition, or -1."""
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return {number: one.leader for number, one in described.partitions.items()}


def on_nodes(servers: str, *nodes: int) -> str:
    """Create a topic with one partition on each of these nodes."""
    name = unique("topic")
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(name, num_partitions=len(nodes), replica_assignment=[[node] for node in nodes])
    admin.create_topics([topic], operation_timeout=PATIENCE_S)[name].result()
    wait_until(
        lambda: leaders(servers, name) == dict(enumerate(nodes)), "the leaders", seen=lambda: leaders(servers, name)
    )
    return name


def found(stage: Stage, group: str) -> tuple[GroupFinding, ...]:
    """Return the doctor's findings."""
    return diagnose(observe(stage.admin, group, 3.0))


def coordinated_by(servers: str, node: int) -> str:
    """Return a group id whose coordinator is this node."""
    leads = leaders(servers, TOPIC)
    return next(
        name for name in (unique("group") for _ in range(1_000)) if leads[partition_of(name, len(leads))] == node
    )


def test_doctor_names_offline_partition_and_unavailable_coordinator(broker_pool: RunBrokers) -> None:
    """The doctor names a partition and a coordinator that are unavailable because their only node is stopped."""
    with broker_pool.own(nodes=3, properties=_PROPERTIES) as broker:
        servers = broker.bootstrap_servers
        stage = Stage(servers)
        away, *others = broker.node_ids[::-1]
        stage.commit(unique("first"), (on_nodes(servers, others[0]), 0, 0))
        read, unreachable = coordinated_by(servers, others[0]), coordinated_by(servers, away)
        topic = on_nodes(servers, others[0], away)
        stage.commit(unreachable, (topic, 0, 0))
        with application(RAW, servers, read, topic) as member:
            member.has(2)
            broker.stop_node(away)
            wait_until(lambda: -1 in leaders(servers, topic).values(), "a partition without a leader")
            first = found(stage, read)[0]
            assert (first.cause, first.subject) == (Cause.PARTITION_OFFLINE, f"{topic}[1]")
            assert found(stage, unreachable)[0].cause is Cause.COORDINATOR_UNAVAILABLE
