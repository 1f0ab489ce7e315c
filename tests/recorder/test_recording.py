"""A recording file is written completely or not at all, read up to its last complete line, and checked."""

from __future__ import annotations

import gzip
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_membership.health.handlers import HandlersDisowned, RecordDeadLettered
from consumer_membership.membership.events import Polled
from consumer_membership.recorder.recording import VERSION, read, write
from consumer_membership.recorder.replay import Replay
from consumer_membership.recorder.ring import MOST_HANDLER_FACTS, Entry, Recorder
from consumer_membership.recorder.values import RecordingError
from consumer_membership.types import GroupProtocol, TopicPartition
from tests.recorder.members import SETTINGS, Recorded
from tests.simulation.simulation import protocols_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file."""
    return tmp_path / "a.recording.gz"


def rewritten(path: Path, **changes: object) -> None:
    """Change values of the file's first line."""
    head, *lines = gzip.decompress(path.read_bytes()).splitlines()
    changed = json.dumps(json.loads(head) | changes).encode()
    path.write_bytes(gzip.compress(b"\n".join([changed, *lines])))


def test_recording_file_has_content_of_ring(path: Path) -> None:
    """The file has the ring's content, its writer, time and cause, and can be read by the file's owner only."""
    member = Recorded()
    member.join()
    recording, held = member.written(path), member.recorder.contents()
    assert (recording.entries, recording.view, recording.settings) == (held.entries, held.view, held.settings)
    assert (recording.cause, recording.clock, recording.is_whole) == ("a test", member.now, True)
    assert recording.moment(member.now) == recording.written_at
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_recording_of_idle_minutes_is_a_few_kilobytes(path: Path) -> None:
    """The recording of an idle member grows by a few dozen bytes for each heartbeat."""
    member = Recorded()
    member.join()
    before = len(gzip.compress(b"")) + path.stat().st_size if member.written(path) else 0
    for _ in range(12):
        for _ in range(20):
            member.tell(Polled())
        member.answer()
    member.written(path)
    assert path.stat().st_size - before < 12 * 500


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    """A failed write leaves neither a file nor an incomplete file."""
    member = Recorded()
    with pytest.raises(OSError):  # noqa: PT011 - the system determines the class
        write(tmp_path / "no" / "folder", member.recorder.contents(), "a test", 0.0)
    assert list(tmp_path.iterdir()) == []


def test_write_replaces_links_without_following_them(tmp_path: Path) -> None:
    """The recording replaces an existing symbolic link or file and does not write through it."""
    member = Recorded()
    foreign, path = tmp_path / "foreign", tmp_path / "a.gz"
    foreign.write_text("keep")
    path.symlink_to(foreign)
    (tmp_path / "a.gz.part").symlink_to(foreign)
    assert member.written(path).is_whole
    assert (foreign.read_text(), path.is_symlink(), stat.S_IMODE(path.stat().st_mode)) == ("keep", False, 0o600)
    assert {one.name for one in tmp_path.iterdir()} == {"foreign", "a.gz", "a.gz.part"}


def test_concurrent_writes_use_separate_temporary_files(tmp_path: Path) -> None:
    """A second write to the same path during the first one has its own file, and both complete."""
    path = tmp_path / "a.gz"
    member = Recorded()
    member.join()
    held, during = member.recorder.contents(), []

    class Interrupted(tuple[Entry, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[Entry]:
            yield from super().__iter__()
            write(path, held, "the second", 0.0)
            during.append(read(path).cause)

    write(path, held._replace(entries=Interrupted(held.entries)), "the first", 0.0)
    assert during == ["the second"]
    recording = read(path)
    assert (recording.cause, recording.is_whole) == ("the first", True)
    assert list(tmp_path.iterdir()) == [path]


def test_read_of_truncated_file_returns_complete_entries(path: Path) -> None:
    """If a file is truncated, for example because the disk was full, `read` returns its complete entries."""
    member = Recorded()
    member.join()
    for _ in range(200):
        member.tell(Polled())
    member.written(path)
    lines = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(lines[: len(lines) // 2]))
    recording = read(path)
    assert not recording.is_whole
    assert 0 < len(recording.entries) < 204
    assert recording.known_until == recording.entries[-1].at < recording.clock
    assert Replay(recording).run() is None
    path.write_bytes(gzip.compress(lines)[:-200])
    assert not read(path).is_whole
    path.write_bytes(gzip.compress(lines[: lines.index(b"\n") + 1]))
    with pytest.raises(RecordingError, match="is truncated before the first event"):
        read(path)


def test_read_of_other_format_version_raises(path: Path) -> None:
    """A file with another version of the format raises an error that names the release that wrote it."""
    member = Recorded()
    member.written(path)
    rewritten(path, version=VERSION + 1, package="9.9")
    with pytest.raises(RecordingError, match=rf"version {VERSION + 1} of the format, written by .* 9\.9"):
        read(path)


def test_read_of_invalid_file_raises(path: Path) -> None:
    """Another file, compressed or not, and a file with invalid lines raise RecordingError."""
    path.write_bytes(b"hello")
    with pytest.raises(RecordingError, match="is not a recording"):
        read(path)
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))
    with pytest.raises(RecordingError, match="is not a recording"):
        read(path)
    Recorded().written(path)
    rewritten(path, settings={"!": "types.BrokerError"})
    with pytest.raises(RecordingError, match="other fields in this version"):
        read(path)
    Recorded().written(path)
    rewritten(path, protocols=3)
    with pytest.raises(RecordingError, match="damaged: "):
        read(path)


def test_read_limits_size_and_nesting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that unpacks to more than a recording can hold, or nests too deeply, raises RecordingError."""
    member = Recorded()
    member.join()
    member.written(path)
    head, *_ = gzip.decompress(path.read_bytes()).splitlines()
    bomb = head + b"\n" + b" " * 2_000_000
    path.write_bytes(gzip.compress(bomb))
    monkeypatch.setattr("consumer_membership.recorder.recording.MOST_BYTES", 1_000_000)
    with pytest.raises(RecordingError, match="unpacks to more than 0 MiB"):
        read(path)
    for line in (b"[" * 100_000, b'{"!":"tuple","=":[' * 20_000 + b"]}" * 20_000):
        path.write_bytes(gzip.compress(head + b'\n{"draws":[],"first":0}\nnull\n{"at":1,"event":' + line + b"}\n"))
        with pytest.raises(RecordingError, match=r"nested too deeply|RecursionError"):
            read(path)


def test_recording_has_the_facts_of_handlers_without_contents_of_records(path: Path) -> None:
    """Facts of handlers are read with their times, and have no contents of records; a file without facts has no key."""
    member = Recorded()
    member.join()
    member.written(path)
    assert "handlers" not in json.loads(gzip.decompress(path.read_bytes()).splitlines()[1])
    dead = RecordDeadLettered(partition=TopicPartition("orders", 0), offset=42, attempts=5, error="ValueError")
    disowned = HandlersDisowned(offsets={TopicPartition("orders", 1): (7, 9)}, is_loss=False)
    member.recorder.note_handlers(dead, member.now)
    member.recorder.note_handlers(disowned, member.now + 1)
    recording = member.written(path)
    assert [(one.at, one.fact) for one in recording.handlers] == [(member.now, dead), (member.now + 1, disowned)]
    assert Replay(recording).difference is None


def test_recorder_keeps_a_bounded_number_of_facts_of_handlers() -> None:
    """A recorder keeps a limited number of facts, the latest ones; a recorder that is off keeps no facts."""
    member = Recorded()
    for offset in range(MOST_HANDLER_FACTS + 10):
        dead = RecordDeadLettered(partition=TopicPartition("orders", 0), offset=offset, attempts=1, error="ValueError")
        member.recorder.note_handlers(dead, member.now)
    kept = [one.fact for one in member.recorder.contents().handlers]
    assert len(kept) == MOST_HANDLER_FACTS
    assert kept[-1] == dead
    off = Recorder(
        SETTINGS,
        protocols_of(GroupProtocol.CONSUMER),
        new_member_id=lambda: "m",
        jitter=lambda: 0.25,
        is_on=False,
    )
    off.note_handlers(dead, member.now)
    assert off.contents().handlers == ()
