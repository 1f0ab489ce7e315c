"""The two locks of the application's side, which Ctrl-C leaves unlocked wherever it comes.

Ctrl-C may end a call between any two instructions, also between the one that locks and the `try` that unlocks. A
consumer whose lock then stayed locked would never perform another step, nor close.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType


class FairLock(_thread.RLock):  # type: ignore[misc]  # final in typeshed only: CPython marks it as a base
    """A re-entrant lock that nobody who waits for it is kept from by one who keeps coming back.

    A thread that polls takes the lock again and again. With a plain lock it would win nearly every time, and a worker
    that wants to commit would starve; so whoever waits for the lock holds the door first, and the polling thread has to
    queue behind it. It is re-entrant because a signal handler may interrupt its own thread anywhere and call the
    consumer. It is C's own lock, whose `__exit__` Ctrl-C cannot get into.
    """

    def __init__(self) -> None:
        super().__init__()
        self._door = threading.RLock()

    def is_mine(self) -> bool:
        """Whether this thread is inside."""
        return self._is_owned()  # type: ignore[attr-defined,no-any-return]  # as threading.Condition asks it

    @property
    def _depth(self) -> int:
        """How many times this thread is inside, from the lock's text: 3.11.2 has no other way to ask."""
        return int(repr(self).partition(" count=")[2].partition(" ")[0]) if self.is_mine() else 0

    def __enter__(self) -> bool:  # type: ignore[override]  # `with` passes nothing
        """Wait for the turn; who is inside already just goes deeper."""
        depth = self._depth if self._is_owned() else 0  # type: ignore[attr-defined]  # as `is_mine`, a call less
        try:
            if depth:
                return self.acquire()
            with self._door:
                return self.acquire()
        except BaseException:
            # A signal handler that raises (Ctrl-C) right after the lock was taken: nobody would give it back.
            while self._depth > depth:
                self.release()
            raise


class CallLock:
    """A lock that belongs to one call at a time; a call that ended without releasing it does not own it any more.

    Who owns it is read off the threads' stacks: it is only believed as long as the call that acquired it still runs.
    """

    __slots__ = ("_lock", "_owner")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may acquire it while its thread is doing so
        self._owner: tuple[int, FrameType] | None = None

    def acquire(self) -> bool:
        """Have the calling function own it, at once; False: a call owns it, perhaps an outer one of this thread."""
        with self._lock:
            if self.owner is not None:
                return False
            self._owner = (threading.get_ident(), sys._getframe(1))  # noqa: SLF001 - there is no public name for it
            return True

    def release(self) -> None:
        """Let others acquire it."""
        self._owner = None

    @property
    def owner(self) -> int | None:
        """The thread whose call owns it."""
        owner = self._owner
        if owner is None:
            return None
        thread, frame = owner
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
