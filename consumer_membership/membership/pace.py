"""How soon one heartbeat follows another, under both protocols: quickly after a change, then slower, up to a bound."""

from __future__ import annotations

from collections import deque
from math import inf

#: The interval between a member's heartbeats during a change: a scale-out takes about three heartbeats, so 0.2 s makes
#: it 0.6 s (measured on 4.3.1: 0.62 s), at 0.15 ms of broker CPU each.
QUICK_S = 0.2
#: After this number of quick heartbeats, each pause is longer than the one before by the growth factor, up to the
#: interval.
QUICK_HEARTBEATS = 5
GROWTH = 1.6
#: Heartbeats are counted up to here, where the growth is beyond any interval: an unlimited power would overflow.
COUNTED_HEARTBEATS = 64
#: Requests may take up at most a twentieth of a member's time: a slow coordinator gets fewer of them. The quickest of
#: the latest round trips counts, since a single slow one does not show the coordinator's load.
ROUND_TRIPS = 20.0
REMEMBERED_ROUND_TRIPS = 8


class RoundTrips:
    """The latest round trips to the coordinator, which bound how often one member sends requests."""

    def __init__(self) -> None:
        self._latest: deque[float] = deque(maxlen=REMEMBERED_ROUND_TRIPS)

    def add(self, seconds: float) -> None:
        """Add the time after which a request was answered."""
        self._latest.append(max(0.0, seconds))

    @property
    def least_spacing_s(self) -> float:
        """Seconds from one request to the next at least; 0 until enough round trips are known."""
        is_known = len(self._latest) == REMEMBERED_ROUND_TRIPS
        return ROUND_TRIPS * min(self._latest) if is_known else 0.0


class Pace:
    """The pace of one member's heartbeats; `first_s` are the first pauses after a change, where they are shorter."""

    def __init__(self, first_s: tuple[float, ...] = ()) -> None:
        self._first_s = first_s
        self._sent = 0
        self._round_trips = RoundTrips()

    def speed_up(self) -> None:
        """Heartbeat quickly for a while, because something changed."""
        self._sent = 0

    def count_heartbeat(self) -> None:
        """Count a heartbeat that is sent."""
        self._sent = min(self._sent + 1, COUNTED_HEARTBEATS)

    def answered(self, after_s: float) -> None:
        """Add the time after which a heartbeat was answered."""
        self._round_trips.add(after_s)

    def spacing_s(self, bound_s: float, *, most_s: float = inf) -> float:
        """Return the seconds to the next heartbeat: at most `bound_s`; with a quick coordinator, at most `most_s`."""
        later = self._sent - len(self._first_s)
        quick = self._first_s[later] if later < 0 else QUICK_S * GROWTH ** max(0, later - QUICK_HEARTBEATS)
        return min(bound_s, max(min(quick, most_s), self._round_trips.least_spacing_s))
