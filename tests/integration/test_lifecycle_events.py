"""`on_event` on a real broker: the events of a member that joins, shares, is fenced, is cut off, and stalls."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from consumer_membership import Consumer, LifecycleEvent, LifecycleKind
from consumer_membership.devbroker import Broker
from consumer_membership.runtime.application import health_monitor
from tests.integration.polls import poll_until
from tests.support.kafka import create_topic, produce, unique
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

K = LifecycleKind


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample the progress often."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.1)


class Hearing:
    """A consumer and the events that its callback gets."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.events: list[LifecycleEvent] = []
        consumer.on_event(self.events.append)

    @property
    def kinds(self) -> list[LifecycleKind]:
        """The kinds of the events so far."""
        return [event.kind for event in self.events]

    def last(self, kind: LifecycleKind) -> LifecycleEvent:
        """The latest event of this kind."""
        return [event for event in self.events if event.kind is kind][-1]


MakeHearing = Callable[..., Hearing]


@pytest.fixture
def group(kafka: Broker) -> Iterator[MakeHearing]:
    """Makes consumers of a new group, each with a callback."""
    made: list[Hearing] = []
    group_id = unique("group")

    def make(**config: object) -> Hearing:
        settings: dict[str, object] = {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            # On a busy machine a partition's end can be unknown for seconds, which is also an event then.
            "health.stuck.after.ms": 600_000,
        }
        hearing = Hearing(Consumer(settings | {key.replace("_", "."): value for key, value in config.items()}))
        made.append(hearing)
        return hearing

    yield make
    for hearing in made:
        hearing.consumer.close()


def poll_all_until(is_so: Callable[[], bool], what: str, *hearings: Hearing) -> None:
    """Poll all consumers in turn until the condition holds."""
    consumers = [hearing.consumer for hearing in hearings]
    poll_until(is_so, what, *consumers, seen=lambda: [hearing.events for hearing in hearings])


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_on_event_reports_each_member_s_partitions_and_end_in_order(
    kafka: Broker, group: MakeHearing, protocol: str
) -> None:
    """Each member gets events of its own partitions in order, with its epochs, and of its end."""
    topic = create_topic(kafka.bootstrap_servers, unique("events"), 2)
    settings: dict[str, object] = {"group_protocol": protocol, "heartbeat_interval_ms": 200}
    if protocol == "classic":
        settings |= {"partition_assignment_strategy": "cooperative-sticky"}
    first = group(**settings)
    first.consumer.subscribe([topic])
    poll_all_until(lambda: K.ASSIGNED in first.kinds, "the first assignment", first)
    assert first.kinds == [K.JOINED, K.ASSIGNED]
    joined, assigned = first.events
    assert [tuple(partition) for partition in assigned.partitions] == [(topic, 0), (topic, 1)]
    assert (assigned.member_id, assigned.epoch) == (first.consumer.memberid(), first.consumer.generation())
    assert joined.at <= assigned.at <= time.monotonic()
    assert abs(assigned.timestamp - time.time()) < PATIENCE_S

    second = group(**settings)
    second.consumer.subscribe([topic])
    # Each consumer calls its callbacks on its own thread.
    poll_all_until(
        lambda: K.REVOKED in first.kinds and K.ASSIGNED in second.kinds, "the second assignment", first, second
    )
    assert first.kinds == [K.JOINED, K.ASSIGNED, K.REVOKED]
    assert second.kinds == [K.JOINED, K.ASSIGNED]
    assert first.last(K.REVOKED).partitions == second.last(K.ASSIGNED).partitions
    assert second.last(K.ASSIGNED).epoch > assigned.epoch

    second.consumer.close()
    poll_all_until(lambda: K.CLOSED in second.kinds and first.kinds[-1] is K.ASSIGNED, "the second one's end", first)
    assert second.kinds == [K.JOINED, K.ASSIGNED, K.REVOKED, K.LEFT, K.CLOSED]
    assert first.last(K.ASSIGNED).partitions == second.last(K.REVOKED).partitions


def test_on_event_reports_a_takeover_to_both_holders(kafka: Broker, group: MakeHearing) -> None:
    """The newer holder takes the place over; the older holder is fenced and ends.

    A heartbeat of the older holder between its release and the newer one's join is fenced by its epoch: then the loss
    comes first, and the join after it is refused.
    """
    topic = create_topic(kafka.bootstrap_servers, unique("events"), 1)
    settings: dict[str, object] = {
        "group_protocol": "consumer",
        "group_instance_id": unique("i"),
        "heartbeat_interval_ms": 200,
    }
    older = group(**settings)
    older.consumer.subscribe([topic])
    poll_all_until(lambda: K.ASSIGNED in older.kinds, "the older one's assignment", older)
    newer = group(**settings)
    newer.consumer.subscribe([topic])
    poll_all_until(lambda: K.ASSIGNED in newer.kinds, "the newer one's assignment", older, newer)
    poll_all_until(lambda: {K.FATAL, K.LOST} <= {*older.kinds}, "the older one's end", older, newer)
    assert newer.kinds == [K.TAKEOVER, K.JOINED, K.ASSIGNED]
    assert older.events[0].member_id in newer.events[0].cause
    assert older.kinds[:3] == [K.JOINED, K.ASSIGNED, K.FENCED]
    assert {*older.kinds[3:]} <= {K.FENCED, K.FATAL, K.LOST}
    assert older.last(K.LOST).partitions == newer.last(K.ASSIGNED).partitions


def test_on_event_reports_a_cut_network_although_a_callback_blocks(kafka: Broker, group: MakeHearing) -> None:
    """Events report the cut and the return of the network. A callback that never returns delays no heartbeat."""
    topic = create_topic(kafka.bootstrap_servers, unique("events"), 1)
    is_over = threading.Event()
    with Proxy(kafka.bootstrap_servers) as proxy:
        hearing = group(
            bootstrap_servers=proxy.address,
            group_protocol="consumer",
            heartbeat_interval_ms=200,
            reconnect_backoff_max_ms=300,
        )
        hearing.consumer.subscribe([topic])
        poll_all_until(lambda: K.ASSIGNED in hearing.kinds, "an assignment", hearing)
        proxy.cut()
        poll_all_until(lambda: K.HEARTBEAT_SILENCE in hearing.kinds, "silence", hearing)
        assert "no heartbeat response" in hearing.last(K.HEARTBEAT_SILENCE).cause
        hearing.consumer.on_event(lambda _: is_over.wait(PATIENCE_S))
        proxy.heal()
        poll_all_until(lambda: K.HEARTBEATS_RESUMED in hearing.kinds, "the end of the silence", hearing)
        heard_at = hearing.consumer.membership().last_heartbeat_at or 0.0
        poll_all_until(
            lambda: (hearing.consumer.membership().last_heartbeat_at or 0.0) > heard_at + 2.0,
            "two seconds of heartbeats",
            hearing,
        )
        assert hearing.kinds == [K.JOINED, K.ASSIGNED, K.HEARTBEAT_SILENCE, K.HEARTBEATS_RESUMED]
        hearing.consumer.close()
    is_over.set()


def test_unclosed_consumer_is_collected_although_its_event_callback_refers_to_it(kafka: Broker) -> None:
    """Its threads keep neither consumer nor callback alive. The place of an unclosed consumer ends with its session."""
    topic = create_topic(kafka.bootstrap_servers, unique("events"), 1)

    def dropped() -> weakref.ref[Consumer]:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("group")})
        is_assigned = threading.Event()

        def note(event: LifecycleEvent) -> None:
            if event.kind is K.ASSIGNED and consumer.assignment():
                is_assigned.set()

        consumer.on_event(note)
        consumer.subscribe([topic])
        poll_until(is_assigned.is_set, "an assignment", consumer)
        return weakref.ref(consumer)

    gone = dropped()
    # A thread may still be returning from a call.
    wait_until(lambda: gone() is None, "the end of the consumer", between=gc.collect)


def test_on_event_reports_a_stuck_partition_with_its_cause_and_its_recovery(kafka: Broker, group: MakeHearing) -> None:
    """An open transaction causes an event with the partition and the cause; no other event reports it."""
    topic = create_topic(kafka.bootstrap_servers, unique("events"), 1)
    hearing = group(group_protocol="consumer", heartbeat_interval_ms=200, health_stuck_after_ms=3000)
    hearing.consumer.subscribe([topic])
    poll_all_until(lambda: K.ASSIGNED in hearing.kinds, "an assignment", hearing)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("writer")})
    writer.init_transactions(PATIENCE_S)
    writer.begin_transaction()
    writer.produce(topic, b"never committed", partition=0)
    assert writer.flush(PATIENCE_S) == 0
    looks = iter(range(10_000))

    def is_stuck() -> bool:
        if next(looks) % 20 == 0:
            produce(kafka.bootstrap_servers, topic, 1)
        return K.STUCK in hearing.kinds

    poll_all_until(is_stuck, "a stuck partition", hearing)
    assert [tuple(partition) for partition in hearing.last(K.STUCK).partitions] == [(topic, 0)]
    assert "waits for" in hearing.last(K.STUCK).cause
    writer.abort_transaction(PATIENCE_S)
    poll_all_until(lambda: K.RECOVERED in hearing.kinds, "the recovery", hearing)
    assert hearing.kinds == [K.JOINED, K.ASSIGNED, K.STUCK, K.RECOVERED]
    assert hearing.last(K.RECOVERED).partitions == hearing.last(K.STUCK).partitions
