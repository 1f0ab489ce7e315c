"""Threads that begin at the same time, for tests of data that threads share; most useful in a Python without a GIL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tests.support.waiting import PATIENCE_S

T = TypeVar("T")


def together(*calls: Callable[[], T]) -> list[T]:
    """Run each call in its own thread, at the same time; return their results, or raise the first exception."""
    start = threading.Barrier(len(calls))

    def begin(call: Callable[[], T]) -> T:
        start.wait(PATIENCE_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [one.result(PATIENCE_S) for one in [threads.submit(begin, call) for call in calls]]
