"""What a sink and Spark get for records: every column, and nothing lost where a record has nothing to show."""

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
from consumer_membership.spark.batches import COLUMNS, after, formed, record_batch, runs_of, schema, spark_schema
from consumer_membership.spark.context import BatchFormat

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
    """A record as a consumer gets it."""
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
    return formed(messages, BatchFormat.ARROW)


def test_arrow_batch_has_every_column_of_each_record() -> None:
    """Key, value, topic, partition, offset, timestamp in microseconds and headers stand in the record's row."""
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


def test_tombstone_and_empty_value_differ() -> None:
    """A record without a value is null; an empty value is none the less a value."""
    assert arrow([message(0, value=None), message(1, value=b"")])["value"].to_pylist() == [
        None,
        b"",
    ]


def test_record_without_headers_has_an_empty_list() -> None:
    """Headers never are null, whether or not another record of the batch has some."""
    assert arrow([message(0), message(1)])["headers"].to_pylist() == [[], []]
    mixed = arrow([message(0), message(1, headers=[("a", b"1")])])
    assert mixed["headers"].to_pylist() == [[], [{"key": "a", "value": b"1"}]]


def test_record_without_a_timestamp_has_a_null() -> None:
    """What has no timestamp has not that of 1970, nor of the millisecond before it."""
    batch = arrow([message(0, timestamp=(TIMESTAMP_NOT_AVAILABLE, -1)), message(1)])
    assert batch["timestamp"].to_pylist() == [None, MOMENT]


def test_timestamp_beyond_microseconds_does_not_fail_its_batch() -> None:
    """A producer may write any 64 bits; such a record is handed on with a null, its neighbours as they are."""
    batch = arrow([message(0, timestamp=(TIMESTAMP_CREATE_TIME, 2**62)), message(1)])
    assert batch["timestamp"].to_pylist() == [None, MOMENT]


def test_empty_batch_has_the_columns() -> None:
    """No records make a batch of no rows, not an error."""
    batch = arrow([])
    assert (batch.num_rows, batch.schema) == (0, schema())


def test_messages_are_handed_on_as_they_are() -> None:
    """Whoever wants messages pays nothing for batches."""
    messages = [message(0)]
    assert formed(messages, BatchFormat.MESSAGES) is messages


def test_pandas_batch_has_the_same_columns() -> None:
    """Bytes stay bytes, partition and offset integers, timestamps aware of their zone."""
    frame = formed([message(7, key=b"k"), message(8, value=None)], BatchFormat.PANDAS)
    assert isinstance(frame, pd.DataFrame)
    assert tuple(frame.columns) == COLUMNS
    assert frame["key"].tolist() == [b"k", None]
    assert frame["value"].tolist() == [b"v", None]
    assert frame["offset"].dtype == "int64"
    assert frame["timestamp"].tolist() == [pd.Timestamp(MOMENT)] * 2


@pytest.mark.parametrize("step", [1, 2], ids=["whole", "with gaps"])
@pytest.mark.parametrize("length", [1, 300], ids=["short", "long"])
def test_batch_is_the_same_whether_runs_are_known_or_not(length: int, step: int) -> None:
    """What a run says of its records is not read from each of them, where that is quicker."""
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


def test_only_the_columns_asked_for_are_made() -> None:
    """A batch may have some of the columns, in the order of whoever asked."""
    batch = record_batch([message(7)], ("offset", "value"))
    assert batch.to_pylist() == [{"offset": 7, "value": b"v"}]
    assert batch.schema.names == ["offset", "value"]
    assert spark_schema(("offset", "value")) == "offset long, value binary"


def test_spark_is_told_the_same_columns() -> None:
    """The DDL names the columns of the Arrow schema, in its order."""
    assert [column.split()[0] for column in spark_schema().split(", ")] == schema().names


def test_more_than_arrow_holds_is_refused_before_it_is_copied() -> None:
    """Keys or values of more than 2 GiB are an error that says what to do, not an array in two parts."""
    heavy = b"x" * (1 << 26)
    with pytest.raises(ConfigurationError, match=r"values of this batch of 33 records weigh 2214592512 bytes.*fewer"):
        arrow([message(offset, value=heavy) for offset in range(33)])
    with pytest.raises(ConfigurationError, match="keys of this batch"):
        formed([message(offset, key=heavy) for offset in range(33)], BatchFormat.PANDAS)


def test_heavy_records_between_those_that_are_weighed_are_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only a look at all records would have shown it, Arrow's two parts do; in small: to fill them takes 13 s."""
    monkeypatch.setattr(pa, "array", lambda values, kind: pa.chunked_array([values[:1], values[1:]], kind))
    with pytest.raises(ConfigurationError, match="values of this batch of 2 records weigh 2 bytes"):
        arrow([message(0), message(1)])


def offsets(batch: list[Message] | pa.RecordBatch | pd.DataFrame) -> list[int | None]:
    """The records that a batch has."""
    return [m.offset() for m in batch] if isinstance(batch, list) else batch["offset"].tolist()


@pytest.mark.parametrize("batch_format", FORMATS)
def test_records_below_a_position_are_left_out(batch_format: BatchFormat) -> None:
    """Each partition has its own position; one without keeps everything, of another topic too."""
    messages = [
        message(5),
        message(3, partition=1),
        message(6),
        message(1, topic="refunds"),
        message(4, partition=1),
    ]
    batch = formed(messages, batch_format)
    rest = after(batch, batch_format, {("orders", 0): 6, ("orders", 1): 100, ("orders", 2): 9})
    assert offsets(rest) == [6, 1]
    assert type(rest) is type(batch)


@pytest.mark.parametrize("batch_format", FORMATS)
def test_batch_above_its_positions_is_handed_back_itself(batch_format: BatchFormat) -> None:
    """Nothing is copied where nothing is left out."""
    batch = formed([message(5), message(6)], batch_format)
    assert after(batch, batch_format, {("orders", 0): 5}) is batch
    assert after(batch, batch_format, {}) is batch


@pytest.mark.parametrize("batch_format", FORMATS)
def test_batch_below_its_positions_is_empty(batch_format: BatchFormat) -> None:
    """What was all written before leaves a batch of no records."""
    batch = formed([message(5), message(6)], batch_format)
    assert offsets(after(batch, batch_format, {("orders", 0): 7})) == []


@pytest.mark.parametrize(
    ("library", "batch_format"), [("pyarrow", "arrow"), ("pandas", "pandas"), ("pyarrow", "pandas")]
)
def test_missing_library_is_named_with_the_format_and_the_extra(library: str, batch_format: str) -> None:
    """Without pyarrow or pandas messages work; the formats that need them say which extra brings them."""
    script = f"""
import sys
sys.modules[{library!r}] = None
from confluent_kafka import Message
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.batches import BatchFormat, formed
assert formed([], BatchFormat.MESSAGES) == []
try:
    formed([], BatchFormat({batch_format!r}))
except ConfigurationError as error:
    print(error)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.startswith("batch_format=")
    assert f"needs {library}: {install_command('spark')}" in ran.stdout


@pytest.mark.slow
def test_libraries_are_not_imported_before_they_are_needed() -> None:
    """A program that takes messages does not pay for pyarrow, pandas or pyspark."""
    script = """
import sys
from consumer_membership.spark.batches import BatchFormat, formed
formed([], BatchFormat.MESSAGES)
print({"pyarrow", "pandas", "pyspark"} & sys.modules.keys())
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "set()"
