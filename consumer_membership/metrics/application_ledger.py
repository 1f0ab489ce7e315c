"""Counts what an application does with its consumer: polls, rebalance callbacks, what it waits for.

Nothing is counted for a record: `poll` hands most of them out of the prefetch buffer without a word, and how many is
seen when it has to fetch again. So the times between those polls are known as their average, those of all other polls
exactly; that a long one is not lost in an average, whoever looks from aside says how long no poll came.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.metrics.distribution import Distribution, Durations
from consumer_membership.types import Instant


class CallbackKind(Enum):
    """The rebalance callbacks; on_revoke counts as LOST where it stands in for on_lost."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationCounts:
    """What an application did until one moment.

    Attributes:
        polled_at: When it polled last, as far as that was seen (monotonic clock); now, while it is in a poll.
        poll_interval: From the beginning of each poll to that of the next one.
        poll: How long polls took that did not find their record in the prefetch buffer.
        polling_s: How long it was in polls, the running one included.
        idle_ratio: Which part of the last 30 to 60 seconds that was; None before the first poll.
        callbacks: How long rebalance callbacks took.
        commit_sync_s: How long it waited for synchronous commits, and `committed_s` for committed offsets.
        records: How many records were handed to it.
        records_per_s: The same in a second, over the last 30 to 60; 0 where nobody looked yet.
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
        #: When the latest poll began that was counted, and what waited in the buffer when the latest one ended.
        self._began_at: Instant | None = None
        self._left = 0
        #: How many polls are under way.
        self._inside = 0
        self._silent_since: Instant | None = None
        self._seen_polls = -1
        self._handed_out = Durations()
        self._seen_records: int | None = None

    def begin_poll(self, now: Instant, waiting: int) -> None:
        """A poll begins that is counted, `waiting` records are in the buffer; to be followed by `end_poll`."""
        former = self._began_at
        if former is not None:
            taken = self._left - waiting
            if taken > 0:  # each of these records was a poll of its own
                self.poll_interval.add((now - former) / (taken + 1), now, taken + 1)
            else:
                self.poll_interval.add(now - former, now)
        self._began_at = now
        self._inside += 1

    def end_poll(self, began_at: Instant, now: Instant, waiting: int) -> None:
        """It is over."""
        self._inside -= 1
        self._left = waiting
        self.poll.add(now - began_at, now)

    def look(self, polls: int, records: int, now: Instant) -> None:
        """From aside: so many signs of polling, and so many records, there were so far (`PrefetchBuffer.progress`)."""
        new = 0 if self._seen_records is None else records - self._seen_records
        self._handed_out.add(0.0, now, max(new, 0))
        self._seen_records = records
        if polls != self._seen_polls or self._silent_since is None:
            self._seen_polls, self._silent_since = polls, now
        elif not self._inside and self._began_at is not None:
            self.poll_interval.note_longest(now - self._silent_since, now)

    def counts(self, now: Instant, records: int) -> ApplicationCounts:
        """What the application did until now; `records` were handed to it."""
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
    """The part of the time since some poll's beginning that was spent in polls; the latest interval is not over."""
    if began_at is None:
        return None
    whole_s = intervals_s + now - began_at
    return min(polling_s / whole_s, 1.0) if whole_s > 0 else 1.0
