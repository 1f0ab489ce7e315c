"""`replay`: what a recording was of, whether it leads to the same, how the member was; exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from consumer_membership.cli import main
from consumer_membership.membership.events import CoordinatorLost, Polled, TimePassed
from consumer_membership.membership.member import GroupMember
from consumer_membership.recorder.recording import write
from tests.recorder.members import Recorded, simulated

COMMAND = [sys.executable, "-m", "consumer_membership", "replay"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A recording of a member that joined, and whose heartbeat is not answered."""
    member = Recorded()
    member.join()
    member.tell(TimePassed(), Polled(), CoordinatorLost(reason="broken"))
    path = tmp_path / "a.recording.gz"
    member.written(path)
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code, and what the command writes."""
    code = main(["replay", *words])
    return code, capsys.readouterr().out


def test_member_is_shown_as_it_was(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whose it was, that all is the same, and the member."""
    code, text = shown(capsys, str(path))
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("group orders-group, process ")
    assert lines[1].endswith(" UTC: a test")
    assert lines[2] == "9 events in 8.0 s, from the member's birth on"
    assert "replayed 9 of 9 events: all as they were then" in lines
    assert any(line.startswith("state     STABLE, since ") for line in lines)
    assert "waits for the group's coordinator to be found, since 0.0 s" in lines


def test_steps_are_shown_until_a_moment(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each event with what it led to, and the member as it was then."""
    code, text = shown(capsys, str(path), "--step", "--until", "1")
    assert code == 0
    assert "replayed 2 of 9 events" in text
    assert "     2     +1.000 s  JOINING       Polled(delivered=False)" in text.splitlines()
    assert "-> FindCoordinator(reason='the coordinator is not known yet')" in text
    assert "JoinAnswered" not in text


def test_json_has_all_of_it(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs; times are seconds after the first event."""
    code, text = shown(capsys, str(path), "--json", "--step", "--explain")
    told = json.loads(text)
    assert (code, told["is_identical"], told["replayed"], told["difference"]) == (0, True, 9, None)
    assert told["member"]["waits_for"] == "the group's coordinator to be found"
    assert told["member"]["waits_since"] == 8.0
    assert [step["state"] for step in told["steps"]][:2] == ["UNSUBSCRIBED", "JOINING"]
    assert told["explanation"].startswith("The membership was in order")


def test_first_difference_is_shown(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was ordered then and what is ordered now; exit code 1."""
    takers = {kind: take for kind, take in GroupMember._TAKERS.items() if kind is not CoordinatorLost}
    monkeypatch.setattr(GroupMember, "_TAKERS", takers)
    code, text = shown(capsys, str(path))
    assert code == 1
    assert "difference at event 9, +8.000 s: it orders something else" in text
    assert "  then: FindCoordinator(reason='broken')" in text
    code, text = shown(capsys, str(path), "--json")
    assert (code, json.loads(text)["difference"]["recorded"]) == (1, ["FindCoordinator(reason='broken')"])


def test_file_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, as for any argument that is wrong."""
    (tmp_path / "a").write_bytes(b"hello")
    assert main(["replay", str(tmp_path / "a")]) == 2
    assert main(["replay", str(tmp_path / "b")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "is no recording of consumer-membership" in first
    assert "No such file or directory" in second


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_output_on_a_full_disk_is_one_line(path: Path) -> None:
    """No traceback, and exit code 1."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, path], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "consumer-membership replay: No space left on device\n")


def test_other_processes_replay_identically(tmp_path: Path) -> None:
    """Texts have other hashes there, and sets another order: nothing that a core orders may hang on that."""
    for number, name in enumerate(("everything", "classic", "pool")):
        for place, recorder in enumerate(simulated(name, number, segment_weight=(2_000, 60)[number % 2])):
            path = tmp_path / f"{number}-{place}.gz"
            write(path, recorder.held(), "a test", 0.0)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) >= 9
    for seed, path in enumerate(paths):
        environment = os.environ | {"PYTHONHASHSEED": str(seed + 1)}
        done = subprocess.run([*COMMAND, str(path)], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
