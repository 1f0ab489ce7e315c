"""Run one command, and kill it when the owner process ends, even by SIGKILL.

A broker's JVM must not outlive the tests or the demo that started it. This script runs as a process between the two:
it starts the command as its child and detects the end of its owner in two ways, because each alone is incomplete. The
pipe on stdin stays open while a forked child of the owner has its other end, and pidfd does not exist on every system.
If the watchdog itself is killed, Linux kills the command (PR_SET_PDEATHSIG, set in this single-threaded process, where
`preexec_fn` is safe).

    python -I -S watchdog.py OWNER_PID FOLDER CONSOLE COMMAND...

The command's pid is the first line of stdout; the command's output goes to the file CONSOLE. A byte on stdin controls
the command: `T` terminates it, `K` kills it. When the owner has ended, the command is killed and FOLDER is deleted. The
exit code is that of the command, or 128 + n for signal n.

The script imports only the standard library, so that it starts in a few hundredths of a second.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _owner_descriptors(owner_pid: int) -> list[int]:
    """Return descriptors, in addition to stdin, that become readable when the owner ends."""
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [os.pidfd_open(owner_pid)]
    except OSError:
        # The owner has ended, which stdin also shows; or the kernel is older than 5.3.
        return []


def _child_signals() -> int:
    """Return a descriptor that becomes readable at each SIGCHLD."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable)
    return readable


def _run(owner_pid: int, console: Path, command: list[str]) -> tuple[int, bool]:
    """Run the command; return its exit code, and whether the owner ended first."""
    owner = _owner_descriptors(owner_pid)
    child_signals = _child_signals()
    with console.open("ab") as output:
        child = subprocess.Popen(  # the owner's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one thread
        )
    with suppress(BrokenPipeError):
        print(child.pid, flush=True)  # noqa: T201 - the answer to the owner
    orders = sys.stdin.fileno()
    while (code := child.poll()) is None:
        ready, _, _ = select.select([orders, child_signals, *owner], [], [])
        if child_signals in ready:
            os.read(child_signals, 64)
        order = os.read(orders, 1) if orders in ready else None
        if order == b"" or set(ready) & set(owner):
            child.kill()
            child.wait()
            return 128 + signal.SIGKILL, True
        if order is not None:
            child.send_signal(signal.SIGTERM if order == b"T" else signal.SIGKILL)
    return (code if code >= 0 else 128 - code), False


def main(arguments: list[str]) -> int:
    """Run the command line described above."""
    owner_pid, folder, console, *command = arguments
    code, is_orphaned = _run(int(owner_pid), Path(console), command)
    if is_orphaned:
        # All nodes of a cluster share the folder. Each watchdog deletes it after its command has ended; only the last
        # one is certain to succeed, because the other commands may still write.
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
