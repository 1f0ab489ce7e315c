"""The text that is scraped: each consumer of the process, told apart, and nothing of what is gone."""

from __future__ import annotations

import gc
from math import inf, nan

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from consumer_membership.metrics.catalogue import CATALOGUE, MetricKind
from consumer_membership.metrics.exposition import exposition
from consumer_membership.metrics.prometheus import ConsumerCollector
from consumer_membership.metrics.sources import MetricsSources
from consumer_membership.types import TopicPartition
from tests.metrics.builders import NOW, partition
from tests.metrics.played import Played, scraped


def test_every_row_has_its_name_and_help() -> None:
    """In Prometheus' own text format."""
    sources = MetricsSources()
    played = Played(sources)
    text, content_type = exposition(sources)
    assert content_type.startswith("text/plain")
    for row in CATALOGUE:
        assert f"# HELP {row.prometheus} {row.help}" in text.decode(), row.prometheus
        assert f"# TYPE {row.prometheus} {row.kind.value}" in text.decode(), row.prometheus
    assert played.number == 1


def test_text_is_that_of_prometheus_own_client() -> None:
    """Families, help, and series in their order, whatever stands in a label and in a number."""
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
def test_numbers_are_those_that_go_reads(value: float, written: str) -> None:
    """Not Python's words."""
    sources = MetricsSources()
    played = Played(sources)
    played.partitions = {TopicPartition("a", 0): partition(0, 1, lag=value)}
    labels = 'group="g",client_id="c",consumer="1",topic="a",partition="0"'
    assert f"\nkafka_consumer_partition_lag{{{labels}}} {written}\n" in exposition(sources)[0].decode()


def test_histogram_has_growing_buckets_a_sum_and_a_count() -> None:
    """As Prometheus wants them."""
    sources = MetricsSources()
    played = Played(sources)
    for seconds in (0.02, 0.02, 400.0):
        played.ledger.rebalance.add(seconds, NOW)
    found = scraped(exposition(sources)[0])
    name = "kafka_consumer_rebalance_duration_seconds"
    buckets = {labels["le"]: value for labels, value in found[f"{name}_bucket"]}
    assert (buckets["0.01"], buckets["0.025"], buckets["300.0"], buckets["+Inf"]) == (0.0, 2.0, 2.0, 3.0)
    assert (found[f"{name}_count"][0][1], found[f"{name}_sum"][0][1]) == (3.0, 400.04)


def test_series_of_what_is_gone_end() -> None:
    """A partition that is another member's, a consumer that is closed, and one that nobody has."""
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


def test_counters_are_those_of_the_table() -> None:
    """What only grows is a counter to Prometheus, too."""
    sources = MetricsSources()
    played = Played(sources)
    found = scraped(exposition(sources)[0])
    shown = {row.prometheus for row in CATALOGUE if row.kind is MetricKind.COUNTER and row.read(played.metrics())}
    assert shown <= found.keys()
