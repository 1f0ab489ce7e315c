"""The states of a static member's claim to its instance id; `claim` has the rules (section 3.3).

| state | the join | meaning |
|---|---|---|
| UNCLAIMED | - | no join has begun |
| READY | is sent | the instance id is known; with `waits_since`, another member has to leave first |
| LOOKING | waits | the holder of the id, or a free id, is to be looked up: now, or after a pause if all are held |
| DESCRIBING | waits | DescribeGroup is sent |
| CHECKING | waits | CheckHolder is sent |
| RELEASING | waits | the next heartbeat releases the holder, or this member's own former membership |
| HELD | - | the coordinator accepted the join |
| REFUSED | - | no id is free for this member, or the group is full: it ends |
"""

from __future__ import annotations

from enum import Enum

from consumer_membership.membership.states import TransitionRule, transitions_by_trigger


class ClaimState(Enum):
    """The state of a member's claim to its instance id; the module's table has their meanings."""

    UNCLAIMED = "UNCLAIMED"
    READY = "READY"
    LOOKING = "LOOKING"
    DESCRIBING = "DESCRIBING"
    CHECKING = "CHECKING"
    RELEASING = "RELEASING"
    HELD = "HELD"
    REFUSED = "REFUSED"

    def __str__(self) -> str:
        """Return the bare name."""
        return self.value


class ClaimTrigger(Enum):
    """The triggers of a claim; the value is the label in the diagram."""

    JOIN_BEGINS = "a join begins, with an id"
    LOOKUP_NEEDED = "the holder, or a free id, has to be looked up"
    DESCRIBE_SENT = "DescribeGroup is sent"
    CHECK_SENT = "CheckHolder is sent"
    JOIN_CLEARED = "the join may be sent"
    HOLDER_FOUND = "the holder has to be released"
    ADMITTED = "the coordinator accepts the member's join"
    REJECTED = "no id is free, or the group is full"


_S, _T = ClaimState, ClaimTrigger

#: Every transition of a claim; to stay is not a transition.
CLAIM_TRANSITIONS: tuple[TransitionRule[ClaimState], ...] = (
    TransitionRule(
        (_S.UNCLAIMED, _S.LOOKING, _S.DESCRIBING, _S.CHECKING, _S.RELEASING, _S.HELD),
        _T.JOIN_BEGINS,
        _S.READY,
        "KIP-345",
    ),
    TransitionRule(
        (_S.UNCLAIMED, _S.READY, _S.DESCRIBING, _S.CHECKING, _S.RELEASING, _S.HELD),
        _T.LOOKUP_NEEDED,
        _S.LOOKING,
        "a pool, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED",
    ),
    TransitionRule((_S.LOOKING,), _T.DESCRIBE_SENT, _S.DESCRIBING, "ConsumerGroupDescribe"),
    TransitionRule((_S.READY, _S.DESCRIBING), _T.CHECK_SENT, _S.CHECKING, "takeover-when-dead"),
    TransitionRule((_S.LOOKING, _S.DESCRIBING, _S.RELEASING), _T.JOIN_CLEARED, _S.READY, "section 3.3"),
    TransitionRule(
        (_S.READY, _S.DESCRIBING, _S.CHECKING),
        _T.HOLDER_FOUND,
        _S.RELEASING,
        "section 3.3: epoch -2, or -1 in a full group",
    ),
    TransitionRule((_S.READY,), _T.ADMITTED, _S.HELD, "KIP-848"),
    TransitionRule((_S.DESCRIBING,), _T.REJECTED, _S.REFUSED, "group.instance.id.conflict.policy, KIP-389"),
)

#: The targets of the transitions, by state and trigger.
CLAIM_TARGETS = transitions_by_trigger(CLAIM_TRANSITIONS)
