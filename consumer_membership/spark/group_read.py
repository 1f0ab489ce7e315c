"""`read_group`: the uncommitted records of a group as a DataFrame, committed when the action has succeeded.

The driver is the member of the group; it owns the partitions, so other members do not read them in the meantime. The
tasks are not members. So Spark may repeat tasks, run them twice, or read the rows for a second action, and the group's
offsets move once, when the driver commits.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from consumer_membership.config import ByDuration, ConsumerConfig, OffsetReset
from consumer_membership.errors import ConfigurationError
from consumer_membership.spark.arguments import (
    check_columns,
    check_config,
    check_count,
    check_group,
    check_text,
    check_time,
    check_until,
    context_of,
    topic_names,
    with_suggestions,
)
from consumer_membership.spark.batches import COLUMNS, schema, spark_schema
from consumer_membership.spark.context import Partition
from consumer_membership.spark.range_reader import RangeReader, ReadRange, divide_ranges, task_config
from consumer_membership.spark.reader_member import LogBounds, ReaderMember

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("consumer_membership.spark")

#: Keys that the read sets itself, with the remedy for each.
_OWNED = {
    "group.instance.id": "leave it out: the reader's instance id is <pipeline>-reader; set pipeline instead",
    "group.instance.id.pool": "leave it out: the reader's instance id is <pipeline>-reader; set pipeline instead",
    "group.instance.id.conflict.policy": "leave it out: the newest reader of a pipeline takes over",
    "enable.auto.commit": "leave it out: offsets are committed by commit(), or at the end of the with block",
    "enable.auto.offset.store": "leave it out: offsets are committed by commit(), or at the end of the with block",
    "max.poll.interval.ms": "leave it out: a thread polls for the reader, however long an action takes",
    "enable.partition.eof": "leave it out: the ends of partitions are detected automatically",
}


@with_suggestions()
def read_group(
    spark: SparkSession,
    config: Mapping[str, object],
    topics: Sequence[str],
    group: str,
    *,
    until: Literal["now"] | Mapping[Partition, int] = "now",
    columns: Sequence[str] = COLUMNS,
    tasks: int | None = None,
    pipeline: str | None = None,
    timeout_s: float = 60.0,
) -> GroupRead:
    """Return the uncommitted records of a group in these topics as a DataFrame.

        with read_group(spark, config, ["orders"], "billing") as orders:
            orders.groupBy("key").count().write.parquet(path)

    When the block ends without an exception, the offsets of the records are committed; after an exception, they are
    not. Without `with`, call `commit()` when your action has succeeded, and then `close()`.

    This call fixes the offsets: every action, every attempt of a task, and the refill of an evicted cache read the same
    records, possibly in another order. `commit()` commits all of these offsets, even if an action such as `show` or
    `limit` has read only a part.

    Until the end, the driver is a member of the group with the instance id `<pipeline>-reader`. Other members of the
    group keep their share: the DataFrame has only the partitions that this member owns. A second read of the same
    pipeline takes over, and the commit of the first read then fails.

    Args:
        spark: The session.
        config: The configuration, as for `Consumer`. `auto.offset.reset` (default: `earliest`) applies to partitions
            without a committed offset, or whose committed offset is no longer in the log.
        topics: The names of the topics.
        group: The group.
        until: "now": read up to the present ends of the partitions; with `isolation.level=read_committed` (the
            default), up to the first open transaction. Or a dict of end offsets by (topic, partition); other partitions
            are not read.
        columns: The columns, from key, value, topic, partition, offset, timestamp and headers. Fewer columns are
            faster.
        tasks: The largest number of tasks; default: the number of Spark's slots. Few records are read by fewer tasks.
        pipeline: The part before `-reader` in the instance id; default: the group.
        timeout_s: How long in seconds to wait for partitions at the start, and in a task for the next record.

    Raises:
        ConfigurationError: a parameter or key is wrong, or a topic does not exist.
        GroupError: the coordinator refused the member, or an ACL is missing.
        TransportError: no broker responded, or the member received no partition within `timeout_s`.
    """
    context = context_of(spark)
    named = topic_names(topics)
    check_group(group)
    check_config(config, group, _OWNED)
    check_until(until)
    if tasks is not None:
        check_count("tasks", tasks, "give the number of tasks, 1 or more; or leave it out")
    check_text("pipeline", pipeline, "the part of the instance id before -reader")
    check_time("timeout_s", timeout_s)
    schema()  # raises ConfigurationError if pyarrow is missing, without which each task would fail
    wanted_columns = check_columns(columns, COLUMNS)
    given = {"auto.offset.reset": "earliest", **config}
    reset = ConsumerConfig.from_mapping({**given, "group.id": group}).with_servers().auto_offset_reset
    if isinstance(reset, ByDuration):
        remedy = "read_group does not support a duration; use earliest, latest or error, or use a Consumer"
        raise ConfigurationError("auto.offset.reset", given["auto.offset.reset"], remedy)
    member = ReaderMember(given, group, f"{pipeline or group}-reader")
    try:
        owned = member.join(named, timeout_s)
        taken_at = owned if until == "now" else {partition: at for partition, at in owned.items() if partition in until}
        committed = member.committed(taken_at)
        ranges = [
            _range(partition, committed.get(partition), log, reset, until)
            for partition, log in sorted(member.logs(taken_at, committed).items())
        ]
        # The number of tasks that run at once. With Spark Connect it is unknown, so one task for each partition.
        slots = max(1, context.defaultParallelism if context is not None else len(ranges))
        reader = RangeReader(
            config=task_config(given, group),
            shares=divide_ranges(ranges, tasks or slots),
            columns=wanted_columns,
            timeout_s=timeout_s,
        )
        numbers = spark.range(0, len(reader.shares), 1, max(1, len(reader.shares)))
        frame = numbers.mapInArrow(reader.function(), spark_schema(reader.columns))
    except BaseException:
        member.close()
        raise
    _log.info("Group %s: reading %d offsets in %d tasks", group, sum(r.offsets for r in ranges), len(reader.shares))
    moves = {each.topic_partition: each.end for each in ranges if committed.get(each.topic_partition) != each.end}
    return GroupRead(frame, tuple(ranges), member, moves, taken_at)


class GroupRead:
    """A read of a group (`read_group`).

    As a context manager it returns the DataFrame, and at the end of the block commits and closes.

    Attributes:
        dataframe: The records, with the requested columns.
        ranges: The offsets of each partition that the driver's member owns, by topic and partition, including empty
            ranges.
    """

    def __init__(
        self,
        dataframe: DataFrame,
        ranges: tuple[ReadRange, ...],
        member: ReaderMember,
        moves: Mapping[Partition, int],
        taken_at: Mapping[Partition, int],
    ) -> None:
        self.dataframe = dataframe
        self.ranges = ranges
        self._member = member
        self._moves = moves
        self._taken_at = taken_at
        self._is_committed = False
        # A read that is garbage collected, or whose driver ends, also leaves its group.
        self._close = weakref.finalize(self, member.close)

    def commit(self) -> None:
        """Commit the ends of all ranges; call it when your action has succeeded. A second call has no effect.

        Raises:
            FencedError: a partition was revoked or lost since the start of the read, or another reader of this pipeline
                took over; nothing was committed.
            CommitError: the coordinator refused the commit, or did not respond in time.
            UseError: the read is closed.
        """
        if not self._is_committed:
            self._member.commit(self._moves, self._taken_at)
            self._is_committed = True

    def close(self) -> None:
        """Leave the group, without a commit. A second call has no effect."""
        self._close()

    def __enter__(self) -> DataFrame:
        """Return the DataFrame."""
        return self.dataframe

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit unless the block raised an exception, and close; the exception is not suppressed."""
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()


def _range(
    partition: Partition,
    committed: int | None,
    log: LogBounds,
    reset: OffsetReset,
    until: Literal["now"] | Mapping[Partition, int],
) -> ReadRange:
    topic, number = partition
    if committed is not None and log.first <= committed <= log.high_watermark:
        first = committed
    else:
        first = _start(f"{topic}[{number}]", committed, log, reset)
    end = log.end if until == "now" else min(log.end, until[partition])
    return ReadRange(topic=topic, partition=number, first=first, end=max(first, end))


def _start(partition: str, committed: int | None, log: LogBounds, reset: OffsetReset) -> int:
    """Return the start of a partition without a committed offset in the log, by `auto.offset.reset`."""
    what = "no offset is committed" if committed is None else f"offset {committed} is committed"
    if reset is OffsetReset.ERROR:
        remedy = (
            f"{partition}: {what}, and the log starts at offset {log.first} and ends at offset {log.end}; commit an "
            "offset, or use earliest or latest"
        )
        raise ConfigurationError("auto.offset.reset", reset.value, remedy)
    start = log.first if reset is OffsetReset.EARLIEST else log.end
    if committed is not None:
        _log.warning(
            "%s: %s, but the log starts at offset %d and ends at offset %d; reading from offset %d",
            partition,
            what,
            log.first,
            log.end,
            start,
        )
    return start
