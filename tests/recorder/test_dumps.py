"""The rules for writing recordings: the path, and the causes and limits of automatic recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_membership.errors import ConfigurationError, UseError
from consumer_membership.recorder import dumps
from consumer_membership.recorder.dumps import Dumps, RecorderSettings, check_directory
from consumer_membership.recorder.recording import read
from tests.recorder.members import Recorded


def dumps_of(directory: Path | None, *, is_on: bool = True) -> Dumps:
    """Return the dumps of a member that has joined."""
    member = Recorded()
    member.join()
    settings = RecorderSettings(is_on=is_on, directory=None if directory is None else str(directory))
    return Dumps(member.recorder, settings)


def test_dump_writes_to_given_path_folder_or_configured_directory(tmp_path: Path) -> None:
    """A recording is written to the given path, the given folder or the configured directory, which is created."""
    made = dumps_of(tmp_path / "configured" / "folder")
    assert made.write("a test", tmp_path / "a.gz") == tmp_path / "a.gz"
    assert made.write("a test", str(tmp_path)).parent == tmp_path
    assert made.write("a test", f"{tmp_path}/new/").parent == tmp_path / "new"
    path = made.write("a test")
    assert path.parent == tmp_path / "configured" / "folder"
    assert path.name.startswith("orders-group-")
    assert read(path).cause == "a test"


def test_recorder_directory_that_is_not_writable_raises_on_construction(tmp_path: Path) -> None:
    """A directory that cannot be written is an error when the consumer is created; a missing one is created later."""
    (tmp_path / "file").touch()
    check_directory(RecorderSettings(directory=str(tmp_path / "new" / "folder")))
    check_directory(RecorderSettings(directory=str(tmp_path / "file"), is_on=False))
    for directory in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(
            ConfigurationError, match=f"{tmp_path}/file is not a folder; set a writable folder"
        ) as refused:
            check_directory(RecorderSettings(directory=str(directory)))
        assert refused.value.key == "recorder.directory"


def test_dump_without_directory_goes_to_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a configured directory, the recording is in the temporary folder, and its path is returned."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert dumps_of(None).write("a test").parent == tmp_path


def test_dump_with_disabled_recorder_raises() -> None:
    """If the recorder is disabled, `write` raises an error that names the key to remove."""
    with pytest.raises(UseError, match=r"recorder\.enable=false"):
        dumps_of(None, is_on=False).write("a test")


def test_automatic_dump_without_directory_writes_nothing() -> None:
    """Files are written automatically only into a configured directory."""
    assert dumps_of(None).write_automatically("fatal", "fatal: full") is None


def test_automatic_dumps_are_limited_by_cause_and_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is one file a minute for each kind of cause, and ten files in total."""
    made = dumps_of(tmp_path)
    line = made.write_automatically("fatal", "fatal: full")
    assert line is not None
    assert line.startswith("Wrote a recording of this member to ")
    assert made.write_automatically("fatal", "fatal: full") is None
    assert made.write_automatically("stuck", "stuck: p0") is not None
    monkeypatch.setattr(dumps, "SPACING_S", 0.0)
    written = [made.write_automatically("fatal", "fatal: full") for _ in range(20)]
    assert sum(one is not None for one in written) == dumps.MOST_FILES - 2
    assert len(list(tmp_path.iterdir())) == dumps.MOST_FILES


def test_automatic_dump_that_fails_is_reported(tmp_path: Path) -> None:
    """A failed automatic recording is reported in a log line and raises no error, so that the member continues."""
    (tmp_path / "file").write_text("")
    line = dumps_of(tmp_path / "file").write_automatically("fatal", "fatal: full")
    assert line is not None
    assert line.startswith("Failed to write a recording (fatal: full): FileExistsError")
