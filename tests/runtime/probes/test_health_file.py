"""The health file is complete, belongs to one process, and is as old as the last time without need of a restart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import consumer_membership
from consumer_membership.errors import ConfigurationError
from consumer_membership.health.report import ConsumerReport, ProcessReport
from consumer_membership.health.verdict import HealthVerdict
from consumer_membership.membership.states import MemberState
from consumer_membership.runtime.probes.health_file import HealthFile
from tests.runtime.probes.watched import health_of
from tests.support.views import view_of

V = HealthVerdict
DOCUMENT = Path(consumer_membership.__file__).parents[1] / "docs" / "operating/probes.md"

_OTHER = """
import sys
from consumer_membership.errors import ConfigurationError
from consumer_membership.health.report import ProcessReport
from consumer_membership.runtime.probes.health_file import HealthFile
try:
    HealthFile(sys.argv[1]).write(ProcessReport(process=1, at=1.0, written_at=1.0, consumers=()))
except ConfigurationError as error:
    print(error)
"""


def report(at: float, *, helps: bool = False) -> ProcessReport:
    """Return the report of one consumer at this time."""
    health = health_of(V.NOT_POLLED if helps else V.IDLE, helps=helps)
    one = ConsumerReport(client_id="client", view=view_of(MemberState.STABLE), health=health)
    return ProcessReport(process=7, at=at, written_at=at, consumers=(one,))


def other(path: Path) -> str:
    """Return the error that another process receives for this file."""
    done = subprocess.run([sys.executable, "-c", _OTHER, str(path)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def verdict(path: Path) -> str:
    """Return the consumer's verdict in the file."""
    found: str = json.loads(path.read_text())["consumers"][0]["verdict"]
    return found


def test_health_file_time_is_the_last_moment_without_need_of_a_restart(tmp_path: Path) -> None:
    """A probe needs only the file's age, but its text always has the current verdict."""
    path = tmp_path / "health.json"
    file = HealthFile(str(path))
    file.write(report(1_000.0))
    assert (path.stat().st_mtime, verdict(path)) == (1_000.0, "idle")
    file.write(report(1_005.0, helps=True))
    file.write(report(1_010.0, helps=True))
    assert (path.stat().st_mtime, verdict(path)) == (1_000.0, "not_polled")
    file.write(report(1_015.0))
    assert (path.stat().st_mtime, verdict(path)) == (1_015.0, "idle")
    file.remove()
    assert list(tmp_path.iterdir()) == []


def test_health_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A file that was opened before the replacement keeps its content, and no temporary file is left."""
    path = tmp_path / "health.json"
    file = HealthFile(str(path))
    file.write(report(1.0))
    with path.open() as opened:
        first = opened.read(5)
        file.write(report(2.0, helps=True))
        assert json.loads(first + opened.read())["consumers"][0]["verdict"] == "idle"
    assert list(tmp_path.iterdir()) == [path]
    file.remove()


def test_health_file_of_a_running_process_is_rejected_for_another(tmp_path: Path) -> None:
    """The rule holds before and after a replacement; the file of a process that ended is taken over."""
    path = tmp_path / "health.json"
    assert other(path) == ""
    file = HealthFile(str(path))
    refusal = f"health.file='{path}': another process of this host writes it; give each process its own file"
    assert other(path) == refusal
    file.write(report(1.0))
    assert other(path) == refusal
    file.remove()
    assert other(path) == ""


def test_health_file_does_not_follow_a_symbolic_link_at_its_temporary_name(tmp_path: Path) -> None:
    """In a shared folder, another user may have created a link with the temporary name."""
    path, precious = tmp_path / "health.json", tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / f"health.json.{os.getpid()}.tmp").symlink_to(precious)
    file = HealthFile(str(path))
    file.write(report(1.0))
    assert (precious.read_text(), verdict(path), path.is_symlink()) == ("kept", "idle", False)
    file.remove()


def test_documented_commands_read_the_health_file(tmp_path: Path) -> None:
    """The liveness probe reads the file's age, and the readiness probe reads its text."""
    path = tmp_path / "health.json"
    live, ready = (
        command.replace("/run/health.json", str(path))
        for command in re.findall(r"(?:^|`)(test \$.*|grep -q '[^`]*)(?:`|$)", DOCUMENT.read_text(), re.MULTILINE)
    )

    def codes(found: ProcessReport) -> list[int]:
        file.write(found)
        return [subprocess.run(["/bin/sh", "-c", command], check=False).returncode for command in (live, ready)]

    file = HealthFile(str(path))
    now = time.time()
    assert codes(report(now)) == [0, 0]
    assert codes(report(now - 40)) == [1, 0]
    assert codes(report(now + 1, helps=True)) == [1, 1]
    assert codes(report(now + 1)) == [0, 0]
    file.remove()
    assert subprocess.run(["/bin/sh", "-c", live], check=False, capture_output=True).returncode != 0


def test_health_file_does_not_overwrite_another_file(tmp_path: Path) -> None:
    """Programs, devices and pipes raise ConfigurationError."""
    program = tmp_path / "program.py"
    program.write_text("print(1)")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (program, pipe, Path("/dev/null")):
        with pytest.raises(ConfigurationError, match="another file with this name exists and would be overwritten"):
            HealthFile(str(path))
    assert program.read_text() == "print(1)"


@pytest.mark.parametrize("name", ["missing/health.json", "."])
def test_health_file_that_cannot_be_written_raises_configuration_error(tmp_path: Path, name: str) -> None:
    """The error has the system's reason and the remedy."""
    with pytest.raises(
        ConfigurationError, match=r"it cannot be written .*; use a file in a directory that this process"
    ):
        HealthFile(f"{tmp_path}/{name}")


def test_health_file_logs_a_missing_folder_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """When the folder is back, the log reports the number of failures."""
    folder = tmp_path / "folder"
    folder.mkdir()
    file = HealthFile(str(folder / "health.json"))
    file.write(report(1.0))
    (folder / "health.json").unlink()
    folder.rmdir()
    for moment in (2.0, 3.0):
        file.write(report(moment))
    folder.mkdir()
    file.write(report(4.0))
    assert [one.getMessage().partition(": ")[0] for one in caplog.records] == [
        f"health.file={folder}/health.json cannot be written; until it can, only its modification time is updated",
        f"health.file={folder}/health.json is written again after 2 failures",
    ]
    file.remove()


def test_health_file_of_another_process_is_not_removed(tmp_path: Path) -> None:
    """If this process's file was moved away and another process created its own, that file stays."""
    path = tmp_path / "health.json"
    file = HealthFile(str(path))
    file.write(report(1.0))
    path.rename(tmp_path / "moved")
    other(path)
    file.remove()
    assert path.exists()


def test_health_file_path_is_relative_to_the_first_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application may change its working folder."""
    monkeypatch.chdir(tmp_path)
    file = HealthFile("health.json")
    monkeypatch.chdir("/")
    file.write(report(1.0))
    assert verdict(tmp_path / "health.json") == "idle"
    file.remove()
