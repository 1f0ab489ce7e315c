"""`checkpoint`: where a streaming query of Spark is: shown, given to a group, or made of a group's offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TextIO, cast

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from consumer_membership.admin import GroupAdmin
from consumer_membership.cli.groups import DONE, answered
from consumer_membership.config import ConsumerConfig
from consumer_membership.errors import ConfigurationError, GroupError, TransportError
from consumer_membership.spark.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from consumer_membership.spark.source.offsets import Offsets
from consumer_membership.types import OffsetAndMetadata

_TIMEOUT_S = 30.0
#: GROUP_ID_NOT_FOUND: it has neither members nor offsets.
_NO_SUCH_GROUP = 69


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointOptions:
    """What to do with which folder: `show`, `to-group` or `from-group`; nothing is written unless `executes`."""

    action: str
    path: str
    config: Mapping[str, object]
    group: str | None = None
    source: int | None = None
    executes: bool = False
    is_json: bool = False


def checkpoint(options: CheckpointOptions, out: TextIO, err: TextIO) -> int:
    """Show it, or move offsets between it and a group; the exit code."""
    actions: Mapping[str, Callable[[CheckpointOptions], Iterable[str]]] = {
        "show": _shown,
        "to-group": _to_group,
        "from-group": _from_group,
    }
    return answered(f"checkpoint {options.action}", lambda: (actions[options.action](options), DONE), out, err)


def _shown(options: CheckpointOptions) -> Iterator[str]:
    found = read_checkpoint(options.path)
    if options.is_json:
        sources = [
            {
                "source": each.number,
                "group": each.group,
                "offsets": None if each.offsets is None else _records(each.offsets),
            }
            for each in found.sources
        ]
        told = asdict(found) | {"sources": sources}
        yield json.dumps(told, indent=2)
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
    found = read_checkpoint(options.path)
    source = found.kafka_source(options.source)
    offsets = source.offsets or {}
    admin = GroupAdmin(options.config)
    before = _committed(admin, group)
    _refuse_members(admin, group)
    if source.group is not None and (held := _members(admin, source.group)):
        remedy = f"its query runs: its group {source.group!r} has {held}; stop it first"
        raise ConfigurationError("path", options.path, remedy)
    if found.looks_at_work():
        remedy = "it was written to a moment ago: its query runs; stop it first, and try again after ten seconds"
        raise ConfigurationError("path", options.path, remedy)
    yield from (
        f"{topic}[{number}]  {before.get((topic, number), 'nothing')} -> {offset}"
        for (topic, number), offset in sorted(offsets.items())
    )
    if not options.executes:
        yield f"nothing is written; --execute commits {len(offsets)} offsets of batch {found.batch_id} to group {group}"
        return
    _commit(options.config, group, offsets)
    yield f"group {group} has these offsets now"


def _from_group(options: CheckpointOptions) -> Iterator[str]:
    group = _group(options)
    admin = GroupAdmin(options.config)
    offsets = _committed(admin, group)
    _refuse_members(admin, group)
    if not offsets:
        raise ConfigurationError("group", group, "it has committed nothing; check the spelling and bootstrap.servers")
    yield from (f"{topic}[{number}]  {offset}" for (topic, number), offset in sorted(offsets.items()))
    if not options.executes:
        yield f"nothing is written; --execute makes {options.path} of {len(offsets)} offsets of group {group}"
        return
    query_id = write_checkpoint(options.path, offsets)
    yield f"{options.path} is the checkpoint of a query now ({query_id}): subscribe exactly these topics in it"


def _group(options: CheckpointOptions) -> str:
    if options.group is None:
        raise ConfigurationError("group", None, "name the group: --group")
    return options.group


def _committed(admin: GroupAdmin, group: str) -> Offsets:
    try:
        said = admin.committed(group)
    except GroupError as refused:
        if refused.code == _NO_SUCH_GROUP:
            return {}
        raise
    found: dict[tuple[str, int], int] = {}
    for (topic, number), at in said.items():
        if not isinstance(at, OffsetAndMetadata):
            raise TransportError(f"{topic}[{number}]: no committed offset: {at}")
        if at.offset >= 0:
            found[topic, number] = at.offset
    return found


def _refuse_members(admin: GroupAdmin, group: str) -> None:
    """A group with members goes on from where they are, whatever is written beside them, or was read before."""
    if members := _members(admin, group):
        raise ConfigurationError("group", group, f"it has {members}; stop them")


def _members(admin: GroupAdmin, group: str) -> str:
    """How many, and one of them, in words; nothing where there is none."""
    try:
        members = admin.describe(group, with_offsets=False).group.members
    except GroupError as refused:
        if refused.code == _NO_SUCH_GROUP:
            return ""
        raise
    if not members:
        return ""
    return f"{len(members)} members, such as {members[0].instance_id or members[0].member_id} on {members[0].host}"


def _commit(config: Mapping[str, object], group: str, offsets: Offsets) -> None:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - slow to import

    cluster = ConsumerConfig.from_mapping({**config, "group.id": group}).with_servers().cluster_config()
    client = AdminClient(cast("dict[str, str | int | float | bool]", cluster))
    wanted = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
    asked = client.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=_TIMEOUT_S
    )
    try:
        done = asked[group].result()
    except KafkaException as failed:
        raise GroupError(f"group {group!r}: {failed.args[0].str()}", failed.args[0].code()) from failed
    for each in done.topic_partitions:
        if each.error is not None:
            raise GroupError(f"{each.topic}[{each.partition}]: {each.error.str()}", each.error.code())


def _records(offsets: Offsets) -> list[dict[str, object]]:
    return [
        {"topic": topic, "partition": number, "offset": offset} for (topic, number), offset in sorted(offsets.items())
    ]
