"""`health()` on a real broker: the verdicts of a consumer that consumes, idles, waits, or stalls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from consumer_membership import Consumer, Health, HealthVerdict, PartitionHealth, TopicPartition, types
from consumer_membership.devbroker import Broker
from consumer_membership.health.progress import PartitionWaitsFor
from consumer_membership.runtime.application import health_monitor
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import FETCH, Proxy
from tests.support.recordings import assert_all_replay
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STUCK_AFTER_MS = 1500
V = HealthVerdict


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample the progress often."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.1)


@pytest.fixture
def topic(kafka: Broker) -> str:
    """A topic with one partition."""
    return create_topic(kafka.bootstrap_servers, unique("health"), 1)


@pytest.fixture
def make(kafka: Broker, tmp_path: Path) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers of a new group."""
    made: list[Consumer] = []

    def consumer(**config: object) -> Consumer:
        settings: dict[str, object] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": unique("group"),
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 200,
            "health.stuck.after.ms": STUCK_AFTER_MS,
            "recorder.directory": str(tmp_path / "recordings"),
        }
        made.append(Consumer(settings | {key.replace("_", "."): value for key, value in config.items()}))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


def until(consumer: Consumer, verdict: HealthVerdict, *, polls: bool = True) -> Health:
    """Poll, or only call `health`, until the consumer's health has this verdict."""
    return health_until(
        consumer,
        lambda health: health.verdict is verdict,
        str(verdict),
        lambda: consumer.poll(0.05) if polls else consumer.membership(),
    )


def health_until(
    consumer: Consumer, condition: Callable[[Health], bool], what: str, between: Callable[[], object]
) -> Health:
    """The first health for which the condition holds."""

    def look() -> Health | None:
        health = consumer.health()
        return health if condition(health) else None

    return wait_until(look, what, between=between, seen=consumer.health)


def of(health: Health, topic: str) -> PartitionHealth:
    """Return its first partition."""
    return health.partitions[types.TopicPartition(topic, 0)]


def transactional(kafka: Broker) -> Producer:
    """A producer that writes in transactions."""
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("writer")})
    writer.init_transactions(PATIENCE_S)
    return writer


def write_in_transaction(writer: Producer, topic: str) -> None:
    """Write a record to partition 0 in a transaction that stays open."""
    writer.begin_transaction()
    writer.produce(topic, b"never committed", partition=0)
    assert writer.flush(PATIENCE_S) == 0


def test_health_of_a_missing_assigned_partition_is_not_idle(topic: str, make: Callable[..., Consumer]) -> None:
    """A missing partition that is manually assigned is reported as the cause, and no restart would help."""
    consumer = make()
    consumer.assign([TopicPartition(topic, 7)])
    found = until(consumer, V.STUCK)
    assert found.why.startswith(f"no records arrive from {topic}-7: waits for {PartitionWaitsFor.END_OFFSET}: ")
    assert not found.would_restart_help


def test_health_follows_a_consumer_from_its_start_to_its_close(
    kafka: Broker, topic: str, make: Callable[..., Consumer]
) -> None:
    """`health` reports each verdict of a consumer that joins, consumes, idles and closes."""
    consumer = make()
    assert consumer.health().verdict is V.STARTING
    consumer.subscribe([topic])
    assert consumer.health().why == "waits for poll to join"
    produce(kafka.bootstrap_servers, topic, 10)
    found = until(consumer, V.CONSUMING)
    while not found.partitions or of(found, topic).position != 10:
        consumer.poll(0.05)
        found = consumer.health()
    found = until(consumer, V.IDLE)
    assert (of(found, topic).position, of(found, topic).lag, found.would_restart_help) == (10, 0, False)
    consumer.close()
    assert consumer.health().verdict is V.CLOSED


def test_health_of_a_paused_consumer_is_paused(kafka: Broker, topic: str, make: Callable[..., Consumer]) -> None:
    """`health` reports PAUSED regardless of how many records are written and how long the pause lasts."""
    consumer = make()
    consumer.subscribe([topic])
    # A member without partitions is also idle.
    while not consumer.assignment():
        consumer.poll(0.05)
    until(consumer, V.IDLE)
    consumer.pause(consumer.assignment())
    found = until(consumer, V.PAUSED)
    produce(kafka.bootstrap_servers, topic, 10)
    assert (of(found, topic).is_paused, of(found, topic).waits_for) == (
        True,
        PartitionWaitsFor.RESUME,
    )


def test_health_names_an_open_transaction_that_blocks_a_partition(
    kafka: Broker, topic: str, make: Callable[..., Consumer], tmp_path: Path
) -> None:
    """The last stable offset identifies the transaction, and no restart would help.

    A recording is written automatically and replays.
    """
    consumer = make()
    consumer.subscribe([topic])
    until(consumer, V.IDLE)
    writer = transactional(kafka)
    write_in_transaction(writer, topic)

    def write_and_poll() -> None:
        produce(kafka.bootstrap_servers, topic, 1)
        consumer.poll(0.05)

    found = health_until(
        consumer,
        lambda health: health.verdict is V.STUCK and of(health, topic).is_held_back,
        "a partition that is held back",
        write_and_poll,
    )
    assert "a transaction is open from offset 0" in found.why
    assert not found.would_restart_help
    while not assert_all_replay(tmp_path / "recordings"):
        consumer.poll(0.05)
    writer.abort_transaction(PATIENCE_S)
    while consumer.health().verdict is V.STUCK:
        consumer.poll(0.05)


def test_health_is_not_stuck_while_only_aborted_transactions_are_read(
    kafka: Broker, topic: str, make: Callable[..., Consumer], tmp_path: Path
) -> None:
    """Two stall limits with only aborted transactions never give the verdict STUCK.

    The position, which decides the verdict, moves past the marker of each, although no record is returned.
    """
    limit_s = 8.0
    consumer = make(health_stuck_after_ms=int(limit_s * 1000))
    consumer.subscribe([topic])
    # A member without partitions is also idle.
    while not consumer.assignment():
        consumer.poll(0.05)
    until(consumer, V.IDLE)
    writer = transactional(kafka)
    # The start, and the times before each move of the position.
    moves, position, was_halted = [time.monotonic()], 0, False
    while moves[-1] - moves[0] < 2 * limit_s:
        looked_at = time.monotonic()
        assert looked_at < moves[-1] + PATIENCE_S
        write_in_transaction(writer, topic)
        writer.abort_transaction(PATIENCE_S)
        assert consumer.poll(0.05) is None
        found, before = consumer.health(), position
        position = of(found, topic).position or 0
        # A transaction that lasts for a whole limit, on a busy machine, does halt the consumer: begin again.
        if time.monotonic() - moves[-1] >= limit_s:
            moves, was_halted = [time.monotonic()], True
            continue
        assert found.verdict is not V.STUCK, (found.why, [round(moved_at - moves[-1], 2) for moved_at in moves[-9:]])
        if position > before:
            moves.append(looked_at)
    assert was_halted or not list((tmp_path / "recordings").glob("*"))
    produce(kafka.bootstrap_servers, topic, 1)
    until(consumer, V.CONSUMING)


def test_health_is_stuck_if_one_partition_is_blocked_while_another_moves(
    kafka: Broker, make: Callable[..., Consumer]
) -> None:
    """The verdict depends on the stalled partition, not on the sum of records."""
    topic = create_topic(kafka.bootstrap_servers, unique("health"), 2)
    consumer = make()
    consumer.subscribe([topic])
    until(consumer, V.IDLE)
    writer = transactional(kafka)
    write_in_transaction(writer, topic)
    moving = types.TopicPartition(topic, 1)

    def write_and_poll() -> None:
        produce(kafka.bootstrap_servers, topic, 2)
        consumer.poll(0.05)

    found = health_until(
        consumer,
        # A busy machine can also delay the other partition's records until it appears stuck.
        lambda health: (
            health.verdict is V.STUCK
            and bool(health.partitions[moving].position)
            and not health.partitions[moving].is_stuck
        ),
        "one partition that is stuck, and one that moves",
        write_and_poll,
    )
    assert found.why.startswith(f"{topic}-0 is stuck at offset 0")
    writer.abort_transaction(PATIENCE_S)


def test_health_of_a_rebalancing_member_needs_no_restart_until_its_deadline(
    kafka: Broker, make: Callable[..., Consumer]
) -> None:
    """A member that must revoke a partition waits for its application's poll.

    Until the deadline no probe restarts it.
    """
    topic, group = create_topic(kafka.bootstrap_servers, unique("health"), 2), unique("group")
    one = make(group_id=group, group_protocol="consumer", max_poll_interval_ms=8000)
    one.subscribe([topic])
    wait_until(lambda: len(one.assignment()) == 2, "two partitions", between=lambda: one.poll(0.05))
    other = make(group_id=group, group_protocol="consumer")
    other.subscribe([topic])
    found = health_until(one, lambda health: health.verdict is V.REBALANCING, "a rebalance", lambda: other.poll(0.05))
    assert (found.is_ready, found.would_restart_help) == (True, False)
    assert found.until is not None
    found = health_until(
        one, lambda health: health.verdict is not V.REBALANCING, "the rebalance's deadline", lambda: other.poll(0.05)
    )
    assert found.verdict is V.NOT_POLLED


def test_health_is_not_polled_before_and_after_max_poll_interval(topic: str, make: Callable[..., Consumer]) -> None:
    """Before the end of max.poll.interval.ms the verdict has that deadline; afterwards a restart may help."""
    consumer = make(max_poll_interval_ms=8000)
    consumer.subscribe([topic])
    until(consumer, V.IDLE)
    found = until(consumer, V.NOT_POLLED, polls=False)
    assert found.until is not None
    assert not found.would_restart_help
    found = health_until(
        consumer, lambda health: health.would_restart_help, "an end of max.poll.interval.ms", consumer.membership
    )
    assert found.verdict is V.NOT_POLLED


def test_health_of_a_cut_network_is_unreachable_without_a_restart(
    kafka: Broker, topic: str, make: Callable[..., Consumer]
) -> None:
    """The verdict is UNREACHABLE while the network is cut, and IDLE after it is back."""
    with Proxy(kafka.bootstrap_servers) as proxy:
        consumer = make(bootstrap_servers=proxy.address, reconnect_backoff_max_ms=300)
        consumer.subscribe([topic])
        until(consumer, V.IDLE)
        proxy.cut()
        found = until(consumer, V.UNREACHABLE)
        assert (found.would_restart_help, found.is_ready) == (False, False)
        proxy.heal()
        until(consumer, V.IDLE)


def test_health_of_a_subscribed_consumer_that_never_polls_needs_no_restart(
    topic: str, make: Callable[..., Consumer]
) -> None:
    """A hot standby blocks no other member, however long it waits; it joins with its first poll."""
    consumer = make(max_poll_interval_ms=2000)
    consumer.subscribe([topic])
    found = until(consumer, V.NOT_POLLED, polls=False)
    assert found.since is not None
    assert (found.until, found.would_restart_help, found.is_ready) == (None, False, False)
    assert found.why.startswith("the application has not polled since it subscribed")
    over = found.since + 2.0
    while time.monotonic() <= over:
        found = consumer.health()
        assert (found.verdict, found.would_restart_help) == (V.NOT_POLLED, False)
    until(consumer, V.IDLE)


def test_health_of_a_silent_fetch_connection_is_unreachable_without_a_restart(
    kafka: Broker, topic: str, make: Callable[..., Consumer]
) -> None:
    """A fetch connection without responses is reported although heartbeats are answered, and names the broker.

    The connection is half-open: librdkafka waits `socket.timeout.ms` for the response.
    """
    with Proxy(kafka.bootstrap_servers) as proxy:
        consumer = make(bootstrap_servers=proxy.address, health_stuck_after_ms=60_000)
        consumer.subscribe([topic])
        produce(kafka.bootstrap_servers, topic, 10)
        until(consumer, V.CONSUMING)
        until(consumer, V.IDLE)
        proxy.silence(frozenset({FETCH}))
        proxy.wait(lambda: proxy.held[FETCH] > 0, "a fetch request without a response")
        produce(kafka.bootstrap_servers, topic, 10)
        found = health_until(
            consumer,
            # The lookup of the partition's end is independent of the verdict, and either can come first.
            lambda health: health.verdict is V.UNREACHABLE and of(health, topic).lag == 10,
            "unreachable, with a lag of 10",
            lambda: consumer.poll(0.05),
        )
        assert (found.would_restart_help, found.is_ready) == (False, False)
        partition = of(found, topic)
        assert (partition.waits_for, partition.is_stuck) == (PartitionWaitsFor.FETCH_RESPONSE, False)
        proxy.heal()
        until(consumer, V.CONSUMING)
