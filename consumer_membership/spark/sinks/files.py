"""The files of a sink: a chain of files for each partition, in a folder or another storage.

A file is published in a chain only if no file has its name. So if two attempts write the same position, only one
succeeds, and the other attempt detects it.
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

#: The digits of the largest offset, 2^63 - 1, and one more, as in the names of Kafka's segments.
_OFFSET_DIGITS = 20


@dataclass(frozen=True, slots=True)
class FileChain:
    """The names of one partition's files: each file starts where the previous file ended, and has this offset as name.

    The first file has offset 0 in its name, whatever its first record is: all attempts must use the same start, even if
    the beginning of the log was deleted in between. The names have a prefix, so that the files of a topic such as
    `_schemas` are not hidden files.
    """

    topic: str
    partition: int

    @property
    def stem(self) -> str:
        """The beginning of the names; names of other topics may begin with it also."""
        return f"part-{self.topic}-{self.partition}-"

    def file(self, position: int) -> str:
        """Return the name of the file that starts at this offset."""
        return f"{self.stem}{position:0{_OFFSET_DIGITS}}.parquet"

    def last(self, names: Iterable[str]) -> str | None:
        """Return the last file of the chain among these names; None if there is none."""
        pattern = re.compile(rf"{re.escape(self.stem)}\d{{{_OFFSET_DIGITS}}}\.parquet")
        # The order of names is that of offsets, because all have the same number of digits.
        return max(filter(pattern.fullmatch, names), default=None)

    def mark(self, position: int) -> str:
        """Return the name of an empty file that invalidates the fence of the file that ends at this offset."""
        return f".{self.file(position)}.forgotten"


def chains(names: Iterable[str]) -> list[FileChain]:
    """Return every chain that has a file among these names."""
    pattern = re.compile(rf"part-(.+)-(\d+)-\d{{{_OFFSET_DIGITS}}}\.parquet")
    found = {(match[1], int(match[2])) for match in map(pattern.fullmatch, names) if match}
    return [FileChain(topic, partition) for topic, partition in sorted(found)]


class Draft(Protocol):
    """A file that is not published yet."""

    def write(self, table: pa.Table, compression: str) -> None:
        """Write the whole file durably."""

    def publish(self) -> bool:
        """Publish the file durably under its name; return False if the name is taken."""

    def discard(self) -> None:
        """Remove the draft; a published file stays."""


class Storage(Protocol):
    """The storage of a sink's files; names have no folder."""

    def prepare(self) -> None:
        """Prepare the storage for writing."""

    def refuse_if_closed(self) -> None:
        """Raise OSError if this process finds that it cannot write there; changes nothing."""

    def names(self, prefix: str = "") -> Iterable[str]:
        """Return the names of all files that begin with `prefix`."""

    def has(self, name: str) -> bool:
        """Return whether a file exists."""

    def metadata(self, name: str) -> Mapping[bytes, bytes]:
        """Return the key-value metadata in the footer of a Parquet file."""

    def touch(self, name: str) -> None:
        """Create an empty file."""

    def draft(self, name: str, rank: tuple[int, int]) -> Draft:
        """Return a draft of a file, for an attempt with this rank."""

    def remove_drafts(self, chain: FileChain, *, below: tuple[int, int]) -> None:
        """Remove the drafts of attempts with a lower rank, which are dead or must not publish them."""


def unreadable(file: object, error: Exception) -> SinkError:
    """Return the error for a file that cannot be read."""
    return SinkError(f"{file} cannot be read, so the next offset of its partition is unknown: {error}")


# ---- a folder ----


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder on a file system with hard links and `fsync` that all tasks share."""

    path: Path

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)

    def prepare(self) -> None:
        """Create the folder if it does not exist."""
        self.path.mkdir(parents=True, exist_ok=True)

    def refuse_if_closed(self) -> None:
        """Check the folder, or its nearest parent that exists.

        Raises:
            NotADirectoryError: the path is a file.
            PermissionError: this user may not write into the folder.
        """
        nearest = next(path for path in (self.path, *self.path.parents) if path.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(nearest))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(nearest))

    def names(self, prefix: str = "") -> Iterable[str]:
        """Return the names of all files that begin with `prefix`; none if the folder does not exist."""
        if not self.path.exists():
            return []
        return (file.name for file in self.path.iterdir() if file.name.startswith(prefix))

    def has(self, name: str) -> bool:
        """Return whether a file exists."""
        return (self.path / name).exists()

    def metadata(self, name: str) -> Mapping[bytes, bytes]:
        """Return the key-value metadata in the footer of a file.

        Raises:
            SinkError: the file is not a Parquet file.
        """
        from pyarrow import ArrowInvalid, parquet

        file = self.path / name
        try:
            found: Mapping[bytes, bytes] = parquet.read_metadata(file).metadata or {}
        except ArrowInvalid as error:
            raise unreadable(file, error) from error
        return found

    def touch(self, name: str) -> None:
        """Create an empty file."""
        (self.path / name).touch()

    def draft(self, name: str, rank: tuple[int, int]) -> FolderDraft:
        """Return a draft in the same folder; its name begins with a dot, so readers of the data ignore it."""
        epoch, attempt = rank
        return FolderDraft(self.path / f".{name}.{epoch}.{attempt}", self.path / name)

    def remove_drafts(self, chain: FileChain, *, below: tuple[int, int]) -> None:
        """Remove the drafts of attempts with a lower rank."""
        pattern = re.compile(rf"\.{re.escape(chain.stem)}\d{{{_OFFSET_DIGITS}}}\.parquet\.(-?\d+)\.(-?\d+)")
        for found in filter(None, map(pattern.fullmatch, self.names("."))):
            if (int(found[1]), int(found[2])) < below:
                (self.path / found[0]).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class FolderDraft:
    """A hidden file, until it is linked to its name."""

    path: Path
    file: Path

    def write(self, table: pa.Table, compression: str) -> None:
        """Write the file to the disk."""
        from pyarrow import parquet

        parquet.write_table(table, self.path, compression=compression)
        _make_durable(self.path)

    def publish(self) -> bool:
        """Link the draft to its name; return False if the name is taken.

        Raises:
            FileNotFoundError: a later attempt removed the draft.
        """
        try:
            os.link(self.path, self.file)
        except FileExistsError:
            # On NFS, the response to a successful link may be lost, and the request repeated.
            if not self.path.samefile(self.file):
                return False
        _make_durable(self.file.parent)
        self.discard()
        return True

    def discard(self) -> None:
        """Remove the hidden file."""
        self.path.unlink(missing_ok=True)


def _make_durable(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
