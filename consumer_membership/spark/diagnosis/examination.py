"""What a small job does in each of its tasks, to see with what and from where a member would work there.

This module is pickled whole (`workers` registers it) and needs the standard library only: it must say what is missing
where nothing of this package can be imported. Its answer is plain JSON for the same reason.
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

#: What a member in a task needs, by the module that is imported to see whether it can be.
PACKAGES = (
    ("consumer_membership", "consumer_membership.clients.consumer"),
    ("confluent_kafka", "confluent_kafka"),
    ("pyarrow", "pyarrow"),
    ("pyspark", "pyspark"),
)


def examine_rows(
    brokers: Sequence[Endpoint], sink: bytes, files: Sequence[str], connect_s: float, _batches: Iterable[object]
) -> Iterator[object]:
    """One task's answer as a row, for `mapInArrow`: through Spark Connect, where there is no driver to meet at."""
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
    """One task's answer, a JSON object; for `mapPartitions`, whose records do not matter.

    `meeting` is where the driver listens, if it does: tasks connect, and those that run at the same time wait there for
    each other, no longer than `patience_s`. `sink` is the pickled sink, empty where there is none; `files` are the
    paths that the configuration has in it. An error is why something does not work there; empty if it does.
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
    """A connection; or a socket without one, and why."""
    try:
        return socket.create_connection(endpoint, timeout_s), ""
    except OSError as error:
        return socket.socket(), str(error) or type(error).__name__


def broker_error(endpoint: Endpoint, timeout_s: float) -> str:
    """Why there is no connection; empty if there is one."""
    line, error = connected(endpoint, timeout_s)
    line.close()
    return error


def file_error(path: str) -> str:
    """Why nothing can be read there; empty if something can. A folder is as good as a file."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def sink_error(sink: bytes) -> str:
    """Why the sink cannot be made from its bytes; empty if it can, or if there is none."""
    try:
        if sink:
            pickle.loads(sink)  # noqa: S301 - the driver's own
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything when it is imported
        return f"{type(error).__name__}: {error}"
    return ""


def package(name: str, module: str) -> dict[str, str]:
    """The package's version, or why it cannot be imported."""
    try:
        importlib.import_module(module)
        version = str(getattr(importlib.import_module(name), "__version__", "unknown"))
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return {"name": name, "version": "", "error": f"{type(error).__name__}: {error}"}
    return {"name": name, "version": version, "error": ""}
