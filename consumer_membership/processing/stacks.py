"""The stacks of running handlers, as text for people: from the handler's own frame on, in any thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import dropwhile
from traceback import StackSummary
from types import FrameType, TracebackType

#: The modules that call handlers; their frames, and those below them, are left out.
_PACKAGE = "consumer_membership.processing."


def stack_of_thread(identifier: int) -> str:
    """Return the stack of a thread, as `traceback` formats it; "" if the thread has ended."""
    frame = sys._current_frames().get(identifier)  # noqa: SLF001 - the documented way to a thread's stack
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _formatted(frames[::-1])


def stack_of_coroutine(coroutine: object, thread: int) -> str:
    """Return the stack of a coroutine, as `traceback` formats it. `thread` runs its event loop.

    `asyncio.Task.get_stack` has only the outermost frame of a coroutine that waits, which is never the handler's.
    """
    frames: list[FrameType] = []
    awaited = coroutine
    while awaited is not None:
        if getattr(awaited, "cr_running", False):
            return stack_of_thread(thread)  # it blocks its event loop
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if isinstance(frame, FrameType):
            frames.append(frame)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return _formatted(frames)


def traceback_of_handler(traceback: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback that begins with the handler's own frame; None if there is no such frame."""
    while traceback is not None and _is_own(traceback.tb_frame):
        traceback = traceback.tb_next
    return traceback


def _formatted(frames: list[FrameType]) -> str:
    """Return the frames from the handler's own on; all of them if none is of this package."""
    of_package = dropwhile(lambda frame: not _is_own(frame), frames)
    shown = list(dropwhile(_is_own, of_package)) or frames
    return "".join(StackSummary.extract(_with_lines(shown)).format())


def _with_lines(frames: list[FrameType]) -> Iterator[tuple[FrameType, int]]:
    return ((frame, frame.f_lineno) for frame in frames)


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE)
