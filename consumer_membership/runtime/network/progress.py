"""Reports the application's polls to a member's core, because the hot path of `poll()` only counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from consumer_membership.membership.events import Polled

#: How often the counts are read.
PROGRESS_SAMPLE_S = 0.25
#: The interval of a calm member, as a part of max.poll.interval.ms and in seconds at most: the delay with which a
#: missed poll may be noticed. Four samples a second are two thirds of the work of an idle member's thread.
CALM_SHARE, LONGEST_CALM_S = 0.01, 3.0
#: Records within this time make a member an active one (`heartbeat.active.interval.ms`).
ACTIVE_S = 1.0


class ProgressSampler:
    """Reads two growing counts, of polls and of delivered records, and reports new polls; used from one loop.

    A member is calm if it waits for nothing and has delivered no record for a while; it is sampled less often then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        progress: Callable[[], tuple[int, int]],
        report: Callable[[Polled], None],
        is_waiting: Callable[[], bool],
        *,
        max_poll_interval_s: float,
    ) -> None:
        self._loop = loop
        self._progress = progress
        self._report = report
        self._is_waiting = is_waiting
        self._calm_s = max(PROGRESS_SAMPLE_S, min(CALM_SHARE * max_poll_interval_s, LONGEST_CALM_S))
        self._counts = (0, 0)
        self._delivered_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        #: Written on the loop, read by the application's threads.
        self.is_calm = False

    def start(self) -> None:
        """Begin to sample."""
        self._sample_in(PROGRESS_SAMPLE_S)

    def stop(self) -> None:
        """End sampling."""
        if self._timer is not None:
            self._timer.cancel()

    def sample(self) -> None:
        """Report polls since the last sample, and whether the application gets records."""
        now = self._loop.time()
        polls, records = self._progress()
        if records != self._counts[1]:
            self._delivered_at = now
        has_polled = polls != self._counts[0]
        self._counts = (polls, records)
        if has_polled:
            self._report(Polled(delivered=now - self._delivered_at < ACTIVE_S))

    def end_calm(self) -> None:
        """Sample at the usual pace again, so that a poll is noticed quickly."""
        if self.is_calm:
            self._sample_in(PROGRESS_SAMPLE_S)

    def _sample_and_go_on(self) -> None:
        self.sample()
        is_calm = not self._is_waiting() and self._loop.time() - self._delivered_at >= ACTIVE_S
        self._sample_in(self._calm_s if is_calm else PROGRESS_SAMPLE_S)

    def _sample_in(self, delay_s: float) -> None:
        self.stop()
        self.is_calm = delay_s > PROGRESS_SAMPLE_S
        now = self._loop.time()
        # Calm members are sampled at the same moments, which are multiples of the interval: a thread that wakes for
        # many of them finds its code and data in the processor's caches.
        at = now + delay_s if not self.is_calm else (now // delay_s + 1) * delay_s
        self._timer = self._loop.call_at(at, self._sample_and_go_on)
