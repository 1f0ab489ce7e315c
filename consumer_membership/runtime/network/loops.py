"""The threads on which members run: one for all members of the process, or one for each member.

Each thread runs a private asyncio loop and has the connections of the members on it. Members that may share a thread
use the same one (`membership.threads=shared`), and those of one cluster with the same credentials also share
connections (`connection_pool`).

| event | rule |
|---|---|
| the first member starts | it creates the thread |
| a member ends, and others remain | its tasks, its timers and its own connections end; the thread continues |
| the last member ends | the thread ends; a member that starts at that moment gets a new thread |
| an exception in one member | ends this member only (`thread.MemberOnLoop`) |
| fork | the child has no thread; its first member creates one, and the loop of the parent is never touched there |
| end of the interpreter | the thread is a daemon: it delays nothing |

Application threads call `acquire`; a member calls `release` on the loop, at its end.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context

from consumer_membership.runtime.network.connection_pool import ConnectionPool


class NetworkLoop:
    """A daemon thread with a private asyncio loop; it ends when the last of its members has released it."""

    def __init__(self, name: str) -> None:
        # Not the program's kind of loop: the handles of uvloop may have no `when`, and its clock has milliseconds only.
        self.loop = asyncio.SelectorEventLoop()
        #: The connections of the members on this loop; used on the loop only.
        self.pool = ConnectionPool()
        #: How many members use this loop; changed with the lock of `Loops`.
        self.members = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs; False in a forked child."""
        return self._thread.is_alive()

    @property
    def is_this_thread(self) -> bool:
        """Whether the caller is on the thread."""
        return self._thread is threading.current_thread()

    def call(self, callback: Callable[[], object], context: Context | None = None) -> None:
        """Call this on the thread, in this context or the caller's, unless the thread has ended; from any thread."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(callback, context=context)

    def end(self) -> None:
        """End the thread; on the loop, after its last member."""
        self._is_over = True
        self.loop.stop()

    def join_if_over(self, timeout_s: float) -> None:
        """Wait for the end of the thread if its last member has released it."""
        if self._is_over:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._is_over:
            # A logging handler of the application may raise SystemExit; it ends one task, and not the members.
            with suppress(SystemExit):
                self.loop.run_forever()
        self.loop.close()


class Loops:
    """The shared loop of a process, as long as it has members; any thread may call the methods."""

    def __init__(self) -> None:
        # Re-entrant: a signal handler may create a consumer while its thread holds this lock.
        self._lock = threading.RLock()
        self._shared: NetworkLoop | None = None
        #: The loops that a forked child inherits. A deleted loop would unregister its sockets from the epoll instance
        #: that the parent still uses.
        self._inherited: list[NetworkLoop] = []

    def acquire(self, *, is_shared: bool, name: str) -> NetworkLoop:
        """Return a running loop for one member: the shared one, or a new one whose thread has this name."""
        with self._lock:
            loop = self._shared if is_shared else None
            if loop is None:
                loop = NetworkLoop("membership" if is_shared else name)
                loop.start()
                if is_shared:
                    self._shared = loop
            loop.members += 1
            return loop

    def release(self, loop: NetworkLoop) -> None:
        """End one member's use of this loop, and after the last member the loop itself; call this on the loop."""
        with self._lock:
            loop.members -= 1
            if loop.members:
                return
            if self._shared is loop:
                self._shared = None
        loop.end()

    def begin_in_child(self) -> None:
        """After a fork: the child has none of the threads, and the lock may have been held by one of them."""
        self._lock = threading.RLock()
        if self._shared is not None:
            self._inherited.append(self._shared)
            self._shared = None


#: The loops of the process.
LOOPS = Loops()
if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=LOOPS.begin_in_child)
