"""The batches that sinks and Spark receive: every column is present, and nulls and empty values are preserved."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

from consumer_membership.errors import ConfigurationError
from consumer_membership.installation import install_command
from consumer_membership.spark.batches import COLUMNS, after, record_batch, runs_of, schema, spark_schema, to_format
from consumer_membership.spark.context import BatchFormat
from tests.support.waiting import PROCESS_S

MOMENT_MS = 1_700_000_000_123
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
FORMATS = list(BatchFormat)


def message(
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    key: bytes | None = None,
    value: bytes | None = b"v",
    timestamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, MOMENT_MS),
    headers: list[tuple[str, str | bytes | None]] | None = None,
) -> Message:
    """A record as a consumer returns it."""
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        timestamp=timestamp,
        headers=headers,
    )


def arrow(messages: list[Message]) -> Any:
    """The Arrow batch of these records."""
    return to_format(messages, BatchFormat.ARROW)


def test_arrow_batch_has_every_column_of_each_record() -> None:
    """Each Arrow row has its record's key, value, topic, partition, offset, headers and timestamp in microseconds."""
    batch = arrow(
        [
            message(7, key=b"k", value=b"\x00\xff", headers=[("trace", b"1"), ("empty", None), ("trace", b"2")]),
            message(8, topic="refunds", partition=3),
        ]
    )
    assert batch.schema == schema()
    assert batch.to_pylist() == [
        {
            "key": b"k",
            "value": b"\x00\xff",
            "topic": "orders",
            "partition": 0,
            "offset": 7,
            "timestamp": MOMENT,
            "headers": [
                {"key": "trace", "value": b"1"},
                {"key": "empty", "value": None},
                {"key": "trace", "value": b"2"},
            ],
        },
        {
            "key": None,
            "value": b"v",
            "topic": "refunds",
            "partition": 3,
            "offset": 8,
            "timestamp": MOMENT,
            "headers": [],
        },
    ]


def test_tombstone_is_null_and_empty_value_is_empty() -> None:
    """A record without a value becomes a null; a record with an empty value becomes an empty value."""
    assert arrow([message(0, value=None), message(1, value=b"")])["value"].to_pylist() == [
        None,
        b"",
    ]


def test_record_without_headers_has_an_empty_list() -> None:
    """The headers column is never null, whether or not another record of the batch has headers."""
    assert arrow([message(0), message(1)])["headers"].to_pylist() == [[], []]
    mixed = arrow([message(0), message(1, headers=[("a", b"1")])])
    assert mixed["headers"].to_pylist() == [[], [{"key": "a", "value": b"1"}]]


def test_record_without_a_timestamp_has_a_null() -> None:
    """A record without a timestamp has a null timestamp, neither the epoch nor the millisecond before it."""
    batch = arrow([message(0, timestamp=(TIMESTAMP_NOT_AVAILABLE, -1)), message(1)])
    assert batch["timestamp"].to_pylist() == [None, MOMENT]


def test_timestamp_beyond_microseconds_becomes_null() -> None:
    """A timestamp that does not fit into microseconds becomes a null; the other records of the batch are unchanged."""
    batch = arrow([message(0, timestamp=(TIMESTAMP_CREATE_TIME, 2**62)), message(1)])
    assert batch["timestamp"].to_pylist() == [None, MOMENT]


def test_empty_batch_has_all_columns() -> None:
    """An empty list of records makes a batch with all columns and no rows."""
    batch = arrow([])
    assert (batch.num_rows, batch.schema) == (0, schema())


def test_messages_format_returns_the_same_messages() -> None:
    """The messages format passes the messages on without building a batch."""
    messages = [message(0)]
    assert to_format(messages, BatchFormat.MESSAGES) is messages


def test_pandas_batch_has_the_same_columns() -> None:
    """A pandas batch has the Arrow columns: values are bytes, offsets are integers, and timestamps have a time zone."""
    frame = to_format([message(7, key=b"k"), message(8, value=None)], BatchFormat.PANDAS)
    assert isinstance(frame, pd.DataFrame)
    assert tuple(frame.columns) == COLUMNS
    assert frame["key"].tolist() == [b"k", None]
    assert frame["value"].tolist() == [b"v", None]
    assert frame["offset"].dtype == "int64"
    assert frame["timestamp"].tolist() == [pd.Timestamp(MOMENT)] * 2


@pytest.mark.parametrize("step", [1, 2], ids=["whole", "with gaps"])
@pytest.mark.parametrize("length", [1, 300], ids=["short", "long"])
def test_record_batch_with_known_runs_equals_batch_without(length: int, step: int) -> None:
    """`record_batch` returns the same batch whether or not it receives the runs of its records."""
    places = [("orders", 1, 0), ("refunds", 0, 7), ("orders", 0, 0), ("orders", 1, 5000)]
    messages = [
        message(first + number * step, topic=topic, partition=partition)
        for topic, partition, first in places
        for number in range(length)
    ]
    runs = runs_of(messages, ["orders", "refunds"])
    assert len(runs) == len(places)
    assert record_batch(messages, runs=runs).equals(record_batch(messages))
    record_batch(messages, runs=runs).validate(full=True)


def test_record_batch_has_only_the_requested_columns() -> None:
    """`record_batch` builds only the requested columns, in the requested order."""
    batch = record_batch([message(7)], ("offset", "value"))
    assert batch.to_pylist() == [{"offset": 7, "value": b"v"}]
    assert batch.schema.names == ["offset", "value"]
    assert spark_schema(("offset", "value")) == "offset long, value binary"


def test_spark_schema_has_the_arrow_columns_in_order() -> None:
    """The DDL of `spark_schema` names the columns of the Arrow schema, in its order."""
    assert [column.split()[0] for column in spark_schema().split(", ")] == schema().names


def test_batch_beyond_2_gib_is_refused_before_it_is_copied() -> None:
    """Keys or values of more than 2 GiB raise an error with a remedy, instead of an array in two chunks."""
    heavy = b"x" * (1 << 26)
    with pytest.raises(ConfigurationError, match=r"values of this batch of 33 records have 2214592512 bytes.*fewer"):
        arrow([message(offset, value=heavy) for offset in range(33)])
    with pytest.raises(ConfigurationError, match="keys of this batch"):
        to_format([message(offset, key=heavy) for offset in range(33)], BatchFormat.PANDAS)


def test_batch_beyond_2_gib_that_sampling_misses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array in two chunks raises the same error. The test fakes the chunks, because filling them takes 13 s."""
    monkeypatch.setattr(pa, "array", lambda values, kind: pa.chunked_array([values[:1], values[1:]], kind))
    with pytest.raises(ConfigurationError, match="values of this batch of 2 records have 2 bytes"):
        arrow([message(0), message(1)])


def offsets(batch: list[Message] | pa.RecordBatch | pd.DataFrame) -> list[int | None]:
    """The offsets of a batch's records."""
    return [m.offset() for m in batch] if isinstance(batch, list) else batch["offset"].tolist()


@pytest.mark.parametrize("batch_format", FORMATS)
def test_records_below_their_partition_position_are_left_out(batch_format: BatchFormat) -> None:
    """Each partition is cut at its own position; a partition without a position keeps all records."""
    messages = [
        message(5),
        message(3, partition=1),
        message(6),
        message(1, topic="refunds"),
        message(4, partition=1),
    ]
    batch = to_format(messages, batch_format)
    rest = after(batch, batch_format, {("orders", 0): 6, ("orders", 1): 100, ("orders", 2): 9})
    assert offsets(rest) == [6, 1]
    assert type(rest) is type(batch)


@pytest.mark.parametrize("batch_format", FORMATS)
def test_batch_above_its_positions_is_returned_uncopied(batch_format: BatchFormat) -> None:
    """A batch without records below its positions is returned without a copy."""
    batch = to_format([message(5), message(6)], batch_format)
    assert after(batch, batch_format, {("orders", 0): 5}) is batch
    assert after(batch, batch_format, {}) is batch


@pytest.mark.parametrize("batch_format", FORMATS)
def test_batch_below_its_positions_is_empty(batch_format: BatchFormat) -> None:
    """A batch with all records below its positions becomes an empty batch."""
    batch = to_format([message(5), message(6)], batch_format)
    assert offsets(after(batch, batch_format, {("orders", 0): 7})) == []


@pytest.mark.parametrize(
    ("library", "batch_format"), [("pyarrow", "arrow"), ("pandas", "pandas"), ("pyarrow", "pandas")]
)
def test_missing_library_is_named_with_the_format_and_the_extra(library: str, batch_format: str) -> None:
    """Without pyarrow or pandas, a format that needs them raises an error with the extra to install.

    Messages still work.
    """
    script = f"""
import sys
sys.modules[{library!r}] = None
from confluent_kafka import Message
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.batches import BatchFormat, to_format
assert to_format([], BatchFormat.MESSAGES) == []
try:
    to_format([], BatchFormat({batch_format!r}))
except ConfigurationError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PROCESS_S)
    assert ran.stdout.startswith("batch_format=")
    assert f"needs {library}: {install_command('spark')}" in ran.stdout


@pytest.mark.slow
def test_import_of_batches_loads_no_optional_library() -> None:
    """A program that uses messages imports neither pyarrow nor pandas nor pyspark."""
    script = """
import sys
from consumer_membership.spark.batches import BatchFormat, to_format
to_format([], BatchFormat.MESSAGES)
print({"pyarrow", "pandas", "pyspark"} & sys.modules.keys())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=PROCESS_S)
    assert ran.stdout.strip() == "set()"
