"""The catalog of metrics: valid and unique names, and readings that match the snapshot."""

from __future__ import annotations

import re
from dataclasses import replace
from math import isnan

from consumer_membership.health.handlers import HandlerHealth, UnfinishedRecord
from consumer_membership.metrics.application_ledger import ApplicationLedger, CallbackKind
from consumer_membership.metrics.catalog import (
    CATALOG,
    JavaName,
    MetricKind,
    consumer_labels,
    java_metrics,
)
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.metrics.snapshot import FetchedCounts
from consumer_membership.types import GroupProtocol, TopicPartition
from tests.metrics.builders import NOW, busy_ledger, partition, snapshot

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
COORDINATOR = "consumer-coordinator-metrics"


def test_catalog_names_follow_the_naming_rules_of_prometheus() -> None:
    """Names use base units, seconds are spelled out, and exactly the counters end in _total."""
    for row in CATALOG:
        name = row.prometheus
        assert re.fullmatch(r"kafka_consumer(_[a-z]+)+", name), name
        assert name.endswith("_total") == (row.kind is MetricKind.COUNTER), name
        assert ("seconds" in name) == (row.unit == "s"), name
        assert row.kind is not MetricKind.HISTOGRAM or row.unit == "s", name
        assert not any(word in name for word in ("_ms", "milli", "_avg")), name
        assert re.fullmatch(r"kafka\.consumer(\.[a-z_]+)+", row.opentelemetry), name
        assert row.help.endswith("."), name


def test_catalog_names_are_unique_in_each_scheme() -> None:
    """No name occurs twice in the Prometheus, OpenTelemetry or Java scheme."""
    assert len({row.prometheus for row in CATALOG}) == len(CATALOG)
    assert len({row.opentelemetry for row in CATALOG}) == len(CATALOG)
    java = [(metric.group, metric.name) for row in CATALOG for metric in row.java]
    assert len(set(java)) == len(java)


def test_catalog_readings_have_a_value_for_each_label() -> None:
    """Each row has one value per label, for a consumer with partitions and for one without."""
    full = snapshot(
        owned={A0: 3},
        partitions={A0: partition(5, 9)},
        committed={A0: 4},
        fetched={A0: FetchedCounts(records=9, bytes=90)},
        handlers=busy_ledger(),
        handler_health=HandlerHealth(oldest={A0: UnfinishedRecord(offset=4, since=NOW)}),
    )
    for metrics in (full, snapshot()):
        for row in CATALOG:
            assert {len(values) for values in row.read(metrics)} <= {len(row.labels)}, row.prometheus


def test_java_metrics_match_the_names_and_units_of_the_java_client() -> None:
    """Java metrics are in milliseconds, with averages and rates of the last 30 to 60 s and partition tags."""
    membership, application = MembershipLedger(), ApplicationLedger()
    membership.rebalance.add(2.0, NOW)
    membership.rebalance.add(4.0, NOW)
    application.callbacks[CallbackKind.REVOKED].add(0.25, NOW)
    application.commit_sync.add(0.5, NOW)
    membership.join.add(3.0, NOW)
    membership.sync.add(0.5, NOW)
    metrics = snapshot(
        owned={A0: 3, A1: 3},
        partitions={A0: partition(5, 9), A1: partition(5, 7)},
        membership=membership,
        application=application,
    )
    found = java_metrics(metrics)
    values = {name.name: value for name, value in found.items() if name.group == COORDINATOR and not isnan(value)}
    assert {name: values[name] for name in values if name.startswith(("rebalance", "partition", "assigned"))} == {
        "assigned-partitions": 2.0,
        "rebalance-latency-avg": 3000.0,
        "rebalance-latency-max": 4000.0,
        "rebalance-latency-total": 6000.0,
        "rebalance-total": 2.0,
        "rebalance-rate-per-hour": 240.0,
        "partition-revoked-latency-avg": 250.0,
        "partition-revoked-latency-max": 250.0,
    }
    assert {name: values[name] for name in values if name.startswith(("join", "sync"))} == {
        "join-time-avg": 3000.0,
        "join-time-max": 3000.0,
        "join-rate": 1 / 30,
        "join-total": 1.0,
        "sync-time-avg": 500.0,
        "sync-time-max": 500.0,
        "sync-rate": 1 / 30,
        "sync-total": 1.0,
    }
    assert (values["failed-rebalance-total"], values["failed-rebalance-rate-per-hour"]) == (0.0, 0.0)
    assert found[JavaName("consumer-metrics", "commit-sync-time-ns-total")] == 5e8
    fetch = "consumer-fetch-manager-metrics"
    assert found[JavaName(fetch, "records-lag", (("topic", "a"), ("partition", "0")))] == 4.0
    assert found[JavaName(fetch, "records-lag-max")] == 4.0


def test_java_metrics_are_nan_before_the_first_event() -> None:
    """A Java metric exists from the start and is NaN until its first event, as in the Java client."""
    found = java_metrics(snapshot())
    assert isnan(found[JavaName(COORDINATOR, "last-rebalance-seconds-ago")])
    assert isnan(found[JavaName(COORDINATOR, "commit-latency-avg")])


def test_join_and_sync_metrics_exist_only_for_classic_members() -> None:
    """A member of the consumer protocol sends no joins and syncs, so it has no series of them."""
    rows = [
        row for row in CATALOG if row.opentelemetry in ("kafka.consumer.join.duration", "kafka.consumer.sync.duration")
    ]
    assert [len(row.read(snapshot())) for row in rows] == [0, 0]
    classic = snapshot()
    classic = replace(classic, view=replace(classic.view, protocol=GroupProtocol.CLASSIC))
    assert [len(row.read(classic)) for row in rows] == [1, 1]
    was_classic = MembershipLedger()
    was_classic.join.add(3.0, NOW)
    assert [len(row.read(snapshot(membership=was_classic))) for row in rows] == [1, 0]


def test_telemetry_names_follow_kip_714() -> None:
    """A telemetry name is the group without its suffix, with dots (KIP-714)."""
    assert JavaName(COORDINATOR, "rebalance-latency-avg").of_telemetry == (
        "org.apache.kafka.consumer.coordinator.rebalance.latency.avg"
    )
    assert JavaName("consumer-metrics", "poll-idle-ratio-avg").of_telemetry == (
        "org.apache.kafka.consumer.poll.idle.ratio.avg"
    )


def test_state_and_health_metrics_are_one_for_the_current_value_and_zero_otherwise() -> None:
    """State and health have one series per possible value, as a Grafana timeline needs."""
    rows = {row.prometheus: row.read(snapshot()) for row in CATALOG}
    for name, value in (("kafka_consumer_state", "stable"), ("kafka_consumer_health", "idle")):
        assert [labels for labels, reading in rows[name].items() if reading] == [(value,)]
        assert len(rows[name]) > 5


def test_partition_metrics_end_when_the_partition_is_revoked() -> None:
    """A revoked partition has no reading in any row."""
    rows = [row for row in CATALOG if "partition" in row.labels]
    gone = snapshot(
        partitions={A0: partition(5, 9)}, committed={A0: 1}, fetched={A0: FetchedCounts(records=1, bytes=1)}
    )
    assert {key for row in rows for key in row.read(gone)} == {("a", "0")}
    assert {key for row in rows for key in row.read(snapshot())} == set()


HANDLERS = [row for row in CATALOG if "handler" in row.prometheus or "unfinished" in row.prometheus]


def test_handler_metrics_exist_only_for_consumers_with_a_processor() -> None:
    """A consumer without a processor has no series of handlers, so that its page does not grow."""
    assert {len(row.read(snapshot())) for row in HANDLERS} == {0}
    processed = snapshot(partitions={A0: partition(5, 9)}, handlers=busy_ledger(), handler_health=HandlerHealth())
    assert {len(row.read(processed)) for row in HANDLERS} == {1}


def test_handler_metrics_have_the_numbers_of_the_processor() -> None:
    """Numbers and ages come from the ledger and from the health of the handlers."""
    health = HandlerHealth(oldest={A0: UnfinishedRecord(offset=4, since=NOW - 7)})
    metrics = snapshot(
        partitions={A0: partition(5, 9), A1: partition(5, 9)}, handlers=busy_ledger(), handler_health=health
    )
    found = {row.prometheus.removeprefix("kafka_consumer_"): row.read(metrics) for row in HANDLERS}
    assert {name: readings[()] for name, readings in found.items() if "duration" not in name and () in readings} == {
        "handler_records_total": 9.0,
        "handler_retries_total": 2.0,
        "handler_dead_letters_total": 1.0,
        "handler_skipped_records_total": 4.0,
        "handler_lanes": 3.0,
        "handler_busy_lanes": 1.0,
        "handler_queued_records": 5.0,
        "handler_in_flight_records": 1.0,
        "handler_oldest_in_flight_age_seconds": 2.0,
        "handlers_stuck": 0.0,
    }
    assert found["handler_failures_total"] == {("ValueError",): 3.0}
    assert found["partition_oldest_unfinished_age_seconds"] == {("a", "0"): 7.0, ("a", "1"): 0.0}


def test_handler_metrics_are_not_pushed_to_brokers() -> None:
    """The Java client has no handlers, so no name of KIP-714 belongs to them."""
    assert java_metrics(snapshot()).keys() == java_metrics(snapshot(handlers=busy_ledger())).keys()


def test_consumer_labels_include_the_number_of_the_consumer() -> None:
    """The consumer's number distinguishes consumers with equal group and client.id."""
    assert consumer_labels(snapshot(number=2)) == ("g", "c", "2")
