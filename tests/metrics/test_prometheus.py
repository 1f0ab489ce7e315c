"""What is scraped: each consumer of the process, told apart, and nothing of what is gone."""

from __future__ import annotations

import gc

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from consumer_membership import Consumer
from consumer_membership.health.progress import PartitionHealth
from consumer_membership.metrics.catalogue import CATALOGUE, MetricKind
from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.metrics.prometheus import ConsumerCollector, exposition
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import MetricsSources
from consumer_membership.types import TopicPartition
from tests.metrics.builders import NOW, partition, snapshot


class Played:
    """A consumer whose snapshots a test makes."""

    def __init__(self, sources: MetricsSources, group: str = "g") -> None:
        self.is_open = True
        self.group = group
        self.ledger = MembershipLedger()
        self.partitions: dict[TopicPartition, PartitionHealth] = {}
        self.number = sources.add(self)

    def metrics(self) -> Metrics:
        return snapshot(number=self.number, group=self.group, partitions=self.partitions, membership=self.ledger)

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations:  # noqa: ARG002
        return self.ledger.heartbeat


def scraped(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The series by their names, as a reader of the format sees them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


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


def test_collector_of_named_consumers_has_those_alone() -> None:
    """Real ones, without a broker: several in one process, weakly held, and none once they are closed."""
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


def test_counters_are_those_of_the_table() -> None:
    """What only grows is a counter to Prometheus, too."""
    sources = MetricsSources()
    played = Played(sources)
    found = scraped(exposition(sources)[0])
    shown = {row.prometheus for row in CATALOGUE if row.kind is MetricKind.COUNTER and row.read(played.metrics())}
    assert shown <= found.keys()
