"""Without further faults every member settles: each state, run on without faults, settles within a bound.

The run is not random: what is under way arrives in order, applications perform and poll, timers come in turn, and dead
members' sessions end. Requests that were given up never arrive.
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

#: Turns until every member has settled: the longest that correct members took is far below.
MOST_TURNS = 40
START = PLACE["start"]
#: What one process does, one after the other, before the next one has its turn.
MOST_IMMEDIATE_STEPS = 200
_S = MemberState
#: In the order in which they are tried; polls and timers come once a turn.
_AT_ONCE = ("find_coordinator", "take_answer", "take_reply", "take_announcement", "do_task", "post", "perform")
_IN_TURN = ("poll", "beat", "retry")
#: What takes longer than a session, and so comes after the first turns only.
_AT_LAST = ("time_out", "repair", "repetitions_end", "stop_reserving")
PATIENCE = 2


class Fairness:
    """Runs states of a model on without faults, and remembers which settle."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._good: set[State] = set()
        topic = (TopicPartition(TOPIC, number) for number in range(model.config.partitions))
        self._partitions = frozenset(topic)

    @property
    def settled(self) -> int:
        """How many states are known to settle."""
        return len(self._good)

    def settled_from(self, state: State) -> State:
        """Where this state's run ends; its budgets are not touched."""
        *_, (_, last) = self._run(state)
        return (*last[:-1], state[-1])

    def path_from(self, state: State) -> list[State]:
        """The states of this state's run, up to what would cost something; budgets are not touched."""
        path = []
        for label, reached in self._run(state):
            if label is not None and label.costs:
                break
            path.append((*reached[:-1], state[-1]))
        return path

    def violation(self, state: State) -> str | None:
        """What is wrong with the end of this state's run."""
        passed: list[State] = []
        for _, reached in self._run(state):
            if reached in self._good:
                self._good.update(passed)
                return None
            passed.append(reached)
        wrong = None if self.model.config.overtakes else self._unsettled(passed[-1])
        if wrong is None:
            self._good.update(passed)
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
        """The state without what will never arrive."""
        model = self.model
        slots = (model.changed(number, "drop_undelivered") if number else EMPTY for number in state[: len(model.slots)])
        left = [0] * len(self.model.budgets.values[state[-1]])
        left[START] = self.model.budgets.values[state[-1]][START]
        return (*slots, state[-3], model.orphans.number(()), model.budgets.number(tuple(left)))

    def _run(self, state: State) -> Iterator[tuple[Label | None, State]]:
        """The states from this one on, each with the step that led to it, up to the first that is settled."""
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
        tries = [None, *_IN_TURN, *(_AT_LAST if turn >= PATIENCE else ())]
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
        for name in _AT_ONCE:
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
        """What is short passes in each turn; who is silent after a while is removed by the end of its session."""
        spontaneous_events = self.model.spontaneous_events(state[-3])
        return [one for one in spontaneous_events if (turn >= PATIENCE if one.is_long else one.budget is None)]

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
            return f"{sorted(held)} is delivered by {[process.name for process in stable]}, and not everything once"
        wrong = self._abandoned(state, present, stable)
        if wrong is not None:
            return wrong
        return model.clusters.values[state[-3]].unfinished(len(stable))

    def _abandoned(self, state: State, present: list[Process], stable: list[Process]) -> str | None:
        """A process continues for each instance id, unless its newest process, the one that may take it over, is dead.

        That one may also have been in the group before and been replaced, or have lost a race or waited in vain, and
        the other is dead since.
        """
        config = self.model.config
        served = {process.settings.instance_id for process in stable}
        started = config.budgets.get("start", 0) - self.model.budgets.values[state[-1]][START]
        for process in present:
            instance_id = process.settings.instance_id
            if not process.application.is_subscribed or instance_id is None or instance_id in served:
                continue
            is_shared = config.slots.count(instance_id) > 1
            if not is_shared or any(one.number == started and one.should_go_on() for one in present):
                return f"no process continues for {instance_id}: {process.name} is {internals.state(process.member)}"
        return None


def _unfinished(process: Process, served: frozenset[str | None]) -> str | None:
    application, state, phase = process.application, process.shown, internals.phase(process.member)
    message = f"{process.name} is {internals.state(process.member)}"
    if process.may_wait and served.issuperset(process.settings.instance_pool or (process.instance_id,)):
        # It waits for an id, and live processes hold all that it may have.
        return None
    wanted = (_S.STABLE, _S.FATAL) if application.is_subscribed else (_S.UNSUBSCRIBED, _S.FATAL)
    if state not in wanted or application.is_leaving:
        return message
    if state is not _S.STABLE and application.held:
        return f"{message} and holds {sorted(application.held)}"
    if phase is not Phase.IDLE:
        return f"{message} and waits for {phase.value}"
    return None
