"""Ports for the nodes, and losing the race for one."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from consumer_membership.devbroker import BrokerUnavailableError
from consumer_membership.devbroker.tcp_ports import (
    LOOPBACK,
    PortTakenError,
    draw_ports,
    is_free,
    node_ports,
    retry_taken_ports,
    taken_port_told_apart,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server((LOOPBACK, 0)) as server:
        yield server.getsockname()[1]


def test_drawn_ports_are_free_and_different() -> None:
    """Each node gets a port of its own."""
    ports = draw_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) for port in ports)


def test_drawn_ports_are_not_those_of_outgoing_connections() -> None:
    """A restarted node finds its port free: the system never gives it to a client meanwhile."""
    assert all(port < 32_768 for port in draw_ports(20))


def test_ports_to_avoid_are_not_drawn() -> None:
    """A controller does not get a port that a node was promised."""
    avoided = range(20_000, 32_000)
    assert not set(draw_ports(20, avoid=avoided)) & set(avoided)


def test_port_that_was_asked_for_and_is_taken_is_refused(taken_port: int) -> None:
    """No other port would do, so there is nothing to retry."""
    with pytest.raises(BrokerUnavailableError, match=f"port {taken_port} on 127.0.0.1 is taken") as refused:
        node_ports(1, taken_port)
    assert not isinstance(refused.value, PortTakenError)


def test_nodes_count_up_from_the_port_that_was_asked_for() -> None:
    """The second node is where one expects it."""
    first = next(port for port in draw_ports(10) if is_free(port + 1))
    assert node_ports(2, first) == [first, first + 1]


def test_lost_race_for_a_port_is_run_again() -> None:
    """Two starts at once may draw the same port; one of them draws again."""
    attempts: list[int] = []

    def start() -> str:
        attempts.append(1)
        if len(attempts) < 3:
            with taken_port_told_apart():
                raise BrokerUnavailableError("node 1 ended: Socket server failed to bind: Address already in use.")
        return "started"

    assert retry_taken_ports(start) == "started"
    assert len(attempts) == 3


def test_other_failure_is_not_run_again() -> None:
    """A broker that refuses its properties refuses them five times as well."""
    attempts: list[int] = []

    def start() -> None:
        attempts.append(1)
        with taken_port_told_apart():
            raise BrokerUnavailableError("node 1 ended: Invalid value -1 for configuration group.max.size")

    with pytest.raises(BrokerUnavailableError, match="Invalid value"):
        retry_taken_ports(start)
    assert len(attempts) == 1
