"""Count durations: in buckets since the beginning, and over the last 30 to 60 seconds as the Java client does.

Any thread reads without a lock, because each copy is one step of the interpreter, also without a GIL.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from typing import TypeAlias

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.types import Instant

#: The upper bounds of the buckets in seconds: from a heartbeat in a local network to max.poll.interval.ms.
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: The Java client's defaults of metrics.sample.window.ms and metrics.num.samples: recent values cover 30 to 60 seconds.
SAMPLE_WINDOW_S, SAMPLES = 30.0, 2

#: Receives each duration in seconds, on the thread that counts it; it must be quick and must not raise.
DurationListener: TypeAlias = Callable[[float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """The durations of the last 30 to 60 seconds; `over_s` is the divisor of rates, in seconds."""

    count: int = 0
    sum_s: float = 0.0
    longest_s: float = 0.0
    over_s: float = SAMPLE_WINDOW_S

    @property
    def average_s(self) -> float:
        """The average in seconds; NaN without durations, as in the Java client."""
        return self.sum_s / self.count if self.count else float("nan")

    @property
    def greatest_s(self) -> float:
        """The longest duration in seconds; NaN without durations."""
        return self.longest_s if self.count else float("nan")

    @property
    def per_s(self) -> float:
        """The number of durations per second."""
        return self.count / self.over_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """All durations of one kind; `buckets` has the number per bound of `BOUNDS_S`, and last that of longer ones.

    `sum_s` can include one duration more or less than the buckets if it is read during a count.
    """

    buckets: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0
    recent: Recent = Recent()

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.buckets)


class Durations:
    """Count durations of one kind; several threads may count."""

    __slots__ = ("_buckets", "_growing", "_listeners", "_lock", "_samples", "_sum_s")

    def __init__(self) -> None:
        # Re-entrant: a signal handler may interrupt its own thread in here and use the consumer.
        self._lock = threading.RLock()
        self._buckets = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0
        #: Of each sample: when it began, the count and the sum before it, and its longest duration; first the older
        #: sample, then the growing one. A sample's values are differences, so that a poll that fetches counts each
        #: duration once.
        self._growing = [float("-inf"), 0, 0.0, 0.0]
        self._samples: tuple[list[float], ...] = ()
        self._listeners: tuple[DurationListener, ...] = ()

    def listen(self, listener: DurationListener) -> None:
        """Register a listener for each duration from now on."""
        self._listeners = (*self._listeners, listener)

    def add(self, seconds: float, now: Instant, times: int = 1) -> None:
        """Count a duration that ends now, or `times` durations of this length."""
        with self._lock:
            sample = self._growing
            if now - sample[0] >= SAMPLE_WINDOW_S:
                sample = self._begin_sample(now)
            self._buckets[bisect_left(BOUNDS_S, seconds)] += times
            self._sum_s += seconds * times
            if seconds > sample[3]:  # noqa: PLR1730 - half the cost of `max`, in each poll that fetches
                sample[3] = seconds
        for listener in self._listeners:
            listener(seconds)

    def note_longest(self, seconds: float, now: Instant) -> None:
        """Count nothing, but raise the longest recent duration to this value."""
        with self._lock:
            sample = self._growing
            if now - sample[0] >= SAMPLE_WINDOW_S:
                sample = self._begin_sample(now)
            sample[3] = max(sample[3], seconds)

    def seen(self, now: Instant) -> Distribution:
        """Return all durations so far."""
        return Distribution(buckets=tuple(self._buckets), sum_s=self._sum_s, recent=self.recent(now))

    def recent(self, now: Instant) -> Recent:
        """Return the recent durations."""
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
