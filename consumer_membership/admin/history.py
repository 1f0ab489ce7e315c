"""What a group was before anybody looked: its coordinator's own records, and where topics ended at that time.

Whoever may read `__consumer_offsets` has it afterwards, of any client's group. What is missing of it, for want of a
right, of time, or since compaction took it, is said in `notes`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from consumer_membership.errors import GroupError, MembershipError, TransportError
from consumer_membership.runtime import group_log
from consumer_membership.runtime.group_log import (
    AssignmentRecorded,
    ClassicGroupRecorded,
    GroupLog,
    LoggedRecord,
    OffsetRecorded,
    TargetRecorded,
)
from consumer_membership.runtime.network.cluster import BrokerRefusal, Cluster
from consumer_membership.types import Assignment, TopicPartition

#: Questions for the end of a partition at a moment, in all; and for how many moments at least and at most.
_MOST_QUESTIONS, _LEAST_MOMENTS, _MOST_MOMENTS = 40_000, 6, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """The records of one group since a moment; times are in seconds since 1970, by the brokers' clocks.

    `before` has the latest of each kind and member from before that moment. `ends` are where each partition ended at
    some moments, the oldest first, by its records' own times. `notes` say in words what is missing.
    """

    group_id: str
    since: float
    until: float
    before: tuple[LoggedRecord, ...] = ()
    records: tuple[LoggedRecord, ...] = ()
    topic_names: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    ends: Mapping[TopicPartition, Sequence[tuple[float, int]]] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()


async def history_of(
    cluster: Cluster, config: Mapping[str, object], group_id: str, since: float, timeout_s: float
) -> GroupHistory:
    """The records of this group since then; none, and a note, where they may not be read.

    Raises:
        TransportError: no broker of the cluster answered.
    """
    await cluster.brokers(timeout_s)
    until = time.time()
    try:
        log = await asyncio.to_thread(group_log.read_group_log, config, group_id, since, timeout_s)
    except (GroupError, TransportError) as error:
        return GroupHistory(group_id=group_id, since=since, until=until, notes=(f"Nothing older is shown: {error}",))
    notes = list(_missing(log))
    try:
        names = await cluster.topic_names(frozenset(_topic_ids(log)), timeout_s)
        ends = await _ends(cluster, _partitions(log, names), since, until)
    except (BrokerRefusal, MembershipError) as error:
        names, ends = {}, {}
        notes.append(f"Topics that records name could not be looked up, and have no lag before the first look: {error}")
    return GroupHistory(
        group_id=group_id,
        since=since,
        until=until,
        before=log.before,
        records=log.records,
        topic_names=names,
        ends=ends,
        notes=tuple(notes),
    )


def _missing(log: GroupLog) -> Sequence[str]:
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


def _partitions(log: GroupLog, names: Mapping[UUID, str]) -> list[TopicPartition]:
    """Every partition that was committed or that a member had."""
    found: set[TopicPartition] = set()
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


async def _ends(
    cluster: Cluster, partitions: Sequence[TopicPartition], since: float, until: float
) -> Mapping[TopicPartition, Sequence[tuple[float, int]]]:
    """Where each partition ended at some moments: the offset of the first record that is not older."""
    if not partitions:
        return {}
    last = {one: end for one, end in (await cluster.end_offsets(partitions)).items() if isinstance(end, int)}
    count = max(_LEAST_MOMENTS, min(_MOST_MOMENTS, _MOST_QUESTIONS // len(partitions)))
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
