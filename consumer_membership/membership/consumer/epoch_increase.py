"""A larger epoch for each new holder of an instance id, so that the epoch can be the token of its leases.

If a member takes the place of another one with the same `group.instance.id`, the coordinator copies the assignment and
keeps the group's epoch (section 3.3): two processes would own a partition at the same epoch, one after the other. With
`ownership.lease.enable`, a static member therefore makes the coordinator increase the epoch, and takes no partition
before its own epoch is larger than that of its join. A *visitor*, a dynamic member without topics, joins the group and
leaves it again. No partition moves, and the other members receive a new epoch with the same assignment.

Each former holder was replaced before this member joined, so it never received an epoch above that of the join. That
holds whatever ends in between: the visitor's requests need no response, because only the epoch that the coordinator
sends to this member counts. A visitor that stays behind a dead process is removed at the end of its session.

| state | meaning |
|---|---|
| IDLE | nothing has to be done: a dynamic member, no leases, no membership, or the epoch has grown |
| JOINING | the next heartbeat is the visitor's join |
| LEAVING | the next heartbeat is the visitor's leave |
| WAITING | the member heartbeats until its epoch has grown |
| REFUSED | the coordinator refuses the visitor: the member takes its partitions, and its leases have no token |
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from consumer_membership.membership.effects import Heartbeat, Warned
from consumer_membership.membership.event_context import EventContext
from consumer_membership.membership.events import HeartbeatRejected, Verdict
from consumer_membership.membership.settings import MemberSettings
from consumer_membership.membership.states import StateMachine, TransitionRule, transitions_by_trigger
from consumer_membership.types import JOIN_EPOCH, LEAVE_EPOCH, NO_MEMBER_ID


class EpochState(Enum):
    """The state of the increase; the module's table has the meanings."""

    IDLE = "IDLE"
    JOINING = "JOINING"
    LEAVING = "LEAVING"
    WAITING = "WAITING"
    REFUSED = "REFUSED"

    def __str__(self) -> str:
        """The bare name."""
        return self.value


class EpochTrigger(Enum):
    """The triggers of the increase; the value is the label in the diagram."""

    ADMITTED = "the coordinator lets a static member with leases in"
    VISITOR_JOINED = "the visitor is in the group"
    VISITOR_LEFT = "the visitor has left"
    VISITOR_REFUSED = "the coordinator refuses the visitor"
    EPOCH_GREW = "the epoch is larger than that of the join"
    ENDED = "the membership ends"


_S, _T = EpochState, EpochTrigger

#: Every transition of the increase; the first row begins in the initial state.
EPOCH_TRANSITIONS: tuple[TransitionRule[EpochState], ...] = (
    TransitionRule((_S.IDLE,), _T.ADMITTED, _S.JOINING, "section 3.3"),
    TransitionRule((_S.JOINING,), _T.VISITOR_JOINED, _S.LEAVING, "KIP-848: a join without topics"),
    TransitionRule((_S.JOINING,), _T.VISITOR_REFUSED, _S.REFUSED, "GROUP_MAX_SIZE_REACHED"),
    TransitionRule((_S.LEAVING,), _T.VISITOR_LEFT, _S.WAITING, "KIP-848: epoch -1"),
    TransitionRule((_S.WAITING,), _T.EPOCH_GREW, _S.IDLE, "section 3.1"),
    TransitionRule((_S.JOINING, _S.LEAVING, _S.WAITING, _S.REFUSED), _T.ENDED, _S.IDLE, "a leave, or a fence"),
)
EPOCH_TARGETS = transitions_by_trigger(EPOCH_TRANSITIONS)


class EpochIncrease:
    """The increase of the epoch for one static member with leases; for other members it stays IDLE."""

    def __init__(self, event: EventContext, settings: MemberSettings, new_member_id: Callable[[], str]) -> None:
        self._event = event
        self._settings = settings
        self._new_member_id = new_member_id
        self._machine = StateMachine("an increase of the epoch", EPOCH_TARGETS)
        self._visitor = NO_MEMBER_ID
        self._joined_at = JOIN_EPOCH
        self._has_warned = False

    @property
    def state(self) -> EpochState:
        """The state of the increase."""
        return self._machine.state

    @property
    def is_pending(self) -> bool:
        """Whether the member may take no partition yet."""
        return self.state in (_S.JOINING, _S.LEAVING, _S.WAITING)

    @property
    def is_refused(self) -> bool:
        """Whether the epoch may be that of an earlier owner."""
        return self.state is _S.REFUSED

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The visitor's heartbeat that is to be sent next, or is in flight."""
        if self.state is _S.JOINING:
            return Heartbeat(
                member_id=self._visitor,
                member_epoch=JOIN_EPOCH,
                rebalance_timeout_s=self._settings.max_poll_interval_s,
                topics=(),
                owned=frozenset(),
            )
        return self.leave if self.state is _S.LEAVING else None

    @property
    def leave(self) -> Heartbeat | None:
        """The heartbeat that takes the visitor out of the group; None: it is not there."""
        if self.state not in (_S.JOINING, _S.LEAVING):
            return None
        return Heartbeat(member_id=self._visitor, member_epoch=LEAVE_EPOCH)

    def admitted(self, epoch: int) -> None:
        """The coordinator has accepted the member's join, at this epoch."""
        if self._settings.is_static and self._settings.has_leases:
            self._joined_at = epoch
            self._visitor = self._new_member_id()
            self._machine.fire(_T.ADMITTED)

    def note(self, epoch: int) -> bool:
        """The member has this epoch now; return whether it has to heartbeat again for a larger one."""
        if self.state is _S.WAITING and epoch > self._joined_at:
            self._machine.fire(_T.EPOCH_GREW)
        return self.state is _S.WAITING

    def answered(self) -> None:
        """The visitor's heartbeat was accepted."""
        self._machine.fire(_T.VISITOR_JOINED if self.state is _S.JOINING else _T.VISITOR_LEFT)

    def refused(self, event: HeartbeatRejected) -> None:
        """The visitor's heartbeat was refused, and a repetition does not help."""
        if self.state is _S.LEAVING or event.verdict is Verdict.REJOIN:
            # It is not in the group any more; or it is, because the response to its join was lost (before 4.2).
            self.answered()
            return
        self._machine.fire(_T.VISITOR_REFUSED)
        if not self._has_warned:
            self._has_warned = True
            message = (
                f"The epoch of group '{self._settings.group_id}' could not be increased ({event.error}), so the leases "
                "of this member have no token until it joins again"
            )
            self._event.emit(Warned(message=message))

    def end(self) -> None:
        """The membership has ended."""
        if self.state is not _S.IDLE:
            self._machine.fire(_T.ENDED)
