"""What a broker's version and configuration change in its group coordinators, and the error codes that they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from consumer_membership.types import Assignment

# Kafka's error codes that the coordinator answers (rules 6.4).
UNKNOWN_SERVER_ERROR: Final = -1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
OFFSET_METADATA_TOO_LARGE: Final = 12
COORDINATOR_LOAD_IN_PROGRESS: Final = 14
COORDINATOR_NOT_AVAILABLE: Final = 15
NOT_COORDINATOR: Final = 16
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_GROUP_PROTOCOL: Final = 23
UNKNOWN_MEMBER_ID: Final = 25
INVALID_SESSION_TIMEOUT: Final = 26
REBALANCE_IN_PROGRESS: Final = 27
GROUP_AUTHORIZATION_FAILED: Final = 30
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42
GROUP_ID_NOT_FOUND: Final = 69
MEMBER_ID_REQUIRED: Final = 79
GROUP_MAX_SIZE_REACHED: Final = 81
FENCED_INSTANCE_ID: Final = 82
FENCED_MEMBER_EPOCH: Final = 110
UNRELEASED_INSTANCE_ID: Final = 111
UNSUPPORTED_ASSIGNOR: Final = 112
STALE_MEMBER_EPOCH: Final = 113
INVALID_REGULAR_EXPRESSION: Final = 128

#: From this version of JoinGroup on a dynamic member joins with the id that it was given (KIP-394).
VERSION_OF_REQUIRED_ID: Final = 4
#: From this version of JoinGroup on a static leader that returns leads, and skips its assignment (KIP-814).
VERSION_OF_SKIPPED_ASSIGNMENT: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One broker's rules for KIP-848's groups; the defaults are those of 4.2 without limits, with short times."""

    session_timeout_s: float = 8.0
    heartbeat_interval_s: float = 1.0
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    #: KAFKA-19233 (4.2): epoch 0 of a known dynamic member is always a rejoin; before, mostly FENCED_MEMBER_EPOCH.
    accepts_rejoin: bool = True
    #: KAFKA-19431 (4.2): a smaller subscription shrinks the assignment in the same answer.
    shrinks_at_once: bool = True
    #: KAFKA-19974 (4.2): from one revocation to the next the member's epoch stays.
    keeps_epoch_between_revocations: bool = True
    #: 4.3: the assignor runs at most this often, so that a join's answer may be empty; 0: at once. As on 4.4, the first
    #: member of a group that was emptied does not wait.
    assignment_interval_s: float = 0.0
    #: KIP-1251 (4.3): a commit of an older epoch counts for what the member has held since that epoch.
    accepts_older_commits: bool = False
    #: 4.4: a member that asks for another assignor begins a new epoch; before, it counts with the next change.
    assigns_for_another_assignor: bool = False
    #: KAFKA-20601 (4.4): a returning instance id may join although the group is full.
    admits_returning_instances: bool = False
    #: 4.4: a member id that joins with another released instance id gives up its former one; before, it holds both.
    gives_up_former_instance: bool = False
    #: How long the broker takes to resolve a regular expression; the answers before that know no topic of it.
    regex_delay_s: float = 0.0


RULES_4_0: Final = Rules(accepts_rejoin=False, shrinks_at_once=False, keeps_epoch_between_revocations=False)
RULES_4_2: Final = Rules()
RULES_4_4: Final = Rules(
    assignment_interval_s=1.0,
    accepts_older_commits=True,
    assigns_for_another_assignor=True,
    admits_returning_instances=True,
    gives_up_former_instance=True,
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A heartbeat's success; `assignment` None: unchanged since the last answer."""

    member_epoch: int
    heartbeat_interval_s: float
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class Refused:
    """An error code with the broker's words."""

    code: int
    message: str = ""


class RequestRefusal(Exception):  # noqa: N818 - it carries an answer, and never leaves the coordinator
    """Ends the handling of a request with an error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.answer = Refused(code, message)
