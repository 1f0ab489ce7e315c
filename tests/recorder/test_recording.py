"""A recording as a file: written whole or not at all, read as far as it is whole, refused in words."""

from __future__ import annotations

import gzip
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumer_membership.membership.events import Polled
from consumer_membership.recorder.recording import VERSION, read, write
from consumer_membership.recorder.replay import Replay
from consumer_membership.recorder.ring import Entry
from consumer_membership.recorder.values import RecordingError
from tests.recorder.members import Recorded


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "a.recording.gz"


def rewritten(path: Path, **changes: object) -> None:
    """The file with another head."""
    head, *lines = gzip.decompress(path.read_bytes()).splitlines()
    changed = json.dumps(json.loads(head) | changes).encode()
    path.write_bytes(gzip.compress(b"\n".join([changed, *lines])))


def test_file_holds_what_the_ring_held(path: Path) -> None:
    """With who wrote it, when and why; for its owner's eyes."""
    member = Recorded()
    member.join()
    recording, held = member.written(path), member.recorder.contents()
    assert (recording.entries, recording.view, recording.settings) == (held.entries, held.view, held.settings)
    assert (recording.cause, recording.clock, recording.is_whole) == ("a test", member.now, True)
    assert recording.moment(member.now) == recording.written_at
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_idle_minutes_are_a_few_kilobytes(path: Path) -> None:
    """A heartbeat that changes nothing costs a few dozen bytes."""
    member = Recorded()
    member.join()
    before = len(gzip.compress(b"")) + path.stat().st_size if member.written(path) else 0
    for _ in range(12):
        for _ in range(20):
            member.tell(Polled())
        member.answer()
    member.written(path)
    assert path.stat().st_size - before < 12 * 500


def test_file_that_cannot_be_written_is_not_there(tmp_path: Path) -> None:
    """Nor is half of it."""
    member = Recorded()
    with pytest.raises(OSError):  # noqa: PT011 - which one is the system's
        write(tmp_path / "no" / "folder", member.recorder.contents(), "a test", 0.0)
    assert list(tmp_path.iterdir()) == []


def test_write_leaves_links_and_files_of_others_alone(tmp_path: Path) -> None:
    """A symbolic link or a file that is there already is replaced by the recording, and nothing is written to it."""
    member = Recorded()
    foreign, path = tmp_path / "foreign", tmp_path / "a.gz"
    foreign.write_text("keep")
    path.symlink_to(foreign)
    (tmp_path / "a.gz.part").symlink_to(foreign)
    assert member.written(path).is_whole
    assert (foreign.read_text(), path.is_symlink(), stat.S_IMODE(path.stat().st_mode)) == ("keep", False, 0o600)
    assert {one.name for one in tmp_path.iterdir()} == {"foreign", "a.gz", "a.gz.part"}


def test_write_does_not_share_its_unfinished_file(tmp_path: Path) -> None:
    """A second write to one path, begun while the first is under way, has its own file, and both end whole."""
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


def test_file_without_its_end_is_read_as_far_as_it_goes(path: Path) -> None:
    """The disk was full, or the copy was cut."""
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
    with pytest.raises(RecordingError, match="was cut short before the first event"):
        read(path)


def test_file_of_another_version_is_refused_in_words(path: Path) -> None:
    """Who wrote it can read it."""
    member = Recorded()
    member.written(path)
    rewritten(path, version=VERSION + 1, package="9.9")
    with pytest.raises(RecordingError, match=rf"version {VERSION + 1} of the format, written by .* 9\.9"):
        read(path)


def test_what_is_no_recording_is_refused(path: Path) -> None:
    """Another file, compressed or not, and one whose lines say something else."""
    path.write_bytes(b"hello")
    with pytest.raises(RecordingError, match="is no recording"):
        read(path)
    path.write_bytes(gzip.compress(b'{"a": 1}\n'))
    with pytest.raises(RecordingError, match="is no recording"):
        read(path)
    Recorded().written(path)
    rewritten(path, settings={"!": "types.BrokerError"})
    with pytest.raises(RecordingError, match="other fields in this version"):
        read(path)
    Recorded().written(path)
    rewritten(path, protocols=3)
    with pytest.raises(RecordingError, match="it is damaged"):
        read(path)


def test_read_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that unpacks to more than a recording can hold, or nests without end, is refused, not read into memory."""
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
