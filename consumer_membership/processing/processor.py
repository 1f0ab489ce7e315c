"""`Processor`: calls a handler for each record, in parallel and in order, and commits only finished records."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self, Unpack

from consumer_membership.health.verdict import Health
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.processing.engine import Engine
from consumer_membership.processing.progress import ProcessorProgress
from consumer_membership.processing.settings import ProcessorOptions, ProcessorSettings
from consumer_membership.runtime.application.lifecycle_events import EventCallback, EventRegistration


class Processor:
    """Calls a handler for each record of the topics, as a member of a consumer group.

        with Processor(config, ["orders"], handle, order="key", concurrency=64, dead_letter="orders.dlq") as processor:
            processor.run()

    Args:
        config: The configuration, as for `Consumer`, and the keys `drain.timeout.ms`, `offset.metadata.max.bytes`,
            `key.deserializer` and `value.deserializer`.
        topics: The topics and patterns.
        handler: Called as `handler(record)` or `handler(record, context)` with a `confluent_kafka.Message` and a
            `HandlerContext`; with `max_batch` above 1, with a list of records. A coroutine function is awaited on an
            event loop of the processor. Its result is None, or `OutputRecord`s to write.
        options: `ProcessorOptions`.

    Raises:
        ConfigurationError: an argument cannot work; the message has its name, its value and the fix.
    """

    def __init__(
        self, config: Mapping[str, object], topics: list[str], handler: object, **options: Unpack[ProcessorOptions]
    ) -> None:
        self._engine = Engine(ProcessorSettings.checked(config, topics, handler, **options))

    def run(self, *, handle_signals: bool = True) -> None:
        """Process records until `stop`, SIGTERM or Ctrl-C; then finish running handlers, commit, and leave the group.

        It can be called once. In the main thread, SIGTERM and Ctrl-C stop the processor; a second signal ends it
        without waiting for handlers, whose records the next owner processes again.

        Args:
            handle_signals: Whether signals are handled; False if another part of the program does.

        Raises:
            HandlerError: a record failed for the last time without a target for dead letters, or a handler exceeded
                `handler_timeout` and cannot be cancelled.
            UseError: it was called before.
            KafkaException: the membership ended permanently, or `auto.offset.reset` is `error` and a partition has no
                valid committed offset.
        """
        self._engine.begin()
        with _signals(self._engine.stop, self._engine.stop_now, is_wanted=handle_signals):
            self._engine.run()

    def stop(self) -> None:
        """Make `run` return after the running handlers; returns at once, in any thread and in signal handlers."""
        self._engine.stop()

    def progress(self) -> ProcessorProgress:
        """Return the records in hand, by partition. Never waits longer than a few microseconds."""
        return self._engine.progress()

    def health(self) -> Health:
        """Return the health of consumer and handlers (`Consumer.health`)."""
        return self._engine.consumer.health()

    def metrics(self) -> Metrics:
        """Return all counts of consumer and handlers (`Consumer.metrics`)."""
        return self._engine.consumer.metrics()

    def on_event(self, callback: EventCallback) -> EventRegistration:
        """Register `callback` for lifecycle events of consumer and handlers from now on (`Consumer.on_event`).

        In addition to the events of every consumer, there are `STUCK` and `RECOVERED` for handlers, `DEAD_LETTERED`,
        `DISOWNED`, and `FATAL` for a failure of the processor.

        Raises:
            TypeError: the callback is not callable, or is a coroutine function.
            RuntimeError: the processor is closed.
        """
        return self._engine.consumer.on_event(callback)

    def close(self) -> None:
        """Stop, wait until `run` has ended, and release everything. Idempotent.

        In a handler, it returns at once, as `stop` does, because `run` waits for the handler. `progress`, `health` and
        `metrics` return the last values afterwards.
        """
        self._engine.close()

    def __enter__(self) -> Self:
        """Return the processor itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the processor; an exception propagates."""
        self.close()


@contextmanager
def _signals(stop: Callable[[], None], stop_now: Callable[[], None], *, is_wanted: bool) -> Iterator[None]:
    """Stop at the first SIGTERM or SIGINT, and at once at the second; only in the main thread."""
    if not is_wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    calls = iter([stop])

    def received(_: int, __: FrameType | None) -> None:
        next(calls, stop_now)()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, received) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
