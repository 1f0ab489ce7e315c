"""A path through a model's states, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.exploration.cluster import SpontaneousEvent
from tests.exploration.fork import fork
from tests.exploration.model import Model
from tests.exploration.moves import Move
from tests.exploration.parts import Label, State, Step
from tests.exploration.process import Process
from tests.simulation.process_invariants import Violation
from tests.simulation.trace import as_text


def path_text(model: Model, path: Sequence[State], last: Step | None) -> str:
    """Return the steps between these states and an optional last step, each with the effects of the members."""
    lines: list[str] = []
    for number, (before, after) in enumerate(pairwise(path)):
        step = next((step for step in model.steps(before) if step.state == after), None)
        if step is None:
            lines.append(f"{number + 1:4} abandoned requests do not arrive any more")
        else:
            lines += lines_of(model, number + 1, before, step.label)
    if last is not None:
        lines += lines_of(model, len(path), path[-1], last.label)
    return "\n".join(lines)


def lines_of(model: Model, number: int, state: State, label: Label) -> Iterator[str]:
    """Yield the lines of text for one step from this state."""
    process = model.processes.values[state[label.slot]] if 0 <= label.slot < len(model.slots) else None
    who = process.name if process is not None else f"slot {label.slot}" if label.slot >= 0 else "coordinator"
    match label.kind, label.detail:
        case "local", Move() as move:
            yield f"{number:4} {who}: {move.name.replace('_', ' ')}"
        case "execute", (str(how), int(), int(number_of_request), int(reply)):
            request, answer = model.requests.values[number_of_request], model.replies.values[reply]
            late = " that it had abandoned" if how == "executed_abandoned" else ""
            yield f"{number:4} {who}: its request{late} is handled: {as_text(request)}"
            yield f"{'':8} = {as_text(answer) if answer is not None else 'to be answered later'}"
        case "orphan", int(number_of_request):
            yield f"{number:4} a dead process's request is handled: {as_text(model.requests.values[number_of_request])}"
        case kind, SpontaneousEvent() as event:
            yield f"{number:4} {who}: {kind.replace('_', ' ')} {' '.join(event.about)}"
        case "crash", int(handled):
            yield f"{number:4} {who}: crash; {handled} of its requests are handled"
        case kind, _:
            yield f"{number:4} {who}: {kind}"
    if process is not None:
        yield from _consequences(model, fork(process), label)


def _consequences(model: Model, process: Process, label: Label) -> Iterator[str]:
    """Yield the events that the core received in this step, and its effects."""
    try:
        match label.kind, label.detail:
            case "local", Move() as move:
                process.apply(move)
            case "execute", (str(how), int(place), int(), int(reply)):
                process.handled(how, place, model.replies.values[reply])  # type: ignore[arg-type]  # stored as hashable values
            case _:
                return
    except Violation:
        pass
    for event, state, effects in process.log:
        yield f"{'':8} {state!s:13} {as_text(event)}"
        for effect in effects:
            yield f"{'':12} -> {as_text(effect)}"
