"""The metrics that an OpenTelemetry provider collects, under the conventions that the operator chose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from consumer_membership import Consumer
from consumer_membership.health.handlers import HandlerHealth
from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.metrics.opentelemetry import OPT_IN, _recorder, instrument
from consumer_membership.metrics.sources import THIS_PROCESS_SOURCES


class Collected:
    """A provider and the metrics that it collected."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader])

    def points(self, name: str) -> list[dict[str, object]]:
        """Return the attributes of each point, with its value or its count."""
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
    """Create a provider for one test."""
    made = Collected()
    yield made
    made.provider.shutdown()


def groups(points: list[dict[str, object]]) -> list[str]:
    """Return the groups of these points."""
    return sorted(str(point["messaging.consumer.group.name"]) for point in points)


def count_one(consumer: Consumer, name: str) -> None:
    """Record one duration, as the consumer does."""
    source = THIS_PROCESS_SOURCES.at(consumer.metrics().number)
    assert source is not None
    durations = source.durations(name, ())
    assert durations is not None
    durations.add(0.5, 0.0)


def test_instrument_observes_each_consumer_until_it_is_closed(collected: Collected) -> None:
    """The SDK keeps one callback per name, so all consumers of a process share it."""
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


def test_instrument_records_each_later_duration_once(collected: Collected) -> None:
    """Durations are recorded once from the first instrument() call on, although it is called twice."""
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
def test_instrument_follows_otel_semconv_stability_opt_in(
    collected: Collected, monkeypatch: pytest.MonkeyPatch, chosen: str, *, current: bool, former: bool
) -> None:
    """Names of version 1.24 are used unless OTEL_SEMCONV_STABILITY_OPT_IN selects the current names or both."""
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


def test_instrument_records_polls_as_receive_and_commits_as_settle(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll is a receive operation and a commit a settle operation, under the attributes of the conventions."""
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


def test_instrument_records_handler_calls_of_a_processor_as_process_operations(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler call is a process operation of the conventions; a consumer without a processor has none."""
    monkeypatch.setenv(OPT_IN, "messaging")
    plain, processed = Consumer({"group.id": "plain"}), Consumer({"group.id": "processed"})
    ledger = HandlerLedger(lambda _: HandlerGauges())
    processed._observer.watch_handlers(lambda _: HandlerHealth(), ledger)
    for consumer in (plain, processed):
        instrument(consumer, collected.provider)
    ledger.handler_time.add(0.5, 0.0)
    (found,) = collected.points("messaging.process.duration")
    assert (found["messaging.operation.name"], found["messaging.operation.type"]) == ("process", "process")
    assert groups(collected.points("kafka.consumer.handler.retries")) == ["processed"]
    plain.close()
    processed.close()


def test_recorder_ignores_exceptions_of_the_provider() -> None:
    """An exception of the provider is ignored, because durations are also recorded on the member's thread."""
    calls: list[float] = []

    def record(seconds: float, _: object) -> None:
        calls.append(seconds)
        raise ZeroDivisionError

    _recorder(record, {})(0.5)
    assert calls == [0.5]
