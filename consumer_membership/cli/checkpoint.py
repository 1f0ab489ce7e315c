"""The command `checkpoint`: show a Spark query's offsets, or convert them between checkpoint, group and source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TextIO

from consumer_membership.cli.groups import DONE, run_query
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.checkpoint import BACKUP, Checkpoint
from consumer_membership.spark.checkpoint_folder import CheckpointFolder
from consumer_membership.spark.source.offsets import OffsetsByPartition
from consumer_membership.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """The action (`show`, `to-group`, `from-group`, `to-kafka`) and its folder; writes only if `executes` is true."""

    action: str
    path: str
    config: Mapping[str, object]
    group: str | None = None
    source: int | None = None
    executes: bool = False
    is_json: bool = False


def checkpoint(options: CheckpointOptions, out: TextIO, err: TextIO) -> int:
    """Show or convert a checkpoint and return the exit code."""
    actions: Mapping[str, Callable[[CheckpointOptions], Iterable[str]]] = {
        "show": _shown,
        "to-group": _to_group,
        "from-group": _from_group,
        "to-kafka": _to_kafka,
    }
    return run_query(f"checkpoint {options.action}", lambda: (actions[options.action](options), DONE), out, err)


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
    yield f"query {found.query_id or 'without id'}: {_batches(found)}"
    for source in found.sources:
        if source.offsets is None:
            yield f"source {source.number}: no Kafka offsets (another kind of source, or no batch yet)"
            continue
        yield f"source {source.number}{f', group {source.group}' if source.group else ''}:"
        yield from (f"  {topic}[{number}]  {offset}" for (topic, number), offset in sorted(source.offsets.items()))


def _batches(found: Checkpoint) -> str:
    done = "no completed batch" if found.batch_id is None else f"last completed batch {found.batch_id}"
    planned = "" if found.planned_batch_id is None else f", batch {found.planned_batch_id} planned but not completed"
    return done + planned


def _to_group(options: CheckpointOptions) -> Iterator[str]:
    group = _group(options)
    folder = CheckpointFolder(options.path)
    move = folder.to_group(options.config, group, source=options.source, execute=options.executes)
    yield from (
        f"{topic}[{number}]  {move.before.get((topic, number), 'none')} -> {offset}"
        for (topic, number), offset in sorted(move.offsets.items())
    )
    if options.executes:
        yield f"committed {counted(len(move.offsets), 'offset')} of batch {move.batch_id} to group {group}"
    else:
        what = f"{counted(len(move.offsets), 'offset')} of batch {move.batch_id}"
        yield f"no changes were made; use --execute to commit {what} to group {group}"


def _from_group(options: CheckpointOptions) -> Iterator[str]:
    group = _group(options)
    folder = CheckpointFolder(options.path)
    offsets = folder.from_group(options.config, group, execute=options.executes)
    yield from (f"{topic}[{number}]  {offset}" for (topic, number), offset in sorted(offsets.items()))
    if options.executes:
        query_id = folder.read().query_id
        yield f"created checkpoint {options.path} (query {query_id}); the query must subscribe to exactly these topics"
    else:
        yield (
            f"no changes were made; use --execute to create {options.path} from {counted(len(offsets), 'offset')} of "
            f"group {group}"
        )


def _to_kafka(options: CheckpointOptions) -> Iterator[str]:
    if options.source is not None:
        remedy = "omit --source: to-kafka rewrites all sources; a source that stays kafka-group also continues from it"
        raise ConfigurationError("source", options.source, remedy)
    batches = CheckpointFolder(options.path).to_kafka(options.config, execute=options.executes)
    if not batches:
        yield f"{options.path} has no offsets of kafka-group; no changes were made"
        return
    named = f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"
    if options.executes:
        yield f"rewrote the offsets of {named}; the previous offsets are in {options.path}/{BACKUP}"
        yield 'start the query with format("kafka") and without group.id; keep its topics and its code'
    else:
        yield f'no changes were made; use --execute to rewrite the offsets of {named} for format("kafka")'


def _group(options: CheckpointOptions) -> str:
    if options.group is None:
        raise ConfigurationError("group", None, "set the group with --group")
    return options.group


def _records(offsets: OffsetsByPartition) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": number, "offset": offset} for (topic, number), offset in sorted(offsets.items())
    ]
