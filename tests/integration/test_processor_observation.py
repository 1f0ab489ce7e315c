"""What operators see of a `Processor` on a real broker: health, probes, metrics, events and recordings."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Queue

import pytest
import tenacity
from confluent_kafka import KafkaException

from consumer_membership import HealthVerdict, LifecycleEvent, LifecycleKind, PartitionWaitsFor
from consumer_membership.config.settings import ListenAddress
from consumer_membership.devbroker import Broker
from consumer_membership.devbroker.tcp_ports import LOOPBACK, draw_ports
from consumer_membership.errors import HandlerError
from consumer_membership.health.handlers import RecordDeadLettered
from consumer_membership.metrics.handler_ledger import HandlerCounts
from consumer_membership.recorder.recording import read
from consumer_membership.types import TopicPartition
from tests.integration.processors import Handled, Run, running
from tests.runtime.probes.watched import ask
from tests.support.kafka import create_topic, produce, unique
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ONE_ATTEMPT = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))


def next_of(events: Queue[LifecycleEvent], kind: LifecycleKind) -> LifecycleEvent:
    """Return the next event of this kind."""
    while (event := events.get(timeout=PATIENCE_S)).kind is not kind:
        pass
    return event


def probe_at() -> tuple[str, dict[str, object]]:
    """Return a free address for probes, and the configuration with it."""
    (port,) = draw_ports(1)
    return f"{LOOPBACK}:{port}", {"health.http.address": f"{LOOPBACK}:{port}"}


def probed(address: str, path: str) -> tuple[int, str]:
    """Return the status and the body of a probe."""
    host, _, port = address.rpartition(":")
    return ask(ListenAddress(host=host, port=int(port)), path)[:2]


def test_handler_that_cannot_be_ended_fails_the_liveness_probe_also_after_the_run(kafka: Broker) -> None:
    """The probes name record, key and line while the thread hangs, and the failure afterwards; events report both."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("t")), unique("g")
    # No other record: on a busy machine its handler could also exceed its time.
    produce(kafka.bootstrap_servers, topic, [("customer-7", "0")])
    address, config = probe_at()
    handled = Handled()
    handled.hold("0")
    events: Queue[LifecycleEvent] = Queue()
    run = Run(
        kafka.bootstrap_servers,
        topic,
        group,
        handled,
        config,
        handler_timeout=0.5,
        grace_period=0.2,
        retry=ONE_ATTEMPT,
    )
    run.processor.on_event(events.put)
    assert isinstance(run.join(), HandlerError)
    status, text = probed(address, "/livez")
    assert status == 503
    assert f"a handler exceeded handler_timeout: {topic}-0 offset 0, key customer-7, attempt 1" in text
    assert "in wait" in text
    assert "the processor ends" in text
    (shown,) = json.loads(probed(address, "/health")[1])["consumers"]
    (stuck,) = shown["stuck_handlers"]
    assert (stuck["topic"], stuck["partition"], stuck["offset"], stuck["key"]) == (topic, 0, 0, "customer-7")
    assert any("processors.py" in line for line in stuck["stack"])
    assert next_of(events, LifecycleKind.FATAL).cause.startswith("the handler for offset 0")
    assert next_of(events, LifecycleKind.CLOSED)
    handled.release()
    wait_until(
        lambda: run.processor.health().verdict is HealthVerdict.FATAL,
        "the end of the handler",
        seen=run.processor.health,
    )
    assert probed(address, "/livez")[0] == 503


def test_partition_behind_a_slow_handler_waits_for_it_and_is_not_stuck(kafka: Broker) -> None:
    """A full partition is paused by the processor: the consumer works, and its health names the oldest record."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("t")), unique("g")
    produce(kafka.bootstrap_servers, topic, [("hot", str(n)) for n in range(2000)])
    handled = Handled()
    handled.hold("3")
    config: dict[str, object] = {"health.stuck.after.ms": 1000}
    place = TopicPartition(topic, 0)
    with running(Run(kafka.bootstrap_servers, topic, group, handled, config, max_queued=10)) as run:

        def is_held() -> bool:
            seen = run.processor.health().partitions.get(place)
            return seen is not None and seen.waits_for is PartitionWaitsFor.HANDLER

        handled.wait_for_begin("3")
        wait_until(is_held, "a partition that waits for its handler", seen=run.processor.health)
        health = run.processor.health()
        assert health.verdict is HealthVerdict.CONSUMING
        seen = health.partitions[place]
        assert (seen.is_paused, seen.is_stuck) == (False, False)
        assert seen.oldest_unfinished is not None
        assert (seen.oldest_unfinished.offset, seen.oldest_unfinished.attempt) == (3, 1)
        progress = run.processor.progress()
        assert progress.partitions[place].oldest_unfinished == seen.oldest_unfinished
        assert f"oldest {topic}-0 offset 3 for" in progress.line()
        handled.release()
        handled.wait_for_end("1999")


def test_dead_letters_are_counted_reported_and_recorded(kafka: Broker, tmp_path: Path) -> None:
    """Metrics, the probe's page of metrics, an event and the recording have each dead letter, without its contents."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("t")), unique("g")
    produce(kafka.bootstrap_servers, topic, [(f"k{n}", str(n)) for n in range(20)])
    address, config = probe_at()
    handled = Handled()
    handled.hold("7")
    handled.fail("7", lambda: ValueError("secret contents"))
    events: Queue[LifecycleEvent] = Queue()
    dead: list[object] = []
    run = Run(
        kafka.bootstrap_servers,
        topic,
        group,
        handled,
        config,
        dead_letter=lambda record, error, attempts: dead.append((record.offset(), type(error), attempts)),
        retry=tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none()),
    )
    with running(run):
        run.processor.on_event(events.put)
        handled.release()
        event = next_of(events, LifecycleKind.DEAD_LETTERED)
        assert (event.records, event.cause) == (((topic, 0, 7),), "dead-lettered 1 record (ValueError: 1)")
        handled.wait_for(lambda: len(handled.ended) == 19, "all other records")

        def counts() -> HandlerCounts:
            found = run.processor.metrics().handlers
            assert found is not None
            return found

        wait_until(lambda: (counts().finished, counts().now.lanes) == (20, 0), "the end of all records", seen=counts)
        last = counts()
        assert (last.finished, last.retries, last.dead_letters, last.skipped) == (20, 2, 1, 0)
        assert last.failures == {"ValueError": 3}
        assert (last.handler_time.count, last.queue_time.count) == (22, 20)
        lines = probed(address, "/metrics")[1].splitlines()
        assert any(
            line.startswith("kafka_consumer_handler_dead_letters_total{") and line.endswith(" 1.0") for line in lines
        )
        recording = read(run.processor._engine.consumer.dump(tmp_path))
    assert dead == [(7, ValueError, 3)]
    (entry,) = recording.handlers
    assert entry.fact == RecordDeadLettered(
        partition=TopicPartition(topic, 0), offset=7, attempts=3, error="ValueError"
    )


def test_records_in_hand_at_the_end_of_a_drain_are_reported(kafka: Broker) -> None:
    """A handler that outlasts drain.timeout.ms is disowned: the event has its record, which runs again elsewhere."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("t"), 2), unique("g")
    produce(kafka.bootstrap_servers, topic, [("a", "0"), ("b", "1")])
    first, second = Handled(), Handled()
    first.hold("0", "1")
    events: Queue[LifecycleEvent] = Queue()
    with running(Run(kafka.bootstrap_servers, topic, group, first, {"drain.timeout.ms": 200})) as one:
        one.processor.on_event(events.put)
        first.wait_for_begin("0", "1")
        with running(Run(kafka.bootstrap_servers, topic, group, second)):
            disowned = next_of(events, LifecycleKind.DISOWNED)
            second.wait_for(lambda: bool(second.ended), "a record of the second member")
            # The group may swap the partitions.
            moved = second.contexts[second.ended[0]].partition
            assert (*moved, 0) in disowned.records
            assert moved in disowned.partitions
            first.release()


def test_records_in_hand_when_the_session_is_lost_are_reported(kafka: Broker) -> None:
    """A newer member with the same instance id takes the place: what runs at this moment is reported, not committed."""
    topic, group = create_topic(kafka.bootstrap_servers, unique("t")), unique("g")
    produce(kafka.bootstrap_servers, topic, [("a", "0"), ("a", "1")])
    first, second = Handled(), Handled()
    first.hold("0")
    config: dict[str, object] = {"group.instance.id": "a"}
    events: Queue[LifecycleEvent] = Queue()
    one = Run(kafka.bootstrap_servers, topic, group, first, config)
    one.processor.on_event(events.put)
    first.wait_for_begin("0")
    with running(Run(kafka.bootstrap_servers, topic, group, second, config)):
        disowned = next_of(events, LifecycleKind.DISOWNED)
        assert disowned.records == ((topic, 0, 0),)
        assert disowned.cause.startswith("the partitions were lost while the handlers ran")
        assert not first.contexts["0"].is_current
        second.wait_for_end("0", "1")
        first.release()
        assert isinstance(one.join(), KafkaException)
        health = one.processor.health()
        assert (health.verdict, health.would_restart_help) == (HealthVerdict.CLOSED, False)
