"""The events of a verifiable consumer, and their JSON as Kafka's system tests read it (VerifiableConsumer.java)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPartition:
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumedRange:
    """The records of one partition in a batch, from the first offset to the last."""

    partition: EventPartition
    count: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset of one partition in a commit: the offset of the next record."""

    partition: EventPartition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartupComplete:
    """The consumer exists, and subscribes next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsAssigned:
    """The partitions of a call of `on_assign`; they may be none."""

    partitions: tuple[EventPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRevoked:
    """The partitions of a call of `on_revoke` or `on_lost`."""

    partitions: tuple[EventPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsConsumed:
    """A batch of records, sent before its offsets are committed."""

    ranges: tuple[ConsumedRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordData:
    """One record, with `--verbose`; key and value as text."""

    partition: EventPartition
    offset: int
    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsCommitted:
    """The result of a commit that the consumer requested; `error` is None if it succeeded."""

    offsets: tuple[CommittedOffset, ...]
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownComplete:
    """The consumer is closed."""


VerifiableEvent: TypeAlias = (
    StartupComplete
    | PartitionsAssigned
    | PartitionsRevoked
    | RecordsConsumed
    | RecordData
    | OffsetsCommitted
    | ShutdownComplete
)


def encode(event: VerifiableEvent, timestamp_ms: int) -> str:
    """Return the event as one line of JSON without a line end."""
    name, fields = _fields(event)
    return json.dumps({"timestamp": timestamp_ms, "name": name, **fields}, separators=(",", ":"))


def _fields(event: VerifiableEvent) -> tuple[str, dict[str, object]]:
    match event:
        case StartupComplete():
            return "startup_complete", {}
        case PartitionsAssigned(partitions=partitions):
            return "partitions_assigned", {"partitions": [_named(one) for one in partitions]}
        case PartitionsRevoked(partitions=partitions):
            return "partitions_revoked", {"partitions": [_named(one) for one in partitions]}
        case RecordsConsumed(ranges=ranges):
            return "records_consumed", _consumed(ranges)
        case RecordData(partition=partition, offset=offset, key=key, value=value):
            return "record_data", {"key": key, "value": value, **_named(partition), "offset": offset}
        case OffsetsCommitted(offsets=offsets, error=error):
            committed: dict[str, object] = {
                "offsets": [{**_named(one.partition), "offset": one.offset} for one in offsets]
            }
            return "offsets_committed", {
                **committed,
                **({} if error is None else {"error": error}),
                "success": error is None,
            }
        case ShutdownComplete():
            return "shutdown_complete", {}
        case _:
            assert_never(event)


def _named(one: EventPartition) -> dict[str, object]:
    return {"topic": one.topic, "partition": one.partition}


def _consumed(ranges: Sequence[ConsumedRange]) -> dict[str, object]:
    partitions = [
        {**_named(one.partition), "count": one.count, "minOffset": one.min_offset, "maxOffset": one.max_offset}
        for one in ranges
    ]
    return {"count": sum(one.count for one in ranges), "partitions": partitions}
