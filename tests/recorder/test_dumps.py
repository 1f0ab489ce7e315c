"""When a recording becomes a file by itself, where, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from consumer_membership.errors import ConfigurationError, UseError
from consumer_membership.recorder import dumps
from consumer_membership.recorder.dumps import Dumps, RecorderSettings, check_directory
from consumer_membership.recorder.recording import read
from tests.recorder.members import Recorded


def dumps_of(directory: Path | None, *, is_on: bool = True) -> Dumps:
    """Of a member that has joined."""
    member = Recorded()
    member.join()
    settings = RecorderSettings(is_on=is_on, directory=None if directory is None else str(directory))
    return Dumps(member.recorder, settings)


def test_file_is_written_where_it_is_asked_for(tmp_path: Path) -> None:
    """To the path of a file, into a folder that is there, or into the configured one, which is made."""
    made = dumps_of(tmp_path / "configured" / "folder")
    assert made.write("a test", tmp_path / "a.gz") == tmp_path / "a.gz"
    assert made.write("a test", str(tmp_path)).parent == tmp_path
    assert made.write("a test", f"{tmp_path}/new/").parent == tmp_path / "new"
    path = made.write("a test")
    assert path.parent == tmp_path / "configured" / "folder"
    assert path.name.startswith("orders-group-")
    assert read(path).cause == "a test"


def test_folder_into_which_nothing_could_be_written_is_refused(tmp_path: Path) -> None:
    """When the consumer is made, and not once it is stuck; one that is not there yet is made with the first file."""
    (tmp_path / "file").touch()
    check_directory(RecorderSettings(directory=str(tmp_path / "new" / "folder")))
    check_directory(RecorderSettings(directory=str(tmp_path / "file"), is_on=False))
    for directory in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ConfigurationError, match=f"{tmp_path}/file is no folder; name a folder") as refused:
            check_directory(RecorderSettings(directory=str(directory)))
        assert refused.value.key == "recorder.directory"


def test_file_without_a_place_goes_to_the_temporary_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is what the caller gets."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert dumps_of(None).write("a test").parent == tmp_path


def test_recorder_that_is_off_says_so() -> None:
    """With the key to remove."""
    with pytest.raises(UseError, match=r"recorder\.enable=false"):
        dumps_of(None, is_on=False).write("a test")


def test_nothing_is_written_by_itself_without_a_directory() -> None:
    """Who did not ask for files gets none."""
    assert dumps_of(None).write_automatically("fatal", "fatal: full") is None


def test_what_goes_wrong_again_and_again_does_not_fill_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file a minute for each kind of cause, and ten in all."""
    made = dumps_of(tmp_path)
    words = made.write_automatically("fatal", "fatal: full")
    assert words is not None
    assert words.startswith("Wrote a recording of this member to ")
    assert made.write_automatically("fatal", "fatal: full") is None
    assert made.write_automatically("stuck", "stuck: p0") is not None
    monkeypatch.setattr(dumps, "SPACING_S", 0.0)
    written = [made.write_automatically("fatal", "fatal: full") for _ in range(20)]
    assert sum(one is not None for one in written) == dumps.MOST_FILES - 2
    assert len(list(tmp_path.iterdir())) == dumps.MOST_FILES


def test_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The member goes on, whatever is the matter with the disk."""
    (tmp_path / "file").write_text("")
    words = dumps_of(tmp_path / "file").write_automatically("fatal", "fatal: full")
    assert words is not None
    assert words.startswith("No recording could be written (fatal: full): FileExistsError")
