"""The handle that fetches from a cluster inside the test process; it replaces librdkafka's handle.

It has the methods that the application side of a consumer calls, and they return the results of librdkafka. The C part
of its class is never initialized.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    KafkaError,
    KafkaException,
    Message,
)

from consumer_membership.clients.group_metadata import pack_group_metadata
from consumer_membership.librdkafka import LibrdkafkaConsumer, PartitionOffset
from consumer_membership.testing.engine import ClusterEngine
from consumer_membership.testing.log import Log, error_message
from consumer_membership.testing.statistics import FetchedPartition, statistics_of
from consumer_membership.types import NO_EPOCH, NO_MEMBER_ID, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

_RESETS = {
    **dict.fromkeys(("earliest", "smallest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("latest", "largest", "end"), OFFSET_END),
}


#: Keys that the check ignores: the addresses of the cluster, the logger, and plugins.
_NOT_CHECKED = frozenset({"bootstrap.servers", "logger", "plugin.library.paths"})


@lru_cache(maxsize=256)
def _check(config: tuple[tuple[str, str], ...]) -> None:
    """Check the keys and values with librdkafka, once for each configuration and without a connection.

    Raises:
        KafkaException: librdkafka refuses the configuration.
    """
    LibrdkafkaConsumer({key: value for key, value in config if key not in _NOT_CHECKED}).close()


class Source(Protocol):
    """The cluster from which a handle fetches."""

    engine: ClusterEngine
    log: Log

    def committed_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a group."""

    def describe(self, topic: str | None) -> ClusterMetadata:
        """Return the metadata of one topic; None: of all topics."""

    def wall_s(self) -> float:
        """Return the time of day, in seconds since 1970."""


class FakeHandle(LibrdkafkaConsumer):
    """Fetches records of the assigned partitions; if `is_interrupted` becomes true, a wait ends early."""

    def __init__(self, source: Source, config: dict[str, object], is_interrupted: Callable[[], bool]) -> None:
        _check(tuple(sorted((key, str(value)) for key, value in config.items() if not callable(value))))
        self._source = source
        self._log = source.log
        self._group_id = str(config.get("group.id", ""))
        self._reset = _RESETS.get(str(config.get("auto.offset.reset", "latest")))
        self._reports_ends = str(config.get("enable.partition.eof", "false")).lower() == "true"
        self._is_interrupted = is_interrupted
        #: The next offset to read of each assigned partition.
        self._next: dict[TopicPartition, int] = {}
        #: The offset after the last record that was returned.
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        #: The offset at which the end of each partition was last reported.
        self._ends: dict[TopicPartition, int] = {}
        #: Partitions without a start offset, for which the next `consume` returns an error.
        self._without_start: list[TopicPartition] = []
        #: The number of returned records and bytes of each partition.
        self._counts: dict[TopicPartition, tuple[int, int]] = {}
        self._client_id = str(config.get("client.id", "rdkafka"))
        self._began_s = source.engine.now()
        self._is_open = True
        stats_cb, interval_ms = config.get("stats_cb"), int(str(config.get("statistics.interval.ms", 0)))
        if callable(stats_cb) and interval_ms > 0:
            self._report_statistics(stats_cb, interval_ms / 1000)

    # ---- statistics ----

    def _report_statistics(self, stats_cb: Callable[[str], object], interval_s: float) -> None:
        """Report statistics at each interval until the handle is closed; a poll calls the user's callback."""

        def report() -> None:
            if self._is_open:
                stats_cb(self._statistics())
                self._source.engine.later(interval_s, report)

        self._source.engine.later(interval_s, report)

    def _statistics(self) -> str:
        partitions = {one: self._fetched_of(one, offset) for one, offset in self._next.items()}
        now_s = self._source.engine.now()
        return statistics_of(
            partitions, client_id=self._client_id, now_s=now_s, began_s=self._began_s, wall_s=self._source.wall_s()
        )

    def _fetched_of(self, partition: TopicPartition, offset: int) -> FetchedPartition:
        committed = self._source.committed_offset(self._group_id, partition)
        end = self._log.end(partition)
        records, size = self._counts.get(partition, (0, 0))
        return FetchedPartition(
            next_offset=offset,
            position=self._positions.get(partition, OFFSET_INVALID),
            committed=OFFSET_INVALID if committed is None else committed,
            end=end,
            is_at_end=offset >= end,
            records=records,
            bytes=size,
        )

    # ---- fetching ----

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records or errors, after at most this time."""
        if timeout > 0:
            self._source.engine.await_change(lambda: self._is_interrupted() or self._has_messages(), timeout)
        with self._source.engine.exclusive():
            return self._take(num_messages)

    def _has_messages(self) -> bool:
        return bool(self._without_start) or any(
            self._log.has_record(partition, offset) or self._is_new_end(partition)
            for partition, offset in self._fetched()
        )

    def _fetched(self) -> list[tuple[TopicPartition, int]]:
        return sorted((one, offset) for one, offset in self._next.items() if one not in self._paused)

    def _is_new_end(self, partition: TopicPartition) -> bool:
        end = self._log.end(partition)
        return self._reports_ends and self._next[partition] >= end >= 0 and self._ends.get(partition) != end

    def _take(self, limit: int) -> list[Message]:
        taken: list[Message] = []
        while self._without_start and len(taken) < limit:
            error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "no committed offset, and auto.offset.reset is error")
            taken.append(error_message(self._without_start.pop(0), OFFSET_INVALID, error))
        for partition, offset in self._fetched():
            found, self._next[partition] = self._log.read(partition, offset, limit - len(taken))
            if found:
                self._positions[partition] = self._next[partition]
                records, size = self._counts.get(partition, (0, 0))
                self._counts[partition] = (records + len(found), size + sum(map(len, found)))
            taken += found
            if self._is_new_end(partition) and len(taken) < limit:
                self._ends[partition] = end = self._log.end(partition)
                taken.append(error_message(partition, end, KafkaError(KafkaError._PARTITION_EOF)))
        return taken

    # ---- assignment ----

    def assign(self, partitions: list[PartitionOffset]) -> None:
        """Fetch exactly these partitions."""
        self.unassign()
        self.incremental_assign(partitions)

    def unassign(self) -> None:
        """Fetch no partitions."""
        for memory in (self._next, self._positions, self._ends, self._without_start):
            memory.clear()

    def incremental_assign(self, partitions: list[PartitionOffset]) -> None:
        """Fetch these partitions in addition."""
        known = [one for one in map(_key, partitions) if one in self._next]
        if known:
            raise _refused(KafkaError._CONFLICT, f"{known[0].topic} [{known[0].partition}] is already assigned")
        for start in partitions:
            self._start(_key(start), start.offset)

    def incremental_unassign(self, partitions: list[PartitionOffset]) -> None:
        """Stop fetching these partitions."""
        for partition in map(_key, partitions):
            if partition not in self._next:
                raise _refused(KafkaError._INVALID_ARG, f"{partition.topic} is not assigned")
            for memory in (self._next, self._positions, self._ends):
                memory.pop(partition, None)

    def _start(self, partition: TopicPartition, offset: int) -> None:
        found: int | None = offset
        if offset in (OFFSET_STORED, OFFSET_INVALID):
            found = self._source.committed_offset(self._group_id, partition)
            found = self._reset if found is None else found
        if found is None:
            self._without_start.append(partition)
        ends = {OFFSET_BEGINNING: 0, OFFSET_END: max(self._log.end(partition), 0)}
        self._next[partition] = self._log.end(partition) if found is None else ends.get(found, found)
        if self._next[partition] > max(self._log.end(partition), 0):
            self._next[partition] = ends.get(self._reset or OFFSET_END, 0)
        self._ends.pop(partition, None)

    def assignment(self) -> list[PartitionOffset]:
        """Return the assigned partitions."""
        return [PartitionOffset(*partition) for partition in sorted(self._next)]

    def pause(self, partitions: list[PartitionOffset]) -> None:
        """Pause these partitions."""
        self._paused |= set(map(_key, partitions))

    def resume(self, partitions: list[PartitionOffset]) -> None:
        """Resume these partitions."""
        self._paused -= set(map(_key, partitions))

    def seek(self, partition: PartitionOffset) -> None:
        """Continue to read at this offset; the position is unknown until the next record is returned."""
        key = _key(partition)
        if key not in self._next:
            raise _refused(KafkaError._STATE, f"{key.topic} [{key.partition}] is not assigned")
        self._positions.pop(key, None)
        self._start(key, partition.offset)

    def position(self, partitions: list[PartitionOffset]) -> list[PartitionOffset]:
        """Return the offset after the last returned record of each partition."""
        return [PartitionOffset(*key, self._positions.get(key, OFFSET_INVALID)) for key in map(_key, partitions)]

    # ---- queries ----

    def get_watermark_offsets(
        self,
        partition: PartitionOffset,
        timeout: float = -1,  # noqa: ARG002 - librdkafka's signature
        cached: bool = False,  # noqa: FBT001, FBT002
    ) -> tuple[int, int]:
        """Return the first and the next offset of a partition."""
        end = self._log.end(_key(partition))
        if end < 0 and not cached:
            raise _refused(KafkaError._UNKNOWN_PARTITION, f"{partition.topic} [{partition.partition}]")
        return (0, end) if end >= 0 else (OFFSET_INVALID, OFFSET_INVALID)

    def offsets_for_times(self, partitions: list[PartitionOffset], timeout: float = -1) -> list[PartitionOffset]:  # noqa: ARG002
        """Return the offset of the first record at or after each timestamp."""
        found = [(key, self._log.at_time(key, one.offset)) for one in partitions for key in [_key(one)]]
        return [PartitionOffset(*key, OFFSET_END if offset is None else offset) for key, offset in found]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return the metadata. With timeout 0, raise _TIMED_OUT, as librdkafka does before it has metadata."""
        if timeout == 0:
            raise _refused(KafkaError._TIMED_OUT, "Failed to get metadata")
        return self._source.describe(topic)

    def cluster_id(self, timeout: float = -1) -> str:  # noqa: ARG002 - librdkafka's signature
        """Return the cluster's id."""
        return "fake-cluster"

    def consumer_group_metadata(self) -> bytes:
        """Return the metadata of a consumer that is not a member."""
        return pack_group_metadata(self._group_id, NO_EPOCH, NO_MEMBER_ID, None)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Accept any credentials."""

    def close(self) -> None:
        """Stop fetching and reporting statistics."""
        self._is_open = False
        self.unassign()


def _key(partition: PartitionOffset) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _refused(code: int, reason: str) -> KafkaException:
    return KafkaException(KafkaError(code, reason))
