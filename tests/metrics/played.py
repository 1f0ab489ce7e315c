"""A consumer whose snapshots a test defines, and a parser of Prometheus' text format."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from consumer_membership.health.progress import PartitionHealth
from consumer_membership.metrics.distribution import Durations
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.metrics.sources import MetricsSources
from consumer_membership.types import TopicPartition
from tests.metrics.builders import snapshot


class Played:
    """A consumer whose snapshots a test defines."""

    def __init__(self, sources: MetricsSources, group: str = "g") -> None:
        self.is_open = True
        self.group = group
        self.ledger = MembershipLedger()
        self.partitions: dict[TopicPartition, PartitionHealth] = {}
        self.number = sources.add(self)

    def metrics(self) -> Metrics:
        """Return the metrics of a group member."""
        return snapshot(number=self.number, group=self.group, partitions=self.partitions, membership=self.ledger)

    def durations(self, name: str, labels: tuple[str, ...]) -> Durations:  # noqa: ARG002
        """Return the same durations for every name."""
        return self.ledger.heartbeat


def scraped(text: bytes) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the series of a scraped text by name, as Prometheus' parser reads them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found
