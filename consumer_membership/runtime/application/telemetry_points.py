"""A consumer's metrics as brokers collect them (KIP-714): under Java's names, each with its value, known values only.

Metrics of the Java client that this client does not have are omitted, and so are counts of zero: a broker shows a zero
as a zero.
"""

from __future__ import annotations

from math import isfinite

from consumer_membership.metrics.catalog import java_metrics
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.wire.otlp import Point

#: How the names of counters end in Java.
_TOTAL = "-total"


def points_of(metrics: Metrics) -> tuple[Point, ...]:
    """Return all of Java's metrics that have a value, with KIP-714's names."""
    return tuple(
        Point(name=java.of_telemetry, value=value, is_total=java.name.endswith(_TOTAL), attributes=java.tags)
        for java, value in java_metrics(metrics).items()
        if isfinite(value)
    )
