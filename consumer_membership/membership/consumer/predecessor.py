"""The predecessor in a hand-over: a holder that releases its instance id for a successor (`hand_over`).

After the release it leaves the id to the successor for `RESERVED_S`.

| state | meaning |
|---|---|
| HOLDING | the member reads the announcement to it while it holds partitions |
| RELEASING | the member releases its partitions and its id |
| RELEASED | the id is free; the member claims no id until its successor had time to join |
"""

from __future__ import annotations

from enum import Enum

from consumer_membership.membership.consumer.hand_over import (
    READ_EVERY_S,
    RESERVED_S,
    HelperGroup,
    announcement_partition,
)
from consumer_membership.membership.effects import ReadAnnouncements, WriteAnnouncement
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import AnnouncementsNotRead, AnnouncementsRead
from consumer_membership.membership.states import StateMachine, TransitionRule, transitions_by_trigger
from consumer_membership.types import Instant, TopicPartition

#: The interval after the brokers refused the helper group: the permission may be granted later.
READ_REFUSED_EVERY_S = 60.0
#: How often a predecessor describes the group to find its successor; the successor itself does so more often.
DESCRIBE_EVERY_S = 0.25


class PredecessorState(Enum):
    """The state of a holder that may hand its id over; the module's table has the meanings."""

    HOLDING = "HOLDING"
    RELEASING = "RELEASING"
    RELEASED = "RELEASED"

    def __str__(self) -> str:
        """Return the bare name."""
        return self.value


class PredecessorTrigger(Enum):
    """The triggers of a predecessor; the value is the label in the diagram."""

    REQUESTED = "an announcement names this member"
    RELEASED = "the id is released"
    CANCELED = "the application leaves, or subscribes again"
    JOINED = "the coordinator accepts the member's join"


_P, _T = PredecessorState, PredecessorTrigger

#: Every transition of a predecessor; the first row begins in the initial state.
PREDECESSOR_TRANSITIONS: tuple[TransitionRule[PredecessorState], ...] = (
    TransitionRule((_P.HOLDING,), _T.REQUESTED, _P.RELEASING, "OffsetFetch of the helper group"),
    TransitionRule((_P.RELEASING,), _T.RELEASED, _P.RELEASED, "epoch -2, a fence, or a missed poll"),
    TransitionRule((_P.RELEASING, _P.RELEASED), _T.CANCELED, _P.HOLDING, "the application decides from now on"),
    TransitionRule((_P.RELEASED,), _T.JOINED, _P.HOLDING, "no successor came, or another id was free"),
)
PREDECESSOR_TARGETS = transitions_by_trigger(PREDECESSOR_TRANSITIONS)


class Predecessor:
    """One member as a holder that may hand its id over, and the time in which the released id is reserved."""

    def __init__(self, event: EventContext, helper: HelperGroup) -> None:
        self._event = event
        self._helper = helper
        self._machine = StateMachine("a predecessor", PREDECESSOR_TARGETS)
        #: The successor of the latest hand-over.
        self.successor: str | None = None
        #: The successors for which the id was released. If this member holds an id again, they did not join in time,
        #: and their announcements, which stay in the helper group, have no effect any more.
        self._served: set[str] = set()
        self._released_at: Instant = 0.0
        self._read_at: Instant = 0.0
        #: The partition of the announcement to this member, and the id that it requests.
        self._partition: TopicPartition | None = None
        self._released_id: str | None = None
        self._awaited: int | None = None

    # ---- questions ----

    @property
    def state(self) -> PredecessorState:
        """The state of the predecessor."""
        return self._machine.state

    @property
    def is_releasing(self) -> bool:
        """Whether the member releases its id for a successor."""
        return self.state is _P.RELEASING

    @property
    def has_released(self) -> bool:
        """Whether the member has released its id for a successor, and is not in the group."""
        return self.state is _P.RELEASED

    @property
    def waits_until(self) -> Instant:
        """Until when a released id is reserved for the successor."""
        return self._released_at + RESERVED_S

    def drops_released_id(self, instance_id: str | None) -> bool:
        """Return whether the next join takes this id instead of the released one; true once.

        The coordinator keeps the released id with its partitions under the member id. A join with the same member id
        and another instance id would replace that target, so no member would own the partitions.
        """
        if self.state is not _P.RELEASED or self._released_id in (None, instance_id):
            return False
        self._released_id = None
        return True

    def next_deadline(self) -> Instant | None:
        """Return the moment when a member that holds partitions reads the announcement to it again."""
        return self._read_at if self.state is _P.HOLDING and self._awaited is None else None

    # ---- events ----

    def read_if_due(self, partitions: frozenset[TopicPartition]) -> None:
        """Read the announcement to the owner of these partitions, if that is due."""
        partition = announcement_partition(partitions)
        if self.state is not _P.HOLDING or self._awaited is not None or self._event.now < self._read_at:
            return
        self._read_at = self._event.now + READ_EVERY_S
        if partition is not None:
            self._awaited = self._event.next_request_id()
            self._event.emit(ReadAnnouncements(request_id=self._awaited, partitions=frozenset({partition})))

    def announcements_read(
        self, event: AnnouncementsRead, own: str, instance_id: str | None, *, may_release: bool
    ) -> bool:
        """Return whether one of these announcements begins a hand-over; `own` is this member's id."""
        if event.request_id != self._awaited:
            return False
        self._awaited = None
        for partition, found in event.announcements.items():
            is_for_this = found.predecessor == own and found.instance_id == instance_id
            if is_for_this and may_release and self.state is _P.HOLDING and found.successor not in {own, *self._served}:
                self.successor, self._partition, self._released_id = found.successor, partition, instance_id
                self._served.add(found.successor)
                self._machine.fire(_T.REQUESTED)
                return True
        return False

    def announcements_not_read(self, event: AnnouncementsNotRead) -> None:
        """Read again at the usual interval, or rarely if the brokers refuse the helper group."""
        if event.request_id != self._awaited:
            return
        self._awaited = None
        if event.is_refused:
            self._read_at = self._event.now + READ_REFUSED_EVERY_S
            self._helper.refused(event.error)

    def released(self) -> None:
        """Continue after the member has left: the id is free, or will be at the end of the session."""
        if self.state is _P.RELEASING:
            self._released_at = self._event.now
            self._machine.fire(_T.RELEASED)

    def released_again(self) -> None:
        """Begin the successor's time again: the leave was lost, and the coordinator has released the id only now."""
        self._released_at = self._event.now

    def cancel(self) -> None:
        """End the hand-over: the application leaves, so the member does not join again."""
        if self.state is not _P.HOLDING:
            self._machine.fire(_T.CANCELED)

    def joined(self, instance_id: str | None) -> None:
        """End the hand-over: the member is in its group again.

        If it has its released id again, it withdraws the announcement.
        """
        if self.state is _P.RELEASED:
            if self._partition is not None and instance_id == self._released_id:
                request_id = self._event.next_request_id()
                self._event.emit(WriteAnnouncement(request_id=request_id, partition=self._partition, announcement=None))
            self._machine.fire(_T.JOINED)
