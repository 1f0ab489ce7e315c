"""Free TCP ports for the nodes: on loopback, or on another address of this machine."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from consumer_membership.devbroker.errors import BrokerUnavailableError

_Result = TypeVar("_Result")

_ATTEMPTS = 5
_TAKEN = ("address already in use", "port is already allocated")  # a JVM's and a kernel's words, a Docker engine's

LOOPBACK = "127.0.0.1"

_PORTS = range(20_000, 32_768)
"""Below the range from which Linux draws ports for outgoing connections (32768-60999): a stopped node must find its
port free when it is started again, and a client that keeps calling a loopback port of that range while nobody
listens can end up connected to itself."""


class PortTakenError(BrokerUnavailableError):
    """Somebody bound a port between our drawing it and the broker's binding it."""


def retry_taken_ports(act: Callable[[], _Result]) -> _Result:
    """Do it again, a few times, as long as it loses the race for a port; it must draw new ports each time."""
    retrying = Retrying(retry=retry_if_exception_type(PortTakenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True)
    return retrying(act)


@contextmanager
def taken_port_told_apart() -> Iterator[None]:
    """Raise a `PortTakenError` for a failure whose text is the system's for a port that is in use."""
    try:
        yield
    except BrokerUnavailableError as error:
        if any(words in str(error).lower() for words in _TAKEN):
            raise PortTakenError(str(error)) from error
        raise


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether nobody listens on this port of one of this machine's addresses."""
    with socket.socket() as probe:
        # As the broker does it: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            return False
    return True


def draw_ports(count: int, avoid: Collection[int] = (), host: str = LOOPBACK) -> list[int]:
    """That many different ports that were free a moment ago; whoever binds them must cope with losing the race."""
    drawn: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(drawn) == count:
            break
        if port not in avoid and is_free(port, host):
            drawn.append(port)
    return drawn


def node_ports(count: int, first: int | None, host: str = LOOPBACK) -> list[int]:
    """The nodes' client ports: drawn, or counted up from the one that was asked for.

    Raises:
        BrokerUnavailableError: A port that was asked for is taken.
    """
    if first is None:
        return draw_ports(count, host=host)
    ports = list(range(first, first + count))
    taken = [port for port in ports if not is_free(port, host)]
    if taken:
        raise BrokerUnavailableError(
            f"port {', '.join(map(str, taken))} on {host} is taken; stop what listens there or ask for another port"
        )
    return ports
