"""A TCP proxy between one client and the broker, which can cut and restore the network.

All connections of the client, including librdkafka's, go through the proxy, because it replaces the broker's port in
responses by its own port (`with_own_port`). These methods disturb the network:

- `hold_from` acts like a pulled cable: no connection is reset, and sent bytes arrive later, because TCP resends them.
- `cut` acts like a firewall that resets all connections.
- `delay` holds a single request, which the broker receives after the client has abandoned or repeated it.
- `silence` holds the connections with requests of some kinds, as if the node behind these connections were cut off.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from tests.support.listeners import Listeners
from tests.support.waiting import PATIENCE_S, wait_until

#: API keys.
FETCH, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 1, 2, 8, 9, 10
INIT_PRODUCER_ID, END_TXN = 22, 26
TXN_OFFSET_COMMIT, HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 28, 68, 69
DESCRIBE_GROUPS = 15

_SIZE = struct.Struct(">i")
#: SO_LINGER with zero seconds: closing the socket resets the connection.
_RESET = struct.pack("ii", 1, 0)


def with_own_port(frame: bytes, host: str, port: int, own_port: int) -> bytes:
    """Return a frame in which each address host:port has another port.

    Metadata and FindCoordinator responses have the broker's address. In all versions of both responses the port follows
    the host directly, so a replacement of bytes of equal length needs no decoding.
    """
    host_bytes = host.encode()
    return frame.replace(host_bytes + _SIZE.pack(port), host_bytes + _SIZE.pack(own_port))


class Proxy:
    """A proxy in front of one broker with one node; a context manager."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._host, self._port = host, int(port)
        self._own_port = 0
        self._loop = asyncio.new_event_loop()
        self._changed = threading.Condition()
        self._stopping = asyncio.Event()
        self._passes = asyncio.Event()
        self._passes.set()
        self._resets = False
        self._holds_from: int | None = None
        self._delays: int | None = None
        self._resets_late = False
        self._late: bytes | None = None
        self._silences: frozenset[int] = frozenset()
        self._is_not_silenced = asyncio.Event()
        self._sockets: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()], daemon=True)
        #: The number of requests that wait until the network is restored, by API key.
        self.held: Counter[int] = Counter()
        #: The number of requests that were sent to the broker, by API key.
        self.passed: Counter[int] = Counter()
        #: The number of connections that were reset immediately.
        self.refused = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait(lambda: self._own_port > 0, "the proxy's port")
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._stopping.set)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    @property
    def address(self) -> str:
        """The address to which the client connects."""
        return f"{self._host}:{self._own_port}"

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; a failure names `what`."""
        wait_until(
            condition,
            what,
            changed=self._changed,
            seen=lambda: f"held {dict(self.held)}, refused {self.refused}",
        )

    # ---- the network ----

    def hold_from(self, kind: int) -> None:
        """From the next request of this kind on, hold all requests and responses, including this request."""

        def begin() -> None:
            self._holds_from = kind

        self._do(begin)

    def cut(self) -> None:
        """Reset all current and new connections."""

        def begin() -> None:
            self._resets = True
            for writer in list(self._sockets):
                _reset(writer)

        self._do(begin)

    def heal(self, *, forgets: bool = False) -> None:
        """Restore the network, and deliver held requests and responses.

        With `forgets`, existing connections stay silent permanently, as behind a router that lost its tables.
        """

        def end() -> None:
            self._resets = False
            self._holds_from = None
            self._silences = frozenset()
            self._is_not_silenced.set()
            if forgets:
                self._passes = asyncio.Event()
            self._passes.set()

        self._do(end)

    def silence(self, kinds: frozenset[int]) -> None:
        """Hold each connection from its next request of these kinds until `heal`; other connections continue."""

        def begin() -> None:
            self._silences = kinds
            self._is_not_silenced.clear()

        self._do(begin)

    def delay(self, kind: int, *, resets: bool) -> None:
        """Hold the next request of this kind until `arrive`, while requests on other connections pass.

        With `resets`, the client's connection is reset; otherwise it is silent until the client closes it.
        """

        def begin() -> None:
            self._delays, self._resets_late = kind, resets

        self._do(begin)

    @property
    def is_late(self) -> bool:
        """Return whether `delay` is holding a request."""
        return self._late is not None

    def arrive(self) -> bytes:
        """Send the late request to the broker; return the part of its response after the correlation id."""
        self.wait(lambda: self.is_late, "a late request")
        late, self._late = self._late, None
        assert late is not None
        with socket.create_connection((self._host, self._port), PATIENCE_S) as connection:
            connection.sendall(late)
            with connection.makefile("rb") as responses:
                (size,) = _SIZE.unpack(responses.read(_SIZE.size))
                return responses.read(size)[_SIZE.size :]

    def _do(self, action: Callable[[], None]) -> None:
        """Run the action on the event loop, and return when it is done."""
        is_done = threading.Event()

        def act() -> None:
            action()
            is_done.set()

        self._loop.call_soon_threadsafe(act)
        assert is_done.wait(PATIENCE_S)

    # ---- the loop ----

    def _note(self, action: Callable[[], None]) -> None:
        with self._changed:
            action()
            self._changed.notify_all()

    async def _serve(self) -> None:
        listeners = Listeners()
        port = listeners.listen(self._host, self._connected)

        def up() -> None:
            self._own_port = port

        self._note(up)
        await self._stopping.wait()
        await listeners.close()

    def _refuse(self) -> None:
        self.refused += 1

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._resets:
            _reset(writer)
            self._note(self._refuse)
            return
        broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        ends = {writer, broker_writer}
        self._sockets |= ends
        try:
            ways = [
                asyncio.ensure_future(self._requests(reader, writer, broker_writer, self._passes)),
                asyncio.ensure_future(self._answers(broker_reader, writer, self._passes)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self._sockets -= ends
            broker_writer.transport.abort()

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        client: asyncio.StreamWriter,
        writer: asyncio.StreamWriter,
        passes: asyncio.Event,
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await _frame(reader)
                kind: int = struct.unpack_from(">h", frame, _SIZE.size)[0]
                if kind == self._delays:
                    self._note(lambda: self._keep(frame))  # noqa: B023 - called at once
                    if self._resets_late:
                        _reset(client)
                    else:
                        # Later requests on this connection are lost.
                        await reader.read(-1)
                    return
                if kind == self._holds_from:
                    passes.clear()
                if not passes.is_set() or kind in self._silences:
                    self._note(lambda: self.held.update([kind]))  # noqa: B023 - called at once
                    await passes.wait()
                    if kind in self._silences:
                        await self._is_not_silenced.wait()
                    self._note(lambda: self.held.subtract([kind]))  # noqa: B023 - called at once
                writer.write(frame)
                self._note(lambda: self.passed.update([kind]))  # noqa: B023 - called at once
                await writer.drain()

    def _keep(self, frame: bytes) -> None:
        self._late, self._delays = frame, None

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passes: asyncio.Event) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = with_own_port(await _frame(reader), self._host, self._port, self._own_port)
                await passes.wait()
                writer.write(frame)
                await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(_SIZE.size)
    return size + await reader.readexactly(_SIZE.unpack(size)[0])


def _reset(writer: asyncio.StreamWriter) -> None:
    end = writer.get_extra_info("socket")
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
