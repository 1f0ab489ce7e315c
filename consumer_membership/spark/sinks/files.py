"""Where the files of a sink are: a chain of them for each partition, in a folder or in what else keeps files.

A file takes its place in a chain only if nobody has its name, so of two attempts that would write the same place one
succeeds, and the other one finds out.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from consumer_membership.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

#: Of the largest offset, 2^63 - 1, and one to spare, as in the names of Kafka's segments.
_OFFSET_DIGITS = 20


@dataclass(frozen=True, slots=True)
class FileChain:
    """The names of one partition's files: each begins where the one before ended, and says so in its name.

    The first file's name is offset 0, whatever its first record: everybody must agree on the chain's beginning, even if
    the log's was cut off in between. The topic stands behind a word of ours, so that no file of a topic such as
    `_schemas` looks hidden.
    """

    topic: str
    partition: int

    @property
    def stem(self) -> str:
        """What the names begin with; those of other topics' files may do so, too."""
        return f"part-{self.topic}-{self.partition}-"

    def file(self, position: int) -> str:
        """The file that goes on from this offset."""
        return f"{self.stem}{position:0{_OFFSET_DIGITS}}.parquet"

    def last(self, names: Iterable[str]) -> str | None:
        """The last file among these names."""
        pattern = re.compile(rf"{re.escape(self.stem)}\d{{{_OFFSET_DIGITS}}}\.parquet")
        # By name is by offset: all have as many digits.
        return max(filter(pattern.fullmatch, names), default=None)

    def mark(self, position: int) -> str:
        """An empty file that says: the fences of what ends at this offset count no more."""
        return f".{self.file(position)}.forgotten"


def chains(names: Iterable[str]) -> list[FileChain]:
    """Every chain that these names are of."""
    pattern = re.compile(rf"part-(.+)-(\d+)-\d{{{_OFFSET_DIGITS}}}\.parquet")
    found = {(match[1], int(match[2])) for match in map(pattern.fullmatch, names) if match}
    return [FileChain(topic, partition) for topic, partition in sorted(found)]


class Draft(Protocol):
    """A file that is written and not there yet."""

    def write(self, table: pa.Table, compression: str) -> None:
        """Write the whole file, so that it lasts."""

    def publish(self) -> bool:
        """Give it its place, and keep it there; False if somebody else has the place."""

    def discard(self) -> None:
        """Leave nothing of it, unless it was published."""


class Storage(Protocol):
    """What keeps the files of a sink; names are without a folder."""

    def prepare(self) -> None:
        """Make it ready to be written."""

    def refuse_if_closed(self) -> None:
        """Raise OSError if this process sees that nothing can be written there; nothing is changed."""

    def names(self, prefix: str = "") -> Iterable[str]:
        """Of everything whose name begins so."""

    def has(self, name: str) -> bool:
        """Whether such a file is there."""

    def metadata(self, name: str) -> Mapping[bytes, bytes]:
        """What stands in the footer of a Parquet file, besides its schema."""

    def touch(self, name: str) -> None:
        """Put an empty file there."""

    def draft(self, name: str, rank: tuple[int, int]) -> Draft:
        """A file to be, of an attempt of this rank."""

    def remove_drafts(self, chain: FileChain, *, below: tuple[int, int]) -> None:
        """Remove what attempts of a lower rank left: they are dead, or are not to publish it any more."""


def unreadable(file: object, error: Exception) -> SinkError:
    """Why a chain's end is not known."""
    return SinkError(f"{file} cannot be read, so where its partition goes on is not known: {error}")


# ---- a folder ----


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file system with hard links and `fsync` that all tasks share."""

    path: Path

    def __str__(self) -> str:
        """As its path."""
        return str(self.path)

    def prepare(self) -> None:
        """Make it, if it is not there."""
        self.path.mkdir(parents=True, exist_ok=True)

    def refuse_if_closed(self) -> None:
        """Look at the folder, or at the nearest one above it that exists.

        Raises:
            NotADirectoryError: a file has its name.
            PermissionError: this user may not write into it.
        """
        nearest = next(path for path in (self.path, *self.path.parents) if path.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))

    def names(self, prefix: str = "") -> Iterable[str]:
        """Of every file in it whose name begins so; none without the folder."""
        if not self.path.exists():
            return []
        return (file.name for file in self.path.iterdir() if file.name.startswith(prefix))

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return (self.path / name).exists()

    def metadata(self, name: str) -> Mapping[bytes, bytes]:
        """Of a file's footer.

        Raises:
            SinkError: it is no Parquet file.
        """
        from pyarrow import ArrowInvalid, parquet

        file = self.path / name
        try:
            found: Mapping[bytes, bytes] = parquet.read_metadata(file).metadata or {}
        except ArrowInvalid as error:
            raise unreadable(file, error) from error
        return found

    def touch(self, name: str) -> None:
        """Put an empty file there."""
        (self.path / name).touch()

    def draft(self, name: str, rank: tuple[int, int]) -> FolderDraft:
        """Beside its place; readers of data leave it out for its dot."""
        epoch, attempt = rank
        return FolderDraft(self.path / f".{name}.{epoch}.{attempt}", self.path / name)

    def remove_drafts(self, chain: FileChain, *, below: tuple[int, int]) -> None:
        """Remove those of attempts of a lower rank."""
        pattern = re.compile(rf"\.{re.escape(chain.stem)}\d{{{_OFFSET_DIGITS}}}\.parquet\.(-?\d+)\.(-?\d+)")
        for found in filter(None, map(pattern.fullmatch, self.names("."))):
            if (int(found[1]), int(found[2])) < below:
                (self.path / found[0]).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class FolderDraft:
    """A hidden file, until it is linked to its place."""

    path: Path
    file: Path

    def write(self, table: pa.Table, compression: str) -> None:
        """To the disk."""
        from pyarrow import parquet

        parquet.write_table(table, self.path, compression=compression)
        _make_durable(self.path)

    def publish(self) -> bool:
        """Link it to its place; False if somebody else has the place.

        Raises:
            FileNotFoundError: somebody removed the draft.
        """
        try:
            os.link(self.path, self.file)
        except FileExistsError:
            # Over NFS the answer to a link that was made may be lost, and the question asked again.
            if not self.path.samefile(self.file):
                return False
        _make_durable(self.file.parent)
        self.discard()
        return True

    def discard(self) -> None:
        """Remove what is hidden."""
        self.path.unlink(missing_ok=True)


def _make_durable(path: Path) -> None:
    """See a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
