"""How a worker gets its job and its orders, and how it says what happened.

Without threads: a thread that reads stdin would take part in what is measured.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from confluent_kafka import Consumer, TopicPartition

END = "end"
"""The order to stop; the closed stdin of a driver that is gone counts as one."""

_Job = TypeVar("_Job")
_STDIN = 0
_pending: list[str] = []


def job_of(kind: type[_Job]) -> _Job:
    """The job in this process's first argument."""
    return kind(**json.loads(sys.argv[1]))


def consumer_class(module: str) -> type[Consumer]:
    """The `Consumer` of a module that is confluent_kafka or a drop-in for it."""
    found: type[Consumer] = import_module(module).Consumer
    return found


def say(word: str, *, at: float | None = None, **facts: Any) -> None:
    """Tell the driver that something happened, now or at a moment of CLOCK_MONOTONIC."""
    moment = time.monotonic() if at is None else at
    sys.stdout.write(json.dumps({"word": word, "at": moment, **facts}) + "\n")
    sys.stdout.flush()


def say_partitions(word: str, partitions: Iterable[TopicPartition]) -> None:
    """Tell the driver what happened to these partitions."""
    say(word, partitions=[partition.partition for partition in partitions])


def consumer_when_ordered(module: str) -> Callable[[dict[str, str]], Consumer] | None:
    """Import the module, tell the driver that the worker is ready, and wait for the order to subscribe.

    Return the `Consumer`; None: the driver ended the worker instead.
    """
    make = consumer_class(module)
    say("ready")
    return None if next_order(None) == END else make


def next_order(timeout_s: float | None = 0.0) -> str | None:
    """The next order, or None where there is none within the time; None waits for ever."""
    if not _pending:
        readable, _, _ = select.select([_STDIN], [], [], timeout_s)
        if readable:
            _pending.extend(os.read(_STDIN, 4096).decode().split() or [END])
    return _pending.pop(0) if _pending else None
