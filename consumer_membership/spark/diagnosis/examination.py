"""The checks in each task of a small job: packages, connections and files as a member would find them there.

This module is pickled by value (`workers` registers it) and needs only the standard library, because it must report
what is missing even if this package cannot be imported in the task. For the same reason its result is plain JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pickle
import platform
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

Endpoint: TypeAlias = tuple[str, int]

#: The packages that a member needs, each with the module whose import is tested.
PACKAGES = (
    ("consumer_membership", "consumer_membership.clients.consumer"),
    ("confluent_kafka", "confluent_kafka"),
    ("pyarrow", "pyarrow"),
    ("pyspark", "pyspark"),
)


def examine_rows(
    brokers: Sequence[Endpoint], sink: bytes, files: Sequence[str], connect_s: float, _batches: Iterable[object]
) -> Iterator[object]:
    """Yield one task's result as a row, for `mapInArrow`; with Spark Connect, tasks cannot connect to the client."""
    import pyarrow as pa  # type: ignore[import-untyped]  # in the task; ships no types

    for answer in examine(None, brokers, sink, files, connect_s, 0.0, ()):
        yield pa.RecordBatch.from_pydict({"answer": [answer]})


def examine(
    meeting: Endpoint | None,
    brokers: Sequence[Endpoint],
    sink: bytes,
    files: Sequence[str],
    connect_s: float,
    patience_s: float,
    _records: Iterable[object],
) -> Iterator[str]:
    """Yield one task's result, a JSON object; for `mapPartitions`, whose records are ignored.

    `meeting` is the address at which the driver counts the tasks that run at the same time, or None; each task waits
    there until the driver closes its connection, at most `patience_s`. `sink` is the pickled sink, or empty. `files`
    are the paths in the configuration. An error in the result is empty if the check succeeded.
    """
    clock = time.time()
    line, driver_error = (socket.socket(), "") if meeting is None else connected(meeting, connect_s)
    with line, ThreadPoolExecutor(8) as threads:
        answer = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "clock": clock,
            "packages": [package(name, module) for name, module in PACKAGES],
            "driver_error": driver_error,
            "sink_error": sink_error(sink),
            "broker_errors": list(threads.map(lambda broker: broker_error(broker, connect_s), brokers)),
            "file_errors": [file_error(path) for path in files],
        }
        with contextlib.suppress(OSError):
            line.settimeout(patience_s)
            line.recv(1)
    yield json.dumps(answer)


def connected(endpoint: Endpoint, timeout_s: float) -> tuple[socket.socket, str]:
    """Return a connection and no error; or an unconnected socket and the error."""
    try:
        return socket.create_connection(endpoint, timeout_s), ""
    except OSError as error:
        return socket.socket(), str(error) or type(error).__name__


def broker_error(endpoint: Endpoint, timeout_s: float) -> str:
    """Return the error of a connection to a broker; empty if it succeeds."""
    line, error = connected(endpoint, timeout_s)
    line.close()
    return error


def file_error(path: str) -> str:
    """Return the error of opening a file or a folder; empty if it succeeds."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def sink_error(sink: bytes) -> str:
    """Return the error of unpickling the sink; empty if it succeeds, or if there is no sink."""
    try:
        if sink:
            pickle.loads(sink)  # noqa: S301 - the driver's own
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything when it is imported
        return f"{type(error).__name__}: {error}"
    return ""


def package(name: str, module: str) -> dict[str, str]:
    """Return the version of a package, or the error of its import."""
    try:
        importlib.import_module(module)
        version = str(getattr(importlib.import_module(name), "__version__", "unknown"))
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return {"name": name, "version": "", "error": f"{type(error).__name__}: {error}"}
    return {"name": name, "version": version, "error": ""}
