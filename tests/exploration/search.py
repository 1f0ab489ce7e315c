"""The breadth-first search of a model's states, until all states are known, a limit is reached, or a rule is broken."""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from tests.exploration.configurations import Configuration
from tests.exploration.fairness import Fairness
from tests.exploration.model import Model
from tests.exploration.parts import State, Step
from tests.exploration.trace import path_text

#: The number of states between two reads of the clock.
BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of an exploration. `depth` is the number of steps up to which it is complete."""

    states: int
    steps: int
    depth: int
    is_complete: bool
    seconds: float
    parts: int
    settled: int
    violation: str | None = None
    trace: str = ""


class Search:
    """One exploration. Every `sample`-th state is also run without faults until it settles (`fairness`)."""

    def __init__(self, model: Model, *, sample: int = 1) -> None:
        self.model = model
        self.fairness = Fairness(model)
        self._sample = sample
        self._states: list[State] = []
        self._parents = array("q")
        self._known: dict[State, int] = {}
        #: The number of states at which the exploration begins.
        self._begins = 0
        self._steps = 0
        self._depth = 0

    def run(self, *, depth: int | None = None, seconds: float = float("inf")) -> Outcome:
        """Explore until this depth or this time is reached."""
        began = time.perf_counter()
        gc.disable()
        try:
            return self._run(depth, began, began + seconds)
        finally:
            gc.enable()

    def _run(self, depth: int | None, began: float, until: float) -> Outcome:
        for state in self._roots():
            if state not in self._known:
                self._add(state, len(self._states) - 1)
        start, end = 0, len(self._states)
        self._begins = end
        while start < end and (depth is None or self._depth < depth):
            for number in range(start, end):
                if number % BATCH == 0 and time.perf_counter() > until:
                    return self._outcome(began, is_complete=False)
                broken = self._expand(number)
                if broken is not None:
                    return self._outcome(began, is_complete=False, broken=(number, *broken))
            start, end = end, len(self._states)
            self._depth += 1
        return self._outcome(began, is_complete=start == end)

    def _roots(self) -> Iterator[State]:
        """Yield the states at which the exploration begins: the first state, and each state of the opening."""
        model = self.model
        state = self.fairness.settled_from(model.first()) if model.config.is_settled else model.first()
        yield state
        for name in model.config.opening:
            state = next(step.state for step in model.steps(state) if step.label.name == name)
            yield state
            path = self.fairness.path_from(state)
            yield from path
            state = path[-1]

    def _add(self, state: State, parent: int) -> None:
        self._known[state] = len(self._states)
        self._states.append(state)
        self._parents.append(parent)

    def _expand(self, number: int) -> tuple[Step | None, str] | None:
        """Add the states after this one; return the step that breaks a rule, with the rule."""
        model, known = self.model, self._known
        state = self._states[number]
        for step in model.steps(state):
            self._steps += 1
            if step.violation is not None:
                return step, step.violation
            if step.state in known and number >= self._begins:
                # The states of the opening are known before the search.
                continue
            violation = model.violation(step.state)
            if violation is not None:
                return step, violation
            if step.state not in known:
                self._add(step.state, number)
        if number % self._sample == 0:
            stuck = self.fairness.violation(state)
            if stuck is not None:
                return None, stuck
        return None

    def _path(self, number: int) -> Iterator[State]:
        while number >= 0:
            yield self._states[number]
            number = self._parents[number]

    def _outcome(
        self, began: float, *, is_complete: bool, broken: tuple[int, Step | None, str] | None = None
    ) -> Outcome:
        trace, violation = "", None
        if broken is not None:
            number, step, violation = broken
            path = list(self._path(number))[::-1]
            trace = path_text(self.model, path, step)
            if step is None:
                trace += "\nand then without faults:\n" + self.fairness.run_text(path[-1])
        return Outcome(
            states=len(self._states),
            steps=self._steps,
            depth=self._depth,
            is_complete=is_complete,
            seconds=time.perf_counter() - began,
            parts=len(self.model.processes.values) + len(self.model.clusters.values),
            settled=self.fairness.settled,
            violation=violation,
            trace=trace,
        )


def explore(config: Configuration, rules: str, depth: int | None, seconds: float) -> Outcome:
    """Run one exploration; each call needs its own process."""
    return Search(Model(config, rules)).run(depth=depth, seconds=seconds)
