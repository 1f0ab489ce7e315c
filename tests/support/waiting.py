"""Waiting for another thread, process or broker: one loop, and failures that name the missing event."""

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

#: A bound against hanging, not a measurement. A busy machine needs most of a minute for what takes a second on a quiet
#: one, and the failure's message must come before pytest ends the test, which it does after 300 s.
PATIENCE_S = 60.0
#: The same for a program that a test runs to its end: the start of an interpreter with librdkafka alone takes most of a
#: minute on a busy machine.
PROCESS_S = 240.0
#: Kafka ends a session after 45 s by default: what happens sooner is not the end of a session.
SOONER_THAN_A_SESSION_S = 30.0
_PAUSE_S = 0.01


def _pause() -> None:
    time.sleep(_PAUSE_S)


def wait_until(
    look: Callable[[], FoundT | None],
    what: str,
    patience_s: float = PATIENCE_S,
    *,
    seen: Callable[[], object] | None = None,
    between: Callable[[], object] = _pause,
    changed: threading.Condition | None = None,
) -> FoundT:
    """Return the first true result of `look`.

    Args:
        look: Called repeatedly; it may raise to give up early.
        what: The awaited event, for the failure's message.
        patience_s: Seconds after which this fails.
        seen: Returns the current state, for the failure's message.
        between: Called between two calls instead of a pause, for example to poll a consumer.
        changed: Called under this condition, `look` runs again only when the condition is notified.

    Raises:
        AssertionError: `what` did not happen in time.
    """
    if changed is not None:
        with changed:
            if found := changed.wait_for(look, patience_s):
                return found
            raise _failure(what, patience_s, seen)
    give_up_at = monotonic() + patience_s
    while not (found := look()):
        if monotonic() > give_up_at:
            raise _failure(what, patience_s, seen)
        between()
    return found


def wait_until_served(
    what: str,
    process: subprocess.Popen[bytes],
    log: Path,
    ask: Callable[[], object],
    refusals: type[Exception] | tuple[type[Exception], ...],
    patience_s: float = PATIENCE_S,
) -> None:
    """Return when the server in this process answers `ask` without one of these refusals.

    Raises:
        RuntimeError: The process has ended; its log is in the text.
        AssertionError: There was no answer in time.
    """

    def look() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with {process.returncode}:\n{log.read_text(errors='replace')}")
        try:
            ask()
        except refusals:
            return False
        return True

    wait_until(look, f"an answer of {what}", patience_s, seen=lambda: log.read_text(errors="replace")[-3000:])


@overload
async def async_wait_until(
    look: Callable[[], Awaitable[FoundT | None]],
    what: str,
    patience_s: float = ...,
    *,
    seen: Callable[[], object] | None = ...,
) -> FoundT: ...
@overload
async def async_wait_until(
    look: Callable[[], FoundT | None], what: str, patience_s: float = ..., *, seen: Callable[[], object] | None = ...
) -> FoundT: ...
async def async_wait_until(
    look: Callable[[], object],
    what: str,
    patience_s: float = PATIENCE_S,
    *,
    seen: Callable[[], object] | None = None,
) -> object:
    """Return the first true result of `look`, a function or a coroutine function; other tasks run between two calls.

    The arguments and the failure are those of `wait_until`.
    """
    give_up_at = monotonic() + patience_s
    while True:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if monotonic() > give_up_at:
            raise _failure(what, patience_s, seen)
        await asyncio.sleep(_PAUSE_S)


def _failure(what: str, patience_s: float, seen: Callable[[], object] | None) -> AssertionError:
    instead = "" if seen is None else f"; seen: {seen()}"
    return AssertionError(f"{what}: not within {patience_s:g} s{instead}")
