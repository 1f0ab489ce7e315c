"""Read a group and its environment as one value, in which failed requests are part of the result.

`describe` raises if it cannot read the data. A survey is for a diagnosis: a failed request is itself a finding.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from consumer_membership.admin.access import AdminAccess, OffsetOrFailure
from consumer_membership.admin.cluster_client import ClusterMetadata, OpenTransaction
from consumer_membership.admin.inquiry import described
from consumer_membership.admin.progress import Committed, partitions_of
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.group_client import BrokerRefusal, GroupDescription
from consumer_membership.types import BrokerAddress, BrokerError, TopicPartition

AnswerT = TypeVar("AnswerT")

#: The error name of a request without a response in time.
_SILENCE = "_TIMED_OUT"
#: Each request has this share of the timeout, so that an unavailable coordinator leaves time for the others.
_SHARE = 0.4


class Subject(Enum):
    """The parts of a survey, each of which may fail."""

    COORDINATOR = "the coordinator"
    GROUP = "the group"
    COMMITTED = "committed offsets"
    TOPICS = "topics"
    TRANSACTIONS = "open transactions"
    BROKER_SETTINGS = "the broker's settings"
    GROUP_SETTINGS = "the group's settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSurvey:
    """A topic: the node id of each partition's leader (None: no leader), or the error of the request."""

    leaders: Mapping[int, int | None]
    is_internal: bool
    error: BrokerError | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOffsets:
    """The offsets of a partition; None if not requested, or if the request failed with `error`."""

    start: int | None
    end: int | None
    #: The last stable offset: consumers with read_committed receive no records from here on.
    stable: int | None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """A group and its environment at one point in time.

    `group` and `coordinator` are None if their requests failed; `refusals` has all errors. `topics` contains subscribed
    and assigned topics and topics with committed offsets; `offsets` has all their partitions. `at` is in seconds since
    1970, by this machine's clock.
    """

    group_id: str
    at: float
    coordinator: BrokerAddress | None
    group: GroupDescription | None
    committed: Committed
    topics: Mapping[str, TopicSurvey]
    offsets: Mapping[TopicPartition, PartitionOffsets]
    transactions: tuple[OpenTransaction, ...]
    broker_settings: Mapping[str, str]
    group_settings: Mapping[str, str]
    refusals: Mapping[Subject, BrokerError]


async def surveyed(access: AdminAccess, group_id: str, timeout_s: float, *, in_depth: bool) -> GroupSurvey:
    """Return the current survey of the group.

    Raises:
        TransportError: No broker of the cluster responded.
    """
    await access.cluster.brokers(timeout_s)
    return await _Surveyor(access, group_id, timeout_s * _SHARE).survey(in_depth=in_depth)


class _Surveyor:
    """Sends the requests of one survey and collects the errors."""

    def __init__(self, access: AdminAccess, group_id: str, patience_s: float) -> None:
        self._cluster, self._groups, self._surveys = access.cluster, access.groups, access.surveys
        self._group_id = group_id
        self._patience_s = patience_s
        self._refusals: dict[Subject, BrokerError] = {}

    async def survey(self, *, in_depth: bool) -> GroupSurvey:
        at = time.time()
        coordinator, group, committed = await self._of_coordinator()
        names = _names_of(group, committed)
        metadata = await self._result_of(Subject.TOPICS, self._cluster.metadata(names, self._patience_s))
        topics = {} if metadata is None else _topics(metadata, names)
        known = {TopicPartition(name, number) for name, topic in topics.items() for number in topic.leaders}
        mentioned = () if group is None else partitions_of(group, committed)
        offsets = await self._offsets(sorted({*known, *committed, *mentioned}), in_depth=in_depth)
        transactions: tuple[OpenTransaction, ...] = ()
        broker_settings: Mapping[str, str] = {}
        group_settings: Mapping[str, str] = {}
        if in_depth and metadata is not None:
            blocked = [partition for partition, one in offsets.items() if _is_blocked(one)]
            if blocked:
                listed = self._surveys.open_transactions(metadata, blocked, self._patience_s)
                transactions = await self._result_of(Subject.TRANSACTIONS, listed) or ()
            broker = coordinator or next(iter(metadata.brokers.values()), None)
            if broker is not None:
                broker_read = self._surveys.broker_settings(broker, self._patience_s)
                broker_settings = await self._result_of(Subject.BROKER_SETTINGS, broker_read) or {}
                group_read = self._surveys.group_settings(broker, self._group_id, self._patience_s)
                group_settings = await self._result_of(Subject.GROUP_SETTINGS, group_read) or {}
        return GroupSurvey(
            group_id=self._group_id,
            at=at,
            coordinator=coordinator,
            group=group,
            committed=committed,
            topics=topics,
            offsets=offsets,
            transactions=transactions,
            broker_settings=broker_settings,
            group_settings=group_settings,
            refusals=dict(self._refusals),
        )

    async def _of_coordinator(self) -> tuple[BrokerAddress | None, GroupDescription | None, Committed]:
        coordinator = await self._result_of(
            Subject.COORDINATOR, self._persist("the coordinator", lambda at, _: _itself(at))
        )
        if coordinator is None:
            return None, None, {}
        group = await self._result_of(
            Subject.GROUP,
            self._persist(
                "the group", lambda at, left_s: described(self._groups, at, self._group_id, lambda: max(0.0, left_s))
            ),
        )
        committed = await self._result_of(
            Subject.COMMITTED,
            self._persist(
                "committed offsets", lambda at, left_s: self._groups.all_committed(at, self._group_id, left_s)
            ),
        )
        return coordinator, group, {} if committed is None else committed

    async def _offsets(
        self, partitions: Sequence[TopicPartition], *, in_depth: bool
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        # Read the last stable offset before the end, so that it is never above the end. If it is below the end, the
        # list of open transactions shows whether a transaction is the reason.
        nothing: Mapping[TopicPartition, OffsetOrFailure] = {}
        stable = await self._of_leaders(self._cluster.stable_offsets, partitions) if in_depth else nothing
        ends = await self._of_leaders(self._cluster.end_offsets, partitions)
        starts = await self._of_leaders(self._cluster.start_offsets, partitions) if in_depth else nothing
        return {
            one: PartitionOffsets(
                start=_number(starts.get(one)),
                end=_number(ends.get(one)),
                stable=_number(stable.get(one)),
                error=_reason(ends.get(one)),
            )
            for one in partitions
        }

    async def _of_leaders(
        self,
        request: Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, OffsetOrFailure]]],
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, OffsetOrFailure]:
        return await self._result_of(Subject.TOPICS, request(partitions)) or {}

    async def _persist(self, what: str, request: Callable[[BrokerAddress, float], Awaitable[AnswerT]]) -> AnswerT:
        return await self._cluster.with_coordinator(self._group_id, what, self._patience_s, request)

    async def _result_of(self, subject: Subject, request: Awaitable[AnswerT]) -> AnswerT | None:
        """Return the response, or None after storing the error."""
        try:
            async with asyncio.timeout(self._patience_s):
                return await request
        except BrokerRefusal as refusal:
            self._refusals[subject] = refusal.error
        except (TransportError, TimeoutError) as error:
            self._refusals[subject] = BrokerError(code=-185, name=_SILENCE, message=str(error) or "no response in time")
        return None


async def _itself(coordinator: BrokerAddress) -> BrokerAddress:
    return coordinator


def _names_of(group: GroupDescription | None, committed: Committed) -> frozenset[str]:
    """Return the topics with a subscription, an assignment or a committed offset."""
    of_members = () if group is None else group.members
    subscribed = {name for member in of_members for name in member.topics}
    held = () if group is None else partitions_of(group, committed)
    return frozenset(subscribed | {one.topic for one in held} | {one.topic for one in committed})


def _topics(metadata: ClusterMetadata, names: frozenset[str]) -> Mapping[str, TopicSurvey]:
    return {
        name: TopicSurvey(
            leaders={number: one.leader for number, one in sorted(topic.partitions.items())},
            is_internal=topic.is_internal,
            error=topic.error,
        )
        for name, topic in sorted(metadata.topics.items())
        if name in names
    }


def _is_blocked(offsets: PartitionOffsets) -> bool:
    return offsets.stable is not None and offsets.end is not None and offsets.stable < offsets.end


def _number(offset: OffsetOrFailure | None) -> int | None:
    return offset if isinstance(offset, int) else None


def _reason(offset: OffsetOrFailure | None) -> str:
    return "" if offset is None or isinstance(offset, int) else str(offset)
