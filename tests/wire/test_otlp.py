"""The encoded metrics, parsed by OpenTelemetry's own parser."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, NumberDataPoint, ScopeMetrics

from consumer_membership.wire.otlp import Point, Temporality, metrics_data

AT = 1_795_000_000.25
SCOPE = ("consumer-membership", "1.0")


def read(
    *points: Point, temporality: Temporality = Temporality.CUMULATIVE, resource: dict[str, str] | None = None
) -> MetricsData:
    """Return what the parser reads, and check that no field is unknown."""
    written = metrics_data(points, at=AT, temporality=temporality, resource=resource or {}, scope=SCOPE)
    data = MetricsData.FromString(written)
    assert data.SerializeToString() == written
    return data


def scope_of(data: MetricsData) -> ScopeMetrics:
    """Return the only scope of the only resource."""
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert (scope.scope.name, scope.scope.version) == SCOPE
    return scope


def attributes(point: NumberDataPoint) -> dict[str, str]:
    """Return the point's attributes."""
    return {one.key: one.value.string_value for one in point.attributes}


def test_metrics_data_has_resource_attributes() -> None:
    """The resource has group, member and rack as text, even without metrics."""
    data = read(resource={"group_id": "g", "group_member_id": "ö" * 200})
    assert scope_of(data).metrics == []
    found = {one.key: one.value.string_value for one in data.resource_metrics[0].resource.attributes}
    assert found == {"group_id": "g", "group_member_id": "ö" * 200}


def test_metrics_data_encodes_gauge_with_time() -> None:
    """A gauge has the time in nanoseconds since 1970; the points of one metric are grouped."""
    by_topic = [Point(name="lag", value=float(n), attributes=(("topic", "t"), ("partition", str(n)))) for n in range(3)]
    other, lag = scope_of(read(Point(name="other", value=-0.5), *by_topic)).metrics
    assert (other.name, other.WhichOneof("data"), other.gauge.data_points[0].as_double) == ("other", "gauge", -0.5)
    assert other.gauge.data_points[0].time_unix_nano == round(AT * 1e9)
    assert other.gauge.data_points[0].start_time_unix_nano == 0
    assert [attributes(point) for point in lag.gauge.data_points] == [
        {"topic": "t", "partition": str(number)} for number in range(3)
    ]


@pytest.mark.parametrize("temporality", Temporality)
def test_metrics_data_encodes_total_as_monotonic_sum(temporality: Temporality) -> None:
    """A total has its start time, and its temporality: since the previous push or since the beginning."""
    (total,) = scope_of(
        read(Point(name="total", value=7.0, is_total=True, since=AT - 60), temporality=temporality)
    ).metrics
    assert (total.WhichOneof("data"), total.sum.is_monotonic) == ("sum", True)
    assert total.sum.aggregation_temporality == temporality.value
    (point,) = total.sum.data_points
    assert (point.as_double, point.start_time_unix_nano) == (7.0, round((AT - 60) * 1e9))


@given(
    value=st.floats(allow_nan=True),
    name=st.text(min_size=1, max_size=300),
    is_total=st.booleans(),
    pairs=st.dictionaries(st.text(min_size=1, max_size=200), st.text(max_size=200), max_size=4),
)
def test_metrics_data_round_trips_any_text_and_number(
    value: float, name: str, *, is_total: bool, pairs: dict[str, str]
) -> None:
    """Values survive encoding, whatever their length."""
    (metric,) = scope_of(
        read(Point(name=name, value=value, is_total=is_total, since=1.0, attributes=tuple(pairs.items())))
    ).metrics
    (point,) = (metric.sum if is_total else metric.gauge).data_points
    assert metric.name == name
    assert point.as_double == value or (math.isnan(point.as_double) and math.isnan(value))
    assert attributes(point) == pairs
