"""The thread that samples partitions: it starts on request, ends with its session, and `health()` is quick."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from consumer_membership import Consumer, HealthVerdict
from consumer_membership.health.progress import AssignmentProgress, PartitionHealth
from consumer_membership.health.verdict import Circumstances, health_of
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.application import health_monitor
from consumer_membership.types import TopicPartition
from tests.support.views import view_of
from tests.support.waiting import PATIENCE_S

NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "group.id": "health", "log_level": 0}


def sampling_threads() -> set[threading.Thread]:
    """Return the threads that sample partitions."""
    return {thread for thread in threading.enumerate() if thread.name == "membership health"}


def test_health_starts_one_thread_that_ends_with_the_consumer() -> None:
    """The first `health()` call of a consumer starts one thread, which ends with the consumer."""
    before = sampling_threads()
    with Consumer(NO_BROKER) as consumer:
        assert sampling_threads() == before
        assert consumer.health().verdict is HealthVerdict.STARTING
        assert consumer.health().would_restart_help is False
        (thread,) = sampling_threads() - before
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert consumer.health().verdict is HealthVerdict.CLOSED
    assert sampling_threads() == before


def test_health_thread_starts_with_the_subscription_if_recordings_are_enabled(tmp_path: object) -> None:
    """A stalled consumer is recorded, whether or not the application calls `health()`."""
    before = sampling_threads()
    with Consumer(NO_BROKER, **{"recorder.directory": str(tmp_path)}) as consumer:
        consumer.subscribe(["orders"])
        assert len(sampling_threads() - before) == 1


def test_health_thread_keeps_no_consumer_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that is dropped without `close` is still garbage-collected, and its thread ends."""
    monkeypatch.setattr(health_monitor, "SAMPLE_INTERVAL_S", 0.01)
    before = sampling_threads()
    consumer = Consumer(NO_BROKER)
    consumer.health()
    (thread,) = sampling_threads() - before
    gone = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert gone() is None
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_health_verdict_does_not_iterate_over_partitions() -> None:
    """The partition data is created when partitions are sampled.

    Then 50,000 verdicts over 1,000 partitions take about a second.
    """
    rests = PartitionHealth(position=7, end=7, lag=0, progressed_at=1.0)
    partitions = {TopicPartition("orders", number): rests for number in range(1_000)}
    circumstances = Circumstances(
        view=view_of(MemberState.STABLE),
        progress=AssignmentProgress(at=1.0, partitions=partitions),
        subscribed_at=0.5,
        is_closed=False,
        polled_at=1.0,
        max_poll_interval_s=300.0,
    )
    assert health_of(2.0, circumstances).partitions is partitions


def test_health_returns_in_microseconds_while_another_thread_polls() -> None:
    """`health()` does not wait for a poll in another thread; the benchmarks measure its time."""
    with Consumer(NO_BROKER) as consumer:
        consumer.health()
        poller = threading.Thread(target=lambda: consumer.poll(1.0))
        poller.start()
        deadline = time.monotonic() + PATIENCE_S
        asked = 0
        while poller.is_alive():
            consumer.health()
            asked += 1
            assert time.monotonic() < deadline
        assert asked > 100
