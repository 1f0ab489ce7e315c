"""The scripted broker stops in the same way as a real broker; tests of outages rely on this."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.cluster import Cluster
from tests.runtime.clients import answers, with_client
from tests.support.scripted_broker import Answer, Received, ScriptedBroker
from tests.support.waiting import PATIENCE_S

#: Enough rounds to stop the node at each stage of a connection between the kernel and its handler.
ROUNDS = 100


def test_stop_node_closes_every_connection() -> None:
    """A connection that arrives during the stop also ends; otherwise its client would wait for its setup timeout."""
    with ScriptedBroker() as broker:
        for _ in range(ROUNDS):
            with socket.create_connection(broker.servers[0], PATIENCE_S) as client:
                broker.stop_node(1)
                with suppress(ConnectionResetError):
                    assert client.recv(1) == b""
            broker.start_node(1)


def test_stop_node_keeps_its_port_reserved() -> None:
    """No other process gets the port, and connections to it are refused."""
    with ScriptedBroker(nodes=2) as broker:
        address = broker.servers[0]
        broker.stop_node(1)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        for _ in range(ROUNDS):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, PATIENCE_S)
        broker.start_node(1)
        socket.create_connection(address, PATIENCE_S).close()


def test_scripted_broker_fails_the_test_if_its_script_raises() -> None:
    """The client detects the end of the connection."""

    def wrong(_: Received) -> Answer:
        raise ValueError("no such group")

    async def ask(client: Cluster) -> None:
        with pytest.raises(TransportError, match="the peer closed the connection"):
            await client.find_coordinator("g", PATIENCE_S)

    broker = ScriptedBroker(answers(find=wrong))
    with pytest.raises(AssertionError, match="no such group"), broker:
        with_client(broker.servers, ask)
