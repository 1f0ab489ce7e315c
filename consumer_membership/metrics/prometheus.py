"""A collector for prometheus-client's registry (the extra `metrics`); `exposition` has the same text without it.

Each scrape takes a snapshot of each consumer, and nothing is kept between scrapes: partitions that are no longer
assigned, and consumers that are closed or garbage-collected, have no series. Prometheus then marks these series as
stale immediately.

In prometheus-client's multiprocess mode, values come from files of its own metric objects and collectors are not
called, so these metrics are missing. Each process then needs its own endpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from weakref import ref

from consumer_membership.errors import MembershipError
from consumer_membership.installation import install_command
from consumer_membership.metrics.catalog import (
    CATALOG,
    CONSUMER_LABELS,
    Metric,
    MetricKind,
    Reading,
    consumer_labels,
)
from consumer_membership.metrics.distribution import BOUNDS_S, Distribution
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES, HasMetrics, MetricsSources

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector
except ImportError as missing:  # pragma: no cover - of an installation without the extra
    raise ImportError(
        f"consumer_membership.metrics.prometheus needs prometheus-client: {install_command('metrics')}"
    ) from missing


class ConsumerCollector(Collector):
    """Collect the metrics of the given consumers, or of all consumers of this process, for a registry.

    Consumers are not kept alive, and closed ones are skipped.
    """

    def __init__(self, *consumers: HasMetrics, sources: MetricsSources = THIS_PROCESS_SOURCES) -> None:
        self._consumers = tuple(ref(consumer) for consumer in consumers)
        self._sources = sources

    def describe(self) -> Iterable[Family]:
        """Return the names without a snapshot, so that a registry detects a duplicate collector."""
        return [_family(row) for row in CATALOG]

    def collect(self) -> Iterator[Family]:
        """Yield all current series."""
        snapshots = list(self._snapshots())
        for row in CATALOG:
            family = _family(row)
            for metrics in snapshots:
                for values, reading in row.read(metrics).items():
                    _add(family, [*consumer_labels(metrics), *values], reading)
            yield family

    def _snapshots(self) -> Iterator[Metrics]:
        if not self._consumers:
            for source in self._sources.all():
                yield source.metrics()
            return
        for consumer_of in self._consumers:
            consumer = consumer_of()
            if consumer is None:
                continue
            try:
                metrics = consumer.metrics()
            except (MembershipError, RuntimeError):  # in a child of a fork, or never initialized
                continue
            if self._sources.at(metrics.number) is not None and not metrics.is_closed:
                yield metrics


def _family(row: Metric) -> Family:
    labels = [*CONSUMER_LABELS, *row.labels]
    match row.kind:
        case MetricKind.COUNTER:
            return CounterMetricFamily(row.prometheus.removesuffix("_total"), row.help, labels=labels)
        case MetricKind.GAUGE:
            return GaugeMetricFamily(row.prometheus, row.help, labels=labels)
        case MetricKind.HISTOGRAM:
            return HistogramMetricFamily(row.prometheus, row.help, labels=labels)


def _add(family: Family, labels: list[str], reading: Reading) -> None:
    if isinstance(reading, Distribution) and isinstance(family, HistogramMetricFamily):
        bounds = (*(repr(bound) for bound in BOUNDS_S), "+Inf")
        buckets = list(zip(bounds, map(float, accumulate(reading.buckets)), strict=True))
        family.add_metric(labels, buckets, reading.sum_s)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily) and not isinstance(reading, Distribution):
        family.add_metric(labels, reading)
