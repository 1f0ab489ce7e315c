"""Find free TCP ports for the nodes, on loopback or on another address of this machine."""

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
_TAKEN = ("address already in use", "port is already allocated")  # the messages of JVM and kernel, and of Docker

LOOPBACK = "127.0.0.1"

_PORTS = range(20_000, 32_768)
"""Below the range that Linux uses for outgoing connections (32768-60999): the port of a stopped node must remain free
until its restart, and a client that repeatedly connects to a loopback port of that range can connect to itself."""


class PortTakenError(BrokerUnavailableError):
    """Another process has bound a port after it was selected and before the broker could bind it."""


def retry_taken_ports(act: Callable[[], _Result]) -> _Result:
    """Call the function, and retry if another process takes a port; the function must select new ports each time."""
    retrying = Retrying(retry=retry_if_exception_type(PortTakenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True)
    return retrying(act)


@contextmanager
def distinguish_taken_port() -> Iterator[None]:
    """Raise PortTakenError for an error whose message reports a port that is in use."""
    try:
        yield
    except BrokerUnavailableError as error:
        if any(message in str(error).lower() for message in _TAKEN):
            raise PortTakenError(str(error)) from error
        raise


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether the port of this machine's address is free."""
    with socket.socket() as probe:
        # Like the broker, treat a port in TIME_WAIT as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
                raise
            return False
    return True


def draw_ports(count: int, avoid: Collection[int] = (), host: str = LOOPBACK) -> list[int]:
    """Return different ports that are free now; another process may bind them before the caller does."""
    drawn: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(drawn) == count:
            break
        if port not in avoid and is_free(port, host):
            drawn.append(port)
    return drawn


def node_ports(count: int, first: int | None, host: str = LOOPBACK) -> list[int]:
    """Return the nodes' client ports: free ones, or consecutive ones from `first`.

    Raises:
        BrokerUnavailableError: A requested port is in use.
    """
    if first is None:
        return draw_ports(count, host=host)
    ports = list(range(first, first + count))
    taken = [port for port in ports if not is_free(port, host)]
    if taken:
        raise BrokerUnavailableError(
            f"port {', '.join(map(str, taken))} on {host} is in use; stop the program that uses it, or use another port"
        )
    return ports
