"""Counts of the traffic over the connections to one broker, for statistics.

The thread that owns the connections writes the counters. Other threads take a `snapshot`.
"""

from __future__ import annotations

from collections.abc import Mapping

from consumer_membership.light_dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSnapshot:
    """The counts at one moment; each is correct, but one may include a request that another does not."""

    #: The number of requests per API, by Kafka's names without a version: "OffsetCommit".
    requests: Mapping[str, int]
    answers: int
    bytes_sent: int
    bytes_received: int
    connects: int
    disconnects: int
    timeouts: int
    #: Responses with a throttle time (KIP-124), and the sum of these times in seconds.
    throttles: int = 0
    throttled_s: float = 0.0


class Traffic:
    """Counts over all connections for one purpose to one broker, including those that ended."""

    __slots__ = (
        "_requests",
        "answers",
        "bytes_received",
        "bytes_sent",
        "connects",
        "disconnects",
        "throttled_s",
        "throttles",
        "timeouts",
    )

    def __init__(self) -> None:
        self._requests: dict[str, int] = {}
        self.answers = 0
        self.bytes_sent = 0
        self.bytes_received = 0
        #: How many connections were begun, and how many the peer or the network ended.
        self.connects = 0
        self.disconnects = 0
        #: Requests without a response in time.
        self.timeouts = 0
        self.throttles = 0
        self.throttled_s = 0.0

    def sent(self, api: str, size: int) -> None:
        """Count a request of this API and size."""
        self._requests[api] = self._requests.get(api, 0) + 1
        self.bytes_sent += size

    def throttled(self, seconds: float) -> None:
        """Count a response with this throttle time."""
        self.throttles += 1
        self.throttled_s += seconds

    def snapshot(self) -> TrafficSnapshot:
        """Return the current counts; thread-safe, because the copy of a dict is one step of the interpreter."""
        return TrafficSnapshot(
            requests=self._requests.copy(),
            answers=self.answers,
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            connects=self.connects,
            disconnects=self.disconnects,
            timeouts=self.timeouts,
            throttles=self.throttles,
            throttled_s=self.throttled_s,
        )
