"""Durations, counted: by buckets for good, and the latest ones as Java's client counts them.

Any thread reads without a lock: what is read is copied in one step of the interpreter.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import Instant

#: The upper bounds of the buckets, in seconds: from a heartbeat in the same room to max.poll.interval.ms.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: Java's metrics.sample.window.ms and metrics.num.samples: the latest ones are those of 30 to 60 seconds.
SAMPLE_WINDOW_S, SAMPLES = 30.0, 2

#: Hears of each duration, in seconds, on the thread that it was counted on; it must be quick and must not raise.
DurationListener: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """The durations of the last 30 to 60 seconds; `over_s` is the time that a rate divides by."""

    count: int = 0
    sum_s: float = 0.0
    longest_s: float = 0.0
    over_s: float = SAMPLE_WINDOW_S

    @property
    def average_s(self) -> float:
        """Their average; not a number where there were none, as in Java."""
        return self.sum_s / self.count if self.count else float("nan")

    @property
    def greatest_s(self) -> float:
        """The longest; not a number where there were none."""
        return self.longest_s if self.count else float("nan")

    @property
    def per_s(self) -> float:
        """How many there were in a second."""
        return self.count / self.over_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """All durations of one kind. `buckets`: how many were up to each of `BOUNDS_S` and above the one before, then more.

    `sum_s` may be one ahead of the buckets, or behind them, where it was read while one was counted.
    """

    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0
    recent: Recent = Recent()

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.buckets)


class Durations:
    """Counts durations of one kind.

    It may be counted on by several threads: each change is one that the interpreter does not interrupt.
    """

    __slots__ = ("_buckets", "_growing", "_listeners", "_samples", "_sum_s")

    def __init__(self) -> None:
        self._buckets = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        #: When a sample began, how many there were before it, their sum, and its longest; the older one and that which
        #: grows. What a sample has is the difference: so a poll that fetches counts each of its times once.
        self._growing = [float("-inf"), 0, 0.0, 0.0]
        self._samples: tuple[list[float], ...] = ()
        self._listeners: tuple[DurationListener, ...] = ()

    def listen(self, listener: DurationListener) -> None:
        """Have this called with each duration from now on."""
        self._listeners = (*self._listeners, listener)

    def add(self, seconds: float, now: Instant, times: int = 1) -> None:
        """Count one that ends now, or so many of this length."""
        sample = self._growing
        if now - sample[0] >= SAMPLE_WINDOW_S:
            sample = self._begin_sample(now)
        self._buckets[bisect_left(BOUNDS_S, seconds)] += times
        self._sum_s += seconds * times
        if seconds > sample[3]:  # noqa: PLR1730 - half the price of a call of `max`, in each poll that fetches
            sample[3] = seconds
        for listener in self._listeners:
            listener(seconds)

    def note_longest(self, seconds: float, now: Instant) -> None:
        """Count nothing, but have the longest of the latest ones be at least this."""
        sample = self._growing
        if now - sample[0] >= SAMPLE_WINDOW_S:
            sample = self._begin_sample(now)
        sample[3] = max(sample[3], seconds)

    def seen(self, now: Instant) -> Distribution:
        """What was counted until now."""
        return Distribution(buckets=tuple(self._buckets), sum_s=self._sum_s, recent=self.recent(now))

    def recent(self, now: Instant) -> Recent:
        """The latest ones alone."""
        young = [sample for sample in self._samples if now - sample[0] < SAMPLE_WINDOW_S * SAMPLES]
        if not young:
            return Recent()
        began_at, count, sum_s, _ = young[0]
        return Recent(
            count=sum(self._buckets) - int(count),
            sum_s=self._sum_s - sum_s,
            longest_s=max(longest_s for *_, longest_s in young),
            over_s=max(SAMPLE_WINDOW_S * (SAMPLES - 1), now - began_at),
        )

    def _begin_sample(self, now: Instant) -> list[float]:
        self._growing = [now, sum(self._buckets), self._sum_s, 0.0]
        self._samples = (*self._samples[-1:], self._growing)
        return self._growing
