"""The checkpoint of a streaming query, read and made from outside: where the query is, as offsets of Kafka.

A folder has `metadata` (the query's id), `offsets/N` (what batch N is to read, written before it begins) and
`commits/N` (that it is done). Each is text: a version, and lines of JSON; of `offsets/N` the third and the following
are the sources', in their order. Both spark-sql-kafka's offsets and those of `format("kafka-group")` are read. Only
folders of this machine's file system.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.source.offsets import Json, Offsets, flat_offsets, nested_offsets

_VERSION = "v1"
#: A file younger than this is somebody's who is at work.
_YOUNG_S = 10.0
#: What stands for a source without an offset.
_NONE = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffsets:
    """One source of a batch: where it ends; `offsets` None: it is none of Kafka's, or has none yet.

    `group` is that of a `kafka-group` source.
    """

    number: int
    offsets: Offsets | None
    group: str | None


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

    def looks_at_work(self) -> bool:
        """Whether something was written a moment ago.

        Of a query that has nothing to do it cannot be told: Spark locks nothing, and keeps no file open.
        """
        return time.time() - self.written_at < _YOUNG_S

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


def read_checkpoint(path: str) -> Checkpoint:
    """What a folder says.

    Raises:
        ConfigurationError: it is no checkpoint, or a file in it cannot be read; the text names the file.
    """
    folder = _local(path)
    if not (folder / "offsets").is_dir():
        remedy = "there is no folder `offsets` in it; give the checkpointLocation of a streaming query"
        raise ConfigurationError("path", path, remedy)
    planned, done = _batches(folder / "offsets"), _batches(folder / "commits")
    batch = max(planned.keys() & done.keys(), default=None)
    ahead = [number for number in planned if batch is None or number > batch]
    if batch is None and done:
        remedy = f"batch {max(done)} is done, and its offsets are not there; the folder is not whole"
        raise ConfigurationError("path", path, remedy)
    written = [each.stat().st_mtime for each in (*planned.values(), *done.values())]
    return Checkpoint(
        query_id=_query_id(folder / "metadata"),
        batch_id=batch,
        sources=() if batch is None else _sources(planned[batch]),
        planned_batch_id=max(ahead, default=None),
        written_at=max(written, default=0.0),
    )


def write_checkpoint(path: str, offsets: Offsets) -> str:
    """Make a checkpoint from which a query with one source of Kafka's goes on at these offsets; the query's new id.

    Raises:
        ConfigurationError: there is something at that place already.
    """
    folder = _local(path)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigurationError("path", path, "there is something already; name a new folder, or an empty one")
    query_id = str(uuid.uuid4())
    source: Json = dict(nested_offsets(offsets))
    batch = {"batchWatermarkMs": 0, "batchTimestampMs": time.time_ns() // 1_000_000, "conf": {}}
    done = {"nextBatchWatermarkMs": 0}
    for name, lines in {
        "offsets/0": [_VERSION, _text(batch), _text(source)],
        "commits/0": [_VERSION, _text(done)],
        "metadata": [_text({"id": query_id})],
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines))
    return query_id


def _local(path: str) -> Path:
    scheme, sign, rest = path.partition("://")
    if sign and scheme != "file":
        remedy = f"only folders of this machine are read; copy it here first, with the tools of {scheme}"
        raise ConfigurationError("path", path, remedy)
    return Path(rest if sign else path.removeprefix("file:"))


def _batches(folder: Path) -> dict[int, Path]:
    """The files of batches; Spark keeps others beside them, of checksums and of what it was writing."""
    if not folder.is_dir():
        return {}
    return {int(each.name): each for each in folder.iterdir() if each.name.isdigit()}


def _query_id(file: Path) -> str | None:
    return str(_mapping(file, file.read_text()).get("id")) if file.exists() else None


def _sources(file: Path) -> tuple[SourceOffsets, ...]:
    lines = file.read_text().splitlines()
    if len(lines) < 3 or lines[0] != _VERSION:  # noqa: PLR2004 - a version, the batch, and at least one source
        remedy = (
            f"it begins with {lines[:1]}, and not with {_VERSION}, a batch and its sources; it is damaged, or newer"
        )
        raise ConfigurationError("path", str(file), remedy)
    _mapping(file, lines[1])
    return tuple(_source(file, number, line) for number, line in enumerate(lines[2:]))


def _source(file: Path, number: int, line: str) -> SourceOffsets:
    if line == _NONE:
        return SourceOffsets(number=number, offsets=None, group=None)
    try:
        found = json.loads(line)
        is_ours = isinstance(found, dict) and found.get("version") == 1 and "offsets" in found
        offsets = flat_offsets(found["offsets"] if is_ours else found)
    except (ValueError, ConfigurationError):
        # A rate, files, another connector: its offsets have other forms.
        return SourceOffsets(number=number, offsets=None, group=None)
    if not offsets:
        raise ConfigurationError("path", str(file), f"source {number} has no partition in it")
    return SourceOffsets(number=number, offsets=offsets, group=found.get("group") if is_ours else None)


def _mapping(file: Path, text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError("path", str(file), f"{text[:50]!r} is no JSON object; the file is damaged")
    return found


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
