"""What a group was before anybody looked: its coordinator's own records, and where topics ended at that time.

Whoever may read `__consumer_offsets` has it afterwards, of any client's group. What is missing of it, for want of a
right, of time, or since compaction took it, is said in `notes`.

How the group is now is asked first. What nobody wrote down since a moment was then as it is now, so that the log has to
be read back only to what changed: a partition of years costs no more than one of days.
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

#: In these states a coordinator's answer is what it has written down: no rebalance is under way.
_AT_REST = frozenset({"Stable", "Empty"})
#: How much of the time the questions about the present may take.
_PRESENT_SHARE = 0.2

#: Questions for the end of a partition at a moment, in all; and for how many moments at least and at most.
_MOST_QUESTIONS, _LEAST_MOMENTS, _MOST_MOMENTS = 40_000, 6, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPresent:
    """A group at rest, as its coordinator describes it, and all that it has committed."""

    group: GroupDescription
    committed: Committed


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Which group, and since when.

    `grain_s`: of commits of a partition within so many seconds one is enough. `on_progress` is told now and then, by
    another thread, how far the reading is.
    """

    group_id: str
    since: float
    grain_s: float = 0.0
    on_progress: Callable[[ReadingProgress], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """The records of one group since a moment; times are in seconds since 1970, by the brokers' clocks.

    `before` has the latest of each kind and member from before that moment, at least of those that changed since;
    where `now` is there, the others were as they are in it. `ends` are where each partition ended at some moments, the
    oldest first, by its records' own times. `notes` say in words what is missing.
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
    cluster: Cluster, config: Mapping[str, object], question: HistoryQuery, timeout_s: float
) -> GroupHistory:
    """The records of this group since then; none, and a note, where they may not be read.

    Raises:
        TransportError: no broker of the cluster answered.
    """
    await cluster.brokers(timeout_s)
    group_id, since = question.group_id, question.since
    # Before the end of the log is looked at: what has changed behind this answer is in the log.
    now = await _present(cluster, group_id, timeout_s * _PRESENT_SHARE)
    until = time.time()
    try:
        log = await _read(config, question, timeout_s, is_known_now=now is not None)
    except (GroupError, TransportError) as error:
        return GroupHistory(group_id=group_id, since=since, until=until, notes=(f"Nothing older is shown: {error}",))
    notes = list(_missing(log, is_known_now=now is not None))
    try:
        names = await cluster.topic_names(frozenset(_topic_ids(log)), timeout_s)
        partitions = _partitions(log, names, now)
        last = await cluster.end_offsets(partitions)
        notes += _unknown_ends(last)
        ends = await _ends(cluster, {one: end for one, end in last.items() if isinstance(end, int)}, since, until)
    except (BrokerRefusal, MembershipError) as error:
        names, ends = {}, {}
        notes.append(f"Topics that records name could not be looked up, and have no lag before the first look: {error}")
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
    """The group as it is now; None where that is not told, or about to change."""
    groups = GroupClient(cluster)
    try:
        group = await cluster.with_coordinator(
            group_id, "the group", timeout_s, lambda at, left_s: described(groups, at, group_id, lambda: left_s)
        )
        committed = await cluster.with_coordinator(
            group_id, "committed offsets", timeout_s, lambda at, left_s: groups.all_committed(at, group_id, left_s)
        )
    except (BrokerRefusal, TransportError):
        # All of the log has to be read then.
        return None
    return GroupPresent(group=group, committed=committed) if group.state in _AT_REST else None


async def _read(
    config: Mapping[str, object], question: HistoryQuery, timeout_s: float, *, is_known_now: bool
) -> GroupLog:
    """The log, on a thread, which ends soon after this is cancelled: asyncio waits for it."""
    is_cancelled = threading.Event()

    def goes_on(progress: ReadingProgress) -> bool:
        if question.on_progress is not None:
            question.on_progress(progress)
        return not is_cancelled.is_set()

    asked = LogQuery(
        group_id=question.group_id,
        since=question.since,
        timeout_s=timeout_s,
        grain_s=question.grain_s,
        is_known_now=is_known_now,
    )
    try:
        return await asyncio.to_thread(group_log.read_group_log, config, asked, goes_on)
    finally:
        is_cancelled.set()


def _missing(log: GroupLog, *, is_known_now: bool) -> Sequence[str]:
    gone = log.offsets - log.kept
    notes = []
    if not log.is_whole:
        notes.append("There was no time to read all of the coordinator's records: the latest are missing; allow more.")
    elif gone > 0:
        notes.append(
            f"Of {log.offsets:,} offsets that the coordinator's partition gave in this time, or right before it, "
            f"{gone:,} hold no record of a group any more: compaction took them, or they mark the ends of "
            "transactions. Where it was compaction, what changed back and forth in between is not shown."
        )
    if not log.knows_before:
        notes.append(
            "There was no time to read the coordinator's records back to the last ones before this time: how the group "
            "was at its begin is shown in part only; allow more."
        )
    elif not log.before and not log.records and not is_known_now:
        notes.append("The coordinator has no record of this group: check its name, and bootstrap.servers.")
    if log.unsettled:
        notes.append(
            "A transaction, of this group or another one, is open in the coordinator's partition: of the "
            f"{log.unsettled:,} later commits of this group that are shown those in transactions may be taken back."
        )
    if log.unreadable:
        notes.append(f"{log.unreadable:,} of the group's records are of a later Kafka than is known here.")
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
    """Every partition that was committed or that a member had."""
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
    said = why.error.words if isinstance(why, BrokerRefusal) else str(why)
    lacking = (
        f"Of {len(last):,} partitions {len(refused):,} have no lag before the first look, for their ends are not told"
    )
    return [f"{lacking} ({first.topic}[{first.partition}]: {said})."]


async def _ends(
    cluster: Cluster, last: Mapping[TopicPartition, int], since: float, until: float
) -> Mapping[TopicPartition, Sequence[tuple[float, int]]]:
    """Where each partition ended at some moments: the offset of the first record that is not older."""
    if not last:
        return {}
    count = max(_LEAST_MOMENTS, min(_MOST_MOMENTS, _MOST_QUESTIONS // len(last)))
    found: dict[TopicPartition, list[tuple[float, int]]] = {one: [] for one in last}
    for number in range(count):
        at = since + (until - since) * number / count
        asked = await cluster.offsets_at(dict.fromkeys(last, int(at * 1000)))
        for partition, offset in asked.items():
            if isinstance(offset, int):
                found[partition].append((at, offset if offset >= 0 else last[partition]))
    for partition, end in last.items():
        found[partition].append((until, end))
    return found
