"""The coordinator of a broker that has groups of both protocols, and converts no group that has members.

The members of a group decide its protocol: a consumer-protocol join is rejected while the group has classic members,
and a classic join while it has consumer-protocol members (KIP-848, `group.consumer.migration.policy=disabled`). An
empty group takes the protocol of its next member, and keeps its offsets.
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
    """Both coordinators of one cluster; each group uses one. `offers_consumer`: whether the broker supports KIP-848."""

    def __init__(self, rules: Rules, classic_rules: ClassicRules, *, offers_consumer: bool = True) -> None:
        self.consumer, self.classic = ConsumerCoordinator(rules), ClassicCoordinator(classic_rules)
        super().__init__(self.consumer.node_id)
        self.rules = rules
        self.offers_consumer = offers_consumer
        for one in (self.consumer, self.classic):
            one.topics, one.journal = self.topics, self.journal

    @property
    def groups(self) -> dict[str, Any]:  # type: ignore[override]  # computed here
        """The groups of both coordinators."""
        return {**self.classic.groups, **self.consumer.groups}

    def check(self, request: Request, node_id: int | None, now: Instant) -> None:
        """Check with the classic coordinator only: both coordinators are on one broker, and move together."""
        self.classic.check(request, node_id, now)

    def handle(self, key: Key, group_id: str, request: Request, now: Instant) -> Answer | None:
        """Return the response to a request; None: `take_released` returns it later. Raises RequestRefusal."""
        coordinator = self._coordinator_of(group_id, request)
        other: GroupCoordinator = self.classic if coordinator is self.consumer else self.consumer
        if isinstance(request, Heartbeat) and not self.offers_consumer:
            raise RequestRefusal(code.UNSUPPORTED_VERSION)
        is_join = isinstance(request, Join) or (isinstance(request, Heartbeat) and request.member_epoch == JOIN_EPOCH)
        if is_join and other.members(group_id):
            refusal = code.INCONSISTENT_GROUP_PROTOCOL if coordinator is self.classic else code.GROUP_ID_NOT_FOUND
            raise RequestRefusal(refusal, f"Group {group_id} is of the other protocol.")
        former = other.groups.pop(group_id, None) if is_join else None
        answer = coordinator.handle(key, group_id, request, now)
        if former is not None:
            coordinator.groups[group_id].committed |= former.committed
        return answer

    def is_loading(self, now: Instant) -> bool:
        """Return whether the coordinator node still loads its groups, which are those of both protocols."""
        return self.classic.is_loading(now)

    def take_released(self) -> list[Released]:
        """Return and clear the responses that the groups of both coordinators have released."""
        return [*self.consumer.take_released(), *self.classic.take_released()]

    def _coordinator_of(self, group_id: str, request: Request) -> ConsumerCoordinator | ClassicCoordinator:
        """Return the coordinator for a request's protocol; commits, fetches and leaves use the group's protocol."""
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
        """Remove a member as an administrator does; return the released responses."""
        return self._of(group_id).expel(group_id, member_id, now)

    def delete_group(self, group_id: str) -> None:
        """Delete a group that has no members, as an administrator does."""
        del self._of(group_id).groups[group_id]

    def members(self, group_id: str) -> frozenset[str]:
        """Return the ids of the group's members."""
        return self._of(group_id).members(group_id)

    def is_settled(self, group_id: str) -> bool:
        """Return whether no rebalance is in progress in the group; an empty group is settled."""
        return self._of(group_id).is_settled(group_id)

    # ---- time ----

    def move(self, node_id: int, now: Instant, loading_s: float) -> list[Released]:
        """Make another node the coordinator, which first loads the groups; return the released responses."""
        self.node_id = node_id
        return [*self.consumer.move(node_id, now, loading_s), *self.classic.move(node_id, now, loading_s)]

    def pass_time(self, now: Instant) -> list[Released]:
        """Fire the session and rebalance timers that are due; return the released responses."""
        return [*self.consumer.pass_time(now), *self.classic.pass_time(now)]

    def next_deadline(self) -> Instant | None:
        """Return when `pass_time` must be called next; None: no timer is running."""
        moments = (self.consumer.next_deadline(), self.classic.next_deadline())
        return min((moment for moment in moments if moment is not None), default=None)
