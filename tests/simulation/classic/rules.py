"""What a broker's configuration changes in its classic groups, and the error codes that only those know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Kafka's error codes beside those of `tests.simulation.rules` (rules 6.4).
UNKNOWN_SERVER_ERROR: Final = -1
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_GROUP_PROTOCOL: Final = 23
INVALID_SESSION_TIMEOUT: Final = 26
REBALANCE_IN_PROGRESS: Final = 27
MEMBER_ID_REQUIRED: Final = 79

#: From this version of JoinGroup on a dynamic member joins with the id that it was given (KIP-394).
VERSION_OF_REQUIRED_ID: Final = 4
#: From this version of JoinGroup on a static leader that returns leads, and skips its assignment (KIP-814).
VERSION_OF_SKIPPED_ASSIGNMENT: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRules:
    """One broker's rules for classic groups; the defaults are a broker's own (rules 6.2)."""

    #: How long an empty group waits for more members after the first one; 0: its join phase ends at the next timer.
    initial_rebalance_delay_s: float = 3.0
    min_session_timeout_s: float = 6.0
    max_session_timeout_s: float = 1800.0
    max_size: int = 2**31 - 1
    #: How long a new member's JoinGroup may wait, as it cannot heartbeat yet (a constant of the broker: five minutes).
    new_member_join_timeout_s: float = 300.0
    #: KAFKA-12759 (open): a static member that returns to a stable group with other topics begins a rebalance.
    sees_returning_subscriptions: bool = False
