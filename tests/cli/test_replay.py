"""`replay`: a recording's origin, whether its replay is identical, the state of the member; exit codes."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer_membership.cli import main
from consumer_membership.cli.replay import ReplayOptions, replay
from consumer_membership.health.handlers import RecordDeadLettered
from consumer_membership.membership.events import CoordinatorLost, Polled, TimePassed
from consumer_membership.membership.member import MemberCore
from consumer_membership.recorder.recording import write
from consumer_membership.types import TopicPartition
from tests.recorder.members import Recorded, simulated

COMMAND = [sys.executable, "-m", "consumer_membership", "replay"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a recording of a joined member whose heartbeat receives no response."""
    member = Recorded()
    member.join()
    member.tell(TimePassed(), Polled(), CoordinatorLost(reason="broken"))
    path = tmp_path / "a.recording.gz"
    member.written(path)
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Return the exit code and the output of the command."""
    code = main(["replay", *words])
    return code, capsys.readouterr().out


def test_replay_shows_owner_result_and_member(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output has the owner, the result of the replay and the member's state."""
    code, text = shown(capsys, str(path))
    assert code == 0
    lines = text.splitlines()
    assert lines[0].startswith("group orders-group, process ")
    assert lines[1].endswith(" UTC: a test")
    assert lines[2] == "9 events in 8.0 s, since the member was created"
    assert "replayed 9 of 9 events: all effects equal the recorded ones" in lines
    assert any(line.startswith("state     STABLE, for ") for line in lines)
    assert "waits for group coordinator, for 0.0 s" in lines


def test_replay_step_until_shows_events_up_to_time(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each event is shown with its effects, and the member with its state at that time."""
    code, text = shown(capsys, str(path), "--step", "--until", "1")
    assert code == 0
    assert "replayed 2 of 9 events" in text
    assert "     2     +1.000 s  JOINING       Polled(delivered=False)" in text.splitlines()
    assert "-> FindCoordinator(reason='the coordinator is not known yet')" in text
    assert "JoinAnswered" not in text


def test_replay_json_has_all_values(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are seconds after the first event."""
    code, text = shown(capsys, str(path), "--json", "--step", "--explain")
    document = json.loads(text)
    assert (code, document["is_identical"], document["replayed_events"], document["difference"]) == (0, True, 9, None)
    assert document["member"]["waits_for"] == "group coordinator"
    assert document["member"]["waits_since"] == 8.0
    assert [step["state"] for step in document["steps"]][:2] == ["UNSUBSCRIBED", "JOINING"]
    assert document["explanation"].startswith("The membership was stable")


def test_replay_shows_first_difference_and_exits_1(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output has the recorded and the replayed effects."""
    monkeypatch.setattr(MemberCore, "_on_coordinator_lost", lambda *_: None)
    code, text = shown(capsys, str(path))
    assert code == 1
    assert "difference at event 9, +8.000 s: its effects differ" in text
    assert "  recorded: FindCoordinator(reason='broken')" in text
    code, text = shown(capsys, str(path), "--json")
    assert (code, json.loads(text)["difference"]["recorded"]) == (1, ["FindCoordinator(reason='broken')"])


def test_replay_of_unreadable_file_exits_2_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that cannot be read has the exit code of an invalid argument, 2, and one line of error text."""
    (tmp_path / "a").write_bytes(b"hello")
    assert main(["replay", str(tmp_path / "a")]) == 2
    assert main(["replay", str(tmp_path / "b")]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "is not a recording of consumer-membership" in first
    assert "No such file or directory" in second


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_replay_to_full_disk_exits_1_with_one_line(path: Path) -> None:
    """If the disk is full, the command prints one line without a traceback."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*COMMAND, path], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "consumer-membership replay: No space left on device\n")


@pytest.mark.parametrize("block", [0, 1])
def test_replay_in_other_process_is_identical(tmp_path: Path, block: int) -> None:
    """A replay in a process with other hashes and another order of sets has equal effects."""
    first, last, least = ((0, 3, 8), (3, None, 1))[block]
    for number, name in enumerate(("everything", "classic", "pool")):
        recorders = simulated(name, number, segment_weight=(2_000, 60)[number % 2])
        for place, recorder in enumerate(islice(recorders, first, last)):
            path = tmp_path / f"{number}-{place}.gz"
            write(path, recorder.contents(), "a test", 0.0)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) >= least
    for seed, path in enumerate(paths):
        environment = os.environ | {"PYTHONHASHSEED": str(seed + 1)}
        done = subprocess.run([*COMMAND, str(path)], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


Json: TypeAlias = Any
Place: TypeAlias = tuple[str | int, ...]


def nodes(value: Json, place: Place = ()) -> Iterator[Place]:
    """Return the places of all values in this JSON."""
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield from nodes(one, (*place, key))


def replaced(value: Json, place: Place, other: Json) -> Json:
    """Return this JSON with another value at the place."""
    if not place:
        return other
    copied = value.copy()
    copied[place[0]] = replaced(value[place[0]], place[1:], other)
    return copied


STRANGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(
        ["\x1b[2J\nforged", "1", "t", {}, [], {"!": "tuple", "=": []}, {"!": "list", "#": 0, "=": [{"^": 0}]}]
    ),
    st.sampled_from(
        [{"!": "types.TopicPartition", "=": [1, 2]}, {"!": "membership.events.Polled", "delivered": False}]
    ),
)


@given(data=st.data(), word=st.sampled_from(["--explain", "--step", "--json"]))
@settings(max_examples=100)
def test_replay_of_manipulated_recording_prints_only_printable_lines(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, word: str
) -> None:
    """With any value replaced, the command ends with an exit code and writes printable lines."""
    lines = list(map(json.loads, written_lines()))
    number = data.draw(st.integers(0, len(lines) - 1))
    place = data.draw(st.sampled_from(list(nodes(lines[number]))))
    lines[number] = replaced(lines[number], place, data.draw(STRANGE))
    path = tmp_path_factory.mktemp("strange") / "a.gz"
    path.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode()))
    out, err = io.StringIO(), io.StringIO()
    options = ReplayOptions(
        path=path, is_stepwise=word == "--step", explains=word == "--explain", is_json=word == "--json"
    )
    code = replay(options, out, err)
    assert code in {0, 1, 2}
    assert (code == 2) == bool(err.getvalue())
    assert all(line.isprintable() for line in (out.getvalue() + err.getvalue()).split("\n"))


@cache
def written_lines() -> tuple[str, ...]:
    """Return the lines of a recording that begins with a checkpoint."""
    member = Recorded(segment_weight=40)
    member.join()
    for _ in range(60):
        member.tell(Polled())
    with TemporaryDirectory() as folder:
        member.written(Path(folder) / "a")
        return tuple(gzip.decompress((Path(folder) / "a").read_bytes()).decode().splitlines())


def test_replay_step_shows_facts_of_handlers_between_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A dead letter is shown at its time among the events, up to the requested time, as text and as JSON."""
    member = Recorded()
    member.join()
    partition = TopicPartition("orders", 0)
    for offset, at in ((41, 101.5), (42, member.now + 5)):
        dead = RecordDeadLettered(partition=partition, offset=offset, attempts=5, error="ValueError")
        member.recorder.note_handlers(dead, at)
    member.now += 6
    path = tmp_path / "a.recording.gz"
    member.written(path)
    lines = shown(capsys, str(path), "--step")[1].splitlines()
    (first, last) = (index for index, line in enumerate(lines) if "dead-lettered" in line)
    assert lines[first].split()[:5] == ["+0.500", "s", "handlers", "dead-lettered", "orders-0"]
    assert "Polled" in "".join(lines[first + 1 :])
    assert not any("Polled" in line for line in lines[last:])
    found = json.loads(shown(capsys, str(path), "--step", "--json", "--until", "1")[1])
    assert [one["at_s"] for one in found["handlers"]] == [0.5]
    found = json.loads(shown(capsys, str(path), "--step", "--json")[1])
    assert len(found["handlers"]) == 2
