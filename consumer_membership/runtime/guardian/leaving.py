"""The leave on behalf of one member: to its coordinator, wherever that is by now, until it is answered or too late.

One thread for each member.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from consumer_membership.runtime.guardian.asking import CredentialsRefusedError, NoAnswerError, ask, shown
from consumer_membership.runtime.guardian.leave_requests import Address, LeaveRequest
from consumer_membership.wire import leave_frames

#: How long a leave is tried: most of a session's 45 s, after which it is pointless.
PATIENCE_S = 30.0
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 2.0
_FIND_COORDINATOR, _LEAVE_GROUP, _HEARTBEAT = 10, 13, 68

_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR = 14, 15, 16
#: What says that the coordinator does not count on this member any more.
_GONE = {25: "UNKNOWN_MEMBER_ID", 69: "GROUP_ID_NOT_FOUND", 82: "FENCED_INSTANCE_ID", 110: "FENCED_MEMBER_EPOCH"}


class Level(Enum):
    """How much an operator should care."""

    INFO = "INFO"
    WARNING = "WARNING"


class Outcome(NamedTuple):
    """What became of one leave, in words."""

    level: Level
    text: str


class _LoadingError(NoAnswerError):
    """The coordinator is the right one, and still reads what it has written down of its groups."""


def leave(
    request: LeaveRequest,
    *,
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Send this leave until the coordinator has answered it, or `patience_s` is over."""
    give_up_at = clock() + patience_s
    backoff_s = _BACKOFF_S
    coordinator: Address | None = request.coordinator
    while True:
        try:
            if coordinator is None:
                coordinator = _find(request)
            return _leave_at(request, coordinator)
        except CredentialsRefusedError as error:
            return _failed(f": {error}")
        except NoAnswerError as error:
            if clock() >= give_up_at:
                return _failed(f" within {patience_s:.0f} s: {error}")
            if not isinstance(error, _LoadingError):
                coordinator = None
        # A host that ran out of memory lets many guardians go at once: half of the wait is chance.
        sleep(backoff_s * (0.5 + os.urandom(1)[0] / 512))
        backoff_s = min(2 * backoff_s, _BACKOFF_MAX_S)


def _leave_at(request: LeaveRequest, coordinator: Address) -> Outcome:
    if request.member_epoch is None:
        way, api_key, read = "LeaveGroup", _LEAVE_GROUP, leave_frames.leave_group
    else:
        way, api_key, read = f"epoch {request.member_epoch}", _HEARTBEAT, leave_frames.consumer_group_heartbeat
    status = ask(request, coordinator, api_key, request.leave, lambda answer, _: read(answer))
    place = f"coordinator {shown(coordinator)}"
    if status.code == 0:
        return Outcome(Level.INFO, f"left on its behalf ({way}) at {place}")
    if status.code in _GONE:
        return Outcome(Level.INFO, f"it had left or was removed before: {place} answers {_GONE[status.code]}")
    if status.code in (_LOADING, _NOT_AVAILABLE, _NOT_COORDINATOR):
        kind = _LoadingError if status.code == _LOADING else NoAnswerError
        raise kind(f"{place} answers error code {status.code}")
    return _failed(f": {place} refuses it with error code {status.code} ({status.message or 'no words'})")


def _failed(why: str) -> Outcome:
    return Outcome(Level.WARNING, f"could not leave on its behalf{why}; its session's end removes it")


def _find(request: LeaveRequest) -> Address:
    """The group's coordinator, as the first broker that answers names it."""
    reasons = []
    for broker in request.bootstrap_servers:
        try:
            found = ask(request, broker, _FIND_COORDINATOR, request.find_coordinator, leave_frames.find_coordinator)
        except NoAnswerError as error:
            reasons.append(str(error))
            continue
        if found.status.code == 0:
            return found.host, found.port
        reasons.append(f"{shown(broker)} knows no coordinator: error code {found.status.code}")
    raise NoAnswerError("; ".join(reasons) or "no broker is known")
