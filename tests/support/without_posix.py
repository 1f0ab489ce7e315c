"""Remove the POSIX-only parts of Python from this interpreter, to simulate Windows.

    python -m tests.support.without_posix                        imports every module of the package
    python -m tests.support.without_posix BOOTSTRAP TOPIC COUNT  then joins a group and consumes COUNT records

The removed names have "Availability: Unix" in Python's documentation, or are not available on Windows. Modules of the
standard library are imported first, because they have their own code for Windows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ctypes
import importlib
import logging.handlers
import multiprocessing.util
import os
import pkgutil
import select
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: Modules that are imported before names are removed.
_KNOWN = (
    asyncio,
    concurrent.futures,
    ctypes,
    logging.handlers,
    multiprocessing.util,
    socketserver,
    subprocess,
    tempfile,
)
_MODULES = frozenset(
    {"_posixsubprocess", "crypt", "curses", "fcntl", "grp", "nis", "ossaudiodev", "posix", "pty", "pwd", "readline"}
    | {"resource", "spwd", "syslog", "termios", "tty"}
)
_NAMES: Mapping[ModuleType, str] = {
    os: (
        "WNOHANG WUNTRACED WEXITED WIFEXITED WIFSIGNALED WEXITSTATUS WTERMSIG chown chroot confstr ctermid fchmod "
        "fchown fork forkpty getegid geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority "
        "getresuid getsid getuid initgroups killpg lchown lockf major mkfifo mknod nice openpty pidfd_open pipe2 "
        "posix_fadvise posix_fallocate posix_spawn posix_spawnp pread preadv pwrite pwritev register_at_fork "
        "sched_getaffinity sched_yield sendfile setegid seteuid setgid setgroups setpgid setpriority setsid setuid "
        "statvfs fstatvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname wait wait3 wait4 waitid set_blocking "
        "get_blocking"
    ),
    signal: (
        "SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGHUP SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT "
        "SIGSTKFLT SIGSTOP SIGSYS SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH "
        "SIGXCPU SIGXFSZ alarm getitimer setitimer pause pidfd_send_signal pthread_kill pthread_sigmask siginterrupt "
        "sigpending sigtimedwait sigwait sigwaitinfo"
    ),
    socket: "AF_UNIX AF_NETLINK AF_PACKET CMSG_LEN CMSG_SPACE MSG_DONTWAIT MSG_NOSIGNAL SO_REUSEPORT SCM_RIGHTS",
    select: "poll epoll devpoll kqueue POLLIN POLLOUT POLLERR POLLHUP POLLNVAL",
}


class _Refused(MetaPathFinder):
    """Raises ModuleNotFoundError for modules that Windows lacks."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - required by the protocol
        target: ModuleType | None = None,  # noqa: ARG002 - required by the protocol
    ) -> ModuleSpec | None:
        if name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def remove_posix() -> None:
    """Remove the names and modules; code that is imported from now on finds none of them."""
    # asyncio needs a socketpair. Without arguments it would use the removed name AF_UNIX.
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)
    for module, names in _NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in _MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Refused())


#: Needs pyspark, which imports numpy; on a machine with Linux, numpy requests the kernel's version.
_NEEDS_PYSPARK = "consumer_membership.spark.source.data_source"
#: Needs gssapi, which is not installed for the tests.
_NEEDS_GSSAPI = "consumer_membership.runtime.network.kerberos"


def import_everything() -> list[str]:
    """Import all modules of the package, except commands that run at import and modules with missing requirements."""
    package = importlib.import_module("consumer_membership")
    found = [module.name for module in pkgutil.walk_packages(package.__path__, "consumer_membership.")]
    imported = [
        name for name in found if not name.endswith(".__main__") and name not in (_NEEDS_PYSPARK, _NEEDS_GSSAPI)
    ]
    for name in imported:
        importlib.import_module(name)
    return imported


def consume(bootstrap_servers: str, topic: str, count: int) -> int:
    """Join a new group, consume, commit, leave; return the number of records."""
    consumer_class = importlib.import_module("consumer_membership").Consumer
    config = {"bootstrap.servers": bootstrap_servers, "group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
    got = 0
    with consumer_class(config) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 30
        while got < count and time.monotonic() < deadline:
            got += len(consumer.consume(count - got, 0.2))
        consumer.commit(asynchronous=False)
    return got


def main(arguments: list[str]) -> None:
    """Print the number of imported modules and of consumed records."""
    remove_posix()
    print(len(import_everything()), "modules")
    if arguments:
        bootstrap_servers, topic, count = arguments
        print(consume(bootstrap_servers, topic, int(count)), "records")


if __name__ == "__main__":
    main(sys.argv[1:])
