"""Records as spark-sql-kafka shows them: its columns, its types, and what it makes of a record that lacks something."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from inspect import signature
from operator import itemgetter
from types import ModuleType
from typing import TYPE_CHECKING

from confluent_kafka import Message

from consumer_membership.spark.arguments import required
from consumer_membership.spark.batches import MOST_MS, place_of, record_batch, runs_of
from consumer_membership.spark.context import OffsetRange
from consumer_membership.spark.range_reader import ReadRange

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql.types import StructType

#: Made as every batch is.
_PLAIN = ("key", "value", "topic", "partition", "offset")
_KIND: Callable[[tuple[int, int]], int] = itemgetter(0)
_TIME: Callable[[tuple[int, int]], int] = itemgetter(1)


def source_schema(*, include_headers: bool) -> StructType:
    """The columns."""
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
    """Makes Arrow batches of messages, of the schema that Spark declares for these columns.

    `share` is what the messages are of.
    """

    def __init__(self, schema: StructType, share: Sequence[ReadRange]) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        # The newest release asks for the zone, and holds what a task gives against the very same schema.
        zone = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
        self._schema: pa.Schema = to_arrow_schema(schema, **zone)  # type: ignore[arg-type]  # not in the oldest
        self._has_headers = "headers" in self._schema.names
        self._topics = sorted({each.topic for each in share})
        self._is_one_partition = len(share) == 1

    def batch(self, messages: list[Message]) -> pa.RecordBatch:
        """These records."""
        arrow = required("pyarrow", "format", "kafka-group")
        # Asking each record for something is what costs: what the records of a partition have in common is not asked.
        runs = [_run_of(messages)] if self._is_one_partition else runs_of(messages, self._topics)
        plain = record_batch(messages, _PLAIN, runs=runs)
        columns = dict(zip(_PLAIN, plain.columns, strict=True))
        stamps = list(map(Message.timestamp, messages))
        columns["timestamp"] = _timestamps(arrow, list(map(_TIME, stamps)), self._schema.field("timestamp").type)
        # 0: the producer's clock, 1: the broker's; -1: none. librdkafka counts from 0, which is none.
        kinds = arrow.array(list(map(_KIND, stamps)), arrow.int32())
        one = arrow.scalar(1, arrow.int32())
        columns["timestampType"] = importlib.import_module("pyarrow.compute").subtract(kinds, one)
        if self._has_headers:
            headers = [found or None for found in map(Message.headers, messages)]
            columns["headers"] = arrow.array(headers, self._schema.field("headers").type)
        arrays = [_typed(columns[field.name], field.type) for field in self._schema]
        return arrow.RecordBatch.from_arrays(arrays, schema=self._schema)


def _run_of(messages: Sequence[Message]) -> OffsetRange:
    """Records of one partition as what they are of."""
    topic, partition = place_of(messages[0])
    first, end = messages[0].offset() or 0, (messages[-1].offset() or 0) + 1
    return OffsetRange(topic=topic, partition=partition, first=first, next_offset=end, records=len(messages))


def _timestamps(arrow: ModuleType, times: list[int], to_type: pa.DataType) -> pa.Array:
    """Milliseconds as Spark's microseconds; -1 ms where a record has none, as Java's client says."""
    found = arrow.array(times, arrow.int64())
    try:
        return found.cast(arrow.timestamp("ms", "UTC")).cast(to_type)
    except arrow.ArrowInvalid:
        # A producer may write any number of 64 bits; no query may fail for that, again and again.
        held = [ms if abs(ms) <= MOST_MS else None for ms in times]
        return arrow.array(held, arrow.timestamp("ms", "UTC")).cast(to_type)


def _typed(column: pa.Array, of_type: pa.DataType) -> pa.Array:
    return column if column.type.equals(of_type) else column.cast(of_type)
