"""Runs one command and ends it as soon as the process that asked for it is gone, however that one ended.

A broker's JVM must not outlive the tests or the demo that started it, not even after `kill -9`. This script stands
between the two: it is started as a process of its own, starts the command as its child, and watches its owner in
two ways, since either alone has a hole: the pipe on stdin stays open as long as any forked child of the owner holds
the other end, and a pidfd does not exist everywhere. Should the watchdog itself be killed, Linux
ends the command (PR_SET_PDEATHSIG, set here where there is one thread and `preexec_fn` is safe).

    python -I -S watchdog.py OWNER_PID FOLDER CONSOLE COMMAND...

The command's pid is the first line of stdout; its own output goes to the file CONSOLE. One byte on stdin is an order:
`T` terminates the command, `K` kills it. When the owner is gone the command is killed and FOLDER removed. The exit
code is the command's, 128 + n for signal n.

It imports the standard library only: it starts in a few hundredths of a second, without the package.
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
    """Descriptors that become readable when the owner is gone, besides stdin."""
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [os.pidfd_open(owner_pid)]
    except OSError:
        # Gone already, which stdin tells as well; or a kernel older than 5.3.
        return []


def _child_signals() -> int:
    """A descriptor that becomes readable at each SIGCHLD."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writable)
    return readable


def _run(owner_pid: int, console: Path, command: list[str]) -> tuple[int, bool]:
    """Run the command to its end; its exit code, and whether the owner went away meanwhile."""
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
        # A whole cluster shares the folder. Each watchdog comes here after its own command's end, so the last one
        # finds nobody writing any more; those before it may fail.
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
