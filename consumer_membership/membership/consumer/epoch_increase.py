"""A larger epoch for each new holder of an instance id, so that the epoch can be the token of its leases.

If a member replaces another one with the same `group.instance.id`, the coordinator copies the assignment and keeps the
group's epoch (section 3.3): two processes would own a partition at the same epoch, one after the other. With
`ownership.lease.enable`, a static member therefore makes the coordinator increase the epoch, and takes no partition
before its own epoch is larger than the epoch of its join. For that it sends the heartbeats of a *temporary member*, a
dynamic member without topics, which joins the group and leaves it again. No partition moves, and the other members
receive a new epoch with the same assignment.

Each former holder was replaced before this member joined, so it never received an epoch above the epoch of the join.
That is true whatever fails in between: the temporary member's requests need no response, because only the epoch that
the coordinator sends to this member counts. If the process ends before the temporary member's leave, the coordinator
removes the temporary member at the end of its session.

| state | meaning |
|---|---|
| IDLE | nothing has to be done: a dynamic member, no leases, no membership, or the epoch has grown |
| JOINING | the next heartbeat is the temporary member's join |
| LEAVING | the next heartbeat is the temporary member's leave |
| WAITING | the member heartbeats until its epoch has grown |
| REFUSED | the coordinator refuses the temporary member: the partitions are taken, and their leases have no token |
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
        """Return the bare name."""
        return self.value


class EpochTrigger(Enum):
    """The triggers of the increase; the value is the label in the diagram."""

    ADMITTED = "the coordinator accepts the join of a static member with leases"
    TEMPORARY_JOINED = "the temporary member is in the group"
    TEMPORARY_LEFT = "the temporary member has left"
    TEMPORARY_REFUSED = "the coordinator refuses the temporary member"
    EPOCH_GREW = "the epoch is larger than that of the join"
    ENDED = "the membership ends"


_S, _T = EpochState, EpochTrigger

#: Every transition of the increase; the first row begins in the initial state.
EPOCH_TRANSITIONS: tuple[TransitionRule[EpochState], ...] = (
    TransitionRule((_S.IDLE,), _T.ADMITTED, _S.JOINING, "section 3.3"),
    TransitionRule((_S.JOINING,), _T.TEMPORARY_JOINED, _S.LEAVING, "KIP-848: a join without topics"),
    TransitionRule((_S.JOINING,), _T.TEMPORARY_REFUSED, _S.REFUSED, "GROUP_MAX_SIZE_REACHED"),
    TransitionRule((_S.LEAVING,), _T.TEMPORARY_LEFT, _S.WAITING, "KIP-848: epoch -1"),
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
        self._temporary = NO_MEMBER_ID
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
        """The temporary member's heartbeat that is to be sent next, or is in flight."""
        if self.state is _S.JOINING:
            return Heartbeat(
                member_id=self._temporary,
                member_epoch=JOIN_EPOCH,
                rebalance_timeout_s=self._settings.max_poll_interval_s,
                topics=(),
                owned=frozenset(),
            )
        return self.leave if self.state is _S.LEAVING else None

    @property
    def leave(self) -> Heartbeat | None:
        """The heartbeat with which the temporary member leaves; None: it is not in the group."""
        if self.state not in (_S.JOINING, _S.LEAVING):
            return None
        return Heartbeat(member_id=self._temporary, member_epoch=LEAVE_EPOCH)

    def admitted(self, epoch: int) -> None:
        """Begin an increase if leases need it: the coordinator has accepted the member's join at this epoch."""
        if self._settings.is_static and self._settings.has_leases:
            self._joined_at = epoch
            self._temporary = self._new_member_id()
            self._machine.fire(_T.ADMITTED)

    def received(self, epoch: int) -> bool:
        """Compare the epoch that the member received; return whether it has to heartbeat again for a larger one."""
        if self.state is _S.WAITING and epoch > self._joined_at:
            self._machine.fire(_T.EPOCH_GREW)
        return self.state is _S.WAITING

    def answered(self) -> None:
        """Continue after the coordinator accepted the temporary member's heartbeat."""
        self._machine.fire(_T.TEMPORARY_JOINED if self.state is _S.JOINING else _T.TEMPORARY_LEFT)

    def refused(self, event: HeartbeatRejected) -> None:
        """Continue after a refusal of the temporary member's heartbeat for which a repetition does not help."""
        if self.state is _S.LEAVING or event.verdict is Verdict.REJOIN:
            # It is not in the group any more; or it has joined, and the response to its join was lost (before 4.2).
            self.answered()
            return
        self._machine.fire(_T.TEMPORARY_REFUSED)
        if not self._has_warned:
            self._has_warned = True
            message = (
                f"The epoch of group '{self._settings.group_id}' could not be increased ({event.error}), so the leases "
                "of this member have no token until it joins again"
            )
            self._event.emit(Warned(message=message))

    def end(self) -> None:
        """End the increase, because the membership has ended."""
        if self.state is not _S.IDLE:
            self._machine.fire(_T.ENDED)
