"""`metrics()` on a real broker: the counters of two members of a group that share a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from consumer_membership.metrics.catalog import java_metrics
from consumer_membership.metrics.exposition import exposition
from consumer_membership.metrics.membership_ledger import RebalanceCause, Standstill
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.runtime.application import health_monitor
from tests.integration.polls import poll_until
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 200


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample the progress often."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.1)


@pytest.fixture
def make(kafka: Broker) -> Iterator[Callable[..., Consumer]]:
    """Makes members of one new group."""
    group = unique("group")
    made: list[Consumer] = []

    def consumer(**config: object) -> Consumer:
        settings: dict[str, object] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "statistics.interval.ms": 200,
        }
        made.append(Consumer(settings | {key.replace("_", "."): value for key, value in config.items()}))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


def polled_until(is_so: Callable[[], bool], *consumers: Consumer) -> None:
    """Poll all of them until the condition holds."""
    poll_until(is_so, "the figures", *consumers, seen=lambda: [consumer.metrics() for consumer in consumers])


def test_metrics_count_the_work_of_two_members(kafka: Broker, make: Callable[..., Consumer]) -> None:
    """The metrics count records, polls, commits, heartbeats, and the pause while the second member joins."""
    topic = create_topic(kafka.bootstrap_servers, unique("metrics"), 4)
    produce(kafka.bootstrap_servers, topic, RECORDS)
    # An automatic commit would leave nothing to commit, which is an error.
    first = make(auto_commit_interval_ms=600_000)
    calls: list[int] = []
    first.subscribe([topic], on_assign=lambda _, given: calls.append(len(given)))
    polled_until(lambda: first.metrics().application.records == RECORDS, first)
    first.commit(asynchronous=False)
    first.committed(first.assignment(), PATIENCE_S)
    polled_until(lambda: is_whole(first.metrics()) and first.metrics().membership.heartbeat.count > 1, first)
    counts = first.metrics().membership
    assert (counts.rebalances[RebalanceCause.JOINED], counts.commit.count > 0) == (1, True)
    application = first.metrics().application
    assert application.commit_sync_s > 0
    assert application.committed_s > 0
    assert application.poll_interval.count >= RECORDS

    second = make()
    second.subscribe([topic])
    polled_until(
        lambda: all(len(one.membership().owned) == 2 and one.membership().is_settled for one in (first, second)),
        first,
        second,
    )
    polled_until(
        lambda: (
            first.metrics().membership.standstill[Standstill.GIVEN_UP].count == 2
            and second.metrics().membership.standstill[Standstill.TAKEN].count == 2
        ),
        first,
        second,
    )
    assert first.metrics().membership.rebalances[RebalanceCause.ASSIGNMENT] >= 1
    text = exposition()[0].decode()
    assert {f'consumer="{one.metrics().number}"' in text for one in (first, second)} == {True}
    second.close()
    assert f'consumer="{second.metrics().number}"' not in exposition()[0].decode()


def test_metrics_time_the_joins_and_syncs_of_a_classic_member(kafka: Broker, make: Callable[..., Consumer]) -> None:
    """The metrics have the names of Java's client; the wait for other members' joins counts as rebalance time."""
    topic = create_topic(kafka.bootstrap_servers, unique("metrics"), 2)
    consumer = make(group_protocol="classic")
    consumer.subscribe([topic])
    # The rebalance ends when the member receives the end of on_assign, which is later than the assignment.
    polled_until(lambda: consumer.membership().state.value == "STABLE", consumer)
    exported = {name.name: value for name, value in java_metrics(consumer.metrics()).items()}
    assert (exported["join-total"], exported["sync-total"]) == (1.0, 1.0)
    assert exported["join-time-max"] >= exported["join-time-avg"] > 0
    assert exported["sync-time-max"] >= exported["sync-time-avg"] > 0
    assert exported["rebalance-latency-max"] >= exported["join-time-max"] + exported["sync-time-max"]
    assert exported["failed-rebalance-rate-per-hour"] == 0.0
    assert "kafka_consumer_join_duration_seconds_count" in exposition()[0].decode()


def is_whole(metrics: Metrics) -> bool:
    """Whether lag, committed offsets and fetched records of its partitions are all known."""
    partitions = metrics.health.partitions
    return (
        len(partitions) == 4
        and all(one.lag == 0 for one in partitions.values())
        and sum(metrics.committed.values()) == RECORDS
        and sum(counts.records for counts in metrics.fetched.values()) == RECORDS
        and sum(counts.bytes for counts in metrics.fetched.values()) > 0
    )
