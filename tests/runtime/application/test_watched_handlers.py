"""A consumer with a processor that reports its handlers: health, probes, metrics, events and recordings."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from queue import Queue
from time import monotonic
from types import MappingProxyType

import pytest

from consumer_membership import Consumer, HealthVerdict, LifecycleEvent, LifecycleKind
from consumer_membership.health.handlers import (
    HandlerHealth,
    HandlersDisowned,
    RecordDeadLettered,
    RunningHandler,
)
from consumer_membership.metrics.handler_ledger import HandlerGauges, HandlerLedger
from consumer_membership.recorder.recording import read
from consumer_membership.runtime.application import health_monitor
from consumer_membership.runtime.probes import thread
from consumer_membership.types import Instant, TopicPartition
from tests.runtime.probes.watched import ask
from tests.support.waiting import PATIENCE_S, wait_until

NO_BROKER: Mapping[str, object] = MappingProxyType(
    {"bootstrap.servers": "127.0.0.1:1", "group.id": "handlers", "log_level": 0}
)
ADDRESS = "127.0.0.1:0"
P0 = TopicPartition("orders", 0)


class Handlers:
    """The handlers of a processor whose state the test sets."""

    def __init__(self, consumer: Consumer) -> None:
        self.state = HandlerHealth()
        self.ledger = HandlerLedger(lambda _: HandlerGauges(lanes=3))
        consumer._observer.watch_handlers(self.health, self.ledger)

    def health(self, now: Instant) -> HandlerHealth:
        """Return the state that the test set, as of now."""
        stuck = tuple(replace(one, deadline=now - 1) for one in self.state.stuck)
        return replace(self.state, stuck=stuck)

    def hang(self) -> None:
        """Let a handler exceed its timeout."""
        hanging = RunningHandler(
            partition=P0, offset=42, key=b"secret", attempt=1, began_at=monotonic(), deadline=monotonic()
        )
        self.state = HandlerHealth(stuck=(hanging,))

    def fail(self) -> None:
        """Let the processor fail."""
        self.state = HandlerHealth(failure="orders-0 offset 42 failed 5 times: ValueError", failed_at=monotonic())


def test_health_and_metrics_include_watched_handlers() -> None:
    """A consumer without a processor has no handlers in its health and metrics; one with a processor has both."""
    with Consumer(dict(NO_BROKER)) as consumer:
        assert consumer.health().handlers is None
        assert consumer.metrics().handlers is None
        handlers = Handlers(consumer)
        assert consumer.health().handlers == HandlerHealth()
        counts = consumer.metrics().handlers
        assert counts is not None
        assert counts.now == HandlerGauges(lanes=3)
        handlers.hang()
        assert (consumer.health().verdict, consumer.health().would_restart_help) == (HealthVerdict.STUCK, True)


def test_livez_fails_while_a_handler_is_stuck_and_health_shows_its_record() -> None:
    """A liveness probe restarts a process whose handler cannot be ended, and no other process."""
    with Consumer({**NO_BROKER, "health.http.address": ADDRESS}) as consumer:
        handlers = Handlers(consumer)
        at = thread.THIS_PROCESS.probes.served()[ADDRESS]
        assert ask(at, "/livez")[0] == 200
        handlers.hang()
        status, text, _ = ask(at, "/livez")
        assert status == 503
        assert "stuck" in text
        assert "orders-0 offset 42" in text
        (shown,) = json.loads(ask(at, "/health")[1])["consumers"]
        assert [(one["offset"], one["key"]) for one in shown["stuck_handlers"]] == [(42, "secret")]
        handlers.state = HandlerHealth()
        assert ask(at, "/livez")[0] == 200


def test_probes_report_a_failed_processor_until_it_is_dropped() -> None:
    """A failed processor closes its consumer, but the process must not look healthy afterwards."""
    consumer = Consumer({**NO_BROKER, "health.http.address": ADDRESS})
    at = thread.THIS_PROCESS.probes.served()[ADDRESS]
    handlers = Handlers(consumer)
    handlers.fail()
    consumer.close()
    status, text, _ = ask(at, "/livez")
    assert status == 503
    assert "fatal" in text
    assert "orders-0 offset 42 failed 5 times" in text
    assert consumer.health().verdict is HealthVerdict.FATAL
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    thread.THIS_PROCESS.probes.ring()  # otherwise the thread notices the end within a minute
    wait_until(lambda: ADDRESS not in thread.THIS_PROCESS.probes.served(), "the end of the address")


def test_next_consumer_of_the_group_replaces_a_failed_processor_in_probes() -> None:
    """The program has continued with another processor, although the failed one is not garbage-collected yet."""
    config: dict[str, object] = {**NO_BROKER, "health.http.address": ADDRESS}
    failed = Consumer(config)
    at = thread.THIS_PROCESS.probes.served()[ADDRESS]
    Handlers(failed).fail()
    failed.close()
    with Consumer({**config, "group.id": "another"}):
        assert ask(at, "/livez")[0] == 503
        with Consumer(config):
            assert ask(at, "/livez")[0] == 200


def test_watched_handlers_keep_no_consumer_alive() -> None:
    """A consumer that is dropped without `close` is garbage-collected, although the thread's parts hold the source."""
    consumer = Consumer(dict(NO_BROKER))
    handlers = Handlers(consumer)
    consumer.health()
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    assert handlers.state == HandlerHealth()


def test_events_report_stuck_handlers_dead_letters_and_disowned_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts about the processor and samples of its handlers become events of the consumer, up to its close."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.01)
    events: Queue[LifecycleEvent] = Queue()
    consumer = Consumer(dict(NO_BROKER))
    handlers = Handlers(consumer)
    consumer.on_event(events.put)
    handlers.hang()
    stuck = events.get(timeout=PATIENCE_S)
    assert (stuck.kind, stuck.records) == (LifecycleKind.STUCK, (("orders", 0, 42),))
    handlers.state = HandlerHealth()
    assert events.get(timeout=PATIENCE_S).kind is LifecycleKind.RECOVERED
    consumer._observer.on_handlers(RecordDeadLettered(partition=P0, offset=42, attempts=3, error="ValueError"))
    assert events.get(timeout=PATIENCE_S).kind is LifecycleKind.DEAD_LETTERED
    consumer._observer.on_handlers(HandlersDisowned(offsets={P0: (43,)}, is_loss=True))
    assert events.get(timeout=PATIENCE_S).kind is LifecycleKind.DISOWNED
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", PATIENCE_S)
    handlers.fail()
    consumer.close()
    assert [events.get(timeout=PATIENCE_S).kind for _ in range(2)] == [LifecycleKind.FATAL, LifecycleKind.CLOSED]


def test_recordings_contain_facts_of_handlers_and_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recording of a stuck handler names its record without the key, and has the facts of the processor."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.01)
    with Consumer({**NO_BROKER, "recorder.directory": str(tmp_path)}) as consumer:
        handlers = Handlers(consumer)
        fact = RecordDeadLettered(partition=P0, offset=41, attempts=3, error="ValueError")
        consumer._observer.on_handlers(fact)
        handlers.hang()
        consumer.health()
        wait_until(lambda: [*tmp_path.glob("*.gz")], "a recording")
    (path,) = tmp_path.iterdir()
    recording = read(path)
    assert recording.cause == "stuck: handlers exceeded handler_timeout: orders-0 offset 42"
    assert [one.fact for one in recording.handlers] == [fact]
    assert b"secret" not in path.read_bytes()
