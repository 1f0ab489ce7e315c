"""The states of a KIP-848 member and the only ways from one to the other.

A member of the consumer protocol knows two things: its *epoch*, which the coordinator raises with each change of
its assignment, and the partitions it *owns*. The coordinator sends a *target*; the member gives up what is not in it,
takes what is new, and acknowledges by naming what it owns in the next heartbeat. Only then does the coordinator give
the freed partitions to somebody else. So a partition has at most one owner as long as members neither acknowledge too
early nor go on fetching after they were fenced; the table below is what keeps a member from doing either.

Two rules:

1. Everything that says which state may follow which lives here; `StateMachine` is the only writer of a state and
   refuses an edge that its table lacks.
2. This module does not know why a transition happens. The reasons are in `consumer.protocol`, each with the broker's
   rule, and in `member`.

| state | heartbeats | Kafka's Java name | meaning |
|---|---|---|---|
| UNSUBSCRIBED | none | UNSUBSCRIBED | never joined, or left completely |
| JOINING | at once, full, epoch 0 | JOINING | wants in; no epoch above 0 came back yet |
| RECONCILE | on the interval | RECONCILING | the target differs from what is owned; steps are running or waiting |
| ACK | at once | ACKNOWLEDGING | steps finished; the next heartbeat says so |
| STABLE | on the interval | STABLE | owns its target |
| FENCED | none | FENCED | the coordinator does not know this epoch any more; partitions are being declared lost |
| STALE | none | STALE | left because the application did not poll; waits for its next poll |
| UNSUBSCRIBING | on the interval, then one leave | PREPARE_LEAVING + LEAVING | gives up everything, then leaves |
| FATAL | none | FATAL | refused for good; only a new subscription helps, where the old one was the cause |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Generic, TypeVar

from consumer_membership.errors import InternalError

StateT = TypeVar("StateT", bound=Enum)


class MemberState(Enum):
    """The state of one member; the module's table says what each means."""

    UNSUBSCRIBED = "UNSUBSCRIBED"
    JOINING = "JOINING"
    RECONCILE = "RECONCILE"
    ACK = "ACK"
    STABLE = "STABLE"
    FENCED = "FENCED"
    STALE = "STALE"
    UNSUBSCRIBING = "UNSUBSCRIBING"
    FATAL = "FATAL"

    def __str__(self) -> str:
        """The bare name, as logs and views print it."""
        return self.value


_S = MemberState

#: From each state, the states that may follow. To stay is not a transition.
VALID_TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
        _S.JOINING: frozenset({_S.RECONCILE, _S.FENCED, _S.STALE, _S.UNSUBSCRIBING, _S.FATAL}),
        _S.RECONCILE: frozenset({_S.ACK, _S.FENCED, _S.STALE, _S.UNSUBSCRIBING, _S.FATAL}),
        _S.ACK: frozenset({_S.STABLE, _S.RECONCILE, _S.FENCED, _S.STALE, _S.UNSUBSCRIBING, _S.FATAL}),
        _S.STABLE: frozenset({_S.RECONCILE, _S.FENCED, _S.STALE, _S.UNSUBSCRIBING, _S.FATAL}),
        _S.FENCED: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
        _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
        _S.UNSUBSCRIBING: frozenset({_S.UNSUBSCRIBED, _S.FATAL}),
        _S.FATAL: frozenset({_S.JOINING}),
    }
)

#: The states in which the coordinator counts on this member, so that heartbeats are due.
IN_GROUP: frozenset[MemberState] = frozenset({_S.JOINING, _S.RECONCILE, _S.ACK, _S.STABLE})

#: The states in which no heartbeat may be sent.
SILENT: frozenset[MemberState] = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.STALE, _S.FATAL})


class StateMachine(Generic[StateT]):
    """A state, and the only writer of it: an edge that its table lacks is our bug. It begins with the table's first."""

    __slots__ = ("_of", "_table", "state")

    def __init__(self, of: str, table: Mapping[StateT, frozenset[StateT]]) -> None:
        self._of = of
        self._table = table
        self.state = next(iter(table))

    def go(self, new: StateT, reason: str) -> StateT:
        """Change the state; the one before.

        Raises:
            InternalError: there is no such way.
        """
        old = self.state
        if new not in self._table[old]:
            raise InternalError(f"{self._of} cannot go from {old} to {new} ({reason})")
        self.state = new
        return old


def diagram(table: Mapping[StateT, frozenset[StateT]]) -> str:
    """A transition table as a Mermaid state diagram; docs/architecture.md carries them and a test keeps both equal."""
    lines = ["stateDiagram-v2", f"    [*] --> {next(iter(table))}"]
    for state in table:
        lines += [f"    {state} --> {after}" for after in table if after in table[state]]
    return "\n".join(lines)
