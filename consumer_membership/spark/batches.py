"""Batches of records for sinks and for Spark, as messages, Arrow or pandas, and the offset ranges of their records.

Every record of a long run passes through this module, so each column is made by one C call (`map` over a method of
Message) and one pyarrow call. This was faster for each column than comprehensions, numpy or hand-made buffers, except
for the two columns that are nearly always equal in all records: topic and headers.
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

#: The first argument of a sink.
Batch: TypeAlias = "list[Message] | pa.RecordBatch | pd.DataFrame"

#: Ranges of consecutive records, each of one partition.
Runs: TypeAlias = Sequence[OffsetRange]
#: One Arrow call costs as much as this many records; for shorter runs it does not pay.
_SHORT_RUN = 100

#: The Spark type of each column, for the schema argument of `mapInArrow`.
_SPARK_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
#: The columns of a batch, in order.
COLUMNS = tuple(_SPARK_TYPES)
#: Arrow's offsets into a column of bytes or text have 32 bits.
_COLUMN_BYTES = 2**31 - 1
#: The size of every 16th record is measured: to measure each record costs half as much as to copy it.
_WEIGHED = 16
#: The largest time in milliseconds that a microsecond clock of 64 bits can show.
MOST_MS = (2**63 - 1) // 1000


def spark_schema(columns: Sequence[str] = COLUMNS) -> str:
    """Return the columns as Spark DDL, the schema argument of `mapInArrow`."""
    return ", ".join(f"{name} {_SPARK_TYPES[name]}" for name in columns)


@cache
def schema(columns: tuple[str, ...] = COLUMNS) -> pa.Schema:
    """Return the Arrow schema of these columns, in the given order.

    `timestamp` is null if a record has no timestamp, or one that microseconds cannot hold (beyond the year 294,246).
    `headers` is an empty list if a record has no headers.

    Raises:
        ConfigurationError: pyarrow is not installed.
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


def to_format(messages: list[Message], batch_format: BatchFormat, runs: Runs = ()) -> Batch:
    """Convert records to the format that a sink requires; for messages, return the list itself.

    `messages` must not contain events (errors, ends of partitions). `runs` are their offset ranges, if they are known
    (`runs_of`); then columns are made without reading each record.

    Raises:
        ConfigurationError: pyarrow or pandas is missing, or the keys or values exceed an Arrow column (2 GiB).
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
    """Convert records to an Arrow batch with these columns; other columns cost nothing. `runs` as for `to_format`.

    Raises:
        ConfigurationError: as `to_format`.
    """
    arrow = _pyarrow()
    known = _known(runs, len(messages))
    arrays = [known[name](arrow, runs) if name in known else _COLUMN_MAKERS[name](arrow, messages) for name in columns]
    return arrow.RecordBatch.from_arrays(arrays, schema=schema(columns))


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Disable Python's garbage collector while batches are collected and converted.

    The collector would start again after each 700 messages, find nothing (messages form no cycles), and take a third to
    half of the time. At the end of the block, a converted batch holds no message.
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
    """Return the batch without the records below `positions`; the batch itself if there are no such records.

    `positions` has the next offset to write, by partition; partitions that it does not have keep all their records.
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
    # These are None only in events, whatever confluent-kafka's types allow.
    records = cast("Iterable[tuple[str, int, int]]", zip(topics, partitions, offsets, strict=True))
    return [offset >= positions.get((topic, partition), 0) for topic, partition, offset in records]


# ---- offset ranges ----

#: Called by `map`, in C, because every record is checked: a million records took a tenth of a second.
_number: Callable[[Message], int] = Message.partition  # type: ignore[assignment]  # None is an event's
_topic, _error = Message.topic, Message.error


def runs_of(records: Sequence[Message], topics: Sequence[str]) -> list[OffsetRange]:
    """Return the runs of consecutive records of one partition, in order; fetched records arrive in such runs.

    `topics` are the topics that the records can have.
    """
    numbers: list[int] = list(map(_number, records))
    keys: Iterable[Hashable] = numbers if len(topics) == 1 else zip(map(_topic, records), numbers, strict=True)
    runs: list[OffsetRange] = []
    at = 0
    for _, run in groupby(keys):
        length = len(list(run))
        first, last = records[at], records[at + length - 1]
        at += length
        topic, partition = partition_of(last)
        start, end = first.offset() or 0, (last.offset() or 0) + 1
        runs.append(OffsetRange(topic=topic, partition=partition, first=start, next_offset=end, records=length))
    return runs


def ranges_of(runs: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Join runs to one range for each partition, sorted by topic and partition.

    The runs of a partition must be in the order of their offsets.
    """
    by_partition: dict[Partition, list[OffsetRange]] = {}
    for run in runs:
        by_partition.setdefault(run.topic_partition, []).append(run)
    return tuple(_joined(of_one) for _, of_one in sorted(by_partition.items()))


def _joined(runs: Sequence[OffsetRange]) -> OffsetRange:
    if len(runs) == 1:
        return runs[0]
    return replace(runs[0], next_offset=runs[-1].next_offset, records=sum(run.records for run in runs))


def are_records(messages: Sequence[Message]) -> bool:
    """Return whether all messages are records, and none is an event (an error or the end of a partition)."""
    return not any(map(_error, messages))


def before(records: Sequence[Message], ends: Mapping[Partition, int]) -> list[Message]:
    """Return the records below the end of their partition; `ends` has each partition."""
    return [m for m in records if (m.offset() or 0) < ends[partition_of(m)]]


def partition_of(message: Message) -> Partition:
    """Return the partition of a record or an event; an event without a partition has ("", 0)."""
    return (message.topic() or "", message.partition() or 0)


# ---- columns ----


def _keys(arrow: ModuleType, messages: list[Message]) -> pa.Array:
    keys = list(map(Message.key, messages))
    if keys.count(None) == len(keys):
        return arrow.nulls(len(keys), arrow.binary())
    return _binary(arrow, "keys", keys)


def _binary(arrow: ModuleType, name: str, found: Sequence[bytes | None]) -> pa.Array:
    """Return one array of the bytes; raise ConfigurationError, before the copy if possible, if Arrow needs two."""
    is_heavy = _weight(found[::_WEIGHED]) * _WEIGHED > _COLUMN_BYTES // 2
    if is_heavy and _weight(found) > _COLUMN_BYTES:
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
        f"the {name} of this batch of {len(found)} records have {_weight(found)} bytes, more than a column of Arrow or "
        f"pandas can hold ({_COLUMN_BYTES}); use batches of fewer records, or batch_format='messages'",
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
        # A producer may write any 64-bit number; it must not make a batch fail each time it is redelivered.
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


# ---- columns that are equal in all records of a run ----


def _known(runs: Runs, records: int) -> Mapping[str, Callable[[ModuleType, Runs], pa.Array]]:
    """Return the makers of the columns that are made faster from the runs than from the records."""
    if not runs or len(runs) * _SHORT_RUN > records:
        return {}
    has_gaps = any(run.next_offset - run.first != run.records for run in runs)
    return {name: made for name, made in _RUN_COLUMNS.items() if not (has_gaps and name == "offset")}


def _repeated(name: str, of_type: str) -> Callable[[ModuleType, Runs], pa.Array]:
    """Return the maker of a column that is equal in all records of a run."""

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
