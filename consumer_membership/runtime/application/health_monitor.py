"""Samples one consumer's partitions every few seconds, on its own thread, so that `health` never waits.

It starts with the first call of `health`, or at once if recordings are enabled (`recorder.directory`). A sample takes
one turn at the handle, like any other thread's call. For partitions that stall, it requests the end offsets from the
brokers, on the member's own connections: librdkafka knows the ends only of partitions that it fetches successfully.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from weakref import ref

from confluent_kafka import KafkaException

from consumer_membership.errors import MembershipError
from consumer_membership.health.progress import AssignmentProgress, ProgressLog, ProgressSample
from consumer_membership.health.verdict import Circumstances, Health, HealthVerdict, health_of
from consumer_membership.librdkafka import PartitionOffset
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.runtime.application.fetcher import Fetcher
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.line import EndOffsets, EndOffsetsQuestion, Line
from consumer_membership.runtime.membership_thread import MembershipThread
from consumer_membership.types import Instant, TopicPartition

if TYPE_CHECKING:  # few consumers have a processor
    from consumer_membership.health.handlers import HandlerHealth

_log = partial(logging.getLogger, "consumer_membership.session")

#: Returns the state of a processor's handlers at this moment (monotonic clock), in any thread; must not wait.
HandlerSource: TypeAlias = "Callable[[Instant], HandlerHealth]"
HealthWatcher: TypeAlias = Callable[[Health, AssignmentProgress], None]

#: How often it samples, in seconds; a sample takes about 0.3 ms for 100 partitions.
SAMPLE_INTERVAL_S = 2.0


class HealthMonitor:
    """The health of one session. `view` and `subscribed_at` are called in any thread."""

    def __init__(
        self,
        fetcher: Fetcher,
        line: Line,
        member: MembershipThread,
        life: Lifetime,
        view: Callable[[], MembershipView],
        subscribed_at: Callable[[], float | None],
        ledger: ApplicationLedger,
        *,
        stuck_after_s: float,
        max_poll_interval_s: float,
    ) -> None:
        self._fetcher = fetcher
        self._line = line
        self._member = member
        self._life = life
        self._view = view
        self._subscribed_at = subscribed_at
        self._ledger = ledger
        self._stuck_after_s = stuck_after_s
        self._max_poll_interval_s = max_poll_interval_s
        self._log = ProgressLog(stuck_after_s)
        self._polls = 0
        self._polled_at: float | None = None
        self._ends = EndOffsets()
        self._pending: Future[EndOffsets] | None = None
        self._requested_at = float("-inf")
        self._request_interval_s = self._log.late_after_s
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._watcher: HealthWatcher | None = None
        #: Returns the state of the processor's handlers; None: the consumer has no processor.
        self.handlers: HandlerSource | None = None

    # ---- for any thread ----

    def health(self) -> Health:
        """Return the health of the consumer now; never waits. The first call starts the sampling."""
        self.start()
        return self._judge(self._line.now())

    def handlers_now(self) -> HandlerHealth | None:
        """Return the state of the processor's handlers; None: the consumer has no processor."""
        return self.handlers(self._line.now()) if self.handlers is not None else None

    def start(self) -> None:
        """Start sampling, unless it has started or the session is closed."""
        if self._thread is not None or self._life.is_ending or self._life.is_closed:
            return
        with self._starting:
            if self._thread is None:
                name = "membership health"
                self._thread = threading.Thread(
                    target=_sample_until_closed, args=(ref(self), self._stopped), name=name, daemon=True
                )
                self._thread.start()

    def watch(self, watcher: HealthWatcher) -> None:
        """Call this with the result of each sample, on the sampling thread, which is started."""
        self._watcher = watcher
        self.start()

    def stop(self) -> None:
        """Stop sampling; returns at once."""
        self._stopped.set()

    def _judge(self, now: float) -> Health:
        circumstances = Circumstances(
            view=self._view(),
            progress=self._log.latest,
            subscribed_at=self._subscribed_at(),
            is_closed=self._life.is_ending or self._life.is_closed,
            polled_at=self._note_polls(now),
            max_poll_interval_s=self._max_poll_interval_s,
            broker_lost_since=self._fetcher.lost_since,
            handlers=self.handlers(now) if self.handlers is not None else None,
        )
        return health_of(now, circumstances)

    def _note_polls(self, now: float) -> float | None:
        """Return when the application last polled, to within one sampling interval."""
        polls, _ = self._fetcher.buffer.progress()
        if polls != self._polls:
            self._polls, self._polled_at = polls, now
        return self._polled_at

    # ---- on its own thread ----

    def sample(self) -> None:
        """Sample the partitions; request the ends of stalled ones, and write a recording if one is stuck."""
        now = self._line.now()
        polled_at = self._note_polls(now)
        self._ledger.sample(*self._fetcher.buffer.progress(), now)
        # Before the handle is locked, because a processor may lock itself and then call its consumer.
        handlers = self.handlers_now()
        with self._fetcher.lock:
            if self._life.is_closed:
                return
            seen = self._seen(now, handlers)
        self._log.add(seen, polled_at)
        self._request_ends(now)
        health = self._judge(now)
        if self._watcher is not None:
            self._watcher(health, self._log.latest)
        if health.verdict is HealthVerdict.STUCK:
            self._member.dump_automatically("stuck", f"stuck: {_without_records(health)}")

    def _seen(self, now: float, handlers: HandlerHealth | None) -> ProgressSample:
        fetcher = self._fetcher
        assigned = frozenset(fetcher.assigned)
        positions = {partition: at.offset for partition, at in fetcher.positions(assigned).items()}
        ends = {partition: self._end_of(partition) for partition in assigned}
        return ProgressSample(
            at=now,
            assigned=assigned,
            positions=fetcher.starts | positions,
            begun=positions.keys(),
            ends={partition: end for partition, end in ends.items() if end >= 0},
            stable_ends={partition: end for partition, end in self._ends.stable.items() if partition in assigned},
            leaders=self._ends.leaders,
            paused=frozenset(fetcher.paused),
            frozen=frozenset(fetcher.frozen | fetcher.given_up),
            has_broker=fetcher.lost_since is None,
            unfinished=handlers.oldest if handlers is not None else None,
        )

    def _end_of(self, partition: TopicPartition) -> int:
        """Return the higher end offset of librdkafka's latest fetch and the brokers' response; negative: unknown."""
        cached = self._fetcher.handle.get_watermark_offsets(PartitionOffset(*partition), cached=True)
        return max(cached[1], self._ends.high.get(partition, -1))

    def _request_ends(self, now: float) -> None:
        """Take the response to the last request, and send the next one if it is due."""
        if self._pending is not None and self._pending.done():
            self._ends = _answer_of(self._pending)
            self._pending = None
        if (self._log.latest.progressed_at or 0.0) > self._requested_at:
            self._request_interval_s = self._log.late_after_s
        if self._pending is None and now - self._requested_at >= self._request_interval_s:
            suspects = self._log.suspects(now)
            if suspects:
                # An idle consumer requests end offsets less and less often.
                self._request_interval_s = min(
                    2 * self._request_interval_s, max(self._stuck_after_s / 4, self._log.late_after_s)
                )
                question = EndOffsetsQuestion(partitions=suspects)
                self._line.ask(question)
                self._pending, self._requested_at = question.answer, now


def _without_records(health: Health) -> str:
    """Return the cause without the record's key: recordings contain no records."""
    if health.handlers is None or not health.handlers.stuck:
        return health.why
    return f"handlers exceeded handler_timeout: {', '.join(one.place for one in health.handlers.stuck)}"


def _answer_of(answer: Future[EndOffsets]) -> EndOffsets:
    try:
        return answer.result()
    except (MembershipError, CancelledError):
        return EndOffsets()


def _sample_until_closed(monitor_of: Callable[[], HealthMonitor | None], stopped: threading.Event) -> None:
    """Run until the session is closed or its consumer is deleted: the thread keeps no consumer alive."""
    while True:
        monitor = monitor_of()
        if monitor is None:
            return
        try:
            monitor.sample()
        except (KafkaException, RuntimeError) as error:
            _log().debug("The progress of the partitions could not be read: %s", error)
        del monitor
        if stopped.wait(SAMPLE_INTERVAL_S):
            return
