"""One request to one broker, on its own connection, with the security of the member's connections.

Blocking sockets and the standard library only. The additional modules for TLS and SASL are imported only for members
that use them (`load_for`); the guardian of other members stays small.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from consumer_membership.errors import AuthenticationError, TransportError
from consumer_membership.runtime.guardian.leave_requests import (
    HELLO,
    QUESTION,
    Exchange,
    Frames,
    HostPort,
    LeaveRequest,
)
from consumer_membership.wire.codec import Message, decode
from consumer_membership.wire.versions import Api, BrokerVersions, VersionRange

if TYPE_CHECKING:
    from consumer_membership.config.settings import SaslSettings

#: The time limits for a connection and for a response; a broker on the same continent answers in 0.3 s.
_CONNECT_S, _ANSWER_S = 3.0, 5.0
#: The responses that are read have about 1 KB; a larger size is not a Kafka response.
_LONGEST_ANSWER = 1 << 20
_HIGHEST_PORT = 2**16 - 1

#: How many seconds are left for the leave.
TimeLeft: TypeAlias = Callable[[], float]


class NoAnswerError(Exception):
    """This broker does not respond now; another broker may respond, or this one later."""


class CredentialsRefusedError(Exception):
    """The broker refuses the credentials permanently; the message has its text, and never a secret."""


def load_for(request: LeaveRequest) -> None:
    """Import the modules that the leave of this member needs, while they exist: an upgrade may remove them later."""
    if request.tls is not None:
        from consumer_membership.runtime.guardian import encryption  # noqa: F401
    if request.sasl is not None:
        from consumer_membership.runtime.guardian import authentication

        with contextlib.suppress(ImportError):  # the leave reports it
            authentication.load_for(request.sasl)


def ask(request: LeaveRequest, broker: HostPort, api: Api, frames: Frames, left_s: TimeLeft) -> Message:
    """Return this broker's response in the newest version that both sides support, within the time that is left.

    The resolver of names has its own limits.

    Raises:
        NoAnswerError: no response came, or it could not be read.
        CredentialsRefusedError: the broker refuses the member's credentials; some lock an account that tries again.
    """
    try:
        with _connected(request, broker, left_s) as sock:
            exchange = partial(_exchange, sock, left_s)
            offered = _offered(decode(Api.API_VERSIONS, 0, exchange(request.hello, HELLO)))
            if request.sasl is not None:
                _authenticate(request.sasl, broker[0], request.client_id, offered, exchange)
            version = newest(frames, offered, api)
            return decode(api, version, exchange(frames[version], QUESTION))
    except OSError as error:
        raise NoAnswerError(f"{printable(broker)}: {error.strerror or error}") from error
    except (TransportError, UnicodeError) as error:
        raise NoAnswerError(f"{printable(broker)}: {error}") from error
    except CredentialsRefusedError as error:
        raise CredentialsRefusedError(f"{printable(broker)}: {error}") from error


def newest(known: Iterable[int], offered: BrokerVersions, api: Api) -> int:
    """Return the newest version that both sides support.

    Raises:
        TransportError: the two sides have no version in common.
    """
    lowest, highest = offered.ranges.get(api, (0, -1))
    common = [version for version in known if lowest <= version <= highest]
    if not common:
        raise TransportError(f"it supports no version of API {api.value} that this package supports")
    return max(common)


def _offered(answer: Message) -> BrokerVersions:
    if answer.error_code != 0:
        raise TransportError(
            f"ApiVersions v0 was refused with error code {answer.error_code}; check that the peer is a Kafka broker"
        )
    return BrokerVersions({one.api_key: VersionRange(one.min_version, one.max_version) for one in answer.api_keys})


def _authenticate(sasl: SaslSettings, host: str, client_id: str, offered: BrokerVersions, exchange: Exchange) -> None:
    from consumer_membership.runtime.guardian.authentication import authenticate

    try:
        authenticate(sasl, host, client_id, offered, exchange)
    except AuthenticationError as error:
        raise CredentialsRefusedError(str(error)) from error
    except ImportError as error:
        raise CredentialsRefusedError(f"sasl.mechanism={sasl.mechanism.value}: {error}") from error


def printable(address: HostPort) -> str:
    """The address for messages, without a NUL character."""
    host, port = address[0].replace("\0", "\\x00"), address[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bounded(most_s: float, left_s: TimeLeft) -> float:
    """The time limit of the next step."""
    bounded_s = min(most_s, left_s())
    if bounded_s <= 0:
        raise TimeoutError("timed out")
    return bounded_s


def _refuse_impossible(host: str, port: int) -> None:
    """Raise `TransportError` for a host or port that a broker may advertise and that no socket can have.

    The C library would take the host up to its NUL, and the port modulo 65536: the address of another server.
    """
    if "\0" in host:
        raise TransportError("the host has a NUL character")
    if not 0 < port <= _HIGHEST_PORT:
        raise TransportError(f"the port is not between 1 and {_HIGHEST_PORT}")


@contextlib.contextmanager
def _connected(request: LeaveRequest, broker: HostPort, left_s: TimeLeft) -> Iterator[socket.socket]:
    host, port = broker
    _refuse_impossible(host, port)
    # Bytes avoid the codec for international names, which is slow to import.
    name = host.encode() if host.isascii() else host
    with _reached(name, port, request.address_family, left_s) as sock:
        sock.settimeout(_bounded(_ANSWER_S, left_s))
        if request.tls is None:
            yield sock
            return
        from consumer_membership.runtime.guardian.encryption import encrypted

        with encrypted(sock, request.tls, name) as safe:
            yield safe


def _reached(name: bytes | str, port: int, family: int, left_s: TimeLeft) -> socket.socket:
    """Connect to the first of the host's addresses that accepts a connection."""
    failure = OSError("the name has no address")
    for kind, _, _, _, sockaddr in socket.getaddrinfo(name, port, family, socket.SOCK_STREAM):
        sock = socket.socket(kind, socket.SOCK_STREAM)
        try:
            sock.settimeout(_bounded(_CONNECT_S, left_s))
            sock.connect(sockaddr)
        except OSError as error:
            sock.close()
            failure = error
            continue
        return sock
    raise failure


def _exchange(sock: socket.socket, left_s: TimeLeft, frame: bytes, number: int) -> bytes:
    """Return the response to this frame, without its size."""
    until = time.monotonic() + _bounded(_ANSWER_S, left_s)
    sock.settimeout(_bounded(_ANSWER_S, left_s))
    sock.sendall(frame)
    size = int.from_bytes(_receive(sock, 4, until), "big")
    if size > _LONGEST_ANSWER:
        raise TransportError(
            f"a response of {size} bytes is not a Kafka response; check whether the listener requires TLS"
        )
    answer = _receive(sock, size, until)
    found = int.from_bytes(answer[:4], "big")
    if found != number:
        raise TransportError(f"the response has correlation id {found} instead of {number}")
    return answer


def _receive(sock: socket.socket, size: int, until: float) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        # A peer that sends byte by byte has no more time than one that sends nothing.
        sock.settimeout(_bounded(_ANSWER_S, lambda: until - time.monotonic()))
        part = sock.recv(size - len(parts))
        if not part:
            raise ConnectionResetError(f"closed the connection after {len(parts)} of {size} bytes")
        parts += part
    return bytes(parts)
