"""The task of a bounded read, without Spark: it reads fixed ranges, returns the same rows each time, and ends."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from consumer_membership.errors import DrainError
from consumer_membership.spark import range_reader
from consumer_membership.spark.range_reader import TASK_CONFIG, RangeReader, ReadRange
from tests.support.kafka import create_topic, produce, unique

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumer_membership.devbroker import Broker

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def reader(
    bootstrap_servers: str, *shares: Sequence[ReadRange], columns: tuple[str, ...] = ("offset",), timeout_s: float = 30
) -> RangeReader:
    """The reader that the driver would send."""
    config = {**TASK_CONFIG, "bootstrap.servers": bootstrap_servers, "group.id": "tasks"}
    return RangeReader(config=config, shares=tuple(map(tuple, shares)), columns=columns, timeout_s=timeout_s)


def part(topic: str, first: int, end: int, partition: int = 0) -> ReadRange:
    """A range."""
    return ReadRange(topic=topic, partition=partition, first=first, end=end)


def offsets(made: RangeReader, share: Sequence[ReadRange]) -> list[int]:
    """The offsets that a task reads, in order."""
    return sorted(offset for batch in made.read(share) for offset in batch["offset"].to_pylist())


def test_range_reader_reads_exactly_its_range(kafka: Broker) -> None:
    """The reader returns neither earlier nor later records, each time it is called."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 5_000)
    made = reader(kafka.bootstrap_servers)
    for _ in range(2):
        assert offsets(made, [part(topic, 1_000, 3_500)]) == list(range(1_000, 3_500))


def test_each_partition_of_a_share_is_read_to_its_own_end(kafka: Broker) -> None:
    """A partition that has more records neither delays the others nor is cut short by them."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"), 3)
    produce(kafka.bootstrap_servers, topic, 9_000)
    share = [part(topic, 0, 10), part(topic, 5, 3_000, 1), part(topic, 2_999, 3_000, 2)]
    made = reader(kafka.bootstrap_servers, columns=("partition", "offset"))
    rows = [tuple(row.values()) for batch in made.read(share) for row in batch.to_pylist()]
    assert sorted(rows) == [(0, n) for n in range(10)] + [(1, n) for n in range(5, 3_000)] + [(2, 2_999)]


def test_range_beyond_the_log_raises_an_error_at_once(kafka: Broker) -> None:
    """A range beyond the log end, as in a recreated topic, raises an error instead of a wait for records."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 5)
    with pytest.raises(
        DrainError,
        match=rf"{topic}\[0\] from offset 0 to before 9 \(read up to 5\): .*starts at offset 0 and ends at offset 5",
    ):
        offsets(reader(kafka.bootstrap_servers, timeout_s=1000), [part(topic, 0, 9)])


def test_unreachable_broker_fails_the_task_after_its_timeout() -> None:
    """The error names the ranges, the timeout, and the last connection error."""
    made = reader("127.0.0.1:1", timeout_s=2.5)
    with pytest.raises(
        DrainError, match=r"t\[0\] from offset 0 to before 9 .*: no record arrived for 2.5 s: .*refused"
    ):
        offsets(made, [part("t", 0, 9)])


def test_heavy_records_make_small_batches(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first batch, batches are also bounded by the size of their records."""
    monkeypatch.setattr(range_reader, "READ_BATCH_BYTES", 100_000)
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, ((None, b"x" * 10_000) for _ in range(1_000)))
    sizes = [batch.num_rows for batch in reader(kafka.bootstrap_servers).read([part(topic, 0, 1_000)])]
    assert sum(sizes) == 1_000
    assert max(sizes[1:]) <= 10


def test_closed_generator_closes_the_consumer(kafka: Broker) -> None:
    """When Spark has enough rows or cancels the task, it closes the generator, which closes the consumer."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 5_000)
    rows: Any = reader(kafka.bootstrap_servers).read([part(topic, 0, 5_000)])
    next(rows)
    consumer = rows.gi_frame.f_locals["reading"]._consumer
    rows.close()
    with pytest.raises(RuntimeError, match="closed"):
        consumer.assignment()


def test_function_for_map_in_arrow_can_be_pickled(kafka: Broker) -> None:
    """The pickled function reads the shares whose numbers it receives."""
    topic = create_topic(kafka.bootstrap_servers, unique("topic"))
    produce(kafka.bootstrap_servers, topic, 10)
    sent = cloudpickle.dumps(reader(kafka.bootstrap_servers, [part(topic, 0, 4)], [part(topic, 4, 10)]).function())
    input_rows = [pa.RecordBatch.from_pydict({"id": [1]})]
    received = pickle.loads(sent)  # noqa: S301 - of this test's own making
    assert [batch["offset"].to_pylist() for batch in received(input_rows)] == [[4, 5, 6, 7, 8, 9]]
