"""Metrics for OpenTelemetry through its API (the extra `metrics`): `instrument(consumer)`.

Numbers are observed from a snapshot when the SDK collects; durations are recorded when they are counted. Partitions
that are no longer assigned, and consumers that are closed or garbage-collected, are no longer observed.

The semantic conventions for messaging are in development, and OpenTelemetry leaves the choice to the operator:
`OTEL_SEMCONV_STABILITY_OPT_IN` can contain `messaging` (the current names) or `messaging/dup` (also those of 1.24);
without either, the names of 1.24 are used. This package's own metrics are `kafka.consumer.*` with any choice.
`messaging.process.duration` exists only for processors (`consumer_membership.processing`): other applications process
their records themselves, where this package cannot measure it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from weakref import WeakKeyDictionary, ref

from consumer_membership.installation import install_command
from consumer_membership.metrics.catalog import (
    CATALOG,
    CONSUMER_LABELS,
    Metric,
    MetricKind,
    consumer_labels,
)
from consumer_membership.metrics.distribution import BOUNDS_S, Distribution, DurationListener
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES, HasMetrics, MetricsSource, MetricsSources
from consumer_membership.version import __version__

try:
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation, get_meter_provider
except ImportError as missing:  # pragma: no cover - of an installation without the extra
    raise ImportError(
        f"consumer_membership.metrics.opentelemetry needs opentelemetry-api: {install_command('metrics')}"
    ) from missing

_LOG = logging.getLogger("consumer_membership.metrics")

OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
#: The attribute names of the conventions for the labels of every series and of a partition.
_ATTRIBUTES: Mapping[str, str] = {
    "group": "messaging.consumer.group.name",
    "client_id": "messaging.client.id",
    "consumer": "kafka.consumer.number",
    "topic": "messaging.destination.name",
    "partition": "messaging.destination.partition.id",
    "error": "error.type",
}
#: The bucket bounds that the conventions require for messaging.client.operation.duration.
_CONVENTION_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
#: The conventions' types of operations.
_OPERATION_TYPES: Mapping[str, str] = {"poll": "receive", "commit": "settle", "process": "process"}
#: The values of each label of a histogram.
_VALUES: Mapping[str, tuple[str, ...]] = {
    "side": ("given_up", "taken", "kept"),
    "callback": ("assigned", "revoked", "lost"),
}


def instrument(
    consumer: HasMetrics, meter_provider: MeterProvider | None = None, *, sources: MetricsSources = THIS_PROCESS_SOURCES
) -> None:
    """Export this consumer's metrics with the given or the global meter provider. Idempotent.

    Numbers cover the consumer's life; histograms begin now. The consumer is not kept alive.
    """
    source = sources.at(consumer.metrics().number)
    if source is None:
        return  # the consumer is closed
    provider = meter_provider or get_meter_provider()
    instruments = _INSTRUMENTS.get(provider)
    if instruments is None:
        instruments = _INSTRUMENTS[provider] = _Instruments(provider.get_meter("consumer_membership", __version__))
    instruments.add(source)


class _Instruments:
    """The instruments of one provider for all consumers.

    The SDK accepts callbacks only with the first instrument of a name.
    """

    def __init__(self, meter: Meter) -> None:
        self._sources: list[ref[MetricsSource]] = []
        #: The histogram that records the durations of a row under one of its names.
        self._histograms: list[tuple[Metric, str, Histogram]] = []
        for row in CATALOG:
            for name in (row.opentelemetry, *_conventions(row)):
                if row.kind is MetricKind.HISTOGRAM:
                    bounds = _CONVENTION_BOUNDS_S if name.startswith("messaging.") else BOUNDS_S
                    histogram = meter.create_histogram(
                        name, unit="s", description=row.help, explicit_bucket_boundaries_advisory=bounds
                    )
                    self._histograms.append((row, name, histogram))
                else:
                    self._observe(meter, row, name)

    def add(self, source: MetricsSource) -> None:
        """Also observe this consumer and record its durations."""
        self._sources = [one for one in self._sources if one() is not None]
        if any(one() is source for one in self._sources):
            return
        self._sources.append(ref(source))
        common = _common(source.metrics())
        for row, name, histogram in self._histograms:
            for values in [(value,) for value in _VALUES[row.labels[0]]] if row.labels else [()]:
                attributes = {**common, **_operation(row, name), **_attributes(row, values)}
                durations = source.durations(row.prometheus, values)
                if durations is not None:
                    durations.listen(_recorder(histogram.record, attributes))

    def _observe(self, meter: Meter, row: Metric, name: str) -> None:
        """Create an instrument whose values come from snapshots whenever the SDK collects."""
        more = _operation(row, name)

        def observations(_: CallbackOptions) -> Iterator[Observation]:
            for metrics in self._snapshots():
                common = {**_common(metrics), **more}
                for values, reading in row.read(metrics).items():
                    if not isinstance(reading, Distribution):
                        yield Observation(reading, {**common, **_attributes(row, values)})

        is_counter = row.kind is MetricKind.COUNTER
        create = meter.create_observable_counter if is_counter else meter.create_observable_gauge
        unit = "{message}" if name.startswith("messaging.") else row.unit
        create(name, callbacks=[observations], unit=unit, description=row.help)

    def _snapshots(self) -> Iterator[Metrics]:
        for source_of in self._sources:
            source = source_of()
            if source is not None and source.is_open:
                yield source.metrics()


#: One per process, as providers are; another call with the same provider adds to its instruments.
_INSTRUMENTS: WeakKeyDictionary[MeterProvider, _Instruments] = WeakKeyDictionary()


def _common(metrics: Metrics) -> dict[str, str]:
    values = dict(zip(CONSUMER_LABELS, consumer_labels(metrics), strict=True))
    return {"messaging.system": "kafka", **{_ATTRIBUTES[label]: value for label, value in values.items()}}


def _conventions(row: Metric) -> tuple[str, ...]:
    """Return the names by the conventions that the operator chose."""
    if row.convention is None:
        return ()
    chosen = {word.strip() for word in os.environ.get(OPT_IN, "").split(",")}
    if "messaging/dup" in chosen:
        names: tuple[str, ...] = (row.convention.name, row.convention.former)
    elif "messaging" in chosen:
        names = (row.convention.name,)
    else:
        names = (row.convention.former,)
    return tuple(name for name in names if name)


def _operation(row: Metric, name: str) -> dict[str, str]:
    """Return the attributes with which the conventions describe the operation."""
    if row.convention is None or name != row.convention.name:
        return {}
    operation = row.convention.operation
    return {"messaging.operation.name": operation, "messaging.operation.type": _OPERATION_TYPES[operation]}


def _attributes(row: Metric, values: tuple[str, ...]) -> dict[str, str]:
    return {
        _ATTRIBUTES.get(label, f"kafka.consumer.{label}"): value
        for label, value in zip(row.labels, values, strict=True)
        if value
    }


def _recorder(record: Callable[..., None], attributes: Mapping[str, str]) -> DurationListener:
    def recorded(seconds: float) -> None:
        try:
            record(seconds, attributes)
        except Exception:  # noqa: BLE001 - a provider's error must not end a member
            _LOG.debug("A duration could not be recorded", exc_info=True)

    return recorded
