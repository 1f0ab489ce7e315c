"""`checkpoint`: show where a streaming query of Spark is, and move it between checkpoint, group and Spark's source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TextIO

from consumer_membership.cli.groups import DONE, answered
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.checkpoint import BACKUP, Checkpoint
from consumer_membership.spark.checkpoint_folder import CheckpointFolder
from consumer_membership.spark.source.offsets import OffsetsByPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """`show`, `to-group`, `from-group` or `to-kafka`, and for which folder; nothing is written unless `executes`."""

    action: str
    path: str
    config: Mapping[str, object]
    group: str | None = None
    source: int | None = None
    executes: bool = False
    is_json: bool = False


def checkpoint(options: CheckpointOptions, out: TextIO, err: TextIO) -> int:
    """Show a checkpoint, or move its query; the exit code."""
    actions: Mapping[str, Callable[[CheckpointOptions], Iterable[str]]] = {
        "show": _shown,
        "to-group": _to_group,
        "from-group": _from_group,
        "to-kafka": _to_kafka,
    }
    return answered(f"checkpoint {options.action}", lambda: (actions[options.action](options), DONE), out, err)


def _shown(options: CheckpointOptions) -> Iterator[str]:
    found = CheckpointFolder(options.path).read()
    if options.is_json:
        sources = [
            {
                "source": each.number,
                "group": each.group,
                "offsets": None if each.offsets is None else _records(each.offsets),
            }
            for each in found.sources
        ]
        output = asdict(found) | {"sources": sources}
        yield from json.dumps(output, indent=2).splitlines()
        return
    yield f"query {found.query_id or 'without an id'}, {_batches(found)}"
    for source in found.sources:
        if source.offsets is None:
            yield f"source {source.number}: not of Kafka, or nothing read yet"
            continue
        yield f"source {source.number}{f', group {source.group}' if source.group else ''}:"
        yield from (f"  {topic}[{number}]  {offset}" for (topic, number), offset in sorted(source.offsets.items()))


def _batches(found: Checkpoint) -> str:
    done = "no batch is done" if found.batch_id is None else f"batch {found.batch_id} is done"
    return done if found.planned_batch_id is None else f"{done}, batch {found.planned_batch_id} is planned and not done"


def _to_group(options: CheckpointOptions) -> Iterator[str]:
    group = _group(options)
    folder = CheckpointFolder(options.path)
    move = folder.to_group(options.config, group, source=options.source, execute=options.executes)
    yield from (
        f"{topic}[{number}]  {move.before.get((topic, number), 'nothing')} -> {offset}"
        for (topic, number), offset in sorted(move.offsets.items())
    )
    if options.executes:
        yield f"group {group} has these offsets now"
    else:
        what = f"{len(move.offsets)} offsets of batch {move.batch_id}"
        yield f"nothing is written; --execute commits {what} to group {group}"


def _from_group(options: CheckpointOptions) -> Iterator[str]:
    group = _group(options)
    folder = CheckpointFolder(options.path)
    offsets = folder.from_group(options.config, group, execute=options.executes)
    yield from (f"{topic}[{number}]  {offset}" for (topic, number), offset in sorted(offsets.items()))
    if options.executes:
        query_id = folder.read().query_id
        yield f"{options.path} is the checkpoint of a query now ({query_id}): subscribe exactly these topics in it"
    else:
        yield f"nothing is written; --execute makes {options.path} of {len(offsets)} offsets of group {group}"


def _to_kafka(options: CheckpointOptions) -> Iterator[str]:
    if options.source is not None:
        remedy = "leave it out: all sources are rewritten; one that stays kafka-group goes on from the rewritten log"
        raise ConfigurationError("source", options.source, remedy)
    batches = CheckpointFolder(options.path).to_kafka(options.config, execute=options.executes)
    if not batches:
        yield f"{options.path} has no offsets of kafka-group; nothing is written"
        return
    named = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
    if options.executes:
        yield f"{named} rewritten; the previous offsets are in {options.path}/{BACKUP}"
        yield 'start the query with format("kafka") now, without group.id; its topics and its code stay as they are'
    else:
        yield f'nothing is written; --execute rewrites the offsets of {named} for format("kafka")'


def _group(options: CheckpointOptions) -> str:
    if options.group is None:
        raise ConfigurationError("group", None, "name the group: --group")
    return options.group


def _records(offsets: OffsetsByPartition) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": number, "offset": offset} for (topic, number), offset in sorted(offsets.items())
    ]
