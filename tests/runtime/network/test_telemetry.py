"""Metrics that are pushed to a scripted broker: content, time and encoding, and the behavior after failures."""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.push_telemetry.v0.response import PushTelemetryResponse
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from consumer_membership.runtime.network.cluster import Cluster
from consumer_membership.runtime.network.telemetry import Telemetry, Totals, compressors
from consumer_membership.translation.telemetry import Compression
from consumer_membership.wire.otlp import Point
from tests.runtime.clients import with_client
from tests.runtime.receivers import ME, OFFERED, PUSH, SUBSCRIPTIONS, Receiver
from tests.support.scripted_broker import DISCONNECT, DROP, ScriptedBroker
from tests.support.waiting import PATIENCE_S

POINTS = (
    Point(name="org.apache.kafka.consumer.assigned", value=3.0),
    Point(name="org.apache.kafka.consumer.rebalance.total", value=5.0, is_total=True),
    Point(name="org.apache.kafka.consumer.lag", value=9.0, attributes=(("topic", "t"), ("partition", "0"))),
)
WHO = {"group_id": "g", "group_member_id": "m"}


def pushes(
    receiver: Receiver,
    count: int,
    measure: Callable[[], tuple[Point, ...]] = lambda: POINTS,
    versions: dict[int, tuple[int, int]] | None = None,
) -> list[Any]:
    """Return the pushes of a client until there are this many, and its last push."""
    with ScriptedBroker(receiver, versions=versions or OFFERED) as broker:

        async def act(client: Cluster) -> None:
            telemetry = Telemetry(client, measure, lambda: WHO)
            running = asyncio.get_running_loop().create_task(telemetry.run())
            await asyncio.to_thread(broker.wait_for, PUSH, count, PATIENCE_S)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await telemetry.end()

        with_client(broker.servers, act)
    return receiver.pushes


def metrics_in(data: bytes) -> dict[str, Metric]:
    """Return the pushed metrics by their names."""
    (resource,) = MetricsData.FromString(data).resource_metrics
    assert {one.key: one.value.string_value for one in resource.resource.attributes} == WHO
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "consumer-membership"
    return {metric.name: metric for metric in scope.metrics}


def test_telemetry_pushes_at_each_interval_and_once_at_the_end() -> None:
    """Each push has the broker's client instance id and subscription, and the last push is marked as terminating."""
    *others, last = pushes(Receiver(), 3)
    assert len(others) >= 3
    assert {(one.client_instance_id, one.subscription_id) for one in (*others, last)} == {(ME, 42)}
    assert [one.terminating for one in others] == [False] * len(others)
    assert last.terminating
    found = metrics_in(last.metrics)
    assert found.keys() == {point.name for point in POINTS}
    assert found["org.apache.kafka.consumer.rebalance.total"].sum.data_points[0].as_double == 5.0


def test_telemetry_pushes_only_requested_metrics() -> None:
    """The broker requests metrics by the prefixes of their names."""
    first, *_ = pushes(Receiver(requested_metrics=("org.apache.kafka.consumer.r", "org.apache.kafka.consumer.a")), 1)
    assert metrics_in(first.metrics).keys() == {point.name for point in POINTS[:2]}


def test_telemetry_counts_deltas_from_the_last_accepted_push() -> None:
    """The next push includes the values of a refused push."""
    totals = iter(range(10, 10_000, 10))
    receiver = Receiver(delta_temporality=True)
    refused = PushTelemetryResponse(throttle_time=timedelta(0), error_code=ErrorCode.unknown_subscription_id)
    taken = PushTelemetryResponse(throttle_time=timedelta(0), error_code=ErrorCode.none)
    receiver.answers = [taken, refused]
    found = pushes(receiver, 3, lambda: (Point(name="total", value=float(next(totals)), is_total=True),))
    points = [metrics_in(one.metrics)["total"].sum.data_points[0] for one in found[:3]]
    assert [point.as_double for point in points] == [10.0, 10.0, 20.0]
    assert points[1].start_time_unix_nano == points[2].start_time_unix_nano == points[0].time_unix_nano


def test_telemetry_compresses_with_a_type_that_the_broker_accepts() -> None:
    """The client supports gzip, which is part of every Python."""
    first, *_ = pushes(Receiver(accepted_compression_types=(3, 1)), 1)
    assert first.compression_type == Compression.GZIP.value
    assert metrics_in(gzip.decompress(first.metrics)).keys() == {point.name for point in POINTS}
    assert Compression.GZIP in compressors()


@pytest.mark.parametrize("module", ["compression.zstd", "zstandard"])
def test_compressors_include_zstd_if_it_is_installed(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zstd module is part of Python since 3.14; before, a package provides it."""
    for name in ("compression", "compression.zstd", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    assert compressors().keys() == {Compression.GZIP}
    monkeypatch.setitem(sys.modules, "compression", SimpleNamespace(__path__=[]))
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(compress=bytes.upper))
    assert compressors()[Compression.ZSTD](b"a") == b"A"


def test_telemetry_omits_partition_metrics_beyond_the_size_limit(caplog: pytest.LogCaptureFixture) -> None:
    """The log has one warning about it."""
    first, second, *_ = pushes(Receiver(telemetry_max_bytes=300), 2)
    assert metrics_in(first.metrics).keys() == metrics_in(second.metrics).keys() == {p.name for p in POINTS[:2]}
    assert caplog.text.count("those of partitions are omitted") == 1


def test_telemetry_pushes_again_after_a_push_without_a_response() -> None:
    """The next push uses another connection at the end of the interval."""
    receiver = Receiver()
    receiver.answers = [DISCONNECT]
    assert len(pushes(receiver, 3)) >= 3


def test_telemetry_end_waits_for_a_silent_broker_only_for_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last push waits at most `LAST_PUSH_S` for a broker that does not respond."""
    monkeypatch.setattr("consumer_membership.runtime.network.telemetry.LAST_PUSH_S", 0.01)
    receiver = Receiver()
    receiver.answers = [DROP, DROP]
    assert len(pushes(receiver, 1)) == 2


def test_telemetry_ends_quietly_on_a_broker_that_does_not_support_it() -> None:
    """The client logs nothing and does not try again."""
    with ScriptedBroker(Receiver()) as broker:

        async def act(client: Cluster) -> None:
            telemetry = Telemetry(client, lambda: POINTS, lambda: WHO)
            await asyncio.wait_for(telemetry.run(), PATIENCE_S)
            await telemetry.end()

        with_client(broker.servers, act)
        assert broker.requests(SUBSCRIPTIONS) == broker.requests(PUSH) == []


def test_telemetry_logs_a_final_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names the error code."""
    with ScriptedBroker(Receiver(error_code=ErrorCode.invalid_request), versions=OFFERED) as broker:

        async def act(client: Cluster) -> None:
            await asyncio.wait_for(Telemetry(client, lambda: POINTS, lambda: WHO).run(), PATIENCE_S)

        with_client(broker.servers, act)
    assert "Client metrics are no longer pushed: the broker responded with INVALID_REQUEST" in caplog.text


def test_totals_count_from_the_beginning_or_from_the_last_push() -> None:
    """Gauges do not change."""
    totals = Totals(100.0)
    (gauge, total), both = (POINTS[0], POINTS[1]), POINTS[:2]
    assert totals.since(both, is_delta=False) == (gauge, Point(name=total.name, value=5.0, is_total=True, since=100.0))
    totals.mark_pushed(both, 160.0)
    assert totals.since(both, is_delta=False)[1].since == 100.0
    assert totals.since(both, is_delta=True)[1] == Point(name=total.name, value=0.0, is_total=True, since=160.0)
