"""A signal handler that raises at any line loses no record, no step and no commit, and leaves no lock held.

An interrupt is raised at the first line of this package's code that a call executes, then at the second one, and so on
until the call ends. After each interrupt the application continues as a program that caught the exception does.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer
from consumer_membership.membership.effects import PausePartitions, RevokePartitions
from consumer_membership.membership.events import Step, StepFinished
from consumer_membership.types import TopicPartition
from tests.clients.application import subscribed
from tests.clients.conftest import PARTITIONS, ConsumerFactory, filled
from tests.clients.interrupts import RECORDS, Application, is_cut_short, read_in_storm, storm
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.mock_cluster import MockCluster
from tests.support.seeds import seed_for
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

#: Each line of `close` needs a consumer of its own, so its lines are divided among this many tests.
PARTS = 4


@pytest.fixture(scope="module")
def long_topic(cluster: MockCluster) -> str:
    """A topic with many records in each partition."""
    return filled(cluster, "interrupts", RECORDS)


@pytest.fixture
def application(consumers: ConsumerFactory, long_topic: str) -> Iterator[Application]:
    """A member that owns all partitions of the long topic."""
    # Small fetches, so that a batch has records of several partitions.
    consumer = subscribed(consumers, long_topic, [], fetch_message_max_bytes=2_000)
    consumer.member.assign({TopicPartition(long_topic, number): 0 for number in range(PARTITIONS)})
    made = Application(consumer)
    made.fill_buffer()
    yield made
    made.finish()


def all_of(application: Application) -> list[PartitionOffset]:
    """The application's partitions."""
    return [PartitionOffset(one.topic, one.partition) for one in application.consumer.assignment()]


def interrupted_everywhere(
    application: Application, prepare: Callable[[], object], call: Callable[[], object], go_on: Callable[[], object]
) -> int:
    """Interrupt this call at each of its lines; return the number of lines."""
    for line in count(1):
        application.begin_again()
        prepare()
        was_cut_short = is_cut_short(call, line)
        go_on()
        if not was_cut_short:
            assert sys.exc_info()[1] is None
            return line - 1
    raise AssertionError


def test_poll_interrupted_at_any_line_loses_no_record(application: Application) -> None:
    """C18: The next poll returns a record that an interrupted poll did not return."""
    lines = interrupted_everywhere(
        application,
        application.empty_buffer,
        lambda: application.take(application.consumer.poll(PATIENCE_S)),
        application.go_on,
    )
    assert lines > 20


@pytest.mark.parametrize("limit", [3, 400])
def test_consume_interrupted_at_any_line_loses_no_record(application: Application, limit: int) -> None:
    """The next call returns the records that an interrupted `consume` gathered, from the buffer or the handle."""
    for prepare in (application.empty_buffer, application.fill_buffer):
        lines = interrupted_everywhere(
            application,
            prepare,
            lambda: application.take(*application.consumer.consume(limit, PATIENCE_S)),
            application.go_on,
        )
        assert lines > 5


def test_pause_and_resume_interrupted_at_any_line_lose_no_record(application: Application) -> None:
    """Records continue in order once the application has paused and resumed the partitions."""
    consumer = application.consumer
    partitions = all_of(application)

    def go_on() -> None:
        consumer.resume(partitions)
        application.go_on()

    def pause_again() -> None:
        consumer.pause(partitions[:2])
        ready = {(message.topic(), message.partition()) for message in consumer._ready}
        assert ready.isdisjoint((one.topic, one.partition) for one in partitions[:2])
        go_on()

    assert interrupted_everywhere(application, application.fill_buffer, lambda: consumer.pause(partitions[:2]), go_on)
    assert interrupted_everywhere(
        application, application.fill_buffer, lambda: consumer.pause(partitions[:2]), pause_again
    )
    assert interrupted_everywhere(
        application, lambda: consumer.pause(partitions[:2]), lambda: consumer.resume(partitions[:2]), go_on
    )


def test_seek_interrupted_at_any_line_takes_full_effect_or_none(application: Application) -> None:
    """The partition continues at its former position or at the new one, after the records fetched before."""
    consumer, name = application.consumer, all_of(application)[0].topic

    def go_on() -> None:
        offset = application.next[0]
        while (message := consumer.poll(PATIENCE_S)) is None or message.partition() != 0:
            application.take(message)
        assert message.offset() in {offset, offset - 1}
        consumer.seek(PartitionOffset(name, 0, offset))
        application.go_on()

    assert interrupted_everywhere(
        application,
        application.fill_buffer,
        lambda: consumer.seek(PartitionOffset(name, 0, max(application.next[0] - 1, 0))),
        go_on,
    )


@pytest.mark.parametrize("asynchronous", [True, False])
def test_commit_interrupted_at_any_line_commits_only_returned_records(
    application: Application, *, asynchronous: bool
) -> None:
    """Committed offsets cover records that the application received, and the next commit covers the rest."""
    consumer, member = application.consumer, application.consumer.member

    def check() -> None:
        application.go_on()
        consumer.commit(asynchronous=False)
        committed = {partition.partition: at.offset for partition, at in member.committed.items()}  # type: ignore[union-attr]
        assert committed == {number: offset for number, offset in application.next.items() if number in committed}

    assert interrupted_everywhere(
        application, application.fill_buffer, lambda: consumer.commit(asynchronous=asynchronous), check
    )


class Rebalanced:
    """A member that revokes a partition and assigns it again at the application's position."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.consumer = application.consumer
        self.member = application.consumer.member
        self.partition = TopicPartition(all_of(application)[0].topic, 0)

    def poll_until(self, attempt: int, step: Step) -> None:
        """Poll as long as the step is unanswered; order it again if it failed, as a member does at the next poll."""
        answers = wait_until(
            lambda: self._answers(attempt, step),
            f"the answer to {step}",
            between=lambda: self._application.take(self.consumer.poll(0.01)),
        )
        assert len(answers) == 1 or not answers[0].failed

    def _answers(self, attempt: int, step: Step) -> list[StepFinished]:
        return [done for done in self.member.steps if (done.attempt, done.step) == (attempt, step)]

    def is_failed(self, attempt: int, step: Step) -> bool:
        """Whether the step ended because a callback raised."""
        return self._answers(attempt, step)[0].failed

    def revoke(self) -> None:
        """Revoke the partition cleanly; failed steps are ordered again."""
        while True:
            attempt = self.member.pause({self.partition})
            self.poll_until(attempt, Step.PAUSE)
            if not self.is_failed(attempt, Step.PAUSE):
                self.member.revoke({self.partition})
                self.poll_until(attempt, Step.REVOKE)
                if not self.is_failed(attempt, Step.REVOKE):
                    return

    def assign(self) -> None:
        """Assign the partition at the application's position; failed steps are ordered again."""
        while True:
            attempt = self.member.assign({self.partition: self._application.next[0]})
            self.poll_until(attempt, Step.ASSIGN)
            if not self.is_failed(attempt, Step.ASSIGN):
                return


@pytest.mark.parametrize("step", [Step.PAUSE, Step.REVOKE, Step.ASSIGN, Step.LOSE])
def test_rebalance_step_interrupted_at_any_line_is_completed_by_later_polls(
    application: Application, step: Step
) -> None:
    """C18: The polls after an interrupt complete each step of a rebalance, and no record is lost."""
    rebalanced, consumer, member = Rebalanced(application), application.consumer, application.consumer.member
    attempt = 0

    def prepare() -> None:
        nonlocal attempt
        application.fill_buffer()
        if step is Step.PAUSE:
            attempt = member.pause({rebalanced.partition})
        elif step is Step.REVOKE:
            attempt = member.pause({rebalanced.partition})
            rebalanced.poll_until(attempt, Step.PAUSE)
            member.revoke({rebalanced.partition})
        elif step is Step.ASSIGN:
            rebalanced.revoke()
            attempt = member.assign({rebalanced.partition: application.next[0]})
        else:
            attempt = member.lose()

    def go_on() -> None:
        rebalanced.poll_until(attempt, step)
        if step is Step.LOSE:
            member.assign({TopicPartition(rebalanced.partition.topic, n): at for n, at in application.next.items()})
        elif step is Step.ASSIGN:
            if rebalanced.is_failed(attempt, step):
                rebalanced.assign()
        else:
            rebalanced.revoke()
            rebalanced.assign()
        application.go_on()
        assert len(consumer.assignment()) == PARTITIONS

    assert interrupted_everywhere(application, prepare, lambda: application.take(consumer.poll(0)), go_on) > 20


@pytest.mark.parametrize("part", range(PARTS))
def test_close_interrupted_at_any_line_commits_only_returned_records(
    cluster: MockCluster, long_topic: str, part: int
) -> None:
    """An interrupted `close` can be repeated; the membership thread ends, and commits cover only returned records."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "group", "auto.offset.reset": "earliest"}
    for line in count(1 + part, PARTS):
        # Without the fixture, which would keep hundreds of handles.
        consumer = subscribed(lambda: ScriptedConsumer(config), long_topic, [])
        consumer.member.assign({TopicPartition(long_topic, number): 0 for number in range(PARTITIONS)})
        consumer.member.farewell = [
            PausePartitions(attempt=99, partitions=None),
            RevokePartitions(attempt=99, partitions=None),
        ]
        application = Application(consumer)
        application.fill_buffer()
        was_cut_short = is_cut_short(consumer.close, line)
        Thread(consumer.close).outcome()
        assert consumer.member.is_stopped
        for done in consumer.member.steps:
            for partition, at in done.offsets.items():
                assert at.offset == application.next[partition.partition]
        with pytest.raises(RuntimeError, match="Consumer closed"):
            consumer.poll(0)
        if not was_cut_short:
            break


def test_storm_raises_no_interrupt_in_a_finalizer() -> None:
    """Python ignores exceptions of finalizers, so an interrupt there would not reach the program."""
    interrupts: list[None] = []
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "group"})
    with storm(interrupts, [], seed=0):
        consumer.__del__(partial(signal.raise_signal, signal.SIGINT))  # type: ignore[arg-type]  # None is false
    assert interrupts == []
    consumer.close()


def test_frequent_random_interrupts_lose_no_record(consumers: ConsumerFactory, long_topic: str) -> None:
    """Signals come at any moment, also inside librdkafka's calls. Each record comes once, in order."""
    consumer = subscribed(consumers, long_topic, [])
    consumer.member.assign({TopicPartition(long_topic, number): 0 for number in range(PARTITIONS)})
    interrupts: list[None] = []
    next_: dict[int, int] = {}
    first = seed_for("storm of interrupts")
    for seed in range(first, first + 100):
        wanted = len(interrupts) + 5
        found = read_in_storm(consumer, interrupts, lambda wanted=wanted: len(interrupts) >= wanted, seed)  # type: ignore[misc]
        for number, offsets in found.items():
            begin = next_.get(number, 0)
            assert (number, offsets) == (number, list(range(begin, begin + len(offsets)))), f"seed {seed}"
            next_[number] = begin + len(offsets)
        positions = consumer.position([PartitionOffset(long_topic, number) for number in sorted(next_)])
        assert {one.partition: one.offset for one in positions} == next_, f"seed {seed}"
        if max(next_.values(), default=0) > RECORDS // 2:
            consumer.resume(consumer.assignment())
            for number in next_:
                consumer.seek(PartitionOffset(long_topic, number, 0))
            next_ = {}
