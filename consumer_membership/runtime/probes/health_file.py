"""The file of `health.file`: its modification time shows that the process lives, its text the state of its consumers.

Each write creates a new file beside it and renames that, so that each reader reads one whole text. Its time is the last
moment at which a restart would not have helped: a probe that checks its age alone fails for a process that is dead or
stopped, and for one that a restart would fix.

One live process holds it, by a lock that ends with the process (`flock`): two processes would hide each other's end.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from contextlib import suppress
from functools import partial

from consumer_membership.errors import ConfigurationError
from consumer_membership.health.report import ProbeQuestion, ProcessReport

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where a file that is open cannot be replaced
    _HAS_LOCKS = False
else:
    _HAS_LOCKS = True

_log = partial(logging.getLogger, "consumer_membership.session")

FILE_KEY = "health.file"
#: How often it is written: probes tolerate some missing writes.
WRITE_INTERVAL_S = 5.0
#: How often a file may be replaced between its opening and its locking.
_TRIES = 100
#: How each such file begins, by `ProcessReport.summary`.
_BEGINNING = b'{\n  "process": '


class HealthFile:
    """The file at this path, once this process holds it.

    Raises:
        ConfigurationError: another process holds it, or it cannot be written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        #: The absolute path, because the working directory may change.
        self.place = os.path.abspath(path)
        self._beside = f"{self.place}.{os.getpid()}.tmp"
        self._live_at: float | None = None
        self._failures = 0
        self._held: int | None = None
        try:
            self._held = self._taken()
        except OSError as error:
            raise ConfigurationError(
                FILE_KEY, path, f"it cannot be written ({error.strerror or error}); use a file in a directory that "
                "this process can write to"
            ) from error  # fmt: skip

    def _taken(self) -> int:
        """Lock the file, which is created if it is missing; a file of a process that has ended is taken over."""
        remedy = "another process of this host writes it; give each process its own file"
        for _ in range(_TRIES):
            # A pipe may have no process at its other end.
            held = os.open(self.place, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o644)
            is_mine = False
            try:
                if not _is_of_our_kind(held):
                    remedy = (
                        "another file with this name exists and would be overwritten; use a name that does not exist"
                    )
                    break
                if not _lock(held):
                    break
                with suppress(FileNotFoundError):
                    is_mine = os.path.samestat(os.fstat(held), os.stat(self.place))
            finally:
                if not is_mine:
                    os.close(held)
            if is_mine:
                return held
        raise ConfigurationError(FILE_KEY, self.path, remedy)

    def write(self, report: ProcessReport) -> None:
        """Write the state of the process now; failures are logged, once until it works again."""
        if self._live_at is None or report.answer(ProbeQuestion.IS_LIVE):
            self._live_at = report.written_at
        try:
            self._write(report.summary().encode(), self._live_at)
        except OSError as error:
            self._failures += 1
            if self._failures == 1:
                _log().warning(
                    "health.file=%s cannot be written; until it can, only its modification time is updated: %s",
                    self.path,
                    error,
                )
            with suppress(OSError):  # a full disk still accepts a time
                os.utime(self.place, (self._live_at, self._live_at))
            return
        if self._failures:
            _log().warning("health.file=%s is written again after %d failures", self.path, self._failures)
            self._failures = 0

    def _write(self, text: bytes, moment: float) -> None:
        beside = self._new_beside()
        try:
            _lock(beside)
            _write_whole(beside, text)
            os.utime(self._beside, (moment, moment))
            if _HAS_LOCKS:
                os.replace(self._beside, self.place)
        except OSError:
            os.close(beside)
            with suppress(OSError):
                os.unlink(self._beside)
            raise
        self.release()
        self._held = beside
        if not _HAS_LOCKS:
            self.release()
            os.replace(self._beside, self.place)

    def _new_beside(self) -> int:
        """Create a new file, and never use one that another user put there, which might be a link to another file."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            return os.open(self._beside, flags, 0o644)
        except FileExistsError:  # a process with this number was killed here, as in a container that is restarted
            os.unlink(self._beside)
            return os.open(self._beside, flags, 0o644)

    def remove(self) -> None:
        """Remove it, at the end of the last consumer; a file that another process put there stays."""
        with suppress(OSError):
            is_ours = not _HAS_LOCKS
            if self._held is not None:
                is_ours = os.path.samestat(os.fstat(self._held), os.stat(self.place))
            self.release()
            if is_ours:
                os.unlink(self.place)
        self.release()

    def release(self) -> None:
        """Close the open files, and leave the file: in a child, whose parent continues to write it."""
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _write_whole(opened: int, text: bytes) -> None:
    if os.write(opened, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_of_our_kind(opened: int) -> bool:
    """Whether the open file is empty, or one that a process wrote for its probes, and not a device or program."""
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode):
        return False
    return status.st_size == 0 or os.read(opened, len(_BEGINNING)) == _BEGINNING


def _lock(opened: int) -> bool:
    """Lock it for as long as it is open; False: another process has it.

    A file system without locks, and Windows, let two processes write it.
    """
    if not _HAS_LOCKS:
        return True
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
