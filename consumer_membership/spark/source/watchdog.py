"""A small process that answers Spark if the source's process is killed.

Spark asks the source's process over one connection. If that process is killed or crashes, Spark sees the connection end
and the query fails with "Connection reset", which names neither group nor source nor cause. The watchdog holds the same
connection open, waits for the end of the source's process at a pipe, and then writes the error in that process's place,
in the form in which pyspark's own processes report an exception.

This file is also the watchdog's program: it imports the standard library only.
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
    """Answers Spark with `text` if this process ends before `close`; does nothing where no Spark asks this process."""

    def __init__(self, text: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        connection, program = connection_to_spark(), Path(__file__)
        # A package in an archive has no program to start.
        if connection is not None and program.is_file():
            self._process = subprocess.Popen(  # noqa: S603 - the interpreter of this process, and this file
                [sys.executable, "-I", "-S", str(program), str(connection), text],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[connection],
                # A Ctrl-C at the terminal is for the processes that it watches.
                start_new_session=True,
            )

    def close(self) -> None:
        """End the watchdog; this process ends in good order."""
        if self._process is not None:
            self._process.communicate(b".")
            self._process = None


def connection_to_spark() -> int | None:
    """The file descriptor of the connection over which Spark's JVM asks this process."""
    path, port = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if path is None and port is None:
        return None
    try:
        names = os.listdir("/dev/fd")  # noqa: PTH208 - names of no files
    except OSError:
        return None
    for name in names:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as duplicate:
            peer = duplicate.getpeername()
            if peer == path or (isinstance(peer, tuple) and str(peer[1]) == port):
                return int(name)
    return None


def main(connection: int, text: str) -> None:
    """Wait for the end of the process that started this one; answer in its place unless it ended in good order."""
    if sys.stdin.buffer.read(1):
        return
    said = text.encode()
    with contextlib.suppress(OSError), socket.socket(fileno=connection) as spark:
        spark.sendall(struct.pack(">ii", _EXCEPTION_THROWN, len(said)) + said)
        # Until Spark has read it: its next request would find a closed connection, and could lose the answer.
        while spark.recv(4096):
            pass


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
