"""What must hold of a KIP-848 member at each event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer_membership.membership.consumer.instance import MOST_TAKEOVERS
from consumer_membership.membership.effects import Heartbeat, SendHeartbeat, StateChanged
from consumer_membership.membership.events import HeartbeatAnswered, HeartbeatFailed, HeartbeatRejected
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.types import JOIN_EPOCH, LEAVE_STATIC_EPOCH, Assignment, TopicPartition
from tests.exploration.watch import Watch
from tests.simulation.invariants import check

if TYPE_CHECKING:
    from tests.exploration.consumer.process import ConsumerProcess

_S = MemberState


@dataclass(slots=True)
class ConsumerWatch(Watch):
    """What the invariants remember of one process."""

    #: Whether the member was not let in since its application made it join.
    is_newest: bool = False
    #: From whom it took over in this join, and how often.
    taken_from: str | None = None
    takeovers: int = 0
    ghost: str | None = None

    def take_answer(self, process: ConsumerProcess, event: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """A heartbeat's end."""
        match event:
            case HeartbeatAnswered() | HeartbeatRejected() | HeartbeatFailed():
                if event.request_id == process.member.heartbeats.in_flight:
                    self.is_out = False
            case _:
                pass

    def look(self, process: ConsumerProcess) -> None:  # type: ignore[override]
        """Takeover never loops: from one holder in each join, and never by a member that was in the group before.

        Each join costs a missed poll at least, or is the application's wish.
        """
        member, name = process.member, process.name
        ghost = member.instance.ghost
        foreign = ghost.member_id if ghost is not None and ghost.member_id != member.member_id else None
        if foreign is not None and foreign != self.ghost:
            self.takeovers += 1
            check(self.is_newest, f"{name} takes over from {foreign} although it was in the group before")
            check(self.taken_from in (None, foreign), f"{name} takes over from {self.taken_from} and from {foreign}")
            check(self.takeovers <= MOST_TAKEOVERS, f"{name} takes over {self.takeovers} times in one join")
            self.taken_from = foreign
        if member.member_epoch > JOIN_EPOCH:
            self.is_newest = False
        self.ghost = foreign

    def changed(self, process: ConsumerProcess, effect: StateChanged) -> None:  # type: ignore[override]
        """A member joins with nothing."""
        if effect.new is _S.JOINING:
            held = sorted(process.application.held)
            check(not held, f"{process.name} joins anew while its application holds {held}")
            self.is_excused = False
            self.is_newest |= effect.old in (_S.UNSUBSCRIBED, _S.FATAL)
            self.taken_from, self.takeovers = None, 0

    # ---- heartbeats ----

    def ordered(self, process: ConsumerProcess, effect: Any, state: MemberState, rest: tuple[Any, ...]) -> None:  # type: ignore[override]  # noqa: ANN401
        """A heartbeat is sent."""
        if not isinstance(effect, SendHeartbeat):
            return
        beat, name = effect.heartbeat, process.name
        if beat.is_leave and beat.owned is not None:
            self.left(name, state, rest)
            return
        check(state not in SILENT, f"{name} sends a heartbeat in state {state}")
        check(not self.is_out, f"{name} sends a heartbeat while another one is out")
        self.is_out = True
        if beat.is_leave:
            is_release = state is _S.JOINING and beat.member_epoch == LEAVE_STATIC_EPOCH
            check(is_release, f"{name} releases {beat} in state {state}")
        elif beat.member_epoch == JOIN_EPOCH:
            check(beat.is_full and beat.owned == frozenset(), f"{name} joins with {beat}")
        elif beat.owned is not None:
            self._stated(process, beat, beat.owned, state)

    def _stated(self, process: ConsumerProcess, beat: Heartbeat, owned: Assignment, state: MemberState) -> None:
        """An acknowledgement claims no unfinished assignment, and no statement drops an unfinished revocation."""
        name, names = process.name, process.member.ownership.names
        check(beat.member_epoch > JOIN_EPOCH, f"{name} states what it owns at epoch {beat.member_epoch}")
        said = {TopicPartition(names[p.topic_id], p.partition) for p in owned}
        held = process.application.held
        check(held <= said, f"{name} says that it owns {sorted(said)}, and its application holds {sorted(held)}")
        extra = said - self.told
        check(state is not _S.ACK or not extra, f"{name} acknowledges {sorted(extra)}, which it has not taken over")
