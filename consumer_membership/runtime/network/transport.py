"""One TCP connection to one broker: the socket around `wire.connection`.

It sends requests and passes each response to the caller that waits for it. It does not retry, reconnect or choose a
broker: `connections` does. TLS is asyncio's, around the socket (`_open`); authentication is the protocol's, with the
mechanism of `security`.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import ssl
from collections import deque
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, assert_never, cast

from consumer_membership.config import AddressFamily, ConnectionSettings
from consumer_membership.errors import AuthenticationError, TransportError
from consumer_membership.runtime.failures import logger
from consumer_membership.runtime.network.connection_security import ConnectionSecurity
from consumer_membership.text import speakable
from consumer_membership.version import __version__
from consumer_membership.wire.codec import Call, Message
from consumer_membership.wire.connection import (
    Broken,
    BytesToSend,
    Connection,
    ConnectionEvent,
    ExpectedBroker,
    Ready,
    Renewed,
    ResponseReceived,
    WrongBrokerError,
)
from consumer_membership.wire.traffic import Traffic
from consumer_membership.wire.versions import BrokerVersions

if TYPE_CHECKING:
    from consumer_membership.wire.sasl import Mechanism

#: The part of a session (KIP-368) after which it is renewed: the Java client's bounds of a random value, so that the
#: connections of many clients that were started together do not all authenticate at once.
_RENEW_FROM, _RENEW_UNTIL = 0.85, 0.95

#: How long a peer that accepted the connection may be silent until that is reported: a broker answers within
#: milliseconds, a busy or distant one within this time. The attempt continues until its own time is over.
SILENT_AFTER_S = 2.0


#: The value of the socket module for each address family.
FAMILIES = MappingProxyType(
    {
        AddressFamily.ANY: socket.AF_UNSPEC,
        AddressFamily.V4: socket.AF_INET,
        AddressFamily.V6: socket.AF_INET6,
    }
)

# The resolver's result, which the socket takes; its shape differs by family.
_SocketAddress: TypeAlias = Any
_HIGHEST_PORT = 2**16 - 1

#: The broker's time for one request until it has been measured: a coordinator answers after it has written a record.
_FIRST_ANSWER_S = 0.005
#: The weight of each response in the average.
_NEWEST_SHARE = 1 / 8


class AnswerTimedOutError(TransportError):
    """The connection is open, but the response did not come in time."""


class BrokerConnection(asyncio.Protocol):
    """A connection that is ready for requests; `connect` makes one.

    `on_closed` is called once, when the peer or the network ended the connection: with the reason, which waiting
    requests get too. A `close` from this side does not call it.
    """

    def __init__(
        self,
        host: str,
        peer: str,
        settings: ConnectionSettings,
        security: ConnectionSecurity,
        mechanism: Mechanism | None = None,
        *,
        expected: ExpectedBroker | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.peer = peer
        self.on_closed: Callable[[TransportError], None] | None = None
        #: Whether the peer has sent anything.
        self.has_received = False
        self._host = host
        self._security = security
        self._protocol = Connection(
            client_id=settings.client_id,
            max_frame_bytes=settings.receive_message_max_bytes,
            software_version=__version__,
            mechanism=mechanism,
            expected=expected,
            traffic=traffic,
        )
        self._ready: asyncio.Future[BrokerVersions] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        #: How many requests were written, and when each request without a response was written.
        self.written = 0
        self._unanswered: deque[float] = deque()
        self._error: TransportError | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        #: The broker's time for one request, as an average, and when it sent its latest response.
        self._answer_s = _FIRST_ANSWER_S
        self._answered_at = 0.0
        #: Until when the broker reads nothing (KIP-219).
        self._throttled_until = 0.0
        #: The bytes that are written later, in their order, and the handle of the call that writes them: at the end of
        #: the throttle, or in the next turn of the loop, with the other requests of this turn.
        self._withheld: list[bytes] = []
        self._release: asyncio.Handle | None = None
        self._used_at = asyncio.get_running_loop().time()
        #: When the peer last sent something; 0: never.
        self.responded_at = 0.0

    @property
    def idle_s(self) -> float:
        """How long the connection has been idle; 0 while a response is awaited."""
        return 0.0 if self._waiting else asyncio.get_running_loop().time() - self._used_at

    @property
    def unanswered(self) -> int:
        """How many requests have no response yet, including those that no caller waits for any more."""
        return len(self._unanswered)

    @property
    def answered(self) -> int:
        """How many requests have a response; a broker responds in their order."""
        return self.written - len(self._unanswered)

    @property
    def delay_s(self) -> float:
        """How long another request would wait here for the earlier requests; 0 if each has its response.

        At least as long as the oldest one has waited, because a broker handles one request after the other.
        """
        if not self._unanswered:
            return 0.0
        return max(asyncio.get_running_loop().time() - self._unanswered[0], len(self._unanswered) * self._answer_s)

    @property
    def versions(self) -> BrokerVersions:
        """The API versions of the broker."""
        return self._ready.result()

    @property
    def traffic(self) -> Traffic:
        """The traffic of this connection, and of others with the same counts."""
        return self._protocol.traffic

    @property
    def is_open(self) -> bool:
        """Whether requests may be sent."""
        return self._error is None

    async def ready(self) -> None:
        """Wait for the end of the handshake; raises its failure, or the reason of a disconnect right after it."""
        await self._ready
        if self._error is not None:
            raise self._error

    @property
    def throttled_s(self) -> float:
        """How long the broker still throttles this client, in seconds."""
        return max(0.0, self._throttled_until - asyncio.get_running_loop().time())

    async def request(self, call: Call, timeout_s: float) -> Message:
        """Return the broker's response to this call.

        Requests may overlap; the broker answers in their order. A response that comes too late is dropped. While the
        broker throttles this client, the request waits, and `timeout_s` begins after that (KIP-219).

        Raises:
            AnswerTimedOutError: no response within `timeout_s`.
            TransportError: the connection ended first.
        """
        if self._error is not None or self._transport is None:
            raise TransportError(f"{self.peer}: the connection is closed") from self._error
        correlation_id, data = self._protocol.send(call)
        waiter: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = waiter
        self._write(data)
        self._used_at = asyncio.get_running_loop().time()
        self.written += 1
        self._unanswered.append(self._used_at)
        try:
            async with asyncio.timeout(timeout_s + self.throttled_s):
                return await waiter
        except TimeoutError as error:
            self.traffic.timeouts += 1
            raise AnswerTimedOutError(
                f"{self.peer}: no response to {call.name} within {timeout_s:.3g} s; check the load of the broker "
                "and the network"
            ) from error
        finally:
            self._waiting.pop(correlation_id, None)

    async def close(self) -> None:
        """End the connection from this side; waiting callers get a TransportError. May be called again."""
        self.drop(TransportError(f"{self.peer}: the connection was closed by this side"))
        if self._transport is not None:
            await self._ended.wait()

    def drop(self, error: TransportError) -> None:
        """Give up the connection for this reason, without waiting for its end."""
        if self._error is None:
            if self.throttled_s <= 0:
                self._write_withheld()
            self.on_closed = None
            self._fail(error)

    # ---- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake (called by asyncio)."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._protocol.start())

    def data_received(self, data: bytes) -> None:
        """Process received bytes (called by asyncio)."""
        self.has_received = True
        self._used_at = self.responded_at = asyncio.get_running_loop().time()
        events = self._protocol.receive(data)
        self._throttle(self._protocol.take_throttle_s())
        for event in events:
            self._take(event)

    def _write(self, data: bytes) -> None:
        """Write now, or when the broker reads again; while a response is awaited, once in each turn of the loop.

        Requests of many members then need one system call. Each call lets another thread of the program run, which
        returns the interpreter only after 5 ms if it is busy (`sys.getswitchinterval`).
        """
        if self._release is not None:
            self._withheld.append(data)
        elif self._unanswered:
            self._withheld.append(data)
            self._release = asyncio.get_running_loop().call_soon(self._write_withheld)
        elif self._transport is not None:
            self._transport.write(data)

    def _throttle(self, seconds: float) -> None:
        """Write nothing for this time: until then, the broker reads nothing from this connection."""
        loop = asyncio.get_running_loop()
        if seconds <= 0 or loop.time() + seconds <= self._throttled_until:
            return
        self._throttled_until = loop.time() + seconds
        if self._release is not None:
            self._release.cancel()
        self._release = loop.call_at(self._throttled_until, self._write_withheld)
        logger.debug("%s: throttled by the broker for %.3f s", self.peer, seconds)

    def _write_withheld(self) -> None:
        self._release = None
        withheld, self._withheld = self._withheld, []
        if withheld and self._transport is not None and self._error is None:
            self._transport.write(b"".join(withheld))

    def connection_lost(self, exc: Exception | None) -> None:
        """Process the end of the socket (called by asyncio)."""
        # A reset and a broken pipe also mean that the peer ended the connection, noticed a moment later.
        if isinstance(exc, ssl.SSLError):
            # With TLS 1.3 a broker refuses a client's certificate after the handshake.
            self._fail(TransportError(f"{self.peer}: {_explained(exc)}"))
        elif exc is not None and not isinstance(exc, ConnectionError):
            self._fail(TransportError(f"{self.peer}: the connection broke ({exc})"))
        for event in self._protocol.receive_end():
            self._take(event)
        self._ended.set()

    def _take(self, event: ConnectionEvent) -> None:
        match event:
            case BytesToSend(data=data):
                self._write(data)
            case Ready(versions=versions, session_s=session_s):
                if not self._ready.done():
                    self._ready.set_result(versions)
                self._renew_within(session_s)
            case Renewed(session_s=session_s, data=data):
                logger.debug("%s: SASL session renewed (KIP-368)", self.peer)
                self._write(data)
                self._renew_within(session_s)
            case ResponseReceived(correlation_id=correlation_id, message=message):
                self._note_answer(self._unanswered.popleft())
                waiter = self._waiting.get(correlation_id)
                if waiter is not None and not waiter.done():
                    waiter.set_result(message)
            case Broken(error=error):
                self._fail(type(error)(f"{self.peer}: {error}"))
            case _:
                assert_never(event)

    def _note_answer(self, written_at: float) -> None:
        """Count the broker's time for one request: since the previous response, or since the request was written."""
        now = self._used_at
        took_s = now - max(written_at, self._answered_at)
        self._answer_s += (took_s - self._answer_s) * _NEWEST_SHARE
        self._answered_at = now

    def _renew_within(self, session_s: float | None) -> None:
        if session_s is not None:
            after_s = session_s * random.uniform(_RENEW_FROM, _RENEW_UNTIL)  # noqa: S311 - no secret
            self._renewal = asyncio.get_running_loop().call_later(after_s, self._begin_renewal)

    def _begin_renewal(self) -> None:
        self._renewing = asyncio.create_task(self._renew(), name=f"renewal at {self.peer}")

    async def _renew(self) -> None:
        """Authenticate once more (KIP-368). If that cannot be started, the session continues until its end."""
        try:
            mechanism = await self._security.mechanism(self._host)
        except TransportError as error:
            logger.warning(
                "%s: the SASL session cannot be renewed, so the broker will close the connection: %s", self.peer, error
            )
            return
        if mechanism is not None and self._error is None:
            self._write(self._protocol.renew(mechanism))

    def _fail(self, error: TransportError) -> None:
        """End the connection; it ends only here, so that all callers get the first reason."""
        if self._error is not None:
            return
        self._error = error
        for planned in (self._renewal, self._renewing, self._release):
            if planned is not None:
                planned.cancel()
        waiters: list[asyncio.Future[BrokerVersions] | asyncio.Future[Message]]
        waiters = [self._ready, *self._waiting.values()]
        for waiter in waiters:
            if not waiter.done():
                # One exception for each: an exception that several tasks raise collects all their tracebacks.
                waiter.set_exception(type(error)(str(error)))
                # A caller that was canceled meanwhile does not retrieve it, and asyncio would log that.
                waiter.exception()
        if self._transport is not None:
            # Unsent bytes have no reader; a graceful close would wait for a peer that does not read.
            self._transport.abort()
        if self.on_closed is not None:
            self.on_closed(error)


async def connect(
    host: str,
    port: int,
    settings: ConnectionSettings,
    security: ConnectionSecurity,
    *,
    expected: ExpectedBroker | None = None,
    traffic: Traffic | None = None,
    on_silence: Callable[[str], None] = lambda _: None,
) -> BrokerConnection:
    """Return a connection to this broker, ready for requests; tries all addresses of the host.

    `expected` is sent to the broker, which checks that it is meant. `traffic` counts the bytes and requests.
    `on_silence` is called if a peer accepts the connection and sends nothing, long before the attempt is given up.

    Raises:
        AuthenticationError: the broker refused this client, or failed to prove its own identity.
        WrongBrokerError: each address led to another broker than `expected`.
        TransportError: no address led to a Kafka broker; the message has the peer, the cause and the fix.
    """
    peer = f"{speakable(host)}:{port}"
    failures: dict[str, type[TransportError]] = {}
    try:
        for address in await resolve(host, port, settings.address_family):
            try:
                return await _open(
                    host, peer, address, settings, security, expected=expected, traffic=traffic, on_silence=on_silence
                )
            except AuthenticationError:
                # Every address leads to the same broker, and some brokers lock an account after a few failures.
                raise
            except TransportError as error:
                failures[str(error).removeprefix(f"{peer}: ")] = type(error)
    except TransportError as error:
        raise type(error)(f"{peer}: {str(error).removeprefix(f'{peer}: ')}") from error
    are_all_wrong = set(failures.values()) == {WrongBrokerError}
    kind = WrongBrokerError if are_all_wrong else TransportError
    raise kind(f"{peer}: {'; '.join(failures)}")


async def _open(
    host: str,
    peer: str,
    address: Address,
    settings: ConnectionSettings,
    security: ConnectionSecurity,
    *,
    expected: ExpectedBroker | None,
    traffic: Traffic | None,
    on_silence: Callable[[str], None],
) -> BrokerConnection:
    stage = "no credentials"
    hint = "oauth_cb, the token endpoint or the Kerberos KDC has not responded"
    sock = _socket(address, settings)
    connection: BrokerConnection | None = None
    silence: asyncio.TimerHandle | None = None
    is_ready = False
    try:
        async with asyncio.timeout(settings.connection_setup_timeout_s):
            # Before connecting: a token may take some time, and no broker has to wait for it.
            connection = BrokerConnection(
                host, peer, settings, security, await security.mechanism(host), expected=expected, traffic=traffic
            )
            stage, hint = (
                f"no connection to {address}",
                "check that the host is up and that no firewall drops the packets",
            )
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, address.sockaddr)
            stage, hint = f"connected to {address}, no response", "check that this is the port of a Kafka broker"
            silence = loop.call_later(SILENT_AFTER_S, _report_silence, connection, security.tls is not None, on_silence)
            await _wrap(connection, sock, security.tls, host)
            if connection.is_open:  # else the socket is closed, and `ready` raises the reason
                # asyncio itself switches Nagle's algorithm off.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.disable_nagle)
            await connection.ready()
        is_ready = True
    except TimeoutError as error:
        raise TransportError(f"{stage} within {settings.connection_setup_timeout_s:.3g} s; {hint}") from error
    except OSError as error:
        raise TransportError(f"{stage}: {_explain(error)}") from error
    finally:
        if silence is not None:
            silence.cancel()
        if not is_ready:
            if connection is not None:
                connection.drop(TransportError(f"{peer}: the attempt to connect was cancelled"))
            sock.close()
    return connection


def _report_silence(
    connection: BrokerConnection,
    is_encrypted: bool,  # noqa: FBT001  # `call_later` knows no keywords
    on_silence: Callable[[str], None],
) -> None:
    if not connection.has_received:
        listener = "a Kafka listener with TLS" if is_encrypted else "a Kafka listener"
        silence = f"accepted the connection and did not respond within {SILENT_AFTER_S:g} s"
        on_silence(f"{connection.peer} {silence}; check that it is {listener}")


def _explained(error: ssl.SSLError) -> str:
    from consumer_membership.runtime.network.tls import explain  # only what uses TLS needs it

    return explain(error)


async def _wrap(connection: BrokerConnection, sock: socket.socket, context: ssl.SSLContext | None, host: str) -> None:
    """Have asyncio drive this connected socket, under TLS if there is a context."""
    loop = asyncio.get_running_loop()
    if context is None:
        await loop.create_connection(lambda: connection, sock=sock)
        return
    try:
        await loop.create_connection(lambda: connection, sock=sock, ssl=context, server_hostname=host)
    except ssl.SSLError as error:
        raise TransportError(_explained(error)) from error
    except ConnectionError as error:
        raise TransportError(
            "the peer closed the connection during the TLS handshake; check that this is not the plaintext port of the "
            "broker, and whether the broker requires a client certificate (ssl.certificate.location)"
        ) from error


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
        return "connection refused; no process listens there: check that the broker is running, and the port"
    # asyncio replaces the system's text by its own, without the reason.
    message = os.strerror(error.errno) if error.errno is not None else str(error)
    return f"{message}; check the address and the network"


# ---- from a host's name to its addresses -----------------------------------------------------------------------------


class Address(NamedTuple):
    """One address of a broker: the socket's family, and what it connects to."""

    family: socket.AddressFamily
    sockaddr: _SocketAddress

    def __str__(self) -> str:
        """`IP:PORT`, with brackets around an IPv6 address."""
        ip, port = self.sockaddr[:2]
        return f"[{ip}]:{port}" if self.family == socket.AF_INET6 else f"{ip}:{port}"


async def resolve(host: str, port: int, family: AddressFamily) -> tuple[Address, ...]:
    """All addresses of this host in this family.

    Raises:
        TransportError: the name has no address.
    """
    wanted = FAMILIES[family]
    _refuse_impossible(host, port)
    try:
        # A literal address needs no resolver: no thread is started for it, which a hanging DNS could hold up.
        # As bytes: for a text Python imports a codec of international names, 2 ms of each process's first connection.
        found = socket.getaddrinfo(host.encode(), port, wanted, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        found = await _look_up(host, port, wanted)
    return tuple(dict.fromkeys(Address(kind, sockaddr) for kind, _, _, _, sockaddr in found))


def _refuse_impossible(host: str, port: int) -> None:
    """Raise `TransportError` for an address that system calls reject: brokers advertise any text and number."""
    problem = None
    if "\0" in host:
        problem = f"the host '{speakable(host)}' has a NUL character at position {host.index(chr(0))}"
    elif not 0 < port <= _HIGHEST_PORT:
        problem = f"the port {port} is not between 1 and {_HIGHEST_PORT}"
    if problem is not None:
        raise TransportError(f"{problem}; check bootstrap.servers, or advertised.listeners of the broker")


async def canonical(host: str, port: int, family: AddressFamily) -> tuple[str, ...]:
    """Return the canonical name of each address of this host, or the address if it has none, like librdkafka.

    Raises:
        TransportError: the host has no address.
    """
    loop = asyncio.get_running_loop()
    try:
        names = [
            (await loop.getnameinfo(address.sockaddr, socket.NI_NUMERICSERV))[0]
            for address in await resolve(host, port, family)
        ]
    except OSError as error:
        raise TransportError(
            f"the addresses of {host!r} have no names ({error}); check the DNS of this machine"
        ) from error
    return tuple(dict.fromkeys(names))


async def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[tuple[Any, Any, Any, Any, Any]]:
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TransportError(
            f"the name {host!r} cannot be resolved ({reason}); check bootstrap.servers, or advertised.listeners if a "
            "broker named it, and the DNS of this machine"
        ) from error
