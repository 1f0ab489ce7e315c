"""Convert records to rows like those of spark-sql-kafka: the same columns, types, and values for missing fields."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from inspect import signature
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING

from confluent_kafka import Message

from consumer_membership.spark.arguments import required
from consumer_membership.spark.batches import MOST_MS, partition_of, record_batch, runs_of
from consumer_membership.spark.context import OffsetRange
from consumer_membership.spark.range_reader import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql.types import StructType

#: The columns that are made as in all batches.
_PLAIN = ("key", "value", "topic", "partition", "offset")
_KIND: Callable[[tuple[int, int]], int] = itemgetter(0)
_TIME: Callable[[tuple[int, int]], int] = itemgetter(1)


def source_schema(*, include_headers: bool) -> StructType:
    """Return the columns of the source."""
    from pyspark.sql import types as spark

    found = (
        spark.StructType()
        .add("key", spark.BinaryType())
        .add("value", spark.BinaryType())
        .add("topic", spark.StringType())
        .add("partition", spark.IntegerType())
        .add("offset", spark.LongType())
        .add("timestamp", spark.TimestampType())
        .add("timestampType", spark.IntegerType())
    )
    header = spark.StructType().add("key", spark.StringType()).add("value", spark.BinaryType())
    return found.add("headers", spark.ArrayType(header)) if include_headers else found


class RowMaker:
    """Converts messages to Arrow batches, with the schema that Spark declares for the columns.

    `share` has the ranges of the messages.
    """

    def __init__(self, schema: StructType, share: Sequence[ReadRange]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        # The newest release of pyspark has a parameter for the time zone, and requires exactly this schema.
        zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        self._schema: pa.Schema = to_arrow_schema(schema, **zone)  # type: ignore[arg-type]  # not in the oldest
        self._has_headers = "headers" in self._schema.names
        self._topics = sorted({each.topic for each in share})
        self._is_one_partition = len(share) == 1

    def batch(self, messages: list[Message]) -> pa.RecordBatch:
        """Return these messages as an Arrow batch."""
        arrow = required("pyarrow", "format", "kafka-group")
        # Reading a field of each record is expensive, so fields that are equal in a partition are read once.
        runs = [_run_of(messages)] if self._is_one_partition else runs_of(messages, self._topics)
        plain = record_batch(messages, _PLAIN, runs=runs)
        columns = dict(zip(_PLAIN, plain.columns, strict=True))
        stamps = list(map(Message.timestamp, messages))
        columns["timestamp"] = _timestamps(arrow, list(map(_TIME, stamps)), self._schema.field("timestamp").type)
        # 0: the producer's clock, 1: the broker's clock, -1: none. librdkafka's numbers are larger by 1.
        kinds = arrow.array(list(map(_KIND, stamps)), arrow.int32())
        one = arrow.scalar(1, arrow.int32())
        columns["timestampType"] = importlib.import_module("pyarrow.compute").subtract(kinds, one)
        if self._has_headers:
            headers = [found or None for found in map(Message.headers, messages)]
            columns["headers"] = arrow.array(headers, self._schema.field("headers").type)
        arrays = [_typed(columns[field.name], field.type) for field in self._schema]
        return arrow.RecordBatch.from_arrays(arrays, schema=self._schema)


def _run_of(messages: Sequence[Message]) -> OffsetRange:
    """Return the offset range of records of one partition."""
    topic, partition = partition_of(messages[0])
    first, end = messages[0].offset() or 0, (messages[-1].offset() or 0) + 1
    return OffsetRange(topic=topic, partition=partition, first=first, next_offset=end, records=len(messages))


def _timestamps(arrow: ModuleType, times: list[int], to_type: pa.DataType) -> pa.Array:
    """Convert milliseconds to Spark's microseconds; -1 ms for a record without a timestamp, as in the Java client."""
    found = arrow.array(times, arrow.int64())
    try:
        return found.cast(arrow.timestamp("ms", "UTC")).cast(to_type)
    except arrow.ArrowInvalid:
        # A producer may write any 64-bit number; it must not make a query fail each time it is started.
        held = [ms if abs(ms) <= MOST_MS else None for ms in times]
        return arrow.array(held, arrow.timestamp("ms", "UTC")).cast(to_type)


def _typed(column: pa.Array, of_type: pa.DataType) -> pa.Array:
    return column if column.type.equals(of_type) else column.cast(of_type)
