"""Callbacks for events: one thread that starts on demand, and no call waits for it."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from queue import Queue

import pytest

from consumer_membership import LifecycleEvent, LifecycleKind
from consumer_membership.runtime.application import lifecycle_events
from consumer_membership.types import TopicPartition
from tests.clients.scripted import ScriptedConsumer, Thread
from tests.support.waiting import PATIENCE_S, wait_until

K = LifecycleKind
NO_BROKER = {"bootstrap.servers": "127.0.0.1:1", "group.id": "events", "log_level": 0}


def event_threads() -> set[threading.Thread]:
    """Return the threads that call callbacks."""
    return {thread for thread in threading.enumerate() if thread.name == "membership events"}


class EventLog:
    """A callback that keeps the events it receives."""

    def __init__(self) -> None:
        self.events: Queue[LifecycleEvent] = Queue()
        self.threads: set[threading.Thread] = set()

    def __call__(self, event: LifecycleEvent) -> None:
        self.threads.add(threading.current_thread())
        self.events.put(event)

    def next(self) -> LifecycleEvent:
        """Return the next event; raise an error after a bounded time."""
        return self.events.get(timeout=PATIENCE_S)

    def until(self, kind: LifecycleKind) -> list[LifecycleEvent]:
        """Return all events up to the first one of this kind."""
        received = [self.next()]
        while received[-1].kind is not kind:
            received.append(self.next())
        return received


@pytest.fixture
def consumer() -> Iterator[ScriptedConsumer]:
    """A consumer with a scripted member and without a broker."""
    made = ScriptedConsumer(NO_BROKER)
    yield made
    made.close()


EPOCHS = count(1)


def change(consumer: ScriptedConsumer) -> None:
    """Cause one event: the member releases its partition, or is assigned one."""
    owned = {} if consumer.member.view.owned else {TopicPartition("orders", 0): next(EPOCHS)}
    consumer.member.happens(member_epoch=0, owned=owned)


def test_on_event_starts_its_threads_with_the_first_callback(consumer: ScriptedConsumer) -> None:
    """All callbacks share one thread, in addition to the thread that samples partitions; both end with the consumer."""
    before = set(threading.enumerate())
    change(consumer)
    assert set(threading.enumerate()) == before
    first, second = EventLog(), EventLog()
    consumer.on_event(first)
    consumer.on_event(second)
    made = set(threading.enumerate()) - before
    assert sorted(thread.name for thread in made) == ["membership events", "membership health"]
    change(consumer)
    consumer.close()
    for event_log in (first, second):
        assert [event.kind for event in event_log.until(K.CLOSED)] == [K.REVOKED, K.CLOSED]
    assert first.threads == second.threads <= made
    for thread in made:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_on_event_callback_receives_events_between_registration_and_removal(consumer: ScriptedConsumer) -> None:
    """The rule also holds for events that the thread has not delivered yet."""
    is_held = threading.Event()
    first, late, removed = EventLog(), EventLog(), EventLog()
    consumer.on_event(lambda _: is_held.wait(PATIENCE_S))
    consumer.on_event(first)
    registration = consumer.on_event(removed)
    change(consumer)
    consumer.on_event(late)
    change(consumer)
    registration.remove()
    registration.remove()
    is_held.set()
    consumer.close()
    assert [event.kind for event in first.until(K.CLOSED)] == [K.ASSIGNED, K.REVOKED, K.CLOSED]
    assert [event.kind for event in late.until(K.CLOSED)] == [K.REVOKED, K.CLOSED]
    assert removed.events.empty()


def test_on_event_callback_that_raises_is_logged_once_then_counted(
    consumer: ScriptedConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    """All callbacks are called again and the thread continues, even after `sys.exit` in a callback."""
    event_log = EventLog()

    def fail(event: LifecycleEvent) -> None:
        if event.kind is K.ASSIGNED:
            sys.exit("the application's")
        raise ValueError("the application's")

    consumer.on_event(fail)
    consumer.on_event(event_log)
    with caplog.at_level(logging.ERROR, "consumer_membership.session"):
        for _ in range(11):
            change(consumer)
        consumer.close()
        event_log.until(K.CLOSED)
    assert [record.getMessage().partition("' (")[2] for record in caplog.records] == [
        "1 times in all); it stays registered",
        "10 times in all); it stays registered",
    ]
    assert caplog.records[0].exc_info is not None
    assert isinstance(caplog.records[1].exc_info, tuple)


def test_on_event_callback_that_blocks_delays_no_call_and_drops_are_counted(
    consumer: ScriptedConsumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Polls, the member and close continue; the event of the close is never dropped."""
    monkeypatch.setattr(lifecycle_events, "WAITING", 3)
    is_called, is_held = threading.Event(), threading.Event()
    event_log = EventLog()

    def block(event: LifecycleEvent) -> None:
        is_called.set()
        assert is_held.wait(PATIENCE_S)
        event_log(event)

    consumer.on_event(block)
    change(consumer)
    assert is_called.wait(PATIENCE_S)
    for _ in range(15):
        change(consumer)
    assert consumer.poll(0.01) is None
    consumer.close()
    assert "Callbacks of on_event are too slow: 3 events are waiting, and 1 were dropped in all" in caplog.text
    assert "10 were dropped in all" in caplog.text
    is_held.set()
    assert [event.dropped for event in event_log.until(K.CLOSED)] == [0, 0, 0, 0, 12]


def test_on_event_callback_may_close_the_consumer_during_a_poll(consumer: ScriptedConsumer) -> None:
    """A callback may call any method of the consumer, also `close` while another thread polls."""
    event_log = EventLog()

    def close(event: LifecycleEvent) -> None:
        event_log(event)
        consumer.membership()
        consumer.assignment()
        consumer.close()

    consumer.on_event(close)
    poll = Thread(lambda: consumer.poll(PATIENCE_S))
    change(consumer)
    assert poll.outcome() is None
    assert [event.kind for event in event_log.until(K.CLOSED)] == [K.ASSIGNED, K.CLOSED]
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.on_event(event_log)


def _unclosed_with_callback(event_log: EventLog) -> weakref.ref[ScriptedConsumer]:
    """Return a weak reference to a consumer to which only its own callback refers."""
    consumer = ScriptedConsumer(NO_BROKER)

    def refer(event: LifecycleEvent) -> None:
        consumer.membership()
        event_log(event)

    consumer.on_event(refer)
    change(consumer)
    assert event_log.next().kind is K.ASSIGNED
    return weakref.ref(consumer)


def test_on_event_callback_keeps_no_consumer_alive() -> None:
    """A consumer is collected even if its callback refers to it; without `close`, no event reports its end."""
    before = event_threads()
    event_log = EventLog()
    gone = _unclosed_with_callback(event_log)
    (thread,) = event_threads() - before
    # The thread may not have returned from the callback yet.
    wait_until(lambda: gone() is None, "the end of the consumer", between=gc.collect)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert event_log.events.empty()


async def _never_awaited(event: LifecycleEvent) -> None:
    raise AssertionError(event)


@pytest.mark.parametrize(
    ("callback", "message"), [(None, "on_event expects a callable"), (_never_awaited, "coroutine function")]
)
def test_on_event_rejects_an_argument_that_is_not_a_plain_callable(
    consumer: ScriptedConsumer, callback: Callable[[LifecycleEvent], object], message: str
) -> None:
    """`on_event` raises TypeError at registration, and not at the first event."""
    with pytest.raises(TypeError, match=message):
        consumer.on_event(callback)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_on_event_in_a_forked_child_raises(consumer: ScriptedConsumer) -> None:
    """The child ends cleanly, and the parent's callbacks still receive events."""
    event_log = EventLog()
    consumer.on_event(event_log)
    child = os.fork()
    if not child:
        try:
            consumer.on_event(event_log)
        except RuntimeError as error:
            os._exit(17 if "cannot be used in its child" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
    change(consumer)
    assert event_log.next().kind is K.ASSIGNED


PROGRAM = """
import sys, threading
from consumer_membership import Consumer
consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0})
"""


@pytest.mark.parametrize(
    ("rest", "output"),
    [
        ("consumer.on_event(lambda event: print(event.kind.value)); consumer.close()", "closed\n"),
        ("consumer.on_event(lambda event: threading.Event().wait()); consumer.close()", ""),
        ("consumer.on_event(print)", ""),
    ],
)
def test_on_event_allows_a_clean_exit_of_the_interpreter(rest: str, output: str) -> None:
    """The close is reported, a callback that never returns is abandoned, and nothing is written to stderr."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM + rest], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, output, "")
