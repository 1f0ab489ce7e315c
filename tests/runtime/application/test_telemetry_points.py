"""The metrics that a consumer pushes to brokers: the catalog's values under KIP-714's names, without unknown values."""

from __future__ import annotations

from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.metrics.catalog import java_metrics
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.runtime.application.telemetry_points import points_of
from consumer_membership.types import TopicPartition
from consumer_membership.wire.otlp import Point
from tests.metrics.builders import NOW, partition, snapshot
from tests.support.documents import DOCS, tables

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
PREFIX = "org.apache.kafka.consumer."
#: KIP-714's required metrics that this client measures.
REQUIRED = (
    "coordinator.assigned.partitions",
    "coordinator.commit.latency.avg",
    "coordinator.commit.latency.max",
    "coordinator.rebalance.latency.avg",
    "coordinator.rebalance.latency.max",
    "coordinator.rebalance.latency.total",
    "poll.idle.ratio.avg",
)


def by_name(points: tuple[Point, ...]) -> dict[str, list[Point]]:
    """Return the points by their names without the common prefix."""
    found: dict[str, list[Point]] = {}
    for point in points:
        assert point.name.startswith(PREFIX)
        found.setdefault(point.name.removeprefix(PREFIX), []).append(point)
    return found


def test_telemetry_points_have_kafkas_names_and_units() -> None:
    """Points have Java's units, and carry topic and partition if they describe a partition; totals only grow."""
    membership, application = MembershipLedger(), ApplicationLedger()
    membership.rebalance.add(0.25, NOW)
    membership.commit.add(0.05, NOW)
    application.begin_poll(NOW - 40, 0)
    application.end_poll(NOW - 40, NOW - 10, 0)
    application.begin_poll(NOW - 10, 0)
    metrics = snapshot(
        owned={P0: 1, P1: 1},
        partitions={P0: partition(5, 12), P1: partition(7, 7)},
        membership=membership,
        application=application,
    )
    found = by_name(points_of(metrics))
    assert set(REQUIRED) <= found.keys()
    assert found["coordinator.assigned.partitions"] == [
        Point(name=f"{PREFIX}coordinator.assigned.partitions", value=2.0)
    ]
    assert found["coordinator.commit.latency.avg"][0].value == 50.0
    (total,) = found["coordinator.rebalance.latency.total"]
    assert (total.value, total.is_total) == (250.0, True)
    assert {(point.attributes, point.value) for point in found["fetch.manager.records.lag"]} == {
        ((("topic", "orders"), ("partition", "0")), 7.0),
        ((("topic", "orders"), ("partition", "1")), 0.0),
    }
    totals = {name for name, points in found.items() if points[0].is_total}
    assert totals == {name for name in found if name.endswith(".total")}


def test_telemetry_points_omit_values_that_were_never_measured() -> None:
    """A value without a measurement is omitted, because zero would be a measured value."""
    metrics = snapshot()
    found = by_name(points_of(metrics))
    assert "coordinator.commit.latency.avg" not in found
    assert found["coordinator.commit.total"][0].value == 0.0
    left_out = {java.of_telemetry.removeprefix(PREFIX) for java in java_metrics(metrics)} - found.keys()
    assert {"coordinator.rebalance.latency.max", "coordinator.heartbeat.response.time.max"} <= left_out


def test_metrics_document_names_every_telemetry_point() -> None:
    """docs/reference/metrics.md lists each pushed metric; `and .max` there extends the name before it."""
    text = (DOCS / "reference/metrics.md").read_text()
    lines = next(lines for lines in tables(text) if lines[0] == "| subject | names |")
    listed = set()
    for line in lines[2:]:
        names, last = line.strip("| ").partition(" | ")[2], ""
        for word in names.replace("(by topic and partition)", "").replace(",", " ").replace(" and ", " ").split():
            last = f"{last.rpartition('.')[0]}{word}" if word.startswith(".") else word
            listed.add(last)
    assert listed == {java.of_telemetry.removeprefix(PREFIX) for java in java_metrics(snapshot())} | {
        "fetch.manager.records.lag"
    }
