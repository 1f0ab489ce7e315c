"""The files of one partition as a chain: each begins where the one before ended, and says so in its name.

A file takes its place in the chain by a link that is made only if nobody has the name, so of two attempts that would
write the same place one succeeds, and the other one finds out. The first file's name is offset 0, whatever its first
record: everybody must agree on the chain's beginning, even if the log's was cut off in between.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OFFSET_DIGITS = 20  # of the largest offset, 2^63 - 1, and one to spare, as in the names of Kafka's segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A file that is being written, under a name that readers of data leave out for its dot."""

    path: Path
    epoch: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChain:
    """The files of one partition in a folder.

    The topic stands behind a word of ours, so that no file of a topic such as `_schemas` looks hidden.
    """

    folder: Path
    topic: str
    partition: int

    def file(self, position: int) -> Path:
        """The file that goes on from this offset."""
        return self.folder / f"{self._stem}{position:0{_OFFSET_DIGITS}}.parquet"

    def draft(self, position: int, rank: tuple[int, int]) -> Path:
        """Where an attempt writes it before it is published."""
        epoch, attempt = rank
        return self.folder / f".{self.file(position).name}.{epoch}.{attempt}"

    def last(self) -> Path | None:
        """The last file."""
        pattern = re.compile(rf"{re.escape(self._stem)}\d{{{_OFFSET_DIGITS}}}\.parquet")
        # By name is by offset: all have as many digits.
        name = max(filter(pattern.fullmatch, _names(self.folder)), default=None)
        return None if name is None else self.folder / name

    def mark(self, position: int) -> Path:
        """An empty file that says: the fences of what ends at this offset count no more."""
        return self.folder / f".{self.file(position).name}.forgotten"

    def drafts(self) -> Iterator[Draft]:
        """What attempts have not published, or not yet."""
        pattern = re.compile(rf"\.{re.escape(self._stem)}\d{{{_OFFSET_DIGITS}}}\.parquet\.(-?\d+)\.(-?\d+)")
        for name in _names(self.folder):
            if found := pattern.fullmatch(name):
                yield Draft(path=self.folder / name, epoch=int(found[1]), attempt=int(found[2]))

    @property
    def _stem(self) -> str:
        return f"part-{self.topic}-{self.partition}-"


def chains(folder: Path) -> list[FileChain]:
    """Every chain in a folder."""
    pattern = re.compile(rf"part-(.+)-(\d+)-\d{{{_OFFSET_DIGITS}}}\.parquet")
    found = {(match[1], int(match[2])) for match in map(pattern.fullmatch, _names(folder)) if match}
    return [FileChain(folder=folder, topic=topic, partition=partition) for topic, partition in sorted(found)]


def publish(draft: Path, file: Path) -> bool:
    """Give a draft its place, and keep it there; False if somebody else has the place.

    Raises:
        FileNotFoundError: somebody removed the draft.
    """
    try:
        os.link(draft, file)
    except FileExistsError:
        # Over NFS the answer to a link that was made may be lost, and the question asked again.
        if not draft.samefile(file):
            return False
    make_durable(file.parent)
    draft.unlink(missing_ok=True)
    return True


def remove(drafts: Iterator[Draft], *, below: tuple[int, int]) -> None:
    """Remove what attempts of a lower rank left: they are dead, or are not to publish it any more."""
    for draft in drafts:
        if (draft.epoch, draft.attempt) < below:
            draft.path.unlink(missing_ok=True)


def make_durable(path: Path) -> None:
    """See a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: Path) -> Iterator[str]:
    return (path.name for path in folder.iterdir())
