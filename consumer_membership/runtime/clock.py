"""The time of one consumer: the clocks that its calls read, and how its calls wait for a change.

Every consumer of a real cluster has the system's clock. A cluster inside the test process
(`consumer_membership.testing`) may give its consumers a virtual one, on which a wait takes no time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from consumer_membership.runtime.session_clock import session_time

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Clock(Protocol):
    """The time of one consumer."""

    @property
    def now(self) -> Callable[[], float]:
        """The present time in seconds, from an arbitrary start: the time of the member and of timeouts."""

    @property
    def session_time(self) -> Callable[[], float]:
        """The clock by which sessions end (`session_clock`)."""

    @property
    def is_virtual(self) -> bool:
        """Whether a wait takes no time of this machine."""

    def wait(self, change: threading.Condition, timeout_s: float | None) -> None:
        """Wait until another thread notifies this condition, whose lock the caller holds; None: without a limit."""

    def start_thread(self, target: Callable[[], object], name: str) -> Future[None]:
        """Start a daemon thread that may wait on this clock; the result is done when it has ended."""

    def wait_for_end(self, future: Future[Any], timeout_s: float | None = None) -> None:
        """Wait until this is done, at most for this time; None: without a limit."""

    def new_event_loop(self) -> AbstractEventLoop:
        """Return an event loop with this time, for a thread of `start_thread`."""


class SystemClock:
    """The clocks of this machine."""

    __slots__ = ("is_virtual", "now", "session_time")

    def __init__(self) -> None:
        self.is_virtual = False
        self.now = monotonic
        self.session_time = session_time

    def wait(self, change: threading.Condition, timeout_s: float | None) -> None:
        """Wait for the condition itself."""
        change.wait(timeout_s)

    def start_thread(self, target: Callable[[], object], name: str) -> Future[None]:
        """Start a daemon thread."""
        ended: Future[None] = Future()
        threading.Thread(target=_run, args=(target, ended), name=name, daemon=True).start()
        return ended

    def wait_for_end(self, future: Future[Any], timeout_s: float | None = None) -> None:
        """Wait for the future itself."""
        wait([future], timeout_s)

    def new_event_loop(self) -> AbstractEventLoop:
        """Return asyncio's event loop."""
        import asyncio

        return asyncio.new_event_loop()


def _run(target: Callable[[], object], ended: Future[None]) -> None:
    try:
        target()
    finally:
        ended.set_result(None)


SYSTEM_CLOCK = SystemClock()
