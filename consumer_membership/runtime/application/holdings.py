"""The partitions of one session, as steps, commits and subscriptions see them.

Two classes have this interface: `fetcher.Fetcher`, which also has librdkafka fetch the partitions, and `OwnedOnly` for
a member that fetches nothing. A rebalance therefore runs the same code with and without a handle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from consumer_membership.runtime.application.locks import FairLock
from consumer_membership.types import OffsetAndMetadata, TopicPartition


class HeldPartitions(Protocol):
    """The assigned partitions of one session; the caller of each method holds `lock`."""

    lock: FairLock
    #: Partitions that the group assigned, and those that the application assigned itself.
    held: set[TopicPartition]
    by_hand: set[TopicPartition]
    #: Partitions whose revocation is running.
    frozen: set[TopicPartition]

    @property
    def assigned(self) -> set[TopicPartition]:
        """All assigned partitions."""

    def add_for_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Add these partitions, which the group assigned, with these start offsets."""

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Give up these partitions."""

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the fetched records of these partitions, which another member may own already."""

    def freeze(self, partitions: Collection[TopicPartition]) -> None:
        """Hold back exactly these for their revocation."""

    def thaw(self, partitions: Collection[TopicPartition]) -> None:
        """Resume these: they are not revoked after all."""

    def restrict_to(self, topics: frozenset[str] | None) -> None:
        """Return no records of the group's partitions, except for these topics (None: all)."""

    def prefetch_metadata(self, topics: Collection[str]) -> None:
        """Prepare for partitions of these topics."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit of all assigned partitions if every returned record counts as consumed."""

    def survive_fork(self) -> None:
        """In a forked child: make this safe to keep and to delete."""


class OwnedOnly:
    """The partitions of a member that fetches nothing: it has no handle of librdkafka and no records."""

    def __init__(self) -> None:
        self.lock = FairLock()
        self.held: set[TopicPartition] = set()
        self.by_hand: set[TopicPartition] = set()
        self.frozen: set[TopicPartition] = set()

    @property
    def assigned(self) -> set[TopicPartition]:
        """The partitions that the group assigned."""
        return self.held

    def add_for_group(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Add these partitions; their start offsets have no meaning here."""
        self.held |= offsets.keys()

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Give up these partitions."""
        self.held.difference_update(partitions)
        self.frozen.difference_update(partitions)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """There are no records."""

    def freeze(self, partitions: Collection[TopicPartition]) -> None:
        """Note exactly these as partitions whose revocation is running."""
        self.frozen = set(partitions) & self.held

    def thaw(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these are not revoked after all."""
        self.frozen.difference_update(partitions)

    def restrict_to(self, topics: frozenset[str] | None) -> None:
        """There are no records."""

    def prefetch_metadata(self, topics: Collection[str]) -> None:
        """Do nothing: no record is fetched."""

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return no offsets: no record is consumed, and the application names the offsets that it commits."""
        return {}

    def survive_fork(self) -> None:
        """Do nothing: this object uses nothing of the parent process."""
