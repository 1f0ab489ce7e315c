"""The network between a member and its brokers: the effect of each mode, tested with an echo server."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tests.chaos.links import Links, Mode
from tests.support.waiting import PATIENCE_S

_SIZE = struct.Struct(">i")
#: How long a test waits for a frame that must not arrive; a shorter time can only hide a bug, never cause a failure.
_SHORT_S = 0.2


class EchoServer(socketserver.ThreadingTCPServer):
    """Sends each frame back, and counts it in `arrived`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Echo)
        self.arrived = threading.Semaphore(0)
        self.address = f"127.0.0.1:{self.server_address[1]}"


class _Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while size := self.rfile.read(_SIZE.size):
            body = self.rfile.read(_SIZE.unpack(size)[0])
            assert isinstance(self.server, EchoServer)
            self.server.arrived.release()
            self.wfile.write(size + body)


@pytest.fixture
def server() -> Iterator[EchoServer]:
    """Start a server that sends each frame back."""
    with EchoServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01], daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def connected(links: Links) -> Iterator[socket.socket]:
    """Connect through the links, as the member does."""
    host, _, port = links.servers.rpartition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        yield connection


def frame(body: bytes) -> bytes:
    """Return a request with this body, after its size."""
    return _SIZE.pack(len(body)) + body


def response(connection: socket.socket, timeout_s: float = PATIENCE_S) -> bytes | None:
    """Return the next response, or None if none arrives in time."""
    connection.settimeout(timeout_s)
    try:
        size = connection.recv(_SIZE.size, socket.MSG_WAITALL)
        return connection.recv(_SIZE.unpack(size)[0], socket.MSG_WAITALL)
    except TimeoutError:
        return None


def test_passing_links_replace_the_address_of_a_broker_in_responses(server: EchoServer) -> None:
    """Every connection of the member comes through its links."""
    host, port = server.server_address[:2]
    with Links([server.address]) as links, connected(links) as connection:
        own_port = int(links.servers.rpartition(":")[2])
        connection.sendall(frame(str(host).encode() + _SIZE.pack(int(port))))
        assert response(connection) == str(host).encode() + _SIZE.pack(own_port)


def test_hold_delivers_all_frames_when_it_ends(server: EchoServer) -> None:
    """A pulled cable loses no byte and resets no connection."""
    with Links([server.address]) as links, connected(links) as connection:
        links.change(Mode.HOLD)
        connection.sendall(frame(b"one"))
        assert response(connection, _SHORT_S) is None
        links.change(Mode.PASS)
        assert response(connection) == b"one"


def test_silence_loses_responses_only(server: EchoServer) -> None:
    """The broker receives the request, and the member never receives the response."""
    with Links([server.address]) as links, connected(links) as connection:
        links.change(Mode.SILENCE)
        connection.sendall(frame(b"one"))
        assert server.arrived.acquire(timeout=PATIENCE_S)
        assert response(connection, _SHORT_S) is None
        links.change(Mode.PASS)
        connection.sendall(frame(b"two"))
        assert response(connection) == b"two"


def test_reset_resets_existing_connections(server: EchoServer) -> None:
    """An existing connection is reset."""
    with Links([server.address]) as links, connected(links) as connection:
        connection.sendall(frame(b"one"))
        assert response(connection) == b"one"
        links.change(Mode.RESET)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_forget_silences_existing_connections_only(server: EchoServer) -> None:
    """Existing connections become silent, and a connection that is opened afterwards works."""
    with Links([server.address]) as links, connected(links) as connection:
        connection.sendall(frame(b"one"))
        assert response(connection) == b"one"
        links.forget()
        connection.sendall(frame(b"two"))
        with connected(links) as other:
            other.sendall(frame(b"three"))
            assert response(other) == b"three"
        assert response(connection, _SHORT_S) is None


def test_links_end_connections_that_are_opened_while_they_close(server: EchoServer) -> None:
    """If a member connects while the links close, its connection is closed."""
    with ExitStack() as stack:
        with Links([server.address]) as links:
            connections = [stack.enter_context(connected(links)) for _ in range(10)]
        for connection in connections:
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
