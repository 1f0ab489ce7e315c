"""Count what an application does with its consumer: polls, rebalance callbacks, and blocking calls.

Most polls are not counted one by one: they return a record from the prefetch buffer, and their number is known at the
next fetch. The intervals between these polls are therefore known only as an average, all other intervals exactly. So
that an average does not hide a long interval, a sampler reports how long no poll has come.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.metrics.distribution import Distribution, Durations
from consumer_membership.types import Instant


class CallbackKind(Enum):
    """The rebalance callbacks; on_revoke counts as LOST where it replaces on_lost."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationCounts:
    """The counts of an application up to one moment.

    Attributes:
        polled_at: When it last polled, as far as known (monotonic clock); the current time during a poll.
        poll_interval: The intervals between the beginnings of successive polls.
        poll: The durations of polls whose record was not in the prefetch buffer.
        polling_s: The total time in polls, including a running one, in seconds.
        idle_ratio: The part of the last 30 to 60 seconds that was spent in polls; None before the first poll.
        callbacks: The durations of rebalance callbacks.
        commit_sync_s: The total time in synchronous commits, in seconds.
        committed_s: The total time in `committed`, in seconds.
        records: The number of records that the application received.
        records_per_s: Records per second over the last 30 to 60 seconds; 0 before the first sample.
    """

    polled_at: Instant | None
    poll_interval: Distribution
    poll: Distribution
    polling_s: float
    idle_ratio: float | None
    callbacks: Mapping[CallbackKind, Distribution]
    commit_sync_s: float
    committed_s: float
    records: int
    records_per_s: float


class ApplicationLedger:
    """The counts of one consumer's application; several threads may poll."""

    def __init__(self) -> None:
        self.poll_interval = Durations()
        self.poll = Durations()
        self.callbacks = {kind: Durations() for kind in CallbackKind}
        self.commit_sync = Durations()
        self.committed = Durations()
        # Re-entrant: a signal handler may interrupt its own thread in here and poll.
        self._lock = threading.RLock()
        #: When the latest counted poll began, and how many records were in the buffer when the latest one ended.
        self._began_at: Instant | None = None
        self._left = 0
        #: The number of polls in progress.
        self._inside = 0
        self._silent_since: Instant | None = None
        self._seen_polls = -1
        self._handed_out = Durations()
        self._seen_records: int | None = None

    def begin_poll(self, now: Instant, waiting: int) -> None:
        """Count the beginning of a poll with `waiting` records in the buffer; call `end_poll` afterwards."""
        with self._lock:
            former, taken = self._began_at, self._left - waiting
            self._began_at = now
            self._inside += 1
        if former is None:
            return
        if taken > 0:  # each of these records was a separate poll
            self.poll_interval.add((now - former) / (taken + 1), now, taken + 1)
        else:
            self.poll_interval.add(now - former, now)

    def end_poll(self, began_at: Instant, now: Instant, waiting: int) -> None:
        """Count the end of a poll."""
        with self._lock:
            self._inside -= 1
            self._left = waiting
        self.poll.add(now - began_at, now)

    def sample(self, polls: int, records: int, now: Instant) -> None:
        """Add a sample from another thread: the polls and records so far (`PrefetchBuffer.progress`)."""
        new = 0 if self._seen_records is None else records - self._seen_records
        self._handed_out.add(0.0, now, max(new, 0))
        self._seen_records = records
        if polls != self._seen_polls or self._silent_since is None:
            self._seen_polls, self._silent_since = polls, now
        elif not self._inside and self._began_at is not None:
            self.poll_interval.note_longest(now - self._silent_since, now)

    def counts(self, now: Instant, records: int) -> ApplicationCounts:
        """Return the counts so far; the application received `records` records."""
        began_at, poll = self._began_at, self.poll.seen(now)
        interval = self.poll_interval.seen(now)
        running_s = now - began_at if self._inside and began_at is not None else 0.0
        polled_at = max((at for at in (began_at, self._silent_since) if at is not None), default=None)
        return ApplicationCounts(
            polled_at=None if began_at is None else now if self._inside else polled_at,
            poll_interval=interval,
            poll=poll,
            polling_s=poll.sum_s + running_s,
            idle_ratio=_share(poll.recent.sum_s + running_s, interval.recent.sum_s, began_at, now),
            callbacks=MappingProxyType({kind: durations.seen(now) for kind, durations in self.callbacks.items()}),
            commit_sync_s=self.commit_sync.seen(now).sum_s,
            committed_s=self.committed.seen(now).sum_s,
            records=records,
            records_per_s=self._handed_out.recent(now).per_s,
        )


def _share(polling_s: float, intervals_s: float, began_at: Instant | None, now: Instant) -> float | None:
    """Return the part of the time since `began_at` that was spent in polls; the latest interval is not over."""
    if began_at is None:
        return None
    whole_s = intervals_s + now - began_at
    return min(polling_s / whole_s, 1.0) if whole_s > 0 else 1.0
