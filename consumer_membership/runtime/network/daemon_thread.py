"""Work of somebody else's, on a thread of its own beside the loop: an assignor, a source of tokens."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def in_daemon_thread(name: str, work: Callable[[], ResultT]) -> ResultT:
    """The result of work that may take its time, or never end; raises what it raises.

    The loop goes on meanwhile. Unlike asyncio's own threads this one is waited for neither by the loop's end nor by the
    process's.
    """
    answer: Future[ResultT] = Future()

    def run() -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            answer.set_result(work())
        except Exception as error:  # noqa: BLE001 - somebody else's code may raise anything; whoever waits raises it
            answer.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(answer)
