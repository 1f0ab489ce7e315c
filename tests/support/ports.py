"""Ports without a response."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager


@contextmanager
def listening(family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    """A port that accepts connections (the kernel does) and never responds."""
    with closing(socket.socket(family, socket.SOCK_STREAM)) as listener:
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@contextmanager
def unused_port() -> Iterator[int]:
    """A port on which no process listens, reserved against other processes."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
