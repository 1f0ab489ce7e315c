"""The one guardian of this process: started with the first leave request, notified of changes, restarted if it died.

Everything here returns at once and raises nothing: it is called on membership threads. Bytes that the pipe does not
take now are sent with the next call; meanwhile, only the latest request of each member is kept.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from consumer_membership.runtime.guardian.leave_requests import LeaveRequest, line_of

_log = partial(logging.getLogger, "consumer_membership.guardian")

_SCRIPT = Path(__file__).with_name("script.py")
#: If a guardian dies repeatedly, another program ends it, so it must not be started endlessly.
_STARTS = 5
_RESTART_PAUSE_S = 1.0
#: The process id of the init of a PID namespace, with which all of its processes end.
_INIT = 1
_STDERR = 2
#: A write to a dead guardian must not raise SIGPIPE, whose default action, which some applications restore, ends them.
_SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0) | getattr(socket, "MSG_DONTWAIT", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardianProcess:
    """The guardian as its parent sees it: a child process, and the pipe to it.

    Process ids and descriptor numbers may be reused. An application that waits for any child (`os.wait()`) frees the
    process id, which another of its children may get: a pidfd stays with the one process (None: the system has none).
    An application that closes all descriptors reuses the numbers of these: `identity` identifies the pipe.
    """

    pid: int
    pidfd: int | None
    descriptor: int
    identity: tuple[int, int]

    @property
    def is_ours(self) -> bool:
        """Whether the descriptor still belongs to the pipe."""
        try:
            return _identity(self.descriptor) == self.identity
        except OSError:
            return False

    def send(self, data: bytes) -> int:
        """Send bytes and return their number; raises OSError as sockets do."""
        if not self.is_ours:
            raise BrokenPipeError("the application closed the pipe of the guardian")
        # A socket object that stays would warn at the interpreter's end that it was not closed.
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, self.descriptor)
        try:
            return end.send(data, _SEND_FLAGS)
        finally:
            end.detach()

    def end(self) -> str | None:
        """Return how the process ended; None while it runs. The status of other children is left to the application."""
        if not self.is_ours:
            return None
        try:
            if self.pidfd is not None:
                found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
                return None if found is None else f"status {found.si_status}"
            if not self._has_closed_pipe:
                return None
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            return f"status {os.waitstatus_to_exitcode(status)}" if ended else None
        except ChildProcessError:
            return "the application collected its exit status"

    @property
    def _has_closed_pipe(self) -> bool:
        """Whether the guardian's end of the pipe is closed."""
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, self.descriptor)
        try:
            return not end.recv(1, socket.MSG_PEEK | _SEND_FLAGS)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            end.detach()

    def close(self) -> None:
        """Close its descriptors; those that the application closed do not belong to this object any more."""
        if self.is_ours:
            os.close(self.descriptor)
            if self.pidfd is not None:
                os.close(self.pidfd)


class Guardian:
    """The guardian of the process that uses this object, which all its members share.

    It starts no process before the first leave request. With `follows_forks` the object of a forked child starts again.
    """

    def __init__(self, script: Path = _SCRIPT, *, follows_forks: bool = False) -> None:
        self._script = script
        self._keys = itertools.count(1)
        self.reset()
        if follows_forks and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    @property
    def pid(self) -> int | None:
        """The guardian's process id; None: no guardian runs."""
        return None if self._process is None else self._process.pid

    def reset(self) -> None:
        """In a forked child: forget the parent's guardian, and close the copy of its pipe."""
        process: GuardianProcess | None = getattr(self, "_process", None)
        if process is not None:
            process.close()
        self._lock = threading.Lock()
        self._requests: dict[int, bytes] = {}
        self._outbox: dict[int, bytes] = {}
        self._unsent = b""
        self._process: GuardianProcess | None = None
        self._starts = 0
        self._started_at = float("-inf")

    def new_key(self) -> int:
        """A key for one more member."""
        return next(self._keys)

    def update(self, key: int, request: LeaveRequest | None) -> None:
        """Set the leave request of the member with this key; None: there is nothing to do any more."""
        with self._lock:
            line = line_of(key, request)
            if request is None:
                self._requests.pop(key, None)
            else:
                self._requests[key] = line
            self._outbox[key] = line
            self._tend()

    def restart_and_send(self) -> None:
        """Start the guardian again if it has ended, and send the unsent bytes."""
        with self._lock:
            self._tend()

    def _tend(self) -> None:
        if not self._is_up():
            self._start()
        process = self._process
        while process is not None and (self._unsent or self._outbox):
            if not self._unsent:
                key = next(iter(self._outbox))
                self._unsent = self._outbox.pop(key)
            try:
                self._unsent = self._unsent[process.send(self._unsent) :]
            except BlockingIOError:
                return
            except OSError as error:
                # That guardian has the earlier requests, and acts on them at this process's end.
                _log().debug("The guardian process %d can no longer be reached: %s", process.pid, error)
                process.close()
                self._process = process = None

    def _is_up(self) -> bool:
        if self._process is None:
            return False
        how = self._process.end()
        if how is None:
            return True
        left, pid = _STARTS - self._starts, self._process.pid
        _log().warning(
            "The guardian process %d ended unexpectedly (%s); it can be started %d more times", pid, how, left
        )
        self._process.close()
        self._process = None
        return False

    def _start(self) -> None:
        now = time.monotonic()
        if not self._requests or self._starts >= _STARTS or now - self._started_at < _RESTART_PAUSE_S:
            return
        self._starts += 1
        self._started_at = now
        try:
            self._process = _spawn(self._script)
        except (OSError, RuntimeError) as error:
            # RuntimeError: from Python 3.12 on, if the interpreter is about to end.
            _log().warning(
                "The guardian process could not be started (attempt %d of %d): %s", self._starts, _STARTS, error
            )
            return
        self._unsent, self._outbox = b"", dict(self._requests)
        _log().info("Guardian process %d watches process %d", self._process.pid, os.getpid())
        if os.getpid() == _INIT and self._starts == 1:
            _log().warning(
                "This process is PID 1, so the kernel ends the guardian together with it and a crash is not covered; "
                "run your program under an init process"
            )


def _spawn(script: Path) -> GuardianProcess:
    """Start the guardian; raises OSError if that is impossible."""
    executable = Path(sys.executable or "")
    if getattr(sys, "frozen", False) or not executable.name.lower().startswith("py"):
        # This executable would start the application again: a frozen one, or a server that embeds Python.
        raise OSError(f"sys.executable={sys.executable!r} is not a Python interpreter")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs, _own_pidfd() as pidfd:
        ours.setblocking(False)
        process = subprocess.Popen(  # noqa: S603 - this interpreter, this package's script
            [str(executable), "-I", "-S", str(script), str(os.getpid()), *map(str, pidfd)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=None if _may_hold_stderr() else subprocess.DEVNULL,
            pass_fds=pidfd,
            start_new_session=True,  # Ctrl-C and a kill of the application's process group do not concern it.
        )
        # The guardian outlives this process by design, and `end` collects its status, so Popen must not warn at the
        # end.
        process.returncode = 0
        descriptor = ours.fileno()
        started = GuardianProcess(
            pid=process.pid,
            pidfd=_pidfd_of(process.pid) if hasattr(os, "P_PIDFD") else None,
            descriptor=descriptor,
            identity=_identity(descriptor),
        )
        ours.detach()
    return started


def _may_hold_stderr() -> bool:
    """Whether the guardian may keep the application's stderr open, to log after the application's death.

    A file, a terminal and systemd's journal: yes. Another pipe or socket: no, because its reader waits for the end of
    all processes that hold it (`subprocess.run(capture_output=True)`), and would wait for the guardian.
    """
    try:
        found = os.fstat(_STDERR)
    except OSError:
        return False
    is_journal = os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
    return is_journal or not (stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode))


@contextmanager
def _own_pidfd() -> Iterator[tuple[int, ...]]:
    """Yield a pidfd of this process, or nothing if the system has none."""
    opened = _pidfd_of(os.getpid())
    if opened is None:
        yield ()
        return
    try:
        yield (opened,)
    finally:
        os.close(opened)


def _pidfd_of(pid: int) -> int | None:
    """Return a pidfd; None if the system has none: before Linux 5.3, or in a sandbox that forbids it."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


#: The guardian of the process for all members that enable it. Tests create others.
GUARDIAN = Guardian(follows_forks=True)
