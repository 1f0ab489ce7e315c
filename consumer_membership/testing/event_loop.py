"""An event loop on the virtual time of a cluster inside the test process: `asyncio.sleep` takes no real time.

The thread of the loop passes its turn whenever the loop is idle, so that the time moves to the next timer. The loop
cannot wait for the sockets of other programs: virtual time passes before their response arrives.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor, Future
from math import inf
from typing import TypeVar

AnswerT = TypeVar("AnswerT")


class VirtualEventLoop(asyncio.SelectorEventLoop):
    """An event loop for one thread of the cluster.

    Args:
        now: Returns the virtual time.
        wait: Waits until a condition is true, at most for a time.
        start_thread: Starts a thread that takes turns with the other threads.
    """

    #: Distinguishes it from the event loops of real time.
    is_virtual = True

    def __init__(
        self,
        now: Callable[[], float],
        wait: Callable[[Callable[[], bool], float], bool],
        start_thread: Callable[[Callable[[], object], str], object],
    ) -> None:
        super().__init__(_VirtualSelector(wait))
        self._now = now
        self._start_thread = start_thread

    def run_in_executor(
        self, _: Executor | None, func: Callable[..., AnswerT], *args: object
    ) -> asyncio.Future[AnswerT]:
        """Call a function in a thread that takes turns with the other threads; `asyncio.to_thread` uses this method."""
        called: Future[AnswerT] = Future()

        def call() -> None:
            try:
                called.set_result(func(*args))
            except Exception as failure:  # noqa: BLE001 - the awaiting coroutine raises it
                called.set_exception(failure)

        self._start_thread(call, "fake cluster executor")
        return asyncio.wrap_future(called, loop=self)

    def time(self) -> float:
        """Return the virtual time."""
        return self._now()


class _VirtualSelector(selectors.DefaultSelector):
    """Waits on virtual time for the loop's own wake-ups, which arrive on a socket."""

    def __init__(self, wait: Callable[[Callable[[], bool], float], bool]) -> None:
        super().__init__()
        self._wait = wait

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready keys, after at most this time; None: without a limit."""
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if ready or timeout == 0:
            return ready
        self._wait(lambda: bool(super(_VirtualSelector, self).select(0)), inf if timeout is None else timeout)
        return super().select(0)
