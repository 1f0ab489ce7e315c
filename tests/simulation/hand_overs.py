"""The invariants of hand-overs of instance ids, checked in every run (`membership.consumer.hand_over`).

A successor prepares, announces itself, and joins when the instance id is free. A holder releases its id only once for
each successor. It takes a fixed id again only after the time that is reserved for the successor's join. So two
processes never take an id from each other alternately.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.membership.consumer.claim import NEWEST_FOR_S
from consumer_membership.membership.consumer.hand_over import RESERVED_S
from consumer_membership.membership.consumer.predecessor import PredecessorState
from consumer_membership.membership.effects import SendHeartbeat, WarmPartitions, WriteAnnouncement
from consumer_membership.membership.events import LeaveRequested
from consumer_membership.membership.protocol import GroupEffect, GroupEvent
from consumer_membership.membership.states import MemberState
from consumer_membership.types import JOIN_EPOCH, HandOverAnnouncement, Instant
from tests.simulation import internals
from tests.simulation.process_invariants import check

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.simulation import Simulation

_P = PredecessorState
#: A tolerance, because sums of floating-point times are not exact.
_ROUNDING_S = 1e-9


@dataclass(slots=True)
class _Seen:
    """The facts about one process that the invariants need."""

    #: The attempt number of the latest order to prepare for partitions (`WarmPartitions`).
    ordered: int = 0
    #: The holders to which it has announced itself since its application subscribed.
    requested: set[str] = field(default_factory=set)
    subscribed_at: Instant = 0.0
    #: The successors for which it has released its id.
    served: set[str] = field(default_factory=set)
    state: PredecessorState = _P.HOLDING
    instance_id: str | None = None
    #: The time until which its released id is reserved for the successor.
    reserved_until: Instant = 0.0


class HandOvers:
    """Checks every hand-over of a simulation, and raises Violation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._seen: dict[Process, _Seen] = {}
        #: The process and the time of each release, until another member joins with the id.
        self._released: dict[str, tuple[Process, Instant]] = {}
        #: How often a holder released its id for a successor, and how often another process joined with the id in time.
        self.requested = 0
        self.completed = 0
        #: The processes that released their id for a successor although an older process held an id.
        self.out_of_turn: list[str] = []

    def about_to_handle(self, process: Process, event: GroupEvent) -> None:
        """Update the state from an event that a member is about to handle."""
        seen = self._seen.setdefault(process, _Seen())
        if isinstance(event, LeaveRequested):
            # The application decides again when to join, so the reservation ends.
            seen.reserved_until = 0.0

    def handled(self, process: Process, effects: tuple[GroupEffect, ...], *, is_newest: bool) -> None:
        """Check the effects of an event that a member handled.

        `is_newest` is true if the member has not been admitted yet since its application subscribed.
        """
        if not internals.speaks_consumer(process.member):
            return
        seen = self._seen[process]
        self._check_predecessor(process, seen)
        for effect in effects:
            match effect:
                case WarmPartitions():
                    check(is_newest, f"{process.name} prepares for a hand-over although it was in the group before")
                    seen.ordered = effect.attempt
                case WriteAnnouncement(announcement=HandOverAnnouncement() as announcement):
                    check(is_newest, f"{process.name} requests a hand-over although it was in the group before")
                    self._announcement_ordered(process, seen, announcement)
                case SendHeartbeat(heartbeat=heartbeat) if heartbeat.member_epoch == JOIN_EPOCH:
                    is_reserved = (
                        heartbeat.instance_id == seen.instance_id and self._simulation.now < seen.reserved_until
                    )
                    check(
                        not is_reserved,
                        f"{process.name} takes '{heartbeat.instance_id}' back before its successor came",
                    )
                case _:
                    pass

    def _announcement_ordered(self, process: Process, seen: _Seen, announcement: HandOverAnnouncement) -> None:
        """Check an announcement: the application has finished its preparation.

        With a fixed id, a member announces itself to one holder, and to further holders only if their processes started
        earlier than its own.
        """
        name, holder_id = process.name, announcement.predecessor
        is_ready = process.application.warmed == seen.ordered
        check(is_ready, f"{name} announces itself to {holder_id} before on_warm has returned")
        if seen.subscribed_at != process.asked_at:
            seen.subscribed_at, seen.requested = process.asked_at, set()
        if holder_id in seen.requested or process.settings.instance_pool:
            # The first announcement to this holder was checked already; pools need no check.
            return
        seen.requested.add(holder_id)
        holder = next(one for one in self._simulation.processes if holder_id in one.member_ids)
        is_first = len(seen.requested) == 1 or holder.started_at < process.started_at
        check(is_first, f"{name} announces itself to {sorted(seen.requested)} for one id in one join")
        later_s = holder.started_at - process.asked_at
        check(
            later_s <= NEWEST_FOR_S, f"{name} announces itself to {holder_id}, which subscribed {later_s:.1f} s later"
        )

    def _check_predecessor(self, process: Process, seen: _Seen) -> None:
        """Check that a holder releases its id for each successor only once, and reserve the id from then on."""
        predecessor = internals.predecessor(process.member)
        if predecessor.state is _P.RELEASING and seen.state is _P.HOLDING:
            successor = predecessor.successor or ""
            check(successor not in seen.served, f"{process.name} releases its id for {successor} once more")
            seen.served.add(successor)
            seen.instance_id = internals.instance_id(process.member)
            self.requested += 1
            if process.settings.instance_pool and self._has_older_holder(process):
                self.out_of_turn.append(process.name)
        if predecessor.state is _P.RELEASED and seen.state is not _P.RELEASED and seen.instance_id is not None:
            # With a pool, the id is reserved only while the announcement shows a successor outside the group.
            reserved_s = 0.0 if process.settings.instance_pool else RESERVED_S - _ROUNDING_S
            seen.reserved_until = self._simulation.now + reserved_s
            self._released[seen.instance_id] = (process, self._simulation.now)
        seen.state = predecessor.state

    def _has_older_holder(self, process: Process) -> bool:
        """Return whether an older process holds an id; start times are compared in milliseconds, as in member ids."""
        live = (one for one in self._simulation.live_processes if not one.application.is_leaving)
        holders = (one.started_at for one in live if one.state is MemberState.STABLE)
        oldest_at = min(holders, default=process.started_at)
        return process.started_at - oldest_at > 0.001

    def joined(self, instance_id: str, member_id: str) -> None:
        """Record that the coordinator admitted this member with this instance id."""
        former, released_at = self._released.pop(instance_id, (None, 0.0))
        is_in_time = self._simulation.now <= released_at + RESERVED_S
        self.completed += former is not None and member_id not in former.member_ids and is_in_time
