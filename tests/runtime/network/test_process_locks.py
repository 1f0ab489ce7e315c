"""A lock file proves that a process has ended, however it ended; it proves nothing while the process lives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from consumer_membership.runtime.network import process_locks
from consumer_membership.runtime.network.process_locks import STALE_AFTER_S, ProcessLocks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the boot id is Linux's")

_HOLDER = """
import os, sys
from consumer_membership.runtime.network.process_locks import ProcessLocks
locks = ProcessLocks("g", sys.argv[1])
locks.hold("i", "first")
if sys.argv[2] == "fork":
    if os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
if sys.argv[2] == "release":
    locks.release()
print("held", flush=True)
if sys.argv[2] == "exec":
    os.execv(sys.executable, [sys.executable, "-c", "import sys; print('new', flush=True); sys.stdin.read()"])
sys.stdin.read()
"""


@contextmanager
def holder(directory: Path, does: str = "") -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lock of the member `first`; its forked child ends with the pipe."""
    arguments = [sys.executable, "-c", _HOLDER, str(directory), does]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.fixture(scope="module")
def _left_behind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("locks")
    with holder(directory) as process:
        process.kill()
        process.wait()
    return directory


@pytest.fixture
def killed(_left_behind: Path, tmp_path: Path) -> Path:
    """A directory with the file of a process that was killed."""
    directory = tmp_path / "locks"
    shutil.copytree(_left_behind, directory)
    assert is_dead(directory)
    return directory


def is_dead(directory: Path, member_id: str = "first", instance_id: str = "i", group_id: str = "g") -> bool:
    """Return whether a new process on this host finds proof that the holder's process has ended."""
    return ProcessLocks(group_id, str(directory)).is_dead(instance_id, member_id)


def test_killed_process_is_dead_and_a_living_or_stopped_one_is_not(tmp_path: Path) -> None:
    """The kernel keeps the lock of a stopped process, and drops it at the end of a process."""
    with holder(tmp_path) as process:
        assert not is_dead(tmp_path)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert not is_dead(tmp_path)
        process.kill()
        process.wait()
        assert is_dead(tmp_path)


def test_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A fork copies no threads, so the child has no members."""
    with holder(tmp_path, "fork") as process:
        assert not is_dead(tmp_path)
        process.kill()
        process.wait()
        assert is_dead(tmp_path)


def test_process_replaced_by_exec_is_dead(tmp_path: Path) -> None:
    """The new program has the same process id, but no member."""
    with holder(tmp_path, "exec") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "new\n"
        assert is_dead(tmp_path)


@pytest.mark.parametrize(
    "other", [{"member_id": "second"}, {"instance_id": "j"}, {"group_id": "h"}, {"member_id": "../first"}]
)
def test_death_of_one_member_proves_nothing_about_another(killed: Path, other: dict[str, str]) -> None:
    """The file names group, instance id and member id."""
    assert not is_dead(killed, **other)


def test_member_that_ended_in_a_living_process_leaves_no_proof(tmp_path: Path) -> None:
    """A closed member removes its file, even if its leave did not reach the coordinator."""
    with holder(tmp_path, "release") as process:
        process.kill()
        process.wait()
        assert not is_dead(tmp_path)
        assert list(tmp_path.iterdir()) == []


def test_checks_within_the_process_never_drop_its_lock(tmp_path: Path) -> None:
    """If a process closes any descriptor of a file, its record lock ends, so a process does not open its own files."""
    mine = ProcessLocks("g", str(tmp_path))
    mine.hold("i", "mine")
    other_path = tmp_path.parent / f"{tmp_path.name}-link"
    other_path.symlink_to(tmp_path)
    try:
        assert not is_dead(tmp_path, "mine")
        assert not is_dead(other_path, "mine")
        check = (
            "import sys; from consumer_membership.runtime.network.process_locks import ProcessLocks;"
            "print(ProcessLocks('g', sys.argv[1]).is_dead('i', 'mine'))"
        )
        found = subprocess.run([sys.executable, "-c", check, str(tmp_path)], capture_output=True, text=True, check=True)
        assert found.stdout == "False\n"
    finally:
        mine.release()


def test_file_of_another_boot_proves_nothing(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another host that mounts the volume has another kernel, which does not know the lock."""
    boot = tmp_path / "boot"
    boot.write_text("another\n")
    monkeypatch.setattr(process_locks, "_BOOT_ID", boot)
    assert not is_dead(killed)
    monkeypatch.setattr(process_locks, "_BOOT_ID", tmp_path / "missing")
    assert not is_dead(killed)


@pytest.mark.parametrize("content", [b"", b"{}\n", b'{"boot": "x"}\n'])
def test_other_content_proves_nothing(killed: Path, content: bytes) -> None:
    """Another program may have written the file, or the file may be incomplete."""
    (path,) = killed.iterdir()
    path.write_bytes(content)
    assert not is_dead(killed)


def test_pipe_with_the_name_of_a_file_blocks_no_check(killed: Path) -> None:
    """A check returns immediately, whatever kind of file has the name."""
    (path,) = killed.iterdir()
    path.unlink()
    os.mkfifo(path)
    assert not is_dead(killed)


def test_refresh_makes_a_removed_file_again(tmp_path: Path) -> None:
    """A program that cleans temporary folders may have removed the file."""
    mine = ProcessLocks("g", str(tmp_path))
    mine.hold("i", "mine")
    (path,) = tmp_path.iterdir()
    path.unlink()
    mine.refresh()
    assert list(tmp_path.iterdir()) == [path]
    os.utime(path, (0, 0))
    mine.refresh()
    assert path.stat().st_mtime > 0
    mine.release()
    assert list(tmp_path.iterdir()) == []


def test_old_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    """Files are kept for a day, because a replacement may start; a live process keeps its file at any age."""
    with holder(tmp_path) as process:
        (path,) = tmp_path.iterdir()
        mine = ProcessLocks("g", str(tmp_path))
        long_ago = path.stat().st_mtime - STALE_AFTER_S - 10
        os.utime(path, (long_ago, long_ago))
        mine.hold("i", "mine")
        assert path.exists()
        process.kill()
        process.wait()
        mine.hold("i", "mine again")
        assert not path.exists()
        mine.release()


def test_default_directory_that_another_user_may_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another user could put files there that prove the death of a living process."""
    directory = tmp_path / "shared"
    monkeypatch.setattr(process_locks, "default_directory", lambda: directory)
    mine = ProcessLocks("g")
    mine.hold("i", "mine")
    assert len(list(directory.iterdir())) == 1
    mine.release()
    directory.chmod(0o777)
    mine.hold("i", "mine")
    mine.hold("i", "mine")
    assert list(directory.iterdir()) == []
    assert caplog.text.count("only this user may write") == 1
    assert not ProcessLocks("g").is_dead("i", "first")


def test_directory_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The member joins without a lock file, so its replacement has to wait for the end of its session."""
    (tmp_path / "file").write_text("")
    mine = ProcessLocks("g", str(tmp_path / "file" / "locks"))
    mine.hold("i", "mine")
    mine.hold("i", "mine")
    assert caplog.text.count("group.instance.id.lock.directory") == 1
    mine.release()
