"""Observes one member that fetches nothing: health, metrics, probes and recordings.

There are no positions to sample, so there is no sampling thread: each verdict is derived from the member's view and its
last poll at the time of the call. A process with thousands of members therefore pays only for the calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from consumer_membership.config import ConsumerConfig
from consumer_membership.health.progress import AssignmentProgress
from consumer_membership.health.verdict import Circumstances, Health, health_of
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.member_session import MemberSession
from consumer_membership.runtime.application.metrics_meter import MetricsMeter
from consumer_membership.runtime.application.session_observer import attend_probes, dump_on_signal

if TYPE_CHECKING:  # it imports more than a member needs
    from os import PathLike
    from pathlib import Path

    from consumer_membership.runtime.probes.thread import ProbeThread
    from consumer_membership.wire.otlp import Point

#: The progress of partitions that have no records.
_NO_PROGRESS = AssignmentProgress()


class MemberObserver:
    """The observer of one `GroupMember` (`session_observer.MemberSessionObserver`).

    Probes also read it (`probes.thread.Watched`), and the signal handler calls it to write a recording.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.client_id = config.client_id
        self._config = config
        self._max_poll_interval_s = config.member_settings().max_poll_interval_s
        #: The process's probe thread, if this member's settings want one.
        self._probes: ProbeThread | None = None
        self._session: MemberSession
        self.life: Lifetime
        self._meter: MetricsMeter

    def observe(self, session: MemberSession) -> None:
        """Observe this session until it is closed or dropped.

        Raises:
            ConfigurationError: the probes' address or file cannot be used.
        """
        self._session, self.life = session, session.life
        self._meter = MetricsMeter(
            session.thread,
            session.life,
            lambda: 0,
            session.membership_ledger,
            session.ledger,
            client_id=self.client_id,
            view=lambda: session.view,
            health=self._health,
        )
        dump_on_signal(self._config, self, session.log)
        self._probes = attend_probes(self._config, self, session.log)

    # ---- from the session ----

    def measure(self) -> tuple[Point, ...]:
        """Return the metrics that brokers collect (KIP-714); never waits."""
        from consumer_membership.runtime.application.telemetry_points import points_of  # few brokers request metrics

        return points_of(self._meter.metrics())

    def on_closing(self) -> None:
        """Stop counting: the session refuses every call from now on."""
        self._meter.stop()

    def on_closed(self) -> None:
        """Remove the member from the probes."""
        if self._probes is not None:
            self._probes.leave(self)

    def on_dropped(self) -> None:
        """Stop counting: the member was deleted without a close."""
        self._meter.stop()
        if self._probes is not None:
            self._probes.ring()

    # ---- from the client, in any thread ----

    def health(self) -> Health:
        """Whether the member has its share of the work, and if not, why; never waits."""
        self.life.check_process()
        return self._health()

    def metrics(self) -> Metrics:
        """The member's counts and durations; never waits."""
        self.life.check_process()
        return self._meter.metrics()

    def dump(self, cause: str, path: str | PathLike[str] | None = None) -> Path:
        """Write a recording of the member and return the path of the file."""
        self.life.check_process()
        return self._session.thread.dump(cause, path)

    # ---- from probes ----

    @property
    def is_over(self) -> bool:
        """Whether probes no longer report the member: it was closed."""
        return self.life.is_closed

    @property
    def has_failed(self) -> bool:
        """A member has no processor that could fail."""
        return False

    @property
    def view(self) -> MembershipView:
        """The member's latest view."""
        return self._session.view

    # ---- inside ----

    def _health(self) -> Health:
        session = self._session
        circumstances = Circumstances(
            view=session.view,
            progress=_NO_PROGRESS,
            subscribed_at=session.subscribed_at,
            is_closed=self.life.is_ending or self.life.is_closed,
            polled_at=session.polled_at,
            max_poll_interval_s=self._max_poll_interval_s,
            fetches=False,
        )
        return health_of(session.line.now(), circumstances)
