"""The stream of a query, in the process that Spark keeps for its source: it plans batches and commits their offsets.

Spark calls one method at a time, and does not report all finished batches: before pyspark 4.2, it passes neither the
start of the next batch nor the end of the last batch of a query. So the end of the last planned batch is stored here,
and the next request for the latest offset implies that this batch is in the checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from time import monotonic

from consumer_membership.errors import DataLossError, TransportError
from consumer_membership.runtime.failures import FailureLog
from consumer_membership.spark.context import Partition
from consumer_membership.spark.range_reader import ReadRange
from consumer_membership.spark.source.hold import GroupHold
from consumer_membership.spark.source.logs import Logs
from consumer_membership.spark.source.offsets import (
    JsonObject,
    OffsetsByPartition,
    StreamOffsets,
    TopicIds,
    limited,
    read_offsets,
)
from consumer_membership.spark.source.options import SourceOptions
from consumer_membership.spark.source.ranges import TaskRanges, tasks_of
from consumer_membership.spark.source.weights import RecordWeights

_log = logging.getLogger("consumer_membership.spark.source")

#: The interval of the checks for new topics and partitions.
_DISCOVERY_S = 1.0
#: A topic that no broker knows for this long was deleted; shorter absences have other causes.
_GONE_S = 5.0


class GroupStream:
    """The stream of one query; the constructor joins the group.

    Raises:
        ConfigurationError, FencedError, GroupError, TransportError: the member could not join.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._group = str(options.group)
        self._hold = GroupHold(options, self._group)
        try:
            self._logs = Logs(options, self._hold.consumer)
            topics = self._logs.topics()
            self._partitions = self._logs.partitions(topics)
            self._hold.join(topics, self._partitions)
            self._topic_ids = self._logs.topic_ids(topics)
        except BaseException:
            self._hold.close()
            raise
        self._discovered_at = monotonic()
        self._weights = RecordWeights(options)
        self._initial: StreamOffsets | None = None
        #: The end of the last planned batch, exactly as Spark passed it; None before the first plan.
        self._position: JsonObject | None = None
        #: Partitions that no broker knows at present, and since when.
        self._away: dict[Partition, float] = {}
        #: The ends of the partitions at the last request; `_topic_ids` belong to these logs.
        self._ends: OffsetsByPartition = {}
        #: The end of all batches of `Trigger.AvailableNow`.
        self._last_ends: OffsetsByPartition | None = None
        self._planned_at = monotonic()
        #: Spark sends up to a hundred requests a second, also while a topic or every broker is away.
        self._ends_log = FailureLog(f"Group {self._group}: no new batch: looking up the ends of its partitions", _log)

    # ---- Spark's requests --------------------------------------------------------------------------------------------

    def initial(self) -> JsonObject:
        """Return the start of a query without a checkpoint; it does not change during the life of this object."""
        return self._first().as_json()

    def latest(self, start: JsonObject | None = None, most: int | None = None) -> JsonObject:
        """Return the end of the next batch from `start`, of about `most` offsets; `start` itself if there is none."""
        position = start or self._position
        started_at = self._first() if position is None else self._read(position)
        begin = started_at.offsets
        is_first = position is None or self._is_initial(position)
        if not is_first:
            self._hold.commit(self._of_existing(begin))
        # A first batch has its start, even if it is empty: a process that repeats the batch would start elsewhere.
        first = replace(started_at, start=begin).as_json()
        nothing_new = first if is_first or position is None else position
        if not self._hold.is_held(self._partitions):
            return nothing_new
        try:
            ends = self._available()
        except TransportError as away:
            self._ends_log.failed(away)
            return nothing_new
        self._ends_log.succeeded()
        recreated = _recreated(started_at.topic_ids, self._topic_ids)
        starts = self._starts_of(begin, ends, recreated)
        backlog = sum(max(0, end - starts[partition]) for partition, end in ends.items())
        if self._waits_for_more(backlog):
            return nothing_new
        batch = limited(starts, ends, self._most(most, starts, ends))
        if batch == begin and not recreated:
            return nothing_new
        return self._offsets_of(batch, start=starts if is_first else None).as_json()

    def plan(self, start: JsonObject, end: JsonObject) -> list[TaskRanges]:
        """Return the ranges of each task of this batch.

        Raises:
            DataLossError: offsets of the batch no longer exist, and `failOnDataLoss` is not false.
        """
        until = self._read(end)
        started_at = self._read(start)
        begin = until.start if until.start is not None else started_at.offsets
        recreated = _recreated(started_at.topic_ids if until.start is None else {}, until.topic_ids)
        self._position = end
        self._planned_at = monotonic()
        if start == end and until.start is None:
            return []
        if until.start is None:
            self._hold.commit(self._of_existing(begin))
        begin = self._starts_of(begin, until.offsets, recreated)
        firsts = self._logs.firsts([partition for partition, at in until.offsets.items() if at > begin[partition]])
        ranges = []
        for partition, last in sorted(until.offsets.items()):
            first = begin[partition]
            if partition in firsts and first < firsts[partition]:
                lost = f"offsets {first} to before {min(last, firsts[partition])} no longer exist"
                self._lose(f"{partition[0]}[{partition[1]}]: {lost}")
                first = min(last, firsts[partition])
            ranges.append(ReadRange(topic=partition[0], partition=partition[1], first=first, end=max(first, last)))
        return tasks_of(ranges, self._options.min_partitions, self._options.max_records)

    def commit(self, end: JsonObject) -> None:
        """Commit the end of a batch that Spark has finished."""
        self._hold.commit(self._of_existing(self._read(end).offsets))

    def prepare_for_available_now(self) -> None:
        """Use the present ends as the ends of the query."""
        self._last_ends = self._available()

    def report_latest(self) -> JsonObject | None:
        """Return the ends of the partitions, for the query's progress; None if no broker responds."""
        try:
            return self._offsets_of(self._available()).as_json()
        except TransportError:
            return None

    def close(self) -> None:
        """Leave the group."""
        self._hold.close()

    # ---- offsets -----------------------------------------------------------------------------------------------------

    def _read(self, found: JsonObject) -> StreamOffsets:
        return read_offsets(found, self._group)

    def _is_initial(self, position: JsonObject) -> bool:
        return self._initial is not None and position == self.initial()

    def _offsets_of(self, offsets: OffsetsByPartition, start: OffsetsByPartition | None = None) -> StreamOffsets:
        return StreamOffsets(offsets=offsets, group=self._group, start=start, topic_ids=self._topic_ids)

    def _of_existing(self, offsets: OffsetsByPartition) -> OffsetsByPartition:
        """Return the offsets of existing partitions; those of others cannot be committed."""
        existing = set(self._partitions)
        return {partition: at for partition, at in offsets.items() if partition in existing}

    def _first(self) -> StreamOffsets:
        if self._initial is None:
            committed = self._hold.committed(self._partitions)
            offsets = self._logs.at("starting", self._options.starting, self._partitions, committed)
            self._initial = self._offsets_of(offsets)
        return self._initial

    def _available(self) -> OffsetsByPartition:
        """Return the present ends of the partitions, or the fixed ends of `AvailableNow`."""
        if self._last_ends is not None:
            return self._last_ends
        is_time = monotonic() - self._discovered_at > _DISCOVERY_S
        if is_time:
            self._discover()
        ends = self._logs.ends(self._partitions)
        if is_time or ends != self._ends:
            if self._ids_have_changed():
                # A topic may have been deleted and created again between the two requests.
                ends = self._logs.ends(self._partitions)
            self._ends = ends
        return ends

    def _ids_have_changed(self) -> bool:
        topics = {topic for topic, _ in self._partitions}
        before = self._topic_ids
        # A topic that is temporarily unknown keeps its id.
        found = {**before, **self._logs.topic_ids(topics)}
        self._topic_ids = {topic: found[topic] for topic in topics if topic in found}
        return self._topic_ids != before

    def _discover(self) -> None:
        """Find new topics and partitions; keep those that are temporarily unknown, as at a change of the controller."""
        self._discovered_at = monotonic()
        topics = self._logs.topics()
        found = self._logs.partitions(topics, may_lack=True)
        away = {
            partition: self._away.get(partition, self._discovered_at)
            for partition in set(self._partitions) - set(found)
        }
        self._away = {partition: since for partition, since in away.items() if self._discovered_at - since < _GONE_S}
        self._partitions = tuple(sorted({*found, *self._away}))
        self._hold.follow(topics)

    def _starts_of(
        self, begin: OffsetsByPartition, ends: OffsetsByPartition, others: Collection[str]
    ) -> OffsetsByPartition:
        """Return the start of each partition of `ends`: the first offset of new partitions and of recreated topics.

        `others`: the topics whose ids differ from those of `begin`.
        """
        unknown = [partition for partition in ends if partition not in begin]
        found = {**begin, **(self._logs.firsts(unknown) if unknown else {})}
        for topic, number in begin.keys() - ends.keys():
            read_up_to = begin[topic, number]
            self._lose(f"{topic}[{number}]: its topic was deleted; the query had read up to offset {read_up_to}")
        recreated = "the topic was deleted and created again"
        lost = {p: f"{recreated}, or records were lost" for p, end in ends.items() if end < found[p]}
        lost |= {p: recreated for p in ends if p[0] in others and begin.get(p, 0) > 0}
        for (topic, number), why in lost.items():
            end, read_up_to = ends[topic, number], found[topic, number]
            self._lose(f"{topic}[{number}] ends at offset {end} and was read up to {read_up_to}: {why}")
        return {**found, **(self._logs.firsts(lost) if lost else {})}

    def _lose(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}; set failOnDataLoss=false to continue with the records that exist")
        _log.warning("Group %s: data is lost: %s", self._group, what)

    # ---- how much ----------------------------------------------------------------------------------------------------

    def _waits_for_more(self, backlog: int) -> bool:
        least = self._options.min_offsets
        if least is None or self._last_ends is not None or backlog >= least:
            return False
        return monotonic() - self._planned_at < self._options.max_delay_s

    def _most(self, limit: int | None, begin: OffsetsByPartition, ends: OffsetsByPartition) -> int | None:
        limits = [each for each in (limit, self._weights.most(begin, ends)) if each is not None]
        return min(limits) if limits else None


def _recreated(known: TopicIds, now: TopicIds) -> frozenset[str]:
    """Return the topics that have another id now; a topic without an id is left out."""
    return frozenset(topic for topic, topic_id in known.items() if now.get(topic, topic_id) != topic_id)
