"""Reconstruct the past of a group from its coordinator's records and from the end offsets of its topics.

This works for groups of any client and requires READ on `__consumer_offsets`. `notes` has the reasons for missing
data: a missing ACL, a timeout, or compaction.

The current state is requested first. A value without a record since the start time has not changed, so the log must be
read back only to the changed values: a partition with years of records costs no more than one with days.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from consumer_membership.admin import group_log
from consumer_membership.admin.group_log import (
    AssignmentRecorded,
    ClassicGroupRecorded,
    GroupLog,
    LoggedRecord,
    LogQuery,
    OffsetRecorded,
    ReadingProgress,
    TargetRecorded,
)
from consumer_membership.admin.inquiry import described
from consumer_membership.admin.progress import Committed, partitions_of
from consumer_membership.errors import GroupError, MembershipError, TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, Cluster, GroupClient, GroupDescription
from consumer_membership.types import Assignment, TopicPartition

#: Without a rebalance, the coordinator's description equals its records.
_STABLE_STATES = frozenset({"Stable", "Empty"})
#: The share of the timeout for the current state.
_PRESENT_SHARE = 0.2

#: The maximum number of end offsets to request, and the minimum and maximum number of points in time.
_MOST_OFFSETS, _LEAST_TIMES, _MOST_TIMES = 40_000, 6, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPresent:
    """The current description of a group that does not rebalance, and its committed offsets."""

    group: GroupDescription
    committed: Committed


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """The group and the start time.

    `grain_s`: of several commits of a partition within this number of seconds, keep one. Another thread calls
    `on_progress` periodically.
    """

    group_id: str
    since: float
    grain_s: float = 0.0
    on_progress: Callable[[ReadingProgress], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """The records of one group since a time; times are in seconds since 1970, by the brokers' clocks.

    `before` has the latest records before the start time, at least for values that changed since; if `now` is set, the
    other values are as in `now`. `ends` has the end offset of each partition at some points in time, the oldest first,
    by the timestamps of its records. `notes` has the reasons for missing data.
    """

    group_id: str
    since: float
    until: float
    before: tuple[LoggedRecord, ...] = ()
    records: tuple[LoggedRecord, ...] = ()
    now: GroupPresent | None = None
    topic_names: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    ends: Mapping[TopicPartition, Sequence[tuple[float, int]]] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()


async def history_of(
    cluster: Cluster, config: Mapping[str, object], query: HistoryQuery, timeout_s: float
) -> GroupHistory:
    """Return the group's records since the start time, or no records and a note if they may not be read.

    Raises:
        TransportError: No broker of the cluster responded.
    """
    await cluster.brokers(timeout_s)
    group_id, since = query.group_id, query.since
    # The current state is read before the end of the log, so that later changes are in the log.
    now = await _present(cluster, group_id, timeout_s * _PRESENT_SHARE)
    until = time.time()
    try:
        log = await _read(config, query, timeout_s, is_known_now=now is not None)
    except (GroupError, TransportError) as error:
        return GroupHistory(group_id=group_id, since=since, until=until, notes=(f"The past is not shown: {error}",))
    notes = list(_missing(log, is_known_now=now is not None))
    try:
        names = await cluster.topic_names(frozenset(_topic_ids(log)), timeout_s)
        partitions = _partitions(log, names, now)
        last = await cluster.end_offsets(partitions)
        notes += _unknown_ends(last)
        ends = await _ends(cluster, {one: end for one, end in last.items() if isinstance(end, int)}, since, until)
    except (BrokerRefusal, MembershipError) as error:
        names, ends = {}, {}
        notes.append(f"Topics of the past could not be described, so their lag in the past is unknown: {error}")
    return GroupHistory(
        group_id=group_id,
        since=since,
        until=until,
        before=log.before,
        records=log.records,
        now=now if log.is_whole else None,
        topic_names=names,
        ends=ends,
        notes=tuple(notes),
    )


async def _present(cluster: Cluster, group_id: str, timeout_s: float) -> GroupPresent | None:
    """Return the current state, or None if it is unknown or the group rebalances."""
    groups = GroupClient(cluster)
    try:
        group = await cluster.with_coordinator(
            group_id, "the group", timeout_s, lambda at, left_s: described(groups, at, group_id, lambda: left_s)
        )
        committed = await cluster.with_coordinator(
            group_id, "committed offsets", timeout_s, lambda at, left_s: groups.all_committed(at, group_id, left_s)
        )
    except (BrokerRefusal, TransportError):
        # Without it, the whole log is read.
        return None
    return GroupPresent(group=group, committed=committed) if group.state in _STABLE_STATES else None


async def _read(config: Mapping[str, object], query: HistoryQuery, timeout_s: float, *, is_known_now: bool) -> GroupLog:
    """Read the log in a thread; the thread ends soon after a cancellation, because asyncio waits for it."""
    is_cancelled = threading.Event()

    def should_continue(progress: ReadingProgress) -> bool:
        if query.on_progress is not None:
            query.on_progress(progress)
        return not is_cancelled.is_set()

    log_query = LogQuery(
        group_id=query.group_id,
        since=query.since,
        timeout_s=timeout_s,
        grain_s=query.grain_s,
        is_known_now=is_known_now,
    )
    try:
        return await asyncio.to_thread(group_log.read_group_log, config, log_query, should_continue)
    finally:
        is_cancelled.set()


def _missing(log: GroupLog, *, is_known_now: bool) -> Sequence[str]:
    gone = log.offsets - log.kept
    notes = []
    if not log.is_whole:
        notes.append(
            "The latest records are missing, because the timeout ended before all of the coordinator's records were "
            "read; increase the timeout."
        )
    elif gone > 0:
        notes.append(
            f"{gone:,} of {log.offsets:,} records of the coordinator's partition in this time are missing: they were "
            "compacted, or they are transaction markers. Changes in compacted records are not shown."
        )
    if not log.knows_before:
        notes.append(
            "The state of the group at the start is incomplete, because the timeout ended before the older records "
            "were read; increase the timeout."
        )
    elif not log.before and not log.records and not is_known_now:
        notes.append("The coordinator has no records of this group; check the group id and bootstrap.servers.")
    if log.unsettled:
        notes.append(
            "A transaction of this group or of another group is open in the coordinator's partition; of the "
            f"{log.unsettled:,} later commits of this group, those in transactions may be aborted."
        )
    if log.unreadable:
        notes.append(
            f"{log.unreadable:,} records of the group have a format of a later Kafka version and are not shown."
        )
    return notes


def _topic_ids(log: GroupLog) -> set[UUID]:
    return {one.topic_id for record in (*log.before, *log.records) for one in _assigned(record)}


def _assigned(record: LoggedRecord) -> Assignment:
    match record.fact:
        case AssignmentRecorded(assigned=assigned, revoking=revoking):
            return assigned | revoking
        case TargetRecorded(target=target) if target is not None:
            return target
        case _:
            return frozenset()


def _partitions(log: GroupLog, names: Mapping[UUID, str], now: GroupPresent | None) -> list[TopicPartition]:
    """Return each partition with a committed offset or an owner."""
    found = set() if now is None else set(partitions_of(now.group, now.committed))
    for record in (*log.before, *log.records):
        match record.fact:
            case OffsetRecorded(partition=partition):
                found.add(partition)
            case ClassicGroupRecorded(group=group) if group is not None:
                found.update(partition for member in group.members for partition in member.assignment)
            case _:
                found.update(
                    TopicPartition(names[one.topic_id], one.partition)
                    for one in _assigned(record)
                    if one.topic_id in names
                )
    return sorted(found)


def _unknown_ends(last: Mapping[TopicPartition, int | BrokerRefusal | TransportError]) -> Sequence[str]:
    refused = {one: end for one, end in sorted(last.items()) if not isinstance(end, int)}
    if not refused:
        return []
    first, why = next(iter(refused.items()))
    reason = why.error.description if isinstance(why, BrokerRefusal) else str(why)
    summary = f"The lag of {len(refused):,} of {len(last):,} partitions in the past is unknown"
    return [f"{summary}, because their end offsets could not be read ({first.topic}[{first.partition}]: {reason})."]


async def _ends(
    cluster: Cluster, last: Mapping[TopicPartition, int], since: float, until: float
) -> Mapping[TopicPartition, Sequence[tuple[float, int]]]:
    """Return the end offset of each partition at some points in time: the offset of the first record not older."""
    if not last:
        return {}
    count = max(_LEAST_TIMES, min(_MOST_TIMES, _MOST_OFFSETS // len(last)))
    found: dict[TopicPartition, list[tuple[float, int]]] = {one: [] for one in last}
    for number in range(count):
        at = since + (until - since) * number / count
        offsets_at_time = await cluster.offsets_at(dict.fromkeys(last, int(at * 1000)))
        for partition, offset in offsets_at_time.items():
            if isinstance(offset, int):
                found[partition].append((at, offset if offset >= 0 else last[partition]))
    for partition, end in last.items():
        found[partition].append((until, end))
    return found
