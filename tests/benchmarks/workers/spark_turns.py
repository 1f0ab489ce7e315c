"""One Spark session that reads all records of a topic, in a different way for each order.

An order is a `Turn` as JSON without blanks. The event of its report is the turn's group, which is new for each turn.
The time is measured on Spark's driver, from the call to its result: it includes planning, jobs, joins, commits and
leaves.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.spark_session import session
from tests.benchmarks.workers.wiring import END, job_of, next_order, report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from confluent_kafka import Message
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, Row, SparkSession

    from consumer_membership.spark import SinkContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The session.

    Attributes:
        bootstrap: The broker.
        master: Spark's master.
        jars: The jars of spark-sql-kafka; none if only our ways are measured.
    """

    bootstrap: str
    master: str
    jars: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One order.

    Attributes:
        way: A key of `_WAYS`.
        topic: The topic to read from its beginning to its end.
        group: A new group for our ways; only a name for the other ways, which have no group.
        instances: The number of members, for ways that have members.
    """

    way: str
    topic: str
    group: str
    instances: int

    def order(self) -> str:
        """Return the argument for a worker."""
        return json.dumps(asdict(self), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class CountMessages:
    """A sink that counts messages one by one."""

    counted: Accumulator[int]

    def __call__(self, batch: list[Message], _: SinkContext) -> None:
        """Count."""
        self.counted.add(sum(1 for _ in batch))


@dataclass(frozen=True, slots=True)
class CountRows:
    """A sink that counts the rows of Arrow batches."""

    counted: Accumulator[int]

    def __call__(self, batch: pa.RecordBatch, _: SinkContext) -> None:
        """Count."""
        self.counted.add(batch.num_rows)


def _our_messages(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    return _drained(spark, bootstrap, turn, CountMessages, "messages")


def _our_arrow(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    return _drained(spark, bootstrap, turn, CountRows, "arrow")


def _our_arrow_at_once(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    return _drained(spark, bootstrap, turn, CountRows, "arrow", assign_at_once=True)


def _drained(
    spark: SparkSession,
    bootstrap: str,
    turn: Turn,
    sink: Callable[[Accumulator[int]], CountMessages | CountRows],
    batch_format: str,
    *,
    assign_at_once: bool = False,
) -> int:
    from consumer_membership.spark import drain  # noqa: PLC0415 - after the start of the session

    counted = spark.sparkContext.accumulator(0)
    result = drain(
        spark,
        {"bootstrap.servers": bootstrap},
        [turn.topic],
        turn.group,
        sink(counted),
        turn.instances,
        show_progress=False,
        assign_at_once=assign_at_once,
        batch_format=batch_format,
    )
    if result.records != counted.value:
        raise ValueError(f"the sinks counted {counted.value} records, and the drain {result.records}")
    return counted.value


def _our_sql(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    from consumer_membership.spark import read_group  # noqa: PLC0415 - after the start of the session

    config = {"bootstrap.servers": bootstrap}
    with read_group(spark, config, [turn.topic], turn.group, columns=["value"]) as records:
        return _aggregated(records)


def _their_messages(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    counted = spark.sparkContext.accumulator(0)

    def count(rows: Iterable[Row]) -> None:
        counted.add(sum(1 for _ in rows))

    _loaded(spark, bootstrap, turn).foreachPartition(count)
    return counted.value


def _their_arrow(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    return _counted_in_arrow(_loaded(spark, bootstrap, turn))


def _counted_in_arrow(records: DataFrame) -> int:
    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415 - in the task

        yield pa.RecordBatch.from_pydict({"records": [sum(batch.num_rows for batch in batches)]})

    counts = records.mapInArrow(count, "records long").collect()
    return sum(row.records for row in counts)


def _their_sql(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    return _aggregated(_loaded(spark, bootstrap, turn))


def _loaded(spark: SparkSession, bootstrap: str, turn: Turn) -> DataFrame:
    return spark.read.format("kafka").options(**_options(bootstrap, turn)).load()


def _options(bootstrap: str, turn: Turn) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": turn.topic, "startingOffsets": "earliest"}


def _our_batch_sql(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
    return _aggregated(_registered(spark).read.format("kafka-group").options(**_options(bootstrap, turn)).load())


def _registered(spark: SparkSession) -> SparkSession:
    """Register our source at the session, and return the session."""
    from consumer_membership.spark import register  # noqa: PLC0415 - after the start of the session

    register(spark)
    return spark


def _streamed(source: str, count: Callable[[DataFrame], int]) -> Callable[[SparkSession, str, Turn], int]:
    """Return a way that runs a query of this source and counts its batches with this function."""

    def way(spark: SparkSession, bootstrap: str, turn: Turn) -> int:
        counts: list[int] = []
        more = {"group.id": turn.group} if source == "kafka-group" else {}
        reading = _registered(spark).readStream.format(source).options(**_options(bootstrap, turn), **more)
        with tempfile.TemporaryDirectory() as folder:
            writing = reading.load().writeStream.foreachBatch(lambda batch, _: counts.append(count(batch)))
            query = writing.option("checkpointLocation", folder).trigger(availableNow=True).start()
            query.awaitTermination()
        return sum(counts)

    return way


def _counted_by_udf(records: DataFrame) -> int:
    from pyspark.sql.functions import udf  # noqa: PLC0415 - an extra, and slow to import

    length = udf(len, "int")
    row = records.select(length("value").alias("bytes")).selectExpr("count(bytes) AS records").collect()[0]
    return int(row.records)


def _aggregated(records: DataFrame) -> int:
    """Return the number of records; it also sums up their sizes, so that the values have to be read."""
    row = records.selectExpr("count(*) AS records", "sum(length(value)) AS bytes").collect()[0]
    if not row.bytes:
        raise ValueError("the values are empty")
    return int(row.records)


_WAYS: dict[str, Callable[[SparkSession, str, Turn], int]] = {
    "our-messages": _our_messages,
    "their-messages": _their_messages,
    "our-arrow": _our_arrow,
    "their-arrow": _their_arrow,
    "our-arrow-at-once": _our_arrow_at_once,
    "their-arrow-at-once": _their_arrow,
    "our-sql": _our_sql,
    "their-sql": _their_sql,
    "our-batch-sql": _our_batch_sql,
    "their-batch-sql": _their_sql,
    **{
        f"{side}-stream-{kind}": _streamed(source, count)
        for side, source in (("our", "kafka-group"), ("their", "kafka"))
        for kind, count in (("arrow", _counted_in_arrow), ("udf", _counted_by_udf), ("sql", _aggregated))
    },
}


def main() -> None:
    """Run turns until the order to end."""
    job = job_of(Job)
    spark = session(job.master, job.jars)
    report("ready", pyspark=spark.version)
    while (order := next_order(None)) != END:
        turn = Turn(**json.loads(order or ""))
        began = time.monotonic()
        records = _WAYS[turn.way](spark, job.bootstrap, turn)
        report(turn.group, records=records, wall_s=time.monotonic() - began)
    spark.stop()


if __name__ == "__main__":
    main()
