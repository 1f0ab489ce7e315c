"""Observes one consumer: health, metrics, statistics, lifecycle events, probes and recordings.

A session knows only the interface `session_observer.SessionObserver`. The client creates the observer, gives it to the
session and then calls `observe`, from which on the observer reads the session's parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from consumer_membership.config import ConsumerConfig
from consumer_membership.health.verdict import Health
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.runtime.application.health_monitor import HandlerSource, HealthMonitor
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.metrics_meter import MetricsMeter
from consumer_membership.runtime.application.session import Session
from consumer_membership.runtime.application.session_observer import attend_probes, dump_on_signal
from consumer_membership.runtime.application.statistics import Progress, rewritten

if TYPE_CHECKING:  # it imports more than a consumer needs
    from os import PathLike
    from pathlib import Path

    from consumer_membership.health.handlers import HandlerFact
    from consumer_membership.metrics.handler_ledger import HandlerLedger
    from consumer_membership.runtime.application.lifecycle_events import EventQueue, LifecycleEvents
    from consumer_membership.runtime.probes.thread import ProbeThread
    from consumer_membership.wire.otlp import Point


class ConsumerObserver:
    """The observer of one consumer (`session_observer.SessionObserver`); `stats_cb` is the user's callback.

    Probes also read it (`probes.thread.Watched`), and the signal handler calls it to write a recording.
    """

    def __init__(self, config: ConsumerConfig, stats_cb: Callable[[str], object] | None) -> None:
        self.client_id = config.client_id
        self._config = config
        self._stats_cb = stats_cb
        recorder = config.recorder_settings()
        self._records_stalls = recorder.is_on and recorder.directory is not None
        self._read_committed = config.start_settings().read_committed
        #: The events that wait for callbacks; made with the first callback.
        self._events: EventQueue | None = None
        self._lifecycle_events: Callable[[], LifecycleEvents | None] = lambda: None
        self._making_events = threading.RLock()
        #: The process's probe thread, if this consumer's settings want one.
        self._probes: ProbeThread | None = None
        self._session: Session
        self.life: Lifetime
        self._health: HealthMonitor
        self._meter: MetricsMeter

    def observe(self, session: Session) -> None:
        """Observe this session until it is closed or dropped.

        Raises:
            ConfigurationError: the probes' address or file cannot be used.
        """
        config = self._config
        self._session, self.life = session, session.life
        self._health = HealthMonitor(
            session.fetcher,
            session.line,
            session.thread,
            session.life,
            lambda: session.view,
            lambda: session.subscriptions.subscribed_at,
            session.ledger,
            stuck_after_s=config.health_stuck_after_ms / 1000,
            max_poll_interval_s=config.member_settings().max_poll_interval_s,
        )
        self._meter = MetricsMeter(
            session.thread,
            session.life,
            lambda: session.buffer.progress()[1],
            session.membership_ledger,
            session.ledger,
            client_id=config.client_id,
            view=lambda: session.view,
            health=self._health.health,
        )
        dump_on_signal(config, self, session.log)
        self._probes = attend_probes(config, self, session.log)
        if self._probes is not None:
            # Otherwise an application that stops polling would be noticed only after the first probe.
            self._health.start()

    # ---- from the session ----

    def on_subscribed(self) -> None:
        """Watch for stalls from now on, if they are to be recorded."""
        if self._records_stalls:
            self._health.start()

    def on_statistics(self, text: str) -> None:
        """Count librdkafka's statistics, and call `stats_cb` with them and the member's own figures."""
        self._meter.note_statistics(text)
        if self._stats_cb is not None:
            session = self._session
            self._stats_cb(
                rewritten(
                    text,
                    session.line.view,
                    session.thread.figures(),
                    self._progress(),
                    read_committed=self._read_committed,
                    now=session.line.now,
                )
            )

    def measure(self) -> tuple[Point, ...]:
        """Return the metrics that brokers collect (KIP-714); never waits."""
        from consumer_membership.runtime.application.telemetry_points import points_of  # few brokers request metrics

        return points_of(self._meter.metrics())

    def on_closing(self) -> None:
        """Stop sampling and counting: the session refuses every call from now on."""
        self._health.stop()
        self._meter.stop()

    def on_closed(self) -> None:
        """Remove the consumer from the probes, and emit the last event."""
        if self._probes is not None and self.is_over:
            self._probes.leave(self)
        if self._events is not None:
            self._events.close(self._health.handlers_now())

    def on_dropped(self) -> None:
        """Stop without a last event: the consumer was deleted without a close."""
        self._health.stop()
        if self._events is not None:
            self._events.end()
        self._meter.stop()
        if self._probes is not None:
            self._probes.ring()

    # ---- from the client, in any thread ----

    def health(self) -> Health:
        """Whether the consumer consumes, and if not, why; never waits."""
        self.life.check_process()
        return self._health.health()

    def metrics(self) -> Metrics:
        """The consumer's counts and durations; never waits."""
        self.life.check_process()
        return self._meter.metrics()

    def lifecycle_events(self) -> LifecycleEvents:
        """The callbacks for lifecycle events, created by the first call; the caller has to keep them."""
        self.life.check()
        with self._making_events:
            made = self._lifecycle_events()
            if made is None:
                from consumer_membership.runtime.application.lifecycle_events import LifecycleEvents

                made = LifecycleEvents()
                self._lifecycle_events, self._events = ref(made), made.queue
                made.queue.begin(self._session.thread, self._health)
        if self.life.is_closed:  # another thread closed the consumer meanwhile
            made.queue.close()
        return made

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write a recording of the member and return the path of the file."""
        self.life.check_process()
        return self._session.thread.dump(cause, path)

    # ---- from a processor, in any thread ----

    def watch_handlers(self, source: HandlerSource, ledger: HandlerLedger) -> None:
        """Include the processor's handlers in health, probes and metrics; call this before records are handled.

        The member's thread holds `source` and `ledger`: they must not refer to the consumer, which would then live
        until `close`.
        """
        self._health.handlers = source
        self._meter.handlers = ledger

    def on_handlers(self, fact: HandlerFact) -> None:
        """Report a fact about handlers to callbacks of `on_event` and to recordings; never waits."""
        self._session.thread.note_handlers(fact)
        if self._events is not None:
            self._events.on_handlers(fact)

    # ---- from probes ----

    @property
    def is_over(self) -> bool:
        """Whether probes no longer report the consumer: it was closed, and its processor did not fail."""
        return self.life.is_closed and not self.has_failed

    @property
    def has_failed(self) -> bool:
        """Whether the consumer was closed and its processor failed."""
        if not self.life.is_closed:
            return False
        handlers = self._health.handlers_now()
        return handlers is not None and handlers.failure is not None

    @property
    def view(self) -> MembershipView:
        """The member's latest view."""
        return self._session.view

    # ---- inside ----

    def _progress(self) -> Progress:
        session = self._session
        with session.fetcher.lock:
            if self.life.is_closed:
                return Progress()
            assigned = session.fetcher.assigned
            return Progress(
                assigned=len(assigned),
                positions=session.fetcher.positions(assigned),
                stored=session.commits.book.stored(),
                waiting=session.buffer.waiting(),
                requested_at=session.fetcher.requested_at.copy(),
                rebalances=session.steps.rebalances,
                rebalanced_at=session.steps.rebalanced_at,
            )
