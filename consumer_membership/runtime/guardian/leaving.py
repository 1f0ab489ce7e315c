"""The leave on behalf of one member: sent to its coordinator, wherever that is, until it is answered or too late.

One thread for each member.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from consumer_membership.runtime.guardian.asking import CredentialsRefusedError, NoAnswerError, TimeLeft, ask, printable
from consumer_membership.runtime.guardian.leave_requests import HostPort, LeaveRequest
from consumer_membership.wire.codec import Message
from consumer_membership.wire.versions import Api

#: How long a leave is tried: most of a session's 45 s, after which it is pointless.
LEAVE_PATIENCE_S = 30.0
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 2.0

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR = 14, 15, 16
#: The error codes of a coordinator that no longer has this member.
_GONE = {25: "UNKNOWN_MEMBER_ID", 69: "GROUP_ID_NOT_FOUND", 82: "FENCED_INSTANCE_ID", 110: "FENCED_MEMBER_EPOCH"}


class Level(Enum):
    """The level of the log line."""

    INFO = "INFO"
    WARNING = "WARNING"


class LeaveOutcome(NamedTuple):
    """The outcome of one leave, with its message."""

    level: Level
    text: str


class _LoadingError(NoAnswerError):
    """The coordinator is the right broker, and is still loading its groups."""


def leave(
    request: LeaveRequest,
    *,
    patience_s: float = LEAVE_PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> LeaveOutcome:
    """Send this leave until the coordinator has answered it, or `patience_s` is over."""
    give_up_at = clock() + patience_s

    def left_s() -> float:
        return give_up_at - clock()

    backoff_s = _BACKOFF_S
    coordinator: HostPort | None = request.coordinator
    while True:
        try:
            if coordinator is None:
                coordinator = _find(request, left_s)
            return _leave_at(request, coordinator, left_s)
        except CredentialsRefusedError as error:
            return _failed(f": {error}")
        except NoAnswerError as error:
            # A host that ran out of memory ends many processes at once: half of the wait is random.
            sleep(max(0.0, min(backoff_s * (0.5 + os.urandom(1)[0] / 512), left_s())))
            if left_s() <= 0:
                return _failed(f" within {patience_s:.0f} s: {error}")
            if not isinstance(error, _LoadingError):
                coordinator = None
        backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)


def _leave_at(request: LeaveRequest, coordinator: HostPort, left_s: TimeLeft) -> LeaveOutcome:
    if request.member_epoch is None:
        way, message = "LeaveGroup", None
        code = _code_of_leave_group(ask(request, coordinator, Api.LEAVE_GROUP, request.leave, left_s))
    else:
        way = f"epoch {request.member_epoch}"
        answer = ask(request, coordinator, Api.CONSUMER_GROUP_HEARTBEAT, request.leave, left_s)
        code, message = answer.error_code, answer.error_message
    place = f"coordinator {printable(coordinator)}"
    if code == 0:
        return LeaveOutcome(Level.INFO, f"left on its behalf ({way}) at {place}")
    if code in _GONE:
        return LeaveOutcome(Level.INFO, f"it had already left or been removed: {place} responded with {_GONE[code]}")
    if code in (_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR):
        kind = _LoadingError if code == _LOADING else NoAnswerError
        raise kind(f"{place} responded with error code {code}")
    return _failed(f": {place} responded with error code {code} ({message or 'no message'})")


def _code_of_leave_group(answer: Message) -> int:
    """The error of the whole request if there is one, else the member's."""
    if answer.error_code == 0 and len(answer.members) != 1:
        raise NoAnswerError("the LeaveGroup response does not contain the member")
    code: int = answer.error_code or answer.members[0].error_code
    return code


def _failed(why: str) -> LeaveOutcome:
    return LeaveOutcome(
        Level.WARNING, f"could not leave on its behalf{why}; the coordinator removes it when its session ends"
    )


def _find(request: LeaveRequest, left_s: TimeLeft) -> HostPort:
    """Return the group's coordinator according to the first broker that answers."""
    reasons = []
    for broker in request.bootstrap_servers:
        try:
            found = _found(ask(request, broker, Api.FIND_COORDINATOR, request.find_coordinator, left_s))
        except NoAnswerError as error:
            reasons.append(str(error))
            continue
        if found.error_code == 0:
            return found.host, found.port
        reasons.append(f"{printable(broker)} did not return the coordinator: error code {found.error_code}")
    raise NoAnswerError("; ".join(reasons) or "no broker is configured")


def _found(answer: Message) -> Message:
    """The result for the one group: in a list from version 4 on (KIP-699)."""
    coordinators = getattr(answer, "coordinators", (answer,))
    if len(coordinators) != 1:
        raise NoAnswerError("the FindCoordinator response does not contain the group")
    return coordinators[0]
