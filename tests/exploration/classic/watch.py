"""What must hold of a classic member at each event."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consumer_membership.membership.classic.assignor import NO_GENERATION
from consumer_membership.membership.classic.exchanges import (
    ClassicHeartbeatAnswered,
    ClassicHeartbeatRejected,
    ClassicVerdict,
    ExchangeFailed,
    JoinRejected,
    SendClassicHeartbeat,
    SendClassicLeave,
    SendJoin,
    SendSync,
    SyncRejected,
)
from consumer_membership.membership.classic.states import HEARTBEATS, ClassicState
from consumer_membership.membership.effects import StateChanged
from consumer_membership.membership.states import MemberState
from tests.exploration.watch import Watch
from tests.simulation.invariants import check

if TYPE_CHECKING:
    from tests.exploration.classic.process import ClassicProcess

_S = ClassicState
_ENDS = frozenset({ClassicVerdict.REJOIN, ClassicVerdict.REJOIN_KEEP_ID})


@dataclass(slots=True)
class ClassicWatch(Watch):
    """What the invariants remember of one process.

    The excuse also ends with a share that the coordinator has given to this member since, and that it has taken over:
    a static member that a generation went on without joins again with what it holds.
    """

    is_confirmed: bool = False
    #: Whether the coordinator has just said that the membership, or its generation, is over.
    is_over: bool = False

    def excuse(self) -> None:
        """Others may have its partitions, and it cannot know."""
        self.is_excused, self.is_confirmed = True, False

    def take_answer(self, process: ClassicProcess, event: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """The end of a request that the member waits for."""
        number, heartbeats = getattr(event, "request_id", None), process.member.heartbeats
        is_awaited = number is not None and (number == heartbeats.in_flight or process.member.awaits(number))
        match event:
            case ClassicHeartbeatAnswered() | ClassicHeartbeatRejected() | ExchangeFailed():
                self.is_out &= number != heartbeats.in_flight
            case _:
                pass
        is_rejected = isinstance(event, JoinRejected | SyncRejected | ClassicHeartbeatRejected)
        self.is_over = is_awaited and is_rejected and event.verdict in _ENDS

    def look(self, process: ClassicProcess) -> None:  # type: ignore[override]
        """Who joins waits for no heartbeat; who is STABLE has what the coordinator knows of."""
        keeps = self.is_over and process.member.generation != NO_GENERATION
        check(not keeps, f"{process.name} keeps its generation, which the coordinator said is over")
        self.is_over = False
        if process.member.state is _S.JOINING:
            self.is_out = False
        if process.member.state is _S.STABLE and self.is_confirmed:
            self.is_excused = self.is_confirmed = False

    def changed(self, process: ClassicProcess, effect: StateChanged) -> None:  # type: ignore[override]
        """What a join says is looked at when it is sent."""

    def ordered(self, process: ClassicProcess, effect: Any, state: MemberState, rest: tuple[Any, ...]) -> None:  # type: ignore[override]  # noqa: ANN401
        """A request is sent."""
        name, member = process.name, process.member
        match effect:
            case SendJoin():
                check(member.state is _S.JOINING, f"{name} sends a JoinGroup in state {member.state}")
                self._joined(process, effect)
            case SendSync():
                check(member.state is _S.SYNCING, f"{name} sends a SyncGroup in state {member.state}")
                given = Counter(partition for share in effect.assignments.values() for partition in share)
                doubled = sorted(partition for partition, often in given.items() if often > 1)
                check(not doubled, f"{name} gives {doubled} to two members")
            case SendClassicHeartbeat():
                check(member.state in HEARTBEATS, f"{name} sends a heartbeat in state {member.state}")
                check(not self.is_out, f"{name} sends a heartbeat while another one is out")
                self.is_out = True
            case SendClassicLeave():
                self.left(name, state, rest)
            case _:
                pass

    def _joined(self, process: ClassicProcess, join: SendJoin) -> None:
        """Who joins says exactly what it holds, and holds nothing if it is eager or has lost its generation."""
        name, held = process.name, frozenset(process.application.held)
        for _, said in join.protocols:
            check(
                held <= said.owned,
                f"{name} says that it owns {sorted(said.owned)}, and its application holds {sorted(held)}",
            )
            extra = sorted(said.owned - self.told)
            check(not extra, f"{name} says that it owns {extra}, which it has not taken over")
            is_new = said.generation == NO_GENERATION or process.member.classic.is_eager
            check(not (held and is_new), f"{name} joins anew while its application holds {sorted(held)}")
        if not held:
            self.is_excused = False
