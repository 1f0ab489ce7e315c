"""The connection of a worker to the driver: its job, its orders and its reports.

It starts no threads, because a thread that reads stdin would be part of the measurement.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Consumer, TopicPartition

END = "end"
"""The order to stop; a closed stdin, for example of a driver that has ended, counts as this order."""

_Job = TypeVar("_Job")
_STDIN = 0
_pending: list[str] = []
#: Re-entrant: a signal handler may report while its thread reports.
_reporting = threading.RLock()


def job_of(kind: type[_Job]) -> _Job:
    """Return the job in this process's first argument."""
    return kind(**json.loads(sys.argv[1]))


def consumer_class(module: str) -> type[Consumer]:
    """Return the `Consumer` of a module: confluent_kafka or a drop-in replacement."""
    found: type[Consumer] = import_module(module).Consumer
    return found


def report(event: str, *, at: float | None = None, **facts: Any) -> None:
    """Report an event to the driver, with the current time or another time of CLOCK_MONOTONIC."""
    moment = time.monotonic() if at is None else at
    with _reporting:
        sys.stdout.write(json.dumps({"event": event, "at": moment, **facts}) + "\n")
        sys.stdout.flush()


def report_partitions(event: str, partitions: Iterable[TopicPartition]) -> None:
    """Report an event of these partitions to the driver."""
    report(event, partitions=[partition.partition for partition in partitions])


def consumer_when_ordered(module: str) -> Callable[[dict[str, str]], Consumer] | None:
    """Import the module, report that the worker is ready, and wait for the order to subscribe.

    Return the `Consumer`, or None if the driver ended the worker instead.
    """
    make = consumer_class(module)
    report("ready")
    return None if next_order(None) == END else make


def next_order(timeout_s: float | None = 0.0) -> str | None:
    """Return the next order, or None if there is none within the timeout; without a timeout, wait for an order."""
    if not _pending:
        readable, _, _ = select.select([_STDIN], [], [], timeout_s)
        if readable:
            _pending.extend(os.read(_STDIN, 4096).decode().split() or [END])
    return _pending.pop(0) if _pending else None
