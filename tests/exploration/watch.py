"""What must hold of one process at each event; the wording and the rules are those of `tests.simulation.invariants`.

Two processes may fetch the same partition only while one of them is *excused*: the coordinator removed its member id or
gave its place to another one, or handled a join of it that it had given up, or it left because its application did not
poll; until it joins anew, holding nothing. What depends on the protocol is in `consumer.watch` and `classic.watch`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from consumer_membership.membership.effects import (
    AssignPartitions,
    CommitCompleted,
    CommitOffsets,
    FindCoordinator,
    LosePartitions,
    PausePartitions,
    RevokePartitions,
    StateChanged,
    StepEffect,
)
from consumer_membership.membership.events import CoordinatorFound, Step, StepFinished
from consumer_membership.membership.states import MemberState
from consumer_membership.types import TopicPartition
from tests.exploration.application import STEP_OF
from tests.simulation.invariants import check, check_outsider

if TYPE_CHECKING:
    from tests.exploration.process import Process

_S = MemberState
_ENDS_MEMBERSHIP = frozenset({_S.FENCED, _S.STALE, _S.UNSUBSCRIBED, _S.FATAL})


@dataclass(slots=True)
class Watch(ABC):
    """What the invariants remember of one process."""

    is_excused: bool = False
    #: What the member was told that the application holds, and what it was not told yet.
    told: frozenset[TopicPartition] = frozenset()
    history: list[frozenset[TopicPartition]] = field(default_factory=list)
    #: Whether a heartbeat is out.
    is_out: bool = False
    step: tuple[int, Step] | None = None
    paused: frozenset[TopicPartition] | None = None
    owes_commit: bool = False
    is_searching: bool = False

    # ---- events ----

    def take(self, process: Process, event: Any) -> None:  # noqa: ANN401 - each protocol has its own events
        """An event is about to be handled."""
        match event:
            case StepFinished():
                self._step_finished(process, event)
            case CoordinatorFound():
                self.is_searching = False
            case _:
                self.take_answer(process, event)

    @abstractmethod
    def take_answer(self, process: Process, event: Any) -> None:  # noqa: ANN401
        """An event of the protocol is about to be handled."""

    def _step_finished(self, process: Process, event: StepFinished) -> None:
        if self.step == (event.attempt, event.step):
            self.step = None
        if event.step is Step.PAUSE:
            is_current = event.attempt == process.member.reconciler.attempt
            may_revoke = process.shown in (_S.RECONCILE, _S.UNSUBSCRIBING)
            self.owes_commit = bool(event.offsets) and is_current and may_revoke
        else:
            self.told = self.history.pop(0)

    # ---- effects ----

    def handled(self, process: Process, old: MemberState, effects: tuple[Any, ...]) -> None:
        """The core handled an event; `old` is the state before it, as it is shown."""
        state, name = old, process.name
        for number, effect in enumerate(effects):
            match effect:
                case StateChanged():
                    state = effect.new
                    self._changed(process, effect)
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
                    self.ordered(process, effect, state, effects[number + 1 :])
        check_outsider(process.member, name)
        self.look(process)

    @abstractmethod
    def look(self, process: Process) -> None:
        """The core handled an event, and its orders were looked at."""

    @abstractmethod
    def ordered(self, process: Process, effect: Any, state: MemberState, rest: tuple[Any, ...]) -> None:  # noqa: ANN401
        """The core orders something of its protocol."""

    @abstractmethod
    def changed(self, process: Process, effect: StateChanged) -> None:
        """The state that is shown has changed."""

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
        self.changed(process, effect)

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

    # ---- leaving ----

    def left(self, name: str, state: MemberState, rest: tuple[Any, ...]) -> None:
        """A leave goes out: the application gave up everything, or is late with its poll."""
        goes_stale = any(isinstance(effect, StateChanged) and effect.new is _S.STALE for effect in rest)
        check(state is _S.UNSUBSCRIBING or goes_stale, f"{name} sends a leave in state {state}")
        if state is _S.UNSUBSCRIBING:
            check(not self.told, f"{name} leaves before its application gave up {sorted(self.told)}")
