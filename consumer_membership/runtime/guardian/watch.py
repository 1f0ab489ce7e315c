"""Detects that the application's process has ended: it is dead, not merely stopped, silent or without its pipe."""

from __future__ import annotations

import os
import select


class ParentWatch:
    """Watches the process that started this one.

    Linux reports its death by a pidfd, which neither a forked child that holds the pipe nor a reused process id can
    falsify; the parent opened it, because it may be dead before this process is up. On other systems, and before Linux
    5.3, the id of this process's parent changes; that is checked repeatedly.
    """

    def __init__(self, pid: int, pidfd: int | None) -> None:
        self._pid = pid
        #: Becomes readable at the parent's end; None if the system has no pidfd.
        self.descriptor = pidfd

    def is_gone(self, *, is_pipe_closed: bool) -> bool:
        """Whether the parent has ended."""
        if self.descriptor is not None:
            poller = select.poll()
            poller.register(self.descriptor, select.POLLIN)
            return bool(poller.poll(0))
        parent = os.getppid()
        if parent == _OUTSIDE:
            return is_pipe_closed
        return parent != self._pid


#: The id of a parent in another PID namespace.
_OUTSIDE = 0
