"""Records to Parquet files in a folder, each record in one of them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.spark.arguments import required
from consumer_membership.spark.batches import Batch, record_batch, schema
from consumer_membership.spark.context import Partition, SinkContext
from consumer_membership.spark.sinks.ruling import UNWRITTEN, Ruling, StoredFence, rule, said

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

_log = logging.getLogger("consumer_membership.spark")

#: Before each key of ours in a file's footer.
_PREFIX = "consumer_membership."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One partition's share of a batch: where it goes, and which fence it bears."""

    chain: FileChain
    position: int
    draft: Path
    fence: StoredFence


class ParquetSink:
    """Writes a file for each partition in a batch; all files together hold each record exactly once.

    `folder` is one data set for `pyarrow.dataset` and for Spark, with the columns of Arrow batches, and may be read at
    any time: a file is there as a whole or not at all. It takes all three batch formats. Each batch makes new files, so
    let batches be large.

    The files of a partition form a chain (`FileChain`), and each has the fence of its writer in its footer. What
    the last file holds is left out of a batch: an attempt before wrote it and did not live to commit it to Kafka. An
    attempt that was stopped and woke up finds its place taken, gets a `FencedError` and publishes nothing. What dead
    attempts had begun lies in hidden files until the next attempt removes it. Each partition is a unit of its own: all
    are checked before any is published, and if the process dies in between, its replacement leaves out those that are.

    For file systems with hard links and `fsync` that all tasks share: a local disk, NFS. Not for object stores. One
    folder is for one group, and the files are to stay as they are; to compact them, write them into another folder.

    Args:
        folder: where the files are; made at first use. A relative path is taken from where the sink is made.
        compression: as `pyarrow.parquet.write_table` takes it.
    """

    def __init__(self, folder: str | Path, *, compression: str = "zstd") -> None:
        if "://" in str(folder) or str(folder).startswith("file:"):
            raise ConfigurationError(
                "folder",
                str(folder),
                "must be a path of a file system with hard links, which every task sees; object stores have none",
            )
        required("pyarrow.parquet", "sink", "ParquetSink")
        self._folder = Path(folder).absolute()
        self._compression = compression
        #: What this process knows of the chains' ends; that it is outdated shows in a place that is taken.
        self._ends: dict[tuple[str, Partition], StoredFence] = {}

    def __repr__(self) -> str:
        return f"ParquetSink({str(self._folder)!r})"

    def __call__(self, batch: Batch, context: SinkContext) -> None:
        """Write what is not there yet.

        Raises:
            FencedError: somebody else has written one of the partitions since; nothing of it was published.
            ConfigurationError: the folder holds another group's records.
            SinkError: a file in the folder is not this sink's.
            OSError: the file system refused.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        # Whenever a place was taken, the chain has grown: another turn begins behind it, if the rule lets it.
        while not self._is_published(batch, context):
            self._forget_ends(context)

    def forget(self, group: str) -> int:
        """Let the fences of a group's files count no more; how many partitions it wrote.

        For a group that was deleted and whose epochs began anew, or that is to be followed by another one. The files
        stay, and so does what they say of the offsets that are there. No member of the group may be at work.
        """
        self._ends.clear()
        forgotten = 0
        for chain in chains(self._folder) if self._folder.exists() else ():
            last = chain.last()
            if last is not None and _footer(last)["group"] == group:
                chain.mark(int(_footer(last)["next_offset"])).touch()
                forgotten += 1
        return forgotten

    # ---- one turn ----

    def _is_published(self, batch: Batch, context: SinkContext) -> bool:
        """Publish a batch; False if a place in a chain is somebody else's."""
        stored = self._stored(context)
        ruling = self._ruled(context, stored)
        if not ruling.is_whole:
            _log.info("%s has records of %s already, which are left out", self._folder, said(context))
        if ruling.is_empty:
            return True
        parts = self._parts(ruling, stored)
        try:
            written = self._written(batch, context, ruling, parts)
            return self._publish(context, written)
        except FileNotFoundError as missing:
            # A later attempt has cleaned up; mostly it has written, too, and the rule says so better.
            self._forget_ends(context)
            self._ruled(context, self._stored(context))
            raise FencedError(
                f"{context.instance_id!r} (attempt {context.attempt}) was replaced: a later attempt removed what it was"
                f" writing, {missing.filename}; nothing was written of {said(context)}"
            ) from missing
        finally:
            for part in parts.values():
                part.draft.unlink(missing_ok=True)

    def _parts(self, ruling: Ruling, stored: Mapping[Partition, StoredFence]) -> Mapping[Partition, _Part]:
        parts = {}
        for place, fence in ruling.fences.items():
            position = stored[place].next_offset
            if fence.next_offset > position:
                chain = self._chain(place)
                draft = chain.draft(position, fence.rank)
                parts[place] = _Part(chain=chain, position=position, draft=draft, fence=fence)
        return parts

    def _written(
        self, batch: Batch, context: SinkContext, ruling: Ruling, parts: Mapping[Partition, _Part]
    ) -> Mapping[Partition, _Part]:
        """Write the drafts; those that have records."""
        from pyarrow import Table, parquet  # noqa: PLC0415 - an extra

        records = _arrow(batch)
        written = {}
        for place, part in parts.items():
            first = ruling.positions[place]
            mine = records
            if len(context.ranges) > 1 or not ruling.is_whole:
                mine = _of_partition(records, place, first)
            if not mine.num_rows:
                continue
            written[place] = part
            footer = {"group": context.group, "first": first, "records": mine.num_rows, **asdict(part.fence)}
            table = Table.from_batches([mine]).replace_schema_metadata({_PREFIX + k: str(v) for k, v in footer.items()})
            parquet.write_table(table, part.draft, compression=self._compression)
            make_durable(part.draft)
        return written

    def _publish(self, context: SinkContext, parts: Mapping[Partition, _Part]) -> bool:
        if any(part.chain.file(part.position).exists() for part in parts.values()):
            return False
        for place, part in parts.items():
            if not publish(part.draft, part.chain.file(part.position)):
                return False
            self._ends[context.group, place] = part.fence
        return True

    # ---- the chains' ends ----

    def _ruled(self, context: SinkContext, stored: Mapping[Partition, StoredFence]) -> Ruling:
        return rule(context, stored, remedy=f"call forget({context.group!r}) of this sink")

    def _chain(self, place: Partition) -> FileChain:
        topic, partition = place
        return FileChain(folder=self._folder, topic=topic, partition=partition)

    def _stored(self, context: SinkContext) -> Mapping[Partition, StoredFence]:
        for fence in context.fences:
            key = (context.group, fence.place)
            if key not in self._ends:
                chain = self._chain(fence.place)
                chain.remove_drafts(below=fence.rank)
                self._ends[key] = _end_of(chain, context.group)
        return {fence.place: self._ends[context.group, fence.place] for fence in context.fences}

    def _forget_ends(self, context: SinkContext) -> None:
        for fence in context.fences:
            self._ends.pop((context.group, fence.place), None)


# ---- a chain of files ----

_OFFSET_DIGITS = 20  # of the largest offset, 2^63 - 1, and one to spare, as in the names of Kafka's segments


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChain:
    """The files of one partition in a folder: each begins where the one before ended, and says so in its name.

    A file takes its place in the chain by a link that is made only if nobody has the name, so of two attempts that
    would write the same place one succeeds, and the other one finds out. The first file's name is offset 0, whatever
    its first record: everybody must agree on the chain's beginning, even if the log's was cut off in between. The topic
    stands behind a word of ours, so that no file of a topic such as `_schemas` looks hidden.
    """

    folder: Path
    topic: str
    partition: int

    def file(self, position: int) -> Path:
        """The file that goes on from this offset."""
        return self.folder / f"{self._stem}{position:0{_OFFSET_DIGITS}}.parquet"

    def draft(self, position: int, rank: tuple[int, int]) -> Path:
        """Where an attempt writes it before it is published: readers of data leave it out for its dot."""
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

    def remove_drafts(self, *, below: tuple[int, int]) -> None:
        """Remove what attempts of a lower rank left: they are dead, or are not to publish it any more."""
        pattern = re.compile(rf"\.{re.escape(self._stem)}\d{{{_OFFSET_DIGITS}}}\.parquet\.(-?\d+)\.(-?\d+)")
        for found in filter(None, map(pattern.fullmatch, _names(self.folder))):
            if (int(found[1]), int(found[2])) < below:
                (self.folder / found[0]).unlink(missing_ok=True)

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


def make_durable(path: Path) -> None:
    """See a file, or the names in a folder, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _names(folder: Path) -> Iterator[str]:
    return (path.name for path in folder.iterdir())


# ---- what a file says of itself ----


def _end_of(chain: FileChain, group: str) -> StoredFence:
    last = chain.last()
    if last is None:
        return UNWRITTEN
    footer = _footer(last)
    next_offset = int(footer["next_offset"])
    if chain.mark(next_offset).exists():
        return replace(UNWRITTEN, next_offset=next_offset)
    if footer["group"] != group:
        raise ConfigurationError(
            "folder",
            str(chain.folder),
            f"holds records of group {footer['group']!r}, and {group!r} would write them a second time; give each group"
            f" a folder of its own, or call forget({footer['group']!r}) of this sink if it has taken the other's place",
        )
    epoch, attempt = int(footer["epoch"]), int(footer["attempt"])
    return StoredFence(next_offset=next_offset, epoch=epoch, attempt=attempt, writer=footer["writer"])


def _footer(file: Path) -> Mapping[str, str]:
    """What stands in a file's footer of ours, by keys without the prefix."""
    from pyarrow import ArrowInvalid, parquet  # noqa: PLC0415 - an extra

    try:
        found = parquet.read_metadata(file).metadata or {}
    except ArrowInvalid as unreadable:
        raise SinkError(
            f"{file} cannot be read, so where its partition goes on is not known: {unreadable}"
        ) from unreadable
    footer = {
        key.decode().removeprefix(_PREFIX): value.decode()
        for key, value in found.items()
        if key.startswith(_PREFIX.encode())
    }
    if missing := {"group", "next_offset", "epoch", "attempt", "writer"} - footer.keys():
        raise SinkError(
            f"{file} has the name of a file of this sink and lacks {', '.join(sorted(missing))} in its footer, so"
            " something else wrote it; move it to another folder"
        )
    return footer


def _arrow(batch: Batch) -> pa.RecordBatch:
    if isinstance(batch, list):
        return record_batch(batch)
    from pyarrow import RecordBatch  # noqa: PLC0415 - an extra

    if isinstance(batch, RecordBatch):
        return batch
    return RecordBatch.from_pandas(batch, schema=schema(), preserve_index=False)


def _of_partition(records: pa.RecordBatch, place: Partition, first: int) -> pa.RecordBatch:
    """The records of one partition from an offset on."""
    from pyarrow import compute  # noqa: PLC0415 - an extra

    topic, partition = place
    is_of_topic = compute.equal(records["topic"], topic)
    is_of_partition = compute.and_(is_of_topic, compute.equal(records["partition"], partition))
    return records.filter(compute.and_(is_of_partition, compute.greater_equal(records["offset"], first)))
