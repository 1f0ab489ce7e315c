"""An authenticated connection between a driver and a task, called a line: JSON objects over TCP, one in each frame.

    driver                                                    task
    {"line": 1, "package": "0.1.0", "nonce": D}   ------->
                                                  <-------    {"line": 1, "package": "0.1.0", "nonce": T}
                                                  <-------    MAC {"instance": 0, "attempt": 7}
    MAC {"welcome": 0}                            ------->
    MAC {"order": "stop"}                         ------->
                                                  <-------    MAC {"progress": {...}}

A newline ends each frame. Both ends share the secret of one run, which is never sent on the line. Each connection
derives one key for each direction from the secret and from both nonces, which are new for each connection. The MAC
(HMAC-SHA256) of a frame covers its sequence number and its text. So a frame is refused if it comes from another
connection, run or direction, if it was altered, repeated, left out or moved, or if its sender lacks the secret. After a
refused frame the line is closed, and the task connects again.

Frames are authenticated, but not encrypted: the standard library supports TLS with a shared key only from Python 3.13
on, and cannot create certificates.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import re
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from consumer_membership.errors import TransportError
from consumer_membership.version import __version__

Side: TypeAlias = Literal["driver", "task"]

#: The version of this format; both ends must have the same one.
LINE_VERSION = 1
#: The errors that end a line: of a broken connection, or of a refused frame.
BROKEN = (OSError, ValueError, KeyError, TypeError)

#: How long sent bytes may stay unacknowledged, and an idle connection unprobed, before the system closes the
#: connection; the system's defaults are a quarter of an hour and two hours.
_UNCONFIRMED_S = 10
_SEND_S = 5
#: Before the peer is authenticated: a nonce and a first frame, about 250 bytes.
_LONGEST_INTRODUCTION = 1024
#: Much more than any report.
_LONGEST_FRAME = 4 * 1024 * 1024
_CHUNK = 64 * 1024
_NONCE_BYTES = 16
_NONCE = re.compile(r"[0-9a-f]{32}")


class RefusedFrameError(ValueError):
    """A frame that is too long, altered, out of order, or from a peer that lacks the secret."""


class LineVersionError(TransportError):
    """The other end uses another version of this format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The attempt of a task at the other end of a line."""

    instance: int
    attempt: int


class Seal:
    """The MACs of the frames in one direction of one connection: one seal writes them, the receiver's checks them."""

    __slots__ = ("_count", "_key")

    def __init__(self, secret: str, sender: Side, nonces: Mapping[Side, str]) -> None:
        context = f"consumer-membership line {LINE_VERSION} {sender} {nonces['driver']} {nonces['task']}"
        self._key = hmac.digest(secret.encode(), context.encode(), "sha256")
        self._count = 0

    def sealed(self, message: Mapping[str, object]) -> bytes:
        """Return the next frame, without its newline."""
        text = json.dumps(message).encode()
        return self._mac(text) + b" " + text

    def opened(self, frame: bytes) -> Mapping[str, object]:
        """Return the object in the next frame.

        Raises:
            RefusedFrameError: the frame is not the next frame of the other end.
        """
        mac, _, text = frame.partition(b" ")
        if not hmac.compare_digest(mac, self._mac(text)):
            raise RefusedFrameError(f"frame {self._count - 1} is not authentic")
        return _object(text)

    def _mac(self, text: bytes) -> bytes:
        mac = hmac.digest(self._key, struct.pack(">Q", self._count) + text, "sha256")
        self._count += 1
        return mac.hex().encode()


class AuthenticatedLine:
    """One end of an authenticated connection; created by `call` or `admit`.

    `send` never raises: a failed send ends the connection, and the thread that reads receives the end.
    """

    def __init__(self, stream: _Stream, outgoing: Seal, incoming: Seal, caller: Caller) -> None:
        self.caller = caller
        self._stream = stream
        self._connection = stream.connection
        self._lock = threading.Lock()
        self._outgoing = outgoing
        self._incoming = incoming
        # After the handshake, reads may take any time; SO_SNDTIMEO limits sends.
        self._connection.settimeout(None)

    def send(self, message: Mapping[str, object]) -> None:
        """Send one object; other threads may send at the same time."""
        try:
            with self._lock:
                self._connection.sendall(self._outgoing.sealed(message) + b"\n")
        except OSError:
            # A part of the frame may have been sent, so later frames could not be read.
            self.hang_up()

    def received(self) -> Iterator[Mapping[str, object]]:
        """Yield the objects that the other end sends, until it closes the line.

        Raises:
            OSError: the connection broke.
            RefusedFrameError: a frame is not authentic.
        """
        while (frame := self._stream.next(_LONGEST_FRAME)) is not None:
            yield self._incoming.opened(frame)

    def hang_up(self) -> None:
        """End the connection, also for the thread that reads from it."""
        hang_up(self._connection)

    def close(self) -> None:
        """Release the socket; only when no thread reads from it."""
        self._connection.close()


class _Stream:
    """The lines of text from a connection, limited in bytes and, during the handshake, in time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._unread = b""

    def next(self, limit: int, deadline: float | None = None) -> bytes | None:
        """Return the next line; None at the end of the connection. `deadline` is a time of the monotonic clock."""
        while True:
            frame, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                return frame
            if len(self._unread) >= limit:
                raise RefusedFrameError(f"more than {limit} bytes without the end of a frame")
            if deadline is not None:
                self.connection.settimeout(max(1e-3, deadline - time.monotonic()))
            more = self.connection.recv(min(_CHUNK, limit - len(self._unread)))
            if not more:
                return None
            self._unread += more

    def introduction(self, deadline: float) -> bytes:
        """Return a line of the handshake, from a peer that is not authenticated yet."""
        frame = self.next(_LONGEST_INTRODUCTION, deadline)
        if frame is None:
            raise ConnectionResetError("the other end closed the connection during the handshake")
        return frame


def call(connection: socket.socket, secret: str, caller: Caller, timeout_s: float) -> AuthenticatedLine:
    """Run the task's handshake; the caller must close the connection if it fails.

    Raises:
        LineVersionError: the driver has another version of the package.
        OSError: the connection broke, or the driver did not answer within `timeout_s`.
        ValueError, KeyError, TypeError: the listener is not the driver of this run (`RefusedFrameError`), or uses
            another protocol.
    """
    _configure(connection)
    stream, deadline = _Stream(connection), time.monotonic() + timeout_s
    nonce = secrets.token_hex(_NONCE_BYTES)
    nonces: dict[Side, str] = {"driver": _nonce(stream.introduction(deadline), "driver"), "task": nonce}
    outgoing, incoming = Seal(secret, "task", nonces), Seal(secret, "driver", nonces)
    hello = outgoing.sealed({"instance": caller.instance, "attempt": caller.attempt})
    connection.sendall(_introduced(nonce) + hello + b"\n")
    incoming.opened(stream.introduction(deadline))
    return AuthenticatedLine(stream, outgoing, incoming, caller)


def admit(
    connection: socket.socket, secret: str, timeout_s: float, on_caller: Callable[[Caller], object] = lambda _: None
) -> AuthenticatedLine:
    """Run the driver's handshake; the caller must close the connection if it fails.

    `on_caller` is called with the authenticated task before the last message of the handshake, and so before the task
    continues.

    Raises:
        LineVersionError: the task has another version of the package.
        OSError: the connection broke, or `timeout_s` is over.
        ValueError, KeyError, TypeError: the peer does not belong to this run, or sends too much (`RefusedFrameError`),
            or uses another protocol.
    """
    _configure(connection)
    stream, deadline = _Stream(connection), time.monotonic() + timeout_s
    nonce = secrets.token_hex(_NONCE_BYTES)
    connection.sendall(_introduced(nonce))
    nonces: dict[Side, str] = {"driver": nonce, "task": _nonce(stream.introduction(deadline), "task")}
    outgoing, incoming = Seal(secret, "driver", nonces), Seal(secret, "task", nonces)
    hello = incoming.opened(stream.introduction(deadline))
    caller = Caller(instance=int(str(hello["instance"])), attempt=int(str(hello["attempt"])))
    on_caller(caller)
    connection.sendall(outgoing.sealed({"welcome": caller.instance}) + b"\n")
    return AuthenticatedLine(stream, outgoing, incoming, caller)


def hang_up(connection: socket.socket) -> None:
    """End a connection, also for the thread that reads from it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _introduced(nonce: str) -> bytes:
    return json.dumps({"line": LINE_VERSION, "package": __version__, "nonce": nonce}).encode() + b"\n"


def _nonce(introduction: bytes, sender: Side) -> str:
    fields = _object(introduction)
    if fields.get("line") != LINE_VERSION:
        raise LineVersionError(
            f"the {sender} has consumer-membership {str(fields.get('package', 'of an unknown version'))[:40]!r}, this "
            f"end has {__version__!r}; install the same version on the driver and on all executors"
        )
    nonce = fields.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise RefusedFrameError("the nonce is not 16 bytes in hex")
    return nonce


def _object(text: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except RecursionError as failed:
        raise RefusedFrameError("nested too deeply") from failed
    if not isinstance(found, dict):
        raise TypeError(f"not an object: {text[:80]!r}")
    return found


def _configure(connection: socket.socket) -> None:
    """Limit the time of sends, and end connections to unreachable peers; reads have no limit."""
    connection.settimeout(None)
    # A struct timeval.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("<qq", _SEND_S, 0))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = {
        "TCP_USER_TIMEOUT": 1000 * _UNCONFIRMED_S,
        "TCP_KEEPIDLE": _UNCONFIRMED_S // 2,
        "TCP_KEEPINTVL": _UNCONFIRMED_S // 2,
        "TCP_KEEPCNT": 1,
    }
    for name, value in options.items():
        if hasattr(socket, name):  # Linux has all of them
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
