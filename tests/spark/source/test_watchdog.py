"""The watchdog of a source's process: the test plays Spark's end of the connection."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer_membership.spark.source.watchdog import Watchdog, connection_to_spark
from tests.support.waiting import PATIENCE_S

TEXT = "group 'a': killed, \N{SNOWMAN}"

#: A source's process, as Spark starts it: it connects, starts its watchdog, and closes it on the order `close`.
SOURCE = """
import os, socket, sys
from consumer_membership.spark.source.watchdog import Watchdog
if path := os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"):
    spark = socket.socket(socket.AF_UNIX)
    spark.connect(path)
else:
    spark = socket.create_connection(("127.0.0.1", int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
watchdog = Watchdog(sys.argv[1])
print("ready", flush=True)
if sys.stdin.readline() == "close\\n":
    watchdog.close()
"""


@contextmanager
def watched(listener: socket.socket, place: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], socket.socket]]:
    """A source's process with its watchdog, and Spark's end of its connection."""
    source = subprocess.Popen(
        [sys.executable, "-c", SOURCE, TEXT], env=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(PATIENCE_S)
            assert source.stdout is not None
            assert source.stdout.readline() == "ready\n"
            yield source, connection
    finally:
        source.kill()
        source.communicate()


@pytest.fixture(params=["port", "path"])
def spark(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    """A listener like Spark's, and the environment by which child processes get its address."""
    if request.param == "port":
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield listener, {"PYTHON_WORKER_FACTORY_PORT": str(listener.getsockname()[1])}
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "spark"))
            listener.listen()
            yield listener, {"PYTHON_WORKER_FACTORY_SOCK_PATH": str(tmp_path / "spark")}


def everything(connection: socket.socket) -> bytes:
    """The bytes that Spark reads until the connection ends."""
    found = b""
    while more := connection.recv(4096):
        found += more
    return found


def test_watchdog_answers_spark_if_its_process_is_killed(spark: tuple[socket.socket, dict[str, str]]) -> None:
    """The answer is an exception in pyspark's form, and stays readable after Spark has sent its next request."""
    with watched(*spark) as (source, connection):
        source.kill()
        source.wait(PATIENCE_S)
        connection.sendall(struct.pack(">i", 885))
        kind, length = struct.unpack(">ii", connection.recv(8, socket.MSG_WAITALL))
        assert (kind, connection.recv(length, socket.MSG_WAITALL).decode()) == (-2, TEXT)
        connection.shutdown(socket.SHUT_WR)
        assert everything(connection) == b""


def test_watchdog_is_silent_after_an_orderly_end(spark: tuple[socket.socket, dict[str, str]]) -> None:
    """Spark sees the end of the connection and no answer without a request."""
    with watched(*spark) as (source, connection):
        assert source.communicate("close\n", PATIENCE_S)[0] == ""
        assert (source.returncode, everything(connection)) == (0, b"")


def test_watchdog_outside_of_spark_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Spark did not start has no connection to answer on."""
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_PORT", raising=False)
    monkeypatch.delenv("PYTHON_WORKER_FACTORY_SOCK_PATH", raising=False)
    assert connection_to_spark() is None
    Watchdog(TEXT).close()
