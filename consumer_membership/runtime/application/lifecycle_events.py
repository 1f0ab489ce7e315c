"""Calls an application's callbacks with the events of its consumer, on its own thread, one event after the other.

The membership thread, the sampling thread and the closing thread put events into a bounded queue. None of them waits
for a callback. Callbacks are called by one thread alone, with no lock held, so that they may block and call any method.

Only the consumer refers to the callbacks. The session, the line, the monitor and this thread refer to the queue, and
threads refer to these. So a callback that refers to its consumer is a normal reference cycle and does not keep the
consumer alive.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from time import monotonic, time
from typing import NamedTuple, TypeAlias
from weakref import WeakKeyDictionary, ref

from consumer_membership.health.handlers import HandlerFact, HandlerHealth
from consumer_membership.health.lifecycle import Lifecycle, LifecycleEvent, LifecycleKind, Moment
from consumer_membership.health.progress import AssignmentProgress
from consumer_membership.health.verdict import Health
from consumer_membership.light_dataclasses import replace
from consumer_membership.membership.protocol import GroupEffect
from consumer_membership.membership.view import MembershipView
from consumer_membership.runtime.application.health_monitor import HealthMonitor
from consumer_membership.runtime.failures import is_power_of_ten
from consumer_membership.runtime.log_lines import PackageLog
from consumer_membership.runtime.membership_thread import MembershipThread

_LOG = PackageLog("consumer_membership.session", "EVENT")

EventCallback: TypeAlias = Callable[[LifecycleEvent], object]

#: How many events may wait for callbacks: as many as a consumer emits in hours.
WAITING = 1_000
#: How long the interpreter's exit waits for the last events of all closed consumers together.
EXIT_S = 1.0


class EventRegistration:
    """A callback that receives events until `remove`."""

    __slots__ = ("_callback", "_failures", "_since")

    def __init__(self, callback: EventCallback, since: int) -> None:
        self._callback: EventCallback | None = callback
        self._since = since
        self._failures = 0

    @property
    def is_removed(self) -> bool:
        """Whether it is removed."""
        return self._callback is None

    def remove(self) -> None:
        """Stop calling it, also for events that wait; a running call continues."""
        self._callback = None

    def call(self, number: int, event: LifecycleEvent) -> None:
        """Call it, if it was registered when the event happened; its exceptions are logged once, then counted."""
        callback = self._callback
        if callback is None or number < self._since:
            return
        try:
            callback(event)
        except BaseException as error:  # noqa: BLE001 - whatever a user's callback raises must not end the thread
            self._failures += 1
            text = "A callback of on_event raised an exception at the event '%s' (%d times in all); it stays registered"
            if self._failures == 1:
                _LOG.error(text, event.kind.value, 1, exc_info=error)
            elif is_power_of_ten(self._failures):
                _LOG.error(text, event.kind.value, self._failures, exc_info=error)


class _Waiting(NamedTuple):
    """An event with its number."""

    number: int
    event: LifecycleEvent


class EventQueue:
    """The events that wait for callbacks; it refers to no callback. For any thread."""

    def __init__(self) -> None:
        # A C queue: the destructor of an object may put an event into it at any moment in any thread.
        self.waiting: SimpleQueue[_Waiting | None] = SimpleQueue()
        # Re-entrant: a signal handler may close the consumer inside one of its calls.
        self._lock = threading.RLock()
        self._lifecycle: Lifecycle | None = None
        self._put = 0
        self._dropped = 0
        self._dropped_total = 0
        #: Whether the last event is in the queue.
        self.is_ended = False

    def begin(self, thread: MembershipThread, monitor: HealthMonitor) -> None:
        """Start with the member's present view, and queue the events from now on."""
        with self._lock:
            self._lifecycle = Lifecycle(thread.watch(self.notify))
        monitor.watch(self.on_health)

    @property
    def next_number(self) -> int:
        """The number of the next event that happens."""
        with self._lock:
            return self._put

    def notify(self, effects: tuple[GroupEffect, ...], view: MembershipView) -> None:
        """Queue the lifecycle events of an event that the member processed (`membership_thread.Watcher`)."""
        with self._lock:
            if self._lifecycle is None:
                return
            dropped = self._take(self._lifecycle.observed(effects, view, _now()))
        self._warn_of_dropped(dropped)

    def on_health(self, health: Health, progress: AssignmentProgress) -> None:
        """Queue the lifecycle events of a sample of the monitor (`health_monitor.HealthWatcher`)."""
        with self._lock:
            if self._lifecycle is None:
                return
            dropped = self._take(self._lifecycle.sampled(health, progress, _now()))
        self._warn_of_dropped(dropped)

    def on_handlers(self, fact: HandlerFact) -> None:
        """Queue the lifecycle events of a fact that the processor reported about its handlers."""
        with self._lock:
            if self._lifecycle is None:
                return
            dropped = self._take(self._lifecycle.handled(fact, _now()))
        self._warn_of_dropped(dropped)

    def close(self, handlers: HandlerHealth | None = None) -> None:
        """Add the last events: the consumer is closed. Returns at once, whatever callbacks do."""
        with self._lock:
            if self._lifecycle is not None:
                self._take(self._lifecycle.closed(_now(), handlers))
        self.end()

    def end(self) -> None:
        """End the thread after the events that wait."""
        self.is_ended = True
        self.waiting.put(None)

    def _take(self, events: Iterable[LifecycleEvent]) -> int:
        """Put these into the queue; if an event was dropped now, return the total of dropped events, else 0."""
        is_full = False
        for event in events:
            if self.waiting.qsize() >= WAITING and event.kind is not LifecycleKind.CLOSED:
                self._dropped += 1
                self._dropped_total += 1
                is_full = True
                continue
            sent = replace(event, dropped=self._dropped) if self._dropped else event
            self._dropped = 0
            self.waiting.put(_Waiting(self._put, sent))
            self._put += 1
        return self._dropped_total if is_full else 0

    def _warn_of_dropped(self, dropped: int) -> None:
        if dropped and is_power_of_ten(dropped):
            _LOG.warning(
                "Callbacks of on_event are too slow: %d events are waiting, and %d were dropped in all",
                WAITING,
                dropped,
            )


class LifecycleEvents:
    """The callbacks of one consumer, and the thread that calls them, which starts now."""

    def __init__(self) -> None:
        self.queue = queue = EventQueue()
        self._registrations: tuple[EventRegistration, ...] = ()
        self._registering = threading.RLock()
        waiting = queue.waiting
        # If the consumer was deleted without a close, no callback is left.
        myself = ref(self, lambda _: waiting.put(None))
        thread = threading.Thread(target=_call_until_end, args=(myself, queue), name="membership events", daemon=True)
        _CALLING[queue] = thread
        thread.start()

    def register(self, callback: EventCallback) -> EventRegistration:
        """Register a callback for events from now on."""
        with self._registering:
            registration = EventRegistration(callback, self.queue.next_number)
            self._registrations = (*(one for one in self._registrations if not one.is_removed), registration)
        return registration

    def call_all(self, number: int, event: LifecycleEvent) -> None:
        """Call all callbacks, in the order in which they were registered."""
        for registration in self._registrations:
            registration.call(number, event)


def _now() -> Moment:
    return Moment(at=monotonic(), timestamp=time())


def _call_until_end(events_of: Callable[[], LifecycleEvents | None], queue: EventQueue) -> None:
    """Run until the session is closed or its consumer is deleted."""
    while (waiting := queue.waiting.get()) is not None:
        events = events_of()
        if events is None:
            return
        events.call_all(*waiting)
        # While it waits, the thread refers to no callback, and to no result or exception of one.
        del events


#: The threads of this process that call callbacks, by their queue; the process's exit (`atexit`) waits for them.
_CALLING: WeakKeyDictionary[EventQueue, threading.Thread] = WeakKeyDictionary()


def _wait_for_last_events() -> None:
    """Let callbacks receive the last events, for a bounded time: daemon threads end with the process."""
    until = monotonic() + EXIT_S
    for queue, thread in list(_CALLING.items()):
        if queue.is_ended:
            thread.join(max(0.0, until - monotonic()))


atexit.register(_wait_for_last_events)
