"""Batches of records as a sink or Spark gets them: confluent-kafka's messages, Arrow or pandas; and what they are of.

Every record of a long run passes here, so each column is made by one call of C (`map` over the message's own method)
and one of pyarrow; measured beside comprehensions, numpy and buffers put together by hand, that was the quickest for
each column, apart from the two that are nearly always the same in every record: topic and headers.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import compress, groupby
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias, assert_never, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.arguments import required
from consumer_membership.spark.context import BatchFormat, OffsetRange, Partition

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # ships no types
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types

#: What a sink is called with.
Batch: TypeAlias = "list[Message] | pa.RecordBatch | pd.DataFrame"

#: Consecutive records of one partition each.
Runs: TypeAlias = Sequence[OffsetRange]
#: An Arrow call costs as much as so many records; shorter runs are no use.
_SHORT_RUN = 100

#: Each column in Spark's words, for the schema that `mapInArrow` is told.
_SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
#: The columns of a batch, in their order.
COLUMNS = tuple(_SPARK_TYPES)
#: Arrow's offsets into a column of bytes or text are of 32 bits.
_COLUMN_BYTES = 2**31 - 1
#: One record in so many is weighed: to weigh each costs half as much as its copy.
_WEIGHED = 16
#: The largest time in milliseconds that a microsecond clock of 64 bits can show.
MOST_MS = (2**63 - 1) // 1000


def spark_schema(columns: Sequence[str] = COLUMNS) -> str:
    """These columns as Spark's DDL: what `mapInArrow` has to be told of batches that are made here."""
    return ", ".join(f"{name} {_SPARK_TYPES[name]}" for name in columns)


@cache
def schema(columns: tuple[str, ...] = COLUMNS) -> pa.Schema:
    """These columns as an Arrow schema, the order being theirs.

    `timestamp` is null where a record has none, or one that microseconds cannot hold (beyond the year 294,246);
    `headers` is an empty list where it has none.

    Raises:
        ConfigurationError: there is no pyarrow.
    """
    arrow = _pyarrow()
    types = {
        "key": arrow.binary(),
        "value": arrow.binary(),
        "topic": arrow.string(),
        "partition": arrow.int32(),
        "offset": arrow.int64(),
        "timestamp": arrow.timestamp("us", "UTC"),
        "headers": arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.binary())])),
    }
    return arrow.schema([(name, types[name]) for name in columns])


def formed(messages: list[Message], batch_format: BatchFormat, runs: Runs = ()) -> Batch:
    """The records as the batch that a sink asked for; messages stay the list that they are.

    There must be records only: what an error event carries is no value. `runs` say what they are of,
    where that is known (`runs_of`): it saves a look at each record.

    Raises:
        ConfigurationError: pyarrow or pandas is missing, or the keys or values weigh more than Arrow can hold (2 GiB).
    """
    match batch_format:
        case BatchFormat.MESSAGES:
            return messages
        case BatchFormat.ARROW:
            return record_batch(messages, runs=runs)
        case BatchFormat.PANDAS:
            required("pandas", "batch_format", batch_format.value)
            return record_batch(messages, runs=runs).to_pandas()
        case _:
            assert_never(batch_format)


def record_batch(messages: list[Message], columns: tuple[str, ...] = COLUMNS, *, runs: Runs = ()) -> pa.RecordBatch:
    """The records as an Arrow batch of these columns; the others cost nothing. `runs` as for `formed`.

    Raises ConfigurationError: as `formed`.
    """
    arrow = _pyarrow()
    known = _known(runs, len(messages))
    arrays = [known[name](arrow, runs) if name in known else _COLUMN_MAKERS[name](arrow, messages) for name in columns]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema(columns))


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep Python's collector away while batches gather and are formed.

    It begins anew at each seven hundred messages, finds nothing (they are no cycles) and takes a third to half of the
    time. Of a formed batch no message is left at the end of this.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def after(batch: Batch, batch_format: BatchFormat, positions: Mapping[Partition, int]) -> Batch:
    """The batch without the records below these offsets of these partitions; the batch itself if it has none.

    `positions` says by topic and partition which offset is the next to be written; partitions that it does not name
    keep all their records.
    """
    if isinstance(batch, list):
        kept = _kept(map(Message.topic, batch), map(Message.partition, batch), map(Message.offset, batch), positions)
        return batch if all(kept) else list(compress(batch, kept))
    topics, partitions, offsets = (batch[name].tolist() for name in ("topic", "partition", "offset"))
    kept = _kept(topics, partitions, offsets, positions)
    if all(kept):
        return batch
    if batch_format is BatchFormat.ARROW:
        return batch.filter(_pyarrow().array(kept))
    return batch[kept].reset_index(drop=True)


def _kept(
    topics: Iterable[str | None],
    partitions: Iterable[int | None],
    offsets: Iterable[int | None],
    positions: Mapping[Partition, int],
) -> list[bool]:
    # What confluent-kafka's types allow to be None never is in a record.
    places = cast("Iterable[tuple[str, int, int]]", zip(topics, partitions, offsets, strict=True))
    return [offset >= positions.get((topic, partition), 0) for topic, partition, offset in places]


# ---- which offsets of which partitions they are ----

#: Called by `map`, in C, since every record is looked at: a million cost a tenth of a second.
_number: Callable[[Message], int] = Message.partition  # type: ignore[assignment]  # None is an event's
_topic, _error = Message.topic, Message.error


def runs_of(records: Sequence[Message], topics: Sequence[str]) -> list[OffsetRange]:
    """The records in their order as runs of one partition each: that is how they are fetched.

    `topics` are those that the records may be of.
    """
    numbers: list[int] = list(map(_number, records))
    keys: Iterable[Hashable] = numbers if len(topics) == 1 else zip(map(_topic, records), numbers, strict=True)
    runs: list[OffsetRange] = []
    at = 0
    for _, run in groupby(keys):
        length = len(list(run))
        first, last = records[at], records[at + length - 1]
        at += length
        topic, partition = place_of(last)
        start, end = first.offset() or 0, (last.offset() or 0) + 1
        runs.append(OffsetRange(topic=topic, partition=partition, first=start, next_offset=end, records=length))
    return runs


def ranges_of(runs: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """One range for each partition, by topic and partition.

    Records of one partition come in the order of their offsets.
    """
    by_place: dict[Partition, list[OffsetRange]] = {}
    for run in runs:
        by_place.setdefault(run.place, []).append(run)
    return tuple(_joined(of_one) for _, of_one in sorted(by_place.items()))


def _joined(runs: Sequence[OffsetRange]) -> OffsetRange:
    if len(runs) == 1:
        return runs[0]
    return replace(runs[0], next_offset=runs[-1].next_offset, records=sum(run.records for run in runs))


def are_records(messages: Sequence[Message]) -> bool:
    """Whether there is no event, an error or a partition's end, among them."""
    return not any(map(_error, messages))


def before(records: Sequence[Message], ends: Mapping[Partition, int]) -> list[Message]:
    """The records below the end of their partition; each has one."""
    return [m for m in records if (m.offset() or 0) < ends[place_of(m)]]


def place_of(message: Message) -> Partition:
    """The partition of a record, or of an event, which may lack one."""
    return (message.topic() or "", message.partition() or 0)


# ---- columns ----


def _keys(arrow: ModuleType, messages: list[Message]) -> pa.Array:
    keys = list(map(Message.key, messages))
    if keys.count(None) == len(keys):
        return arrow.nulls(len(keys), arrow.binary())
    return _binary(arrow, "keys", keys)


def _binary(arrow: ModuleType, name: str, found: Sequence[bytes | None]) -> pa.Array:
    """The bytes as one array; refused where Arrow would put them into two, at best before it has copied 2 GiB."""
    looks_heavy = _weight(found[::_WEIGHED]) * _WEIGHED > _COLUMN_BYTES // 2
    if looks_heavy and _weight(found) > _COLUMN_BYTES:
        raise _too_heavy(name, found)
    made = arrow.array(found, arrow.binary())
    if isinstance(made, arrow.ChunkedArray):
        raise _too_heavy(name, found)
    return made


def _weight(found: Iterable[bytes | None]) -> int:
    return sum(map(len, filter(None, found)))


def _too_heavy(name: str, found: Sequence[bytes | None]) -> ConfigurationError:
    return ConfigurationError(
        "batch_format",
        BatchFormat.ARROW.value,
        f"the {name} of this batch of {len(found)} records weigh {_weight(found)} bytes, and Arrow and pandas hold "
        f"{_COLUMN_BYTES}; let a batch be of fewer records, or take messages",
    )


def _topics(arrow: ModuleType, messages: list[Message]) -> pa.Array:
    topics = list(map(Message.topic, messages))
    if len(set(topics)) == 1:
        return arrow.repeat(arrow.scalar(topics[0], arrow.string()), len(topics))
    return arrow.array(topics, arrow.string())


def _timestamps(arrow: ModuleType, messages: list[Message]) -> pa.Array:
    found = [ms if kind != TIMESTAMP_NOT_AVAILABLE else None for kind, ms in map(Message.timestamp, messages)]
    to_type = schema().field("timestamp").type
    try:
        return arrow.array(found, arrow.int64()).cast(arrow.timestamp("ms", "UTC")).cast(to_type)
    except arrow.ArrowInvalid:
        # A producer may write any number of 64 bits; no batch may fail for that, again and again.
        held = [ms if ms is not None and abs(ms) <= MOST_MS else None for ms in found]
        return arrow.array(held, arrow.timestamp("ms", "UTC")).cast(to_type)


def _headers(arrow: ModuleType, messages: list[Message]) -> pa.Array:
    of_type = schema().field("headers").type
    if any(map(Message.headers, messages)):
        return arrow.array([headers or () for headers in map(Message.headers, messages)], of_type)
    starts = arrow.repeat(arrow.scalar(0, arrow.int32()), len(messages) + 1)
    return arrow.ListArray.from_arrays(starts, arrow.array([], of_type.value_type), type=of_type)


_COLUMN_MAKERS: dict[str, Callable[[ModuleType, list[Message]], pa.Array]] = {
    "key": _keys,
    "value": lambda arrow, messages: _binary(arrow, "values", list(map(Message.value, messages))),
    "topic": _topics,
    "partition": lambda arrow, messages: arrow.array(list(map(Message.partition, messages)), arrow.int32()),
    "offset": lambda arrow, messages: arrow.array(list(map(Message.offset, messages)), arrow.int64()),
    "timestamp": _timestamps,
    "headers": _headers,
}


# ---- columns that a run has in common ----


def _known(runs: Runs, records: int) -> Mapping[str, Callable[[ModuleType, Runs], pa.Array]]:
    """The columns that these runs say, and that are quicker made of them than of the records."""
    if not runs or len(runs) * _SHORT_RUN > records:
        return {}
    has_gaps = any(run.next_offset - run.first != run.records for run in runs)
    return {name: made for name, made in _RUN_COLUMNS.items() if not (has_gaps and name == "offset")}


def _repeated(name: str, of_type: str) -> Callable[[ModuleType, Runs], pa.Array]:
    """The maker of a column that is the same in all records of a run."""

    def column(arrow: ModuleType, runs: Runs) -> pa.Array:
        to_type = getattr(arrow, of_type)()
        same = [arrow.repeat(arrow.scalar(getattr(run, name), to_type), run.records) for run in runs]
        return arrow.concat_arrays(same)

    return column


def _offsets_of(arrow: ModuleType, runs: Runs) -> pa.Array:
    step = arrow.scalar(1, arrow.int64())
    sums = importlib.import_module("pyarrow.compute").cumulative_sum
    return arrow.concat_arrays([sums(arrow.repeat(step, run.records), start=run.first - 1) for run in runs])


_RUN_COLUMNS: dict[str, Callable[[ModuleType, Runs], pa.Array]] = {
    "topic": _repeated("topic", "string"),
    "partition": _repeated("partition", "int32"),
    "offset": _offsets_of,
}


# ---- libraries ----


@cache
def _pyarrow() -> ModuleType:
    return required("pyarrow", "batch_format", BatchFormat.ARROW.value)
