"""The guardian's process: it reads until the application's process has ended, leaves for its members, and ends.

Signals: SIGINT, SIGHUP and SIGTERM are ignored. They are meant for the application, which may still be killed while it
closes; the guardian ends with it anyway.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time

from consumer_membership.runtime.guardian.asking import load_for
from consumer_membership.runtime.guardian.leave_requests import LeaveRequest, LeaveRequests
from consumer_membership.runtime.guardian.leaving import Level, leave
from consumer_membership.runtime.guardian.watch import ParentWatch

_PIPE, _STDERR = 0, 2
_READ_BYTES = 1 << 16
#: How often the parent is checked if no event reports its end; more often just after the pipe was closed, because that
#: is the first visible sign of a dying process.
_CHECK_INTERVAL_S, _FIRST_CHECK_INTERVAL_S = 0.5, 0.01
#: A log without a reader must not block a dead application's guardian.
_LOG_PATIENCE_S = 1.0


def run(parent_pid: int, pidfd: int | None) -> int:
    """Guard the process with this id, which started this one and passed its pidfd if possible; return the exit code.

    Stdin is the pipe from that process.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _occupy_stderr()
    os.chdir("/")
    requests = LeaveRequests()
    _listen(requests, ParentWatch(parent_pid, pidfd))
    _leave_for(requests.standing, parent_pid)
    return 0


def _occupy_stderr() -> None:
    """Open stderr if the application has closed it: a socket to a broker must not get its number."""
    try:
        os.fstat(_STDERR)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)


def _listen(requests: LeaveRequests, parent: ParentWatch) -> None:
    """Read the pipe until the parent has ended, and then the rest."""
    os.set_blocking(_PIPE, False)
    poller = select.poll()
    poller.register(_PIPE, select.POLLIN)
    if parent.descriptor is not None:
        poller.register(parent.descriptor, select.POLLIN)
    is_open, interval_s = True, _CHECK_INTERVAL_S
    while not parent.is_gone(is_pipe_closed=not is_open):
        poller.poll(None if parent.descriptor is not None else interval_s * 1000)
        if is_open and not _take(requests):
            poller.unregister(_PIPE)
            is_open, interval_s = False, _FIRST_CHECK_INTERVAL_S
        interval_s = min(2 * interval_s, _CHECK_INTERVAL_S)
    if is_open:
        _take(requests)


def _take(requests: LeaveRequests) -> bool:
    """Read everything that is in the pipe; return whether it is still open."""
    while True:
        try:
            data = os.read(_PIPE, _READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            # A socket whose other end died with unread data in it.
            return False
        if not data:
            return False
        requests.take(data)
        for request in requests.standing:
            load_for(request)


def _leave_for(standing: tuple[LeaveRequest, ...], pid: int) -> None:
    """Leave for all members in parallel: a coordinator that does not respond must not delay the other leaves."""
    threads = [threading.Thread(target=_leave, args=(request, pid)) for request in standing]
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:
            # The limit of processes is reached, which can also be the cause of an application's death.
            _leave(standing[number], pid)


def _leave(request: LeaveRequest, pid: int) -> None:
    outcome = leave(request)
    instance = f" (instance {request.instance_id})" if request.instance_id is not None else ""
    member = f"member {request.member_id} of group {request.group_id}{instance}"
    _log(outcome.level, f"{member}: its process {pid} died; {outcome.text}")


def _log(level: Level, text: str) -> None:
    """Write a line to the application's stderr, if it was passed on (`owner`), and is not closed or blocked."""
    now = time.time()
    moment = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now * 1000) % 1000:03d}"
    line = f"{moment} {level.value} consumer_membership.guardian: {text}\n"
    with contextlib.suppress(OSError):
        if select.select([], [_STDERR], [], _LOG_PATIENCE_S)[1]:
            os.write(_STDERR, line.encode(errors="replace"))
