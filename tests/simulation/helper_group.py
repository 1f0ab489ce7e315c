"""The helper group with the announcements for hand-overs; its coordinator may be another broker than the group's."""

from __future__ import annotations

from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.coordinator import Topic
from consumer_membership.testing.coordinators.exchanges import Answer, Commit, CommitResults, Request
from consumer_membership.testing.coordinators.rules import GROUP_AUTHORIZATION_FAILED, Refused, Rules
from consumer_membership.translation.announcements import helper_group
from consumer_membership.types import Instant

#: The node that coordinates the helper group at first; the group's own coordinator is node 1.
FIRST_NODE = 2


class HelperGroup:
    """The helper group of one group: offsets with metadata, and no members."""

    def __init__(self, group_id: str, topics: dict[str, Topic]) -> None:
        self._group_id = helper_group(group_id)
        self._coordinator = ConsumerCoordinator(Rules(), node_id=FIRST_NODE)
        self._coordinator.topics = topics
        self.former_node = FIRST_NODE
        #: Whether the members lack the right to READ it.
        self.is_refused = False

    @property
    def node_id(self) -> int:
        """The node that coordinates it."""
        return self._coordinator.node_id

    def handle(self, request: Request, now: Instant, *, node_id: int) -> Answer:
        """Handle a request that arrives at this node."""
        if not self.is_refused:
            return self._coordinator.answer(self._group_id, request, now, node_id=node_id)
        if isinstance(request, Commit):
            return CommitResults(codes=dict.fromkeys(request.offsets, GROUP_AUTHORIZATION_FAILED))
        return Refused(GROUP_AUTHORIZATION_FAILED)

    def move(self, node_id: int, now: Instant, loading_s: float) -> None:
        """Make another node its coordinator."""
        self.former_node = self.node_id
        self._coordinator.move(node_id, now, loading_s)
