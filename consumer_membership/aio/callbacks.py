"""Callbacks of an asyncio program: coroutine functions and functions, which run on its loop.

The thread that polls waits for them, as it waits for functions; heartbeats go on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from inspect import isawaitable, iscoroutinefunction

from consumer_membership.aio.workers import call_on_loop

Callback = Callable[..., object]
#: How often it is seen whether the loop still is one that can answer.
_LOOK_S = 0.5

#: The keys of callbacks that a poll calls.
_POLLED = ("error_cb", "stats_cb", "throttle_cb", "on_commit")


class LoopCallbacks:
    """Makes functions, to be called by any thread, of one loop's callbacks."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        #: How many run: their consumer's calls are made inside the call that runs them.
        self.running = 0
        #: Whether the loop waits for the consumer to be made, and can run nothing.
        self._is_loop_busy = False

    @contextmanager
    def in_config(self, config: Mapping[str, object]) -> Iterator[dict[str, object]]:
        """The configuration with functions in the place of its callbacks, to make a consumer of meanwhile.

        `oauth_cb` may be asked by any thread, at once and later; what is no coroutine function stays where it is asked.
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
        """A function that has the loop run this callback and waits for it; `first` replaces the first argument."""

        def call(*args: object) -> object:
            if self._is_loop_busy:
                return _on_another_loop(callback, args)
            ended: Future[object] = Future()
            given = args if first is None else (first, *args[1:])
            call_on_loop(self._loop, lambda: self._start(callback, given, ended))
            return self._result(ended)

        return call

    def listener(self, callback: Callback) -> Callback:
        """A function that has the loop run this callback of `on_event`, and waits for it: the next event comes then.

        No call of the consumer waits for it meanwhile. What a loop cancels at its end is not worth a word.
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
        """On the loop: begin the callback, as a task of its own."""
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
            try:
                return ended.result(_LOOK_S)
            except TimeoutError:
                if self._loop.is_closed() and not ended.done():
                    raise RuntimeError("Event loop is closed: its callback cannot be called") from None
        return ended.result()


async def _called(callback: Callback, args: tuple[object, ...]) -> object:
    result = callback(*args)
    return await result if isawaitable(result) else result


def _on_another_loop(callback: Callback, args: tuple[object, ...]) -> object:
    """Run it to its end although its own loop cannot: on one that a thread has for it."""
    ended: Future[object] = Future()

    def work() -> None:
        try:
            ended.set_result(asyncio.run(_called(callback, args)))
        except BaseException as error:  # noqa: BLE001 - it comes out of the call
            ended.set_exception(error)

    threading.Thread(target=work, name="consumer-membership-aio", daemon=True).start()
    return ended.result()
