"""One consumer's metrics: the counters of both sides of the line and its health, at the time of the call.

A snapshot is made in the calling thread and never waits. `health_monitor` samples the partitions; the first snapshot
starts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from types import MappingProxyType
from typing import TYPE_CHECKING

from consumer_membership.health.verdict import Health
from consumer_membership.membership.view import MembershipView
from consumer_membership.metrics.application_ledger import ApplicationLedger, CallbackKind
from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.membership_ledger import MembershipLedger, Standstill
from consumer_membership.metrics.snapshot import FetchedCounts, Metrics
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES, MetricsSources
from consumer_membership.runtime.application.lifetime import Lifetime
from consumer_membership.runtime.application.statistics import fetched
from consumer_membership.runtime.membership_thread import MembershipThread
from consumer_membership.types import TopicPartition

if TYPE_CHECKING:  # few consumers have a processor
    from consumer_membership.metrics.handler_ledger import HandlerLedger


class MetricsMeter:
    """The metrics of one session. `records`, `view` and `health` are called in any thread."""

    def __init__(
        self,
        thread: MembershipThread,
        life: Lifetime,
        records: Callable[[], int],
        membership: MembershipLedger,
        application: ApplicationLedger,
        *,
        client_id: str,
        view: Callable[[], MembershipView],
        health: Callable[[], Health],
        sources: MetricsSources = THIS_PROCESS_SOURCES,
    ) -> None:
        self._thread = thread
        self._life = life
        self._records = records
        self._membership = membership
        self._application = application
        self._client_id = client_id
        self._view = view
        self._health = health
        self._sources = sources
        #: The fetched records and bytes in librdkafka's latest statistics; replaced as a whole.
        self._fetched: Mapping[TopicPartition, FetchedCounts] = {}
        #: The counts of the consumer's processor; None: it has none.
        self.handlers: HandlerLedger | None = None
        self._number = sources.add(self)

    @property
    def is_open(self) -> bool:
        """Whether the consumer is open and belongs to this process."""
        return self._life.is_ours and not self._life.is_closed

    def metrics(self) -> Metrics:
        """Return the counts as they are now; never waits."""
        now, health = monotonic(), self._health()
        figures = self._thread.figures()
        known = figures.committed
        committed = {p: one.offset.offset for p in health.partitions if (one := known.get(p)) and one.offset}
        return Metrics(
            at=now,
            number=self._number,
            client_id=self._client_id,
            view=self._view(),
            health=health,
            membership=self._membership.counts(now),
            application=self._application.counts(now, self._records()),
            committed=MappingProxyType(committed),
            fetched=MappingProxyType({p: counts for p in health.partitions if (counts := self._fetched.get(p))}),
            throttles=sum(one.counts.throttles for one in figures.traffic),
            throttled_s=sum(one.counts.throttled_s for one in figures.traffic),
            handlers=self.handlers.counts(now) if self.handlers is not None else None,
        )

    def note_statistics(self, text: str) -> None:
        """Process librdkafka's statistics."""
        self._fetched = fetched(text)

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations | None:
        """Return the counter of the durations of a metric of the catalog, for a listener."""
        membership, application, handlers = self._membership, self._application, self.handlers
        match name:
            case "kafka_consumer_partition_standstill_seconds":
                return membership.standstill[Standstill(*labels)]
            case "kafka_consumer_callback_duration_seconds":
                return application.callbacks[CallbackKind(*labels)]
            case "kafka_consumer_handler_duration_seconds":
                return handlers.handler_time if handlers is not None else None
            case "kafka_consumer_handler_queue_duration_seconds":
                return handlers.queue_time if handlers is not None else None
            case _:
                return {
                    "kafka_consumer_rebalance_duration_seconds": membership.rebalance,
                    "kafka_consumer_heartbeat_duration_seconds": membership.heartbeat,
                    "kafka_consumer_join_duration_seconds": membership.join,
                    "kafka_consumer_sync_duration_seconds": membership.sync,
                    "kafka_consumer_commit_duration_seconds": membership.commit,
                    "kafka_consumer_poll_interval_seconds": application.poll_interval,
                    "kafka_consumer_poll_duration_seconds": application.poll,
                }[name]

    def stop(self) -> None:
        """End the consumer's metric series: it is closed."""
        self._sources.remove(self._number)
