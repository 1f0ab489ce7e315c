"""Callbacks of an asyncio program: functions and coroutine functions that run on its event loop.

The thread that polls waits for them, as it waits for plain functions; heartbeats continue meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from inspect import isawaitable, iscoroutinefunction

from consumer_membership.aio.workers import call_on_loop
from consumer_membership.runtime.clock import SYSTEM_CLOCK, Clock

Callback = Callable[..., object]
#: Interval in seconds at which a waiting thread checks whether the loop can still respond.
_CHECK_S = 0.5

#: The keys of callbacks that a poll calls.
_POLLED = ("error_cb", "stats_cb", "throttle_cb", "on_commit")


class LoopCallbacks:
    """Turn the callbacks of one loop into functions that any thread can call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: The time of the consumer, once it is created.
        self.clock: Clock = SYSTEM_CLOCK
        #: The number of callbacks that run now; the consumer's calls that they make run inside the outer call.
        self.running = 0
        #: True while the loop waits for the consumer to be created and cannot run anything.
        self._is_loop_busy = False

    @contextmanager
    def in_config(self, config: Mapping[str, object]) -> Iterator[dict[str, object]]:
        """Return the configuration with plain functions in place of its callbacks, for the creation of a consumer.

        `oauth_cb` may be called by any thread, immediately and later; a plain function is called in that thread.
        """
        made = {key: self.function(given) for key in _POLLED if callable(given := config.get(key))}
        token = config.get("oauth_cb")
        if iscoroutinefunction(token):
            made["oauth_cb"] = self.function(token)
        self._is_loop_busy = True
        try:
            yield {**config, **made}
        finally:
            self._is_loop_busy = False

    def function(self, callback: Callback, *, first: object = None) -> Callback:
        """Return a function that runs this callback on the loop and waits; `first` replaces the first argument."""

        def call(*args: object) -> object:
            if self._is_loop_busy:
                return _on_another_loop(callback, args)
            ended: Future[object] = Future()
            given = args if first is None else (first, *args[1:])
            call_on_loop(self._loop, lambda: self._start(callback, given, ended))
            return self._result(ended)

        return call

    def listener(self, callback: Callback) -> Callback:
        """Return a function that runs this callback of `on_event` on the loop and waits for it before the next event.

        No call of the consumer waits for it. A cancellation by the loop at its end is not logged.
        """

        def call(event: object) -> None:
            ended: Future[object] = Future()
            call_on_loop(self._loop, lambda: self._begin(_called(callback, (event,)), ended))
            try:
                self._result(ended)
            except asyncio.CancelledError:
                pass
            except RuntimeError:
                if ended.done() or not self._loop.is_closed():
                    raise

        return call

    def _start(self, callback: Callback, args: tuple[object, ...], ended: Future[object]) -> None:
        """Start the callback on the loop as a separate task."""
        self._begin(self._run(callback, args), ended)

    def _begin(self, running: Coroutine[object, object, object], ended: Future[object]) -> None:
        task = self._loop.create_task(running)

        def note(done: asyncio.Task[object]) -> None:
            if done.cancelled():
                ended.set_exception(asyncio.CancelledError("the callback was cancelled"))
            elif (error := done.exception()) is not None:
                ended.set_exception(error)
            else:
                ended.set_result(done.result())

        task.add_done_callback(note)

    async def _run(self, callback: Callback, args: tuple[object, ...]) -> object:
        self.running += 1
        try:
            return await _called(callback, args)
        finally:
            self.running -= 1

    def _result(self, ended: Future[object]) -> object:
        while not ended.done():
            self.clock.wait_for_end(ended, _CHECK_S)
            if self._loop.is_closed() and not ended.done():
                raise RuntimeError("Event loop is closed; its callback cannot run")
        return ended.result()


async def _called(callback: Callback, args: tuple[object, ...]) -> object:
    result = callback(*args)
    return await result if isawaitable(result) else result


def _on_another_loop(callback: Callback, args: tuple[object, ...]) -> object:
    """Run a coroutine to its end on a loop of another thread, because its own loop cannot run it."""
    ended: Future[object] = Future()

    def work() -> None:
        try:
            ended.set_result(asyncio.run(_called(callback, args)))
        except BaseException as error:  # noqa: BLE001 - the call raises it
            ended.set_exception(error)

    threading.Thread(target=work, name="consumer-membership-aio", daemon=True).start()
    return ended.result()
