"""Generate `docs/reference/states.md` from the state machines' tables: `python -m tests.support.state_tables`.

The meanings of states are the tables in the docstrings of the states' modules. The transitions are the tables that the
state machines use.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator, Sequence
from types import ModuleType

from consumer_membership.membership import states
from consumer_membership.membership.classic import states as classic_states
from consumer_membership.membership.consumer import claim_states, epoch_increase, predecessor, successor
from consumer_membership.membership.states import StateT, TransitionRule
from tests.support.documents import DOCS, tables

#: The composite state of a diagram.
_GROUP = "IN_GROUP"
DOCUMENT = DOCS / "reference" / "states.md"
_HEAD = """# Member states

This page lists the states of a group member, what each state means, and every transition between them. It is generated
from the tables that the state machines use. `consumer.membership().state` returns the current state as a
[`MemberState`](api/membership-view.md).

In the tables of transitions, "section" refers to the [protocol specification](../project/protocol.md).
"""
_CONSUMER = """These are the states of a member of a KIP-848 group. They are the values of `MemberState`."""
_CLASSIC = """A member of a classic group has one state more for each step of a rebalance. The view shows them as the
`MemberState` in the fourth column."""
_CLAIM = """A static member of a KIP-848 group claims its `group.instance.id` before it joins. These states are
internal; [static members](../operating/static-members.md) describes what you can configure."""
_SUCCESSOR = """With `group.instance.id.conflict.policy=hand-over`, a new process requests that the holder of an
instance id [hands over](../operating/hand-over.md). These states are internal."""
_PREDECESSOR = """A member with this policy hands its instance id over when a successor is ready. These states are
internal."""
_EPOCH = """A static member with [leases](../consuming/leases.md) takes no partition before its epoch is larger than
the epochs of all former holders of its instance id. These states are internal."""


def document() -> str:
    """Return the page."""
    parts = [
        _HEAD,
        *_section("KIP-848 members", _CONSUMER, states, states.TRANSITIONS, states.IN_GROUP),
        *_section(
            "Classic members",
            _CLASSIC,
            classic_states,
            classic_states.CLASSIC_TRANSITIONS,
            classic_states.CLASSIC_IN_GROUP,
        ),
        *_section("Claims to an instance id", _CLAIM, claim_states, claim_states.CLAIM_TRANSITIONS),
        *_section("Successors in a hand-over", _SUCCESSOR, successor, successor.SUCCESSOR_TRANSITIONS),
        *_section("Predecessors in a hand-over", _PREDECESSOR, predecessor, predecessor.PREDECESSOR_TRANSITIONS),
        *_section("Larger epochs for tokens", _EPOCH, epoch_increase, epoch_increase.EPOCH_TRANSITIONS),
    ]
    return "\n".join(parts)


def _section(
    title: str,
    text: str,
    module: ModuleType,
    table: Sequence[TransitionRule[StateT]],
    together: Collection[StateT] = (),
) -> Iterator[str]:
    """Yield the parts of a section; the first table of the module's docstring has the meanings of the states."""
    yield f"## {title}\n\n{text}\n"
    yield "\n".join(_meanings(module)) + "\n"
    yield f"```mermaid\n{_drawn(table, together)}\n```\n"
    yield f"### Transitions: {title}\n"
    yield "| from | trigger | to | source |\n|---|---|---|---|"
    for row in table:
        before = ", ".join(f"`{state}`" for state in row.states)
        yield f"| {before} | {row.trigger.value} | `{row.to}` | {row.rule} |"
    yield ""


def _drawn(table: Sequence[TransitionRule[StateT]], together: Collection[StateT]) -> str:
    """Return a Mermaid diagram without triggers; a transition from all states in the group is one arrow."""
    inside: dict[str, None] = {}
    outside = {f"[*] --> {table[0].states[0]}": None}
    for row in table:
        is_of_all = bool(together) and set(together) <= set(row.states)
        if is_of_all:
            outside[f"{_GROUP} --> {row.to}"] = None
        for state in row.states:
            if not (is_of_all and state in together):
                is_inside = state in together and row.to in together
                (inside if is_inside else outside)[f"{state} --> {row.to}"] = None
    group = [f"    state {_GROUP} {{", *(f"        {arrow}" for arrow in inside), "    }"] if inside else []
    return "\n".join(["stateDiagram-v2", *group, *(f"    {arrow}" for arrow in outside)])


def _meanings(module: ModuleType) -> list[str]:
    """Return the first table of a module's docstring, with the states in backticks."""
    head, rule, *rows = tables(inspect.getdoc(module) or "")[0]
    return [head, rule, *(re.sub(r"^\| (\w+) \|", r"| `\1` |", row) for row in rows)]


if __name__ == "__main__":
    DOCUMENT.write_text(document())
