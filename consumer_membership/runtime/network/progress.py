"""Reports the application's polls to a member's core, because the hot path of `poll()` only counts them.

Each report is an event of the core, so a member is sampled only as often as its core can use polls. The poll with which
a member joins is not reported here: the application posts it (`Subscriptions.announce_poll`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from consumer_membership.membership.events import Polled

#: How often the counts are read while the next poll repeats a callback. Also the first interval after a calm time.
PROGRESS_SAMPLE_S = 0.25
#: How long a member is active after a record (`heartbeat.active.interval.ms`), and how often it is sampled then.
ACTIVE_S = 1.0
#: The longest interval of any member, as a part of max.poll.interval.ms and in seconds: the delay with which a missed
#: poll may be noticed. Four samples a second are two thirds of the work of an idle member's thread.
CALM_SHARE, LONGEST_CALM_S = 0.01, 3.0


class ProgressSampler:
    """Reads two growing counts, of polls and of delivered records, and reports new polls; used from one loop.

    A member is calm while no record is delivered and the next poll repeats no callback.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        progress: Callable[[], tuple[int, int]],
        report: Callable[[Polled], None],
        retries_at_poll: Callable[[], bool],
        *,
        max_poll_interval_s: float,
    ) -> None:
        self._loop = loop
        self._progress = progress
        self._report = report
        self._retries_at_poll = retries_at_poll
        self._calm_s = max(PROGRESS_SAMPLE_S, min(CALM_SHARE * max_poll_interval_s, LONGEST_CALM_S))
        self._counts = (0, 0)
        self._delivered_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        #: Written on the loop, read by the application's threads.
        self.is_calm = False

    def start(self) -> None:
        """Begin to sample."""
        self._schedule()

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
        """Sample soon, because records come again, or the next poll repeats a callback."""
        if self.is_calm:
            self._sample_at(self._loop.time() + PROGRESS_SAMPLE_S)

    def _sample_and_go_on(self) -> None:
        self.sample()
        self._schedule()

    def _schedule(self) -> None:
        now = self._loop.time()
        if self._retries_at_poll():
            self._sample_at(now + PROGRESS_SAMPLE_S)
        elif now - self._delivered_at < ACTIVE_S:
            self._sample_at(now + min(ACTIVE_S, self._calm_s))
        else:
            # Calm members are sampled at the same moments, which are multiples of the interval: a thread that wakes
            # for many of them finds its code and data in the processor's caches.
            at = (now // self._calm_s + 1) * self._calm_s
            self._sample_at(at, is_calm=self._calm_s > PROGRESS_SAMPLE_S)

    def _sample_at(self, moment: float, *, is_calm: bool = False) -> None:
        self.stop()
        self.is_calm = is_calm
        self._timer = self._loop.call_at(moment, self._sample_and_go_on)
