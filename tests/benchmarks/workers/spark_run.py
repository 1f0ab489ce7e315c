"""One Spark application that runs members with a fenced sink until it is stopped; every attempt leaves a mark."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.benchmarks.workers.spark_marks import Copied, Marked, number_of
from tests.benchmarks.workers.spark_session import session
from tests.benchmarks.workers.wiring import END, job_of, next_order, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from consumer_membership.spark import SinkContext

PARQUET, POSTGRES, KAFKA = "Parquet", "PostgreSQL", "Kafka"

EXECUTOR_FLAGS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVM flags for executors that are killed soon: the cold start of Spark takes about half of the processor time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The application.

    Attributes:
        bootstrap: The broker.
        master: Spark's master.
        topic: The topic to consume.
        group: The consumer group.
        instances: The number of members.
        sink: `PARQUET`, `POSTGRES` or `KAFKA`.
        place: The folder, the table or the topic of the sink.
        conninfo: The connection string of PostgreSQL.
        marks: The folder for the marks of the attempts.
    """

    bootstrap: str
    master: str
    topic: str
    group: str
    instances: int
    sink: str
    place: str
    conninfo: str
    marks: str


def _sink(job: Job) -> Callable[[list[Message], SinkContext], None]:
    from consumer_membership.spark import KafkaSink, ParquetSink, PostgresSink  # noqa: PLC0415 - an extra

    if job.sink == PARQUET:
        return ParquetSink(job.place)
    if job.sink == KAFKA:
        return KafkaSink({"bootstrap.servers": job.bootstrap}, Copied(topic=job.place))
    return PostgresSink.rows(job.conninfo, job.place, ["number"], number_of)


def main() -> None:
    """Run the members until the order to end."""
    job = job_of(Job)
    os.environ["PYSPARK_SUBMIT_ARGS"] = f'--conf "spark.executor.extraJavaOptions={EXECUTOR_FLAGS}" pyspark-shell'
    spark = session(job.master)
    from consumer_membership.spark import run  # noqa: PLC0415 - an extra

    handle = run(
        spark,
        {"bootstrap.servers": job.bootstrap},
        [job.topic],
        job.group,
        Marked(_sink(job), job.marks),
        job.instances,
        show_progress=False,
    )
    report("running", pyspark=spark.version)
    while next_order(None) != END:
        pass
    result = handle.stop()
    report("stopped", records=result.records if result else None)
    spark.stop()


if __name__ == "__main__":
    main()
