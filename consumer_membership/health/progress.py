"""The progress of each partition, from sample to sample: which ones move, are stuck or fall behind, and why.

Each partition is assessed separately: a sum of lags or of records would hide a single stuck partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.waits import described
from consumer_membership.types import BrokerAddress, Instant, TopicPartition

if TYPE_CHECKING:  # few consumers have a processor
    from consumer_membership.health.handlers import UnfinishedRecord

#: A partition whose position moved within this time, in seconds, is being consumed.
RECENT_S = 5.0
#: A partition without progress is late after this part of `stuck_after_s`, and after at least this number of seconds:
#: its end is requested from the leader, and records that the leader reported should have arrived by then. A fetch
#: response takes `fetch.wait.max.ms` at most, unless the broker throttles the client.
_LATE_SHARE, _LATE_S = 1 / 12, 1.0
#: A poll at most this old, in seconds, shows that the application would take records.
POLLS_S = 5.0


class PartitionWaitsFor(StrEnum):
    """What the consumption of a partition waits for: a closed set of values, which are part of the API."""

    #: `resume()`; the application paused the partition.
    RESUME = "resume"
    #: The end of the partition's revocation.
    REVOCATION = "revocation"
    #: Records; they exist on the broker, and the position does not move.
    RECORDS = "records"
    #: A fetch response; the leader reported records to read on another connection, and librdkafka receives none.
    FETCH_RESPONSE = "fetch response"
    #: The end offset, which the leader has not reported.
    END_OFFSET = "end offset"
    #: The end of an open transaction (`isolation.level=read_committed`).
    OPEN_TRANSACTION = "open transaction"
    #: A handler; the processor has paused the partition, because too many of its records are unfinished.
    HANDLER = "handler"


_DETAILS: Mapping[PartitionWaitsFor, str] = MappingProxyType(
    {
        PartitionWaitsFor.RECORDS: "the end offset increases, and the position does not",
        PartitionWaitsFor.END_OFFSET: "the leader has not reported it; the partition may have no leader, may not "
        "exist, or this client may lack permission to describe it",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSample:
    """The state of the assigned partitions at one moment; unknown offsets are absent.

    `positions` are the next offsets to return, `begun` the partitions of which a record was returned, `ends` the high
    watermarks. `stable_ends` are the last stable offsets, at which `read_committed` consumers stop (KIP-98), for the
    partitions for which they were requested, and `leaders` the brokers that reported them. `has_broker`: whether
    librdkafka is connected to a broker to fetch from. `unfinished` has the oldest unfinished record of each partition
    that has one; it is None without a processor. With a processor, `paused` are the partitions that the processor
    paused, because too many of their records are unfinished.
    """

    at: Instant
    assigned: Collection[TopicPartition]
    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stable_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    leaders: Mapping[TopicPartition, BrokerAddress] = field(default_factory=dict)
    begun: Collection[TopicPartition] = ()
    paused: Collection[TopicPartition] = ()
    frozen: Collection[TopicPartition] = ()
    has_broker: bool = True
    unfinished: Mapping[TopicPartition, UnfinishedRecord] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """The progress of one partition; None: not known.

    Attributes:
        position: The next offset to return.
        end: The end offset (the high watermark).
        lag: The offsets between `position` and `end`.
        progressed_at: When a sample last showed a new position (monotonic clock).
        is_paused: The application paused the partition; False for a pause of the processor.
        is_stuck: The position does not move although the end increases, or the end is unknown for too long.
        is_held_back: It is stuck because of an open transaction.
        is_readable: It is stuck, and the leader reported records that the consumer could read.
        is_behind: Records are consumed, but the lag increases.
        waits_for: What the consumption waits for; None: nothing.
        since: When `waits_for` began (monotonic clock).
        waits_for_detail: Names and offsets of the wait, for people; may change in any release.
        oldest_unfinished: The oldest record that the processor has not finished; None: all received records are
            finished, or there is no processor.
    """

    position: int | None
    end: int | None
    lag: int | None
    progressed_at: Instant | None
    is_paused: bool = False
    is_stuck: bool = False
    is_held_back: bool = False
    is_readable: bool = False
    is_behind: bool = False
    waits_for: PartitionWaitsFor | None = None
    since: Instant | None = None
    waits_for_detail: str = ""
    oldest_unfinished: UnfinishedRecord | None = None

    @property
    def waits_for_text(self) -> str | None:
        """`waits_for` and its detail in one line, `VALUE: DETAIL`; None if the partition waits for nothing."""
        return described(self.waits_for, self.waits_for_detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentProgress:
    """The progress of all partitions at the latest sample, with totals."""

    at: Instant | None = None
    partitions: Mapping[TopicPartition, PartitionHealth] = field(default_factory=lambda: MappingProxyType({}))
    stuck: tuple[TopicPartition, ...] = ()
    behind: tuple[TopicPartition, ...] = ()
    #: Partitions that wait for a fetch response.
    late: tuple[TopicPartition, ...] = ()
    #: Partitions with an unknown end offset, without paused ones.
    without_end: tuple[TopicPartition, ...] = ()
    paused: int = 0
    #: The number of partitions that have new records since their position last moved.
    pending: int = 0
    #: The sum of the known lags, and when any position last moved.
    lag: int = 0
    progressed_at: Instant | None = None


@dataclass(slots=True, kw_only=True)
class _Track:
    """The memory of one partition between two samples."""

    position: int | None
    #: When the position last changed, and the end offset at that moment.
    unmoved_since: Instant
    end_then: int | None
    progressed_at: Instant | None = None
    #: The lag at `lags_since`; it has not been lower since then.
    lag_then: int | None
    lags_since: Instant
    #: Since when the end offset is unknown; None: it is known.
    end_unknown_since: Instant | None
    is_behind: bool = False
    #: Since when the leader reports records that the consumer could read, while it requests them and receives none.
    readable_since: Instant | None = None


class ProgressLog:
    """The samples of one consumer's partitions; a partition is stuck after `stuck_after_s` seconds without progress."""

    def __init__(self, stuck_after_s: float) -> None:
        self._stuck_after_s = stuck_after_s
        self.late_after_s = max(_LATE_S, _LATE_SHARE * stuck_after_s)
        self._tracks: dict[TopicPartition, _Track] = {}
        #: The result of the latest sample; replaced as a whole, so that any thread can read it.
        self.latest = AssignmentProgress()

    def suspects(self, now: Instant) -> frozenset[TopicPartition]:
        """Return the partitions that have not moved for `late_after_s`; request their end offsets."""
        return frozenset(
            partition for partition, track in self._tracks.items() if now - track.unmoved_since >= self.late_after_s
        )

    def add(self, sample: ProgressSample, polled_at: Instant | None) -> AssignmentProgress:
        """Add a sample and return the progress; `polled_at`: when the application last polled, as far as known."""
        tracks = {partition: self._track(partition, sample) for partition in sample.assigned}
        self._tracks = tracks
        for partition, track in tracks.items():
            self._note_readable(track, sample.stable_ends.get(partition), sample.at)
        takes = polled_at is not None and sample.at - polled_at <= POLLS_S
        partitions = {
            partition: self._health_of(partition, track, sample, takes=takes) for partition, track in tracks.items()
        }
        moved = [one.progressed_at for one in partitions.values() if one.progressed_at is not None]
        self.latest = AssignmentProgress(
            at=sample.at,
            partitions=MappingProxyType(partitions),
            stuck=tuple(sorted(partition for partition, one in partitions.items() if one.is_stuck)),
            behind=tuple(sorted(partition for partition, one in partitions.items() if one.is_behind)),
            late=tuple(
                sorted(
                    partition
                    for partition, one in partitions.items()
                    if one.waits_for is PartitionWaitsFor.FETCH_RESPONSE
                )
            ),
            without_end=tuple(
                sorted(partition for partition, one in partitions.items() if one.end is None and not one.is_paused)
            ),
            paused=sum(one.is_paused for one in partitions.values()),
            pending=sum(
                self._is_unmoved(track, sample.ends.get(partition), sample.at, 0.0)
                for partition, track in tracks.items()
            ),
            lag=sum(one.lag or 0 for one in partitions.values()),
            progressed_at=max(moved, default=None),
        )
        return self.latest

    def _track(self, partition: TopicPartition, sample: ProgressSample) -> _Track:
        track, now = self._tracks.get(partition), sample.at
        position, end = sample.positions.get(partition), sample.ends.get(partition)
        lag = _lag(position, end)
        if track is None:
            moved_at = now if partition in sample.begun else None
            return _Track(
                position=position,
                unmoved_since=now,
                end_then=end,
                progressed_at=moved_at,
                lag_then=lag,
                lags_since=now,
                end_unknown_since=now if end is None else None,
            )
        if position != track.position:
            track.position, track.unmoved_since, track.end_then, track.progressed_at = position, now, end, now
        elif track.end_then is None:
            track.end_then = end
        if end is not None:
            track.end_unknown_since = None
        elif track.end_unknown_since is None or not sample.has_broker:
            # Without a broker no leader can report it.
            track.end_unknown_since = now
        if partition in sample.paused or partition in sample.frozen:
            # Its records are not requested now, so this time does not count.
            track.unmoved_since, track.end_then = now, end
            if sample.unfinished is None or partition in sample.frozen:
                track.lags_since = now
            # Otherwise its handlers are slower than its producers, and its lag counts.
        if lag is None or track.lag_then is None or lag < track.lag_then:
            track.lag_then, track.lags_since, track.is_behind = lag, now, False
        elif now - track.lags_since >= self._stuck_after_s:
            track.lag_then, track.lags_since, track.is_behind = lag, now, lag > track.lag_then
        return track

    def _note_readable(self, track: _Track, stable_end: int | None, now: Instant) -> None:
        if not self._is_unmoved(track, stable_end, now, 0.0):
            track.readable_since = None
        elif track.readable_since is None:
            track.readable_since = now

    def _is_unmoved(self, track: _Track, end: int | None, now: Instant, for_s: float) -> bool:
        """Return whether the position has not moved for `for_s` seconds while the end offset increased.

        Constant lag is not proof of a stall: a transaction marker occupies an offset but is never delivered, and the
        records of an aborted transaction are not delivered either.
        """
        if end is None or track.end_then is None or now - track.unmoved_since < for_s:
            return False
        return end > max(track.end_then, track.position or 0)

    def _lacks_end(self, track: _Track, now: Instant) -> bool:
        """Return whether neither a record nor the end offset has arrived for `stuck_after_s` seconds."""
        if track.end_unknown_since is None:
            return False
        return now - max(track.end_unknown_since, track.unmoved_since) >= self._stuck_after_s

    def _health_of(
        self, partition: TopicPartition, track: _Track, sample: ProgressSample, *, takes: bool
    ) -> PartitionHealth:
        end, stable_end, now = sample.ends.get(partition), sample.stable_ends.get(partition), sample.at
        lag = _lag(track.position, end)
        is_frozen, is_paused = partition in sample.frozen, partition in sample.paused and sample.unfinished is None
        is_full = partition in sample.paused and not is_paused
        oldest = sample.unfinished.get(partition) if sample.unfinished is not None else None
        is_wanted = takes and not is_paused and not is_frozen and not is_full
        lacks_end = is_wanted and self._lacks_end(track, now)
        is_stuck = lacks_end or (is_wanted and self._is_unmoved(track, end, now, self._stuck_after_s))
        readable_since = track.readable_since
        is_late = is_wanted and readable_since is not None and now - readable_since >= self.late_after_s
        waits_for: PartitionWaitsFor | None = None
        is_held_back = is_readable = False
        if is_paused or is_frozen:
            waits_for = PartitionWaitsFor.RESUME if is_paused else PartitionWaitsFor.REVOCATION
        elif is_full:
            waits_for = PartitionWaitsFor.HANDLER
        elif lacks_end:
            waits_for = PartitionWaitsFor.END_OFFSET
        elif is_stuck:
            is_readable = stable_end is not None and stable_end > (track.position or 0)
            is_held_back = not is_readable and stable_end is not None and end is not None and stable_end < end
            waits_for = PartitionWaitsFor.OPEN_TRANSACTION if is_held_back else PartitionWaitsFor.RECORDS
        elif is_late:
            waits_for = PartitionWaitsFor.FETCH_RESPONSE
        is_behind = track.is_behind and not is_stuck and not is_paused
        return PartitionHealth(
            position=track.position,
            end=end,
            lag=lag,
            progressed_at=track.progressed_at,
            is_paused=is_paused,
            is_stuck=is_stuck,
            is_held_back=is_held_back,
            is_readable=is_readable,
            is_behind=is_behind,
            waits_for=waits_for,
            since=_since(waits_for, track, oldest),
            waits_for_detail=_detail(waits_for, stable_end, oldest, sample.leaders.get(partition)),
            oldest_unfinished=oldest,
        )


def _lag(position: int | None, end: int | None) -> int | None:
    return max(0, end - position) if position is not None and end is not None else None


def _since(waits_for: PartitionWaitsFor | None, track: _Track, oldest: UnfinishedRecord | None) -> Instant | None:
    if waits_for is PartitionWaitsFor.HANDLER and oldest is not None:
        return oldest.since
    if waits_for is PartitionWaitsFor.FETCH_RESPONSE:
        return track.readable_since
    return track.unmoved_since if waits_for is not None else None


def _detail(
    waits_for: PartitionWaitsFor | None,
    stable_end: int | None,
    oldest: UnfinishedRecord | None,
    leader: BrokerAddress | None,
) -> str:
    if waits_for is None:
        return ""
    if waits_for is PartitionWaitsFor.HANDLER and oldest is not None:
        return f"the oldest unfinished record is {oldest.text}"
    if waits_for is PartitionWaitsFor.OPEN_TRANSACTION:
        return f"a transaction is open from offset {stable_end}; read_committed consumers cannot read past it"
    if waits_for is PartitionWaitsFor.FETCH_RESPONSE:
        broker = f"broker {leader}" if leader is not None else "the leader"
        return f"{broker} reported records up to offset {stable_end}, and its fetch connection returns none"
    return _DETAILS.get(waits_for, "")
