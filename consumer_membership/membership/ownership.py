"""What a member owns and what the coordinator wants it to own, by topic id; and what it has said of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from consumer_membership.types import Assignment, TopicIdPartition, TopicPartition


class Ownership:
    """Owned partitions and target of one membership.

    `target` is None until the coordinator has assigned something, if only an empty set. `target_number` counts the
    changes of the target and `reached` is the count that the last finished reconciliation began with. `statement`
    counts finished reconciliations: what the member says that it owns changes with it, also when the partitions are
    equal, so that an acknowledgement is never skipped (Java's local epoch).
    """

    __slots__ = ("is_first", "names", "owned", "reached", "statement", "target", "target_number")

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        #: Each owned partition with the member epoch at which it was taken.
        self.owned: dict[TopicIdPartition, int] = {}
        self.target: Assignment | None = None
        self.target_number = 0
        self.reached = 0
        self.statement = 0
        #: Whether this membership has not finished a reconciliation yet.
        self.is_first = True

    def take_target(self, target: Assignment) -> bool:
        """Take what the coordinator assigned; whether it is a change."""
        if self.target == target:
            return False
        self.target = target
        self.target_number += 1
        return True

    @property
    def unresolved(self) -> frozenset[UUID]:
        """The topic ids of the target that have no name yet."""
        return frozenset(p.topic_id for p in self.target or () if p.topic_id not in self.names)

    @property
    def is_settled(self) -> bool:
        """Whether exactly the target is owned and its last change was reached."""
        return self.target is not None and self.owned.keys() == self.target and self.is_reached

    @property
    def is_reached(self) -> bool:
        """Whether the last finished reconciliation began with the present target."""
        return self.reached == self.target_number

    @property
    def held(self) -> frozenset[TopicPartition]:
        """The owned partitions by name."""
        return self.named(self.owned)

    def named(self, partitions: Iterable[TopicIdPartition]) -> frozenset[TopicPartition]:
        """The partitions whose topic has a known name, by that name."""
        names = self.names
        return frozenset(TopicPartition(names[p.topic_id], p.partition) for p in partitions if p.topic_id in names)

    def surplus(self) -> Assignment:
        """What is owned and not in the target: to be revoked. An id without a name still counts as wanted."""
        return frozenset(self.owned.keys() - (self.target or frozenset()))

    def missing(self) -> Assignment:
        """What is in the target, not owned, and has a name: to be added."""
        return frozenset(p for p in (self.target or frozenset()) - self.owned.keys() if p.topic_id in self.names)

    def drop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """These are not owned any more."""
        for partition in tuple(partitions):
            self.owned.pop(partition, None)

    def finish(self, added: Assignment, member_epoch: int, target_number: int) -> None:
        """A reconciliation that began with this target number ended: there is a new statement to make."""
        self.owned.update(dict.fromkeys(added, member_epoch))
        self.is_first = False
        self.reached = target_number
        self.statement += 1
        keep = {p.topic_id for p in self.owned} | {p.topic_id for p in self.target or ()}
        self.names = {topic_id: name for topic_id, name in self.names.items() if topic_id in keep}

    def resolve(self, names: Mapping[UUID, str]) -> None:
        """Learn topic names; an id keeps its name, for what is held is given up by the name it was assigned with."""
        self.names = {topic_id: name for topic_id, name in names.items() if name} | self.names

    def forget(self) -> None:
        """The membership is over."""
        self.owned.clear()
        self.names.clear()
        self.target = None
        self.reached = self.target_number
        self.is_first = True
