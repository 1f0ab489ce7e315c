"""The end of a consumer: `close` wherever it may be called, and ends without `close`."""

from __future__ import annotations

import contextlib
import copy
import gc
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition as PartitionOffset

from consumer_membership import Consumer, MembershipError, UseError
from consumer_membership.membership.effects import (
    ApplicationEffect,
    CommitCompleted,
    LeaveCompleted,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
)
from consumer_membership.membership.events import CommitRequested, LeaveRequested, Step, StepFinished
from consumer_membership.membership.states import MemberState
from consumer_membership.types import LeaveOption, TopicPartition
from tests.clients.application import Called, held, offset, record, subscribed
from tests.clients.conftest import RECORDS, ConsumerFactory
from tests.clients.scripted import ScriptedConsumer, Thread, signal_in_poll
from tests.support.waiting import PATIENCE_S, wait_until

FAREWELL: list[ApplicationEffect] = [
    PausePartitions(attempt=99, partitions=None),
    RevokePartitions(attempt=99, partitions=None),
]


def member_of(
    consumers: ConsumerFactory,
    topic: str,
    calls: Called,
    then: Callable[[str, Consumer], None] | None = None,
    **config: object,
) -> ScriptedConsumer:
    """A member that owns partition 0, received one of its records, and revokes it cleanly when it leaves."""
    consumer = subscribed(consumers, topic, calls, then, **config)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    consumer.member.farewell = list(FAREWELL)
    return consumer


def test_close_revokes_on_the_calling_thread_leaves_and_ends_its_threads(
    consumers: ConsumerFactory, topic: str
) -> None:
    """M100, M101, C08: `close` pauses with the positions to commit, calls on_revoke and leaves.

    Then the threads and the handle end.
    """
    threads: list[threading.Thread] = []
    calls: Called = []
    consumer = member_of(consumers, topic, calls, lambda _, __: threads.append(threading.current_thread()))
    assert consumer.close() is None
    assert calls == [("assign", [0]), ("revoke", [0])]
    assert set(threads) == {threading.current_thread()}
    assert consumer.member.steps[1:] == [
        StepFinished(attempt=99, step=Step.PAUSE, offsets={TopicPartition(topic, 0): offset(1)}),
        StepFinished(attempt=99, step=Step.REVOKE),
    ]
    assert consumer.member.of(LeaveRequested) == [LeaveRequested()]
    assert consumer.member.is_stopped


def test_interrupted_close_still_leaves_and_ends_its_threads(consumers: ConsumerFactory, topic: str) -> None:
    """C18: Ctrl-C during `close` ends the callbacks, but the coordinator gets the leave before the thread ends."""

    def interrupt(call: str, consumer: Consumer) -> None:
        if call == "revoke":
            assert isinstance(consumer, ScriptedConsumer)
            consumer.member.in_state(MemberState.UNSUBSCRIBED)
            raise KeyboardInterrupt

    consumer = member_of(consumers, topic, [], interrupt)
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert consumer.member.of(LeaveRequested) == [LeaveRequested(), LeaveRequested(at_once=True)]
    assert consumer.member.is_stopped


@pytest.mark.parametrize("option", LeaveOption)
def test_close_passes_the_membership_option_to_the_leave(
    consumers: ConsumerFactory, topic: str, option: LeaveOption
) -> None:
    """C14: `close` takes KIP-1092's options by name."""
    consumer = member_of(consumers, topic, [])
    consumer.close(membership=option.value)
    assert consumer.member.of(LeaveRequested) == [LeaveRequested(option=option)]


@pytest.mark.parametrize("option", LeaveOption)
def test_unsubscribe_passes_the_membership_option_to_the_leave(
    consumers: ConsumerFactory, topic: str, option: LeaveOption
) -> None:
    """`unsubscribe` takes the same options as `close`."""
    consumer = member_of(consumers, topic, [])
    consumer.unsubscribe(membership=option.value)
    assert consumer.member.of(LeaveRequested) == [LeaveRequested(option=option)]


def test_close_inside_a_callback_keeps_its_membership_option(consumers: ConsumerFactory, topic: str) -> None:
    """A deferred close uses the option of the original call."""
    consumer = subscribed(consumers, topic, [], lambda _, given: given.close(membership="leave"))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    consumer.poll(PATIENCE_S)
    assert consumer.member.of(LeaveRequested) == [LeaveRequested(option=LeaveOption.LEAVE)]


def test_unknown_membership_option_raises_value_error_without_a_leave(consumers: ConsumerFactory, topic: str) -> None:
    """The error names the three options, and the consumer is not closed."""
    consumer = member_of(consumers, topic, [])
    with pytest.raises(ValueError, match="membership='stay': expected one of 'default', 'leave', 'remain'"):
        consumer.close(membership="stay")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="expected one of"):
        consumer.unsubscribe(membership=None)  # type: ignore[arg-type]
    assert consumer.member.of(LeaveRequested) == []


def test_second_close_does_nothing(consumers: ConsumerFactory, topic: str) -> None:
    """M102, M103: `close` is idempotent."""
    consumer = member_of(consumers, topic, [])
    consumer.close()
    consumer.close()
    assert len(consumer.member.of(LeaveRequested)) == 1


def test_calls_after_close_raise_runtime_error(consumers: ConsumerFactory) -> None:
    """Calls raise RuntimeError("Consumer closed") as in confluent-kafka; the view remains readable."""
    consumer = consumers()
    consumer.close()
    with pytest.raises(RuntimeError, match="Consumer closed") as caught:
        consumer.poll(0)
    assert isinstance(caught.value, UseError)
    assert consumer.membership().group_id == "group"
    assert consumer.generation() == -1


def test_close_of_a_consumer_that_never_polled_sends_no_leave(consumers: ConsumerFactory, topic: str) -> None:
    """The consumer never joined, so it has no group to leave."""
    consumer = consumers()
    consumer.subscribe([topic])
    consumer.close()
    assert (consumer.member.is_started, consumer.member.of(LeaveRequested)) == (False, [])


def test_with_block_that_raises_closes_the_consumer(consumers: ConsumerFactory, topic: str) -> None:
    """The block's exception propagates."""
    consumer = member_of(consumers, topic, [])

    def body() -> None:
        with consumer as entered:
            assert entered is consumer
            raise LookupError

    with pytest.raises(LookupError):
        body()
    assert len(consumer.member.of(LeaveRequested)) == 1


def test_close_leaves_although_a_callback_raises(
    consumers: ConsumerFactory, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The member leaves and its threads end; `close` raises the exception at its end and does not log it as well."""

    def fail(name: str, _: Consumer) -> None:
        if name == "revoke":
            raise LookupError("no database")

    consumer = member_of(consumers, topic, [], fail)
    with pytest.raises(LookupError, match="no database"):
        consumer.close()
    assert consumer.member.steps[-1] == StepFinished(attempt=99, step=Step.REVOKE, failed=True)
    assert consumer.member.is_stopped
    assert caplog.records == []
    consumer.close()


def test_close_raises_the_first_callback_exception_and_logs_the_second(
    consumers: ConsumerFactory, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two callbacks raise: `close` raises the first exception, and the log has the second one."""

    def fail(*_: object) -> None:
        raise LookupError("no room")

    consumer = member_of(consumers, topic, [], lambda name, _: fail() if name == "revoke" else None, on_commit=fail)
    consumer.member.farewell.insert(0, CommitCompleted(commit_id=0, offsets={}, errors={}))
    with pytest.raises(LookupError, match="no room"):
        consumer.close()
    assert [record.getMessage() for record in caplog.records] == [
        "Another callback raised an exception while the consumer leaves its group"
    ]


def test_close_of_a_fenced_member_calls_on_lost(consumers: ConsumerFactory, topic: str) -> None:
    """M104, M105: A fenced member has no group to leave, but `close` still calls on_lost."""
    calls: Called = []
    consumer = member_of(consumers, topic, calls)
    consumer.member.farewell = []
    consumer.member.order(LosePartitions(attempt=98))
    consumer.close()
    assert calls[1:] == [("lost", [0])]


def test_close_waits_for_commits_in_flight_before_it_leaves(consumers: ConsumerFactory, topic: str) -> None:
    """C08: The coordinator refuses commits of a member that has left, so `close` waits for them first."""
    consumer = member_of(consumers, topic, [])
    consumer.member.answers_commits = False
    consumer.commit(offsets=[PartitionOffset(topic, 0, 1)])
    closing = Thread(consumer.close)
    request = consumer.member.of(CommitRequested)[0]
    assert consumer.member.of(LeaveRequested) == []
    consumer.member.answer_commit(request)
    closing.outcome()
    assert len(consumer.member.of(LeaveRequested)) == 1


def test_close_commits_manually_assigned_partitions(consumers: ConsumerFactory, topic: str) -> None:
    """C08: Automatic commits include partitions that the application assigned manually."""
    consumer = consumers()
    consumer.assign([PartitionOffset(topic, 0, 0)])
    record(consumer)
    consumer.close()
    assert [request.offsets for request in consumer.member.of(CommitRequested)] == [
        {TopicPartition(topic, 0): offset(1)}
    ]


def test_close_ends_within_its_bound_if_the_member_does_not_respond(
    consumers: ConsumerFactory, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """C17: A dead or blocked membership thread does not block the application; the log names the consequences."""
    monkeypatch.setattr("consumer_membership.runtime.application.closing.Closing._leave_wait_s", 0.05)
    consumer = member_of(consumers, topic, [])
    consumer.member.confirms_leaves = False
    Thread(consumer.close).outcome()
    assert "it removes the member when the session ends" in caplog.text


@pytest.mark.parametrize("name", ["assign", "revoke", "lost"])
def test_close_inside_a_callback_is_deferred_to_the_end_of_the_call(
    consumers: ConsumerFactory, topic: str, name: str
) -> None:
    """The step ends without a deadlock or a crash, then the consumer leaves before `poll` returns."""
    calls: Called = []

    def close(called: str, given: Consumer) -> None:
        if called == name:
            given.close()

    consumer = subscribed(consumers, topic, calls, close)
    consumer.member.farewell = list(FAREWELL)
    consumer.member.assign({TopicPartition(topic, 0): 0})
    if name != "assign":
        record(consumer)
        if name == "lost":
            consumer.member.lose()
        else:
            consumer.member.pause(None)
            consumer.member.revoke(None)
    assert Thread(lambda: consumer.poll(PATIENCE_S)).outcome() is None
    assert len(consumer.member.of(LeaveRequested)) == 1
    assert calls[-1][0] == ("revoke" if name == "assign" else name)
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


def test_close_inside_on_revoke_of_close_does_nothing(consumers: ConsumerFactory, topic: str) -> None:
    """The outer close continues."""
    consumer = member_of(consumers, topic, [], lambda name, given: given.close() if name == "revoke" else None)
    Thread(consumer.close).outcome()
    assert len(consumer.member.of(LeaveRequested)) == 1


def test_close_while_another_thread_polls_ends_the_poll_within_a_slice(consumers: ConsumerFactory, topic: str) -> None:
    """The poll returns None within a slice, and on_revoke runs on the closing thread."""
    threads: list[threading.Thread] = []

    def note(name: str, _: Consumer) -> None:
        if name == "revoke":
            threads.append(threading.current_thread())

    consumer = member_of(consumers, topic, [], note)
    consumer.consume(RECORDS - 1, PATIENCE_S)
    polling = Thread(lambda: consumer.poll(PATIENCE_S))
    turns = consumer.member.progress()[0]
    wait_until(lambda: consumer.member.progress()[0] > turns, "a turn of the poll")
    consumer.close()
    assert polling.outcome() is None
    assert threads == [threading.current_thread()]


def test_poll_ends_although_an_order_came_after_another_thread_closed(consumers: ConsumerFactory, topic: str) -> None:
    """A second `LeaveCompleted`, as after an unsubscribe and a close, may arrive when no call takes orders any more."""
    is_inside, may_return = threading.Event(), threading.Event()

    def report(_: str) -> None:
        is_inside.set()
        assert may_return.wait(PATIENCE_S)

    consumer = consumers(stats_cb=report, **{"statistics.interval.ms": 10})
    consumer.subscribe([topic])
    polling = Thread(consumer.poll)
    assert is_inside.wait(PATIENCE_S)
    consumer.close()
    consumer.member.order(LeaveCompleted())
    may_return.set()
    assert polling.outcome() is None


def test_close_by_a_worker_that_a_callback_waits_for_is_deferred(
    consumers: ConsumerFactory, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither thread can yield to the other, so the polling thread closes when its call ends."""
    monkeypatch.setattr("consumer_membership.runtime.application.closing.Closing._leave_wait_s", 0.05)

    def wait_for_worker(name: str, given: Consumer) -> None:
        if name == "revoke" and not consumer.member.of(LeaveRequested):
            Thread(given.close).outcome()

    consumer = member_of(consumers, topic, [], wait_for_worker)
    consumer.member.farewell = []
    consumer.member.pause(None)
    consumer.member.revoke(None)
    assert Thread(lambda: consumer.poll(PATIENCE_S)).outcome() is None
    assert consumer.member.is_stopped


@pytest.mark.parametrize("where", ["poll", "consume"])
def test_close_in_a_signal_handler_during_a_poll_completes_before_poll_returns(
    consumers: ConsumerFactory, topic: str, where: str
) -> None:
    """A usual SIGTERM handler closes the consumer; the interrupted poll returns after the close has completed."""
    consumer = member_of(consumers, topic, [])
    consumer.consume(RECORDS - 1, PATIENCE_S)
    before = signal.signal(signal.SIGUSR1, lambda _, __: consumer.close())
    try:
        with signal_in_poll(consumer, signal.SIGUSR1):
            if where == "poll":
                assert consumer.poll(PATIENCE_S) is None
            else:
                assert consumer.consume(10, PATIENCE_S) == []
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert consumer.member.is_stopped
    assert consumer.member.steps[-1].step is Step.REVOKE


def test_close_in_a_signal_handler_that_exits_completes_first(consumers: ConsumerFactory, topic: str) -> None:
    """After `close(); sys.exit()` in a handler, the exception propagates only after the consumer is closed."""

    def handle(_: int, __: object) -> None:
        consumer.close()
        raise SystemExit

    consumer = member_of(consumers, topic, [])
    consumer.consume(RECORDS - 1, PATIENCE_S)
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with signal_in_poll(consumer, signal.SIGUSR1), pytest.raises(SystemExit):
            consumer.poll(PATIENCE_S)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert consumer.member.is_stopped


@pytest.mark.parametrize("where", ["poll", "consume"])
def test_ctrl_c_interrupts_poll_and_consume_within_a_slice(consumers: ConsumerFactory, topic: str, where: str) -> None:
    """C18: confluent-kafka's `consume` ends only at its timeout.

    Here both calls return at once, and the consumer still works.
    """
    consumer = member_of(consumers, topic, [])
    consumer.consume(RECORDS - 1, PATIENCE_S)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with signal_in_poll(consumer, signal.SIGINT), pytest.raises(KeyboardInterrupt):
            consumer.poll(PATIENCE_S) if where == "poll" else consumer.consume(10, PATIENCE_S)
    finally:
        signal.signal(signal.SIGINT, before)
    assert consumer.poll(0) is None
    assert held(consumer) == [0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_close_works_after_any_number_of_interrupts(consumers: ConsumerFactory, topic: str) -> None:
    """C18: No interrupt leaves a lock held or a flag set: steps continue, and `close` leaves."""
    consumer = member_of(consumers, topic, [])
    main = threading.main_thread().ident or 0
    done = threading.Event()
    armed = False

    def ctrl_c(_: int, __: object) -> None:
        # Raise once for each turn of the loop: a second interrupt would hit the test itself.
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not done.wait(0.002):
            signal.pthread_kill(main, signal.SIGINT)

    before = signal.signal(signal.SIGINT, ctrl_c)
    interrupting = Thread(interrupt)
    try:
        for turn in range(300):
            with contextlib.suppress(KeyboardInterrupt):
                while True:
                    armed = True  # again: the interpreter ignores an interrupt inside the callback of a weak reference
                    consumer.member.assign({TopicPartition(topic, turn % 4): 0})
                    consumer.poll(0.001)
                    consumer.consume(2, 0.001)
                    consumer.commit(offsets=[PartitionOffset(topic, 0, 1)], asynchronous=False)
    finally:
        done.set()
        interrupting.outcome()
        signal.signal(signal.SIGINT, before)
    attempt = consumer.member.assign({TopicPartition(topic, 0): 0})
    Thread(lambda: consumer.poll(0)).outcome()
    assert consumer.member.steps[-1] == StepFinished(attempt=attempt, step=Step.ASSIGN)
    Thread(consumer.close).outcome()
    assert len(consumer.member.of(LeaveRequested)) == 1


def test_consumer_destroyed_without_close_sends_no_leave(consumers: ConsumerFactory, topic: str) -> None:
    """As in confluent-kafka, no callback, commit or leave happens; the membership thread ends."""
    calls: Called = []
    consumer = Consumer.__new__(ScriptedConsumer)
    template = member_of(consumers, topic, [])
    servers = template.member.connection.bootstrap_servers[0]
    consumer.__init__({"bootstrap.servers": f"{servers[0]}:{servers[1]}", "group.id": "g", "log_level": 0})  # type: ignore[misc]
    assert isinstance(consumer, ScriptedConsumer)
    consumer.subscribe([topic], on_revoke=lambda _, __: calls.append(("revoke", [])))
    consumer.member.assign({TopicPartition(topic, 0): 0})
    record(consumer)
    member, alive = consumer.member, weakref.ref(consumer)
    del consumer
    gc.collect()
    assert alive() is None
    assert (member.is_stopped, member.of(LeaveRequested), calls) == (True, [], [])


#: Keeps all modules until the exit, and the clients in `os`, which CPython clears after this package's modules.
#: Free-threaded builds of 3.13 destroy a program's variables that late.
_KEPT_TO_THE_END = """
import os, sys
from consumer_membership import Consumer, GroupMember
servers = {"bootstrap.servers": "127.0.0.1:9"}
os.clients = [Consumer({**servers, "group.id": "g", "log_level": 0}), GroupMember({**servers, "group.id": "g"})]
sys.modules_of_program = [module for module in sys.modules.values() if module not in (sys, sys.modules["builtins"])]
"""


def test_clients_that_outlive_the_names_of_their_module_print_nothing_at_exit() -> None:
    """CPython sets the names of each module to None when it exits, and may destroy the clients later."""
    done = subprocess.run(
        [sys.executable, "-c", _KEPT_TO_THE_END], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("send", [pickle.dumps, copy.copy, copy.deepcopy])
def test_consumer_cannot_be_copied_or_pickled(consumers: ConsumerFactory, send: Callable[[object], object]) -> None:
    """The membership exists only once; the error names the remedy."""
    with pytest.raises(TypeError, match="send its configuration") as caught:
        send(consumers())
    assert isinstance(caught.value, MembershipError)
