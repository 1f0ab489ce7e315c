"""The spontaneous events of a KIP-848 group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from consumer_membership.testing.coordinators.consumer.coordinator import ConsumerCoordinator
from consumer_membership.testing.coordinators.exchanges import Released
from tests.exploration.cluster import GROUP, TO_COME, SpontaneousEvent, SpontaneousEvents
from tests.exploration.fork import key_of

LONG_AGO = float("-inf")


@dataclass(frozen=True, slots=True)
class ConsumerEvents(SpontaneousEvents):
    """The ends of sessions and rebalance timeouts, the interval of the assignor, and the loss of the group."""

    def spontaneous_events(self, coordinator: ConsumerCoordinator) -> Iterator[SpontaneousEvent]:
        """Return the events that may occur next."""
        group = coordinator.groups[GROUP]
        for member in group.members.values():
            about = (member.member_id,)
            yield SpontaneousEvent("end_session", about, "session", is_long=True)
            if member.rebalance_ends_at is not None:
                yield SpontaneousEvent("end_rebalance", about, "rebalance", needs_live_member=True)
        if group.assigned_at != LONG_AGO and coordinator.rules.assignment_interval_s > 0:
            yield SpontaneousEvent("pass_interval")
        yield SpontaneousEvent("forget_group", budget="forget")

    def apply_event(self, coordinator: ConsumerCoordinator, event: SpontaneousEvent) -> list[Released]:
        """Apply the event; it answers no waiting requests."""
        group = coordinator.groups[GROUP]
        match event.name:
            case "end_session":
                group.remove(event.about[0], "session")
            case "end_rebalance":
                group.remove(event.about[0], "rebalance")
            case "pass_interval":
                group.assigned_at = LONG_AGO
            case _:
                del coordinator.groups[GROUP]
        return []

    def canonicalise(self, coordinator: ConsumerCoordinator) -> None:
        """Rewrite all times to canonical values."""
        group = coordinator.groups[GROUP]
        if group.assigned_at != LONG_AGO:
            group.assigned_at = 0.0 if coordinator.rules.assignment_interval_s > 0 else LONG_AGO
        for member in group.members.values():
            member.session_ends_at = TO_COME
            if member.rebalance_ends_at is not None:
                member.rebalance_ends_at = TO_COME

    def unfinished(self, coordinator: ConsumerCoordinator, members: int) -> str | None:
        """Return why the group is not settled with this number of members, or None."""
        group = coordinator.groups[GROUP]
        if len(group.members) != members or (members and not group.is_settled):
            return f"the coordinator is not done: {sorted(group.members)}"
        return None

    def key(self, coordinator: ConsumerCoordinator) -> Hashable:
        """Return the state that determines its answers."""
        return key_of(coordinator)
