"""The states of a member of the classic protocol, and the only ways from one to the other.

A classic group moves in *generations*. In each rebalance every member sends a JoinGroup with what it wants and owns.
The coordinator waits for all, makes one of them the leader and gives it everybody's words; the leader's assignor
computes who gets what, and everybody receives its share with the answer to SyncGroup. With an EAGER assignor a member
gives up everything before it joins; with a COOPERATIVE one it keeps what it has, gives up what its share lacks, and
joins again, so that the freed partitions find their new owners one generation later (KIP-429).

| state | heartbeats | Kafka's Java name | `MemberState` in the view | meaning |
|---|---|---|---|---|
| UNSUBSCRIBED | none | UNJOINED | UNSUBSCRIBED | never joined, or left |
| PREPARING | on the interval | STABLE, rejoinNeeded | RECONCILE | gives up what must be given up before the join |
| JOINING | none, the JoinGroup stands for them | PREPARING_REBALANCE | JOINING | JoinGroup is out, or about to be |
| SYNCING | on the interval | COMPLETING_REBALANCE | JOINING | the leader computes, SyncGroup is out |
| RECONCILE | on the interval | STABLE (join complete) | RECONCILE | takes over its share |
| STABLE | on the interval | STABLE | STABLE | has its share of this generation |
| FENCED | none | UNJOINED | FENCED | the coordinator does not know it any more; partitions are being declared lost |
| STALE | none | UNJOINED | STALE | left because the application did not poll; waits for its next poll |
| UNSUBSCRIBING | on the interval, then one LeaveGroup | leaving | UNSUBSCRIBING | gives up everything, then leaves |
| FATAL | none | - | FATAL | refused for good |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.membership.states import MemberState


class ClassicState(Enum):
    """The state of one member of a classic group; the module's table says what each means."""

    UNSUBSCRIBED = "UNSUBSCRIBED"
    PREPARING = "PREPARING"
    JOINING = "JOINING"
    SYNCING = "SYNCING"
    RECONCILE = "RECONCILE"
    STABLE = "STABLE"
    FENCED = "FENCED"
    STALE = "STALE"
    UNSUBSCRIBING = "UNSUBSCRIBING"
    FATAL = "FATAL"

    def __str__(self) -> str:
        """The bare name, as logs print it."""
        return self.value


_S = ClassicState
_ENDS = frozenset({_S.FENCED, _S.STALE, _S.UNSUBSCRIBING, _S.FATAL})

#: From each state, the states that may follow. To stay is not a transition.
VALID_TRANSITIONS: Mapping[ClassicState, frozenset[ClassicState]] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: frozenset({_S.JOINING}),
        _S.PREPARING: _ENDS | {_S.JOINING},
        _S.JOINING: _ENDS | {_S.SYNCING},
        _S.SYNCING: _ENDS | {_S.RECONCILE, _S.JOINING, _S.PREPARING},
        _S.RECONCILE: _ENDS | {_S.STABLE, _S.PREPARING},
        _S.STABLE: _ENDS | {_S.PREPARING},
        _S.FENCED: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
        _S.STALE: frozenset({_S.JOINING, _S.UNSUBSCRIBED}),
        _S.UNSUBSCRIBING: frozenset({_S.UNSUBSCRIBED, _S.FATAL}),
        _S.FATAL: frozenset({_S.JOINING}),
    }
)

#: The states in which the application's polls are watched (max.poll.interval.ms).
IN_GROUP = frozenset({_S.PREPARING, _S.JOINING, _S.SYNCING, _S.RECONCILE, _S.STABLE})
#: The states in which heartbeats are due; in JOINING the pending JoinGroup keeps the session alive.
HEARTBEATS = frozenset({_S.PREPARING, _S.SYNCING, _S.RECONCILE, _S.STABLE, _S.UNSUBSCRIBING})

#: How each state is shown where both protocols are: in the view, and to whoever watches it.
SHOWN: Mapping[ClassicState, MemberState] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: MemberState.UNSUBSCRIBED,
        _S.PREPARING: MemberState.RECONCILE,
        _S.JOINING: MemberState.JOINING,
        _S.SYNCING: MemberState.JOINING,
        _S.RECONCILE: MemberState.RECONCILE,
        _S.STABLE: MemberState.STABLE,
        _S.FENCED: MemberState.FENCED,
        _S.STALE: MemberState.STALE,
        _S.UNSUBSCRIBING: MemberState.UNSUBSCRIBING,
        _S.FATAL: MemberState.FATAL,
    }
)
