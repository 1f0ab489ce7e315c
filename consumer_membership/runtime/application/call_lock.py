"""Who is doing something now, read off the threads' stacks.

Ctrl-C may end a call between any two instructions, also between the one that sets a flag and the `try` that takes it
back. A consumer whose flag says for ever that a callback runs would never perform another step, nor close. So a flag is
only believed as long as the call that set it is still running.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType


class CallLock:
    """Something that one call at a time does; a call that ended without giving it back does not hold it any more."""

    __slots__ = ("_lock", "_place")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may take a duty while its thread is doing so
        self._place: tuple[int, FrameType] | None = None

    def take(self) -> bool:
        """Give the duty to the calling function; False: some call has it, perhaps an outer one of this thread."""
        with self._lock:
            if self.holder is not None:
                return False
            self._place = (threading.get_ident(), sys._getframe(1))  # noqa: SLF001 - there is no public name for it
            return True

    def give_back(self) -> None:
        """Let others take it."""
        self._place = None

    @property
    def holder(self) -> int | None:
        """The thread that has the duty."""
        place = self._place
        if place is None:
            return None
        thread, frame = place
        return thread if any(caller is frame for caller in _callers(_top_of(thread))) else None


def is_running(owner: object, codes: frozenset[CodeType], outside: FrameType | None) -> bool:
    """Whether this thread is in one of these methods of that object, in `outside` or in one of its callers."""
    return any(frame.f_code in codes and frame.f_locals.get("self") is owner for frame in _callers(outside))


def caller(depth: int) -> FrameType | None:
    """The frame so many calls above the calling function."""
    return sys._getframe(1 + depth)  # noqa: SLF001


def _top_of(thread: int) -> FrameType | None:
    if thread == threading.get_ident():
        return sys._getframe()  # noqa: SLF001
    return sys._current_frames().get(thread)  # noqa: SLF001


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
