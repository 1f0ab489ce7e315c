"""What ends by itself in a classic group."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from consumer_membership.types import NO_MEMBER_ID, Instant


class TimerKind(Enum):
    """Sessions of members and of ids that were given out, and the two phases of a rebalance."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"


class Timer(NamedTuple):
    """A timer that runs; `member_id` for sessions."""

    at: Instant
    kind: TimerKind
    member_id: str = NO_MEMBER_ID


class InitialDelay(NamedTuple):
    """The first rebalance of a group waits for more members: this step's length, and what is left for further ones."""

    step_s: float
    left_s: float
