"""From a host's name to the socket addresses to try, in the resolver's order."""

from __future__ import annotations

import asyncio
import socket
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from consumer_membership.config import AddressFamily
from consumer_membership.errors import TransportError

#: The socket module's number of each.
FAMILIES = MappingProxyType(
    {
        AddressFamily.ANY: socket.AF_UNSPEC,
        AddressFamily.V4: socket.AF_INET,
        AddressFamily.V6: socket.AF_INET6,
    }
)

# What the resolver returns and the socket takes; its shape differs by family.
_SocketAddress: TypeAlias = Any


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
        TransportError: the name has none.
    """
    wanted = FAMILIES[family]
    try:
        # A literal address needs no resolver: no thread is started for it, which a hanging DNS could hold up.
        # As bytes: for a text Python imports a codec of international names, 2 ms of each process's first connection.
        found = socket.getaddrinfo(host.encode(), port, wanted, socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        found = await _look_up(host, port, wanted)
    return tuple(dict.fromkeys(Address(kind, sockaddr) for kind, _, _, _, sockaddr in found))


async def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[tuple[Any, Any, Any, Any, Any]]:
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TransportError(
            f"the name {host!r} cannot be resolved ({reason}); check bootstrap.servers, or advertised.listeners if a "
            "broker named it, and the DNS of this machine"
        ) from error
