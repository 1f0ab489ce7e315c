"""Programs with their own limits that use the control connection: `crowd <port>` and `driver`."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import socket
import sys
import threading

from consumer_membership.spark.control import ControlServer

_CONNECTIONS = 1_000
#: The driver's limit of open files: enough for Python itself, and few enough for a test to exhaust.
_FILES = 64


def crowd(port: int) -> None:
    """Open silent connections, report them, and hold them until the process ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(_CONNECTIONS)]
    print("connected", len(held), flush=True)
    sys.stdin.read()


class Warnings(logging.Handler):
    """Reports and counts failures to accept a connection."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self.first = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Count the record."""
        if f"[Errno {errno.EMFILE}]" in record.getMessage():
            self.count += 1
            self.first.set()


def driver() -> None:
    """Serve one task, without a free file descriptor between `exhaust` and `release`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))
    warnings = Warnings()
    logging.getLogger("consumer_membership.spark").addHandler(warnings)
    server = ControlServer("127.0.0.1", "127.0.0.1")
    print("listens", server.address.port, server.address.secret, flush=True)
    _await("exhaust")
    held = []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.dup(0))
    print("exhausted", flush=True)
    warnings.first.wait()
    print("refused EMFILE", flush=True)
    _await("release")
    for file in held:
        os.close(file)
    _await("stop")
    server.stop()
    print("warnings", warnings.count, flush=True)
    sys.stdin.read()


def _await(words: str) -> None:
    assert sys.stdin.readline().strip() == words


if __name__ == "__main__":
    crowd(int(sys.argv[2])) if sys.argv[1] == "crowd" else driver()
