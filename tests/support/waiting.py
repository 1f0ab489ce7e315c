"""Wait for another thread, process or broker; failures name the missing event."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import TypeVar, overload

FoundT = TypeVar("FoundT")

#: A limit against hanging tests, not an expected duration. A busy machine may need most of a minute for an action of a
#: second. The limit is below 300 s, at which pytest ends the test, so that the failure has a message.
PATIENCE_S = 60.0
#: The limit for a program that a test runs to its end: on a busy machine, the start of an interpreter with librdkafka
#: alone may take most of a minute.
PROCESS_S = 240.0
#: Kafka's default session timeout is 45 s, so an event within this time is not caused by the end of a session.
SOONER_THAN_A_SESSION_S = 30.0
_PAUSE_S = 0.01


def _pause() -> None:
    time.sleep(_PAUSE_S)


def wait_until(
    condition: Callable[[], FoundT | None],
    what: str,
    patience_s: float = PATIENCE_S,
    *,
    seen: Callable[[], object] | None = None,
    between: Callable[[], object] = _pause,
    changed: threading.Condition | None = None,
) -> FoundT:
    """Return the first true result of `condition`.

    Args:
        condition: Called repeatedly; it may raise to fail early.
        what: The awaited event, for the failure's message.
        patience_s: The time limit in seconds.
        seen: Returns the current state, for the failure's message.
        between: Called between two calls instead of a pause, for example to poll a consumer.
        changed: If given, it is held while `condition` is called, and `condition` is called again only after a
            notification.

    Raises:
        AssertionError: `what` did not happen in time.
    """
    if changed is not None:
        with changed:
            if found := changed.wait_for(condition, patience_s):
                return found
            raise _failure(what, patience_s, seen)
    give_up_at = monotonic() + patience_s
    while not (found := condition()):
        if monotonic() > give_up_at:
            raise _failure(what, patience_s, seen)
        between()
    return found


def wait_until_served(
    what: str,
    process: subprocess.Popen[bytes],
    log: Path,
    request: Callable[[], object],
    errors: type[Exception] | tuple[type[Exception], ...],
    patience_s: float = PATIENCE_S,
) -> None:
    """Return when `request` no longer raises one of these errors, because the server in this process responds.

    Raises:
        RuntimeError: The process has ended; its log is in the text.
        AssertionError: The server did not respond in time.
    """

    def is_served() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode}:\n{log.read_text(errors='replace')}")
        try:
            request()
        except errors:
            return False
        return True

    wait_until(is_served, f"a response of {what}", patience_s, seen=lambda: log.read_text(errors="replace")[-3000:])


@overload
async def async_wait_until(
    condition: Callable[[], Awaitable[FoundT | None]],
    what: str,
    patience_s: float = ...,
    *,
    seen: Callable[[], object] | None = ...,
) -> FoundT: ...
@overload
async def async_wait_until(
    condition: Callable[[], FoundT | None],
    what: str,
    patience_s: float = ...,
    *,
    seen: Callable[[], object] | None = ...,
) -> FoundT: ...
async def async_wait_until(
    condition: Callable[[], object],
    what: str,
    patience_s: float = PATIENCE_S,
    *,
    seen: Callable[[], object] | None = None,
) -> object:
    """Return the first true result of a function or coroutine function; other tasks run between two calls.

    The arguments and the failure are those of `wait_until`.
    """
    give_up_at = monotonic() + patience_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if monotonic() > give_up_at:
            raise _failure(what, patience_s, seen)
        await asyncio.sleep(_PAUSE_S)


def _failure(what: str, patience_s: float, seen: Callable[[], object] | None) -> AssertionError:
    state = "" if seen is None else f"; seen: {seen()}"
    return AssertionError(f"{what}: not within {patience_s:g} s{state}")
