"""Count the handlers of one consumer's records: a processor writes, and snapshots read.

The processor writes under its scheduler's lock, 0.5 us for each record. Current numbers (gauges) are requested from the
processor for each snapshot and cost nothing otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.metrics.distribution import Distribution, Durations
from consumer_membership.types import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerGauges:
    """The current numbers of a processor.

    Attributes:
        lanes: The lanes: queues of records that run one after the other.
        busy: The lanes with a running handler.
        queued: The records that wait in lanes, for their turn or for a retry.
        in_flight: The records whose handlers run.
        oldest_in_flight_s: The age of the oldest running handler in seconds; None: no handler runs.
    """

    lanes: int = 0
    busy: int = 0
    queued: int = 0
    in_flight: int = 0
    oldest_in_flight_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerCounts:
    """The counts of a processor up to one moment.

    Attributes:
        now: The current numbers.
        handler_time: The durations of handler calls; each attempt and each batch counts once.
        queue_time: The times from the receipt of records to the beginning of their first attempts.
        finished: The records that are finished: processed or dead-lettered.
        skipped: The records that were not processed because a former owner of the partition had finished them.
        failures: The failed attempts by the class of their error; at most a hundred classes are counted separately.
        retries: The attempts after the first one.
        dead_letters: The records that were passed to the dead-letter target.
    """

    now: HandlerGauges
    handler_time: Distribution
    queue_time: Distribution
    finished: int
    skipped: int
    failures: Mapping[str, int]
    retries: int
    dead_letters: int


class HandlerLedger:
    """The counts of one processor. One thread at a time writes, under the processor's lock; any thread reads."""

    __slots__ = ("_gauges", "dead_letters", "failures", "finished", "handler_time", "queue_time", "retries", "skipped")

    def __init__(self, gauges: Callable[[Instant], HandlerGauges]) -> None:
        self._gauges = gauges
        #: Call `add` at the end of each handler call, and at the beginning of each record's first attempt.
        self.handler_time = Durations()
        self.queue_time = Durations()
        #: Incremented by the processor; see `HandlerCounts`.
        self.finished = 0
        self.skipped = 0
        self.failures: Counter[str] = Counter()
        self.retries = 0
        self.dead_letters = 0

    def counts(self, now: Instant) -> HandlerCounts:
        """Return the counts so far and the current numbers."""
        return HandlerCounts(
            now=self._gauges(now),
            handler_time=self.handler_time.seen(now),
            queue_time=self.queue_time.seen(now),
            finished=self.finished,
            skipped=self.skipped,
            failures=MappingProxyType(self.failures.copy()),
            retries=self.retries,
            dead_letters=self.dead_letters,
        )
