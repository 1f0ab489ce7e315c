"""The states of a member of the classic protocol, and the only transitions between them.

A classic group moves in *generations*. In each rebalance every member sends a JoinGroup with its subscription and its
partitions. The coordinator waits for all, makes one of them the leader and sends it all subscriptions; the leader's
assignor computes the assignment, and each member receives its partitions with the response to SyncGroup. With an EAGER
assignor a member revokes everything before it joins; with a COOPERATIVE one it keeps its partitions, revokes those that
are not in its new assignment, and joins again, so that the freed partitions get their new owners one generation later
(KIP-429).

| state | heartbeats | Kafka's Java name | `MemberState` in the view | meaning |
|---|---|---|---|---|
| UNSUBSCRIBED | none | UNJOINED | UNSUBSCRIBED | never joined, or left |
| PREPARING | on the interval | STABLE, rejoinNeeded | RECONCILE | revokes partitions before it joins |
| JOINING | none, the JoinGroup replaces them | PREPARING_REBALANCE | JOINING | JoinGroup is sent, or about to be sent |
| SYNCING | on the interval | COMPLETING_REBALANCE | JOINING | the leader computes the assignment; SyncGroup is sent |
| RECONCILE | on the interval | STABLE (join complete) | RECONCILE | applies its assignment |
| STABLE | on the interval | STABLE | STABLE | has its assignment of the present generation |
| FENCED | none | UNJOINED | FENCED | the coordinator fenced the member; on_lost is called, then the member rejoins |
| STALE | none | UNJOINED | STALE | left because the application did not poll; waits for its next poll |
| UNSUBSCRIBING | on the interval, then one LeaveGroup | leaving | UNSUBSCRIBING | revokes all partitions, then leaves |
| FATAL | none | - | FATAL | refused permanently |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from consumer_membership.membership import events as ev
from consumer_membership.membership.classic import exchanges as ex
from consumer_membership.membership.states import MemberState, TransitionRule, Trigger, transitions_by_trigger


class ClassicState(Enum):
    """The state of one member of a classic group; the module's table has their meanings."""

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
        """Return the bare name, as logs print it."""
        return self.value


class ClassicTrigger(Enum):
    """The additional triggers of a classic member; the value is the label in the diagram."""

    REBALANCE = "the group rebalances, or this member needs it to"
    READY_TO_JOIN = "the partitions to give up are revoked"
    GATHERED = "JoinGroup is answered"
    REJOIN_NEEDED = "SyncGroup is refused, or not answered"
    ASSIGNMENT_RECEIVED = "SyncGroup is answered"
    ASSIGNMENT_OUTDATED = "SyncGroup is answered for an older subscription"
    RECONCILED = "the assignment is applied"


_S, _T, _C = ClassicState, Trigger, ClassicTrigger
_IN_GROUP = (_S.PREPARING, _S.JOINING, _S.SYNCING, _S.RECONCILE, _S.STABLE)

#: Every transition of a member of the classic protocol; the first row begins in the initial state. "Section" is one of
#: docs/project/protocol.md.
CLASSIC_TRANSITIONS: tuple[TransitionRule[ClassicState], ...] = (
    TransitionRule((_S.UNSUBSCRIBED,), _T.POLLED, _S.JOINING, "section 4.2: a rebalance never starts outside poll"),
    TransitionRule((_S.JOINING,), _C.GATHERED, _S.SYNCING, "section 4.2"),
    TransitionRule((_S.SYNCING,), _C.ASSIGNMENT_RECEIVED, _S.RECONCILE, "section 4.5"),
    TransitionRule((_S.SYNCING,), _C.ASSIGNMENT_OUTDATED, _S.PREPARING, "section 4.5: nothing is applied then"),
    TransitionRule((_S.SYNCING,), _C.REJOIN_NEEDED, _S.JOINING, "section 4.7: the generation is over, nothing is lost"),
    TransitionRule((_S.RECONCILE,), _C.RECONCILED, _S.STABLE, "section 4.5"),
    TransitionRule((_S.STABLE,), _C.REBALANCE, _S.PREPARING, "REBALANCE_IN_PROGRESS, KIP-429; section 4.4"),
    TransitionRule((_S.PREPARING,), _C.READY_TO_JOIN, _S.JOINING, "section 4.4: eager members keep nothing"),
    TransitionRule(_IN_GROUP, _T.FENCED, _S.FENCED, "UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION; section 4.7"),
    TransitionRule(
        (_S.FENCED,), _T.PARTITIONS_LOST, _S.JOINING, "section 4.7: on_lost returns before the member joins"
    ),
    TransitionRule(_IN_GROUP, _T.POLL_TIMEOUT, _S.STALE, "KIP-62; section 1.9"),
    TransitionRule((_S.STALE,), _T.PARTITIONS_LOST, _S.JOINING, "section 1.9: on_lost runs inside the next poll"),
    TransitionRule((_S.STALE,), _T.POLLED, _S.JOINING, "section 1.9: no partition was held"),
    TransitionRule((*_IN_GROUP, _S.UNSUBSCRIBING), _T.REFUSED, _S.FATAL, "section 4.7: codes for which no retry helps"),
    TransitionRule((_S.FATAL,), _T.RESUBSCRIBED, _S.JOINING, "section 4.7: the refused subscription was the cause"),
    TransitionRule(_IN_GROUP, _T.LEAVE_REQUESTED, _S.UNSUBSCRIBING, "section 4.8: revoke everything, then leave"),
    TransitionRule(
        (_S.FENCED, _S.STALE), _T.LEAVE_REQUESTED, _S.UNSUBSCRIBED, "section 4.8: there is nothing to leave"
    ),
    TransitionRule((_S.UNSUBSCRIBING,), _T.LEAVE_ENDED, _S.UNSUBSCRIBED, "section 4.8: best effort"),
)

#: The targets of the transitions, by state and trigger.
CLASSIC_TARGETS = transitions_by_trigger(CLASSIC_TRANSITIONS)

#: The events that cause each trigger in a classic member; () if a condition causes it, which any event can fulfill.
CLASSIC_CAUSES: Mapping[Enum, tuple[type, ...]] = MappingProxyType(
    {
        _T.POLLED: (ev.Polled,),
        _T.RESUBSCRIBED: (ev.Polled,),
        _T.PARTITIONS_LOST: (),
        _T.FENCED: (ex.ClassicHeartbeatRejected, ex.JoinRejected, ex.SyncRejected, ex.JoinAnswered),
        _T.POLL_TIMEOUT: (),
        _T.REFUSED: (),
        _T.LEAVE_REQUESTED: (ev.LeaveRequested,),
        _T.LEAVE_ENDED: (),
        _C.REBALANCE: (),
        _C.READY_TO_JOIN: (),
        _C.GATHERED: (ex.JoinAnswered,),
        _C.REJOIN_NEEDED: (ex.SyncRejected, ex.ClassicHeartbeatRejected, ex.ExchangeFailed),
        _C.ASSIGNMENT_RECEIVED: (ex.SyncAnswered, ex.AssignorNotified),
        _C.ASSIGNMENT_OUTDATED: (ex.SyncAnswered, ex.AssignorNotified),
        _C.RECONCILED: (),
    }
)

#: The states in which the application's polls are watched (max.poll.interval.ms).
CLASSIC_IN_GROUP = frozenset(_IN_GROUP)
#: The states in which heartbeats are due; in JOINING the pending JoinGroup keeps the session alive.
HEARTBEATS = frozenset({_S.PREPARING, _S.SYNCING, _S.RECONCILE, _S.STABLE, _S.UNSUBSCRIBING})

#: How the view and the observers show each state, for both protocols.
PUBLIC_STATES: Mapping[ClassicState, MemberState] = MappingProxyType(
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
