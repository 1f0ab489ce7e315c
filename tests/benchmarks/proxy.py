"""A TCP proxy between a client and the broker that counts requests by kind, for example the heartbeats.

Every connection of the client goes through it, because it replaces the broker's port in responses (`with_own_port`).
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tests.support.listeners import Listeners
from tests.support.proxy import with_own_port

if TYPE_CHECKING:
    from types import TracebackType

HEARTBEATS = frozenset({12, 68})
"""The api keys of Heartbeat (classic) and ConsumerGroupHeartbeat (KIP-848)."""

ALL_KINDS = frozenset(range(1000))

_SIZE = struct.Struct(">i")


class CountingProxy:
    """A proxy on a port of its own, in front of one broker that advertises an address of this machine."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.split(",", maxsplit=1)[0].rpartition(":")
        self._host, self._port = host, int(port)
        self._own_port = 0
        self._seen: list[tuple[float, int]] = []
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_up.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop.close()

    @property
    def port(self) -> int:
        """The proxy's port."""
        return self._own_port

    @property
    def address(self) -> str:
        """The address to which a client connects."""
        return f"{self._host}:{self._own_port}"

    def requests(self, kinds: frozenset[int], since: float, until: float) -> list[float]:
        """Return when requests of these API keys were forwarded, as CLOCK_MONOTONIC."""
        return [at for at, kind in list(self._seen) if kind in kinds and since <= at < until]

    async def _serve(self) -> None:
        listeners = Listeners()
        self._own_port = listeners.listen(self._host, self._connected)
        self._is_up.set()
        await self._stopping.wait()
        await listeners.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        ways = [
            asyncio.ensure_future(way)
            for way in (self._requests(reader, broker_writer), self._responses(broker_reader, writer))
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            broker_writer.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(_SIZE.size)
                frame = await reader.readexactly(_SIZE.unpack(size)[0])
                self._seen.append((time.monotonic(), struct.unpack_from(">h", frame)[0]))
                writer.write(size + frame)
                await writer.drain()

    async def _responses(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(_SIZE.size)
                frame = await reader.readexactly(_SIZE.unpack(size)[0])
                writer.write(size + with_own_port(frame, self._host, self._port, self._own_port))
                await writer.drain()
