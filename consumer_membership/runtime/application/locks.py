"""The locks of the application's side. Ctrl-C leaves none of them locked, wherever it interrupts.

A signal handler that raises can end a call between any two instructions, also between the instruction that locks and
the `try` that unlocks. A consumer whose lock stayed locked could never perform a step or close. Two rules follow for
everything here:

1. Only the C code of a lock's own `__exit__` unlocks: CPython runs no signal handler between the end of a `with` block
   and the end of that call. An `__exit__` or a `finally` in Python can be cut short before it unlocks.
2. The owner of a lock is read from a C lock, never from a note that Python code has to undo.

A `with` block of such a lock contains no `try` of its own, but calls a function that has it: CPython 3.11 leaves the
line of an inner `try` without the handlers of the outer block. No signal handler runs on that line, but a tracer can
raise there, as the tests of interrupts do.
"""

from __future__ import annotations

import _thread
import threading
from threading import Lock


class FairLock(_thread.RLock):  # type: ignore[misc]  # final in typeshed only: CPython marks it as a base
    """A re-entrant lock that lets a waiting thread in before a thread that returns repeatedly.

    A thread that polls takes the lock again and again. With a plain lock it would win nearly every time, and a worker
    that wants to commit would starve. So a thread that waits for the lock holds an entry lock first, and the polling
    thread queues behind it. The lock is re-entrant because a signal handler may interrupt its own thread anywhere and
    call the consumer.

    Owner and count are those of C's own lock (`RLock`): `acquire` sets them, `__exit__` takes them back. After every
    call, also an interrupted one, the count equals the number of `with` blocks that this thread is in. A count in
    Python, beside C's, was tried: it needs an `__exit__` in Python, which breaks the module's first rule.
    """

    def __init__(self) -> None:
        super().__init__()
        self._entry = threading.RLock()

    def is_mine(self) -> bool:
        """Whether this thread is inside."""
        return self._is_owned()  # type: ignore[attr-defined,no-any-return]  # as threading.Condition does

    def __enter__(self) -> None:  # type: ignore[override]  # `with` passes nothing
        """Wait for this thread's turn; a thread that is already inside enters again at once."""
        if self._is_owned():  # type: ignore[attr-defined]  # `is_mine` without its call
            self._enter_again()
        else:
            try:
                with self._entry:
                    self.acquire()
            except BaseException:
                # A signal handler raised (Ctrl-C), perhaps after `acquire`. This thread was not inside before.
                if self._is_owned():  # type: ignore[attr-defined]
                    self.release()
                raise

    def _enter_again(self) -> None:
        """Count one more. The lock is owned before and after, so a list notes in the same C call that it was taken."""
        taken: list[bool] = []
        try:
            taken.extend(map(self.acquire, (True,)))
        except BaseException:
            if taken:
                self.release()
            raise


class CallLock:
    """A lock that one call at a time owns, without waiting; it is free again when that call ends, however it ends.

    The call brings a lock of its own, which it holds in a `with` block for as long as it runs:

        running = Lock()
        with running:
            if call_lock.acquire(running):
                ...

    `_owner` is the latest owner: its thread, and the lock that it holds while it runs. `acquire` sets it and `release`
    clears it; both are called by the owning call, or after it ended. An interrupted call may leave it set. That does no
    harm, because the owner counts only while its own lock is locked, and C code unlocks that. After every call of any
    thread: `owner` is a thread whose call is inside its `with` block, or None.
    """

    __slots__ = ("_acquiring", "_owner")

    def __init__(self) -> None:
        self._acquiring = threading.RLock()  # a signal handler may acquire it while its thread is doing so
        self._owner: tuple[int, Lock] | None = None

    def acquire(self, running: Lock) -> bool:
        """Let the call that holds `running` own this; False: another call owns it, perhaps in this thread."""
        with self._acquiring:
            if self.owner is not None:
                return False
            self._owner = (threading.get_ident(), running)
            return True

    def release(self) -> None:
        """Let other calls own it, before the owning call ends."""
        self._owner = None

    @property
    def owner(self) -> int | None:
        """The thread whose call owns it."""
        owner = self._owner
        if owner is None:
            return None
        thread, running = owner
        return thread if running.locked() else None


class RunningCalls:
    """Determines whether this thread is inside one of the calls that hold the lock from `begin`.

        with calls.begin():
            ...

    `_outermost.lock`, of which each thread has its own, is locked while the outermost call of this thread runs. That
    call's `with` block locks and unlocks it, so that it is unlocked when no such call runs, also after an interrupt.
    """

    __slots__ = ("_outermost",)

    def __init__(self) -> None:
        self._outermost = _ThreadLock()

    def begin(self) -> Lock:
        """Return the lock for a call that begins; a nested call, from a callback or a signal handler, gets its own."""
        outermost = self._outermost.lock
        return Lock() if outermost.locked() else outermost

    @property
    def is_inside(self) -> bool:
        """Whether this thread is inside such a call."""
        return self._outermost.lock.locked()


class _ThreadLock(threading.local):
    def __init__(self) -> None:
        self.lock = Lock()
