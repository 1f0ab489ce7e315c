"""Exporters and callbacks work for processors as for consumers; these tests use no broker."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest

from consumer_membership import LifecycleEvent, LifecycleKind
from consumer_membership.metrics.opentelemetry import instrument
from consumer_membership.metrics.prometheus import ConsumerCollector
from consumer_membership.processing import AsyncProcessor, Processor

NO_BROKER: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


def test_processor_is_exported_like_a_consumer() -> None:
    """Both exporters accept a processor and export its handlers."""
    with Processor(NO_BROKER, ["t"], lambda _: None) as processor:
        registry = CollectorRegistry()
        registry.register(ConsumerCollector(processor))
        assert b"kafka_consumer_handler_records_total{" in generate_latest(registry)
        reader = InMemoryMetricReader()
        provider = MeterProvider([reader])
        instrument(processor, provider)
        found = reader.get_metrics_data()
        assert found is not None
        assert '"kafka.consumer.handler.lanes"' in found.to_json()
        provider.shutdown()


def test_on_event_of_an_async_processor_takes_coroutine_functions() -> None:
    """The callback runs on the loop that registered it, and may be a coroutine function."""

    async def run() -> list[LifecycleKind]:
        closed = asyncio.Event()
        kinds: list[LifecycleKind] = []

        async def note(event: LifecycleEvent) -> None:
            kinds.append(event.kind)
            closed.set()

        async with AsyncProcessor(NO_BROKER, ["t"], note_nothing) as processor:
            processor.on_event(note)
            with pytest.raises(TypeError, match="callable"):
                processor.on_event(None)  # type: ignore[arg-type]  # the test expects the error
        await closed.wait()
        return kinds

    assert asyncio.run(run()) == [LifecycleKind.CLOSED]


async def note_nothing(_: object) -> None:
    """Handle nothing."""
