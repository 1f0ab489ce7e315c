"""Ports that never respond."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager


@contextmanager
def listening(family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    """Open a port that never responds; the kernel accepts its connections."""
    with closing(socket.socket(family, socket.SOCK_STREAM)) as listener:
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@contextmanager
def unused_port() -> Iterator[int]:
    """Reserve a port on which no process listens; other processes cannot get it."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
