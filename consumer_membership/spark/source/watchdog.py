"""A small process that sends an error to Spark if the source's process is killed.

Spark sends requests to the source's process over one connection. If that process is killed or crashes, the connection
ends, and the query fails with "Connection reset", which names neither group nor source nor cause. The watchdog keeps
the connection open, waits at a pipe for the end of the source's process, and then sends an error on its behalf, in the
form of an exception in one of pyspark's own processes.

This file is also the watchdog's program, so it imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

#: pyspark's `SpecialLengths.PYTHON_EXCEPTION_THROWN`, in all versions with data sources in Python.
_EXCEPTION_THROWN = -2


class Watchdog:
    """Sends the error `text` to Spark if this process ends before `close`; idle without a connection to Spark."""

    def __init__(self, text: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        connection, program = connection_to_spark(), Path(__file__)
        # A package in an archive has no file that could be started.
        if connection is not None and program.is_file():
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter of this process, and this file
                [sys.executable, "-I", "-S", str(program), str(connection), text],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[connection],
                # A Ctrl-C at the terminal must not end the watchdog.
                start_new_session=True,
            )

    def close(self) -> None:
        """End the watchdog, because this process ends normally."""
        if self._process is not None:
            self._process.communicate(b".")
            self._process = None


def connection_to_spark() -> int | None:
    """Return the file descriptor of the connection from Spark's JVM to this process; None if there is none."""
    path, port = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if path is None and port is None:
        return None
    try:
        names = os.listdir("/dev/fd")  # noqa: PTH208 - these are not names of files
    except OSError:
        return None
    for name in names:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as duplicate:
            peer = duplicate.getpeername()
            if peer == path or (isinstance(peer, tuple) and str(peer[1]) == port):
                return int(name)
    return None


def main(connection: int, text: str) -> None:
    """Wait for the end of the parent process; unless it ended normally, send the error on its behalf."""
    if sys.stdin.buffer.read(1):
        return
    message = text.encode()
    with contextlib.suppress(OSError), socket.socket(fileno=connection) as spark:
        spark.sendall(struct.pack(">ii", _EXCEPTION_THROWN, len(message)) + message)
        # Until Spark closes the connection: if it were closed here, Spark could lose the message.
        while spark.recv(4096):
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
