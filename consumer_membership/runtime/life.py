"""Whether a session may be used: it is open, and this is the process that made it.

librdkafka's threads do not survive a `fork()`, and its handle ends the process when it is destroyed in a child. So a
forked child is told at its next call, and the handle is never destroyed there.
"""

from __future__ import annotations

import ctypes
import os
from weakref import WeakSet

from consumer_membership.membership.effects import ApplicationEffect
from consumer_membership.runtime.fetcher import Fetcher
from consumer_membership.runtime.mailbox import Mailbox
from consumer_membership.runtime.refusals import ClosedError, ForkedError


class Life:
    """The life of one session."""

    __slots__ = ("__weakref__", "_fetcher", "_mailbox", "_process", "is_closed", "is_ending")

    def __init__(self, fetcher: Fetcher, mailbox: Mailbox[ApplicationEffect]) -> None:
        self._process = os.getpid()
        self._fetcher = fetcher
        self._mailbox = mailbox
        #: Set when closing begins: whoever polls comes back soon.
        self.is_ending = False
        self.is_closed = False
        _LIVES.add(self)

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that made the session."""
        return os.getpid() == self._process

    def check_process(self) -> None:
        """Raise if this is another process than the one that made the session."""
        if not self.is_ours:
            raise ForkedError(
                f"this consumer was made in process {self._process} and cannot be used in its child {os.getpid()}: "
                "make a new one after fork(), or start processes with multiprocessing's 'spawn' method"
            )

    def check(self) -> None:
        """Raise if the session cannot be used (any more, or here)."""
        self.check_process()
        if self.is_closed:
            raise ClosedError("Consumer closed")

    def end(self) -> None:
        """Send the hot path of `poll` the long way, where the end is noticed."""
        self.is_ending = True
        self._mailbox.full = True

    def survive_fork(self) -> None:
        """In the child: take the records from the hot path, and keep the handle from ever being destroyed."""
        self._mailbox.full = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._fetcher.handle))


_LIVES: WeakSet[Life] = WeakSet()


def _after_fork_in_child() -> None:
    for life in list(_LIVES):
        life.survive_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
