"""What the coordinators of both protocols are alike in: the cluster's topics, which node speaks, the journal.

A coordinator is pure: requests in, answers out, `now` given; no I/O, no clock, no chance. Every request comes with a
key of the asker's, and every call returns the answers that it releases, in order, each with its request's key: that of
the request itself, where it need not wait, and those of others. Which broker node speaks for the groups can change:
the other nodes answer NOT_COORDINATOR, the new one COORDINATOR_LOAD_IN_PROGRESS for a while.
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
    """The coordinator of all groups of a cluster, and what the cluster knows of topics."""

    #: The groups that it knows.
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
        """Handle a request; `node_id` is the broker that was asked (None: the coordinator)."""
        try:
            self.check(request, node_id, now)
            answer = self.handle(key, group_id, request, now)
        except RequestRefusal as refusal:
            answer = _refused(request, refusal.answer)
        released = self.take_released()
        return released if answer is None else [*released, Released(key, answer)]

    def answer(self, group_id: str, request: Request, now: Instant, *, node_id: int | None = None) -> Answer:
        """Handle a request that need not wait."""
        return self.process("asked", group_id, request, now, node_id=node_id)[-1].answer

    @abstractmethod
    def handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer | None:
        """Handle a request; None: it waits. Raises Refusal."""

    def take_released(self) -> list[Released]:
        """Take what the groups have to say to those that waited."""
        return []

    @abstractmethod
    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Let another node be the coordinator; it loads its groups first."""

    @abstractmethod
    def pass_time(self, now: Instant) -> list[Released]:
        """Let what is due end."""

    @abstractmethod
    def next_deadline(self) -> Instant | None:
        """When `pass_time` has something to do."""

    @abstractmethod
    def expel(self, group_id: str, member_id: str, now: Instant) -> list[Released]:
        """Take a member out as an administrator does (KIP-345, KAFKA-18188)."""

    @abstractmethod
    def members(self, group_id: str) -> frozenset[str]:
        """The ids of the group's members."""

    @abstractmethod
    def is_settled(self, group_id: str) -> bool:
        """Whether nothing is under way in the group; a group without members is."""

    def waiting(self) -> frozenset[Key]:
        """The keys of the requests that will be answered later."""
        return frozenset()

    # ---- the cluster ----

    def create_topic(self, name: str, partitions: int, topic_id: UUID | None = None) -> None:
        """Create a topic, or create one again; the id follows from the name unless it is given."""
        topic_id = topic_id or uuid5(NAMESPACE_OID, name)
        self.topics[name] = Topic(name=name, topic_id=topic_id, partitions=partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and what was committed of it."""
        self.topics.pop(name)
        for group in self.groups.values():
            for partition in [p for p in group.committed if p.topic == name]:
                del group.committed[partition]

    def names_of(self, topic_ids: Collection[UUID]) -> dict[UUID, str]:
        """Answer Metadata by id: the names of those that exist."""
        return {topic.topic_id: topic.name for topic in self.topics.values() if topic.topic_id in topic_ids}

    def partitions_of(self, names: Collection[str] | None) -> dict[str, int]:
        """Answer Metadata by name: how many partitions those have that exist; None: all topics."""
        return {name: topic.partitions for name, topic in self.topics.items() if names is None or name in names}

    def commit_errors(self, offsets: Offsets) -> Mapping[TopicPartition, int]:
        """The error code of each partition of a commit that the group accepts."""
        return {partition: self._commit_error(partition, at) for partition, at in offsets.items()}

    def _commit_error(self, partition: TopicPartition, at: OffsetAndMetadata) -> int:
        if not self._exists(partition):
            return code.UNKNOWN_TOPIC_OR_PARTITION
        # A broker counts the characters of Java's strings (rules 3.6: `String.length`).
        is_too_large = len(at.metadata.encode("utf-16-le")) // 2 > self.offset_metadata_max_bytes
        return code.OFFSET_METADATA_TOO_LARGE if is_too_large else 0

    def _exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition < topic.partitions

    def check(self, request: Request, node_id: int | None, now: Instant) -> None:  # noqa: ARG002 - for bounds
        """Raises Refusal where this broker is not the coordinator, or not yet, or would refuse the request as one."""
        if node_id is not None and node_id != self.node_id:
            raise RequestRefusal(code.NOT_COORDINATOR)
        if self.is_loading(now):
            raise RequestRefusal(code.COORDINATOR_LOAD_IN_PROGRESS)
        self._loading_until = None

    def is_loading(self, now: Instant) -> bool:
        """Whether a node that has just become the coordinator still loads its groups."""
        return self._loading_until is not None and now < self._loading_until


def _refused(request: Request, refusal: Refused) -> Answer:
    """A refusal in the form of the request's answer."""
    match request:
        case ClassicHeartbeat() if refusal.code == code.COORDINATOR_LOAD_IN_PROGRESS:
            # A broker that does not know yet reports no error (rules 4.10).
            return Alive()
        case Commit():
            return CommitResults(codes=dict.fromkeys(request.offsets, refusal.code))
        case _:
            return refusal
