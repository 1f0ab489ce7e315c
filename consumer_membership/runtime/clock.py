"""The time of one consumer: the clocks that its calls read, and how its calls wait for a change.

Every consumer of a real cluster has the system's clock. A cluster inside the test process
(`consumer_membership.testing`) may give its consumers a virtual one, on which a wait takes no time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from consumer_membership.runtime.session_clock import session_time


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
        """Whether a wait takes no time of this machine, so that other threads must not measure theirs by it."""

    def wait(self, change: threading.Condition, timeout_s: float | None) -> None:
        """Wait until another thread notifies this condition, whose lock the caller holds; None: without a limit."""


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


SYSTEM_CLOCK = SystemClock()
