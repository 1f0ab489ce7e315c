"""The KIP-848 coordinator of `tests.simulation` as a part of a state."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from consumer_membership.membership.effects import CommitOffsets, DescribeGroup, FetchCommitted, Heartbeat
from consumer_membership.types import Holder, TopicPartition
from tests.exploration.application import CONSUMED
from tests.exploration.cluster import GROUP, TO_COME, Cluster, Happening
from tests.exploration.fork import key_of
from tests.simulation.coordinator import Committed, GroupCoordinator, Removed
from tests.simulation.group import Group
from tests.simulation.rules import Granted, Refused, Rules

LONG_AGO = float("-inf")


class Query(NamedTuple):
    """A request other than a heartbeat, without the number that its sender gave it."""

    kind: type
    member_id: str = ""
    member_epoch: int = 0
    partitions: frozenset[TopicPartition] = frozenset()


Request: TypeAlias = Heartbeat | CommitOffsets | FetchCommitted | DescribeGroup
Question: TypeAlias = Heartbeat | Query
Answer: TypeAlias = Granted | Refused
#: Commits: error codes. Reads: offsets. Descriptions: who holds which instance id.
Reply: TypeAlias = Granted | Refused | Mapping[TopicPartition, int] | Mapping[str, Holder]


def question_of(request: Request) -> Question:
    """What the coordinator sees of a request."""
    match request:
        case Heartbeat():
            return request
        case CommitOffsets():
            return Query(CommitOffsets, request.member_id, request.member_epoch, frozenset(request.offsets))
        case FetchCommitted():
            return Query(FetchCommitted, request.member_id, request.member_epoch, request.partitions)
        case DescribeGroup():
            return Query(DescribeGroup)


@dataclass(slots=True, kw_only=True)
class ConsumerCluster(Cluster):
    """The coordinator, and what it did last."""

    coordinator: GroupCoordinator

    # ---- requests ----

    def execute(self, question: Question) -> Reply:
        """Handle a request."""
        coordinator = self.coordinator
        if isinstance(question, Heartbeat):
            return coordinator.heartbeat(GROUP, question, 0.0)
        kind, member_id, epoch, partitions = question
        if kind is CommitOffsets:
            return coordinator.commit(GROUP, member_id, epoch, dict.fromkeys(sorted(partitions), CONSUMED), 0.0)
        if kind is FetchCommitted:
            found = coordinator.fetch_committed(GROUP, member_id, epoch, partitions, 0.0)
            return found if isinstance(found, Refused) else dict.fromkeys(sorted(found), 0)
        described = coordinator.describe(GROUP, 0.0)
        return {} if isinstance(described, Refused) else described

    # ---- by itself ----

    def happenings(self) -> Iterator[Happening]:
        """What may happen next."""
        group = self.group
        if group is None:
            return
        for member in group.members.values():
            about = (member.member_id,)
            yield Happening("end_session", about, "session", is_long=True)
            if member.rebalance_ends_at is not None:
                yield Happening("end_rebalance", about, "rebalance", needs_life=True)
        if group.assigned_at != LONG_AGO and self.coordinator.rules.assignment_interval_s > 0:
            yield Happening("pass_interval")
        yield Happening("forget_group", budget="forget")

    def happen(self, happening: Happening) -> None:
        """Let it happen."""
        group = self.group
        assert group is not None
        match happening.name:
            case "end_session":
                group.remove(happening.about[0], "session")
            case "end_rebalance":
                group.remove(happening.about[0], "rebalance")
            case "pass_interval":
                group.assigned_at = LONG_AGO
            case _:
                self.removed += group.members
                del self.coordinator.groups[GROUP]

    # ---- its place ----

    @property
    def group(self) -> Group | None:
        """The group, if it exists."""
        return self.coordinator.groups.get(GROUP)

    def canonicalise(self) -> None:
        """Move the journal out, and every time to its place."""
        journal = self.coordinator.journal
        for entry in journal:
            match entry:
                case Removed():
                    if entry.reason != "left for a while":
                        self.removed.append(entry.member_id)
                case Committed():
                    self.committed.append((entry.member_id, frozenset(entry.offsets)))
        journal.clear()
        group = self.group
        if group is None:
            return
        group.committed.clear()
        if group.assigned_at != LONG_AGO:
            group.assigned_at = 0.0 if self.coordinator.rules.assignment_interval_s > 0 else LONG_AGO
        for member in group.members.values():
            member.session_ends_at = TO_COME
            if member.rebalance_ends_at is not None:
                member.rebalance_ends_at = TO_COME

    def unfinished(self, members: int) -> str | None:
        """Why the group is not settled with so many members."""
        group = self.group
        if group is not None and (len(group.members) != members or (members and not group.is_settled)):
            return f"the coordinator is not done: {sorted(group.members)}"
        return None

    def key(self) -> Hashable:
        """Everything that its answers follow from."""
        return key_of(self.coordinator)


def cluster_of(rules: Rules, topic: str, topic_id: UUID, partitions: int) -> ConsumerCluster:
    """A coordinator without groups."""
    coordinator = GroupCoordinator(rules)
    coordinator.create_topic(topic, topic_id, partitions)
    return ConsumerCluster(coordinator=coordinator)
