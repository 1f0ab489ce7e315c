"""The partitions that a member owns and those that the coordinator assigned to it, by topic id."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from uuid import UUID

from consumer_membership.types import Assignment, TopicIdPartition, TopicPartition


class Ownership:
    """Owned partitions and target of one membership.

    `target` is None until the coordinator has sent an assignment, even an empty one. `target_number` counts the
    changes of the target and `reached` is the count that the last finished reconciliation began with. `version`
    counts finished reconciliations: the acknowledged version changes with it, even if the partitions are
    equal, so that an acknowledgement is never skipped (Java's local epoch).
    """

    __slots__ = (
        "_named_owned",
        "_named_target",
        "_unresolved",
        "assigned",
        "is_first",
        "names",
        "owned",
        "reached",
        "target",
        "target_number",
        "version",
        "withheld",
    )

    def __init__(self) -> None:
        self.names: dict[UUID, str] = {}
        #: Each owned partition with the member epoch at which it was taken.
        self.owned: dict[TopicIdPartition, int] = {}
        #: Owned partitions that the application does not have, because its callbacks follow the eager protocol: the
        #: next assignment returns them.
        self.withheld: Assignment = frozenset()
        #: The partitions that on_assign has received since the member last left its group in order.
        self.assigned: set[TopicPartition] = set()
        self.target: Assignment | None = None
        self.target_number = 0
        self.reached = 0
        self.version = 0
        #: Whether the next reconciliation calls on_assign even if it assigns nothing: a membership's first.
        self.is_first = True
        self._changed()

    def _changed(self) -> None:
        """Drop cached values: they are read at each event and cost a pass over all partitions."""
        self._unresolved: frozenset[UUID] | None = None
        self._named_owned: Mapping[TopicPartition, int] | None = None
        self._named_target: frozenset[TopicPartition] | None = None

    def take_target(self, target: Assignment) -> bool:
        """Set the coordinator's assignment; return whether it is a change."""
        if self.target == target:
            return False
        self.target = target
        self.target_number += 1
        self._changed()
        return True

    @property
    def unresolved(self) -> frozenset[UUID]:
        """The topic ids of the target that have no name yet."""
        if self._unresolved is None:
            topic_ids = {p.topic_id for p in self.target or ()}
            self._unresolved = frozenset(topic_ids - self.names.keys())
        return self._unresolved

    def count_unresolved(self) -> int:
        """Return how many partitions of the target have no name yet."""
        unresolved = self.unresolved
        return sum(1 for p in self.target or () if p.topic_id in unresolved) if unresolved else 0

    @property
    def named_owned(self) -> Mapping[TopicPartition, int]:
        """The owned partitions by name, each with the member epoch at which it was taken; not to be changed."""
        if self._named_owned is None:
            names = self.names
            self._named_owned = {
                TopicPartition(names[p.topic_id], p.partition): epoch
                for p, epoch in self.owned.items()
                if p.topic_id in names
            }
        return self._named_owned

    @property
    def named_target(self) -> frozenset[TopicPartition]:
        """The target by name, as far as its topic ids have one."""
        if self._named_target is None:
            self._named_target = self.named(self.target or ())
        return self._named_target

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
        """Return the partitions whose topic has a known name, by that name."""
        names = self.names
        return frozenset(TopicPartition(names[p.topic_id], p.partition) for p in partitions if p.topic_id in names)

    def surplus(self) -> Assignment:
        """Return the owned partitions to revoke: not in the target. An id without a name counts as wanted."""
        return frozenset(self.owned.keys() - (self.target or frozenset()))

    def missing(self) -> Assignment:
        """Return the partitions of the target that are not owned and have a name, which are to be added."""
        return frozenset(p for p in (self.target or frozenset()) - self.owned.keys() if p.topic_id in self.names)

    def given_up(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions among these that are in `assigned` and are not owned now."""
        return frozenset(p for p in partitions if p in self.assigned and p not in self.named_owned)

    def drop(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Remove these partitions, which are not owned any more."""
        for partition in tuple(partitions):
            self.owned.pop(partition, None)
        self.withheld &= self.owned.keys()
        self._changed()

    def withhold(self, partitions: Assignment) -> None:
        """Note that the application released these, which stay owned; the next assignment returns them."""
        self.withheld |= partitions & self.owned.keys()

    def add(self, partitions: Iterable[TopicIdPartition], member_epoch: int) -> None:
        """Add these partitions, which the member took at this epoch."""
        self.owned.update(dict.fromkeys(partitions, member_epoch))
        self.withheld = self.withheld.difference(partitions)
        self._changed()

    def finish(self, added: Assignment, member_epoch: int, target_number: int) -> None:
        """End a reconciliation that began with this target number: there is a new acknowledgement to send."""
        self.add(added, member_epoch)
        self.is_first = False
        self.reached = target_number
        self.version += 1
        keep = {p.topic_id for p in self.owned} | {p.topic_id for p in self.target or ()}
        self.names = {topic_id: name for topic_id, name in self.names.items() if topic_id in keep}
        self._changed()

    def resolve(self, names: Mapping[UUID, str]) -> None:
        """Learn topic names; an id keeps its name, by which its partitions are released later."""
        self.names = {topic_id: name for topic_id, name in names.items() if name} | self.names
        self._changed()

    def prepare_next(self, *, is_first: bool) -> None:
        """Set whether the next reconciliation calls on_assign even if it assigns nothing."""
        self.is_first = is_first

    def forget(self) -> None:
        """Forget the owned partitions and the target: the membership has ended."""
        self.owned.clear()
        self.withheld = frozenset()
        self.names.clear()
        self.target = None
        self.reached = self.target_number
        self.is_first = True
        self._changed()
