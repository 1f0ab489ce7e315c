"""Structured Streaming queries with `format("kafka-group")`, compared with spark-sql-kafka in one session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.benchmarks.figures.spark import Comparison, compared

if TYPE_CHECKING:
    from tests.benchmarks.bench import Bench, Figure

NAME = "spark-source"

COMPARISONS = (
    Comparison(ours="kafka-group, mapInArrow", theirs="kafka, mapInArrow", kind="stream-arrow", factor=1.5),
    Comparison(ours="kafka-group, Python UDF", theirs="kafka, Python UDF", kind="stream-udf", factor=1.5),
    Comparison(ours="kafka-group, SQL", theirs="kafka, SQL", kind="stream-sql", factor=0.8),
    Comparison(ours="kafka-group, batch SQL", theirs="kafka, batch SQL", kind="batch-sql", factor=0.8),
)


def run(bench: Bench) -> Figure:
    """Read one topic in all ways in turns."""
    notes = (
        "a stream is one query with availableNow, a new checkpoint and foreachBatch, from start() to its end",
        "ours also starts a Python process for its source",
        "SQL: count(*) and sum(length(value)); the UDF is len(value)",
    )
    return compared(bench, NAME, COMPARISONS, notes)
