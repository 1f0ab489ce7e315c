"""The source and its readers as subclasses of pyspark's classes, which Spark calls.

Spark creates them in several processes (a planner, the process that stays with the query, the tasks' workers) and sends
them from one to the next. Only the process that requests offsets opens a connection, which is never pickled. Each of
these processes imports this module, so modules that only one of them needs are imported where they are used.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NoReturn, cast

from confluent_kafka import KafkaException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from consumer_membership.errors import ConfigurationError
from consumer_membership.librdkafka import LibrdkafkaConsumer
from consumer_membership.spark.batches import without_garbage_collection
from consumer_membership.spark.range_reader import RangeReading, task_config
from consumer_membership.spark.source.offsets import JsonObject
from consumer_membership.spark.source.options import SourceOptions, read_options
from consumer_membership.spark.source.ranges import TaskRanges
from consumer_membership.spark.source.rows import RowMaker, source_schema
from consumer_membership.spark.source.watchdog import Watchdog

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # ships no types
    from pyspark.sql.types import StructType

    from consumer_membership.spark.source.stream import GroupStream

_log = logging.getLogger("consumer_membership.spark.source")

NAME = "kafka-group"

try:  # from pyspark 4.2 on; with this class, a query with availableNow may have several batches
    from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found]  # the oldest release is checked
        SupportsTriggerAvailableNow as _AvailableNow,
    )
except ImportError:
    _AvailableNow = object


class KafkaGroupSource(DataSource):
    """`format("kafka-group")`."""

    @classmethod
    def name(cls) -> str:
        """Return the argument of `format`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of spark-sql-kafka; Spark calls this first, so wrong options raise an error at `load`."""
        options = read_options(self.options, is_streaming=None)
        _try_client(options)
        return source_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for `spark.read`."""
        options = read_options(self.options, is_streaming=False)
        _refuse_other(schema, options)
        return KafkaGroupReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for `spark.readStream`."""
        return KafkaGroupStreamReader(dict(self.options), schema)


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, share: TaskRanges) -> None:
        super().__init__(share)
        self.share = share


class _Rows:
    """The reading of a task: its configuration, and the schema of its rows."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._config = task_config(options.config, options.group or NAME)
        self._schema = schema
        self._timeout_s = options.timeout_s
        self._may_lose = not options.fail_on_data_loss

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task; raise DrainError if offsets no longer exist and `failOnDataLoss` is true."""
        share = cast("RangesPartition", partition).share
        rows = RowMaker(self._schema, share)
        on_loss = _log_loss if self._may_lose else None
        reading = RangeReading(self._config, share, self._timeout_s, on_loss)
        with closing(reading), without_garbage_collection():
            for messages in reading.messages():
                yield rows.batch(messages)


class KafkaGroupReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._rows = _Rows(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the ranges of each task, determined once, so that a repeated attempt reads the same offsets."""
        from consumer_membership.spark.source.batch import batch_tasks  # only one planner needs it

        return [RangesPartition(share) for share in batch_tasks(self._options)] or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return self._rows.read(partition)


class KafkaGroupStreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]  # either of them
    """A stream: in the process that stays with the query, it is a member of the group from the first request on."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        # Errors are raised by the first request: if they were raised here, pyspark 4.3 would hide them.
        self._given = given
        self._schema = schema
        self._read: SourceOptions | None = None
        self._stream: GroupStream | None = None
        self._watchdog: Watchdog | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only the configuration for the tasks."""
        return {**self.__dict__, "_stream": None, "_watchdog": None}

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401 - Spark's name, and its class from 4.2 on
        """Return the limit of a batch (from pyspark 4.2)."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # since pyspark 4.2

        most = self._options().max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> JsonObject:
        """Return the start of a query without a checkpoint."""
        return self._member().initial()

    def latestOffset(self, start: JsonObject | None = None, limit: Any = None) -> JsonObject:  # noqa: ANN401 - Spark's name
        """Return the end of the next batch; before pyspark 4.2, Spark passes neither its start nor a limit."""
        if limit is None:
            return self._member().latest(None, self._options().max_offsets)
        return self._member().latest(start, getattr(limit, "max_rows", None))

    def prepareForTriggerAvailableNow(self) -> None:
        """Use the present ends as the ends of the query."""
        self._member().prepare_for_available_now()

    def reportLatestOffset(self) -> JsonObject | None:
        """Return the ends of the partitions for the query's progress (from pyspark 4.2)."""
        return self._member().report_latest()

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        """Return the ranges of each task of a batch."""
        return [RangesPartition(share) for share in self._member().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return _Rows(self._options(), self._schema).read(partition)

    def commit(self, end: JsonObject) -> None:
        """Commit the end of a finished batch."""
        self._member().commit(end)

    def stop(self) -> None:
        """Leave the group."""
        if self._stream is not None:
            self._stream.close()
        if self._watchdog is not None:
            self._watchdog.close()

    def _options(self) -> SourceOptions:
        self._read = self._read or read_options(self._given, is_streaming=True)
        return self._read

    def _member(self) -> GroupStream:
        if self._stream is None:
            from consumer_membership.spark.source.stream import GroupStream  # only one process needs it

            options = self._options()
            _refuse_other(self._schema, options)
            # At the end of a query, Spark terminates this process; `stop` is called if SIGTERM raises an exception.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _end)
            self._watchdog = self._watchdog or Watchdog(_killed(options))
            self._stream = GroupStream(options)
        return self._stream


def _try_client(options: SourceOptions) -> None:
    """Raise ConfigurationError for librdkafka's errors, such as unknown keys or missing certificate files."""
    try:
        LibrdkafkaConsumer(task_config(options.config, options.group or NAME)).close()
    except KafkaException as refused:
        raise ConfigurationError("kafka.*", tuple(options.config), refused.args[0].str()) from None


def _refuse_other(schema: StructType, options: SourceOptions) -> None:
    """Raise ConfigurationError for another schema than the source's, whose columns are those of Kafka."""
    ours = source_schema(include_headers=options.include_headers)
    if schema.simpleString() != ours.simpleString():
        remedy = f"the columns are {ours.simpleString()}; leave .schema() out, and select or cast columns after load()"
        raise ConfigurationError("schema", schema.simpleString(), remedy)


def _killed(options: SourceOptions) -> str:
    """Return the error that Spark receives if this process is killed."""
    return (
        f"group {options.group!r}: the process of its source {NAME} (pid {os.getpid()} on {socket.gethostname()}) was "
        "killed or crashed, for example because the system ran out of memory; check the logs of the driver and of its "
        "host, and start the query again: it continues from its checkpoint"
    )


def _end(_signal: int, _frame: object) -> NoReturn:
    # Spark sends a second SIGTERM at once, which must not interrupt `stop`.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit


def _log_loss(what: str) -> None:
    _log.warning("Data is lost: %s", what)
