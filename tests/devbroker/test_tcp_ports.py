"""Ports for the nodes, and retries after a port conflict."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from consumer_membership.devbroker import BrokerUnavailableError
from consumer_membership.devbroker.tcp_ports import (
    LOOPBACK,
    PortTakenError,
    distinguish_taken_port,
    draw_ports,
    is_free,
    node_ports,
    retry_taken_ports,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def taken_port() -> Iterator[int]:
    """Return a port on which a server listens."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


def test_draw_ports_returns_free_and_different_ports() -> None:
    """Drawn ports are free, and each node receives another port."""
    ports = draw_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_draw_ports_avoids_ephemeral_ports() -> None:
    """Drawn ports are never ephemeral, so that no client can take the port of a node that is restarted."""
    assert all(port < 32_768 for port in draw_ports(20))


def test_draw_ports_skips_ports_to_avoid() -> None:
    """A controller never receives a port that is reserved for a node."""
    avoided = range(20_000, 32_000)
    assert not set(draw_ports(20, avoid=avoided)) & set(avoided)


def test_node_ports_with_requested_port_in_use_raises(taken_port: int) -> None:
    """If the requested port is in use, an error without a retry is raised, because no other port would be correct."""
    with pytest.raises(BrokerUnavailableError, match=f"port {taken_port} on 127.0.0.1 is in use") as refused:
        node_ports(1, taken_port)
    assert not isinstance(refused.value, PortTakenError)


def test_node_ports_count_up_from_requested_port() -> None:
    """The nodes after the first node have the next ports."""
    first = next(port for port in draw_ports(10) if is_free(port + 1))
    assert node_ports(2, first) == [first, first + 1]


def test_retry_taken_ports_retries_after_bind_conflict() -> None:
    """A start is repeated with other ports after a bind conflict, because concurrent starts may draw the same port."""
    attempts: list[int] = []

    def start() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            with distinguish_taken_port():
                raise BrokerUnavailableError("node 1 ended: Socket server failed to bind: Address already in use.")
        return "started"

    assert retry_taken_ports(start) == "started"
    assert len(attempts) == 3


def test_retry_taken_ports_does_not_retry_other_failures() -> None:
    """Other failures are not retried: a broker that rejects its properties would reject them again."""
    attempts: list[int] = []

    def start() -> None:
        attempts.append(1)
        with distinguish_taken_port():
            raise BrokerUnavailableError("node 1 ended: Invalid value -1 for configuration group.max.size")

    with pytest.raises(BrokerUnavailableError, match="Invalid value"):
        retry_taken_ports(start)
    assert len(attempts) == 1
