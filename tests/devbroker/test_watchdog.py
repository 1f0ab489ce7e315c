"""The watchdog: no process outlives the one that asked for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from consumer_membership.devbroker import watchdog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

FOREVER = [sys.executable, "-S", "-c", "import signal\nprint('up', flush=True)\nwhile True: signal.pause()"]


class Watched:
    """A watchdog under test, whose owner is this process or another one."""

    def __init__(self, folder: Path, command: list[str], owner_pid: int | None = None) -> None:
        self.folder = folder
        self.console = folder.parent / "console.log"
        owner = [str(owner_pid or os.getpid()), str(folder), str(self.console)]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, *owner, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self.orders = self.process.stdin
        self.pid = int(self.process.stdout.readline())
        self.process.stdout.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.orders.close()


class WatchedForever(Watched):
    """The same with a command that runs until it is ended, so that it can be looked at: a short one is gone by then."""

    def __init__(self, folder: Path, owner_pid: int | None = None) -> None:
        super().__init__(folder, FOREVER, owner_pid)
        self.command = psutil.Process(self.pid)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like that of a cluster, not empty."""
    made = tmp_path / "cluster"
    made.mkdir()
    (made / "segment.log").write_text("records")
    return made


@pytest.fixture
def watched(folder: Path) -> Iterator[WatchedForever]:
    """A command that runs until it is ended."""
    made = WatchedForever(folder)
    yield made
    made.close()


@pytest.mark.parametrize(("order", "number"), [(b"T", signal.SIGTERM), (b"K", signal.SIGKILL)])
def test_order_ends_the_command_and_keeps_the_folder(watched: WatchedForever, order: bytes, number: int) -> None:
    """A node that is stopped or killed on purpose is going to be started again with its storage."""
    watched.orders.write(order)
    assert watched.process.wait(10) == 128 + number
    assert not watched.command.is_running()
    assert watched.folder.exists()


def test_exit_code_is_the_commands(folder: Path) -> None:
    """The owner learns how the command ended."""
    watched = Watched(folder, [sys.executable, "-S", "-c", "print('said'); raise SystemExit(7)"])
    assert watched.process.wait(10) == 7
    assert watched.console.read_text() == "said\n"
    watched.close()


def test_closed_pipe_ends_the_command_and_removes_the_folder(watched: WatchedForever) -> None:
    """The pipe closes with the owner, however it ended."""
    watched.orders.close()
    assert watched.process.wait(10) == 128 + signal.SIGKILL
    assert not watched.command.is_running()
    assert not watched.folder.exists()


def test_killed_owner_is_noticed_while_its_child_holds_the_pipe(folder: Path) -> None:
    """A forked child of the owner inherits the pipe; the owner's own end is what counts."""
    owner = subprocess.Popen(FOREVER, stdout=subprocess.DEVNULL)
    watched = WatchedForever(folder, owner_pid=owner.pid)
    owner.kill()
    owner.wait()
    assert watched.process.wait(10) == 128 + signal.SIGKILL
    assert not watched.command.is_running()
    assert not watched.folder.exists()
    watched.close()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_killed_watchdog_takes_the_command_with_it(watched: WatchedForever) -> None:
    """Not even the out-of-memory killer leaves a JVM behind."""
    watched.process.kill()
    gone, _ = psutil.wait_procs([watched.command], timeout=10)
    assert gone == [watched.command]
