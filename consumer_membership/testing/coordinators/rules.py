"""Rules of group coordinators that depend on the broker's version and configuration, and their error codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from consumer_membership.types import Assignment

# Kafka's error codes in the coordinators' responses (rules 6.4).
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

#: From this JoinGroup version on, a dynamic member must join with a member id that the broker issued (KIP-394).
VERSION_OF_REQUIRED_ID: Final = 4
#: From this JoinGroup version on, a returning static leader remains the leader and skips the assignment (KIP-814).
VERSION_OF_SKIPPED_ASSIGNMENT: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One broker's rules for KIP-848 groups; the defaults are those of Kafka 4.2, without limits, with short times."""

    session_timeout_s: float = 8.0
    heartbeat_interval_s: float = 1.0
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    #: KAFKA-19233 (4.2): epoch 0 of a known dynamic member is always a rejoin; before 4.2, mostly FENCED_MEMBER_EPOCH.
    accepts_rejoin: bool = True
    #: KAFKA-19431 (4.2): a smaller subscription shrinks the assignment in the same response.
    shrinks_immediately: bool = True
    #: KAFKA-19974 (4.2): a member that must revoke several times in a row keeps its epoch between the revocations.
    keeps_epoch_between_revocations: bool = True
    #: 4.3: the minimum time between two runs of the assignor, so the response to a join may have an empty assignment;
    #: 0: no minimum. As in 4.4, the first member of a group that has become empty does not wait.
    assignment_interval_s: float = 0.0
    #: KIP-1251 (4.3): a commit with an older epoch is accepted if the member has held its partitions since that epoch.
    accepts_older_commits: bool = False
    #: 4.4: a heartbeat that changes the group's assignor raises the group epoch; before, it waits for the next change.
    assigns_for_another_assignor: bool = False
    #: KAFKA-20601 (4.4): a returning static member may join although the group is full.
    admits_returning_instances: bool = False
    #: 4.4: a member id that joins with another, released instance id loses the former id; before, it keeps both.
    releases_former_instance: bool = False
    #: How long the broker takes to resolve a regular expression; until then, no topic matches it.
    regex_delay_s: float = 0.0


RULES_4_0: Final = Rules(accepts_rejoin=False, shrinks_immediately=False, keeps_epoch_between_revocations=False)
RULES_4_2: Final = Rules()
RULES_4_4: Final = Rules(
    assignment_interval_s=1.0,
    accepts_older_commits=True,
    assigns_for_another_assignor=True,
    admits_returning_instances=True,
    releases_former_instance=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRules:
    """One broker's rules for classic groups; the defaults are those of Kafka (rules 6.2)."""

    #: How long an empty group waits for more members after the first; 0: the join phase ends when timers next fire.
    initial_rebalance_delay_s: float = 3.0
    min_session_timeout_s: float = 6.0
    max_session_timeout_s: float = 1800.0
    max_size: int = 2**31 - 1
    #: How long a JoinGroup of a new member, which cannot heartbeat yet, may wait (a broker constant: five minutes).
    new_member_join_timeout_s: float = 300.0
    #: KAFKA-12759 (open): a static member that returns to a stable group with other topics causes a rebalance.
    sees_returning_subscriptions: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """The success response to a heartbeat; `assignment` None: unchanged since the last response."""

    member_epoch: int
    heartbeat_interval_s: float
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class Refused:
    """An error code with the broker's error message."""

    code: int
    message: str = ""


class RequestRefusal(Exception):  # noqa: N818 - it carries a response, and never leaves the coordinator
    """Ends the handling of a request with an error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message)
        self.answer = Refused(code, message)
