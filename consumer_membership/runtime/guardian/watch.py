"""Whether the application's process is gone: dead, not merely stopped, silent or without its pipe."""

from __future__ import annotations

import os
import select


class ParentWatch:
    """Watches the process that started this one.

    Linux tells of its death by a pidfd, which neither a forked child that holds the pipe nor a reused process id can
    falsify. Elsewhere, and before Linux 5.3, the parent's process id of this process changes; that is asked for again
    and again.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        #: Becomes readable at the parent's end; None where the system has no such thing.
        self.descriptor = _pidfd(pid)
        self._was_parent = os.getppid() == pid
        if not self._was_parent and self.descriptor is not None:
            # It ended before the pidfd was opened, which may be another process's now.
            os.close(self.descriptor)
            self.descriptor = None

    def is_gone(self, *, is_pipe_closed: bool) -> bool:
        """Whether the parent has ended.

        Where it was not the parent from the start, it has ended already, or lives in another PID namespace and cannot
        be seen; then only the pipe tells.
        """
        if self.descriptor is not None:
            poller = select.poll()
            poller.register(self.descriptor, select.POLLIN)
            return bool(poller.poll(0))
        if not self._was_parent:
            return is_pipe_closed
        return os.getppid() != self._pid


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        # Gone already; or a kernel before 5.3, or a sandbox that forbids it.
        return None
