"""What a provider collects, with the conventions that the operator chose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from consumer_membership import Consumer
from consumer_membership.metrics.opentelemetry import OPT_IN, _recorder, instrument
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES


class Collected:
    """A provider and what it has."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader])

    def points(self, name: str) -> list[dict[str, object]]:
        """The attributes of each point, with its value or its count."""
        data = self.reader.get_metrics_data()
        return [
            {**dict(point.attributes or {}), "": getattr(point, "value", None) or getattr(point, "count", 0)}
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def collected() -> Iterator[Collected]:
    """A provider of the test's own."""
    made = Collected()
    yield made
    made.provider.shutdown()


def groups(points: list[dict[str, object]]) -> list[str]:
    """Whose points these are."""
    return sorted(str(point["messaging.consumer.group.name"]) for point in points)


def count_one(consumer: Consumer, name: str) -> None:
    """Have one duration counted, as the consumer would."""
    source = THIS_PROCESS_SOURCES.at(consumer.metrics().number)
    assert source is not None
    source.durations(name, ()).add(0.5, 0.0)


def test_consumers_of_one_process_are_observed_until_they_are_closed(collected: Collected) -> None:
    """The SDK knows one callback of each name: all consumers are behind it."""
    first, second = (Consumer({"group.id": group}) for group in ("first", "second"))
    for consumer in (first, second, second):
        instrument(consumer, collected.provider)
    epochs = collected.points("kafka.consumer.member.epoch")
    assert groups(epochs) == ["first", "second"]
    assert {point["messaging.system"] for point in epochs} == {"kafka"}
    first.close()
    assert groups(collected.points("kafka.consumer.member.epoch")) == ["second"]
    second.close()
    assert collected.points("kafka.consumer.member.epoch") == []
    instrument(second, collected.provider)


def test_durations_are_recorded_when_they_are_counted(collected: Collected) -> None:
    """From the instrumentation on, once, although it was asked for twice."""
    consumer = Consumer({"group.id": "g"})
    count_one(consumer, "kafka_consumer_heartbeat_duration_seconds")
    instrument(consumer, collected.provider)
    instrument(consumer, collected.provider)
    count_one(consumer, "kafka_consumer_heartbeat_duration_seconds")
    assert [point[""] for point in collected.points("kafka.consumer.heartbeat.duration")] == [1]
    consumer.close()


@pytest.mark.parametrize(
    ("chosen", "current", "former"),
    [
        ("", False, True),
        ("http", False, True),
        ("http, messaging", True, False),
        ("messaging,messaging/dup", True, True),
    ],
)
def test_operator_chooses_the_conventions(
    collected: Collected, monkeypatch: pytest.MonkeyPatch, chosen: str, *, current: bool, former: bool
) -> None:
    """OTEL_SEMCONV_STABILITY_OPT_IN: the names of 1.24 unless the current ones are asked for; both win."""
    monkeypatch.setenv(OPT_IN, chosen)
    consumer = Consumer({"group.id": "g"})
    instrument(consumer, collected.provider)
    count_one(consumer, "kafka_consumer_poll_duration_seconds")
    names = ("messaging.client.operation.duration", "messaging.client.consumed.messages")
    assert [bool(collected.points(name)) for name in names] == [current, current]
    names = ("messaging.receive.duration", "messaging.receive.messages")
    assert [bool(collected.points(name)) for name in names] == [former, former]
    assert collected.points("kafka.consumer.poll.duration")
    consumer.close()


def test_operations_are_told_apart(collected: Collected, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll receives, a commit settles; by the conventions' attributes."""
    monkeypatch.setenv(OPT_IN, "messaging")
    consumer = Consumer({"group.id": "g"})
    instrument(consumer, collected.provider)
    for name in ("poll", "commit"):
        count_one(consumer, f"kafka_consumer_{name}_duration_seconds")
    found = collected.points("messaging.client.operation.duration")
    assert sorted((p["messaging.operation.name"], p["messaging.operation.type"]) for p in found) == [
        ("commit", "settle"),
        ("poll", "receive"),
    ]
    consumer.close()


def test_provider_that_raises_ends_no_member() -> None:
    """Durations are recorded on the member's thread, among others."""
    calls: list[float] = []

    def record(seconds: float, _: object) -> None:
        calls.append(seconds)
        raise ZeroDivisionError

    _recorder(record, {})(0.5)
    assert calls == [0.5]
