"""Read, create and rewrite the checkpoint of a streaming query, which has the query's position as Kafka offsets.

A folder has `metadata` (the query's id), `offsets/N` (the end offsets of batch N, written before it starts) and
`commits/N` (batch N is done). Each file is text: a version, and lines of JSON. In `offsets/N`, the first line after the
version belongs to the batch; each following line belongs to a source, in order. Offsets of spark-sql-kafka and of
`format("kafka-group")` can be read.

`kafka-group` reads both kinds of offsets, spark-sql-kafka only its own. So a log in which only some batches are
rewritten still works with `kafka-group`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.folders import TextFolder
from consumer_membership.spark.source.offsets import JsonObject, OffsetsByPartition, flat_offsets, nested_offsets

_VERSION = "v1"
#: The line of a source without an offset.
_NONE = "-"
#: The folder that keeps the offset log as `kafka-group` wrote it.
BACKUP = "offsets-kafka-group"
#: spark-sql-kafka stores the start of its first batch in a file that begins with this byte and a version.
_INITIAL_OFFSETS = "\0v1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsets:
    """The offsets of one source in a batch.

    Attributes:
        number: The number of the source in the query, from 0.
        offsets: The end of the batch by partition; None for a source that is not Kafka, or has no offsets yet.
        group: The group of a `kafka-group` source; None for other sources.
        start: The start of the batch by partition, if the batch itself has it (the first batch of a query).
    """

    number: int
    offsets: OffsetsByPartition | None
    group: str | None
    start: OffsetsByPartition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The content of a query's checkpoint.

    Attributes:
        query_id: The query's id; None if the folder has no metadata.
        batch_id: The last finished batch; None if no batch is finished.
        sources: The sources of that batch; empty if no batch is finished.
        planned_batch_id: The planned batch that is not finished; None if there is none.
        written_at: The time of the last write, in seconds since 1970.
    """

    query_id: str | None
    batch_id: int | None
    sources: tuple[SourceOffsets, ...]
    planned_batch_id: int | None
    written_at: float

    @property
    def age_s(self) -> float:
        """The seconds since the last write, by this machine's clock."""
        return max(0.0, time.time() - self.written_at)

    def kafka_source(self, number: int | None) -> SourceOffsets:
        """Return the Kafka source with this number; with None, the only Kafka source.

        Raises:
            ConfigurationError: there is no such source, or `number` is None and there are several.
        """
        found = [each for each in self.sources if each.offsets is not None]
        if number is not None:
            found = [each for each in found if each.number == number]
        if len(found) == 1:
            return found[0]
        there = ", ".join(str(each.number) for each in self.sources if each.offsets is not None) or "none"
        raise ConfigurationError("source", number, f"give the number of one Kafka source of the query: {there}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch of the offset log with offsets of `kafka-group`, and the text that spark-sql-kafka would have written.

    `initial` has the start of the batch, by the number of the source, if Spark would request it from the source.
    """

    batch_id: int
    groups: frozenset[str]
    text: str
    rewritten: str
    initial: Mapping[int, OffsetsByPartition]


def read_checkpoint(folder: TextFolder) -> Checkpoint:
    """Read a checkpoint's folder.

    Raises:
        ConfigurationError: the folder is not a checkpoint, or one of its files is damaged; the text names the file.
    """
    planned, done = _batches(folder, "offsets"), _batches(folder, "commits")
    if not folder.exists("offsets"):
        remedy = "there is no folder `offsets` in it; give the checkpointLocation of a streaming query"
        raise ConfigurationError("path", folder.path_of(""), remedy)
    batch = max(planned.keys() & done.keys(), default=None)
    ahead = [number for number in planned if batch is None or number > batch]
    if batch is None and done:
        remedy = f"batch {max(done)} is done, and its offsets are missing; the folder is incomplete"
        raise ConfigurationError("path", folder.path_of(""), remedy)
    return Checkpoint(
        query_id=_query_id(folder),
        batch_id=batch,
        sources=() if batch is None else _sources(folder, f"offsets/{batch}"),
        planned_batch_id=max(ahead, default=None),
        written_at=max([*planned.values(), *done.values()], default=0.0),
    )


def write_checkpoint(folder: TextFolder, offsets: OffsetsByPartition) -> str:
    """Create a checkpoint from which a query with one Kafka source continues at these offsets; return its new query id.

    Raises:
        ConfigurationError: the folder exists and is not empty.
    """
    refuse_existing(folder)
    query_id = str(uuid.uuid4())
    source: JsonObject = dict(nested_offsets(offsets))
    batch = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
    done = {"nextBatchWatermarkMs": 0}
    for name, lines in {
        "offsets/0": [_VERSION, _text(batch), _text(source)],
        "commits/0": [_VERSION, _text(done)],
        "metadata": [_text({"id": query_id})],
    }.items():
        folder.replace(name, "\n".join(lines))
    return query_id


def refuse_existing(folder: TextFolder) -> None:
    """Raise ConfigurationError if the folder exists and is not empty."""
    if folder.exists() and not folder.is_empty():
        remedy = "the path already exists and is not an empty folder; give a new folder, or an empty one"
        raise ConfigurationError("path", folder.path_of(""), remedy)


def group_batches(folder: TextFolder) -> list[PlannedBatch]:
    """Return the batches of the offset log that have offsets of `kafka-group`, in order.

    Raises:
        ConfigurationError: as `read_checkpoint`.
    """
    planned, done = _batches(folder, "offsets"), _batches(folder, "commits")
    found = []
    for number in sorted(planned):
        name = f"offsets/{number}"
        sources = [each for each in _sources(folder, name) if each.group is not None]
        if not sources:
            continue
        text = _text_in(folder, name)
        lines = text.splitlines()
        for source in sources:
            lines[2 + source.number] = _text(nested_offsets(source.offsets or {}))
        batch = PlannedBatch(
            batch_id=number,
            groups=frozenset(each.group for each in sources if each.group is not None),
            text=text,
            rewritten="\n".join(lines),
            initial={each.number: each.start for each in sources if each.start is not None and number not in done},
        )
        found.append(batch)
    return found


def rewrite(folder: TextFolder, batch: PlannedBatch) -> None:
    """Rewrite the offsets of a batch for spark-sql-kafka, and keep the previous text in the folder `BACKUP`.

    An interrupted call can be repeated: the batch itself changes last, and atomically.
    """
    folder.replace(f"{BACKUP}/{batch.batch_id}", batch.text)
    for number, offsets in batch.initial.items():
        folder.replace(f"sources/{number}/0", f"{_INITIAL_OFFSETS}{_text(nested_offsets(offsets))}")
    folder.replace(f"offsets/{batch.batch_id}", batch.rewritten)


def _batches(folder: TextFolder, name: str) -> dict[int, float]:
    """Return the batches of a log and the time of each; checksums and unfinished files of Spark are left out."""
    return {int(each): at for each, at in folder.files(name).items() if each.isascii() and each.isdigit()}


def _query_id(folder: TextFolder) -> str | None:
    if not folder.exists("metadata"):
        return None
    return str(_mapping(folder, "metadata", _text_in(folder, "metadata")).get("id"))


def _sources(folder: TextFolder, name: str) -> tuple[SourceOffsets, ...]:
    lines = _text_in(folder, name).splitlines()
    if len(lines) < 3 or lines[0] != _VERSION:  # noqa: PLR2004 - a version, the batch, and at least one source
        remedy = (
            f"the file begins with {lines[:1]}, not with {_VERSION}, a batch and its sources; it is damaged, or its "
            "version is not supported"
        )
        raise ConfigurationError("path", folder.path_of(name), remedy)
    _mapping(folder, name, lines[1])
    return tuple(_source(folder, name, number, line) for number, line in enumerate(lines[2:]))


def _source(folder: TextFolder, name: str, number: int, line: str) -> SourceOffsets:
    if line == _NONE:
        return SourceOffsets(number=number, offsets=None, group=None)
    try:
        found = json.loads(line)
        is_ours = isinstance(found, dict) and found.get("version") == 1 and "offsets" in found
        offsets = flat_offsets(found["offsets"] if is_ours else found)
        start = flat_offsets(found["start"]) if is_ours and "start" in found else None
    except (ValueError, RecursionError, ConfigurationError):
        # The offsets of other sources (rate, files, other connectors) have other forms.
        return SourceOffsets(number=number, offsets=None, group=None)
    if not offsets:
        raise ConfigurationError("path", folder.path_of(name), f"source {number} has no partitions")
    group = found.get("group") if is_ours else None
    if not isinstance(group, str | None):
        raise ConfigurationError("path", folder.path_of(name), f"source {number} has {group!r} instead of a group")
    return SourceOffsets(number=number, offsets=offsets, group=group, start=start)


def _text_in(folder: TextFolder, name: str) -> str:
    """Return the text of a file; raise ConfigurationError if it is not UTF-8."""
    try:
        return folder.read(name)
    except UnicodeDecodeError as error:
        raise ConfigurationError("path", folder.path_of(name), f"the file is damaged: {error}") from None


def _mapping(folder: TextFolder, name: str, text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        remedy = f"{text[:50]!r} is not a JSON object; the file is damaged"
        raise ConfigurationError("path", folder.path_of(name), remedy)
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
