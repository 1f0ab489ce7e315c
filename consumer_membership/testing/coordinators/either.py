"""The coordinator of a broker that has groups of both protocols, where no living group is converted.

What a group is follows from who is in it: a consumer protocol's join is refused while classic members are there, and a
classic one while members of the consumer protocol are (KIP-848, `group.consumer.migration.policy=disabled`). An empty
group becomes what the next member speaks, and keeps its offsets.
"""

from __future__ import annotations

from typing import Any

from consumer_membership.membership.effects import Heartbeat
from consumer_membership.testing.coordinators import rules as code
from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.coordinator import GroupCoordinator
from consumer_membership.testing.coordinators.exchanges import (
    Answer,
    ClassicHeartbeat,
    Commit,
    Describe,
    Fetch,
    Join,
    Key,
    LeaveGroup,
    Released,
    Request,
    Sync,
)
from consumer_membership.testing.coordinators.rules import ClassicRules, RequestRefusal, Rules
from consumer_membership.types import JOIN_EPOCH, Instant


class EitherCoordinator(GroupCoordinator):
    """Two coordinators of one cluster, of which each group has one. `offers_consumer`: whether there is KIP-848."""

    def __init__(self, rules: Rules, classic_rules: ClassicRules, *, offers_consumer: bool = True) -> None:
        self.consumer, self.classic = ConsumerCoordinator(rules), ClassicCoordinator(classic_rules)
        super().__init__(self.consumer.node_id)
        self.rules = rules
        self.offers_consumer = offers_consumer
        for one in (self.consumer, self.classic):
            one.topics, one.journal = self.topics, self.journal

    @property
    def groups(self) -> dict[str, Any]:  # type: ignore[override]  # computed here
        """The groups of both."""
        return {**self.classic.groups, **self.consumer.groups}

    def check(self, request: Request, node_id: int | None, now: Instant) -> None:
        """Both are one broker's, and move together."""
        self.classic.check(request, node_id, now)

    def handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer | None:
        """Handle a request; None: its answer comes later. Raises Refusal."""
        speaks = self._coordinator_of(group_id, request)
        other: GroupCoordinator = self.classic if speaks is self.consumer else self.consumer
        if isinstance(request, Heartbeat) and not self.offers_consumer:
            raise RequestRefusal(code.UNSUPPORTED_VERSION)
        is_join = isinstance(request, Join) or (isinstance(request, Heartbeat) and request.member_epoch == JOIN_EPOCH)
        if is_join and other.members(group_id):
            refusal = code.INCONSISTENT_GROUP_PROTOCOL if speaks is self.classic else code.GROUP_ID_NOT_FOUND
            raise RequestRefusal(refusal, f"Group {group_id} is of the other protocol.")
        former = other.groups.pop(group_id, None) if is_join else None
        answer = speaks.handle(key, group_id, request, now)
        if former is not None:
            speaks.groups[group_id].committed |= former.committed
        return answer

    def is_loading(self, now: Instant) -> bool:
        """Whether the groups of both are being loaded."""
        return self.classic.is_loading(now)

    def take_released(self) -> list[Released]:
        """Take the answers of both to requests that waited."""
        return [*self.consumer.take_released(), *self.classic.take_released()]

    def _coordinator_of(self, group_id: str, request: Request) -> ConsumerCoordinator | ClassicCoordinator:
        """Whose request it is; commits, reads and removals are the group's."""
        match request:
            case Heartbeat() | Describe():
                return self.consumer
            case Join() | Sync() | ClassicHeartbeat():
                return self.classic
            case Commit() | Fetch() | LeaveGroup():
                return self.consumer if group_id in self.consumer.groups else self.classic

    # ---- the group ----

    def _of(self, group_id: str) -> GroupCoordinator:
        return self.consumer if group_id in self.consumer.groups else self.classic

    def expel(self, group_id: str, member_id: str, now: Instant) -> list[Released]:
        """Take a member out as an administrator does."""
        return self._of(group_id).expel(group_id, member_id, now)

    def delete_group(self, group_id: str) -> None:
        """Delete a group that has no members, as an administrator does."""
        del self._of(group_id).groups[group_id]

    def members(self, group_id: str) -> frozenset[str]:
        """The ids of the group's members."""
        return self._of(group_id).members(group_id)

    def is_settled(self, group_id: str) -> bool:
        """Whether nothing is under way in the group."""
        return self._of(group_id).is_settled(group_id)

    # ---- time ----

    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Let another node be the coordinator; it loads its groups first."""
        self.node_id = node_id
        return [*self.consumer.move(node_id, now, loading_s), *self.classic.move(node_id, now, loading_s)]

    def pass_time(self, now: Instant) -> list[Released]:
        """Let what is due end."""
        return [*self.consumer.pass_time(now), *self.classic.pass_time(now)]

    def next_deadline(self) -> Instant | None:
        """When `pass_time` has something to do."""
        moments = (self.consumer.next_deadline(), self.classic.next_deadline())
        return min((moment for moment in moments if moment is not None), default=None)
