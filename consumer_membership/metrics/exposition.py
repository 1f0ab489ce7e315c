"""All consumers of this process in Prometheus' text format without prometheus-client: the body of `/metrics`.

The format has one line for each series after two lines of description (version 0.0.4 of
https://prometheus.io/docs/instrumenting/exposition_formats). prometheus-client would also import an HTTP server and
client, e-mail and compression, more than everything else that a probe needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from consumer_membership.metrics.catalog import CATALOG, CONSUMER_LABELS, Metric, Reading, consumer_labels
from consumer_membership.metrics.distribution import BOUNDS_S, Distribution
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES, MetricsSources

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_OF_LABELS = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_OF_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
#: Go's notation for the numbers that Python writes in another way.
_NUMBERS = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_BUCKETS = (*(f',le="{bound!r}"' for bound in BOUNDS_S), ',le="+Inf"')


def exposition(sources: MetricsSources = THIS_PROCESS_SOURCES) -> tuple[bytes, str]:
    """Return the metrics of all consumers of this process in Prometheus' text format, and their Content-Type."""
    consumers = [
        (_labels(CONSUMER_LABELS, consumer_labels(metrics)), metrics)
        for metrics in (source.metrics() for source in sources.all())
    ]
    return "".join(line for row in CATALOG for line in _family(row, consumers)).encode(), CONTENT_TYPE


def _family(row: Metric, consumers: Iterable[tuple[str, Metrics]]) -> Iterator[str]:
    """Yield one metric of all consumers, because the lines of a family must be adjacent."""
    yield f"# HELP {row.prometheus} {row.help.translate(_OF_HELP)}\n# TYPE {row.prometheus} {row.kind.value}\n"
    for whose, metrics in consumers:
        for values, reading in row.read(metrics).items():
            labels = f"{whose},{_labels(row.labels, values)}" if values else whose
            yield from _series(row.prometheus, labels, reading)


def _series(name: str, labels: str, reading: Reading) -> Iterator[str]:
    if not isinstance(reading, Distribution):
        yield f"{name}{{{labels}}} {_number(reading)}\n"
        return
    for bucket, count in zip(_BUCKETS, accumulate(reading.buckets), strict=True):
        yield f"{name}_bucket{{{labels}{bucket}}} {count}\n"
    yield f"{name}_count{{{labels}}} {reading.count}\n{name}_sum{{{labels}}} {_number(reading.sum_s)}\n"


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    return ",".join(f'{name}="{value.translate(_OF_LABELS)}"' for name, value in zip(names, values, strict=True))


def _number(value: float) -> str:
    written = repr(float(value))
    return _NUMBERS.get(written, written)
