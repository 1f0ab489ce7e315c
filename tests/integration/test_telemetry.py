"""A broker that receives metrics gets a member's correct values once, as long as it requests them (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from consumer_membership import Consumer
from tests.integration.polls import poll_until
from tests.support.brokers import RunBrokers
from tests.support.kafka import create_topic, produce, unique
from tests.support.telemetry import Receiver, receiver
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

PREFIX = "org.apache.kafka.consumer."
RECORDS = 100
TOTALS = (
    "coordinator.commit.total",
    "coordinator.rebalance.total",
    "coordinator.rebalance.latency.total",
    "fetch.manager.records.consumed.total",
)


@pytest.fixture(scope="module")
def metrics(broker_pool: RunBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """A broker that requests all consumer metrics five times a second."""
    with receiver(broker_pool.own, tmp_path_factory.mktemp("telemetry")) as made:
        made.subscribe("consumers", PREFIX, 200)
        yield made


@pytest.fixture
def topic(metrics: Receiver) -> str:
    """A topic with two partitions and records in them."""
    made = create_topic(metrics.broker.bootstrap_servers, unique("telemetry"), 2)
    produce(metrics.broker.bootstrap_servers, made, RECORDS)
    return made


def member(metrics: Receiver, client_id: str, topic: str, *, is_subscribed: bool = True, **config: object) -> Consumer:
    """A consumer that will join with its first poll."""
    settings: dict[str, object] = {
        "bootstrap.servers": metrics.broker.bootstrap_servers,
        "group.id": unique("group"),
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings | {key.replace("_", "."): value for key, value in config.items()})
    if is_subscribed:
        consumer.subscribe([topic])
    return consumer


def test_telemetry_pushes_correct_values_of_a_member(metrics: Receiver, topic: str) -> None:
    """The pushes of one client instance name group and member and have the values of its work.

    A last push comes at its end.
    """
    client_id = unique("client")
    with member(metrics, client_id, topic, group_instance_id="i", client_rack="r") as consumer:
        read = 0
        while read < RECORDS:
            read += consumer.poll(PATIENCE_S) is not None
        consumer.commit(asynchronous=False)
        name = (f"{PREFIX}coordinator.commit.total",)
        poll_until(
            lambda: any(one.values.get(name, 0.0) >= 1 for one in metrics.pushes(client_id)),
            "a push with the figure",
            consumer,
        )
        poll_until(lambda: len(metrics.pushes(client_id)) >= 5, "five pushes", consumer)
        view = consumer.membership()
        # On a busy machine, there may be another push while the member leaves.
        pushed = metrics.pushes(client_id)[-1]
    wait_until(lambda: metrics.pushes(client_id)[-1].is_last, "the last push")
    *others, last = metrics.pushes(client_id)
    assert (last.is_last, {one.is_last for one in others}) == (True, {False})
    assert len({one.instance_id for one in (*others, last)}) == 1
    assert pushed.scope == "consumer-membership"
    assert pushed.resource == {
        "group_id": view.group_id,
        "group_member_id": view.member_id,
        "group_instance_id": "i",
        "client_rack": "r",
    }
    gauges = {name[0].removeprefix(PREFIX): value for name, value in pushed.values.items()}
    assert gauges["coordinator.assigned.partitions"] == 2.0
    assert gauges["coordinator.rebalance.latency.max"] > 0.0
    assert gauges["coordinator.heartbeat.rate"] > 0.0
    assert gauges["coordinator.commit.latency.avg"] > 0.0
    assert 0.0 <= gauges["poll.idle.ratio.avg"] <= 1.0
    assert gauges["coordinator.failed.rebalance.rate.per.hour"] == 0.0
    assert not any(name.startswith(("coordinator.join", "coordinator.sync")) for name in gauges)
    # The broker requests sums as differences, so the total is the sum over all pushes.
    sums = {name: sum(one.values.get((f"{PREFIX}{name}",), 0.0) for one in (*others, last)) for name in TOTALS}
    assert sums["coordinator.commit.total"] == 1.0
    assert sums["fetch.manager.records.consumed.total"] == RECORDS
    assert sums["coordinator.rebalance.total"] >= 1.0
    assert sums["coordinator.rebalance.latency.total"] > 0.0
    assert {f"{PREFIX}{name}" for name in TOTALS} <= pushed.totals


def test_telemetry_of_a_classic_member_includes_joins_and_syncs(metrics: Receiver, topic: str) -> None:
    """Only classic members push the join and sync metrics."""
    client_id = unique("client")
    names = [f"{PREFIX}coordinator.{of}.{end}" for of in ("join", "sync") for end in ("rate", "time.avg", "time.max")]
    with member(metrics, client_id, topic, group_protocol="classic") as consumer:

        def are_pushed() -> bool:
            """Whether a push after the join has each metric: pushes begin before the join."""
            pushed = metrics.pushes(client_id)
            return bool(pushed) and all(pushed[-1].values.get((name,), 0.0) > 0.0 for name in names)

        poll_until(lambda: len(consumer.assignment()) == 2, "two partitions", consumer)
        poll_until(are_pushed, "a push with the join and the sync", consumer, seen=lambda: metrics.pushes(client_id))
        pushed = metrics.pushes(client_id)
    for of in ("join", "sync"):
        assert sum(one.values.get((f"{PREFIX}coordinator.{of}.total",), 0.0) for one in pushed) == 1.0


def test_telemetry_is_not_pushed_with_enable_metrics_push_false(metrics: Receiver, topic: str) -> None:
    """Neither the membership nor librdkafka's handle pushes metrics."""
    silent, other = unique("silent"), unique("other")
    with (
        member(metrics, silent, topic, enable_metrics_push=False) as quiet,
        member(metrics, other, topic) as consumer,
    ):
        poll_until(lambda: len(quiet.assignment()) == 2, "two partitions", quiet)
        poll_until(lambda: len(metrics.pushes(other)) >= 5, "five pushes of the other", consumer)
    assert metrics.pushes(silent) == []


def test_telemetry_of_a_manually_assigned_consumer_starts_with_its_first_commit(metrics: Receiver, topic: str) -> None:
    """Pushes use the membership's connections, which a consumer opens with its first commit."""
    quiet_id, client_id = unique("quiet"), unique("client")
    with (
        member(metrics, quiet_id, topic, is_subscribed=False) as quiet,
        member(metrics, client_id, topic, is_subscribed=False) as consumer,
    ):
        for one in (quiet, consumer):
            one.assign([TopicPartition(topic, number, 0) for number in range(2)])
            assert one.poll(PATIENCE_S) is not None
        consumer.commit(asynchronous=False)
        poll_until(lambda: len(metrics.pushes(client_id)) >= 3, "three pushes", consumer)
    records = (f"{PREFIX}fetch.manager.records.consumed.total",)
    assert sum(one.values.get(records, 0.0) for one in metrics.pushes(client_id)) >= 1.0
    assert metrics.pushes(quiet_id) == []


def test_telemetry_follows_a_changed_metrics_subscription(metrics: Receiver, topic: str) -> None:
    """The broker refuses a push under the old subscription.

    Then the same client instance pushes only the requested metrics.
    """
    client_id, name = unique("client"), f"{PREFIX}coordinator.assigned"
    with member(metrics, client_id, topic) as consumer:
        poll_until(lambda: len(metrics.pushes(client_id)) >= 2, "two pushes", consumer)
        metrics.subscribe("consumers", name, 200)
        try:
            poll_until(
                lambda: set(metrics.pushes(client_id)[-1].values) == {(f"{name}.partitions",)},
                "a push of what was asked for alone",
                consumer,
            )
        finally:
            metrics.subscribe("consumers", PREFIX, 200)
    assert len({one.instance_id for one in metrics.pushes(client_id)}) == 1
