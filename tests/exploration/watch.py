"""What must hold of one process at each event; the wording and the rules are those of `tests.simulation.invariants`.

Two processes may fetch the same partition only while one of them is *excused*: the coordinator removed its member id or
gave its place to another one, or handled a join of it that it had given up, or it left because its application did not
poll; until it joins anew, holding nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitCompleted,
    CommitOffsets,
    Effect,
    FindCoordinator,
    Heartbeat,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    SendHeartbeat,
    StateChanged,
    StepEffect,
)
from consumer_membership.membership.events import (
    CoordinatorFound,
    Event,
    HeartbeatAnswered,
    HeartbeatFailed,
    HeartbeatRejected,
    Step,
    StepFinished,
)
from consumer_membership.membership.states import SILENT, MemberState
from consumer_membership.types import JOIN_EPOCH, LEAVE_STATIC_EPOCH, Assignment, TopicPartition
from tests.exploration.application import STEP_OF
from tests.simulation.invariants import check

if TYPE_CHECKING:
    from tests.exploration.process import Process

_S = MemberState
_ENDS_MEMBERSHIP = frozenset({_S.FENCED, _S.STALE, _S.UNSUBSCRIBED, _S.FATAL})


@dataclass(slots=True)
class Watch:
    """What the invariants remember of one process."""

    is_excused: bool = False
    #: What the member was told that the application holds, and what it was not told yet.
    told: frozenset[TopicPartition] = frozenset()
    history: list[frozenset[TopicPartition]] = field(default_factory=list)
    is_out: bool = False
    step: tuple[int, Step] | None = None
    paused: frozenset[TopicPartition] | None = None
    owes_commit: bool = False
    is_searching: bool = False
    #: Whether the member was not let in since its application made it join, and its takeovers in this join.
    is_newest: bool = False
    takeovers: int = 0
    ghost: str | None = None

    # ---- events ----

    def take(self, process: Process, event: Event) -> None:
        """An event is about to be handled."""
        match event:
            case StepFinished():
                self._step_finished(process, event)
            case HeartbeatAnswered() | HeartbeatRejected() | HeartbeatFailed():
                if event.request_id == process.member.heartbeats.in_flight:
                    self.is_out = False
            case CoordinatorFound():
                self.is_searching = False
            case _:
                pass

    def _step_finished(self, process: Process, event: StepFinished) -> None:
        if self.step == (event.attempt, event.step):
            self.step = None
        if event.step is Step.PAUSE:
            member = process.member
            is_current = event.attempt == member.reconciler.attempt
            self.owes_commit = bool(event.offsets) and is_current and member.state in (_S.RECONCILE, _S.UNSUBSCRIBING)
        else:
            self.told = self.history.pop(0)

    # ---- effects ----

    def handled(self, process: Process, old: MemberState, effects: tuple[Effect, ...]) -> None:
        """The core handled an event."""
        state, name = old, process.name
        for number, effect in enumerate(effects):
            match effect:
                case StateChanged():
                    state = effect.new
                    self._changed(process, effect)
                case SendHeartbeat():
                    self._sent(process, effect, state, effects[number + 1 :])
                case FindCoordinator():
                    check(not self.is_searching, f"{name}: two searches for the coordinator at once")
                    self.is_searching = True
                case CommitCompleted():
                    self.owes_commit = False
                case CommitOffsets():
                    check(bool(effect.offsets), f"{name}: a commit of nothing")
                case PausePartitions() | RevokePartitions() | LosePartitions() | AssignPartitions():
                    self._ordered(name, process, effect)
                case _:
                    pass
        self._look_at_ghost(process)

    def _look_at_ghost(self, process: Process) -> None:
        """Takeover never loops: one for each join, and never by a member that was in the group before.

        Each join costs a missed poll at least, or is the application's wish.
        """
        member, name = process.member, process.name
        ghost = member.instance.ghost
        foreign = ghost.member_id if ghost is not None and ghost.member_id != member.member_id else None
        if foreign is not None and foreign != self.ghost:
            self.takeovers += 1
            check(self.is_newest, f"{name} takes over from {foreign} although it was in the group before")
            check(self.takeovers == 1, f"{name} takes an instance id over {self.takeovers} times in one join")
        if member.member_epoch > JOIN_EPOCH:
            self.is_newest = False
        self.ghost = foreign

    def _changed(self, process: Process, effect: StateChanged) -> None:
        name = process.name
        check(effect.old is not _S.FATAL, f"{name} does not stay FATAL: {effect.new}, {effect.reason}")
        if effect.new in _ENDS_MEMBERSHIP:
            self.is_out = False
        if effect.new in _ENDS_MEMBERSHIP or effect.new is _S.UNSUBSCRIBING:
            self.owes_commit, self.step = False, None
        if effect.new is _S.STALE:
            self.is_excused = True
        if effect.new is _S.FATAL:
            error = process.member.last_error
            check(
                error is not None and error.name in process.may_end_with,
                f"{name} gives up for good: {effect.reason}",
            )
        if effect.new is _S.JOINING:
            held = sorted(process.application.held)
            check(not held, f"{name} joins anew while its application holds {held}")
            self.is_excused = False
            self.is_newest |= effect.old in (_S.UNSUBSCRIBED, _S.FATAL)
            self.takeovers = 0

    def _ordered(self, name: str, process: Process, effect: StepEffect) -> None:
        """Pause, commit, on_revoke, and one step of an attempt at a time."""
        if self.step is not None:
            check(self.step[0] < effect.attempt, f"{name}: {effect} while step {self.step} runs")
        self.step = (effect.attempt, STEP_OF[type(effect)])
        match effect:
            case PausePartitions():
                held = process.application.held
                self.paused = frozenset(held) if effect.partitions is None else effect.partitions
                self.owes_commit = False
            case RevokePartitions():
                paused = self.paused
                check(paused is not None, f"{name}: revocation without a pause before it")
                names = effect.partitions
                is_paused = names is None or names <= (paused or frozenset())
                check(is_paused, f"{name}: {names} is revoked and {paused} was paused")
                check(not self.owes_commit, f"{name}: revocation before the commit was over")
                self.paused = None
            case LosePartitions():
                self.paused, self.owes_commit = None, False
            case AssignPartitions():
                pass

    # ---- heartbeats ----

    def _sent(self, process: Process, effect: SendHeartbeat, state: MemberState, rest: tuple[Effect, ...]) -> None:
        beat, name = effect.heartbeat, process.name
        if beat.is_leave and beat.owned is not None:
            self._left(name, state, rest)
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

    def _stated(self, process: Process, beat: Heartbeat, owned: Assignment, state: MemberState) -> None:
        """An acknowledgement claims no unfinished assignment, and no statement drops an unfinished revocation."""
        name, names = process.name, process.member.ownership.names
        check(beat.member_epoch > JOIN_EPOCH, f"{name} states what it owns at epoch {beat.member_epoch}")
        said = {TopicPartition(names[p.topic_id], p.partition) for p in owned}
        held = process.application.held
        check(held <= said, f"{name} says that it owns {sorted(said)}, and its application holds {sorted(held)}")
        extra = said - self.told
        check(state is not _S.ACK or not extra, f"{name} acknowledges {sorted(extra)}, which it has not taken over")

    def _left(self, name: str, state: MemberState, rest: tuple[Effect, ...]) -> None:
        goes_stale = any(isinstance(effect, StateChanged) and effect.new is _S.STALE for effect in rest)
        check(state is _S.UNSUBSCRIBING or goes_stale, f"{name} sends a leave in state {state}")
        if state is _S.UNSUBSCRIBING:
            check(not self.told, f"{name} leaves before its application gave up {sorted(self.told)}")
