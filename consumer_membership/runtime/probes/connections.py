"""HTTP connections of probers: a listening socket, and short connections, none of which can delay another one.

The resources of an unknown peer are bounded: the number of connections, and for each connection its time and the bytes
of a request. If all places are taken, the peer that has most of them loses its oldest connection, so that a flood
from one host cannot end the connection of another host's probe.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic, sleep
from typing import TypeAlias

from consumer_membership.config.settings import ListenAddress
from consumer_membership.errors import ConfigurationError
from consumer_membership.runtime.probes.requests import (
    LONGEST_HEAD,
    TOO_LATE,
    TOO_LONG,
    ProbeAnswer,
    ProbeRequest,
    is_whole,
    read_request,
)

_log = partial(logging.getLogger, "consumer_membership.session")

ADDRESS_KEY = "health.http.address"
#: The time limit for receiving a request, and for sending a response, in seconds.
CONNECTION_LIMIT_S = 5.0
#: How long the peer's end is waited for after a response: a close with unread bytes would reset the connection.
LINGER_S = 1.0
#: The most connections at one time; a probe, a scraper and a few people need four.
MOST_CONNECTIONS = 64
#: How long no connection is accepted after the system had no resources for one.
_ACCEPT_PAUSE_S = 0.1
#: Connections that wait in the system until they are accepted.
_BACKLOG = 128
_CHUNK = 4096
#: Ports below it are for privileged processes on most systems.
_FIRST_FREE_PORT = 1024
_ANY_V6 = "::"

Answerer: TypeAlias = Callable[[ProbeRequest], ProbeAnswer]


def listening(address: ListenAddress) -> socket.socket:
    """Return a socket that listens there.

    Raises:
        ConfigurationError: that is not possible; the message has the reason and the fix.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, place = found[0][0], found[0][4]
        is_dual = family == socket.AF_INET6 and address.host == _ANY_V6 and socket.has_dualstack_ipv6()
        opened = socket.create_server(place, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(ADDRESS_KEY, str(address), _remedy(address, error)) from error
    opened.setblocking(False)
    return opened


def _remedy(address: ListenAddress, error: OSError | UnicodeError) -> str:
    code = error.errno if isinstance(error, OSError) else None
    if code == errno.EADDRINUSE:
        return (
            f"port {address.port} is in use by another process, or by another address of this process; give each "
            "process its own port, or port 0 for any free port; consumers of one process share an address if they use "
            "the same text"
        )
    if code in (errno.EACCES, errno.EPERM) and address.port < _FIRST_FREE_PORT:
        return f"this process has no permission to listen on port {address.port}; use port {_FIRST_FREE_PORT} or higher"
    if isinstance(error, socket.gaierror | UnicodeError) or code in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return (
            f"{address.host} is not an address of this host ({error}); use one of its addresses, or 0.0.0.0 or [::] "
            "for all of them"
        )
    return f"this process cannot listen there ({error}); use another address"


class ProbeConnection:
    """One connection: the head of a request, its response, and the end."""

    def __init__(self, opened: socket.socket, peer: str, answer: Answerer, now: float) -> None:
        self.socket = opened
        #: The host that sends the request (`_peer_of`).
        self.peer = peer
        self._answer = answer
        #: When the connection is given up.
        self.deadline = now + CONNECTION_LIMIT_S
        #: The socket events that it waits for.
        self.events = EVENT_READ
        self._head = bytearray()
        self._unsent = memoryview(b"")
        self._is_answered = False

    def go_on(self, now: float) -> bool:
        """Do everything that is possible now; False: it is over, close it."""
        try:
            if self._is_answered and self._unsent:
                return self._send(now)
            if self._is_answered:
                return self._discard()
            return self._read(now)
        except BlockingIOError:
            return True
        except OSError:
            return False

    def give_up(self) -> None:
        """Send an error if a request has begun and has no response: its time is over."""
        if self._head and not self._is_answered:
            with suppress(OSError):
                self.socket.send(TOO_LATE.encoded())

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _read(self, now: float) -> bool:
        chunk = self.socket.recv(_CHUNK)
        if not chunk:
            return False
        self._head += chunk
        if is_whole(self._head.lstrip(b"\r\n")):
            request = read_request(bytes(self._head))
            answer = self._answer(request) if isinstance(request, ProbeRequest) else request
        elif len(self._head) > LONGEST_HEAD:
            answer = TOO_LONG
        else:
            return True
        self._head.clear()
        self._is_answered = True
        self._unsent = memoryview(answer.encoded())
        self.deadline = now + CONNECTION_LIMIT_S
        return self._send(now)

    def _send(self, now: float) -> bool:
        self.events = EVENT_WRITE
        self._unsent = self._unsent[self.socket.send(self._unsent) :]
        if not self._unsent:
            self.socket.shutdown(socket.SHUT_WR)
            self.events = EVENT_READ
            self.deadline = now + LINGER_S
        return True

    def _discard(self) -> bool:
        return bool(self.socket.recv(_CHUNK))


class ProbeSockets:
    """The sockets of one thread: listeners, connections, and a wake-up that any thread may send."""

    def __init__(self) -> None:
        self._selector = DefaultSelector()
        self._listeners: dict[socket.socket, Answerer] = {}
        #: The connections with the listening socket that accepted each, the oldest first.
        self._connections: dict[ProbeConnection, socket.socket] = {}
        self._accepts_at = 0.0
        self._wake_up, self._wake_up_sender = socket.socketpair()
        self._wake_up.setblocking(False)
        self._wake_up_sender.setblocking(False)
        self._selector.register(self._wake_up, EVENT_READ, self._wake_up)

    def ring(self) -> None:
        """End the `turn` that waits; without a lock, in any thread, also when all is closed."""
        with suppress(OSError):  # it is awake already, or closed
            self._wake_up_sender.send(b"\0")

    def open(self, listener: socket.socket, answer: Answerer) -> None:
        """Accept connections here."""
        self._listeners[listener] = answer
        self._selector.register(listener, EVENT_READ, listener)

    def close(self, listener: socket.socket) -> None:
        """Accept no connections here any more, and end those that exist."""
        for connection in [one for one, came_by in self._connections.items() if came_by is listener]:
            self._end(connection)
        del self._listeners[listener]
        self._selector.unregister(listener)
        listener.close()

    def close_all(self) -> None:
        """Close everything; also in a child of `fork()`, where the parent's sockets stay open and watched."""
        for opened in (
            *self._listeners,
            *(one.socket for one in self._connections),
            self._wake_up,
            self._wake_up_sender,
        ):
            opened.close()
        self._selector.close()
        self._connections.clear()

    def turn(self, until: float) -> None:
        """Serve until that time (monotonic clock), or return sooner."""
        deadlines = [one.deadline for one in self._connections]
        ready = self._selector.select(max(0.0, min([until, *deadlines]) - monotonic()))
        now = monotonic()
        for key, _ in ready:
            if key.fileobj in self._listeners:
                self._accept(key.data, now)
            elif key.fileobj is self._wake_up:
                with suppress(BlockingIOError):
                    self._wake_up.recv(_CHUNK)
            elif key.data in self._connections:  # or it was evicted in this very turn
                self._go_on(key.data, now)
        for connection in [one for one in self._connections if one.deadline <= now]:
            connection.give_up()
            self._end(connection)

    def _accept(self, listener: socket.socket, now: float) -> None:
        if now < self._accepts_at:
            sleep(self._accepts_at - now)
        for _ in range(MOST_CONNECTIONS):
            try:
                opened, name = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                # Too many files are open in this process, or in the system: a connection is ended.
                _log().debug("The connection of a probe was not accepted: %s", error)
                self._accepts_at = now + _ACCEPT_PAUSE_S
                self._evict()
                return
            opened.setblocking(False)
            if len(self._connections) >= MOST_CONNECTIONS:
                self._evict()
            connection = ProbeConnection(opened, _peer_of(name[0]), self._listeners[listener], now)
            self._connections[connection] = listener
            self._selector.register(opened, connection.events, connection)
            self._go_on(connection, now)

    def _go_on(self, connection: ProbeConnection, now: float) -> None:
        events = connection.events
        if not connection.go_on(now):
            self._end(connection)
        elif connection.events != events:
            self._selector.modify(connection.socket, connection.events, connection)

    def _end(self, connection: ProbeConnection) -> None:
        del self._connections[connection]
        self._selector.unregister(connection.socket)
        connection.close()

    def _evict(self) -> None:
        """End the oldest connection of the peer that has most of them."""
        counts = Counter(one.peer for one in self._connections)
        # Of equal connections, `max` returns the first, which is the oldest.
        ended = max(self._connections, key=lambda one: counts[one.peer], default=None)
        if ended is not None:
            self._end(ended)


def _peer_of(ip: str) -> str:
    """Return the host of this address: one host may have all addresses of an IPv6 network of 64 bits."""
    if ":" not in ip or ip.lower().startswith("::ffff:"):
        return ip
    return socket.inet_pton(socket.AF_INET6, ip.partition("%")[0])[:8].hex()
