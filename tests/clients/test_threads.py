"""Calls from other threads during a poll get through within a slice and never deadlock."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.membership.events import LeaveRequested, StepFinished
from consumer_membership.types import TopicPartition
from tests.clients.application import record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

#: Longer than tests wait for a concurrent call: a poll that keeps the handle to its end fails the test.
LONG_POLL_S = 3 * PATIENCE_S

CALLS: dict[str, Callable[[Consumer, str], object]] = {
    "commit": lambda c, t: c.commit(offsets=[PartitionOffset(t, 0, 1)], asynchronous=False),
    "commit positions": lambda c, _: c.commit(asynchronous=False),
    "store_offsets": lambda c, t: c.store_offsets(offsets=[PartitionOffset(t, 0, 1)]),
    "pause": lambda c, t: c.pause([PartitionOffset(t, 0)]),
    "resume": lambda c, t: c.resume([PartitionOffset(t, 0)]),
    "seek": lambda c, t: c.seek(PartitionOffset(t, 0, 1)),
    "position": lambda c, t: c.position([PartitionOffset(t, 0)]),
    "assignment": lambda c, _: c.assignment(),
    "committed": lambda c, t: c.committed([PartitionOffset(t, 0)], 10),
    "watermarks": lambda c, t: c.get_watermark_offsets(PartitionOffset(t, 0), 10),
    "list_topics": lambda c, t: c.list_topics(t, 10),
    "membership": lambda c, _: c.membership(),
    "metadata": lambda c, _: c.consumer_group_metadata(),
    "subscribe": lambda c, t: c.subscribe([t, "another"]),
    "unsubscribe": lambda c, _: c.unsubscribe(),
    "close": lambda c, _: c.close(),
}


def idle_poll(consumer: ScriptedConsumer) -> Thread:
    """A thread in a long poll of a consumer that received one record of a partition and buffers the rest."""
    consumer.consume(RECORDS - 1, PATIENCE_S)
    turns = consumer.member.progress()[0]
    polling = Thread(lambda: consumer.poll(LONG_POLL_S))
    wait_until(lambda: consumer.member.progress()[0] >= turns + 2, "a poll that lets the handle go")
    return polling


@pytest.mark.parametrize("name", CALLS)
def test_call_completes_while_another_thread_polls(consumers: ConsumerFactory, topic: str, name: str) -> None:
    """The polling thread releases the handle between slices, and the waiting thread goes first."""
    consumer = consumers(enable_auto_offset_store=name != "store_offsets")
    consumer.subscribe([topic])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    polling = idle_poll(consumer)
    Thread(lambda: CALLS[name](consumer, topic)).outcome()
    consumer.close()
    polling.outcome()


@pytest.mark.parametrize("name", ["commit", "commit positions", "committed", "pause", "seek", "position"])
def test_callback_may_wait_for_a_worker_that_calls_the_consumer(
    consumers: ConsumerFactory, topic: str, name: str
) -> None:
    """In a common shutdown of a worker pool, on_revoke waits until the workers have committed."""

    def wait_for_worker(called: str, given: Consumer) -> None:
        if called == "revoke":
            Thread(lambda: CALLS[name](given, topic)).outcome()

    consumer = subscribed(consumers, topic, [], wait_for_worker)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    consumer.member.pause(None)
    consumer.member.revoke(None)
    Thread(lambda: consumer.poll(0)).outcome()
    assert consumer.member.steps[-1].failed is False


@pytest.mark.parametrize("name", ["commit", "commit positions", "committed", "pause", "seek", "position", "assignment"])
def test_call_in_a_signal_handler_during_a_poll_does_not_deadlock(
    consumers: ConsumerFactory, topic: str, name: str
) -> None:
    """The handler runs on the polling thread itself and must not wait for it."""
    consumer = consumers()
    consumer.subscribe([topic])
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    consumer.consume(RECORDS - 1, PATIENCE_S)
    handled: list[object] = []

    def poll_until_handled(count: int) -> None:
        wait_until(lambda: len(handled) >= count, "the end of the handler", between=lambda: consumer.poll(0.02))

    before = signal.signal(signal.SIGUSR1, lambda _, __: handled.append(CALLS[name](consumer, topic)))
    main = threading.main_thread().ident or 0
    try:
        for turn in range(1, 6):
            if name == "commit positions":  # so that there is something to commit each time
                consumer._use().commits.book.forget([TopicPartition(topic, 0)])
            timer = threading.Timer(0.01 * turn, lambda: signal.pthread_kill(main, signal.SIGUSR1))
            timer.start()
            poll_until_handled(turn)
            timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_poll_by_another_thread_during_a_callback_performs_no_step(consumers: ConsumerFactory, topic: str) -> None:
    """Callbacks run one at a time. Another thread's poll meanwhile returns records of retained partitions, or waits."""
    running = threading.Event()
    end = threading.Event()
    most = [0, 0]

    def slow(_: str, __: Consumer) -> None:
        most[0] += 1
        most[1] = max(most)
        running.set()
        assert end.wait(PATIENCE_S)
        most[0] -= 1

    consumer = subscribed(consumers, topic, [], slow)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    first = Thread(lambda: consumer.poll(0))
    assert running.wait(PATIENCE_S)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    assert Thread(lambda: consumer.poll(0.1)).outcome() is None
    assert len(consumer.member.steps) == 0
    end.set()
    first.outcome()
    consumer.poll(0)
    assert most[1] == 1


def test_two_threads_that_poll_get_every_record_once(consumers: ConsumerFactory, topic: str) -> None:
    """The hot path takes no lock; the two threads together receive each record once."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, partition, 0) for partition in range(4)])
    seen: list[tuple[int | None, int | None]] = []

    def read() -> None:
        while len(seen) < 4 * RECORDS:
            message = consumer.poll(0.05)
            if message is not None:
                seen.append((message.partition(), message.offset()))

    for thread in [Thread(read) for _ in range(3)]:
        thread.outcome()
    assert sorted(seen) == [(partition, value) for partition in range(4) for value in range(RECORDS)]


def test_consume_returns_records_that_another_thread_buffered_while_it_waited(
    consumers: ConsumerFactory, topic: str
) -> None:
    """The other thread may buffer more records than this call wants, so that nothing is left to fetch."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    delivery = consumer._use()._delivery
    lock = delivery._lock
    seen: list[int | None] = []

    def is_waited_for() -> bool:
        if is_free := lock._entry.acquire(blocking=False):
            lock._entry.release()
        return not is_free

    with lock:
        consuming = Thread(lambda: seen.extend(message.offset() for message in consumer.consume(2, PATIENCE_S)))
        wait_until(is_waited_for, "a call that waits for the handle")
        wait_until(lambda: len(delivery.buffer.ready) > 2, "records", between=lambda: delivery.fetcher.fill(0.05))
    consuming.outcome()
    assert seen == [0, 1]


def test_pause_during_a_busy_poll_keeps_all_records_in_order(consumers: ConsumerFactory, topic: str) -> None:
    """A worker removes records from the buffer while the hot path reads from it."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, partition, 0) for partition in range(4)])
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def toggle() -> None:
        # Each resume restarts librdkafka's fetch: without a delay between them some partitions hardly progress.
        while not done.wait(0.001):
            consumer.pause([PartitionOffset(topic, 0), PartitionOffset(topic, 2)])
            consumer.resume([PartitionOffset(topic, 2), PartitionOffset(topic, 0)])

    toggling = Thread(toggle)

    def poll() -> None:
        message = consumer.poll(0.05)
        if message is not None:
            seen.append((message.partition() or 0, message.offset() or 0))

    # Pauses discard fetched records, so this takes longer than reading alone.
    try:
        wait_until(lambda: len(seen) >= 4 * RECORDS, "all records", 1.5 * PATIENCE_S, between=poll)
    finally:
        done.set()
        toggling.outcome()
    for partition in range(4):
        assert [value for number, value in seen if number == partition] == list(range(RECORDS))


def test_close_during_another_thread_s_callback_waits_for_its_end(consumers: ConsumerFactory, topic: str) -> None:
    """A close leaves the group only after the other thread's callback has returned."""
    running = threading.Event()
    end = threading.Event()

    def slow(name: str, _: Consumer) -> None:
        if name == "assign":
            running.set()
            assert end.wait(PATIENCE_S)

    consumer = subscribed(consumers, topic, [], slow)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    polling = Thread(lambda: consumer.poll(PATIENCE_S))
    assert running.wait(PATIENCE_S)
    closing = Thread(consumer.close)
    wait_until(lambda: closing.is_waiting, "the close waits")
    assert consumer.member.of(LeaveRequested) == []
    end.set()
    closing.outcome()
    polling.outcome()
    assert len(consumer.member.of(StepFinished)) == 1
    assert consumer.member.is_stopped
