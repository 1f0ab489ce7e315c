"""A consumer's metrics as brokers want them (KIP-714): under Java's names, each with its value, what is known alone.

What Java's client has and this one does not know is left out, and so is what there has been none of: a broker shows a
zero as a zero.
"""

from __future__ import annotations

from math import isfinite

from consumer_membership.metrics.catalogue import java_metrics
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.wire.otlp import Point

#: How the names end of what only grows, in Java.
_TOTAL = "-total"


def points_of(metrics: Metrics) -> tuple[Point, ...]:
    """All of Java's metrics that have a value, with KIP-714's names."""
    return tuple(
        Point(name=java.of_telemetry, value=value, is_total=java.name.endswith(_TOTAL), attributes=java.tags)
        for java, value in java_metrics(metrics).items()
        if isfinite(value)
    )
