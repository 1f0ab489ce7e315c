"""The checkpoint of a streaming query, read, made and rewritten: where the query is, as offsets of Kafka.

A folder has `metadata` (the query's id), `offsets/N` (what batch N is to read, written before it begins) and
`commits/N` (batch N is done). Each is text: a version, and lines of JSON. In `offsets/N` the first line after the
version is the batch's; the following lines are its sources', in their order. Offsets of spark-sql-kafka and of
`format("kafka-group")` are read.

`kafka-group` reads both kinds of offsets, spark-sql-kafka only its own. So a log in which only some batches are
rewritten is still good for `kafka-group`.
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
#: Stands for a source without an offset.
_NONE = "-"
#: The offset log as `kafka-group` wrote it, after it was rewritten.
BACKUP = "offsets-kafka-group"
#: spark-sql-kafka keeps where its first batch began in a file that begins with this byte and its version.
_INITIAL_OFFSETS = "\0v1\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsets:
    """One source of a batch: where it ends; `offsets` None: it is not a source of Kafka, or has no offsets yet.

    `group` is that of a `kafka-group` source. `start` is where the batch began, if only the batch itself has that.
    """

    number: int
    offsets: OffsetsByPartition | None
    group: str | None
    start: OffsetsByPartition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A query's checkpoint: the last batch that is done, and the one that is planned, if there is one.

    `batch_id` is None, and there are no sources, where no batch is done.
    """

    query_id: str | None
    batch_id: int | None
    sources: tuple[SourceOffsets, ...]
    planned_batch_id: int | None
    written_at: float

    @property
    def age_s(self) -> float:
        """The time since the last write, by this machine's clock."""
        return max(0.0, time.time() - self.written_at)

    def kafka_source(self, number: int | None) -> SourceOffsets:
        """The source of that number, or the only one of Kafka's.

        Raises:
            ConfigurationError: there is no such source, or there are several.
        """
        found = [each for each in self.sources if each.offsets is not None]
        if number is not None:
            found = [each for each in found if each.number == number]
        if len(found) == 1:
            return found[0]
        there = ", ".join(str(each.number) for each in self.sources if each.offsets is not None) or "none"
        raise ConfigurationError("source", number, f"give the number of one source of Kafka's; there are: {there}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """A batch of the offset log with offsets of `kafka-group`, and what spark-sql-kafka would have written.

    `initial` is where the batch began, by the number of the source, if Spark would ask the source for that.
    """

    batch_id: int
    groups: frozenset[str]
    text: str
    rewritten: str
    initial: Mapping[int, OffsetsByPartition]


def read_checkpoint(folder: TextFolder) -> Checkpoint:
    """Read a checkpoint's folder.

    Raises:
        ConfigurationError: it is no checkpoint, or a file in it cannot be read; the text names the file.
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
    """Make a checkpoint from which a query with one source of Kafka's goes on at these offsets; the query's new id.

    Raises:
        ConfigurationError: something exists at that place already.
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
    """Refuse a place where something exists; raises ConfigurationError."""
    if folder.exists() and not folder.is_empty():
        remedy = "something exists there already; name a new folder, or an empty one"
        raise ConfigurationError("path", folder.path_of(""), remedy)


def group_batches(folder: TextFolder) -> list[PlannedBatch]:
    """The batches in the offset log that have offsets of `kafka-group`, in their order.

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
        text = folder.read(name)
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
    """Give a batch's offsets to spark-sql-kafka, and keep the text that `kafka-group` wrote.

    An interrupted call can be repeated: the batch itself changes last, and in one step.
    """
    folder.replace(f"{BACKUP}/{batch.batch_id}", batch.text)
    for number, offsets in batch.initial.items():
        folder.replace(f"sources/{number}/0", f"{_INITIAL_OFFSETS}{_text(nested_offsets(offsets))}")
    folder.replace(f"offsets/{batch.batch_id}", batch.rewritten)


def _batches(folder: TextFolder, name: str) -> dict[int, float]:
    """The batches of a log and when each was written; Spark keeps checksums and unfinished files beside them."""
    return {int(each): at for each, at in folder.files(name).items() if each.isdigit()}


def _query_id(folder: TextFolder) -> str | None:
    return str(_mapping(folder, "metadata", folder.read("metadata")).get("id")) if folder.exists("metadata") else None


def _sources(folder: TextFolder, name: str) -> tuple[SourceOffsets, ...]:
    lines = folder.read(name).splitlines()
    if len(lines) < 3 or lines[0] != _VERSION:  # noqa: PLR2004 - a version, the batch, and at least one source
        remedy = (
            f"it begins with {lines[:1]}, and not with {_VERSION}, a batch and its sources; it is damaged, or newer"
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
    except (ValueError, ConfigurationError):
        # A rate, files, another connector: its offsets have other forms.
        return SourceOffsets(number=number, offsets=None, group=None)
    if not offsets:
        raise ConfigurationError("path", folder.path_of(name), f"source {number} has no partition in it")
    return SourceOffsets(number=number, offsets=offsets, group=found.get("group") if is_ours else None, start=start)


def _mapping(folder: TextFolder, name: str, text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError("path", folder.path_of(name), f"{text[:50]!r} is no JSON object; the file is damaged")
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
