"""KIP-1242 on real brokers: a connection that reaches another broker than the wanted one is noticed and replaced."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from consumer_membership.config import ConnectionSettings
from consumer_membership.devbroker import Broker
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.translation import requests
from consumer_membership.types import BrokerAddress
from consumer_membership.wire.connection import WrongBrokerError
from tests.support.kafka import unique
from tests.support.versions import NEWEST
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def cluster_of(broker: Broker) -> Cluster:
    """Return a client of this broker."""
    host, _, port = broker.bootstrap_servers.partition(":")
    return Cluster(ConnectionSettings(bootstrap_servers=((host, int(port)),), reconnect_backoff_s=0.01))


async def found(cluster: Cluster, coordinator: BrokerAddress, group: str) -> str:
    """Return the name of the error with which a request to this coordinator fails; empty: it does not fail."""
    try:
        await cluster.coordinator_call(
            coordinator, lambda versions: requests.find_coordinator(versions, group), PATIENCE_S
        )
    except TransportError as error:
        return type(error).__name__
    return ""


def test_address_of_another_broker_is_noticed_and_the_brokers_are_requested_again(broker: Broker) -> None:
    """Kafka 4.4 compares the cluster and the node of a connection with its own; older brokers accept any client.

    The client learns from the first connection whether the brokers compare, so older brokers receive no version that
    they do not have.
    """
    is_checked = broker.version == NEWEST

    async def run() -> None:
        cluster = cluster_of(broker)
        try:
            (node,) = await cluster.brokers(PATIENCE_S)
            group = unique("group")
            assert await found(cluster, node, group) == ""
            moved = replace(node, node_id=node.node_id + 98, host="localhost")
            expected = WrongBrokerError.__name__ if is_checked else ""
            assert await found(cluster, moved, group) == expected
            assert cluster.connections.known_brokers == ({} if is_checked else {node.node_id: node})
            assert await cluster.find_coordinator(group, PATIENCE_S) == node
            assert await cluster.brokers(PATIENCE_S) == (node,)
        finally:
            await cluster.close()

    asyncio.run(run())
