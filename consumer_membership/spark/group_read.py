"""`read_group`: what a group has not committed yet, as a DataFrame, committed when the action has succeeded.

The driver is a member of the group, which owns the partitions and keeps others from reading them meanwhile; the tasks
are none. So Spark may do with the tasks what it likes (repeat them, run them twice, read the rows for a second action),
and the group moves on once, and only if the driver says so.
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
from consumer_membership.spark.range_reader import RangeReader, ReadRange, shared_out, task_config
from consumer_membership.spark.reader_member import LogBounds, ReaderMember

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("consumer_membership.spark")

#: Keys that the read has from elsewhere, and what to do about each.
_OWNED = {
    "group.instance.id": "leave it out: the reader's is <pipeline>-reader; name the pipeline instead",
    "group.instance.id.pool": "leave it out: the reader's instance id is <pipeline>-reader; name the pipeline instead",
    "group.instance.id.conflict.policy": "leave it out: the newest reader of a pipeline takes the place over",
    "enable.auto.commit": "leave it out: offsets are committed by commit(), or at the end of the with block",
    "enable.auto.offset.store": "leave it out: offsets are committed by commit(), or at the end of the with block",
    "max.poll.interval.ms": "leave it out: the reader polls by itself, however long an action takes",
    "enable.partition.eof": "leave it out: the end of a partition is looked after",
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
    """The records of these topics that the group has not committed yet, as a DataFrame.

        with read_group(spark, config, ["orders"], "billing") as orders:
            orders.groupBy("key").count().write.parquet(path)

    When the block ends without an exception, what was read is committed; with one nothing is. Without `with`, call
    `commit()` when your action has succeeded, and `close()`.

    Which offsets are read is settled in this call: every action, every attempt of a task, and a cache that was evicted
    read the same ones. Their order may differ from one time to the other. `commit()` commits all of them: an action
    that reads only a part, as `show` and `limit` do, does not make it commit less.

    Meanwhile the driver is a member of the group, of the instance id `<pipeline>-reader`. If other members are there,
    they keep their share: the DataFrame has the partitions that this member owns, and no others. A second read of the
    same pipeline takes the first one's place, whose commit fails then.

    Args:
        spark: The session.
        config: As for `Consumer`. `auto.offset.reset` says where a partition starts that the group has not committed,
            or whose committed offset is not in the log any more; `earliest` unless it is given.
        topics: Names of topics.
        group: The group.
        until: "now": up to the ends of the partitions at this moment, with `isolation.level=read_committed` (the
            default) up to the first open transaction. Or the end offset of each partition; others are not read then.
        columns: Those of key, value, topic, partition, offset, timestamp and headers that are wanted; the fewer, the
            faster.
        tasks: How many tasks share the reading, at most; as many as Spark has slots unless it is given. Little is read
            by fewer.
        pipeline: The name before `-reader`; the group's unless it is given.
        timeout_s: How long to wait for partitions at first, and in a task for the next record.

    Raises:
        ConfigurationError: a parameter or key that cannot work, a topic that does not exist.
        GroupError: the coordinator refused the member, or a right is missing.
        TransportError: no broker answered, or the group gave this member no partition in time.
    """
    context = context_of(spark)
    named = topic_names(topics)
    check_group(group)
    check_config(config, group, _OWNED)
    check_until(until)
    if tasks is not None:
        check_count("tasks", tasks, "give the number of tasks, 1 or more; or leave it out")
    check_text("pipeline", pipeline, "the name before -reader")
    check_time("timeout_s", timeout_s)
    schema()  # without pyarrow no task would work
    wanted_columns = check_columns(columns, COLUMNS)
    given = {"auto.offset.reset": "earliest", **config}
    reset = ConsumerConfig.from_mapping({**given, "group.id": group}).with_servers().auto_offset_reset
    if isinstance(reset, ByDuration):
        remedy = "a read knows the ends of a log and not its times; give earliest, latest or error, or use a Consumer"
        raise ConfigurationError("auto.offset.reset", given["auto.offset.reset"], remedy)
    member = ReaderMember(given, group, f"{pipeline or group}-reader")
    try:
        owned = member.join(named, timeout_s)
        taken_at = owned if until == "now" else {place: at for place, at in owned.items() if place in until}
        committed = member.committed(taken_at)
        ranges = [
            _range(partition, committed.get(partition), log, reset, until)
            for partition, log in sorted(member.logs(taken_at, committed).items())
        ]
        # How many tasks run at once; over Spark Connect nobody says, and one for each partition is as good a guess.
        slots = max(1, context.defaultParallelism if context is not None else len(ranges))
        reader = RangeReader(
            config=task_config(given, group),
            shares=shared_out(ranges, tasks or slots),
            columns=wanted_columns,
            timeout_s=timeout_s,
        )
        numbers = spark.range(0, len(reader.shares), 1, max(1, len(reader.shares)))
        frame = numbers.mapInArrow(reader.function(), spark_schema(reader.columns))
    except BaseException:
        member.close()
        raise
    _log.info("Group %s: a read of %d offsets in %d tasks", group, sum(r.offsets for r in ranges), len(reader.shares))
    moves = {each.place: each.end for each in ranges if committed.get(each.place) != each.end}
    return GroupRead(frame, tuple(ranges), member, moves, taken_at)


class GroupRead:
    """A read of a group: its DataFrame, and when it is over.

    As a context manager it gives the DataFrame, and commits and closes at the end of the block.

    Attributes:
        dataframe: The records, with the columns that were asked for.
        ranges: What it reads of each partition that the driver's member owns, by topic and partition; also those of
            which there is nothing to read.
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
        # A read that is forgotten, or whose driver ends, leaves its group nevertheless.
        self._close = weakref.finalize(self, member.close)

    def commit(self) -> None:
        """Commit the ends of all ranges: call it when your action has succeeded. A second commit is nothing.

        Raises:
            FencedError: a partition was revoked or lost since the read began, or another reader of this pipeline took
                its place; nothing was committed.
            CommitError: the coordinator refused, or did not answer in time.
            UseError: the read is closed.
        """
        if not self._is_committed:
            self._member.commit(self._moves, self._taken_at)
            self._is_committed = True

    def close(self) -> None:
        """Leave the group; what is not committed stays uncommitted. A second close is nothing."""
        self._close()

    def __enter__(self) -> DataFrame:
        """Return the DataFrame."""
        return self.dataframe

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit unless there was an exception, and close; an exception goes on."""
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


def _start(place: str, committed: int | None, log: LogBounds, reset: OffsetReset) -> int:
    """Where a partition starts whose committed offset is none, or not in the log any more: as any member does."""
    what = "nothing is committed" if committed is None else f"offset {committed} is committed"
    if reset is OffsetReset.ERROR:
        remedy = (
            f"{place}: {what} and the log has {log.first} to before {log.end}; commit an offset, or let it be reset"
        )
        raise ConfigurationError("auto.offset.reset", reset.value, remedy)
    start = log.first if reset is OffsetReset.EARLIEST else log.end
    if committed is not None:
        words = "%s: %s, but the log has %d to before %d; reading from %d"
        _log.warning(words, place, what, log.first, log.end, start)
    return start
