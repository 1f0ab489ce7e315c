"""Notices that librdkafka's handle has lost its brokers and will not look for any again.

A broker that shuts down may answer a metadata request with no brokers at all. librdkafka then forgets those it knew; if
the connection ends with that very answer, the answer also calls off the search for new ones that the end began, and
none begins again: librdkafka 2.10 to 2.16, its issue 5301. Heartbeats go on, on connections of this package's own, so
the member keeps partitions that nobody reads. Whoever owns the handle makes it anew then.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

#: How long no record came before the handle is asked whether it has a broker, which costs one small metadata request
#: (it makes ten fetch requests each second anyway).
SILENCE_S = 5.0
#: How soon it is asked again while it has none, which costs nothing.
AGAIN_S = 0.5
#: How long it may have none although a heartbeat was answered since; twice as long each time that a new handle got
#: none either, up to a minute.
PATIENCE_S = 3.0
#: The same where there are no heartbeats to compare with: as long as librdkafka may pause (reconnect.backoff.max.ms).
PATIENCE_ALONE_S = 10.0
LONGEST_PATIENCE_S = 60.0


class HandleWatch:
    """Watches one consumer's handle; called where no record came.

    `has_broker` asks it whether it is connected to any, `heard_at` says when the member's last heartbeat was answered
    (None: there is no member to compare with).
    """

    def __init__(
        self, has_broker: Callable[[], bool], heard_at: Callable[[], float | None], now: Callable[[], float] = monotonic
    ) -> None:
        self._has_broker = has_broker
        self._heard_at = heard_at
        self._now = now
        self._lost_at: float | None = None
        #: Since when this very handle is given time to find one.
        self._waits_from = 0.0
        self._renewals = 0
        self._look_at = 0.0
        self.saw_life()

    @property
    def lost_since(self) -> float | None:
        """Since when the handle has no broker (`time.monotonic`); None: it has one, for all that is known."""
        return self._lost_at

    def saw_life(self) -> None:
        """Something came from the handle."""
        self._lost_at = None
        self._renewals = 0
        self._look_at = self._now() + SILENCE_S

    def finds_it_lost(self) -> bool:
        """Nothing came from the handle: whether it is to be made anew now, of which this is the only word."""
        now = self._now()
        if now < self._look_at:
            return False
        if self._has_broker():
            self.saw_life()
            return False
        self._look_at = now + AGAIN_S
        if self._lost_at is None:
            self._lost_at = self._waits_from = now
        if now - self._waits_from < self._patience_s or not self._is_heard:
            return False
        self._renewals += 1
        self._waits_from = now
        return True

    @property
    def _is_heard(self) -> bool:
        """Whether the cluster answers this process: else there is nothing that a new handle would find."""
        heard_at = self._heard_at()
        return heard_at is None or heard_at > self._waits_from

    @property
    def _patience_s(self) -> float:
        first_s = PATIENCE_ALONE_S if self._heard_at() is None else PATIENCE_S
        return min(first_s * 2.0 ** min(self._renewals, 10), LONGEST_PATIENCE_S)
