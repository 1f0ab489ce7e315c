"""Exponential backoff with jitter, as Kafka's clients space their retries."""

from __future__ import annotations

from collections.abc import Callable

#: Returns a number from 0 up to 1; the shell passes it, because the core uses no randomness of its own.
Jitter = Callable[[], float]

#: Java's RETRY_BACKOFF_JITTER: the delay is spread this much to either side.
SPREAD = 0.2


class Backoff:
    """Delays that double from `base_s` up to `max_s`, each spread by a fifth to either side."""

    __slots__ = ("_base_s", "_jitter", "_max_s", "failures")

    def __init__(self, base_s: float, max_s: float, jitter: Jitter) -> None:
        self._base_s = base_s
        self._max_s = max(base_s, max_s)
        self._jitter = jitter
        self.failures = 0

    def next_delay(self) -> float:
        """Count one more failure; return the seconds to wait before the next attempt."""
        delay = min(self._max_s, self._base_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return delay * (1 - SPREAD + 2 * SPREAD * self._jitter())

    def reset(self) -> None:
        """Forget the failures after a success."""
        self.failures = 0
