"""The states of a KIP-848 member and the only transitions between them.

A member of the consumer protocol has two things: its *epoch*, which the coordinator raises with each change of
its assignment, and the partitions it *owns*. The coordinator sends a *target*; the member revokes partitions that are
not in it, takes the new ones, and acknowledges by listing its partitions in the next heartbeat. Only then does the
coordinator assign the freed partitions to another member. So a partition has at most one owner as long as members
neither acknowledge too early nor continue to fetch after they were fenced; the table below prevents both.

Two rules:

1. The transitions are in `TRANSITIONS` alone: the machine, the diagrams in the
   documents and the tests read the same table. `StateMachine` is the only writer of a state and refuses a trigger that
   the table lacks for it.
2. This module does not know what a transition does. That is in `member`, for what both protocols share, and in
   `consumer.protocol`.

| state | heartbeats | Kafka's Java name | meaning |
|---|---|---|---|
| UNSUBSCRIBED | none | UNSUBSCRIBED | never joined, or left completely |
| JOINING | at once, full, epoch 0 | JOINING | requests to join; the coordinator has not returned an epoch above 0 yet |
| RECONCILE | on the interval | RECONCILING | the target differs from the owned partitions; steps are due or running |
| ACK | at once | ACKNOWLEDGING | the callbacks have returned; the next heartbeat acknowledges the assignment |
| STABLE | on the interval | STABLE | owns exactly its target |
| FENCED | none | FENCED | the coordinator fenced the member; on_lost is called, then the member rejoins |
| STALE | none | STALE | left because the application did not poll; waits for its next poll |
| UNSUBSCRIBING | on the interval, then one leave | PREPARE_LEAVING + LEAVING | revokes all partitions, then leaves |
| FATAL | none | FATAL | refused permanently; only a new subscription helps, if the old one was the cause |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from consumer_membership.errors import InternalError
from consumer_membership.membership import events as ev

StateT = TypeVar("StateT", bound=Enum)


class MemberState(Enum):
    """The state of one member; the module's table has their meanings."""

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
        """Return the bare name, as logs and views print it."""
        return self.value


class Trigger(Enum):
    """What changes the state of a member of either protocol; the value is the label in the diagrams."""

    POLLED = "the application polls"
    RESUBSCRIBED = "the application polls with another subscription"
    PARTITIONS_LOST = "on_lost has returned"
    FENCED = "the coordinator fences the member"
    POLL_TIMEOUT = "max.poll.interval.ms exceeded"
    REFUSED = "the coordinator refuses the member"
    LEAVE_REQUESTED = "the application unsubscribes or closes"
    LEAVE_ENDED = "the leave is answered or given up"


class ConsumerTrigger(Enum):
    """The additional triggers of a member of the consumer protocol; the value is the label in the diagram."""

    ASSIGNMENT_RECEIVED = "the coordinator answers the join with an assignment"
    TARGET_CHANGED = "the coordinator changes the assignment"
    RECONCILED = "the assignment is applied"
    ACK_SENT = "the acknowledgement is sent, and the target is reached"
    HAND_OVER_REQUESTED = "a successor is ready to take the instance id over"
    ID_RELEASED = "the instance id is released for the successor"
    ACK_SENT_EARLY = "the acknowledgement is sent, and the target has changed"


class TransitionRule(NamedTuple, Generic[StateT]):
    """One row of a table: in these states, this trigger leads to that state; `rule` has the source."""

    states: Sequence[StateT]
    trigger: Enum
    to: StateT
    rule: str


def followers(table: Iterable[TransitionRule[StateT]]) -> Mapping[StateT, frozenset[StateT]]:
    """Return the states that may follow each state."""
    found: dict[StateT, frozenset[StateT]] = {}
    for row in table:
        found |= {state: found.get(state, frozenset()) | {row.to} for state in row.states}
    return MappingProxyType(found)


def transitions_by_trigger(table: Iterable[TransitionRule[StateT]]) -> Mapping[tuple[StateT, Enum], StateT]:
    """Return the table by state and trigger."""
    return MappingProxyType({(state, row.trigger): row.to for row in table for state in row.states})


_S, _T, _C = MemberState, Trigger, ConsumerTrigger
_IN_GROUP = (_S.JOINING, _S.RECONCILE, _S.ACK, _S.STABLE)

#: Every transition of a member of the consumer protocol; the first row begins in the initial state. "Section" is one of
#: docs/project/protocol.md.
TRANSITIONS: tuple[TransitionRule[MemberState], ...] = (
    TransitionRule(
        (_S.UNSUBSCRIBED,), _T.POLLED, _S.JOINING, "KIP-848; section 1.5: a rebalance never starts outside poll"
    ),
    TransitionRule((_S.JOINING,), _C.ASSIGNMENT_RECEIVED, _S.RECONCILE, "KIP-848; section 1.5: the first target"),
    TransitionRule(
        (_S.RECONCILE,), _C.RECONCILED, _S.ACK, "KIP-848; section 1.6: revoke, then assign, then acknowledge"
    ),
    TransitionRule((_S.ACK,), _C.ACK_SENT, _S.STABLE, "section 1.5: when the heartbeat is built, as in Java"),
    TransitionRule((_S.ACK,), _C.ACK_SENT_EARLY, _S.RECONCILE, "section 1.5: a newer target is reconciled at once"),
    TransitionRule(
        (_S.ACK, _S.STABLE), _C.TARGET_CHANGED, _S.RECONCILE, "KIP-848; section 1.5: a target replaces a target"
    ),
    TransitionRule(_IN_GROUP, _T.FENCED, _S.FENCED, "FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID; section 2.4"),
    TransitionRule(
        (_S.FENCED,), _T.PARTITIONS_LOST, _S.JOINING, "section 1.5: on_lost returns before the member rejoins"
    ),
    TransitionRule(_IN_GROUP, _T.POLL_TIMEOUT, _S.STALE, "KIP-62; section 1.9"),
    TransitionRule((_S.STALE,), _T.PARTITIONS_LOST, _S.JOINING, "section 1.9: on_lost runs inside the next poll"),
    TransitionRule((_S.STALE,), _T.POLLED, _S.JOINING, "section 1.9: no partition was held"),
    TransitionRule((*_IN_GROUP, _S.UNSUBSCRIBING), _T.REFUSED, _S.FATAL, "section 2.4: codes for which no retry helps"),
    TransitionRule((_S.FATAL,), _T.RESUBSCRIBED, _S.JOINING, "section 2.4: the refused subscription was the cause"),
    TransitionRule(_IN_GROUP, _T.LEAVE_REQUESTED, _S.UNSUBSCRIBING, "section 1.10: revoke everything, then leave"),
    TransitionRule(
        (_S.FENCED, _S.STALE), _T.LEAVE_REQUESTED, _S.UNSUBSCRIBED, "section 1.10: there is nothing to leave"
    ),
    TransitionRule((_S.UNSUBSCRIBING,), _T.LEAVE_ENDED, _S.UNSUBSCRIBED, "KIP-848; section 1.10: best effort"),
    TransitionRule(
        (_S.ACK, _S.STABLE), _C.HAND_OVER_REQUESTED, _S.UNSUBSCRIBING, "section 3.3: as a leave of the application"
    ),
    TransitionRule(
        (_S.UNSUBSCRIBING,), _C.ID_RELEASED, _S.JOINING, "section 3.3: it waits for its successor, or for another id"
    ),
    TransitionRule((_S.UNSUBSCRIBING,), _T.FENCED, _S.FENCED, "section 3.3: only during a hand-over"),
    TransitionRule((_S.UNSUBSCRIBING,), _T.POLL_TIMEOUT, _S.STALE, "section 3.3: only during a hand-over"),
)

#: The targets of the transitions, by state and trigger.
TARGETS = transitions_by_trigger(TRANSITIONS)

#: The events that cause each trigger in a member of the consumer protocol; () if a condition causes it.
CAUSES: Mapping[Enum, tuple[type, ...]] = MappingProxyType(
    {
        _T.POLLED: (ev.Polled,),
        _T.RESUBSCRIBED: (ev.Polled,),
        _T.PARTITIONS_LOST: (),
        _T.FENCED: (ev.HeartbeatRejected,),
        _T.POLL_TIMEOUT: (),
        _T.REFUSED: (
            ev.HeartbeatRejected,
            ev.HeartbeatFailed,
            ev.GroupDescribed,
            ev.GroupDescribeFailed,
            ev.StartOffsetsFailed,
        ),
        _T.LEAVE_REQUESTED: (ev.LeaveRequested,),
        _T.LEAVE_ENDED: (),
        _C.ASSIGNMENT_RECEIVED: (ev.HeartbeatAnswered,),
        _C.TARGET_CHANGED: (ev.HeartbeatAnswered,),
        _C.RECONCILED: (),
        _C.HAND_OVER_REQUESTED: (ev.AnnouncementsRead,),
        _C.ID_RELEASED: (),
        _C.ACK_SENT: (),
        _C.ACK_SENT_EARLY: (),
    }
)

#: The states of a member that is in its group or joins it, and does not leave.
IN_GROUP: frozenset[MemberState] = frozenset(_IN_GROUP)

#: The states in which no heartbeat may be sent.
SILENT: frozenset[MemberState] = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.STALE, _S.FATAL})


class StateMachine(Generic[StateT]):
    """A state, and the only writer of it: a trigger that the table lacks for the state is a bug of this package.

    `targets`: a table by state and trigger; its first row begins in the initial state.
    """

    __slots__ = ("_name", "_targets", "state")

    def __init__(self, name: str, targets: Mapping[tuple[StateT, Enum], StateT]) -> None:
        self._name = name
        self._targets = targets
        self.state = next(iter(targets))[0]

    def fire(self, trigger: Enum) -> StateT:
        """Go where the trigger leads from the present state; return the state before.

        Raises:
            InternalError: the table has no such transition.
        """
        old = self.state
        new = self._targets.get((old, trigger))
        if new is None:
            raise InternalError(f"{self._name} in state {old} has no transition for {trigger.name} ({trigger.value})")
        self.state = new
        return old

    def fire_or_stay(self, trigger: Enum) -> None:
        """Go where the trigger leads, unless the machine is there already."""
        is_there = any(self.state is new for (_, one), new in self._targets.items() if one is trigger)
        if not is_there:
            self.fire(trigger)


def diagram(table: Sequence[TransitionRule[StateT]]) -> str:
    """Return a table as a Mermaid state diagram with its triggers, as docs/explanation/architecture.md shows it."""
    lines = ["stateDiagram-v2", f"    [*] --> {table[0].states[0]}"]
    lines += [f"    {state} --> {row.to}: {row.trigger.value}" for row in table for state in row.states]
    return "\n".join(lines)
