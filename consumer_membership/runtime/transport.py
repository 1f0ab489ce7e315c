"""One TCP connection to one broker: the socket around `wire.connection`.

It sends what it is given and hands each answer to whoever waits for it. It does not retry, reconnect or choose a
broker: `connections` does. TLS will come in where the transport is made (`_open`): asyncio wraps the socket, and
nothing else changes.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import TypeVar, assert_never, cast

from kio.static.protocol import ResponsePayload

from consumer_membership.config import ConnectionSettings
from consumer_membership.errors import TransportError
from consumer_membership.runtime.addresses import Address, resolve
from consumer_membership.version import __version__
from consumer_membership.wire.connection import Broken, BytesToSend, Connection, Event, Ready, ResponseReceived
from consumer_membership.wire.frames import Call
from consumer_membership.wire.versions import BrokerVersions

ResponseT = TypeVar("ResponseT", bound=ResponsePayload)


class RequestTimedOutError(TransportError):
    """The connection stands, but the answer did not come in time."""


class BrokerConnection(asyncio.Protocol):
    """A connection that is ready for requests; `connect` makes one.

    `on_closed` is called once, when the peer or the network ended the connection: with the reason, and whether
    requests were waiting (they get the reason too). A `close` from this side does not call it.
    """

    def __init__(self, peer: str, settings: ConnectionSettings) -> None:
        self.peer = peer
        self.on_closed: Callable[[TransportError, bool], None] | None = None
        self._settings = settings
        self._protocol = Connection(
            client_id=settings.client_id,
            max_frame_bytes=settings.receive_message_max_bytes,
            software_version=__version__,
        )
        self._ready: asyncio.Future[BrokerVersions] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[ResponsePayload]] = {}
        self._error: TransportError | None = None

    @property
    def versions(self) -> BrokerVersions:
        """What the broker offers."""
        return self._ready.result()

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._error is None

    async def ready(self) -> None:
        """Wait for the end of the handshake; raises what broke it, or what ended the connection right behind it."""
        await self._ready
        if self._error is not None:
            raise self._error

    async def request(self, call: Call[ResponseT], timeout_s: float) -> ResponseT:
        """The broker's answer to this call.

        Requests may overlap; the broker answers in their order. An answer that comes after its time is dropped.

        Raises:
            RequestTimedOutError: no answer within `timeout_s`.
            TransportError: the connection ended first.
        """
        if self._error is not None or self._transport is None:
            raise TransportError(f"{self.peer}: the connection is closed") from self._error
        correlation_id, data = self._protocol.send(call)
        waiter: asyncio.Future[ResponsePayload] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = waiter
        self._transport.write(data)
        try:
            async with asyncio.timeout(timeout_s):
                return cast("ResponseT", await waiter)
        except TimeoutError as error:
            raise RequestTimedOutError(
                f"{self.peer}: no answer to {call.name} within {timeout_s:.3g} s; is the broker overloaded, or the "
                "network cut?"
            ) from error
        finally:
            self._waiting.pop(correlation_id, None)

    async def close(self) -> None:
        """End the connection from this side; who waits for an answer gets a TransportError. May be called again."""
        self.drop(TransportError(f"{self.peer}: the connection was closed by this side"))
        if self._transport is not None:
            await self._ended.wait()

    def drop(self, error: TransportError) -> None:
        """Give the connection up for this reason, without waiting for its end."""
        if self._error is None:
            self.on_closed = None
            self._fail(error)

    # ---- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake (called by asyncio)."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._protocol.start())

    def data_received(self, data: bytes) -> None:
        """Take bytes (called by asyncio)."""
        for event in self._protocol.receive(data):
            self._take(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed (called by asyncio)."""
        # A reset and a broken pipe are the peer's end too, seen a moment later.
        if exc is not None and not isinstance(exc, ConnectionError):
            self._fail(TransportError(f"{self.peer}: the connection broke ({exc})"))
        for event in self._protocol.receive_end():
            self._take(event)
        self._ended.set()

    def _take(self, event: Event) -> None:
        match event:
            case BytesToSend(data=data):
                if self._transport is not None:
                    self._transport.write(data)
            case Ready(versions=versions):
                if not self._ready.done():
                    self._ready.set_result(versions)
            case ResponseReceived(correlation_id=correlation_id, entity=entity):
                waiter = self._waiting.get(correlation_id)
                if waiter is not None and not waiter.done():
                    waiter.set_result(entity)
            case Broken(error=error):
                self._fail(TransportError(f"{self.peer}: {error}"))
            case _:
                assert_never(event)

    def _fail(self, error: TransportError) -> None:
        """The one place where a connection ends: everybody learns the first reason."""
        if self._error is not None:
            return
        self._error = error
        had_waiters = bool(self._waiting)
        waiters: list[asyncio.Future[BrokerVersions] | asyncio.Future[ResponsePayload]]
        waiters = [self._ready, *self._waiting.values()]
        for waiter in waiters:
            if not waiter.done():
                # One for each: an exception that several tasks raise gathers all their tracebacks.
                waiter.set_exception(TransportError(str(error)))
                # Who was cancelled meanwhile does not come for it, which asyncio would complain of.
                waiter.exception()
        if self._transport is not None:
            # Nobody waits for what is not written yet; a graceful close would wait for a peer that does not read.
            self._transport.abort()
        if self.on_closed is not None:
            self.on_closed(error, had_waiters)


async def connect(host: str, port: int, settings: ConnectionSettings) -> BrokerConnection:
    """A connection to this broker, ready for requests; tries all addresses of the host.

    Raises:
        TransportError: none of them led to a Kafka broker; the text names the peer, what happened and the remedy.
    """
    peer = f"{host}:{port}"
    failures: list[str] = []
    try:
        for address in await resolve(host, port, settings.address_family):
            try:
                return await _open(peer, address, settings)
            except TransportError as error:
                failures.append(str(error).removeprefix(f"{peer}: "))
    except TransportError as error:
        raise TransportError(f"{peer}: {error}") from error
    raise TransportError(f"{peer}: {'; '.join(dict.fromkeys(failures))}")


async def _open(peer: str, address: Address, settings: ConnectionSettings) -> BrokerConnection:
    connection = BrokerConnection(peer, settings)
    stage, hint = f"no connection to {address}", "is the host up, and does a firewall drop the packets?"
    sock = _socket(address, settings)
    is_ready = False
    try:
        async with asyncio.timeout(settings.connection_setup_timeout_s):
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, address.sockaddr)
            stage, hint = f"connected to {address}, no answer", "is this the port of a Kafka broker?"
            await loop.create_connection(lambda: connection, sock=sock)
            # asyncio switches Nagle's algorithm off by itself.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.disable_nagle)
            await connection.ready()
        is_ready = True
    except TimeoutError as error:
        raise TransportError(f"{stage} within {settings.connection_setup_timeout_s:.3g} s; {hint}") from error
    except OSError as error:
        raise TransportError(f"{stage}: {_explain(error)}") from error
    finally:
        if not is_ready:
            connection.drop(TransportError(f"{peer}: the connection was given up"))
            sock.close()
    return connection


def _socket(address: Address, settings: ConnectionSettings) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    sock.setblocking(False)
    if settings.keepalive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Before connecting: the receive buffer decides about the window scale of the handshake.
    if settings.send_buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
    if settings.receive_buffer_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)
    return sock


def _explain(error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        return "connection refused; nothing listens there: is the broker running, and is the port right?"
    return f"{error.strerror or error}; check the address and the network on the way"
