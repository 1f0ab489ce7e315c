"""Data that several threads of an application share, at full speed: each test can fail only without a GIL.

With a GIL these tests take milliseconds and prove little. `docs/explanation/free-threading.md` lists all shared data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka import Message

from consumer_membership.health.handlers import RecordDeadLettered
from consumer_membership.metrics.application_ledger import ApplicationLedger
from consumer_membership.metrics.distribution import Durations
from consumer_membership.recorder.ring import MOST_HANDLER_FACTS
from consumer_membership.runtime.application.prefetch_buffer import PrefetchBuffer
from consumer_membership.runtime.line import WakeUp
from consumer_membership.types import TopicPartition
from tests.clients.application import subscribed
from tests.clients.conftest import ConsumerFactory
from tests.recorder.members import Recorded
from tests.support.together import together

ROUNDS = 2_000
PARTITION = TopicPartition("orders", 0)


def test_durations_of_several_threads_are_all_counted() -> None:
    """No duration is lost if two threads count at the same time."""
    durations = Durations()

    def count() -> None:
        for _ in range(ROUNDS):
            durations.add(0.5, 100.0)

    together(*[count] * 4)
    seen = durations.seen(100.0)
    assert (seen.count, seen.sum_s, seen.recent.count) == (4 * ROUNDS, 2.0 * ROUNDS, 4 * ROUNDS)


def test_polls_of_several_threads_are_over_when_all_have_ended() -> None:
    """The ledger counts no poll as in progress after the last one of several threads has ended."""
    ledger = ApplicationLedger()

    def poll() -> None:
        for _ in range(ROUNDS):
            ledger.begin_poll(100.0, 0)
            ledger.end_poll(100.0, 100.0, 0)

    together(*[poll] * 4)
    assert ledger.counts(130.0, 0).polling_s == 0.0


def test_recording_is_read_while_another_thread_adds_facts_about_handlers() -> None:
    """`contents` may be called by any thread at any time."""
    recorder = Recorded().recorder
    fact = RecordDeadLettered(partition=PARTITION, offset=1, attempts=1, error="ValueError")

    def add() -> None:
        for _ in range(ROUNDS):
            recorder.note_handlers(fact, 100.0)

    def read() -> None:
        for _ in range(ROUNDS):
            recorder.contents()

    together(add, add, read)
    assert len(recorder.contents().handlers) == MOST_HANDLER_FACTS


@pytest.mark.slow
def test_commits_of_several_threads_have_different_numbers(consumers: ConsumerFactory, topic: str) -> None:
    """The member answers each commit by its number, so no two commits may share a number."""
    consumer = subscribed(consumers, topic, [])
    commits = consumer._use().commits

    def begin() -> list[int]:
        return [commits.begin({}, is_awaited=False) for _ in range(ROUNDS)]

    numbers = [number for numbers in together(*[begin] * 4) for number in numbers]
    assert len(set(numbers)) == 4 * ROUNDS


def records() -> Iterator[Message]:
    """Records of one partition."""
    return (
        Message(topic=PARTITION.topic, partition=PARTITION.partition, offset=offset) for offset in itertools.count()
    )


def test_hot_path_returns_records_in_order_while_another_thread_pauses_and_resumes() -> None:
    """A thread that takes from the buffer without a lock gets every record once and in order."""
    buffer, source, rounds, size = PrefetchBuffer(), records(), ROUNDS // 10, 20

    def fetch() -> list[int]:
        for _ in range(rounds):
            buffer.landed.append(list(itertools.islice(source, size)))
            buffer.take_in()
            buffer.park({PARTITION})
            buffer.unpark([PARTITION])
        return []

    def take() -> list[int]:
        taken: list[int] = []
        while len(taken) < rounds * size:
            try:
                taken.append((~buffer.ready).offset() or 0)
            except IndexError:
                continue
        return taken

    _, taken = together(fetch, take)
    assert taken == list(range(rounds * size))


def test_waiting_records_are_counted_while_another_thread_takes_them() -> None:
    """Health and rebalances count the waiting records while other threads take them."""
    buffer = PrefetchBuffer()
    buffer.landed.append(list(itertools.islice(records(), 20 * ROUNDS)))
    buffer.take_in()

    def look() -> None:
        for _ in range(ROUNDS // 10):
            buffer.first_undelivered({PARTITION})
            buffer.waiting()

    def take() -> None:
        while buffer.ready:
            _ = ~buffer.ready

    together(take, look)
    assert not buffer.waiting()


def test_order_of_another_thread_is_never_left_without_a_wake_up() -> None:
    """After the last order was added, the wake-up is set while an order waits."""
    wake_up, waiting = WakeUp(), list[int]()
    wake_up.add_reason(lambda: bool(waiting))

    def add() -> None:
        for number in range(ROUNDS):
            waiting.append(number)
            wake_up.set()

    def poll() -> None:
        for _ in range(ROUNDS):
            wake_up.review()
            if wake_up.is_set:
                waiting.clear()

    for _ in range(5):
        together(add, poll)
        assert wake_up.is_set or not waiting
