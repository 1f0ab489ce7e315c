"""The guardian's process: it listens until the application's process is gone, leaves for its members, and ends.

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
#: How often the parent is looked for where nothing tells of its end; sooner just after the pipe was closed, because
#: that is the first thing of a dying process which can be seen.
_LOOK_S, _FIRST_LOOK_S = 0.5, 0.01
#: A log that nobody reads must not hold a dead application's guardian.
_LOG_PATIENCE_S = 1.0


def run(parent_pid: int, pidfd: int | None) -> int:
    """Guard the process with this id, which started this one and gave it a pidfd of itself if it could; the exit code.

    The pipe from it is stdin.
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
    """Where the application has closed it, a socket to a broker must not get its number."""
    try:
        os.fstat(_STDERR)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)


def _listen(requests: LeaveRequests, parent: ParentWatch) -> None:
    """Take what comes through the pipe until the parent is gone, and then what is left in it."""
    os.set_blocking(_PIPE, False)
    poller = select.poll()
    poller.register(_PIPE, select.POLLIN)
    if parent.descriptor is not None:
        poller.register(parent.descriptor, select.POLLIN)
    is_open, look_s = True, _LOOK_S
    while not parent.is_gone(is_pipe_closed=not is_open):
        poller.poll(None if parent.descriptor is not None else look_s * 1000)
        if is_open and not _take(requests):
            poller.unregister(_PIPE)
            is_open, look_s = False, _FIRST_LOOK_S
        look_s = min(2 * look_s, _LOOK_S)
    if is_open:
        _take(requests)


def _take(requests: LeaveRequests) -> bool:
    """Take everything that is in the pipe; whether it is still open."""
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
    """All at once: one coordinator that does not answer must not hold up the others' leaves."""
    threads = [threading.Thread(target=_leave, args=(request, pid)) for request in standing]
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:
            # The limit of processes is reached, which is a way for an application to die.
            _leave(standing[number], pid)


def _leave(request: LeaveRequest, pid: int) -> None:
    outcome = leave(request)
    instance = f" (instance {request.instance_id})" if request.instance_id is not None else ""
    member = f"member {request.member_id} of group {request.group_id}{instance}"
    _log(outcome.level, f"{member}: its process {pid} died; {outcome.text}")


def _log(level: Level, text: str) -> None:
    """Write a line to the application's stderr, if it was handed on (`owner`), and is not gone or stuck."""
    now = time.time()
    moment = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(now))},{int(now * 1000) % 1000:03d}"
    line = f"{moment} {level.value} consumer_membership.guardian: {text}\n"
    with contextlib.suppress(OSError):
        if select.select([], [_STDERR], [], _LOG_PATIENCE_S)[1]:
            os.write(_STDERR, line.encode(errors="replace"))
