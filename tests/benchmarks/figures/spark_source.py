"""Queries of Structured Streaming with `format("kafka-group")`: beside spark-sql-kafka, in one session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.figures.spark import Contest, contested

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Figure

NAME = "spark-source"

CONTESTS = (
    Contest(ours="kafka-group, mapInArrow", theirs="kafka, mapInArrow", kind="stream-arrow", factor=1.5),
    Contest(ours="kafka-group, Python UDF", theirs="kafka, Python UDF", kind="stream-udf", factor=1.5),
    Contest(ours="kafka-group, SQL", theirs="kafka, SQL", kind="stream-sql", factor=0.8),
    Contest(ours="kafka-group, batch SQL", theirs="kafka, batch SQL", kind="batch-sql", factor=0.8),
)


def run(bench: Bench) -> Figure:
    """Take the same topic in all ways in turns."""
    notes = (
        "a stream is one query with availableNow, a new checkpoint and foreachBatch, from start() to its end",
        "ours has a process of Python's to start for its source",
        "SQL: count(*) and sum(length(value)); the UDF is len(value)",
    )
    return contested(bench, NAME, CONTESTS, notes)
