"""Runs user code on its own thread, in parallel with the loop: an assignor, a source of tokens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def in_daemon_thread(name: str, work: Callable[[], ResultT]) -> ResultT:
    """Return the result of user code that may take long or never return; raises its exception.

    The loop continues meanwhile. Unlike asyncio's own threads this thread delays neither the end of the loop nor that
    of the process.
    """
    answer: Future[ResultT] = Future()

    def run() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(work())
        except Exception as error:  # noqa: BLE001 - user code may raise anything; the caller raises it
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(answer)
