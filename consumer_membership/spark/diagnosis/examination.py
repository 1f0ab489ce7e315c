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


def examine(
    meeting: Endpoint,
    brokers: Sequence[Endpoint],
    sink: bytes,
    files: Sequence[str],
    connect_s: float,
    patience_s: float,
    _records: Iterable[object],
) -> Iterator[str]:
    """One task's answer, a JSON object; for `mapPartitions`, whose records do not matter.

    `meeting` is where the driver listens: tasks connect, and those that run at the same time wait there for each other,
    no longer than `patience_s`. `sink` is the pickled sink, empty where there is none; `files` are the paths that the
    configuration has in it.
    """
    clock = time.time()
    with contextlib.ExitStack() as lines:
        line = connected(meeting, connect_s)
        if isinstance(line, socket.socket):
            lines.enter_context(line)
        with ThreadPoolExecutor(8) as threads:
            errors = list(threads.map(lambda broker: why_unreachable(broker, connect_s), brokers))
        answer = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "executable": sys.executable,
            "clock": clock,
            "packages": [package(name, module) for name, module in PACKAGES],
            "driver_error": line if isinstance(line, str) else "",
            "sink_error": why_unreadable(sink),
            "broker_errors": errors,
            "file_errors": [why_closed(path) for path in files],
        }
        if isinstance(line, socket.socket):
            with contextlib.suppress(OSError):
                line.settimeout(patience_s)
                line.recv(1)
    yield json.dumps(answer)


def connected(endpoint: Endpoint, timeout_s: float) -> socket.socket | str:
    """A connection, or why there is none."""
    try:
        return socket.create_connection(endpoint, timeout_s)
    except OSError as error:
        return str(error) or type(error).__name__


def why_unreachable(endpoint: Endpoint, timeout_s: float) -> str:
    """Why there is no connection; empty if there is one."""
    line = connected(endpoint, timeout_s)
    if isinstance(line, str):
        return line
    line.close()
    return ""


def why_closed(path: str) -> str:
    """Why nothing can be read there; empty if something can. A folder is as good as a file."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def package(name: str, module: str) -> dict[str, str]:
    """The package's version, or why it cannot be imported."""
    try:
        importlib.import_module(module)
        version = str(getattr(importlib.import_module(name), "__version__", "unknown"))
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return {"name": name, "version": "", "error": f"{type(error).__name__}: {error}"}
    return {"name": name, "version": version, "error": ""}


def why_unreadable(sink: bytes) -> str:
    """Why the sink cannot be made from its bytes; empty if it can, or if there is none."""
    try:
        if sink:
            pickle.loads(sink)  # noqa: S301 - the driver's own
    except Exception as error:  # noqa: BLE001 - a module of the user's may raise anything when it is imported
        return f"{type(error).__name__}: {error}"
    return ""
