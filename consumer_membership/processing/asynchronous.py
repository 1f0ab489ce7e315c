"""`AsyncProcessor`: `Processor` for asyncio."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from consumer_membership.aio.callbacks import LoopCallbacks
from consumer_membership.errors import UseError
from consumer_membership.health.verdict import Health
from consumer_membership.metrics.snapshot import Metrics
from consumer_membership.processing.engine import Engine
from consumer_membership.processing.progress import ProcessorProgress
from consumer_membership.processing.settings import ProcessorOptions, ProcessorSettings
from consumer_membership.runtime.application.lifecycle_events import EventCallback, EventRegistration


class AsyncProcessor:
    """Calls a handler for each record of the topics, as a member of a consumer group, on the running event loop.

        async with AsyncProcessor(config, ["orders"], handle, concurrency=1000) as processor:
            await processor.run()

    Arguments and errors are those of `Processor`. Coroutine functions run on the event loop that awaits `run`; plain
    functions run on threads. Polls, rebalances and commits take place on a thread of their own, so a blocked event loop
    delays handlers only.
    """

    def __init__(
        self, config: Mapping[str, object], topics: list[str], handler: object, **options: Unpack[ProcessorOptions]
    ) -> None:
        self._engine = Engine(ProcessorSettings.checked(config, topics, handler, **options))

    async def run(self, *, handle_signals: bool = True) -> None:
        """Process records until `stop`, SIGTERM or Ctrl-C; then finish running handlers, commit, and leave the group.

        It can be awaited once. If the awaiting task is cancelled, the processor stops as by `stop`, and the
        cancellation is raised afterwards.

        Args:
            handle_signals: Whether SIGTERM and Ctrl-C stop it, in the main thread; False if the program, or its web
                framework, handles them. A second signal ends it without waiting for handlers.

        Raises:
            HandlerError: as `Processor.run`.
            UseError: it was called before.
            KafkaException: the membership ended permanently, or `auto.offset.reset` is `error` and a partition has no
                valid committed offset.
        """
        self._engine.begin()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        name = "consumer-membership-processor"
        with _signals(loop, self._engine.stop, self._engine.stop_now, is_wanted=handle_signals):
            try:
                self._engine.clock.start_thread(partial(self._run, loop, ended), name)
            except UseError:
                self._engine.ended.set_result(None)
                raise
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                self._engine.stop()
                await asyncio.wait([ended])
                ended.exception()
                raise

    def _run(self, loop: asyncio.AbstractEventLoop, ended: asyncio.Future[None]) -> None:
        """Run the engine on its thread, and pass its end to the event loop."""
        failure: BaseException | None = None
        try:
            self._engine.run(loop)
        except BaseException as raised:  # noqa: BLE001 - the awaiting task raises it
            failure = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, ended, failure)

    async def stop(self) -> None:
        """Finish running handlers, commit, leave the group, and return when `run` is about to return.

        In a handler, it returns at once, because `run` waits for the handler. It may be awaited on any event loop.
        """
        self._engine.stop()
        if self._engine.has_begun and not self._engine.is_called_by_handler:
            await asyncio.wait([asyncio.wrap_future(self._engine.ended)])

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
        """Register `callback` for events, as `Processor.on_event`; it runs on the event loop and may be a coroutine.

        Raises:
            TypeError: the callback is not callable.
            RuntimeError: the processor is closed, or no event loop is running.
        """
        if not callable(callback):
            raise TypeError("on_event expects a callable")
        listener = LoopCallbacks(asyncio.get_running_loop()).listener(callback)
        return self._engine.consumer.on_event(listener)

    async def close(self) -> None:
        """Stop, and release everything. Idempotent. In a handler, it returns at once, as `stop` does."""
        await self.stop()
        await asyncio.to_thread(self._engine.close)

    async def __aenter__(self) -> Self:
        """Return the processor itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the processor; an exception propagates."""
        await self.close()


def _settle(ended: asyncio.Future[None], failure: BaseException | None) -> None:
    if ended.done():
        return
    if failure is None:
        ended.set_result(None)
    else:
        ended.set_exception(failure)


@contextmanager
def _signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], stop_now: Callable[[], None], *, is_wanted: bool
) -> Iterator[None]:
    """Stop at the first SIGTERM or SIGINT, and at once at the second; only in the main thread."""
    if not is_wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    calls = iter([stop])

    def received() -> None:
        next(calls, stop_now)()

    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    for number in numbers:
        loop.add_signal_handler(number, received)
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            loop.remove_signal_handler(number)
            signal.signal(number, handler)
