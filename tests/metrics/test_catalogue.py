"""The table of names: sane, without doubles, and each row says what is in a snapshot."""

from __future__ import annotations

import re
from dataclasses import replace
from math import isnan

from consumer_membership.metrics.application_ledger import ApplicationLedger, CallbackKind
from consumer_membership.metrics.catalogue import (
    CATALOGUE,
    JavaName,
    MetricKind,
    consumer_labels,
    java_metrics,
)
from consumer_membership.metrics.membership_ledger import MembershipLedger
from consumer_membership.metrics.snapshot import FetchedCounts
from consumer_membership.types import GroupProtocol, TopicPartition
from tests.metrics.builders import NOW, partition, snapshot

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
COORDINATOR = "consumer-coordinator-metrics"


def test_names_are_in_base_units_and_end_as_prometheus_has_it() -> None:
    """Seconds are written out, what only grows ends in _total, and nothing else does."""
    for row in CATALOGUE:
        name = row.prometheus
        assert re.fullmatch(r"kafka_consumer(_[a-z]+)+", name), name
        assert name.endswith("_total") == (row.kind is MetricKind.COUNTER), name
        assert ("seconds" in name) == (row.unit == "s"), name
        assert row.kind is not MetricKind.HISTOGRAM or row.unit == "s", name
        assert not any(word in name for word in ("_ms", "milli", "_avg")), name
        assert re.fullmatch(r"kafka\.consumer(\.[a-z_]+)+", row.opentelemetry), name
        assert row.help.endswith("."), name


def test_no_name_is_there_twice() -> None:
    """Of no scheme."""
    assert len({row.prometheus for row in CATALOGUE}) == len(CATALOGUE)
    assert len({row.opentelemetry for row in CATALOGUE}) == len(CATALOGUE)
    java = [(metric.group, metric.name) for row in CATALOGUE for metric in row.java]
    assert len(set(java)) == len(java)


def test_readings_have_a_value_for_each_label() -> None:
    """In every row, of a consumer that has partitions and of one that has none."""
    full = snapshot(
        owned={A0: 3},
        partitions={A0: partition(5, 9)},
        committed={A0: 4},
        fetched={A0: FetchedCounts(records=9, bytes=90)},
    )
    for metrics in (full, snapshot()):
        for row in CATALOGUE:
            assert {len(values) for values in row.read(metrics)} <= {len(row.labels)}, row.prometheus


def test_java_names_are_those_of_javas_client() -> None:
    """In milliseconds, with averages and rates of the last 30 to 60 seconds, and tags for partitions."""
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
    said = {name.name: value for name, value in found.items() if name.group == COORDINATOR and not isnan(value)}
    assert {name: said[name] for name in said if name.startswith(("rebalance", "partition", "assigned"))} == {
        "assigned-partitions": 2.0,
        "rebalance-latency-avg": 3000.0,
        "rebalance-latency-max": 4000.0,
        "rebalance-latency-total": 6000.0,
        "rebalance-total": 2.0,
        "rebalance-rate-per-hour": 240.0,
        "partition-revoked-latency-avg": 250.0,
        "partition-revoked-latency-max": 250.0,
    }
    assert {name: said[name] for name in said if name.startswith(("join", "sync"))} == {
        "join-time-avg": 3000.0,
        "join-time-max": 3000.0,
        "join-rate": 1 / 30,
        "join-total": 1.0,
        "sync-time-avg": 500.0,
        "sync-time-max": 500.0,
        "sync-rate": 1 / 30,
        "sync-total": 1.0,
    }
    assert (said["failed-rebalance-total"], said["failed-rebalance-rate-per-hour"]) == (0.0, 0.0)
    assert found[JavaName("consumer-metrics", "commit-sync-time-ns-total")] == 5e8
    fetch = "consumer-fetch-manager-metrics"
    assert found[JavaName(fetch, "records-lag", (("topic", "a"), ("partition", "0")))] == 4.0
    assert found[JavaName(fetch, "records-lag-max")] == 4.0


def test_what_was_never_is_no_number_in_java() -> None:
    """The name is there from the beginning, as in Java's client."""
    found = java_metrics(snapshot())
    assert isnan(found[JavaName(COORDINATOR, "last-rebalance-seconds-ago")])
    assert isnan(found[JavaName(COORDINATOR, "commit-latency-avg")])


def test_joins_and_syncs_are_of_classic_members() -> None:
    """One of the consumer protocol sends none: it has no series of them, and tells brokers nothing of them."""
    rows = [
        row
        for row in CATALOGUE
        if row.opentelemetry in ("kafka.consumer.join.duration", "kafka.consumer.sync.duration")
    ]
    assert [len(row.read(snapshot())) for row in rows] == [0, 0]
    classic = snapshot()
    classic = replace(classic, view=replace(classic.view, protocol=GroupProtocol.CLASSIC))
    assert [len(row.read(classic)) for row in rows] == [1, 1]
    was_classic = MembershipLedger()
    was_classic.join.add(3.0, NOW)
    assert [len(row.read(snapshot(membership=was_classic))) for row in rows] == [1, 0]


def test_name_of_telemetry_is_kip_714s() -> None:
    """The group without its end, and dots."""
    assert JavaName(COORDINATOR, "rebalance-latency-avg").of_telemetry == (
        "org.apache.kafka.consumer.coordinator.rebalance.latency.avg"
    )
    assert JavaName("consumer-metrics", "poll-idle-ratio-avg").of_telemetry == (
        "org.apache.kafka.consumer.poll.idle.ratio.avg"
    )


def test_state_and_verdict_are_one_among_zeros() -> None:
    """A timeline in Grafana wants all of them."""
    rows = {row.prometheus: row.read(snapshot()) for row in CATALOGUE}
    for name, value in (("kafka_consumer_state", "stable"), ("kafka_consumer_health", "idle")):
        assert [labels for labels, reading in rows[name].items() if reading] == [(value,)]
        assert len(rows[name]) > 5


def test_series_of_a_partition_ends_with_it() -> None:
    """What is no more this consumer's has no reading."""
    rows = [row for row in CATALOGUE if "partition" in row.labels]
    gone = snapshot(
        partitions={A0: partition(5, 9)}, committed={A0: 1}, fetched={A0: FetchedCounts(records=1, bytes=1)}
    )
    assert {key for row in rows for key in row.read(gone)} == {("a", "0")}
    assert {key for row in rows for key in row.read(snapshot())} == set()


def test_consumers_of_one_process_are_told_apart() -> None:
    """Whatever their group and client.id are."""
    assert consumer_labels(snapshot(number=2)) == ("g", "c", "2")
