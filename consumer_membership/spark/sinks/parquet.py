"""Records to Parquet files in a folder or a bucket, each record in one of them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consumer_membership.errors import ConfigurationError, FencedError, SinkError
from consumer_membership.spark.arguments import required
from consumer_membership.spark.batches import Batch, record_batch, schema
from consumer_membership.spark.context import Partition, SinkContext, SinkUse
from consumer_membership.spark.sinks.files import Draft, FileChain, Folder, Storage, chains
from consumer_membership.spark.sinks.objects import Bucket
from consumer_membership.spark.sinks.ruling import UNWRITTEN, Ruling, StoredFence, rule, said

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

_log = logging.getLogger("consumer_membership.spark")

#: Before each key of ours in a file's footer.
_PREFIX = "consumer_membership."
#: How long a chain may look as before though it has grown, and the pause between two looks.
_GROWN_S, _LOOK_S = 60.0, 0.05
#: So many partitions are looked at before a job.
_LOOKED_AT = 8
#: An address instead of a path.
_URL = re.compile(r"(?i)(?P<scheme>[a-z][a-z0-9+.-]+):/(?P<rest>.*)")
#: Hadoop has the second name for the first.
_S3 = ("s3", "s3a")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One partition's share of a batch: where it goes, and which fence it bears."""

    chain: FileChain
    position: int
    draft: Draft
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

    For file systems with hard links and `fsync` that all tasks share: a local disk, NFS. Or for a bucket of S3, or of a
    store with its interface that keeps the condition `If-None-Match: *`, with the extra `s3`; there nothing is hidden
    but what a process put to see that the condition is kept. One folder is for one group, and the files are to stay as
    they are; to compact them, write them into another folder.

    Args:
        folder: where the files are; made at first use. A relative path is taken from where the sink is made.
            `s3://bucket/prefix`, or Spark's `s3a:`, is a place in a bucket.
        compression: as `pyarrow.parquet.write_table` takes it.
        storage_options: for a bucket, what `obstore.store.S3Store` takes (`region`, `endpoint`, `access_key_id`, ...).
            What is not given comes from the environment of each task, or from its machine's role.

    Raises:
        ConfigurationError: an address of another kind, an option that there is not, a library that is not installed.
    """

    def __init__(
        self, folder: str | Path, *, compression: str = "zstd", storage_options: Mapping[str, Any] | None = None
    ) -> None:
        required("pyarrow.parquet", "sink", "ParquetSink")
        self._storage = _storage(folder, storage_options)
        self._compression = compression
        #: What this process knows of the chains' ends; that it is outdated shows in a place that is taken.
        self._ends: dict[tuple[str, Partition], StoredFence] = {}

    def __repr__(self) -> str:
        return f"ParquetSink({str(self._storage)!r})"

    def __call__(self, batch: Batch, context: SinkContext) -> None:
        """Write what is not there yet.

        Raises:
            FencedError: somebody else has written one of the partitions since; nothing of it was published.
            ConfigurationError: the folder holds another group's records; a bucket's store does not keep the condition.
            SinkError: a file in the folder is not this sink's.
            OSError: the file system, or the store, refused.
        """
        self._storage.prepare()
        # Whenever a place was taken, the chain has grown: another turn begins behind it, if the rule lets it.
        while not self._is_published(batch, context):
            self._wait_for_growth(context)

    def check_use(self, use: SinkUse) -> str:
        """Check that a job can write to the folder; return a description of what exists.

        Raises:
            ConfigurationError: the folder holds another group's records.
            SinkError: a file in the folder is not this sink's.
            OSError: the file system, or the store, refuses.
        """
        if not use.is_on_driver:
            return ""
        self._storage.refuse_if_closed()
        # One group writes into a folder: the first partitions show whose it is.
        ends = [_end_of(self._storage, FileChain(*place), use.group) for place in use.partitions[:_LOOKED_AT]]
        written = sum(end is not UNWRITTEN for end in ends)
        return f"{self._storage}, which has records of {written} of the first {len(ends)} partitions"

    def forget(self, group: str) -> int:
        """Let the fences of a group's files count no more; how many partitions it wrote.

        For a group that was deleted and whose epochs began anew, or that is to be followed by another one. The files
        stay, and so does what they say of the offsets that are there. No member of the group may be at work.
        """
        self._ends.clear()
        forgotten = 0
        names = list(self._storage.names("part-"))
        for chain in chains(names):
            last = chain.last(names)
            if last is not None and (footer := _footer(self._storage, last))["group"] == group:
                self._storage.touch(chain.mark(int(footer["next_offset"])))
                forgotten += 1
        return forgotten

    # ---- one turn ----

    def _is_published(self, batch: Batch, context: SinkContext) -> bool:
        """Publish a batch; False if a place in a chain is somebody else's."""
        stored = self._stored(context)
        ruling = self._ruled(context, stored)
        if not ruling.is_whole:
            _log.info("%s has records of %s already, which are left out", self._storage, said(context))
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
                part.draft.discard()

    def _parts(self, ruling: Ruling, stored: Mapping[Partition, StoredFence]) -> Mapping[Partition, _Part]:
        parts = {}
        for place, fence in ruling.fences.items():
            position = stored[place].next_offset
            if fence.next_offset > position:
                chain = FileChain(*place)
                draft = self._storage.draft(chain.file(position), fence.rank)
                parts[place] = _Part(chain=chain, position=position, draft=draft, fence=fence)
        return parts

    def _written(
        self, batch: Batch, context: SinkContext, ruling: Ruling, parts: Mapping[Partition, _Part]
    ) -> Mapping[Partition, _Part]:
        """Write the drafts; those that have records."""
        from pyarrow import Table

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
            part.draft.write(table, self._compression)
        return written

    def _publish(self, context: SinkContext, parts: Mapping[Partition, _Part]) -> bool:
        if any(self._storage.has(part.chain.file(part.position)) for part in parts.values()):
            return False
        for place, part in parts.items():
            if not part.draft.publish():
                return False
            self._ends[context.group, place] = part.fence
        return True

    # ---- the chains' ends ----

    def _ruled(self, context: SinkContext, stored: Mapping[Partition, StoredFence]) -> Ruling:
        return rule(context, stored, remedy=f"call forget({context.group!r}) of this sink")

    def _stored(self, context: SinkContext) -> Mapping[Partition, StoredFence]:
        for fence in context.fences:
            key = (context.group, fence.place)
            if key not in self._ends:
                chain = FileChain(*fence.place)
                self._storage.remove_drafts(chain, below=fence.rank)
                self._ends[key] = _end_of(self._storage, chain, context.group)
        return {fence.place: self._ends[context.group, fence.place] for fence in context.fences}

    def _wait_for_growth(self, context: SinkContext) -> None:
        """Look at the chains again, until they end elsewhere: names in a folder of NFS are seen after some seconds."""
        before, deadline = self._stored(context), time.monotonic() + _GROWN_S
        self._forget_ends(context)
        while self._stored(context) == before:
            if time.monotonic() > deadline:
                raise SinkError(
                    f"{self._storage}: a file has the place behind the last one of {said(context)}, and does not follow"
                    " it: files were removed from there, copied or renamed; move them to another folder"
                )
            time.sleep(_LOOK_S)
            self._forget_ends(context)

    def _forget_ends(self, context: SinkContext) -> None:
        for fence in context.fences:
            self._ends.pop((context.group, fence.place), None)


# ---- what a file says of itself ----


def _end_of(storage: Storage, chain: FileChain, group: str) -> StoredFence:
    last = chain.last(storage.names(chain.stem))
    if last is None:
        return UNWRITTEN
    footer = _footer(storage, last)
    next_offset = int(footer["next_offset"])
    if storage.has(chain.mark(next_offset)):
        return replace(UNWRITTEN, next_offset=next_offset)
    if footer["group"] != group:
        raise ConfigurationError(
            "folder",
            str(storage),
            f"holds records of group {footer['group']!r}, and {group!r} would write them a second time; give each group"
            f" a folder of its own, or call forget({footer['group']!r}) of this sink if it has taken the other's place",
        )
    epoch, attempt = int(footer["epoch"]), int(footer["attempt"])
    return StoredFence(next_offset=next_offset, epoch=epoch, attempt=attempt, writer=footer["writer"])


def _footer(storage: Storage, name: str) -> Mapping[str, str]:
    """What stands in a file's footer of ours, by keys without the prefix."""
    footer = {
        key.decode().removeprefix(_PREFIX): value.decode()
        for key, value in storage.metadata(name).items()
        if key.startswith(_PREFIX.encode())
    }
    if missing := {"group", "next_offset", "epoch", "attempt", "writer"} - footer.keys():
        raise SinkError(
            f"{storage}/{name} has the name of a file of this sink and lacks {', '.join(sorted(missing))} in its"
            " footer, so something else wrote it; move it to another folder"
        )
    return footer


def _arrow(batch: Batch) -> pa.RecordBatch:
    if isinstance(batch, list):
        return record_batch(batch)
    from pyarrow import RecordBatch

    if isinstance(batch, RecordBatch):
        return batch
    return RecordBatch.from_pandas(batch, schema=schema(), preserve_index=False)


def _of_partition(records: pa.RecordBatch, place: Partition, first: int) -> pa.RecordBatch:
    """The records of one partition from an offset on."""
    from pyarrow import compute

    topic, partition = place
    is_of_topic = compute.equal(records["topic"], topic)
    is_of_partition = compute.and_(is_of_topic, compute.equal(records["partition"], partition))
    return records.filter(compute.and_(is_of_partition, compute.greater_equal(records["offset"], first)))


def _storage(folder: str | Path, options: Mapping[str, Any] | None) -> Storage:
    url = _URL.fullmatch(str(folder)) if isinstance(folder, str) else None
    if url is not None and url["scheme"].lower() in _S3 and url["rest"].strip("/"):
        return Bucket("s3://" + url["rest"].strip("/"), options or {})
    if url is not None or str(folder).startswith("file:"):
        raise ConfigurationError(
            "folder",
            str(folder),
            "must be s3://bucket/prefix, or a path of a file system with hard links, which every task sees; what else"
            " has an address is mounted as one, or is not for this sink",
        )
    if options:
        raise ConfigurationError("storage_options", sorted(options), "are for a folder that begins with s3://")
    return Folder(Path(folder).absolute())
