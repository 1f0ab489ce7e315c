"""Removes the POSIX-only parts of Python from this interpreter, to simulate Windows.

    python -m tests.support.without_posix                        imports every module of the package
    python -m tests.support.without_posix BOOTSTRAP TOPIC COUNT  then joins a group and consumes so many records

The removed names have "Availability: Unix" in Python's documentation, or are not available on Windows. The standard
library is imported before, because it distinguishes the systems itself.
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

#: Imported before anything is taken away.
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
    """Finds no module that Windows lacks."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - likewise
    ) -> ModuleSpec | None:
        if name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def take_away() -> None:
    """Remove the names from every module that is imported from now on."""
    # Windows' has no AF_UNIX in it, and asyncio needs one.
    socket.socketpair = partial(socket.socketpair, socket.AF_UNIX)
    for module, names in _NAMES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    for name in _MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Refused())


#: Needs pyspark: numpy, which it imports, looks for the kernel's version where the machine has Linux.
_PYSPARKS = "consumer_membership.spark.source.data_source"
#: Needs gssapi, which the tests do not install.
_KERBEROS = "consumer_membership.runtime.network.kerberos"


def import_everything() -> list[str]:
    """Import every module of the package, except commands that run at import, and what needs pyspark or gssapi."""
    package = importlib.import_module("consumer_membership")
    found = [module.name for module in pkgutil.walk_packages(package.__path__, "consumer_membership.")]
    imported = [name for name in found if not name.endswith(".__main__") and name not in (_PYSPARKS, _KERBEROS)]
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
    """Print the result."""
    take_away()
    print(len(import_everything()), "modules")
    if arguments:
        bootstrap_servers, topic, count = arguments
        print(consume(bootstrap_servers, topic, int(count)), "records")


if __name__ == "__main__":
    main(sys.argv[1:])
