"""The metrics that a prometheus-client registry collects; test_exposition compares them with the scraped text."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from consumer_membership import Consumer
from consumer_membership.metrics.exposition import exposition
from consumer_membership.metrics.prometheus import ConsumerCollector
from tests.metrics.played import scraped


def test_collector_has_only_its_own_consumers_until_they_are_closed() -> None:
    """A collector has only the consumers that it was given, holds them weakly, and drops them when they are closed."""
    first, second = (Consumer({"group.id": group}) for group in ("first", "second"))
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(first))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(ConsumerCollector(second))
    groups = [labels["group"] for labels, _ in scraped(generate_latest(registry))["kafka_consumer_member_epoch"]]
    assert groups == ["first"]
    both = {labels["group"] for labels, _ in scraped(exposition()[0])["kafka_consumer_member_epoch"]}
    assert both >= {"first", "second"}
    first.close()
    assert scraped(generate_latest(registry)) == {}
    second.close()
    left = scraped(exposition()[0]).get("kafka_consumer_member_epoch", [])
    assert {labels["group"] for labels, _ in left}.isdisjoint({"first", "second"})
