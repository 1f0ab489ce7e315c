"""The ports of proxies: if they close, the client's connection ends, at any step of the connection's start."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.support.listeners import Listeners
from tests.support.waiting import PATIENCE_S

#: More steps than asyncio needs until it serves a new connection.
STEPS = 8


async def closed_after(steps: int) -> socket.socket:
    """Connect, close the port after this many steps of the loop, and return the client's end."""
    served = []

    async def serve(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        served.append(reader)
        await reader.read()

    listeners = Listeners()
    port = listeners.listen("127.0.0.1", serve)
    client = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    for _ in range(steps):
        await asyncio.sleep(0)
    await listeners.close()
    assert served or steps < STEPS
    return client


@pytest.mark.parametrize("steps", range(STEPS + 1))
def test_connection_ends_with_its_port_at_any_step_of_its_begin(steps: int) -> None:
    """Neither a connection that waits to be accepted nor one whose task has not begun is left open."""
    with asyncio.run(closed_after(steps)) as client:
        try:
            received = client.recv(1)
        except ConnectionResetError:
            received = b""
        assert received == b""


def test_served_connection_is_aborted_when_its_service_returns() -> None:
    """A connection is aborted when its service returns, and the port stays open for other connections."""

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"x")
        await writer.drain()

    async def run() -> list[bytes]:
        listeners = Listeners()
        port = listeners.listen("127.0.0.1", serve)
        found = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            found.append(await reader.read())
            writer.transport.abort()
        await listeners.close()
        return found

    assert asyncio.run(run()) == [b"x", b"x"]
