"""How soon a member that waits for an instance id describes its group again.

The coordinator does not notify waiting members, so each of them describes the group (ConsumerGroupDescribe). A refused
join would show the same, but brokers log each refused join. An id is most likely released soon after a member began to
wait, because a deployment starts the new process shortly before it ends the old one; and soon after another id changed
its holder, because a deployment replaces one process after the other. So descriptions are frequent then, and become
rarer in proportion to the time without a change. A description costs the broker more the more members the group has,
and a large deployment has many members that wait, so large groups are described less often.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.membership.backoff import SPREAD, Jitter
from consumer_membership.membership.pace import ROUND_TRIPS, RoundTrips
from consumer_membership.types import Holder, Instant

#: The interval while a release is likely: a released id is then found after 20 ms on average.
QUICK_DESCRIPTION_S = 0.04
#: The interval while a holder is about to hand its id over, because no member owns the partitions between the release
#: and the description that shows it. With a round trip of 1 ms these are 300 requests a second.
IMMINENT_DESCRIPTION_S = 0.002
#: The interval is at least this part of the time since the request to the holder: from 2 s on, when most holders have
#: released the id, the descriptions become rarer. A drain of 30 s costs about 3,000 of them.
IMMINENT_SHARE = 0.001
#: How long a release is likely after a change: Kubernetes ends a process within 30 s (terminationGracePeriodSeconds)
#: after it started the next one, and Kafka's default session is 45 s.
LIKELY_FOR_S = 60.0
#: From this number of instance ids on, the interval is proportional to it. Of a deployment's processes, Kubernetes
#: starts up to a quarter at once (maxSurge).
MANY_HOLDERS = 25


class ReleaseWatch:
    """The intervals between one member's descriptions: from 40 ms to `slowest_s`, if that is longer."""

    def __init__(self, slowest_s: float, jitter: Jitter) -> None:
        self._slowest_s = max(slowest_s, QUICK_DESCRIPTION_S)
        self._jitter = jitter
        self._round_trips = RoundTrips()
        self._holders: Mapping[str, Holder] | None = None
        self._changed_at: Instant = 0.0
        self._requested_at: Instant = 0.0

    def begin(self) -> None:
        """Begin a join: its first description counts as a change."""
        self._holders = None

    def requested(self, now: Instant) -> None:
        """Begin to measure the round trip of a description that is requested now."""
        self._requested_at = now

    def described(self, holders: Mapping[str, Holder], now: Instant) -> None:
        """Compare the holders of the group's instance ids in the response with the former ones."""
        self._round_trips.add(now - self._requested_at)
        if holders != self._holders:
            self._holders, self._changed_at = holders, now

    def next_at(self, now: Instant, *, expected_since: Instant | None = None) -> Instant:
        """Return the moment of the next description, spread by a fifth to either side, so that members take turns.

        `expected_since`: since when the holder to which this member announced itself may release its id. The next
        request then follows soon, but not before a pause of one round trip.
        """
        size = max(1.0, len(self._holders or ()) / MANY_HOLDERS)
        if expected_since is not None:
            least_s = self._round_trips.least_spacing_s / ROUND_TRIPS
            return now + max(IMMINENT_DESCRIPTION_S * size, IMMINENT_SHARE * (now - expected_since), least_s)
        quiet = max(1.0, (now - self._changed_at) / LIKELY_FOR_S)
        spacing_s = max(QUICK_DESCRIPTION_S * quiet * size, self._round_trips.least_spacing_s)
        spacing_s = min(spacing_s, self._slowest_s)
        return now + spacing_s * (1 - SPREAD + 2 * SPREAD * self._jitter())
