"""The base of the coordinators of both protocols: the cluster's topics, the coordinator's node, and the journal.

A coordinator is pure: it receives requests and the time `now`, and returns responses, without I/O, clock or randomness.
The caller gives every request a key. Every call returns the responses that it releases, in order, each with the key of
its request: the response to its own request, unless that must wait, and responses to requests that waited. The
coordinator can move to another broker node: other nodes respond NOT_COORDINATOR, and the new coordinator responds
COORDINATOR_LOAD_IN_PROGRESS until it has loaded the groups.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.exchanges import (
    Alive,
    Answer,
    ClassicHeartbeat,
    Commit,
    CommitResults,
    Key,
    Released,
    Request,
)
from consumer_membership.testing.coordinators.journal import JournalEntry
from consumer_membership.testing.coordinators.rules import Refused, RequestRefusal
from consumer_membership.types import Instant, OffsetAndMetadata, Offsets, TopicIdPartition, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that exists."""

    name: str
    topic_id: UUID
    partitions: int

    def __iter__(self) -> Iterator[TopicIdPartition]:
        return (TopicIdPartition(self.topic_id, number) for number in range(self.partitions))


class GroupCoordinator(ABC):
    """The coordinator of all groups of a cluster, and the cluster's topics."""

    #: The groups by their ids.
    groups: dict[str, Any]
    #: How many characters of metadata a committed offset may have (offset.metadata.max.bytes).
    offset_metadata_max_bytes = 4096

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.topics: dict[str, Topic] = {}
        #: The events, oldest first, for checks.
        self.journal: deque[JournalEntry] = deque(maxlen=10_000)
        self._loading_until: Instant | None = None

    def process(
        self, key: Key, group_id: str, request: Request, now: Instant, *, node_id: int | None = None
    ) -> list[Released]:
        """Handle a request; return the released responses. `node_id`: the receiving broker (None: the coordinator)."""
        try:
            self.check(request, node_id, now)
            answer = self.handle(key, group_id, request, now)
        except RequestRefusal as refusal:
            answer = _refused(request, refusal.answer)
        released = self.take_released()
        return released if answer is None else [*released, Released(key, answer)]

    def answer(self, group_id: str, request: Request, now: Instant, *, node_id: int | None = None) -> Answer:
        """Return the response to a request that does not have to wait."""
        return self.process("asked", group_id, request, now, node_id=node_id)[-1].answer

    @abstractmethod
    def handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer | None:
        """Return the response to a request; None: `take_released` returns it later. Raises RequestRefusal."""

    def take_released(self) -> list[Released]:
        """Return and clear the responses that the groups have released; there are none if no request waits."""
        return []

    @abstractmethod
    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Make another node the coordinator, which first loads the groups; return the released responses."""

    @abstractmethod
    def pass_time(self, now: Instant) -> list[Released]:
        """Fire the session and rebalance timers that are due; return the released responses."""

    @abstractmethod
    def next_deadline(self) -> Instant | None:
        """Return when `pass_time` must be called next; None: no timer is running."""

    @abstractmethod
    def expel(self, group_id: str, member_id: str, now: Instant) -> list[Released]:
        """Remove a member as an administrator does (KIP-345, KAFKA-18188); return the released responses."""

    @abstractmethod
    def members(self, group_id: str) -> frozenset[str]:
        """Return the ids of the group's members."""

    @abstractmethod
    def is_settled(self, group_id: str) -> bool:
        """Return whether no rebalance is in progress in the group; an empty group is settled."""

    def waiting(self) -> frozenset[Key]:
        """Return the keys of the requests that wait for a response."""
        return frozenset()

    # ---- the cluster ----

    def create_topic(self, name: str, partitions: int, topic_id: UUID | None = None) -> None:
        """Create or replace a topic; without `topic_id`, the id is derived from the name."""
        topic_id = topic_id or uuid5(NAMESPACE_OID, name)
        self.topics[name] = Topic(name=name, topic_id=topic_id, partitions=partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its committed offsets."""
        self.topics.pop(name)
        for group in self.groups.values():
            for partition in [p for p in group.committed if p.topic == name]:
                del group.committed[partition]

    def names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the names of the existing topics among these ids, as Metadata by id does."""
        return {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id in topic_ids}

    def partitions_of(self, names: Collection[str] | None) -> dict[str, int]:
        """Return the partition counts of the existing topics among these names (None: all topics), as Metadata does."""
        return {name: topic.partitions for name, topic in self.topics.items() if names is None or name in names}

    def commit_errors(self, offsets: Offsets) -> Mapping[TopicPartition, int]:
        """Return the error code of each partition of a commit that the group accepts, 0 for success."""
        return {partition: self._commit_error(partition, at) for partition, at in offsets.items()}

    def _commit_error(self, partition: TopicPartition, at: OffsetAndMetadata) -> int:
        if not self._exists(partition):
            return code.UNKNOWN_TOPIC_OR_PARTITION
        # A broker counts UTF-16 code units, as Java does (rules 3.6: `String.length`).
        is_too_large = len(at.metadata.encode("utf-16-le")) // 2 > self.offset_metadata_max_bytes
        return code.OFFSET_METADATA_TOO_LARGE if is_too_large else 0

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition < topic.partitions

    def check(self, request: Request, node_id: int | None, now: Instant) -> None:  # noqa: ARG002 - for overrides
        """Raise RequestRefusal if this broker is not the coordinator or still loads; overrides add further checks."""
        if node_id is not None and node_id != self.node_id:
            raise RequestRefusal(code.NOT_COORDINATOR)
        if self.is_loading(now):
            raise RequestRefusal(code.COORDINATOR_LOAD_IN_PROGRESS)
        self._loading_until = None

    def is_loading(self, now: Instant) -> bool:
        """Return whether a node that has just become the coordinator still loads its groups."""
        return self._loading_until is not None and now < self._loading_until


def _refused(request: Request, refusal: Refused) -> Answer:
    """Return a refusal in the form of the request's response."""
    match request:
        case ClassicHeartbeat() if refusal.code == code.COORDINATOR_LOAD_IN_PROGRESS:
            # A broker that still loads the group reports no error (rules 4.10).
            return Alive()
        case Commit():
            return CommitResults(codes=dict.fromkeys(request.offsets, refusal.code))
        case _:
            return refusal
