"""How far each partition is, look by look: what moves, what stands still, what has fallen behind, and why.

Liveness is judged partition by partition: a sum of lags, or of records, hides the one that stands still.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from consumer_membership.light_dataclasses import dataclass
from consumer_membership.membership.waits import described
from consumer_membership.types import Instant, TopicPartition

#: A partition whose position moved within this time is being consumed.
RECENT_S = 5.0
#: A poll that is not older than this shows that records would be taken.
POLLS_S = 5.0


class PartitionWaitsFor(StrEnum):
    """What the consumption of a partition waits for: a closed set of values, which are part of the API."""

    #: `resume()`; the application paused the partition.
    RESUME = "resume"
    #: The end of the partition's revocation.
    REVOCATION = "revocation"
    #: Records; they exist on the broker, and the position does not move.
    RECORDS = "records"
    #: The end offset, which the leader has not reported.
    END_OFFSET = "end offset"
    #: The end of an open transaction (`isolation.level=read_committed`).
    OPEN_TRANSACTION = "open transaction"


_DETAILS: Mapping[PartitionWaitsFor, str] = MappingProxyType(
    {
        PartitionWaitsFor.RECORDS: "the end offset increases, and the position does not",
        PartitionWaitsFor.END_OFFSET: "the leader has not reported it; the partition may have no leader, may not "
        "exist, or this client may lack permission to describe it",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen of the assigned partitions at one moment; offsets are absent where they are not known.

    `positions` are the next offsets to hand out, `begun` the partitions of which a record was handed out, `ends` the
    high watermarks. `stable_ends` are where readers of committed records stop (KIP-98), as far as somebody asked.
    `has_broker`: whether librdkafka has one to fetch from.
    """

    at: Instant
    assigned: Collection[TopicPartition]
    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    stable_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    begun: Collection[TopicPartition] = ()
    paused: Collection[TopicPartition] = ()
    frozen: Collection[TopicPartition] = ()
    has_broker: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealth:
    """How far one partition is; None: not known.

    `lag` counts to `end`, the high watermark. `progressed_at` is when its position moved last, as far as that was seen
    (monotonic clock), `since` since when it is as `waits_for` says. `is_held_back`: by an open transaction.
    `is_readable`: it is stuck, and its leader said that a reader would be given records behind its position.
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

    @property
    def waits_for_text(self) -> str | None:
        """`waits_for` and its detail in one line, `VALUE: DETAIL`; None if the partition waits for nothing."""
        return described(self.waits_for, self.waits_for_detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentProgress:
    """All partitions at the latest look, with what is to be known of them as a whole."""

    at: Instant | None = None
    partitions: Mapping[TopicPartition, PartitionHealth] = field(default_factory=lambda: MappingProxyType({}))
    stuck: tuple[TopicPartition, ...] = ()
    behind: tuple[TopicPartition, ...] = ()
    #: Those of which nobody has said where they end, yet; without paused ones.
    untold: tuple[TopicPartition, ...] = ()
    paused: int = 0
    #: Of how many something was written since their position stands.
    awaited: int = 0
    #: The sum of the lags that are known, and when any position moved last.
    lag: int = 0
    progressed_at: Instant | None = None


@dataclass(slots=True, kw_only=True)
class _Track:
    """What is remembered of one partition between two looks."""

    position: int | None
    #: Since when the position is what it is, and the end at that moment.
    stands_since: Instant
    end_then: int | None
    progressed_at: Instant | None = None
    #: The lag at the beginning of the time in which it did not shrink below that, and when that time began.
    lag_then: int | None
    lags_since: Instant
    #: Since when nobody has said where it ends; None: that is known.
    untold_since: Instant | None
    is_behind: bool = False


class ProgressLog:
    """The looks at one consumer's partitions; a partition that stands for `stuck_after_s` behind its end is stuck."""

    def __init__(self, stuck_after_s: float) -> None:
        self._stuck_after_s = stuck_after_s
        self._tracks: dict[TopicPartition, _Track] = {}
        #: What the latest look came to; replaced as a whole, for any thread.
        self.latest = AssignmentProgress()

    def suspects(self, now: Instant) -> frozenset[TopicPartition]:
        """Which partitions have stood for half the time: it is worth asking a broker where their ends are."""
        return frozenset(
            partition
            for partition, track in self._tracks.items()
            if now - track.stands_since >= self._stuck_after_s / 2
        )

    def look(self, look: Look, polled_at: Instant | None) -> AssignmentProgress:
        """Take a look in; what it comes to. `polled_at`: when the application was last seen polling."""
        tracks = {partition: self._track(partition, look) for partition in look.assigned}
        self._tracks = tracks
        takes = polled_at is not None and look.at - polled_at <= POLLS_S
        partitions = {
            partition: self._judged(partition, track, look, takes=takes) for partition, track in tracks.items()
        }
        moved = [one.progressed_at for one in partitions.values() if one.progressed_at is not None]
        self.latest = AssignmentProgress(
            at=look.at,
            partitions=MappingProxyType(partitions),
            stuck=tuple(sorted(partition for partition, one in partitions.items() if one.is_stuck)),
            behind=tuple(sorted(partition for partition, one in partitions.items() if one.is_behind)),
            untold=tuple(
                sorted(partition for partition, one in partitions.items() if one.end is None and not one.is_paused)
            ),
            paused=sum(one.is_paused for one in partitions.values()),
            awaited=sum(
                self._stands(track, look.ends.get(partition), look.at, 0.0) for partition, track in tracks.items()
            ),
            lag=sum(one.lag or 0 for one in partitions.values()),
            progressed_at=max(moved, default=None),
        )
        return self.latest

    def _track(self, partition: TopicPartition, look: Look) -> _Track:
        track, now = self._tracks.get(partition), look.at
        position, end = look.positions.get(partition), look.ends.get(partition)
        lag = _lag(position, end)
        if track is None:
            moved_at = now if partition in look.begun else None
            return _Track(
                position=position,
                stands_since=now,
                end_then=end,
                progressed_at=moved_at,
                lag_then=lag,
                lags_since=now,
                untold_since=now if end is None else None,
            )
        if position != track.position:
            track.position, track.stands_since, track.end_then, track.progressed_at = position, now, end, now
        elif track.end_then is None:
            track.end_then = end
        if end is not None:
            track.untold_since = None
        elif track.untold_since is None or not look.has_broker:
            # Where no broker can be reached, no leader can say it.
            track.untold_since = now
        if partition in look.paused or partition in look.frozen:
            # Nobody wants its records: that time does not count.
            track.stands_since, track.end_then, track.lags_since = now, end, now
        if lag is None or track.lag_then is None or lag < track.lag_then:
            track.lag_then, track.lags_since, track.is_behind = lag, now, False
        elif now - track.lags_since >= self._stuck_after_s:
            track.lag_then, track.lags_since, track.is_behind = lag, now, lag > track.lag_then
        return track

    def _stands(self, track: _Track, end: int | None, now: Instant, for_s: float) -> bool:
        """Whether its position has stood for so long while its end moved away.

        A lag that only stays proves nothing: behind the last record of a transaction stands its marker, which nobody is
        given, and an aborted one may be all that there is.
        """
        if end is None or track.end_then is None or now - track.stands_since < for_s:
            return False
        return end > max(track.end_then, track.position or 0)

    def _is_untold(self, track: _Track, now: Instant) -> bool:
        """Whether nothing has come for so long, and its leader, which is asked in that time, has not said its end."""
        if track.untold_since is None:
            return False
        return now - max(track.untold_since, track.stands_since) >= self._stuck_after_s

    def _judged(self, partition: TopicPartition, track: _Track, look: Look, *, takes: bool) -> PartitionHealth:
        end, stable_end, now = look.ends.get(partition), look.stable_ends.get(partition), look.at
        lag = _lag(track.position, end)
        is_paused, is_frozen = partition in look.paused, partition in look.frozen
        is_wanted = takes and not is_paused and not is_frozen
        is_untold = is_wanted and self._is_untold(track, now)
        is_stuck = is_untold or (is_wanted and self._stands(track, end, now, self._stuck_after_s))
        waits_for: PartitionWaitsFor | None = None
        is_held_back = is_readable = False
        if is_paused or is_frozen:
            waits_for = PartitionWaitsFor.RESUME if is_paused else PartitionWaitsFor.REVOCATION
        elif is_untold:
            waits_for = PartitionWaitsFor.END_OFFSET
        elif is_stuck:
            is_readable = stable_end is not None and stable_end > (track.position or 0)
            is_held_back = not is_readable and stable_end is not None and end is not None and stable_end < end
            waits_for = PartitionWaitsFor.OPEN_TRANSACTION if is_held_back else PartitionWaitsFor.RECORDS
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
            since=track.stands_since if waits_for is not None else None,
            waits_for_detail=_detail(waits_for, stable_end),
        )


def _lag(position: int | None, end: int | None) -> int | None:
    return max(0, end - position) if position is not None and end is not None else None


def _detail(waits_for: PartitionWaitsFor | None, stable_end: int | None) -> str:
    if waits_for is None:
        return ""
    if waits_for is PartitionWaitsFor.OPEN_TRANSACTION:
        return f"a transaction is open from offset {stable_end}; read_committed consumers cannot read past it"
    return _DETAILS.get(waits_for, "")
