"""Drains of partitions from whose logs the log cleaner has removed records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from consumer_membership.admin import GroupAdmin
from consumer_membership.spark import DrainResult, drain
from consumer_membership.types import OffsetAndMetadata
from tests.spark.recorders import Recorder
from tests.support.compaction import (
    EAGER_CLEANER,
    create_compacted_topic,
    offset_since,
    offsets_left,
    produce_segments,
    produce_transactions,
)
from tests.support.kafka import unique
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GAPS, NO_TAIL, NOTHING = range(3)


def a_compacted_topic(bootstrap: str) -> str:
    """A topic with three compacted partitions.

    GAPS: of the offsets 0 to 3, only 1 and 3 remain. NO_TAIL: of 0 to 2, only 0 remains. NOTHING: a committed record at
    0 and its transaction marker at 1 are both gone, without an empty batch in their place.
    """
    topic = create_compacted_topic(bootstrap, unique("topic"), 3)
    now_ms = time.time_ns() // 1_000_000
    produce_segments(bootstrap, topic, GAPS, [["a", "b", "a"], ["a"], ["c"]], now_ms)
    produce_segments(bootstrap, topic, NO_TAIL, [["b", "a", "a"], ["a"], ["c"]], now_ms)
    produce_transactions(bootstrap, topic, NOTHING, "a", [now_ms - 10_000, now_ms + 20_000])
    next_ms = produce_segments(bootstrap, topic, NOTHING, [["n"], ["n"]], now_ms + 60_000)

    def is_without_marker() -> bool:
        # The cleaner removes a marker in its second pass at the earliest, and it cleans only logs with new records.
        nonlocal next_ms
        next_ms = produce_segments(bootstrap, topic, NOTHING, [["n"]], next_ms)
        return offset_since(bootstrap, topic, NOTHING, now_ms - 10_000) == 2

    wait_until(is_without_marker, "the compaction")
    wait_until(lambda: offsets_left(bootstrap, topic, GAPS) == [1, 3, 4], "the compaction")
    wait_until(lambda: offsets_left(bootstrap, topic, NO_TAIL) == [0, 3, 4], "the compaction")
    # These remain: the second transaction's record, the last but one, and the last, whose segment is never cleaned.
    wait_until(lambda: len(offsets_left(bootstrap, topic, NOTHING)) == 3, "the compaction")
    return topic


def account(result: DrainResult) -> list[tuple[int, int, int, int]]:
    """The records drained from each partition: first offset, end offset, number of records."""
    return [(one.partition, one.first, one.next_offset, one.records) for one in result.partitions]


def test_drain_reaches_ends_behind_compacted_records(
    kafka_broker: BrokerFactory, spark: SparkSession, tmp_path: Path
) -> None:
    """A drain reaches ends behind compacted records and counts existing records; the next drain continues there."""
    bootstrap = kafka_broker(properties=EAGER_CLEANER).bootstrap_servers
    topic, group = a_compacted_topic(bootstrap), unique("group")
    (_, last_but_one, last) = offsets_left(bootstrap, topic, NOTHING)
    config, recorder = {"bootstrap.servers": bootstrap}, Recorder(tmp_path)
    ends = {(topic, GAPS): 4, (topic, NO_TAIL): 3, (topic, NOTHING): 2}
    result = drain(spark, config, [topic], group, recorder, 2, until=ends)
    assert account(result) == [(GAPS, 1, 4, 2), (NO_TAIL, 0, 3, 1), (NOTHING, 2, 2, 0)]
    committed = GroupAdmin(config).committed(group)
    assert [at.offset for _, at in sorted(committed.items()) if isinstance(at, OffsetAndMetadata)] == [4, 3, 2]
    rest = drain(spark, config, [topic], group, recorder, 2)
    assert account(rest) == [(GAPS, 4, 5, 1), (NO_TAIL, 3, 5, 2), (NOTHING, 2, last + 1, 3)]
    expected = {GAPS: [1, 3, 4], NO_TAIL: [0, 3, 4], NOTHING: [2, last_but_one, last]}
    assert sorted(recorder.counts().items()) == [
        ((topic, number, offset), 1) for number, offsets in expected.items() for offset in offsets
    ]
