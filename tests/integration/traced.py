"""A traced program: it reads five records, polls once more without a record, and prints its spans.

traced.py WHEN PACKAGE SERVERS TOPIC
"""

from __future__ import annotations

import json
import sys
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

IDLE_POLLS = 20


def main(when: str, package_name: str, servers: str, topic: str) -> None:
    """Instrument before or after the package is imported."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    if when == "before":
        ConfluentKafkaInstrumentor().instrument()
    package = _package(package_name)
    if when == "after":
        ConfluentKafkaInstrumentor().instrument()
    _work(package, servers, topic)
    spans = [
        [span.name, span.kind.name, sorted((span.attributes or {}).items()), len(span.links), span.parent is None]
        for span in exporter.get_finished_spans()
    ]
    print(json.dumps([hasattr(package.Consumer, "membership"), spans]))


def _package(name: str) -> Any:
    if name == "ours":
        import consumer_membership  # noqa: PLC0415

        return consumer_membership
    import confluent_kafka  # noqa: PLC0415

    if name == "installed":
        import consumer_membership  # noqa: PLC0415

        consumer_membership.install()
    return confluent_kafka


def _work(package: Any, servers: str, topic: str) -> None:
    producer = package.Producer({"bootstrap.servers": servers})
    for number in range(5):
        producer.produce(topic, value=str(number).encode(), partition=0)
    producer.flush()
    consumer = package.Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    polled = 0
    while polled < 3:
        polled += consumer.poll(1.0) is not None
    consumed = 0
    while consumed < 2:
        consumed += len(consumer.consume(2 - consumed, 1.0))
    for _ in range(IDLE_POLLS):
        if consumer.poll(0.05) is not None:
            raise AssertionError("a sixth record")
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
