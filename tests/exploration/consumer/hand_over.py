"""The hand-over of an instance id in an exploration: its invariants, and its canonical form.

The explored coordinator stores the announcements in the helper group. The end of the time in which a released id is
reserved for its successor is a step (`reserve_since`), because times have no length here.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from consumer_membership.membership.consumer.claim_states import ClaimState
from consumer_membership.membership.consumer.hand_over import RESERVED_S
from consumer_membership.membership.consumer.predecessor import Predecessor, PredecessorState
from consumer_membership.membership.consumer.reservations import Reservations
from consumer_membership.membership.consumer.successor import Successor, SuccessorState
from consumer_membership.membership.effects import (
    ReadAnnouncements,
    SendHeartbeat,
    StateChanged,
    WarmPartitions,
    WriteAnnouncement,
)
from consumer_membership.membership.events import Warmed
from consumer_membership.membership.states import MemberState
from consumer_membership.types import JOIN_EPOCH, HandOverAnnouncement
from tests.exploration.canonical import STALE, later
from tests.exploration.moves import RETRY_S
from tests.simulation import internals
from tests.simulation.process_invariants import check

if TYPE_CHECKING:
    from tests.exploration.process import Process

#: The start of a wait whose time limit has passed.
LONG_AGO = -1000.0
#: The numbers of the requests about announcements that a member awaits.
OF_SUCCESSOR, OF_PREDECESSOR, OF_RESERVATIONS = 3, 4, 5
#: The number of the current order to prepare for partitions.
WARM = 1
_P, _S = PredecessorState, SuccessorState


@dataclass(slots=True)
class HandOverInvariants:
    """The invariants of hand-overs of one process."""

    #: The holders to which it has announced itself in this join.
    requested: set[str] = field(default_factory=set)
    #: The successors for which it has released its id.
    served: set[str] = field(default_factory=set)
    state: PredecessorState = _P.HOLDING
    #: Whether the first holder of this join was reported so late that it may be the newer process; None: no holder.
    is_unsure: bool | None = None

    def handled(self, process: Process, effects: tuple[Any, ...], *, is_newest: bool) -> None:
        """Check the effects of an event. `is_newest`: the member did not join since its application subscribed."""
        name, now = process.name, process.member.context.event.now
        predecessor = internals.predecessor(process.member)
        if internals.successor(process.member)._first_holder is None:
            self.is_unsure = None
        elif self.is_unsure is None:
            self.is_unsure = internals.subscribed_at(process.member) == LONG_AGO
        is_reserved = predecessor.has_released and now < predecessor._released_at + RESERVED_S
        for effect in effects:
            match effect:
                case StateChanged(new=MemberState.JOINING):
                    self.requested.clear()
                case WarmPartitions():
                    check(is_newest, f"{name} prepares for a hand-over although it was in the group before")
                case WriteAnnouncement(announcement=HandOverAnnouncement() as announcement):
                    check(is_newest, f"{name} requests a hand-over although it was in the group before")
                    self._announced(process, announcement)
                case SendHeartbeat(heartbeat=heartbeat) if (
                    heartbeat.member_epoch == JOIN_EPOCH and heartbeat.instance_id is not None
                ):
                    is_own = heartbeat.instance_id == process.settings.instance_id
                    check(not (is_own and is_reserved), f"{name} takes its id back before its successor came")
                case _:
                    pass
        if (self.state, predecessor.state) == (_P.HOLDING, _P.RELEASING):
            successor = predecessor.successor or ""
            check(successor not in self.served, f"{name} releases its id for {successor} once more")
            self.served.add(successor)
        self.state = predecessor.state

    def _announced(self, process: Process, announcement: HandOverAnnouncement) -> None:
        """Check that the application is ready for the holder's partitions, and that a fixed id has one holder."""
        name, holder = process.name, internals.successor(process.member).holder
        check(
            not self.is_unsure, f"{name} announces itself to {announcement.predecessor}, which may be the newer process"
        )
        is_ready = holder is not None and holder.partitions <= process.application.warmed
        check(is_ready, f"{name} announces itself to {announcement.predecessor} before on_warm has returned")
        self.requested.add(announcement.predecessor)
        is_one = len(self.requested) == 1 or bool(process.settings.instance_pool)
        check(is_one, f"{name} announces itself to {sorted(self.requested)} for one id in one join")


def canonicalise(process: Process, now: float) -> None:
    """Rewrite the hand-over state of a process."""
    claim = internals.consumer(process.member).claim
    _rename(process, claim.successor, claim.predecessor, claim._reservations)
    _place_successor(claim.successor, now)
    _place_predecessor(claim.predecessor, now)
    if claim.successor.state is _S.IDLE:
        process.application.warmed = frozenset()
    if claim.state is ClaimState.HELD:
        # The next join begins without reservations.
        claim._reservations.begin()
    claim._reservations._left_at = {one: _place(at, now) for one, at in claim._reservations._left_at.items()}


def _rename(process: Process, successor: Successor, predecessor: Predecessor, reservations: Reservations) -> None:
    """Rename the requests, and the orders to prepare."""
    names = {
        successor._awaited: OF_SUCCESSOR,
        predecessor._awaited: OF_PREDECESSOR,
        reservations._awaited: OF_RESERVATIONS,
    }
    names.pop(None, None)
    # An answer without a waiter changes nothing.
    process.announcements = [
        one._replace(order=replace(one.order, request_id=names.get(one.order.request_id, STALE)))
        for one in process.announcements
        if one.answer is None or one.order.request_id in names
    ]
    process.announcements = [
        one for one in process.announcements if one.order.request_id or isinstance(one.order, WriteAnnouncement)
    ]
    process.abandoned_orders = [
        replace(one, request_id=STALE) if isinstance(one, WriteAnnouncement) else one
        for one in process.abandoned_orders
        if not isinstance(one, ReadAnnouncements)
    ]
    for part in (successor, predecessor, reservations):
        part._awaited = None if part._awaited is None else names[part._awaited]

    def renamed(one: Any) -> Any:
        is_warming = isinstance(one, WarmPartitions | Warmed)
        return replace(one, attempt=WARM if one.attempt == successor._attempt else STALE) if is_warming else one

    process.application.mailbox = [renamed(one) for one in process.application.mailbox]
    process.inbox = [renamed(one) for one in process.inbox]
    successor._attempt = WARM


def _place_successor(successor: Successor, now: float) -> None:
    successor._due_at = later(successor._due_at, now, RETRY_S) or 0.0
    if successor._announced_at is not None:
        successor._announced_at = _place(successor._announced_at, now)
    successor._backoff.failures = 0
    if successor.holder is not None:
        # Its epoch is only displayed.
        successor.holder = replace(successor.holder, member_epoch=1)


def _place_predecessor(predecessor: Predecessor, now: float) -> None:
    predecessor._read_at = later(predecessor._read_at, now, RETRY_S) or 0.0
    predecessor._released_at = _place(predecessor._released_at, now) if predecessor.has_released else 0.0
    if predecessor.state is _P.HOLDING:
        # The values of the latest hand-over do not matter any more.
        predecessor.successor = predecessor._partition = predecessor._released_id = None


def _place(moment: float, now: float) -> float:
    """Return the canonical value of a time: recent, or so long ago that its reservation is over."""
    return 0.0 if now - moment < RESERVED_S else LONG_AGO
