"""The watchdog: no process outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from consumer_membership.devbroker import watchdog
from tests.support.waiting import PATIENCE_S

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
    """A watchdog whose command runs until it is ended, so that the test can inspect the process."""

    def __init__(self, folder: Path, owner_pid: int | None = None) -> None:
        super().__init__(folder, FOREVER, owner_pid)
        self.command = psutil.Process(self.pid)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a non-empty folder like a cluster's."""
    made = tmp_path / "cluster"
    made.mkdir()
    (made / "segment.log").write_text("records")
    return made


@pytest.fixture
def watched(folder: Path) -> Iterator[WatchedForever]:
    """Return a watchdog whose command runs until it is ended."""
    made = WatchedForever(folder)
    yield made
    made.close()


@pytest.mark.parametrize(("order", "number"), [(b"T", signal.SIGTERM), (b"K", signal.SIGKILL)])
def test_watchdog_order_ends_command_and_keeps_folder(watched: WatchedForever, order: bytes, number: int) -> None:
    """An order ends the command with its signal and keeps the folder, because the node may be started again."""
    watched.orders.write(order)
    assert watched.process.wait(PATIENCE_S) == 128 + number
    assert not watched.command.is_running()
    assert watched.folder.exists()


def test_watchdog_returns_exit_code_of_command(folder: Path) -> None:
    """The watchdog's exit code is the command's exit code, so that the owner receives it."""
    watched = Watched(folder, [sys.executable, "-S", "-c", "print('output'); raise SystemExit(7)"])
    assert watched.process.wait(PATIENCE_S) == 7
    assert watched.console.read_text() == "output\n"
    watched.close()


def test_watchdog_ends_command_and_removes_folder_when_pipe_closes(watched: WatchedForever) -> None:
    """When the owner ends in any way, its pipe closes, and the watchdog ends the command and removes the folder."""
    watched.orders.close()
    assert watched.process.wait(PATIENCE_S) == 128 + signal.SIGKILL
    assert not watched.command.is_running()
    assert not watched.folder.exists()


def test_watchdog_detects_killed_owner_whose_child_holds_pipe(folder: Path) -> None:
    """The watchdog detects a killed owner even if a forked child holds the pipe open, because it checks the owner."""
    owner = subprocess.Popen(FOREVER, stdout=subprocess.DEVNULL)
    watched = WatchedForever(folder, owner_pid=owner.pid)
    owner.kill()
    owner.wait()
    assert watched.process.wait(PATIENCE_S) == 128 + signal.SIGKILL
    assert not watched.command.is_running()
    assert not watched.folder.exists()
    watched.close()


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_killed_watchdog_ends_its_command(watched: WatchedForever) -> None:
    """If the watchdog is killed, for example by the out-of-memory killer, its command also ends."""
    watched.process.kill()
    gone, _ = psutil.wait_procs([watched.command], timeout=PATIENCE_S)
    assert gone == [watched.command]
