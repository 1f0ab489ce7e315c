"""The fair lock around librdkafka's handle: one application thread at a time, for one poll slice at most.

A thread that polls takes the lock again and again. With a plain lock it would win nearly every time, and a worker that
wants to commit would starve; so whoever waits for the lock holds the door first, and the polling thread has to queue
behind it. The lock is re-entrant, because a signal handler may interrupt its own thread anywhere and call the consumer.
"""

from __future__ import annotations

import _thread
import re
import threading

_COUNT = re.compile(r"\bcount=(\d+)")


class FairLock(_thread.RLock):  # type: ignore[misc]  # final in typeshed only: CPython marks it as a base
    """A re-entrant lock that nobody who waits for it is kept from by one who keeps coming back.

    It is C's own lock, whose `__exit__` Ctrl-C cannot get into: one in Python could be interrupted before its first
    line, and the lock would stay taken for ever.
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
        found = _COUNT.search(repr(self)) if self.is_mine() else None
        return int(found[1]) if found is not None else 0

    def __enter__(self) -> bool:  # type: ignore[override]  # `with` passes nothing
        """Wait for the turn; who is inside already just goes deeper."""
        depth = self._depth
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
