"""What Spark calls: the source and its readers, in pyspark's classes.

Spark makes them in several processes (a planner, one that stays with the query, the tasks' workers) and sends them from
one to the next; a connection is made only where offsets are asked for, and nothing of it travels. Each of these
processes imports this module, so what only one of them needs is imported there.
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
from consumer_membership.spark.batches import without_collections
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

try:  # from pyspark 4.2 on, where it is what tells Spark that a query which ends with its backlog may have many batches
    from pyspark.sql.streaming.datasource import (  # type: ignore[import-not-found]  # the oldest release is checked
        SupportsTriggerAvailableNow as _AvailableNow,
    )
except ImportError:
    _AvailableNow = object


class KafkaGroupSource(DataSource):
    """`format("kafka-group")`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return NAME

    def schema(self) -> StructType:
        """spark-sql-kafka's columns; the first question of all, so what no read can have is refused at `load`."""
        options = read_options(self.options, is_streaming=None)
        _try_client(options)
        return source_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        options = read_options(self.options, is_streaming=False)
        _refuse_other(schema, options)
        return KafkaGroupReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        return KafkaGroupStreamReader(dict(self.options), schema)


class RangesPartition(InputPartition):
    """What one task reads."""

    def __init__(self, share: TaskRanges) -> None:
        super().__init__(share)
        self.share = share


class _Rows:
    """What a task needs: how it connects, and which rows Spark waits for."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._config = task_config(options.config, options.group or NAME)
        self._schema = schema
        self._timeout_s = options.timeout_s
        self._may_lose = not options.fail_on_data_loss

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task; raises DrainError where offsets are gone and must not be."""
        share = cast("RangesPartition", partition).share
        rows = RowMaker(self._schema, share)
        on_loss = _tell_of_loss if self._may_lose else None
        reading = RangeReading(self._config, share, self._timeout_s, on_loss)
        with closing(reading), without_collections():
            for messages in reading.messages():
                yield rows.batch(messages)


class KafkaGroupReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._rows = _Rows(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        """What each task reads: settled once, so that an attempt that is repeated reads the same."""
        from consumer_membership.spark.source.batch import batch_tasks  # one planner needs it

        return [RangesPartition(share) for share in batch_tasks(self._options)] or [RangesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return self._rows.read(partition)


class KafkaGroupStreamReader(DataSourceStreamReader, _AvailableNow):  # type: ignore[misc]  # either of them
    """A stream: in the process that stays with the query it is a member of the group, from the first question on."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        # What is wrong is raised by the first question: raised here, pyspark 4.3 would hide it behind its own error.
        self._given = given
        self._schema = schema
        self._read: SourceOptions | None = None
        self._stream: GroupStream | None = None
        self._watchdog: Watchdog | None = None

    def __getstate__(self) -> dict[str, Any]:
        """To the tasks only the configuration travels."""
        return {**self.__dict__, "_stream": None, "_watchdog": None}

    def getDefaultReadLimit(self) -> Any:  # noqa: ANN401 - Spark's name, and its class from 4.2 on
        """How much a batch has, in Spark's words (from pyspark 4.2)."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows  # of pyspark 4.2

        most = self._options().max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def initialOffset(self) -> JsonObject:
        """Where a query without a checkpoint begins."""
        return self._member().initial()

    def latestOffset(self, start: JsonObject | None = None, limit: Any = None) -> JsonObject:  # noqa: ANN401 - Spark's name
        """Where the next batch ends; before pyspark 4.2 Spark says neither its beginning nor a limit."""
        if limit is None:
            return self._member().latest(None, self._options().max_offsets)
        return self._member().latest(start, getattr(limit, "max_rows", None))

    def prepareForTriggerAvailableNow(self) -> None:
        """The present ends are the query's."""
        self._member().prepare_for_available_now()

    def reportLatestOffset(self) -> JsonObject | None:
        """For the query's progress (from pyspark 4.2)."""
        return self._member().report_latest()

    def partitions(self, start: JsonObject, end: JsonObject) -> Sequence[InputPartition]:
        """What each task of a batch reads."""
        return [RangesPartition(share) for share in self._member().plan(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return _Rows(self._options(), self._schema).read(partition)

    def commit(self, end: JsonObject) -> None:
        """Everything before this is done."""
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
            from consumer_membership.spark.source.stream import GroupStream  # one process needs it

            options = self._options()
            _refuse_other(self._schema, options)
            # A query that ends has its process terminated; `stop` is called if that is an exception.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _end)
            self._watchdog = self._watchdog or Watchdog(_killed(options))
            self._stream = GroupStream(options)
        return self._stream


def _try_client(options: SourceOptions) -> None:
    """Refuse what librdkafka does: keys that it does not know, files of certificates that are not there."""
    try:
        LibrdkafkaConsumer(task_config(options.config, options.group or NAME)).close()
    except KafkaException as refused:
        raise ConfigurationError("kafka.*", tuple(options.config), refused.args[0].str()) from None


def _refuse_other(schema: StructType, options: SourceOptions) -> None:
    """A schema that was asked for has to be the source's own: its columns are what Kafka has."""
    ours = source_schema(include_headers=options.include_headers)
    if schema.simpleString() != ours.simpleString():
        remedy = f"the columns are {ours.simpleString()}; leave .schema() out, and select or cast what is read"
        raise ConfigurationError("schema", schema.simpleString(), remedy)


def _killed(options: SourceOptions) -> str:
    """What Spark is answered if this process is killed."""
    return (
        f"group {options.group!r}: the process of its source {NAME} (pid {os.getpid()} on {socket.gethostname()}) was "
        "killed or crashed, for example because the system ran out of memory; see the logs of the driver and of its "
        "system, and start the query again: it goes on from its checkpoint"
    )


def _end(_signal: int, _frame: object) -> NoReturn:
    # Spark terminates it a second time at once, which must not cut the end short.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit


def _tell_of_loss(what: str) -> None:
    _log.warning("Data is lost: %s", what)
