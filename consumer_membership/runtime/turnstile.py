"""The fair lock around librdkafka's handle: one application thread at a time, for one poll slice at most.

A thread that polls takes the lock again and again. With a plain lock it would win nearly every time, and a worker that
wants to commit would starve; so whoever waits for the lock holds the door first, and the polling thread has to queue
behind it. The lock is re-entrant, because a signal handler may interrupt its own thread anywhere and call the consumer.
"""

from __future__ import annotations

import threading
from types import TracebackType


class Turnstile:
    """A re-entrant lock that nobody who waits for it is kept from by one who keeps coming back."""

    __slots__ = ("_door", "_room")

    def __init__(self) -> None:
        # Both are re-entrant ones in C: a signal handler may run between any two lines below.
        self._door = threading.RLock()
        self._room = threading.RLock()

    def is_mine(self) -> bool:
        """Whether this thread is inside."""
        return self._room._is_owned()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001 - as Condition asks it

    def __enter__(self) -> None:
        """Wait for the turn; who is inside already just goes deeper."""
        if self.is_mine():
            self._room.acquire()
            return
        try:
            with self._door:
                self._room.acquire()
        except BaseException:
            # A signal handler that raises (Ctrl-C) right after the lock was taken: nobody would give it back.
            if self.is_mine():
                self._room.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let the next one in."""
        self._room.release()
