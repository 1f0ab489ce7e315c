"""The spontaneous events of a classic group."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from consumer_membership.testing.coordinators.classic.coordinator import ClassicCoordinator
from consumer_membership.testing.coordinators.classic.group import InitialDelay, Timer, TimerKind
from consumer_membership.testing.coordinators.classic.roster import ClassicMember, StoredGroup
from consumer_membership.testing.coordinators.exchanges import Released
from tests.exploration.cluster import GROUP, NO_RECEIVER, TO_COME, Address, SpontaneousEvent, SpontaneousEvents

_TIMERS = {"end_session": TimerKind.SESSION, "end_joins": TimerKind.JOIN, "end_syncs": TimerKind.SYNC}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicEvents(SpontaneousEvents):
    """The ends of sessions and rebalance phases, and the move of the coordinator if `may_move` allows it."""

    #: Whether the coordinator may move. If not, the state that is written for another coordinator does not matter.
    may_move: bool

    def spontaneous_events(self, coordinator: ClassicCoordinator) -> Iterator[SpontaneousEvent]:
        """Return the events that may occur next."""
        group = coordinator.groups[GROUP]
        roster = group.roster
        for member in roster.members.values():
            if not member.satisfies_heartbeat:
                about = (member.member_id, *_sender(member))
                yield SpontaneousEvent("end_session", about, "session", is_long=True)
        for member_id in roster.pending:
            yield SpontaneousEvent("end_session", (member_id,), "session", is_long=True)
        if group.initial_delay is not None:
            yield SpontaneousEvent("end_joins")
        elif group.join_ends_at is not None:
            missing = tuple(one.member_id for one in roster.members.values() if one.join is None)
            yield SpontaneousEvent("end_joins", (*missing, *roster.pending), "rebalance", is_long=True)
        if group.sync_ends_at is not None:
            yield SpontaneousEvent("end_syncs", tuple(sorted(group.pending_sync)), "rebalance", is_long=True)
        yield SpontaneousEvent("move", budget="forget")

    def apply_event(self, coordinator: ClassicCoordinator, event: SpontaneousEvent) -> list[Released]:
        """Apply the event; return the answered requests."""
        if event.name == "move":
            released = coordinator.move(coordinator.node_id, 0.0, loading_s=0.0)
            coordinator._loading_until = None
            return released
        kind = _TIMERS[event.name]
        member_id = event.about[0] if kind is TimerKind.SESSION else ""
        return coordinator.fire(GROUP, Timer(0.0, kind, member_id), 0.0)

    def canonicalise(self, coordinator: ClassicCoordinator) -> None:
        """Rewrite all times to canonical values."""
        group = coordinator.groups[GROUP]
        if not self.may_move:
            group.written = StoredGroup()
        group.join_ends_at = None if group.join_ends_at is None else TO_COME
        group.sync_ends_at = None if group.sync_ends_at is None else TO_COME
        group.initial_delay = None if group.initial_delay is None else InitialDelay(0.0, TO_COME)
        group.roster.pending = dict.fromkeys(group.roster.pending, TO_COME)
        for member in group.roster.members.values():
            member.session_ends_at = TO_COME

    def unfinished(self, coordinator: ClassicCoordinator, members: int) -> str | None:
        """Return why the group is not settled with this number of members, or None."""
        group = coordinator.groups[GROUP]
        known, pending = group.roster.members, group.roster.pending
        if len(known) != members or pending or (members and not group.is_settled):
            return f"the coordinator is not done: {group.state.value}, {sorted(known)}, {sorted(pending)}"
        return None

    def key(self, coordinator: ClassicCoordinator) -> Hashable:
        """Return the state that determines its answers, including the order of its members."""
        return coordinator.key()


def _sender(member: ClassicMember) -> tuple[str, ...]:
    """Return the name of the process whose request waits, because the process may not know its member id."""
    keys = (member.join, member.sync)
    return tuple(one.name for one in keys if isinstance(one, Address) and one != NO_RECEIVER)
