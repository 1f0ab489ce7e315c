"""The statistics that exporters read equal confluent-kafka's field by field after the same calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Partition

from consumer_membership import Consumer
from consumer_membership.devbroker import Broker
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RECORDS = 1000
#: What exporters plot.
FIELDS = (
    "app_offset",
    "stored_offset",
    "stored_leader_epoch",
    "committed_offset",
    "commited_offset",
    "committed_leader_epoch",
    "consumer_lag",
    "consumer_lag_stored",
    "lo_offset",
    "hi_offset",
    "ls_offset",
    "fetch_state",
)
CLASSES = {"ours": Consumer, "confluent-kafka": confluent_kafka.Consumer}


@dataclass
class Reporter:
    """One consumer and the statistics that it reported."""

    consumer: Any
    topic: str
    latest: list[str] = field(default_factory=list)

    def records(self, count: int) -> confluent_kafka.Message:
        """Poll this many records; return the last one."""
        self.consumer.resume(self.consumer.assignment())
        messages: list[confluent_kafka.Message] = []

        def poll() -> None:
            message = self.consumer.poll(0.1)
            if message is not None and message.error() is None:
                messages.append(message)

        wait_until(lambda: len(messages) == count, f"{count} records", between=poll)
        self.consumer.pause(self.consumer.assignment())
        return messages[-1]

    def document(self) -> dict[str, Any]:
        """Return the third document from now on, because documents that librdkafka wrote before are out of date."""
        self.latest.clear()

        def poll() -> None:
            assert self.consumer.poll(0.05) is None

        wait_until(lambda: len(self.latest) >= 3, "statistics", between=poll)
        found: dict[str, Any] = json.loads(self.latest[-1])
        return found

    def partition(self) -> dict[str, Any]:
        """The topic's one partition, once its watermarks are known: librdkafka requests them in the background."""

        def look() -> dict[str, Any] | None:
            shown = self.document()["topics"][self.topic]["partitions"]["0"]
            known = [shown[name] for name in ("lo_offset", "hi_offset", "ls_offset", "fetch_state")]
            return {name: shown[name] for name in FIELDS} if known == [0, RECORDS, RECORDS, "active"] else None

        return wait_until(look, "the watermarks", seen=lambda: self.latest[-1:])

    def coordinator(self) -> dict[str, int]:
        """The number of each request to the coordinator."""
        requests: dict[str, int] = self.document()["brokers"]["GroupCoordinator"]["req"]
        return requests


@contextmanager
def member(kind: str, broker: Broker, topic: str, protocol: str, group: str, **config: str) -> Iterator[Reporter]:
    """A member that runs its automatic commits when it leaves."""
    with consumer_of(kind, broker, topic, protocol, group, **config) as reporter:
        reporter.consumer.subscribe([topic])
        yield reporter


@contextmanager
def consumer_of(kind: str, broker: Broker, topic: str, protocol: str, group: str, **config: str) -> Iterator[Reporter]:
    """A consumer that reports its statistics."""
    latest: list[str] = []
    consumer = CLASSES[kind](
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "600000",
            "statistics.interval.ms": "50",
            "stats_cb": latest.append,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    try:
        yield Reporter(consumer, topic, latest)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def topic(kafka: Broker) -> str:
    """One partition of 1,000 records."""
    made = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, made, RECORDS)
    return made


def automatic(reporter: Reporter) -> list[object]:
    """Offsets are stored as records are returned."""
    shown: list[object] = []
    reporter.records(100)
    shown.append(("100 polled", reporter.partition()))
    reporter.consumer.commit(asynchronous=False)
    shown.append(("committed", reporter.partition()))
    reporter.consumer.seek(Partition(reporter.topic, 0, 500))
    shown.append(("sought", reporter.partition()))
    reporter.records(10)
    shown.append(("10 more", reporter.partition()))
    reporter.consumer.commit(offsets=[Partition(reporter.topic, 0, 50)], asynchronous=False)
    shown.append(("back to 50", reporter.partition()))
    return shown


def by_hand(reporter: Reporter) -> list[object]:
    """`enable.auto.offset.store=false`."""
    shown: list[object] = []
    last = reporter.records(100)
    shown.append(("100 polled", reporter.partition()))
    reporter.consumer.store_offsets(message=last)
    shown.append(("stored", reporter.partition()))
    reporter.consumer.commit(asynchronous=False)
    shown.append(("committed", reporter.partition()))
    return shown


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_statistics_offsets_and_lag_equal_confluent_kafka_s(kafka: Broker, topic: str, protocol: str) -> None:
    """Both clients report the same after 100 of 1,000 records, a commit, a seek and a lower commit.

    The next member of the group also reports the same.
    """
    shown: dict[str, list[object]] = {}
    for kind in CLASSES:
        group = unique("group")
        with member(kind, kafka, topic, protocol, group) as reporter:
            shown[kind] = automatic(reporter)
        with member(kind, kafka, topic, protocol, group) as reporter:
            reporter.records(1)
            shown[kind].append(("successor", reporter.partition()))
    assert shown["ours"] == shown["confluent-kafka"]


def test_statistics_of_manual_offset_store_equal_confluent_kafka_s(kafka: Broker, topic: str) -> None:
    """No record counts as consumed before the application stores its offset."""
    shown: dict[str, list[object]] = {}
    for kind in CLASSES:
        with member(kind, kafka, topic, "consumer", unique("group"), enable_auto_offset_store="false") as reporter:
            shown[kind] = by_hand(reporter)
    assert shown["ours"] == shown["confluent-kafka"]


def test_statistics_of_a_manually_assigned_partition_equal_confluent_kafka_s(kafka: Broker, topic: str) -> None:
    """The partition starts at the committed offset without a membership.

    It does so again after another consumer's commit.
    """
    shown: dict[str, list[object]] = {}
    for kind in CLASSES:
        group = unique("group")
        stored = Partition(topic, 0, confluent_kafka.OFFSET_STORED)
        with consumer_of(kind, kafka, topic, "consumer", group) as reporter:
            reporter.consumer.commit(offsets=[Partition(topic, 0, 40)], asynchronous=False)
            reporter.consumer.assign([stored])
            reporter.records(10)
            shown[kind] = [("10 polled", reporter.partition())]
            reporter.consumer.commit(asynchronous=False)
            shown[kind].append(("committed", reporter.partition()))
            reporter.consumer.unassign()
            with consumer_of(kind, kafka, topic, "consumer", group) as another:
                another.consumer.commit(offsets=[Partition(topic, 0, 70)], asynchronous=False)
            reporter.consumer.assign([stored])
            reporter.records(1)
            shown[kind].append(("assigned again", reporter.partition()))
    assert shown["ours"] == shown["confluent-kafka"]


@pytest.mark.parametrize(
    ("protocol", "requests"),
    [
        ("consumer", ("OffsetFetch", "OffsetCommit")),
        ("classic", ("OffsetFetch", "OffsetCommit", "JoinGroup", "SyncGroup")),
    ],
)
def test_statistics_count_group_requests_as_librdkafka_does(
    kafka: Broker, topic: str, protocol: str, requests: tuple[str, ...]
) -> None:
    """The counts equal librdkafka's in the same fields.

    Heartbeats are also counted, which librdkafka omits under the new protocol.
    """
    shown: dict[str, dict[str, int]] = {}
    for kind in CLASSES:
        with member(kind, kafka, topic, protocol, unique("group")) as reporter:
            reporter.records(1)
            reporter.consumer.commit(asynchronous=False)
            shown[kind] = reporter.coordinator()
            document = reporter.document()
            sent = [sum(broker["req"].values()) for broker in document["brokers"].values()]
            assert document["tx"] == sum(broker["tx"] for broker in document["brokers"].values())
            assert set(document["cgrp"]) == {
                "state",
                "stateage",
                "join_state",
                "rebalance_age",
                "rebalance_cnt",
                "rebalance_reason",
                "assignment_size",
            }
            group = {key: document["cgrp"][key] for key in ("state", "join_state", "rebalance_cnt", "assignment_size")}
            assert group == {"state": "up", "join_state": "steady", "rebalance_cnt": 1, "assignment_size": 1}
            if kind == "ours":
                assert document["tx"] == sum(sent)
    assert {name: shown["ours"][name] for name in requests} == {
        name: shown["confluent-kafka"][name] for name in requests
    }
    assert shown["ours"]["ConsumerGroupHeartbeat" if protocol == "consumer" else "Heartbeat"] > 0
