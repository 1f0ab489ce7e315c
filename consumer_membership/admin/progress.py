"""Combine the committed offsets of a group with the ends and owners of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_random_exponential,
)

from consumer_membership.admin.access import ClusterRequests, OffsetOrFailure
from consumer_membership.errors import TransportError
from consumer_membership.runtime.network.group_client import (
    BrokerRefusal,
    GroupDescription,
    MemberDescription,
)
from consumer_membership.translation.offset_metadata import decode
from consumer_membership.types import BrokerAddress, BrokerError, OffsetAndMetadata, TopicPartition

Committed = Mapping[TopicPartition, OffsetAndMetadata | BrokerError]
LogEnds = Mapping[TopicPartition, OffsetOrFailure]

TOPIC_FORBIDDEN = "TOPIC_AUTHORIZATION_FAILED"

#: A second attempt finds a leader that has just moved; no attempt finds a deleted topic.
_ATTEMPTS = 3
_BACKOFF_S, _BACKOFF_MAX_S = 0.1, 0.5

_NOTHING_COMMITTED = "nothing committed"
_BEYOND_THE_END = "the committed offset is beyond the end: the topic was truncated or recreated"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """The offsets and the owner of one partition of a group; for an unknown value (None), `note` has the reason.

    `owner` and `next_owner` are member ids; `next_owner` is set only if the target assignment has another owner.
    """

    topic: str
    partition: int
    #: The next offset that the group consumes; None: nothing is committed, or it could not be read.
    committed: int | None
    #: The partition's high watermark, as in kafka-consumer-groups.sh; records of open transactions count.
    end: int | None
    #: `end` - `committed`, as in kafka-consumer-groups.sh; offsets that are finished beyond `committed` count.
    lag: int | None
    owner: str | None
    next_owner: str | None
    note: str = ""
    #: How many offsets beyond `committed` a `Processor` of this package has finished, according to the metadata of its
    #: commit. The first unfinished record is then at `committed`.
    finished_beyond: int = 0

    @property
    def remaining(self) -> int | None:
        """The lag without the offsets that are finished beyond the committed offset; None if the lag is unknown."""
        return None if self.lag is None else max(0, self.lag - self.finished_beyond)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """A group, its coordinator, and each partition that has a committed offset, an owner or a next owner."""

    group: GroupDescription
    coordinator: BrokerAddress
    partitions: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int | None:
        """The total lag of the partitions with a known lag; None if it is unknown for all."""
        return _sum_of_known(partition.lag for partition in self.partitions)

    @property
    def remaining(self) -> int | None:
        """The total of `PartitionProgress.remaining`; None if it is unknown for all partitions."""
        return _sum_of_known(partition.remaining for partition in self.partitions)


def _sum_of_known(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def partitions_of(group: GroupDescription, committed: Committed) -> tuple[TopicPartition, ...]:
    """Return each partition with a committed offset, an owner or a next owner, sorted."""
    assigned = (partition for member in group.members for partition in (*member.assignment, *(member.target or ())))
    return tuple(sorted({*committed, *assigned}))


async def end_offsets(cluster: ClusterRequests, partitions: Sequence[TopicPartition]) -> LogEnds:
    """Return the end of each partition or the error; the request is retried if a leader may have moved.

    Raises:
        BrokerRefusal, TransportError: The leaders of the partitions are unknown.
    """
    found: dict[TopicPartition, int | BrokerRefusal | TransportError] = {}

    async def request() -> bool:
        missing = [partition for partition in partitions if not isinstance(found.get(partition), int)]
        found.update(await cluster.end_offsets(missing))
        return any(_may_pass(answer) for answer in found.values())

    retrying = AsyncRetrying(
        retry=retry_if_result(bool) | retry_if_exception_type(TransportError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(multiplier=_BACKOFF_S, max=_BACKOFF_MAX_S),
        retry_error_callback=_end,
    )
    await retrying(request)
    return found


def _end(state: RetryCallState) -> None:
    """Accept a partial result after the last attempt, but raise if the leaders are unknown."""
    if state.outcome is not None:
        state.outcome.result()


def _may_pass(answer: int | BrokerRefusal | TransportError) -> bool:
    return isinstance(answer, TransportError) or (isinstance(answer, BrokerRefusal) and answer.retriable)


def progress(group: GroupDescription, committed: Committed, ends: LogEnds) -> tuple[PartitionProgress, ...]:
    """Return the rows of the report, one for each partition in `ends`."""
    owners = _holders((member, member.assignment) for member in group.members)
    next_owners = _holders((member, member.target or frozenset()) for member in group.members)
    return tuple(
        _row(
            partition,
            committed.get(partition),
            ends[partition],
            owner=owners.get(partition),
            next_owner=next_owners.get(partition),
        )
        for partition in sorted(ends)
    )


def _holders(held: Iterable[tuple[MemberDescription, frozenset[TopicPartition]]]) -> Mapping[TopicPartition, str]:
    return {partition: member.member_id for member, partitions in held for partition in partitions}


def _row(
    partition: TopicPartition,
    committed: OffsetAndMetadata | BrokerError | None,
    end: int | BrokerRefusal | TransportError,
    *,
    owner: str | None,
    next_owner: str | None,
) -> PartitionProgress:
    known_offset = committed.offset if isinstance(committed, OffsetAndMetadata) else None
    known_end = end if isinstance(end, int) else None
    lag = None if known_offset is None or known_end is None else known_end - known_offset
    finished = decode(committed.metadata, committed.offset) if isinstance(committed, OffsetAndMetadata) else None
    return PartitionProgress(
        topic=partition.topic,
        partition=partition.partition,
        committed=known_offset,
        end=known_end,
        lag=None if lag is None or lag < 0 else lag,
        owner=owner,
        next_owner=None if next_owner == owner else next_owner,
        note=_note(partition.topic, committed, end, lag),
        finished_beyond=0 if finished is None else finished.count,
    )


def _note(
    topic: str,
    committed: OffsetAndMetadata | BrokerError | None,
    end: int | BrokerRefusal | TransportError,
    lag: int | None,
) -> str:
    """Return why the lag is unknown, or an empty string."""
    if isinstance(end, BrokerRefusal) and end.error.name == TOPIC_FORBIDDEN:
        # Brokers silently omit such topics from committed offsets.
        return f"not authorized: allow the ACL operation DESCRIBE on topic {topic}"
    reasons = []
    if committed is None:
        reasons.append(_NOTHING_COMMITTED)
    elif isinstance(committed, BrokerError):
        reasons.append(f"committed offset unknown: {committed}")
    if not isinstance(end, int):
        reasons.append(f"end offset unknown: {end}")
    if lag is not None and lag < 0:
        reasons.append(_BEYOND_THE_END)
    return "; ".join(reasons)
