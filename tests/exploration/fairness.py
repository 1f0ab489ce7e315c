"""The check that each state settles within a bounded number of steps if no further faults occur.

The run from a state is not random: messages arrive in order, applications perform their effects and poll, timers end
one after the other, and sessions of dead members end. Abandoned requests never arrive.
"""

from __future__ import annotations

from collections.abc import Iterator

from consumer_membership.membership.reconciler import Phase
from consumer_membership.membership.states import MemberState
from consumer_membership.types import TopicPartition
from tests.exploration.cluster import SpontaneousEvent
from tests.exploration.model import PLACE, Model
from tests.exploration.parts import EMPTY, Label, State
from tests.exploration.process import TOPIC, Process
from tests.exploration.trace import lines_of
from tests.simulation import internals

#: The limit of turns until every member has settled; correct members need far fewer turns.
MOST_TURNS = 40
START = PLACE["start"]
#: The limit of consecutive immediate steps of one process within its turn.
MOST_IMMEDIATE_STEPS = 200
_S = MemberState
#: Immediate steps in the order in which they are tried; polls and timers occur once in a turn.
_IMMEDIATE = ("find_coordinator", "take_answer", "take_reply", "take_announcement", "do_task", "post", "perform")
_IN_TURN = ("poll", "heartbeat", "retry")
#: Steps that take longer than a session, and so occur only after the first turns.
_LONG = ("time_out", "repair", "repetitions_end", "stop_reserving")
TURNS_OF_A_SESSION = 2


class Fairness:
    """Runs from states of a model without faults; it remembers the states that settle."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._settling: set[State] = set()
        topic = (TopicPartition(TOPIC, number) for number in range(model.config.partitions))
        self._partitions = frozenset(topic)

    @property
    def settled(self) -> int:
        """The number of states that are known to settle."""
        return len(self._settling)

    def settled_from(self, state: State) -> State:
        """Return the last state of this state's run, with the budgets of this state."""
        *_, (_, last) = self._run(state)
        return (*last[:-1], state[-1])

    def path_from(self, state: State) -> list[State]:
        """Return the states of this state's run up to the first step with a cost, with the budgets of this state."""
        path = []
        for label, reached in self._run(state):
            if label is not None and label.costs:
                break
            path.append((*reached[:-1], state[-1]))
        return path

    def violation(self, state: State) -> str | None:
        """Return why this state's run does not settle, or None."""
        passed: list[State] = []
        for _, reached in self._run(state):
            if reached in self._settling:
                self._settling.update(passed)
                return None
            passed.append(reached)
        wrong = None if self.model.config.overtakes else self._unsettled(passed[-1])
        if wrong is None:
            self._settling.update(passed)
        return wrong

    def run_text(self, state: State) -> str:
        """Return the run from this state as text."""
        lines: list[str] = []
        before = self._without_undelivered(state)
        for number, (label, reached) in enumerate(self._run(state)):
            if label is not None:
                lines += lines_of(self.model, number, before, label)
            before = reached
        return "\n".join(lines)

    # ---- the run ----

    def _without_undelivered(self, state: State) -> State:
        """Return the state without messages that will never arrive, and without budgets except for starts."""
        model = self.model
        slots = (model.changed(number, "drop_undelivered") if number else EMPTY for number in state[: len(model.slots)])
        left = [0] * len(self.model.budgets.values[state[-1]])
        left[START] = self.model.budgets.values[state[-1]][START]
        return (*slots, state[-3], model.orphans.number(()), model.budgets.number(tuple(left)))

    def _run(self, state: State) -> Iterator[tuple[Label | None, State]]:
        """Yield the states of the run up to the first settled state, each with the step that led to it."""
        state = self._without_undelivered(state)
        yield None, state
        for turn in range(MOST_TURNS):
            if self._unsettled(state) is None:
                return
            for slot in self.model.slots:
                for label, reached in self._turn_of(state, slot, turn):
                    state = reached
                    yield label, state
            for label, reached in self._turn_of_coordinator(state, turn):
                state = reached
                yield label, state

    def _turn_of(self, state: State, slot: int, turn: int) -> Iterator[tuple[Label, State]]:
        tries = [None, *_IN_TURN, *(_LONG if turn >= TURNS_OF_A_SESSION else ())]
        for name in tries:
            if name is not None and (done := self._do(state, slot, name)) is not None:
                yield done
                state = done[1]
            for _ in range(MOST_IMMEDIATE_STEPS):
                done = self._immediate_step(state, slot)
                if done is None:
                    break
                yield done
                state = done[1]

    def _immediate_step(self, state: State, slot: int) -> tuple[Label, State] | None:
        for name in _IMMEDIATE:
            done = self._do(state, slot, name)
            if done is not None:
                return done
        if state[slot] == EMPTY:
            return None
        for how, place, request in self.model.deliveries(state[slot]):
            step = self.model.execute(state, slot, how, place, request)
            return step.label, step.state
        return None

    def _do(self, state: State, slot: int, name: str) -> tuple[Label, State] | None:
        if state[slot] == EMPTY:
            return None
        for local in self.model.local_steps(state[slot]):
            if local.move.name == name:
                after = self.model.after(state[slot], local)
                if after == state[slot]:
                    return None
                return Label("local", slot, local.move), (*state[:slot], after, *state[slot + 1 :])
        return None

    def _turn_of_coordinator(self, state: State, turn: int) -> Iterator[tuple[Label, State]]:
        for event in self._due(state, turn):
            step = next((one for one in self.model.steps_of_event(state, event)), None)
            if step is not None and step.state != state:
                state = step.state
                yield step.label, state

    def _due(self, state: State, turn: int) -> list[SpontaneousEvent]:
        """Return the events of this turn: short events occur in each turn, and sessions end after the first turns."""
        spontaneous_events = self.model.spontaneous_events(state[-3])
        return [
            one for one in spontaneous_events if (turn >= TURNS_OF_A_SESSION if one.is_long else one.budget is None)
        ]

    # ---- its end ----

    def _unsettled(self, state: State) -> str | None:
        """Return why this state does not count as settled."""
        model = self.model
        present = [one for number in state[: len(model.slots)] if (one := model.processes.values[number]) is not None]
        served = frozenset(one.instance_id for one in present if one.is_stable) - {None}
        wrong = next((wrong for process in present if (wrong := _unfinished(process, served)) is not None), None)
        if wrong is not None:
            return wrong
        stable = [process for process in present if process.is_stable]
        held = [partition for process in stable for partition in process.application.fetchable]
        if stable and (len(held) != len(set(held)) or set(held) != self._partitions):
            return f"{sorted(held)} is delivered by {[process.name for process in stable]}, and not each partition once"
        wrong = self._abandoned(state, present, stable)
        if wrong is not None:
            return wrong
        return model.clusters.values[state[-3]].unfinished(len(stable))

    def _abandoned(self, state: State, present: list[Process], stable: list[Process]) -> str | None:
        """Return why an instance id has no process, although its newest process, which may take it over, is alive.

        An instance id may have no process if its newest process was replaced, lost a race or ended its wait, and the
        other process died later.
        """
        config = self.model.config
        served = {process.settings.instance_id for process in stable}
        started = config.budgets.get("start", 0) - self.model.budgets.values[state[-1]][START]
        for process in present:
            instance_id = process.settings.instance_id
            if not process.application.is_subscribed or instance_id is None or instance_id in served:
                continue
            is_shared = config.slots.count(instance_id) > 1
            if not is_shared or any(one.number == started and one.should_continue() for one in present):
                return f"no process continues for {instance_id}: {process.name} is {internals.state(process.member)}"
        return None


def _unfinished(process: Process, served: frozenset[str | None]) -> str | None:
    application, state, phase = process.application, process.shown, internals.phase(process.member)
    message = f"{process.name} is {internals.state(process.member)}"
    if process.may_wait and served.issuperset(process.settings.instance_pool or (process.instance_id,)):
        # It waits for an id, and live processes hold all of its possible ids.
        return None
    wanted = (_S.STABLE, _S.FATAL) if application.is_subscribed else (_S.UNSUBSCRIBED, _S.FATAL)
    if state not in wanted or application.is_leaving:
        return message
    if state is not _S.STABLE and application.held:
        return f"{message} and holds {sorted(application.held)}"
    if phase is not Phase.IDLE:
        return f"{message} and waits for {phase.value}"
    return None
