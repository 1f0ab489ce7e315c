"""`ParquetSink`: write records to Parquet files in a folder or a bucket, each record to exactly one file."""

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
from consumer_membership.spark.sinks.ruling import UNWRITTEN, Ruling, StoredFence, batch_name, rule

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

_log = logging.getLogger("consumer_membership.spark")

#: The prefix of this package's keys in a file's footer.
_PREFIX = "consumer_membership."
#: How long a new file may be invisible to another process, and the interval of the checks.
_GROWN_S, _CHECK_EVERY_S = 60.0, 0.05
#: The number of partitions that are checked before a job.
_CHECKED = 8
#: A URL instead of a path.
_URL = re.compile(r"(?i)(?P<scheme>[a-z][a-z0-9+.-]+):/(?P<rest>.*)")
#: The second scheme is Hadoop's name for the first.
_S3 = ("s3", "s3a")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """One partition's part of a batch: the position of its file in the chain, the draft and the fence."""

    chain: FileChain
    position: int
    draft: Draft
    fence: StoredFence


class ParquetSink:
    """Writes a file for each partition in a batch; all files together have each record exactly once.

    `folder` is one data set for `pyarrow.dataset` and for Spark, with the columns of Arrow batches. You can read it at
    any time, because a file exists as a whole or not at all. The sink accepts all three batch formats. Each batch
    creates new files, so use large batches.

    The files of a partition form a chain, and each file has the fence of its writer in its footer. Records of the last
    file are left out of a batch, because a previous attempt wrote them but did not commit them to Kafka. An attempt
    that was stopped and continues finds the name of its file taken, gets a `FencedError` and publishes nothing.
    Unfinished files of dead attempts are hidden until the next attempt removes them. Each partition is published
    separately: all are checked before the first is published, and if the process dies in between, its replacement
    leaves out the published ones.

    The folder must be on a file system with hard links and `fsync` that all tasks share, such as a local disk or NFS.
    Or it is in a bucket of S3, or of a compatible store that honors the condition `If-None-Match: *`; this needs the
    extra `s3`, and the bucket also has one hidden object with which processes test the condition. Use one folder for
    one group, and do not change its files; to compact them, write them into another folder.

    Args:
        folder: The folder of the files, created at first use. A relative path is relative to the working directory in
            which the sink is created. `s3://bucket/prefix`, or Spark's `s3a:`, is a place in a bucket.
        compression: The compression, as for `pyarrow.parquet.write_table`.
        storage_options: For a bucket, the options of `obstore.store.S3Store` (`region`, `endpoint`, `access_key_id`,
            ...). In each task, missing options come from the environment or from the machine's role.

    Raises:
        ConfigurationError: the folder or an option is not supported, or a library is not installed.
    """

    def __init__(
        self, folder: str | Path, *, compression: str = "zstd", storage_options: Mapping[str, Any] | None = None
    ) -> None:
        required("pyarrow.parquet", "sink", "ParquetSink")
        self._storage = _storage(folder, storage_options)
        self._compression = compression
        #: The known ends of the chains; if one is outdated, the name of the next file is taken.
        self._ends: dict[tuple[str, Partition], StoredFence] = {}

    def __repr__(self) -> str:
        return f"ParquetSink({str(self._storage)!r})"

    def __call__(self, batch: Batch, context: SinkContext) -> None:
        """Write the records of a batch that are not in the files yet.

        Raises:
            FencedError: another attempt has written one of the partitions since; nothing of the batch was published.
            ConfigurationError: the folder has records of another group, or the store does not honor the condition.
            SinkError: a file in the folder is not a file of this sink.
            OSError: the file system or the store failed.
        """
        self._storage.prepare()
        # If a name was taken, the chain has grown, and the next turn starts after its new end if the fence allows it.
        while not self._is_published(batch, context):
            self._wait_for_growth(context)

    def check_use(self, use: SinkUse) -> str:
        """Check that a job can write to the folder; return a description of what exists.

        Raises:
            ConfigurationError: the folder has records of another group.
            SinkError: a file in the folder is not a file of this sink.
            OSError: the file system or the store failed.
        """
        if not use.is_on_driver:
            return ""
        self._storage.refuse_if_closed()
        # Only one group writes into a folder, so the first partitions are enough.
        ends = [_end_of(self._storage, FileChain(*partition), use.group) for partition in use.partitions[:_CHECKED]]
        written = sum(end is not UNWRITTEN for end in ends)
        return f"{self._storage}, which has records of {written} of the first {len(ends)} partitions"

    def forget(self, group: str) -> int:
        """Invalidate the fences of a group's files; return the number of its partitions.

        For a group that was deleted, so that its epochs started again, or that another group replaces. The files stay,
        and their records are still left out of later batches. No member of the group may be running.
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
        """Publish a batch; return False if the name of a file is taken."""
        stored = self._stored(context)
        ruling = self._ruled(context, stored)
        if not ruling.is_whole:
            _log.info("%s already has records of %s; they are left out", self._storage, batch_name(context))
        if ruling.is_empty:
            return True
        parts = self._parts(ruling, stored)
        try:
            written = self._written(batch, context, ruling, parts)
            return self._publish(context, written)
        except FileNotFoundError as missing:
            # A later attempt has removed the draft. Usually it has also written; then the fence gives a better error.
            self._forget_ends(context)
            self._ruled(context, self._stored(context))
            raise FencedError(
                f"{context.instance_id!r} (attempt {context.attempt}) was replaced: a later attempt removed its"
                f" unfinished file {missing.filename}; nothing was written of {batch_name(context)}"
            ) from missing
        finally:
            for part in parts.values():
                part.draft.discard()

    def _parts(self, ruling: Ruling, stored: Mapping[Partition, StoredFence]) -> Mapping[Partition, _Part]:
        parts = {}
        for partition, fence in ruling.fences.items():
            position = stored[partition].next_offset
            if fence.next_offset > position:
                chain = FileChain(*partition)
                draft = self._storage.draft(chain.file(position), fence.rank)
                parts[partition] = _Part(chain=chain, position=position, draft=draft, fence=fence)
        return parts

    def _written(
        self, batch: Batch, context: SinkContext, ruling: Ruling, parts: Mapping[Partition, _Part]
    ) -> Mapping[Partition, _Part]:
        """Write the drafts, and return the parts that have records."""
        from pyarrow import Table

        records = _arrow(batch)
        written = {}
        for partition, part in parts.items():
            first = ruling.positions[partition]
            mine = records
            if len(context.ranges) > 1 or not ruling.is_whole:
                mine = _of_partition(records, partition, first)
            if not mine.num_rows:
                continue
            written[partition] = part
            footer = {"group": context.group, "first": first, "records": mine.num_rows, **asdict(part.fence)}
            table = Table.from_batches([mine]).replace_schema_metadata({_PREFIX + k: str(v) for k, v in footer.items()})
            part.draft.write(table, self._compression)
        return written

    def _publish(self, context: SinkContext, parts: Mapping[Partition, _Part]) -> bool:
        if any(self._storage.has(part.chain.file(part.position)) for part in parts.values()):
            return False
        for partition, part in parts.items():
            context.check_leases()
            if not part.draft.publish():
                return False
            self._ends[context.group, partition] = part.fence
        return True

    # ---- the chains' ends ----

    def _ruled(self, context: SinkContext, stored: Mapping[Partition, StoredFence]) -> Ruling:
        return rule(context, stored, remedy=f"call forget({context.group!r}) of this sink")

    def _stored(self, context: SinkContext) -> Mapping[Partition, StoredFence]:
        for fence in context.fences:
            key = (context.group, fence.topic_partition)
            if key not in self._ends:
                chain = FileChain(*fence.topic_partition)
                self._storage.remove_drafts(chain, below=fence.rank)
                self._ends[key] = _end_of(self._storage, chain, context.group)
        return {fence.topic_partition: self._ends[context.group, fence.topic_partition] for fence in context.fences}

    def _wait_for_growth(self, context: SinkContext) -> None:
        """Wait until a chain has grown: on NFS, the names in a folder are visible after some seconds."""
        before, deadline = self._stored(context), time.monotonic() + _GROWN_S
        self._forget_ends(context)
        while self._stored(context) == before:
            if time.monotonic() > deadline:
                raise SinkError(
                    f"{self._storage}: a file has the name after the last file of {batch_name(context)}, but does not"
                    " continue it: files were removed, copied or renamed in the folder; move them to another folder"
                )
            time.sleep(_CHECK_EVERY_S)
            self._forget_ends(context)

    def _forget_ends(self, context: SinkContext) -> None:
        for fence in context.fences:
            self._ends.pop((context.group, fence.topic_partition), None)


# ---- the footers of files ----


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
            f"has records of group {footer['group']!r}, and group {group!r} would write them again; give each group its"
            f" own folder, or call forget({footer['group']!r}) of this sink if this group replaces it",
        )
    epoch, attempt = int(footer["epoch"]), int(footer["attempt"])
    return StoredFence(next_offset=next_offset, epoch=epoch, attempt=attempt, writer=footer["writer"])


def _footer(storage: Storage, name: str) -> Mapping[str, str]:
    """Return this package's metadata in a file's footer, by key without the prefix."""
    footer = {
        key.decode().removeprefix(_PREFIX): value.decode()
        for key, value in storage.metadata(name).items()
        if key.startswith(_PREFIX.encode())
    }
    if missing := {"group", "next_offset", "epoch", "attempt", "writer"} - footer.keys():
        raise SinkError(
            f"{storage}/{name} has the name of a file of this sink, but lacks {', '.join(sorted(missing))} in its"
            " footer, so another program wrote it; move it to another folder"
        )
    return footer


def _arrow(batch: Batch) -> pa.RecordBatch:
    if isinstance(batch, list):
        return record_batch(batch)
    from pyarrow import RecordBatch

    if isinstance(batch, RecordBatch):
        return batch
    return RecordBatch.from_pandas(batch, schema=schema(), preserve_index=False)


def _of_partition(records: pa.RecordBatch, partition: Partition, first: int) -> pa.RecordBatch:
    """Return the records of one partition from an offset on."""
    from pyarrow import compute

    topic, number = partition
    is_of_topic = compute.equal(records["topic"], topic)
    is_of_partition = compute.and_(is_of_topic, compute.equal(records["partition"], number))
    return records.filter(compute.and_(is_of_partition, compute.greater_equal(records["offset"], first)))


def _storage(folder: str | Path, options: Mapping[str, Any] | None) -> Storage:
    url = _URL.fullmatch(str(folder)) if isinstance(folder, str) else None
    if url is not None and url["scheme"].lower() in _S3 and url["rest"].strip("/"):
        return Bucket("s3://" + url["rest"].strip("/"), options or {})
    if url is not None or str(folder).startswith("file:"):
        raise ConfigurationError(
            "folder",
            str(folder),
            "must be s3://bucket/prefix, or a path of a file system with hard links that all tasks share; mount another"
            " storage as such a path",
        )
    if options:
        raise ConfigurationError("storage_options", sorted(options), "are only for a folder that begins with s3://")
    return Folder(Path(folder).absolute())
