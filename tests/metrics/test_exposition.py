"""The scraped text has each open consumer of the process, and no series of closed consumers or revoked partitions."""

from __future__ import annotations

import gc
from math import inf, nan

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from consumer_membership.metrics.catalog import CATALOG, MetricKind
from consumer_membership.metrics.exposition import exposition
from consumer_membership.metrics.prometheus import ConsumerCollector
from consumer_membership.metrics.sources import MetricsSources
from consumer_membership.types import TopicPartition
from tests.metrics.builders import NOW, partition
from tests.metrics.played import Played, scraped


def test_exposition_has_the_help_and_type_of_every_catalogue_row() -> None:
    """Each row of the catalog has its HELP and TYPE line in Prometheus' text format."""
    sources = MetricsSources()
    played = Played(sources)
    text, content_type = exposition(sources)
    assert content_type.startswith("text/plain")
    for row in CATALOG:
        assert f"# HELP {row.prometheus} {row.help}" in text.decode(), row.prometheus
        assert f"# TYPE {row.prometheus} {row.kind.value}" in text.decode(), row.prometheus
    assert played.number == 1


def test_exposition_equals_the_text_of_prometheus_client() -> None:
    """The text has the families, help and series that prometheus-client writes, for any label value and number."""
    sources = MetricsSources()
    first, second = Played(sources), Played(sources, 'of "a\\b"\nü{},=')
    first.partitions = {TopicPartition("a", number): partition(number, 10**16 + number) for number in range(12)}
    second.partitions = {TopicPartition("a", 0): partition(0, 1, lag=inf)}
    for seconds in (0.0, 0.02, 1e-7, 1e7, 400.0):
        second.ledger.rebalance.add(seconds, NOW)
    registry = CollectorRegistry()
    registry.register(ConsumerCollector(sources=sources))

    def families(text: bytes) -> list[tuple[str, str, str, list[Sample]]]:
        return [
            (one.name, one.type, one.documentation, one.samples)
            for one in text_string_to_metric_families(text.decode())
        ]

    assert families(exposition(sources)[0]) == families(generate_latest(registry))


@pytest.mark.parametrize(("value", "written"), [(inf, "+Inf"), (-inf, "-Inf"), (nan, "NaN"), (3, "3.0"), (0.1, "0.1")])
def test_exposition_writes_special_floats_in_go_syntax(value: float, written: str) -> None:
    """Infinity and NaN are written as Go parses them, not as Python prints them."""
    sources = MetricsSources()
    played = Played(sources)
    played.partitions = {TopicPartition("a", 0): partition(0, 1, lag=value)}
    labels = 'group="g",client_id="c",consumer="1",topic="a",partition="0"'
    assert f"\nkafka_consumer_partition_lag{{{labels}}} {written}\n" in exposition(sources)[0].decode()


def test_exposition_writes_histograms_with_cumulative_buckets_sum_and_count() -> None:
    """A histogram has cumulative buckets, a sum and a count, as Prometheus requires."""
    sources = MetricsSources()
    played = Played(sources)
    for seconds in (0.02, 0.02, 400.0):
        played.ledger.rebalance.add(seconds, NOW)
    found = scraped(exposition(sources)[0])
    name = "kafka_consumer_rebalance_duration_seconds"
    buckets = {labels["le"]: value for labels, value in found[f"{name}_bucket"]}
    assert (buckets["0.01"], buckets["0.025"], buckets["300.0"], buckets["+Inf"]) == (0.0, 2.0, 2.0, 3.0)
    assert (found[f"{name}_count"][0][1], found[f"{name}_sum"][0][1]) == (3.0, 400.04)


def test_exposition_omits_revoked_partitions_and_closed_or_deleted_consumers() -> None:
    """Series end when their partition is revoked, or their consumer is closed or garbage-collected."""
    sources = MetricsSources()
    played, other = Played(sources), Played(sources, "h")
    played.partitions = {TopicPartition("a", 0): partition(1, 3)}
    assert scraped(exposition(sources)[0])["kafka_consumer_partition_lag"] == [
        ({"group": "g", "client_id": "c", "consumer": "1", "topic": "a", "partition": "0"}, 2.0)
    ]
    played.partitions = {}
    found = scraped(exposition(sources)[0])
    assert "kafka_consumer_partition_lag" not in found
    assert [labels["group"] for labels, _ in found["kafka_consumer_member_epoch"]] == ["g", "h"]
    played.is_open = False
    found = scraped(exposition(sources)[0])
    assert [labels["group"] for labels, _ in found["kafka_consumer_member_epoch"]] == ["h"]
    del other
    gc.collect()
    assert scraped(exposition(sources)[0]) == {}


def test_exposition_has_every_counter_of_the_catalogue() -> None:
    """Each counter that has a reading is exposed under its name."""
    sources = MetricsSources()
    played = Played(sources)
    found = scraped(exposition(sources)[0])
    shown = {row.prometheus for row in CATALOG if row.kind is MetricKind.COUNTER and row.read(played.metrics())}
    assert shown <= found.keys()
