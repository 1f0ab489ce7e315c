"""A proxy between one member and each broker of a cluster, which can cut, delay and stall the network.

All connections of the member go through it, because it replaces the ports of brokers in responses by its own ports
(`tests.support.proxy.with_own_port`). A mode applies to all brokers or to one broker.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Self

from tests.support.listeners import Listeners
from tests.support.proxy import with_own_port
from tests.support.waiting import PATIENCE_S

_SIZE = struct.Struct(">i")
#: SO_LINGER with zero seconds: closing the socket resets the connection.
_RESET = struct.pack("ii", 1, 0)
#: The delay of each frame in one direction, the duration of a stall, and the time between two stalls.
DELAY_S, STALL_S, FLOW_S = 0.3, 1.2, 0.3


class Mode(Enum):
    """How the network transports frames.

    Attributes:
        PASS: Frames pass.
        HOLD: No frame arrives and no connection is reset until the mode ends; then all frames arrive: a pulled cable.
        RESET: Existing and new connections are reset.
        DELAY: Each frame is delayed by `DELAY_S`.
        STALL: Frames are held for `STALL_S` and pass for `FLOW_S`, in turns, as TCP does with many lost packets.
        SILENCE: Requests arrive, and responses are lost.
    """

    PASS = auto()
    HOLD = auto()
    RESET = auto()
    DELAY = auto()
    STALL = auto()
    SILENCE = auto()


class Links:
    """The proxies of one member for the brokers at these addresses; a context manager."""

    def __init__(self, addresses: Collection[str]) -> None:
        self._brokers = [(host, int(port)) for host, _, port in (address.rpartition(":") for address in addresses)]
        self._ports: dict[int, int] = {}
        self._modes = dict.fromkeys((port for _, port in self._brokers), Mode.PASS)
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._stopping = asyncio.Event()
        self._changed: asyncio.Event = asyncio.Event()
        self._connections: dict[int, set[asyncio.StreamWriter]] = {port: set() for _, port in self._brokers}
        self._forgotten: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(PATIENCE_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def servers(self) -> str:
        """The bootstrap servers of the member."""
        return ",".join(f"{host}:{self._ports[port]}" for host, port in self._brokers)

    def change(self, mode: Mode, address: str | None = None) -> None:
        """Use this mode for the broker at this address, or for all of them."""

        def act() -> None:
            for _, port in self._brokers:
                if address is None or address.endswith(f":{port}"):
                    self._modes[port] = mode
                    if mode is Mode.RESET:
                        for writer in self._connections[port]:
                            _reset(writer)
            self._wake()

        self._do(act)

    def forget(self) -> None:
        """Make the existing connections silent permanently; new ones work, as behind a router that lost its tables."""

        def act() -> None:
            for writers in self._connections.values():
                self._forgotten |= writers

        self._do(act)

    # ---- the loop ----

    def _do(self, action: Callable[[], None]) -> None:
        is_done = threading.Event()

        def act() -> None:
            action()
            is_done.set()

        self._loop.call_soon_threadsafe(act)
        assert is_done.wait(PATIENCE_S)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self) -> None:
        listeners = Listeners()
        for host, port in self._brokers:
            self._ports[port] = listeners.listen(host, partial(self._connected, host, port))
        self._is_up.set()
        await self._stopping.wait()
        await listeners.close()

    async def _connected(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if self._modes[port] is Mode.RESET:
            _reset(writer)
            return
        try:
            broker_reader, broker_writer = await asyncio.open_connection(host, port)
        except OSError:
            _reset(writer)
            return
        self._connections[port].add(writer)
        try:
            directions = [
                asyncio.ensure_future(self._pass(port, writer, reader, broker_writer, is_response=False)),
                asyncio.ensure_future(self._pass(port, writer, broker_reader, writer, is_response=True)),
            ]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        finally:
            self._connections[port].discard(writer)
            self._forgotten.discard(writer)
            broker_writer.transport.abort()

    async def _pass(
        self,
        port: int,
        client: asyncio.StreamWriter,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_response: bool,
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(_SIZE.size)
                frame = size + await reader.readexactly(_SIZE.unpack(size)[0])
                if is_response:
                    for host, broker_port in self._brokers:
                        frame = with_own_port(frame, host, broker_port, self._ports[broker_port])
                if await self._is_passed(port, client, is_response=is_response):
                    writer.write(frame)
                    await writer.drain()

    async def _is_passed(self, port: int, client: asyncio.StreamWriter, *, is_response: bool) -> bool:
        """Wait while the network holds the frame; return whether it arrives."""
        if client in self._forgotten:
            return False
        match self._modes[port]:
            case Mode.DELAY:
                await asyncio.sleep(DELAY_S)
            case Mode.STALL:
                remaining = STALL_S - self._loop.time() % (STALL_S + FLOW_S)
                await asyncio.sleep(max(0.0, remaining))
            case Mode.SILENCE if is_response:
                return False
            case _:
                pass
        while self._modes[port] is Mode.HOLD:
            await self._changed.wait()
        return client not in self._forgotten


def _reset(writer: asyncio.StreamWriter) -> None:
    end = writer.get_extra_info("socket")
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
